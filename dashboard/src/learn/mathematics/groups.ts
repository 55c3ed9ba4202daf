/** The weight groups of a run over its steps, from the metrics that it logged for each: `group/<name>/…`. */
import type { Curves } from "../source.svelte";
import { progress, smooth } from "./fairness";

export type GroupCurves = { names: string[]; steps: number[]; rewards: number[][]; weights: number[][]; shares: number[][]; sizes: number[][] };

/** Every group's numbers at the steps that all of them have; a group that is missing in a step keeps its last number. */
export function groupCurves(curves: Curves): GroupCurves {
  const names = Object.keys(curves).flatMap((name) => /^group\/(.+)\/reward_mean$/.exec(name)?.[1] ?? []);
  const steps = [...new Set(names.flatMap((name) => curves[`group/${name}/reward_mean`]!.steps))].sort((a, b) => a - b);
  const column = (name: string, what: string): number[] => held(curves[`group/${name}/${what}`], steps);
  const table = (what: string) => names.map((name) => column(name, what));
  return { names, steps, rewards: table("reward_mean"), weights: table("weight"), shares: table("share"), sizes: table("advantage_rms") };
}

/** Held-out rewards by task: `eval/<name>/reward_mean`. */
export function heldOut(curves: Curves): { names: string[]; steps: number[]; rewards: number[][] } {
  const names = Object.keys(curves).flatMap((name) => /^eval\/(.+)\/reward_mean$/.exec(name)?.[1] ?? []);
  const steps = [...new Set(names.flatMap((name) => curves[`eval/${name}/reward_mean`]!.steps))].sort((a, b) => a - b);
  return { names, steps, rewards: names.map((name) => held(curves[`eval/${name}/reward_mean`], steps)) };
}

function held(curve: Curves[string] | undefined, steps: number[]): number[] {
  if (!curve?.steps.length) return steps.map(() => 0);
  let at = 0;
  return steps.map((step) => {
    while (at + 1 < curve.steps.length && curve.steps[at + 1]! <= step) at++;
    return curve.values[at]!;
  });
}

/** Shares of the pull on the policy: the share of the loss times the size of the advantages, adding up to 1. */
export function pulls({ shares, sizes, steps }: GroupCurves): number[][] {
  return parts(shares.map((share, k) => share.map((value, n) => value * sizes[k]![n]!)), steps.length);
}

/** Columns that add up to 1; equal parts where there is nothing. */
export function parts(rows: number[][], count: number): number[][] {
  const totals = Array.from({ length: count }, (_, n) => rows.reduce((sum, row) => sum + row[n]!, 0));
  return rows.map((row) => row.map((value, n) => (totals[n]! > 0 ? value / totals[n]! : 1 / rows.length)));
}

/** Smoothed rewards, and where each stands between the lowest and highest of its own. */
export function standing(rewards: number[][], window: number): { smoothed: number[][]; progress: number[][] } {
  const smoothed = rewards.map((row) => smooth(row, window));
  return { smoothed, progress: smoothed.map(progress) };
}
