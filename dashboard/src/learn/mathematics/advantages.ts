/** `groupwise.core.advantages` and `returns_and_gae` on plain arrays: the same rules, to the last digit but one. */

export type Baseline = "group_mean" | "group_median" | "leave_one_out" | "global_mean" | "none";
export type Scaling = "group_std" | "batch_std" | "none";
export type Deviation = "population" | "sample";
export type Choices = { baseline: Baseline; scale: Scaling; std: Deviation };

const RESOLUTION = 1e-6;

/** The rows of every group, by its number. */
export function membersOf(groups: readonly number[]): Map<number, number[]> {
  const found = new Map<number, number[]>();
  groups.forEach((group, row) => {
    const rows = found.get(group);
    if (rows) rows.push(row);
    else found.set(group, [row]);
  });
  return new Map([...found].sort(([a], [b]) => a - b));
}

export const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** "population" divides by n, "sample" by n − 1; 0 for a single value. */
export function deviation(values: readonly number[], std: Deviation = "population"): number {
  const middle = mean(values);
  const total = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
  return Math.sqrt(total / Math.max(1, values.length - (std === "sample" ? 1 : 0)));
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

/** Differences below this are rounding: dividing by them would blow them up to ±1. */
export function varies(values: readonly number[], eps = RESOLUTION): boolean {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return values.length > 1 && high - low > eps * Math.max(1, Math.abs(low), Math.abs(high));
}

/** A_i = (r_i − b_i) / s_i, as `core.group_advantages`; a NaN reward has no score, and the advantage 0. */
export function groupAdvantages(rewards: readonly number[], groups: readonly number[], { baseline = "group_mean", scale = "group_std", std = "population" }: Partial<Choices> = {}): number[] {
  const advantages = new Array<number>(rewards.length).fill(0);
  const batch = rewards.filter((reward) => !Number.isNaN(reward));
  const [all, spread, differs] = [mean(batch), deviation(batch, std), varies(batch)];
  if ((baseline === "global_mean" || scale === "batch_std") && !differs) return advantages;
  for (const rows of membersOf(groups).values()) {
    const scored = rows.filter((row) => !Number.isNaN(rewards[row]!));
    const values = scored.map((row) => rewards[row]!);
    const isFlat = !varies(values);
    const needsSpread = scale === "group_std" || (baseline !== "global_mean" && baseline !== "none");
    if (scored.length < 2 || (needsSpread && isFlat)) continue;
    const middle = baseline === "group_median" ? median(values) : baseline === "global_mean" ? all : baseline === "none" ? 0 : mean(values);
    const total = values.reduce((sum, value) => sum + value, 0);
    const divisor = scale === "group_std" ? deviation(values, std) : scale === "batch_std" ? spread : 1;
    for (const row of scored) {
      const reward = rewards[row]!;
      const other = baseline === "leave_one_out" ? (total - reward) / (values.length - 1) : middle;
      advantages[row] = (reward - other) / divisor;
    }
  }
  return advantages;
}

/** R_t = r_t + γ R_{t+1}. */
export function discountedReturns(rewards: readonly number[], gamma: number): number[] {
  const returns = [...rewards];
  for (let t = returns.length - 2; t >= 0; t--) returns[t] = rewards[t]! + gamma * returns[t + 1]!;
  return returns;
}

/** Generalised advantage estimation over one attempt; `last` is the value after it, 0 if it ended by itself. */
export function gae(rewards: readonly number[], values: readonly number[], last: number, gamma: number, lambda: number): number[] {
  const advantages = new Array<number>(rewards.length).fill(0);
  let [carried, next] = [0, last];
  for (let t = rewards.length - 1; t >= 0; t--) {
    const error = rewards[t]! + gamma * next - values[t]!;
    carried = error + gamma * lambda * carried;
    next = values[t]!;
    advantages[t] = carried;
  }
  return advantages;
}

/** Return-to-go minus the mean of the other members still alive, as `core.group_return_to_go`. */
export function groupReturnToGo(rewards: readonly (readonly number[])[], groups: readonly number[], gamma: number): number[][] {
  const returns = rewards.map((row) => discountedReturns(row, gamma));
  const advantages = returns.map((row) => new Array<number>(row.length).fill(0));
  for (const rows of membersOf(groups).values()) {
    const longest = Math.max(...rows.map((row) => returns[row]!.length));
    for (let t = 0; t < longest; t++) {
      const alive = rows.filter((row) => t < returns[row]!.length);
      const now = alive.map((row) => returns[row]![t]!);
      if (!varies(now)) continue;
      const total = now.reduce((sum, value) => sum + value, 0);
      alive.forEach((row, n) => (advantages[row]![t] = now[n]! - (total - now[n]!) / (now.length - 1)));
    }
  }
  return advantages;
}

/** Advantages over time, relative to the mean and standard deviation of them all, as PPO normalises a batch. */
export function normalised(rows: readonly (readonly number[])[], std: Deviation): number[][] {
  const all = rows.flat();
  if (!varies(all)) return rows.map((row) => row.map(() => 0));
  const [middle, spread] = [mean(all), deviation(all, std)];
  return rows.map((row) => row.map((value) => (value - middle) / spread));
}
