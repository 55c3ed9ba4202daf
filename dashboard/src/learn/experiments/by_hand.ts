/** One question, six answers, a policy of six numbers: GRPO and rejection sampling take a step with the same samples. */
import { deviation, groupAdvantages, mean, varies, type Deviation } from "../mathematics/advantages";
import { addLogpGradient, divergence, softmax } from "../mathematics/policy";
import { Random } from "../mathematics/random";
import { importanceRatio, isClipped, policyLoss } from "../mathematics/surrogates";

export const QUESTION = "7 × 8 = ?";
export const ANSWERS = ["54", "56", "58", "63", "64", "?"] as const;
/** The policy starts with a wrong habit. */
export const START: readonly number[] = [1.5, 0, 0.5, 0.5, 0, 0];
export const MOST = 16;

export type World = "graded" | "right" | "equal";
export const SCORES: Record<World, readonly number[]> = {
  graded: [0.7, 1, 0.7, 0.2, 0.1, 0],
  right: [0, 1, 0, 0, 0, 0],
  equal: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
};

export type HandSettings = { size: number; clip: number; beta: number; std: Deviation | "none"; rate: number; passes: number; world: World };
export const DEFAULTS: HandSettings = { size: 8, clip: 0.2, beta: 0, std: "population", rate: 0.5, passes: 4, world: "graded" };

/** Answers by number, drawn from the policy. All `MOST` are drawn, so that a larger group keeps the attempts of the smaller. */
export const draw = (logits: readonly number[], seed: number): number[] => {
  const [chances, random] = [softmax(logits), new Random(seed)];
  return Array.from({ length: MOST }, () => random.pick(chances));
};

export const expected = (logits: readonly number[], world: World): number => softmax(logits).reduce((sum, chance, at) => sum + chance * SCORES[world][at]!, 0);

export type Taken = {
  answers: number[]; scores: number[]; mean: number; std: number; spread: boolean; advantages: number[];
  /** Of each attempt after the last pass: π/π_b, and whether the clip took its gradient away in that pass. */
  ratios: number[]; clipped: boolean[];
  /** The policy after every pass, the first one before any. */
  frames: number[][]; kl: number;
};

/** `passes` steps of gradient descent on GRPO's loss over one group. */
export function takeStep(logits: readonly number[], drawn: readonly number[], settings: HandSettings): Taken {
  const { size, clip, beta, std, rate, passes, world } = settings;
  const answers = drawn.slice(0, size);
  const scores = answers.map((answer) => SCORES[world][answer]!);
  const choices = std === "none" ? { scale: "none" as const } : { std };
  const advantages = groupAdvantages(scores, answers.map(() => 0), choices);
  const [before, reference] = [softmax(logits), softmax(START)];
  const behavior = answers.map((answer) => [Math.log(before[answer]!)]);
  const mask = answers.map(() => [true]);
  const frames = [[...logits]];
  // A group that teaches nothing is left out, unless the KL term still acts on it.
  const acts = beta > 0 || advantages.some((advantage) => advantage !== 0);
  for (let pass = 0; pass < passes && acts; pass++) {
    const [now, chances] = [[...frames.at(-1)!], softmax(frames.at(-1)!)];
    const logp = answers.map((answer) => [Math.log(chances[answer]!)]);
    const kl = { logp: answers.map((answer) => [Math.log(reference[answer]!)]), beta };
    const { slopes } = policyLoss({ logp, behavior, advantages, mask }, { low: clip, denominator: size, reference: kl });
    const gradient = new Array<number>(ANSWERS.length).fill(0);
    answers.forEach((answer, at) => addLogpGradient(gradient, chances, answer, slopes[at]![0]!));
    frames.push(now.map((logit, at) => logit - rate * gradient[at]!));
  }
  const after = softmax(frames.at(-1)!);
  const ratios = answers.map((answer, at) => importanceRatio(Math.log(after[answer]!), behavior[at]![0]!));
  return {
    answers, scores, mean: mean(scores), std: deviation(scores, std === "sample" ? "sample" : "population"), spread: varies(scores),
    advantages, ratios, clipped: ratios.map((ratio, at) => isClipped(ratio, advantages[at]!, clip)), frames, kl: divergence(after, reference),
  };
}

/** Rejection sampling: keep the attempts with the highest score, all of them if they tie, and imitate them. */
export function imitateBest(logits: readonly number[], drawn: readonly number[], settings: HandSettings): { logits: number[]; kept: boolean[] } {
  const { size, rate, passes, world } = settings;
  const scores = drawn.slice(0, size).map((answer) => SCORES[world][answer]!);
  const kept = scores.map((score) => score === Math.max(...scores));
  let now = [...logits];
  for (let pass = 0; pass < passes; pass++) {
    const [chances, gradient] = [softmax(now), new Array<number>(ANSWERS.length).fill(0)];
    kept.forEach((isKept, at) => isKept && addLogpGradient(gradient, chances, drawn[at]!, -1 / kept.filter(Boolean).length));
    now = now.map((logit, at) => logit - rate * gradient[at]!);
  }
  return { logits: now, kept };
}
