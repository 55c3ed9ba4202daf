/** One run, watched: its curves, hints and last events, live. */
import { asFault, get, type Fault, type RunEvent, type RunWhole, type Series } from "./api";
import { live } from "./live.svelte";

export type Curve = { steps: number[]; values: number[] };
const POINTS = 500; // of a curve; twice as many at most before it is thinned again
const PACE = 250; // milliseconds between two changes of what is shown

/** What a hint says, also where it is an order that the run refused; null for other events. */
const asHint = (event: RunEvent): RunEvent | null =>
  event.type === "hint" ? event
  : event.type === "control" && event.data.refused ? { ...event, data: { code: "order_refused", message: event.data.refused, remedy: event.data.remedy } }
  : null;

export class Watch {
  whole = $state.raw<RunWhole | null>(null);
  names = $state.raw<string[]>([]);
  hints = $state.raw<RunEvent[]>([]);
  ending = $state.raw<RunEvent | null>(null);
  fault = $state<Fault | null>(null);
  missing = $state(false);
  /** How many of the last steps are shown; all where it is 0. */
  span = $state(0);
  /** Goes up when curves have changed, a few times a second. */
  version = $state(0);
  curves = new Map<string, Curve>();
  private next = 0;
  private attempt = 0;
  private leave: (() => void) | null = null;
  private reading = 0;
  /** Events that came while the curves were read; null when they are not. */
  private arrived: RunEvent[] | null = null;
  private pause = 0;
  private path: string;

  constructor(
    readonly run: string,
    private wanted: Set<string>,
  ) {
    this.path = `/api/runs/${encodeURIComponent(run)}`;
  }

  async start(): Promise<void> {
    await this.read();
    if (this.missing || this.leave) return;
    this.leave = live.followRun(this.run, {
      position: () => ({ from: this.next, attempt: this.attempt }),
      event: (event) => this.take(event),
      reread: () => void this.read(),
    });
  }

  stop(): void {
    this.leave?.();
    this.leave = null;
    this.reading++;
    clearTimeout(this.pause);
  }

  /** Show the last `span` steps, or all. */
  async look(span: number): Promise<void> {
    this.span = span;
    await this.read();
  }

  /** Watch one more number. */
  async want(name: string): Promise<void> {
    this.wanted.add(name);
    await this.read();
  }

  curve(name: string): Curve | undefined {
    void this.version;
    return this.curves.get(name);
  }

  last(name: string): number | undefined {
    return this.curve(name)?.values.at(-1);
  }

  async read(): Promise<void> {
    const mine = ++this.reading;
    this.arrived ??= [];
    try {
      const whole = await get<RunWhole>(this.path);
      const query = [...this.wanted].map((name) => `names=${encodeURIComponent(name)}`).join("&");
      const [series, events] = await Promise.all([
        get<Series>(`${this.path}/series?${query}&points=${POINTS}&since=${this.span && Math.max(0, whole.step - this.span)}`),
        get<{ events: RunEvent[] }>(`${this.path}/events?points=2`),
      ]);
      if (mine !== this.reading) return;
      this.whole = whole;
      this.names = series.names;
      this.hints = events.events.map(asHint).filter((hint) => hint !== null);
      this.ending = events.events.findLast((event) => event.type === "end" || event.type === "error") ?? null;
      this.curves = new Map(Object.entries(series.series));
      [this.next, this.attempt] = [series.next, whole.attempt];
      this.fault = null;
      this.missing = false;
      this.version++;
      const arrived = this.arrived;
      this.arrived = null;
      arrived.forEach((event) => this.take(event));
    } catch (error) {
      if (mine !== this.reading) return;
      this.arrived = null;
      const fault = asFault(error);
      this.missing = fault.code === "run_not_found" || fault.code === "not_found";
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
    const metrics = event.data.metrics as Record<string, number | null>;
    if (!this.names.length) this.names = Object.keys(metrics);
    if (this.add(event.step, metrics) && !this.arrived) void this.read();
    this.pause ||= window.setTimeout(() => {
      this.pause = 0;
      this.version++;
    }, PACE);
  }

  /** Lengthen the curves; whether one has become so long that it should be thinned. */
  private add(step: number, metrics: Record<string, number | null>): boolean {
    let long = false;
    for (const [name, value] of Object.entries(metrics)) {
      if (!this.wanted.has(name) || value === null) continue;
      const curve = this.curves.get(name) ?? { steps: [], values: [] };
      curve.steps.push(step);
      curve.values.push(value);
      this.curves.set(name, curve);
      long ||= curve.steps.length >= 2 * POINTS && curve.steps.length % POINTS === 0;
    }
    return long;
  }
}
