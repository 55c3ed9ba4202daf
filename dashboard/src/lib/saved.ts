/** What a file saved from the laboratory carries: the view it was saved from and the run on its screen. Null on the page itself. */
export type Saved = { address: string; when: string; recording: unknown; title: string; sweep: { text: string; name: string } | null };

const told = document.getElementById("saved")?.textContent;
export const saved: Saved | null = told ? (JSON.parse(told) as Saved) : null;
