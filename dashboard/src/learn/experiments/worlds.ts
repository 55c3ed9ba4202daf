/** A stream of points from worlds that change unannounced, and how well one process and the mixture predict it. */
import { predict, ProcessMixture, type Kernel, type MixtureChoices } from "../mathematics/processes";
import { Random } from "../mathematics/random";

export const KERNEL: Kernel = { length: 1, signal: 1.5, noise: 0.15 };
export const WORLDS: readonly { name: string; at: (x: number) => number }[] = [
  { name: "usual", at: (x) => Math.sin(1.5 * x) }, { name: "left and right swapped", at: (x) => -Math.sin(1.5 * x) }, { name: "stronger", at: (x) => 1 + 1.2 * Math.cos(x) },
];
export const [VISITS, STAY] = [2, 20];
export type Stream = { points: number[][]; answers: number[][]; worlds: number[] };

/** Each world for `STAY` points, then all of them again. */
export function stream(seed: number): Stream {
  const random = new Random(seed);
  const worlds = Array.from({ length: VISITS * WORLDS.length * STAY }, (_, at) => Math.floor(at / STAY) % WORLDS.length);
  const points = worlds.map(() => [-3 + 6 * random.next()]);
  return { worlds, points, answers: points.map(([x], at) => [WORLDS[worlds[at]!]!.at(x!) + 0.1 * random.normal()]) };
}

export type Followed = { tasks: number[]; mixture: number[]; found: number };

/** Squared errors of one process over everything, and of one over the last ten points: no setting of the mixture changes them. */
export function rivals(seen: Stream): { single: number[]; recent: number[] } {
  const by = (from: number, at: number): number => {
    const guess = predict(KERNEL, seen.points.slice(from, at), seen.answers.slice(from, at), [seen.points[at]!]).means[0]?.[0] ?? 0;
    return (guess - seen.answers[at]![0]!) ** 2;
  };
  const places = [...seen.points.keys()];
  return { single: places.map((at) => by(0, at)), recent: places.map((at) => by(Math.max(0, at - 10), at)) };
}

/** Squared errors of predictions made before each answer is seen, and the task that the mixture gave each point. */
export function follow(seen: Stream, choices: MixtureChoices): Followed {
  const mixture = new ProcessMixture(KERNEL, choices);
  const told: Followed = { tasks: [], mixture: [], found: 0 };
  seen.points.forEach((point, at) => {
    const answer = seen.answers[at]!;
    told.mixture.push((mixture.expect(point)[0]! - answer[0]!) ** 2);
    told.tasks.push(mixture.see(point, answer));
  });
  return { ...told, found: mixture.sizes.length };
}
