/** Runs experiments that are generators, a few milliseconds per frame for all of them together, so that the page stays alive. */
const BUDGET = 12; // milliseconds of a frame

/** Each draws one value of one source and says whether there are more. They take turns: who has drawn goes to the end. */
const queue = new Set<() => boolean>();
let isTicking = false;

function tick(): void {
  const began = performance.now();
  for (const draw of queue) {
    queue.delete(draw);
    if (draw()) queue.add(draw);
    if (performance.now() - began >= BUDGET) break;
  }
  isTicking = queue.size > 0;
  if (isTicking) requestAnimationFrame(tick);
}

export class Running {
  isOn = $state(false);
  private mine: (() => boolean)[] = [];

  /** Draw values from every source in turn until all have ended; a new call replaces the one under way. */
  start<Value>(sources: readonly Iterator<Value>[], told: (source: number, value: Value) => boolean | void): void {
    this.stop();
    let left = sources.length;
    this.mine = sources.map((source, at) => () => {
      const next = source.next();
      // A listener that returns false has seen enough of its source.
      const goesOn = !next.done && told(at, next.value) !== false;
      if (!goesOn && --left === 0) this.isOn = false;
      return goesOn;
    });
    this.isOn = left > 0;
    for (const draw of this.mine) queue.add(draw);
    if (!isTicking && this.isOn) requestAnimationFrame(tick);
    isTicking ||= this.isOn;
  }

  stop(): void {
    for (const draw of this.mine) queue.delete(draw);
    this.mine = [];
    this.isOn = false;
  }
}
