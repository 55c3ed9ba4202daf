/** All runs and jobs, kept current by the service. A run may have no job, and a job no run yet: both are shown. */
import { asFault, get, type Fault, type Job, type Run } from "./api";
import { live } from "./live.svelte";

export type Entry = {
  name: string;
  state: string;
  product: string;
  step: number;
  total: number;
  attempt: number;
  updated: number;
  metrics: Record<string, number | null>;
  run: Run | null;
  job: Job | null;
};

class Store {
  runs = $state.raw<Run[]>([]);
  jobs = $state.raw<Job[]>([]);
  loaded = $state(false);
  fault = $state<Fault | null>(null);
  entries = $derived(merged(this.runs, this.jobs));
  private started = false;

  start(): void {
    if (this.started) return;
    this.started = true;
    live.follow("runs", ({ runs, jobs }) => Object.assign(this, { runs, jobs, loaded: true, fault: null }));
    void this.read();
  }

  async read(): Promise<void> {
    try {
      const [runs, jobs] = await Promise.all([get<{ runs: Run[] }>("/api/runs"), get<{ jobs: Job[] }>("/api/jobs")]);
      Object.assign(this, { runs: runs.runs, jobs: jobs.jobs, loaded: true, fault: null });
    } catch (error) {
      this.fault = asFault(error);
    }
  }

  entry(name: string): Entry | undefined {
    return this.entries.find((entry) => entry.name === name);
  }
}

function merged(runs: Run[], jobs: Job[]): Entry[] {
  const newest = new Map<string, Job>();
  for (const job of jobs) if (!newest.has(job.run)) newest.set(job.run, job);
  const known = new Set(runs.map((run) => run.id));
  const entries = runs.map((run) => entryOf(run, newest.get(run.id) ?? null));
  for (const [name, job] of newest) if (!known.has(name)) entries.push(entryOf(null, job));
  return entries.sort((a, b) => rank(a) - rank(b) || b.updated - a.updated);
}

const rank = (entry: Entry): number => (["running", "stopping", "created"].includes(entry.state) ? 0 : entry.state === "queued" ? 1 : 2);

function entryOf(run: Run | null, job: Job | null): Entry {
  const facts = run ?? job!;
  const state = stateOf(run, job);
  const { step, total, attempt, metrics } = facts;
  const updated = run?.updated || job?.updated || 0;
  return { name: run?.id ?? job!.run, state, product: job?.product ?? "", step, total, attempt, metrics, updated, run, job };
}

function stateOf(run: Run | null, job: Job | null): string {
  if (job?.state === "running" && job.cancelling) return "stopping";
  if (job && ["queued", "failed"].includes(job.state)) return job.state;
  if (job?.state === "running" && (!run || run.state !== "running")) return "created";
  return run?.state ?? job!.state;
}

export const store = new Store();
