/** The eleven faults: what was written, what is right, and the setting in which each one bites. */
import { mean } from "../mathematics/advantages";
import { brokenSteps, SETTINGS, type BrokenRun, type Fault, type Settings } from "./broken_run";

type Curve = "score" | "crashes" | "single" | "size" | "same";
export type Pitfall = {
  fault: Fault; title: string; wrong: string; right: string; says: string; see: string; stage: Partial<Settings>; curve: Curve; axis: string;
};

const SCORE = "Share of right words";

export const PITFALLS: readonly Pitfall[] = [
  {
    fault: "clip_never_acts", title: "A clip that never clips", wrong: "min(s, max(s, x))", right: "min(ρ·A, clip(ρ, 1−ε, 1+ε)·A)",
    says: "min(s, max(s, x)) is always s. Nothing stops a token once its ratio has left 1 ± ε, so several passes over one noisy batch run away with it.",
    see: "Eight passes over each batch: with the clip the run learns, without it the policy is stuck on the luck of the first batches.",
    stage: { noise: 0.6, rate: 4, entropy: 0 }, curve: "score", axis: SCORE,
  },
  {
    fault: "advantage_clipped", title: "The advantage clipped instead of the ratio", wrong: "ρ · clip(A, −ε, ε)", right: "min(ρ·A, clip(ρ, 1−ε, 1+ε)·A)",
    says: "Clipping A to ±0.2 throws away how much better an attempt was, and still lets the ratio go anywhere.",
    see: "The curve rises, then dies: all advantages are ±0.2, and no ratio is held.",
    stage: { noise: 0.6, rate: 4, entropy: 0 }, curve: "score", axis: SCORE,
  },
  {
    fault: "entropy_added", title: "Entropy added to the loss", wrong: "loss + c·H", right: "loss − c·H, and only for groups with spread",
    says: "Entropy is a bonus, so it is subtracted from what is minimised. Added, it rewards certainty: the policy stops trying other words. And a group without spread must get no bonus either, or the bonus alone pulls the policy towards chance.",
    see: "After step 30 other answers are right. With a bonus the policy finds them; with a penalty it no longer tries anything.",
    stage: { moves: 30, entropy: 0.05, rate: 1 }, curve: "score", axis: SCORE,
  },
  {
    fault: "tokens_misaligned", title: "Advantages one token off", wrong: "logits[t] · token[t]", right: "logits[t − 1] · token[t]",
    says: "The logits at position t − 1 predict token t. One place off, every word's credit goes to the word after it.",
    see: "The run learns something, and it is wrong: it ends below chance, which is 0.25.",
    stage: {}, curve: "score", axis: SCORE,
  },
  {
    fault: "single_keeps_reward", title: "A group of one keeps its reward", wrong: "A = r", right: "A = 0",
    says: "One attempt has nothing to be compared with, so its advantage is 0. With its raw reward as advantage, whatever was sampled is made likelier if marks are positive, and less likely if they are negative, right or wrong.",
    see: "How far the policy moves on a question attempted once per step. It should not move: nothing was compared.",
    stage: {}, curve: "single", axis: "KL from the start, in nats",
  },
  {
    fault: "advantages_after_shuffle", title: "Advantages after shuffling", wrong: "shuffle, split, then compare", right: "compare whole groups, then shuffle and split",
    says: "Scores are comparable within a group only. Computed inside a shuffled micro-batch, the mean mixes questions: every answer to a question with high marks looks good, every answer to a strict one looks bad.",
    see: "Marks of one question are 10 to 14, of another −8 to −4. Compared across them, hardly anything is learned.",
    stage: {}, curve: "score", axis: SCORE,
  },
  {
    fault: "ratio_to_itself", title: "Off-policy samples taken for the policy's own", wrong: "ρ = π / detach(π) = 1", right: "ρ = π / π_b, recorded when sampling",
    says: "What a search, a replay or an older policy π_b sampled has the log-probabilities of whoever sampled it. With the policy's own, a word is pushed as often as the search likes it, not as often as the policy would say it.",
    see: "A search proposes 80% of the words, mostly so-so ones (the clip is wide open here, so that only the ratio speaks). Against itself the policy learns the search's habits.",
    stage: { search: 0.8, rate: 0.1, passes: 4, clip: 20 }, curve: "score", axis: SCORE,
  },
  {
    fault: "other_std", title: "The other standard deviation", wrong: "std() of whichever library", right: "a named choice: population (÷ n) or sample (÷ n − 1)",
    says: "NumPy divides by n, PyTorch by n − 1. In a group of two, [1, 0] gives ±1 with one and ±0.707 with the other; it acts like another learning rate, and a different one for every group size.",
    see: "The size of an advantage in groups of two: 1 with the population's, 0.707 with the sample's.",
    stage: { group: 2, passes: 1 }, curve: "size", axis: "Mean size of an advantage",
  },
  {
    fault: "crash_scores_zero", title: "A crash that scores 0", wrong: "except Exception: return 0.0", right: "an error: reported, and left out of the group",
    says: "0 is a score like any other. Where marks are negative it is the best there is, and the policy learns to crash its scorer.",
    see: "The scorer of one question crashes on answers with the word “?”; its marks are −8 to −4. The curve is the chance of a crash.",
    stage: {}, curve: "crashes", axis: "Share of answers that crash",
  },
  {
    fault: "scores_padded", title: "Missing scores padded with 0", wrong: "scores + [0] * missing", right: "ask again, then fall back; never pad",
    says: "If a judge returns seven scores for eight attempts, nobody knows which one is missing. Padded at the end, the attempts behind the gap get their neighbour's score.",
    see: "Six judges in ten lose one score. Asked again, nothing happens; padded, attempts learn from the scores of others.",
    stage: { short: 0.6 }, curve: "score", axis: SCORE,
  },
  {
    fault: "scores_rescaled", title: "Scores that change their meaning", wrong: "(x − batch mean) / batch std", right: "a fixed reference scale",
    says: "A score z-scored inside its batch says how an answer compares with today's batch. The better the policy, the worse the same answer; curves of such scores are flat at 0, and no two steps can be compared. For a group's advantage, which lives for one step, z-scores are natural.",
    see: "The score that one and the same half-right answer gets at every step.",
    stage: {}, curve: "same", axis: "Score of one answer",
  },
];

export const SEEDS = [1, 2, 3, 4] as const;

export const LENGTH = SETTINGS.steps;

/** The curve of a pitfall step by step, averaged over the seeds. */
export function* growing(pitfall: Pitfall, isBroken: boolean, seeds: readonly number[] = SEEDS): Generator<number> {
  const runs = seeds.map((seed) => brokenSteps(isBroken ? [pitfall.fault] : [], seed, pitfall.stage));
  for (let step = 0; step < LENGTH; step++) yield mean(runs.map((run) => (run.next().value as BrokenRun)[pitfall.curve][step]!));
}

export const curveOf = (...given: Parameters<typeof growing>): number[] => [...growing(...given)];

/** The number that the switch is about: where the curve ends, or, of one answer's score, how much it varies. */
export const outcomeOf = (pitfall: Pitfall, curve: readonly number[]): number =>
  pitfall.curve === "same" ? Math.max(...curve) - Math.min(...curve) : curve.at(-1)!;
