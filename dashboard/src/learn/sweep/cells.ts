/** The trials of a sweep on two of its settings: a grid of cells with means, gaps where nothing has finished. */
import { mean } from "../mathematics/advantages";
import { written, type Axis, type Trial, type Value } from "./file";

/** Cells that a range is cut into. */
const PARTS = 6;

export type Level = { name: string; holds: (value: Value) => boolean; low: Value; high: Value };

const short = (value: number): string => String(Number(value.toPrecision(2)));

/** The rows or columns of a grid: the values of a list, or equal parts of a range. */
export function levelsOf(axis: Axis): Level[] {
  if (axis.kind === "values") return axis.values.map((value) => ({ name: written(value), holds: (other) => written(other) === written(value), low: value, high: value }));
  const [low, high] = axis.scale === "log" ? [Math.log(axis.low), Math.log(axis.high)] : [axis.low, axis.high];
  const at = (share: number): number => (axis.scale === "log" ? Math.exp(low + share * (high - low)) : low + share * (high - low));
  return Array.from({ length: PARTS }, (_, n) => {
    const [from, to] = [n ? at(n / PARTS) : axis.low, n === PARTS - 1 ? axis.high : at((n + 1) / PARTS)];
    const holds = (value: Value): boolean => typeof value === "number" && value >= from && (value < to || (n === PARTS - 1 && value <= to));
    return { name: `${short(from)}–${short(to)}`, holds, low: Number(from.toPrecision(4)), high: Number(to.toPrecision(4)) };
  });
}

/** `mean` is that of the trials with all their seeds, null without one; `part` that of runs of trials under way. */
export type Cell = { x: number; y: number; mean: number | null; part: number | null; trials: number; done: number; failed: number };

const isDone = (trial: Trial): boolean => trial.mean !== null && trial.seeds.every((run) => run.score !== undefined && run.score !== null);

export function cellsOf(trials: readonly Trial[], xAxis: Axis, yAxis: Axis | null): { columns: Level[]; rows: Level[]; cells: Cell[] } {
  const columns = levelsOf(xAxis);
  const rows = yAxis ? levelsOf(yAxis) : [{ name: "", holds: () => true, low: "", high: "" }];
  const cells = rows.flatMap((row, y) => columns.map((column, x) => {
    const own = trials.filter((trial) => column.holds(trial.settings[xAxis.name] ?? null) && (!yAxis || row.holds(trial.settings[yAxis.name] ?? null)));
    const done = own.filter(isDone);
    const begun = own.filter((trial) => trial.mean !== null);
    const failed = own.filter((trial) => trial.state === "failed").length;
    const average = (some: readonly Trial[]): number | null => (some.length ? mean(some.map((trial) => trial.mean!)) : null);
    return { x, y, mean: average(done), part: average(begun), trials: own.length, done: done.length, failed };
  }));
  return { columns, rows, cells };
}

/** The finished trial with the best mean. */
export const bestOf = (trials: readonly Trial[]): Trial | null =>
  trials.filter(isDone).reduce<Trial | null>((best, trial) => (best === null || trial.mean! > best.mean! ? trial : best), null);
