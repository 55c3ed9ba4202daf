/** One run, watched: its state, curves, hints and last events, live. */
import { asFault, get, type Fault, type Metric, type Run, type RunEvent, type RunWhole, type Series } from "./api";
import { live } from "./live.svelte";
import { view } from "./view.svelte";

export type Curve = { steps: number[]; values: number[]; at?: number[] | null };
const POINTS = 300; // of a curve; twice as many at most before it is thinned again
const PACE = 250; // milliseconds between two changes of what is shown
const SLOW = 3000; // milliseconds between two readings of curves that cannot be lengthened here
const SILENT = 5; // steps without a group that teaches, after which nothing is being learned

/** What a hint says, also where it is an order that the run refused; null for other events. */
const asHint = (event: RunEvent): RunEvent | null =>
  event.type === "hint" ? event
  : event.type === "control" && event.data.refused ? { ...event, data: { code: "order_refused", message: event.data.refused, remedy: event.data.remedy } }
  : null;

/** Every number of an event, by the name that the registry has for it. */
function numbersOf(event: RunEvent): Record<string, number | null> {
  const found: Record<string, number | null> = { ...(event.data.metrics as Record<string, number | null>) };
  for (const table of ["timing", "totals"]) {
    for (const [name, value] of Object.entries((event.data[table] ?? {}) as Record<string, number>)) found[`${table}/${name}`] = value;
  }
  return found;
}

export class Watch {
  whole = $state.raw<RunWhole | null>(null);
  /** The run as the list has it: newer than `whole`. */
  run = $state.raw<Run | null>(null);
  known = $state.raw<Metric[]>([]);
  hints = $state.raw<RunEvent[]>([]);
  ending = $state.raw<RunEvent | null>(null);
  fault = $state<Fault | null>(null);
  missing = $state(false);
  step = $state(0);
  /** Goes up when curves have changed, a few times a second. */
  version = $state(0);
  curves = new Map<string, Curve>();
  private next = 0;
  private attempt = 0;
  private leaves: (() => void)[] = [];
  private reading = 0;
  /** Events that came while the curves were read; null when they are not. */
  private arrived: RunEvent[] | null = null;
  private pause = 0;
  private later = 0;
  private path: string;
  private more = new Set<string>();

  constructor(readonly name: string) {
    this.path = `/api/runs/${encodeURIComponent(name)}`;
  }

  async start(): Promise<void> {
    await this.read();
    if (this.missing || this.leaves.length) return;
    this.leaves = [
      live.followRun(this.name, {
        position: () => ({ from: this.next, attempt: this.attempt }),
        event: (event) => this.take(event),
        reread: () => void this.read(),
      }),
      live.follow("runs", (told) => {
        const mine = told.changed.find((run) => run.id === this.name);
        if (mine) this.run = mine;
        // A job that waited has begun: now there is something to read.
        if (mine && mine.total && !this.whole?.total) void this.read();
      }),
    ];
  }

  stop(): void {
    this.leaves.forEach((leave) => leave());
    this.leaves = [];
    this.reading++;
    clearTimeout(this.pause);
    clearTimeout(this.later);
  }

  /** Watch one more number. */
  async want(name: string): Promise<void> {
    this.more.add(name);
    await this.read();
  }

  about(name: string): Metric | undefined {
    return this.known.find((metric) => metric.name === name);
  }

  curve(name: string): Curve | undefined {
    void this.version;
    return this.curves.get(name);
  }

  last(name: string): number | undefined {
    return this.curve(name)?.values.at(-1);
  }

  /** The mean of the newest values. */
  recent(name: string, count = 20): number | null {
    const values = this.curve(name)?.values.slice(-count) ?? [];
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  }

