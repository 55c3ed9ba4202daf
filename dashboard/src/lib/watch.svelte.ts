/** One run, watched: its curves, hints and last events, live. */
import { asFault, get, type Fault, type RunEvent, type RunWhole, type Series } from "./api";
import { draw } from "./draw";
import { live } from "./live.svelte";

export type Curve = { steps: number[]; values: number[] };
const POINTS = 800; // of a curve; twice as many at most before it is thinned again

export class Watch {
  whole = $state.raw<RunWhole | null>(null);
  names = $state.raw<string[]>([]);
  hints = $state.raw<RunEvent[]>([]);
  ending = $state.raw<RunEvent | null>(null);
  fault = $state<Fault | null>(null);
  missing = $state(false);
  /** Goes up when curves have changed, once per frame. */
  version = $state(0);
  curves = new Map<string, Curve>();
  private next = 0;
  private attempt = 0;
  private leave: (() => void) | null = null;
  private reading = 0;
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
    try {
      const whole = await get<RunWhole>(this.path);
      const query = [...this.wanted].map((name) => `names=${encodeURIComponent(name)}`).join("&");
      const [series, events] = await Promise.all([
        get<Series>(`${this.path}/series?${query}&points=${POINTS}`),
        get<{ events: RunEvent[] }>(`${this.path}/events?points=2`),
      ]);
      if (mine !== this.reading) return;
      this.whole = whole;
      this.names = series.names;
      this.hints = events.events.filter((event) => event.type === "hint");
      this.ending = events.events.findLast((event) => event.type === "end" || event.type === "error") ?? null;
      this.curves = new Map(Object.entries(series.series));
      [this.next, this.attempt] = [series.next, whole.attempt];
      this.fault = null;
      this.missing = false;
      this.version++;
    } catch (error) {
      const fault = asFault(error);
      this.missing = fault.code === "run_not_found" || fault.code === "not_found";
      this.fault = fault;
    }
  }

  private take(event: RunEvent): void {
    if (event.seq < this.next) return;
    [this.next, this.attempt] = [event.seq + 1, event.attempt];
    if (event.type === "hint") this.hints = [...this.hints, event];
    if (event.type === "start") this.ending = null;
    if (event.type === "end" || event.type === "error") this.ending = event;
    if (event.type !== "step" && event.type !== "eval") return;
    const metrics = event.data.metrics as Record<string, number | null>;
    for (const [name, value] of Object.entries(metrics)) {
      if (!this.wanted.has(name) || value === null) continue;
      const curve = this.curves.get(name) ?? { steps: [], values: [] };
      curve.steps.push(event.step);
      curve.values.push(value);
      this.curves.set(name, curve);
      if (curve.steps.length === 2 * POINTS) void this.read();
    }
    if (!this.names.length) this.names = Object.keys(metrics);
    draw(this, () => this.version++);
  }
}
