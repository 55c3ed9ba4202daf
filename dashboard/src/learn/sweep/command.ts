/** The command line of the next sweep, from a selection of the last one. */
import { written, type Axis, type Sweep, type Value } from "./file";
import { levelsOf } from "./cells";

/** From and to, as numbers of the axis's levels. */
export type Span = readonly [number, number];
export type Next = { method: "grid" | "random" | "optuna"; points: number; settings: number; seeds: number };

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

/** A list whose neighbours keep about the same ratio is spaced by its logarithm. */
function isGeometric(values: readonly number[]): boolean {
  if (values.length < 2 || values.some((value) => value <= 0)) return false;
  if (values.length === 2) return values[1]! / values[0]! >= 3;
  const ratios = values.slice(1).map((value, at) => value / values[at]!);
  return Math.min(...ratios) > 1.3 && Math.max(...ratios) < 2 * Math.min(...ratios);
}

function rangeOf(axis: Axis, [from, to]: Span, next: Next): { over?: string; set?: string } {
  const levels = levelsOf(axis).slice(Math.min(from, to), Math.max(from, to) + 1);
  const points = next.method === "grid" ? `:${next.points}` : "";
  if (axis.kind === "range") {
    const [low, high] = [levels[0]!.low, levels.at(-1)!.high];
    return { over: `${axis.name}=${low}:${high}${axis.scale === "log" ? ":log" : ""}${points}` };
  }
  const chosen = levels.map((level) => level.low);
  if (chosen.length === 1) return { set: `${axis.name}=${literal(chosen[0]!)}` };
  const numbers = chosen.filter((value): value is number => typeof value === "number");
  const ascending = numbers.length === chosen.length && numbers.every((value, at) => !at || value > numbers[at - 1]!);
  // Numbers in order become a range, so that the next sweep looks between the old values.
  if (ascending) return { over: `${axis.name}=${numbers[0]}:${numbers.at(-1)}${isGeometric(numbers) ? ":log" : ""}${points}` };
  return { over: `${axis.name}=${chosen.map(literal).join(",")}` };
}

const literal = (value: Value): string => (typeof value === "string" && !/^[\w.-]+$/.test(value) ? JSON.stringify(value) : written(value));

export function nextCommand(sweep: Sweep, algorithm: string, spans: Readonly<Record<string, Span>>, next: Next): string {
  const file = sweep.algorithms[algorithm]?.file || "SETTINGS.toml";
  const words = ["groupwise", "sweep", `${algorithm}=${file}`];
  const found = sweep.axes.map((axis) => rangeOf(axis, spans[axis.name] ?? [0, levelsOf(axis).length - 1], next));
  for (const { over } of found) if (over) words.push("--over", over);
  if (next.method !== "grid") words.push("--method", next.method, "--settings", String(next.settings));
  words.push("--seeds", String(next.seeds), "--first", String(Math.max(-1, ...sweep.seeds) + 1), "--out", "sweep-next");
  for (const { set } of found) if (set) words.push("--set", set);
  return words.map(quoted).join(" ");
}
