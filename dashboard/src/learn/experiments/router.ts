/**
 * Soft routing, small enough to watch: four fixed modules, three tasks, and only the routing logits learn, by gradient
 * descent on the squared error. Tasks A and B want nearly the same; C wants something else.
 */
import { softmax } from "../mathematics/policy";
import { softRoute } from "../mathematics/routing";

export const MODULES = ["sin x", "cos x", "x / 2", "1"] as const;
export const TASKS = ["A", "B", "C"] as const;
const POINTS = Array.from({ length: 25 }, (_, at) => -3 + at / 4);
const outputs = POINTS.map((x) => [[Math.sin(x)], [Math.cos(x)], [x / 2], [1]]);
/** What each task wants of the modules. */
export const WANTED: readonly (readonly number[])[] = [[0.7, 0, 0.3, 0], [0.6, 0, 0.4, 0], [0, 0.6, 0, 0.4]];
const targets = WANTED.map((row) => outputs.map((modules) => row.reduce((sum, share, j) => sum + share * modules[j]![0]!, 0)));

export type Routing = { logits: number[][]; shares: number[][]; errors: number[] };

/** Yields the routing before every step. `blind` gives all tasks the same logits, as when the routing cannot see the task. */
export function* routing(blind: boolean, rate: number, steps: number): Generator<Routing> {
  // Not all zeros, so that the modules start apart.
  let logits = TASKS.map(() => [0.1, -0.1, 0, 0]);
  for (let step = 0; step <= steps; step++) {
    const shares = logits.map(softmax);
    const errors = TASKS.map(() => 0);
    const slopes = TASKS.map(() => MODULES.map(() => 0));
    outputs.forEach((modules, at) => {
      softRoute(modules, logits).forEach(([made], task) => {
        const off = made! - targets[task]![at]!;
        errors[task]! += (off * off) / POINTS.length;
        // ∂ Σ_j p_j o_j / ∂ z_j = p_j (o_j − g)
        MODULES.forEach((_, j) => (slopes[task]![j]! += ((2 * off) / POINTS.length) * shares[task]![j]! * (modules[j]![0]! - made!)));
      });
    });
    yield { logits, shares, errors };
    const shared = MODULES.map((_, j) => slopes.reduce((sum, row) => sum + row[j]! / TASKS.length, 0));
    logits = logits.map((row, task) => row.map((logit, j) => logit - rate * (blind ? shared[j]! : slopes[task]![j]!)));
  }
}
