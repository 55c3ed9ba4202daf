/** Whether all tasks learn: `groupwise.reporting.statistics`' measures over tasks, and when one began to starve. */
import { ascending } from "./statistics";
import { mean } from "./advantages";

/** 0 if all score the same, near 1 if one has everything; scores below 0 count as 0. */
export function gini(scores: readonly number[]): number {
  const values = ascending(scores.map((score) => Math.max(score, 0)));
  const total = values.reduce((sum, value) => sum + value, 0);
  const ranked = values.reduce((sum, value, n) => sum + value * (2 * (n + 1) - values.length - 1), 0);
  return total > 0 ? ranked / (values.length * total) : 0;
}

/** The worst task over the mean of all: 1 is even, 0 means that one learned nothing. */
export function leastToMean(scores: readonly number[]): number {
  const values = scores.map((score) => Math.max(score, 0));
  const average = mean(values);
  return average > 0 ? Math.min(...values) / average : 0;
}

/** Shares of the whole, as a number of tasks: 3 of 3 equal shares is 3, one that has everything is 1. */
export function effectiveTasks(shares: readonly number[]): number {
  const total = shares.reduce((sum, share) => sum + share, 0);
  const squares = shares.reduce((sum, share) => sum + (share / total) ** 2, 0);
  return total > 0 ? 1 / squares : 0;
}

/** Each task's curve between the lowest and highest reward it ever had: 0 to 1, comparable whatever the scale. */
export function progress(curve: readonly number[]): number[] {
  const [low, high] = [Math.min(...curve), Math.max(...curve)];
  return curve.map((value) => (high > low ? (value - low) / (high - low) : 0));
}

/** The mean of the `window` values up to each place. */
export const smooth = (values: readonly number[], window: number): number[] =>
  values.map((_, n) => mean(values.slice(Math.max(0, n + 1 - window), n + 1)));

/** The first place from which a curve stays within a tenth of its range around its end; null if it never settles. */
export function settled(curve: readonly number[], within = 0.1): number | null {
  const end = curve.at(-1);
  if (end === undefined || curve.length < 4) return null;
  const allowed = within * (Math.max(...curve) - Math.min(...curve));
  let from = curve.length - 1;
  while (from > 0 && Math.abs(curve[from - 1]! - end) <= allowed) from--;
  return from < curve.length - 1 - curve.length / 10 ? from : null;
}

export type Stretch = { from: number; to: number };

/** The stretches in which a task stands below a quarter of its range while the others are, on average, above a half. */
export function starving(progress: readonly (readonly number[])[], task: number): Stretch[] {
  const others = progress.filter((_, k) => k !== task);
  const found: Stretch[] = [];
  progress[task]!.forEach((value, n) => {
    const isStarving = others.length > 0 && value < 0.25 && mean(others.map((curve) => curve[n]!)) > 0.5;
    if (!isStarving) return;
    const last = found.at(-1);
    if (last?.to === n - 1) last.to = n;
    else found.push({ from: n, to: n });
  });
  return found;
}
