/**
 * Four tasks that conflict, one network: the experiment of `groupwise paper pcgrad` for one seed. Gradients are exact;
 * arms differ in how the four become a step: their sum, the sum after surgery, the sum of gradients of length 1.
 */
import { addGradient, forward, initial, type Shape } from "../mathematics/network";
import { softmax } from "../mathematics/policy";
import { Random } from "../mathematics/random";
import { length, projectConflicts, sum } from "../mathematics/surgery";
import { mean } from "../mathematics/advantages";

export const [TASKS, NUMBERS, ANSWERS, QUESTIONS, STEPS] = [4, 6, 5, 64, 250];
export const ARMS = ["sum", "surgery", "scaled"] as const;
export type Arm = (typeof ARMS)[number];
export const REWARDS: readonly number[] = [1, 3, 10, 30];

const SHAPE: Shape = { inputs: NUMBERS + TASKS, hidden: 16, outputs: ANSWERS };
type Asked = { input: number[]; answer: number };

function asked(right: readonly number[][][], task: number, count: number, random: Random): Asked[] {
  return Array.from({ length: count }, () => {
    const numbers = random.normals(NUMBERS);
    const marks = Array.from({ length: ANSWERS }, (_, a) => numbers.reduce((all, value, d) => all + value * right[task]![d]![a]!, 0));
    return { input: [...numbers, ...Array.from({ length: TASKS }, (_, k) => Number(k === task))], answer: marks.indexOf(Math.max(...marks)) };
  });
}

const rightShare = (weights: readonly number[], questions: readonly Asked[]): number =>
  mean(questions.map(({ input, answer }) => softmax(forward(SHAPE, weights, input).outputs)[answer]!));

/** ∇ of minus a task's expected reward. */
function gradientOf(weights: readonly number[], questions: readonly Asked[], reward: number): number[] {
  const gradient = new Array<number>(weights.length).fill(0);
  for (const { input, answer } of questions) {
    const pass = forward(SHAPE, weights, input);
    const chances = softmax(pass.outputs);
    const slopes = chances.map((chance, v) => ((-reward * chances[answer]!) / questions.length) * (Number(v === answer) - chance));
    addGradient(SHAPE, weights, input, pass, slopes, gradient);
  }
  return gradient;
}

/** Yields the share of right answers of each task to unseen questions, every fifth step. */
export function* learning(arm: Arm, rewards: readonly number[], rate: number, seed: number): Generator<number[]> {
  const random = new Random(seed);
  const right = Array.from({ length: TASKS }, () => Array.from({ length: NUMBERS }, () => random.normals(ANSWERS)));
  const heldOut = right.map((_, task) => asked(right, task, 100, random));
  const weights = initial(SHAPE, random);
  for (let step = 0; step <= STEPS; step++) {
    if (step % 5 === 0) yield heldOut.map((questions) => rightShare(weights, questions));
    const own = right.map((_, task) => gradientOf(weights, asked(right, task, QUESTIONS, random), rewards[task]!));
    const used =
      arm === "surgery" ? projectConflicts(own, own.map(() => random.order(TASKS)))
      : arm === "scaled" ? own.map((gradient) => gradient.map((value) => value / (length(gradient) || 1))) : own;
    sum(used).forEach((slope, at) => (weights[at]! -= rate * slope));
  }
}
