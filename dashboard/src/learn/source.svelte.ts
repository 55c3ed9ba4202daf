/** The run and step that the views look at: one that ships with the page, or any run of the service. */
import { asFault, get, type Fault, type Series, type Shapes } from "../lib/api";
import { router } from "../lib/router.svelte";
import { saved } from "../lib/saved";
import type { Run } from "../lib/api";

export type Attempts = Omit<Shapes["StepAttempts"], "run">;
export type Grouping = { strategy: string; iterations: number[][]; names: Record<string, string>; earlier_steps: number[] };
export type Curves = Record<string, { steps: number[]; values: number[] }>;
/** Iterations are lists of numbers, or strings with one character for each attempt. */
export type Recording = {
  name: string; environment: string; steps: number[]; series: Curves; attempts: Record<string, Attempts>;
  groupings: Record<string, Record<string, Record<string, Omit<Grouping, "iterations"> & { iterations: (string | number[])[] }>>>;
};

export const RECORDED: { name: string; title: string; says: string; load: () => Promise<{ default: unknown }> }[] = [
  {
    name: "own-scale", title: "Recorded: a scale for every task", load: () => import("./recorded/own-scale.json"),
    says: "Three CartPoles whose rewards differ by a factor of 10,000; advantages are divided by each task's own spread.",
  },
  {
    name: "one-scale", title: "Recorded: one scale for all tasks", load: () => import("./recorded/one-scale.json"),
    says: "The same three CartPoles; advantages are divided by one standard deviation for the whole batch.",
  },
];
if (saved?.recording) {
  const recording = saved.recording as Recording;
  RECORDED.unshift({ name: recording.name, title: saved.title, load: async () => ({ default: recording }), says: recording.steps.length ? `Step ${recording.steps[0]} and the curves of the run, as they were on ${saved.when}.` : `The curves of the run, as they were on ${saved.when}.` });
}
export const PREFIX = "recorded:";
/** The curves that the views draw. */
export const DRAWN = /^(group\/.*|eval\/.*|policy\/(kl|reference_kl|entropy)|reward\/mean)$/;
/** As many of a series' points as a chart can show. */
const POINTS = 400;

class Source {
  /** Runs of the service, newest first; empty without one. */
  runs = $state.raw<Run[]>([]);
  steps = $state.raw<number[]>([]);
  attempts = $state.raw<Attempts | null>(null);
  curves = $state.raw<Curves | null>(null);
  fault = $state.raw<Fault | null>(null);
  busy = $state(false);
  /** The run asked for by the address; without one, what ships with the page. */
  run = $derived(router.query.get("run") ?? PREFIX + RECORDED[0]!.name);
  recording = $derived(this.run.startsWith(PREFIX) ? (RECORDED.find((one) => PREFIX + one.name === this.run) ?? RECORDED[0]!) : null);
  asked = $derived(router.query.get("step"));
  step = $derived(this.attempts?.step ?? null);
  private open: Recording | null = null;
  private known = new Map<string, Grouping>();
  private shown = "";

  async list(): Promise<void> {
    if (saved) return; // a file has no service to ask
    try {
      this.runs = (await get<{ runs: Run[] }>("/api/runs?limit=200")).runs;
    } catch {
      this.runs = []; // recorded runs need no service
    }
  }

  /** Read the run that the address names, and the step of it that is nearest to the one asked for. */
  async read(): Promise<void> {
    const run = this.run;
    this.busy = true;
    try {
      if (run !== this.shown) {
        [this.attempts, this.curves, this.fault] = [null, null, null];
        this.known.clear();
        const [steps, curves] = await this.whole(run);
        if (run !== this.run) return;
        [this.shown, this.steps, this.curves] = [run, steps, curves];
      }
      await this.readStep(run);
      if (run === this.run) this.fault = null;
    } catch (error) {
      if (run === this.run) [this.fault, this.attempts] = [asFault(error), null];
    } finally {
      this.busy = false;
    }
  }

  private async whole(run: string): Promise<[number[], Curves]> {
    if (this.recording) {
      this.open = (await this.recording.load()).default as Recording;
      return [this.open.steps, this.open.series];
    }
    this.open = null;
    const path = `/api/runs/${encodeURIComponent(run)}`;
    const [groups, series] = await Promise.all([get<{ steps: number[] }>(`${path}/groups`), get<Series>(`${path}/series?points=${POINTS}`)]);
    return [groups.steps, series.series];
  }

  private async readStep(run: string): Promise<void> {
    const wanted = this.asked === null ? (this.steps.at(-1) ?? null) : Number(this.asked);
    const step = wanted === null || !this.steps.length ? null : nearest(this.steps, wanted);
    if (step === null) this.attempts = null;
    else if (this.attempts?.step !== step) {
      const found = this.open ? this.open.attempts[step]! : await get<Attempts>(`/api/runs/${encodeURIComponent(run)}/attempts/${step}`);
      if (run === this.run) this.attempts = found;
    }
  }

  /** How a strategy divides the attempts of the step, iteration by iteration; what was asked before is kept. */
  async grouping(strategy: string, count: number): Promise<Grouping> {
    const name = `${this.run} ${this.step} ${strategy} ${count}`;
    const known = this.known.get(name);
    if (known) return known;
    const found = this.open ? this.recordedGrouping(strategy, count) : await get<Grouping>(
      `/api/runs/${encodeURIComponent(this.run)}/groupings/${this.step}?strategy=${strategy}&n_groups=${count}`);
    this.known.set(name, found);
    return found;
  }

  private recordedGrouping(strategy: string, count: number): Grouping {
    const counts = this.open!.groupings[this.step!]?.[strategy];
    const told = counts?.[count] ?? counts?.[1];
    if (!told) throw new Error(`How ${strategy} divides this step was not recorded.`);
    const number = (letter: string) => (letter === "-" ? -1 : parseInt(letter, 36));
    return { ...told, iterations: told.iterations.map((line) => (typeof line === "string" ? [...line].map(number) : line)) };
  }

  /** The address of this run and step in another view. */
  address(view: string, step = this.step): string {
    const query = new URLSearchParams({ run: this.run });
    if (step !== null) query.set("step", String(step));
    return `/learn/${view}?${query}`;
  }
}

const nearest = (steps: number[], wanted: number): number =>
  steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best), steps[0]!);

export const source = new Source();
export const recordedName = (name: string): string => PREFIX + name;
