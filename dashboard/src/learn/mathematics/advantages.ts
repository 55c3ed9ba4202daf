/** How an attempt's reward compares with its group: `groupwise.core.advantages` in TypeScript, tested against it. */
export type Baseline = "group_mean" | "group_median" | "leave_one_out" | "global_mean" | "none";
export type Scale = "group_std" | "batch_std" | "none";
export type Std = "population" | "sample";
export type AdvantageChoices = { baseline?: Baseline; scale?: Scale; std?: Std; mask?: boolean[]; eps?: number };

export const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = Math.floor((sorted.length - 1) / 2);
  return (sorted[half]! + sorted[Math.floor(sorted.length / 2)]!) / 2;
}

/** "population" divides by n, "sample" by n − 1; 0 for a single value. */
export function deviation(values: readonly number[], std: Std = "population"): number {
  const middle = mean(values);
  const total = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  return Math.sqrt(total / Math.max(1, std === "sample" ? values.length - 1 : values.length));
}

/** Whether values differ by more than rounding errors: max − min > eps · max(1, max |r|). */
export function varies(values: readonly number[], eps = 1e-6): boolean {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return values.length > 1 && high - low > eps * Math.max(1, Math.abs(low), Math.abs(high));
}

type Segment = { values: number[]; mean: number; std: number; varies: boolean };

function segment(values: number[], std: Std, eps: number): Segment {
  return { values, mean: mean(values), std: deviation(values, std), varies: varies(values, eps) };
}

/** The middle values of a group, without the attempt itself for "leave_one_out". */
function baselineOf(reward: number, group: Segment, batch: Segment, baseline: Baseline): number {
  if (baseline === "group_mean") return group.mean;
  if (baseline === "group_median") return median(group.values);
  if (baseline === "leave_one_out") return (group.mean * group.values.length - reward) / Math.max(1, group.values.length - 1);
  return baseline === "global_mean" ? batch.mean : 0;
}

/**
 * A_i = (r_i − b_i) / s_i. An attempt without a score (NaN, or masked out) is left out of every statistic and has
 * advantage 0. So has the only scored member of a group, and every member of a group whose rewards do not vary.
 */
export function groupAdvantages(rewards: readonly number[], groups: readonly number[], choices: AdvantageChoices = {}): number[] {
  const { baseline = "group_mean", scale = "group_std", std = "population", mask, eps = 1e-6 } = choices;
  const scored = rewards.map((reward, at) => !Number.isNaN(reward) && (mask?.[at] ?? true));
  const members = new Map<number, number[]>();
  groups.forEach((group, at) => {
    if (!members.has(group)) members.set(group, []);
    if (scored[at]) members.get(group)!.push(rewards[at]!);
  });
  const found = new Map([...members].map(([group, values]) => [group, segment(values, std, eps)]));
  const batch = segment(rewards.filter((_, at) => scored[at]), std, eps);
  const needsGroup = scale === "group_std" || ["group_mean", "group_median", "leave_one_out"].includes(baseline);
  const needsBatch = scale === "batch_std" || baseline === "global_mean";
  return rewards.map((reward, at) => {
    const group = found.get(groups[at]!)!;
    if (!scored[at] || group.values.length < 2 || (needsGroup && !group.varies) || (needsBatch && !batch.varies)) return 0;
    const size = scale === "none" ? 1 : (scale === "group_std" ? group : batch).std;
    return (reward - baselineOf(reward, group, batch, baseline)) / size;
  });
}
