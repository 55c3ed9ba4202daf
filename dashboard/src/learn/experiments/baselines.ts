/**
 * What to subtract from a score: nothing, a critic's estimate, or the group's mean. The experiment of `groupwise paper
 * grpo`: questions of eight numbers, each seen once, one of six answers is right, and a score is 1 for the right answer
 * plus a bonus of the question's own between −2 and 2.
 */
import { groupAdvantages, mean } from "../mathematics/advantages";
import { addGradient, forward, initial, sizeOf, type Shape } from "../mathematics/network";
import { Adam, addLogpGradient, softmax } from "../mathematics/policy";
import { Random } from "../mathematics/random";

export const [NUMBERS, ANSWERS, ATTEMPTS, ENOUGH, LIMIT] = [8, 6, 128, 0.75, 200];
export const ARMS = ["nothing", "critic", "group"] as const;
export type Arm = (typeof ARMS)[number];
export type BaselineChoices = { size: number; divides: boolean; rate: number };

const CRITIC: Shape = { inputs: NUMBERS, hidden: 64, outputs: 1 };

/** x W, W as rows of answers: [D · A]. */
const times = (question: readonly number[], weights: readonly number[]): number[] =>
  Array.from({ length: ANSWERS }, (_, a) => question.reduce((sum, value, d) => sum + value * weights[d * ANSWERS + a]!, 0));

const best = (values: readonly number[]): number => values.indexOf(Math.max(...values));

/** Scores minus the expected ones; then four updates of the expectation. */
function criticised(weights: number[], adam: Adam, questions: readonly number[][], scores: readonly number[]): number[] {
  const advantages = questions.map((question, at) => scores[at]! - forward(CRITIC, weights, question).outputs[0]!);
  for (let pass = 0; pass < 4; pass++) {
    const gradient = new Array<number>(weights.length).fill(0);
    questions.forEach((question, at) => {
      const seen = forward(CRITIC, weights, question);
      addGradient(CRITIC, weights, question, seen, [(2 * (seen.outputs[0]! - scores[at]!)) / questions.length], gradient);
    });
    adam.step(weights, gradient);
  }
  return advantages;
}

/** Yields, after every update, the share of right answers to held-out questions. */
export function* learning(arm: Arm, choices: BaselineChoices, seed: number): Generator<number> {
  const [world, random] = [new Random(seed), new Random(seed + 500)];
  const [right, liked] = [world.normals(NUMBERS * ANSWERS), world.normals(NUMBERS, 0.5)];
  const heldOut = Array.from({ length: 300 }, () => world.normals(NUMBERS));
  const answers = heldOut.map((question) => best(times(question, right)));
  const weights = new Array<number>(NUMBERS * ANSWERS).fill(0);
  const adam = new Adam(weights.length, choices.rate);
  const [critic, criticAdam] = [initial(CRITIC, world), new Adam(sizeOf(CRITIC), 1e-2)];
  for (let step = 0; step < LIMIT; step++) {
    const asked = Array.from({ length: ATTEMPTS / choices.size }, () => random.normals(NUMBERS));
    const questions = asked.flatMap((question) => Array.from({ length: choices.size }, () => question));
    const chances = questions.map((question) => softmax(times(question, weights)));
    const said = chances.map((row) => random.pick(row));
    const bonus = (question: readonly number[]): number => 2 * Math.tanh(question.reduce((sum, value, d) => sum + value * liked[d]!, 0));
    const scores = questions.map((question, at) => Number(said[at] === best(times(question, right))) + bonus(question));
    const groups = questions.map((_, at) => Math.floor(at / choices.size));
    const advantages =
      arm === "group" ? groupAdvantages(scores, groups, { scale: choices.divides ? "group_std" : "none" })
      : arm === "critic" ? criticised(critic, criticAdam, questions, scores) : scores;
    const gradient = new Array<number>(weights.length).fill(0);
    questions.forEach((question, at) => {
      const slopes = new Array<number>(ANSWERS).fill(0);
      addLogpGradient(slopes, chances[at]!, said[at]!, -advantages[at]! / ATTEMPTS);
      for (let d = 0; d < NUMBERS; d++) for (let a = 0; a < ANSWERS; a++) gradient[d * ANSWERS + a]! += question[d]! * slopes[a]!;
    });
    adam.step(weights, gradient);
    yield mean(heldOut.map((question, at) => softmax(times(question, weights))[answers[at]!]!));
  }
}

/** Updates until three quarters are right; null if the curve never gets there. */
export function stepsToLearn(curve: readonly number[]): number | null {
  const found = curve.findIndex((share) => share >= ENOUGH);
  return found < 0 ? null : found + 1;
}