  /** The step since which no group has taught anything; null while some do. */
  get silentSince(): number | null {
    const curve = this.curve("groups/zero_spread_share");
    if (!curve) return null;
    const last = curve.values.findLastIndex((value) => value < 0.999);
    const silent = curve.values.length - 1 - last;
    const isOver = !["running", "created", "queued", "stopping"].includes(this.run?.state ?? "running");
    // A short run that never had any signal is no different: waiting for more steps would change nothing.
    return silent >= SILENT || (last < 0 && silent > 0 && isOver) ? curve.steps[last + 1]! : null;
  }

  private wanted(known: Metric[]): string[] {
    return known.filter((metric) => metric.panel || this.more.has(metric.name)).map((metric) => metric.name);
  }

  async read(): Promise<void> {
    const mine = ++this.reading;
    this.arrived ??= [];
    clearTimeout(this.later);
    this.later = 0;
    try {
      const whole = await get<RunWhole>(this.path);
      const query = new URLSearchParams({ points: String(POINTS), axis: view.axis });
      this.wanted(whole.known).forEach((name) => query.append("names", name));
      if (view.from !== null) query.set("since", String(view.from));
      if (view.to !== null) query.set("until", String(view.to));
      const has = query.has("names");
      const [series, events] = await Promise.all([
        has ? get<Series>(`${this.path}/series?${query}`) : Promise.resolve({ next: whole.events, series: {} } as unknown as Series),
        whole.events ? get<{ events: RunEvent[] }>(`${this.path}/events?points=2`) : Promise.resolve({ events: [] as RunEvent[] }),
      ]);
      if (mine !== this.reading) return;
      this.whole = whole;
      this.run = whole;
      this.known = whole.known;
      this.step = whole.step;
      this.hints = events.events.map(asHint).filter((hint) => hint !== null);
      this.ending = events.events.findLast((event) => event.type === "end" || event.type === "error") ?? null;
      this.curves = new Map(Object.entries(series.series));
      [this.next, this.attempt] = [series.next, whole.attempt];
      this.fault = null;
      this.missing = false;
      this.version++;
      const arrived = this.arrived;
      this.arrived = null;
      arrived?.forEach((event) => this.take(event));
    } catch (error) {
      if (mine !== this.reading) return;
      this.arrived = null;
      const fault = asFault(error);
      this.missing = fault.code === "run_not_found" || fault.code === "not_found" || fault.code === "invalid";
      this.fault = fault;
    }
  }

  private take(event: RunEvent): void {
    this.arrived?.push(event);
    if (event.seq < this.next) return;
    [this.next, this.attempt] = [event.seq + 1, event.attempt];
    const hint = asHint(event);
    if (hint && !this.hints.some((known) => known.seq === hint.seq)) this.hints = [...this.hints, hint];
    if (event.type === "start") this.ending = null;
    if (event.type === "end" || event.type === "error") this.ending = event;
    if (event.type !== "step" && event.type !== "eval") return;
    this.step = Math.max(this.step, event.step);
    const numbers = numbersOf(event);
    const isNew = Object.entries(numbers).some(([name, value]) => value !== null && !this.about(name));
    const held = view.axis !== "step" || (view.to !== null && event.step > view.to);
    if (isNew && !this.arrived) this.soon(PACE);
    else if (view.axis !== "step") this.soon(SLOW);
    else if (!held && this.add(event.step, numbers) && !this.arrived) void this.read();
    this.pause ||= window.setTimeout(() => {
      this.pause = 0;
      this.version++;
    }, PACE);
  }

  private soon(pause: number): void {
    this.later ||= window.setTimeout(() => void this.read(), pause);
  }

  /** Lengthen the curves; whether one has become so long that it should be thinned. */
  private add(step: number, numbers: Record<string, number | null>): boolean {
    let long = false;
    for (const [name, value] of Object.entries(numbers)) {
      if (value === null || !this.curves.has(name)) continue;
      const curve = this.curves.get(name)!;
      curve.steps.push(step);
      curve.values.push(value);
      long ||= curve.steps.length >= 2 * POINTS && curve.steps.length % POINTS === 0;
    }
    return long;
  }
}
