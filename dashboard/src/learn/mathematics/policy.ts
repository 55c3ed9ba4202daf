/** The smallest policy there is: a table of logits, one row for every situation, with exact gradients. */
export function softmax(logits: ArrayLike<number>): number[] {
  const sizes = new Array<number>(logits.length);
  let [highest, total] = [-Infinity, 0];
  for (let at = 0; at < logits.length; at++) highest = Math.max(highest, logits[at]!);
  for (let at = 0; at < logits.length; at++) total += sizes[at] = Math.exp(logits[at]! - highest);
  for (let at = 0; at < logits.length; at++) sizes[at]! /= total;
  return sizes;
}

/** H = −Σ p log p, in nats. */
export const entropy = (chances: readonly number[]): number => -chances.reduce((sum, chance) => sum + (chance > 0 ? chance * Math.log(chance) : 0), 0);

/** KL(p ‖ q), in nats. */
export const divergence = (ours: readonly number[], theirs: readonly number[]): number =>
  ours.reduce((sum, chance, at) => sum + (chance > 0 ? chance * Math.log(chance / Math.max(theirs[at]!, 1e-300)) : 0), 0);

/** ∂ log p_a / ∂ logit_v = 1[v = a] − p_v, times `slope`, added to `gradient`. */
export function addLogpGradient(gradient: number[], chances: readonly number[], action: number, slope: number): void {
  for (let v = 0; v < chances.length; v++) gradient[v]! += slope * (Number(v === action) - chances[v]!);
}

/** ∂ H / ∂ logit_v = −p_v (log p_v + H), times `slope`, added to `gradient`. */
export function addEntropyGradient(gradient: number[], chances: readonly number[], slope: number): void {
  const whole = entropy(chances);
  for (let v = 0; v < chances.length; v++) {
    const chance = chances[v]!;
    if (chance > 0) gradient[v]! -= slope * chance * (Math.log(chance) + whole);
  }
}

/** Adam as PyTorch has it; `step` changes the weights in place, towards a smaller loss. */
export class Adam {
  private readonly first: number[];
  private readonly second: number[];
  private count = 0;

  constructor(size: number, readonly rate: number, readonly betas: [number, number] = [0.9, 0.999], readonly eps = 1e-8) {
    this.first = new Array<number>(size).fill(0);
    this.second = new Array<number>(size).fill(0);
  }

  step(weights: number[], gradient: readonly number[]): void {
    this.count += 1;
    const [slow, slower] = this.betas;
    const [warm, warmer] = [1 - slow ** this.count, Math.sqrt(1 - slower ** this.count)];
    for (let at = 0; at < weights.length; at++) {
      const slope = gradient[at]!;
      const first = (this.first[at] = slow * this.first[at]! + (1 - slow) * slope);
      const second = (this.second[at] = slower * this.second[at]! + (1 - slower) * slope * slope);
      weights[at]! -= ((this.rate / warm) * first) / (Math.sqrt(second) / warmer + this.eps);
    }
  }
}
