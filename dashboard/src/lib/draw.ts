/** Drawing, once per frame at most, and never so much in one frame that the page stutters. */
const BUDGET = 4; // milliseconds of a frame; painting what was drawn takes about as long again
const waiting = new Map<object, () => void>();
let asked = false;

/** Draw soon; asking again for the same thing before then changes nothing but what is drawn. */
export function draw(what: object, how: () => void): void {
  waiting.delete(what);
  waiting.set(what, how);
  if (!asked) requestAnimationFrame(frame);
  asked = true;
}

export const forget = (what: object): void => void waiting.delete(what);

function frame(): void {
  const began = performance.now();
  for (const [what, how] of waiting) {
    waiting.delete(what);
    how();
    if (performance.now() - began > BUDGET) break;
  }
  asked = waiting.size > 0;
  if (asked) requestAnimationFrame(frame);
}
