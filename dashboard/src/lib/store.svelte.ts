/** The list of runs as the reader asked for it: searched, filtered and sorted by the service, kept current by it. */
import { asFault, get, type Fault, type Run, type Shapes } from "./api";
import { live } from "./live.svelte";
import { router } from "./router.svelte";

export const FILTERS = ["state", "product", "environment", "tag", "owner"] as const;
export type Filter = (typeof FILTERS)[number];
const PAGE = 50;
const PAUSE = 400; // milliseconds between a change that needs the whole list and asking for it

class List {
  runs = $state.raw<Run[]>([]);
  total = $state(0);
  next = $state<number | null>(null);
  counts = $state.raw<Shapes["RunList"]["counts"]>({});
  loaded = $state(false);
  fault = $state<Fault | null>(null);
  private asked = "";
  private limit = PAGE;
  private pause = 0;
  private leave: (() => void) | null = null;

  /** Show the list that the address asks for, for as long as it is in sight. */
  open(): () => void {
    this.limit = PAGE;
    this.leave ??= live.follow("runs", (told) => {
      const known = new Map(told.changed.map((run) => [run.id, run]));
      this.runs = this.runs.map((run) => known.get(run.id) ?? run);
      // Whether a new one belongs here, and where, only the service knows.
      const shown = new Set(this.runs.map((run) => run.id));
      if (told.more || told.removed.length || told.changed.some((run) => !shown.has(run.id))) this.soon();
    });
    return () => {
      this.leave?.();
      this.leave = null;
      clearTimeout(this.pause);
      this.pause = 0;
    };
  }

  private soon(): void {
    this.pause ||= window.setTimeout(() => {
      this.pause = 0;
      void this.read();
    }, PAUSE);
  }

  async more(): Promise<void> {
    this.limit += 2 * PAGE;
    await this.read();
  }

  async read(): Promise<void> {
    const query = new URLSearchParams(router.query);
    query.set("limit", String(this.limit));
    const asked = (this.asked = query.toString());
    try {
      const told = await get<Shapes["RunList"]>(`/api/runs?${asked}`);
      if (asked !== this.asked) return;
      Object.assign(this, { runs: told.runs, total: told.total, next: told.next, counts: told.counts, loaded: true, fault: null });
    } catch (error) {
      if (asked === this.asked) this.fault = asFault(error);
    }
  }
}

export const list = new List();
