/** `groupwise.core.grouping.weighting` on plain arrays, from a fresh state: what a rule gives the first batch it sees. */
import { mean, membersOf } from "./advantages";

export type Rule = "none" | "balanced" | "inv_sqrt_steps" | "performance" | "adaptive";
export type Sizes = { groups: number[]; size: number[]; mean: number[]; lowest: number[]; highest: number[] };
const [FLOOR, TEMPERATURE, SHARPNESS] = [0.1, 1, 5];

export function groupSizes(groups: readonly number[], sizes: readonly number[], returns: readonly number[]): Sizes {
  const found: Sizes = { groups: [], size: [], mean: [], lowest: [], highest: [] };
  for (const [group, rows] of membersOf(groups)) {
    const values = rows.map((row) => returns[row]!);
    found.groups.push(group);
    found.size.push(rows.reduce((sum, row) => sum + sizes[row]!, 0));
    found.mean.push(mean(values));
    found.lowest.push(Math.min(...values));
    found.highest.push(Math.max(...values));
  }
  return found;
}

/** Where each group's mean return stands between the lowest and the highest of its returns. */
const standings = (sizes: Sizes): number[] =>
  sizes.mean.map((value, k) => (sizes.highest[k]! > sizes.lowest[k]! ? (value - sizes.lowest[k]!) / (sizes.highest[k]! - sizes.lowest[k]!) : 0));

/** Weights of an action of each group, with mean 1 over the batch. */
export function weightsOf(rule: Rule, sizes: Sizes): number[] {
  const raw = rawWeights(rule, sizes);
  const total = raw.reduce((sum, value, k) => sum + value * sizes.size[k]!, 0);
  const everything = sizes.size.reduce((sum, value) => sum + value, 0);
  return total > 0 ? raw.map((value) => (value * everything) / total) : raw.map(() => 1);
}

function rawWeights(rule: Rule, sizes: Sizes): number[] {
  const size = sizes.size.map((value) => Math.max(value, 1));
  if (rule === "none") return size.map(() => 1);
  if (rule === "balanced") return size.map((value) => 1 / value);
  if (rule === "inv_sqrt_steps") return size.map((value) => value ** -0.5);
  const standing = standings(sizes);
  const sharpness = rule === "adaptive" ? SHARPNESS : 1;
  const least = Math.min(...standing);
  const raw = standing.map((value) => Math.exp((-sharpness * (value - least)) / TEMPERATURE));
  const total = raw.reduce((sum, value) => sum + value, 0);
  return raw.map((value, k) => (((1 - FLOOR) * value) / total + FLOOR / raw.length) / size[k]!);
}
