/** `sweep.json`, the result file of `groupwise sweep`: its shape, and reading it with care. */
export type Value = number | string | boolean | null | Value[];
export type Axis =
  | { name: string; kind: "values"; values: Value[] }
  | { name: string; kind: "range"; low: number; high: number; scale: "linear" | "log"; whole_numbers: boolean };
export type SeedRun = { seed: number; state: string; score?: number; message?: string };
export type Trial = { id: string; algorithm: string; settings: Record<string, Value>; state: string; mean: number | null; seeds: SeedRun[] };
export type Importance = { setting: string; importance: number; importance_low: number | null; importance_high: number | null; alone: number };
export type Recommendation = {
  settings: Record<string, Value>; score: number; score_low: number | null; score_high: number | null;
  on_a_fresh_seed: { score: number; score_low: number | null; score_high: number | null } | null; settings_with_the_same_score: number;
};
export type Predicted = { x: { setting: string; values: Value[] }; y: { setting: string; values: Value[] }; scores: number[][] };
export type Findings = { importance?: Importance[]; surface?: Predicted | null; recommendation?: Recommendation | null; notes?: string[]; forest_fit?: number | null };
export type Sweep = {
  kind: "sweep"; state: string; seeds: number[]; method: { name: string; settings: number }; runs: { total: number; finished: number; failed: number };
  score: { meaning: string; solved: number | null }; axes: Axis[]; trials: Trial[]; algorithms: Record<string, { file?: string; environment?: string }>;
  findings: Record<string, Findings>; command?: string;
};

const LARGEST = 20_000_000; // characters
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
const isNumber = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value);

function axisFault(axis: unknown): string | null {
  if (!isObject(axis) || typeof axis.name !== "string") return "one of its axes has no name";
  if (axis.kind === "values") return Array.isArray(axis.values) && axis.values.length ? null : `its axis ${axis.name} has no values`;
  return isNumber(axis.low) && isNumber(axis.high) && axis.low < axis.high && (axis.scale !== "log" || axis.low > 0) ? null : `its axis ${axis.name} is not a range`;
}

const isTrial = (trial: unknown): trial is Trial =>
  isObject(trial) && typeof trial.algorithm === "string" && isObject(trial.settings) && Array.isArray(trial.seeds) && (trial.mean === null || isNumber(trial.mean));

/** The sweep in a text; what is wrong with it is thrown as one sentence. */
export function readSweep(text: string): Sweep {
  if (text.length > LARGEST) throw new Error(`The file has ${Math.round(text.length / 1e6)} MB; this view reads up to ${LARGEST / 1e6}. Make a sweep with fewer settings.`);
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("This is not valid JSON. Open the file sweep.json from the folder of a sweep (--out).");
  }
  if (!isObject(found) || found.kind !== "sweep") throw new Error("This is JSON, but not a sweep. Open the file sweep.json from the folder of a sweep (--out).");
  if (!Array.isArray(found.axes) || !found.axes.length || !Array.isArray(found.trials)) throw new Error("This sweep has no axes or no trials. Was the file copied in full?");
  const fault = found.axes.map(axisFault).find(Boolean);
  if (fault) throw new Error(`This sweep cannot be drawn: ${fault}.`);
  if (!found.trials.every(isTrial)) throw new Error("This sweep cannot be drawn: one of its trials has no settings, seeds or mean.");
  const { runs = {}, score = {}, algorithms = {}, findings = {}, method = {}, seeds = [] } = found as Partial<Sweep>;
  const whole = { total: 0, finished: 0, failed: 0, ...runs };
  const named = Object.keys(algorithms).length ? algorithms : Object.fromEntries(found.trials.map((trial: Trial) => [trial.algorithm, {}]));
  return { ...(found as Sweep), runs: whole, algorithms: named, findings, seeds, score: { meaning: "score", solved: null, ...score }, method: { name: "grid", settings: found.trials.length, ...method } };
}

/** A value as the command line writes it, in TOML. */
export const written = (value: Value): string => (typeof value === "string" ? value : Array.isArray(value) ? `[${value.map(written).join(",")}]` : String(value));
