/** The clipped surrogate, KL estimators and the loss of a batch, each with its derivative by log π. */
export type KlEstimator = "k1" | "k2" | "k3";

/** exp(20) is 5e8: far outside any trust region, and still finite. */
export const MAX_LOG_RATIO = 20;

export const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));

/** r = exp(log π − log π_b). */
export const importanceRatio = (logp: number, behaviorLogp: number): number => Math.exp(clamp(logp - behaviorLogp, -MAX_LOG_RATIO, MAX_LOG_RATIO));

/** −min(r A, clip(r, 1 − ε_low, 1 + ε_high) A), PPO's equation 7, smaller is better. */
export const clipped = (ratio: number, advantage: number, low: number, high = low): number =>
  -Math.min(ratio * advantage, clamp(ratio, 1 - low, 1 + high) * advantage);

/** Whether the clip takes this token's gradient away: the ratio left the range in the direction that pays. */
export const isClipped = (ratio: number, advantage: number, low: number, high = low): boolean =>
  (advantage > 0 && ratio > 1 + high) || (advantage < 0 && ratio < 1 - low);

/** Its derivative by log π: −r A, or 0 where the clip acts. */
export const clippedSlope = (ratio: number, advantage: number, low: number, high = low): number =>
  isClipped(ratio, advantage, low, high) ? 0 : -ratio * advantage;

/** KL(π ‖ π_ref) at a sampled token: k1 = d, k2 = d²/2, k3 = e^(−d) + d − 1 with d = log π − log π_ref. */
export function klEstimate(logp: number, referenceLogp: number, estimator: KlEstimator = "k3", ratio = 1): number {
  const d = clamp(logp - referenceLogp, -MAX_LOG_RATIO, MAX_LOG_RATIO);
  return ratio * (estimator === "k1" ? d : estimator === "k2" ? (d * d) / 2 : Math.exp(-d) + d - 1);
}

/** Its derivative by log π; a given `ratio` carries a gradient for k1 and k3, as in the code. */
export function klSlope(logp: number, referenceLogp: number, estimator: KlEstimator = "k3", ratio?: number): number {
  const d = logp - referenceLogp;
  const inside = Math.abs(d) <= MAX_LOG_RATIO ? 1 : 0;
  const own = inside * (estimator === "k1" ? 1 : estimator === "k2" ? d : 1 - Math.exp(-d));
  if (ratio === undefined) return own;
  return ratio * own + (estimator === "k2" ? 0 : klEstimate(logp, referenceLogp, estimator, ratio));
}

export type LossBatch = { logp: number[][]; behavior: number[][]; advantages: number[]; mask: boolean[][] };
export type LossChoices = {
  low?: number; high?: number; denominator: number; aggregation?: "mean_of_means" | "tokens";
  reference?: { logp: number[][]; beta: number; estimator?: KlEstimator; corrected?: boolean };
};

/** Σ mask (surrogate + β KL) [/ |y|] / denominator: GRPO's loss ("mean_of_means") or DAPO's ("tokens"), and its slope by log π. */
export function policyLoss(batch: LossBatch, choices: LossChoices): { loss: number; slopes: number[][]; clippedShare: number } {
  const { low = 0.2, high = low, denominator, aggregation = "tokens", reference } = choices;
  let [loss, stopped, tokens] = [0, 0, 0];
  const slopes = batch.logp.map((row, i) => {
    const length = Math.max(1, batch.mask[i]!.filter(Boolean).length);
    const weight = 1 / denominator / (aggregation === "mean_of_means" ? length : 1);
    return row.map((logp, t) => {
      if (!batch.mask[i]![t]) return 0;
      const advantage = batch.advantages[i]!;
      const ratio = importanceRatio(logp, batch.behavior[i]![t]!);
      tokens += 1;
      stopped += Number(isClipped(ratio, advantage, low, high));
      let [value, slope] = [clipped(ratio, advantage, low, high), clippedSlope(ratio, advantage, low, high)];
      if (reference) {
        const correction = reference.corrected === false ? undefined : ratio;
        value += reference.beta * klEstimate(logp, reference.logp[i]![t]!, reference.estimator, correction ?? 1);
        slope += reference.beta * klSlope(logp, reference.logp[i]![t]!, reference.estimator, correction);
      }
      loss += weight * value;
      return weight * slope;
    });
  });
  return { loss, slopes, clippedShare: stopped / Math.max(1, tokens) };
}
