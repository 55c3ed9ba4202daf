/** Runs experiments that are generators, a few milliseconds per frame, so that the page stays alive meanwhile. */
const BUDGET = 14; // milliseconds of a frame

export class Running {
  isOn = $state(false);
  private current = 0;

  /** Draw values from every source in turn until all have ended; a new call replaces the one under way. */
  start<Value>(sources: readonly Iterator<Value>[], told: (source: number, value: Value) => boolean | void, done?: () => void): void {
    const mine = ++this.current;
    const left = new Set(sources.keys());
    this.isOn = true;
    const frame = (): void => {
      if (mine !== this.current) return;
      const began = performance.now();
      while (left.size && performance.now() - began < BUDGET) {
        for (const source of left) {
          const next = sources[source]!.next();
          // A listener that returns false has seen enough of its source.
          if (next.done || told(source, next.value) === false) left.delete(source);
        }
      }
      if (left.size) requestAnimationFrame(frame);
      else {
        this.isOn = false;
        done?.();
      }
    };
    requestAnimationFrame(frame);
  }

  stop(): void {
    this.current += 1;
    this.isOn = false;
  }
}
