/** The sweep that the reader opened, so that a saved file has it too; null while the recorded example is shown. */
export const opened: { sweep: { text: string; name: string } | null } = { sweep: null };
