/** Seeded random numbers (mulberry32), so that the same seed shows the same run on every machine. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = (seed * 2_654_435_761 + 1) >>> 0;
  }

  /** Uniform in [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** Standard normal, by Box and Muller. */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
  }

  normals(count: number, scale = 1): number[] {
    return Array.from({ length: count }, () => scale * this.normal());
  }

  below(count: number): number {
    return Math.floor(this.next() * count);
  }

  /** An index drawn with these chances, which add up to 1. */
  pick(chances: ArrayLike<number>): number {
    let left = this.next();
    for (let at = 0; at < chances.length - 1; at++) if ((left -= chances[at]!) < 0) return at;
    return chances.length - 1;
  }

  /** 0 to count − 1 in random order. */
  order(count: number): number[] {
    const found = Array.from({ length: count }, (_, at) => at);
    for (let at = count - 1; at > 0; at--) {
      const other = this.below(at + 1);
      [found[at], found[other]] = [found[other]!, found[at]!];
    }
    return found;
  }
}
