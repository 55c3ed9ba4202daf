/** What can be an axis of the plane in which attempts lie. */
import type { Attempts } from "../source.svelte";
import { principalComponents, standardised } from "./statistics";

export type Measure = { name: string; title: string; values: number[]; says: string };

/** Two principal components of all features, the return, the length, and every feature by itself. */
export function measuresOf(attempts: Attempts): Measure[] {
  const points = standardised(attempts.features);
  const { directions, shares } = principalComponents(points);
  const component = (n: 0 | 1): Measure => ({
    name: `pca-${n + 1}`, title: `component ${n + 1}`, values: points.map((row) => row.reduce((sum, value, c) => sum + value * (directions[n][c] ?? 0), 0)),
    says: `${Math.round(shares[n] * 100)}% of the variance of all ${attempts.feature_names.length} features`,
  });
  const features = attempts.feature_names.map((title, c): Measure => ({ name: `feature-${c}`, title, values: attempts.features.map((row) => row[c]!), says: "" }));
  return [
    component(0), component(1),
    { name: "return", title: "return", values: attempts.totals, says: "the score of an attempt" },
    { name: "length", title: "length", values: attempts.lengths, says: "in actions" },
    ...features,
  ];
}

/** Whether numbers span so many orders of magnitude that only a logarithmic axis shows them all. */
export const isLogarithmic = (values: readonly number[]): boolean => {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low > 0 && high / low > 200;
};

/** Each value's place between the lowest (0) and highest (1) of its kind. */
export function standings(values: readonly number[], kinds: readonly string[]): number[] {
  const ranges = new Map<string, [number, number]>();
  values.forEach((value, row) => {
    const [low, high] = ranges.get(kinds[row]!) ?? [Infinity, -Infinity];
    ranges.set(kinds[row]!, [Math.min(low, value), Math.max(high, value)]);
  });
  return values.map((value, row) => {
    const [low, high] = ranges.get(kinds[row]!)!;
    return high > low ? (value - low) / (high - low) : 0.5;
  });
}
