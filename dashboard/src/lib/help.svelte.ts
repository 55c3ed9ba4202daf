/** Whether the list of shortcuts is shown. */
export const help = $state({ open: false });
