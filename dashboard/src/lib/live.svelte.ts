/** One WebSocket for the whole page: it reconnects, and takes up every subscription where it stood. */
import { key, type Run, type RunEvent } from "./api";

export type RunHandlers = {
  /** Where to go on from: the number of the next event, and the attempt of the last. */
  position: () => { from: number; attempt: number };
  event: (event: RunEvent) => void;
  /** What is known no longer holds, or has gaps: read it again. */
  reread: () => void;
};
/** What changed in the list of runs; with `more`, so much that it should be read again. */
export type Changes = { changed: Run[]; removed: string[]; more: boolean };
type Told = { type: string; topic?: string; run?: string; event?: RunEvent; metrics?: unknown; keys_required?: boolean } & Partial<Changes>;

const PATIENCE = [500, 1000, 2000, 5000];

class Live {
  state = $state<"off" | "connecting" | "on">("off");
  private socket: WebSocket | null = null;
  private failures = 0;
  private greeted = false;
  private wanted = false;
  private runs = new Map<string, RunHandlers>();
  private topics = { runs: new Set<(told: Changes) => void>(), metrics: new Set<(told: unknown) => void>() };

  connect(): void {
    this.wanted = true;
    if (this.socket) return;
    this.state = "connecting";
    this.greeted = false;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
    this.socket = socket;
    socket.onopen = () => key.get() && socket.send(JSON.stringify({ type: "auth", key: key.get() }));
    socket.onmessage = (message) => this.receive(JSON.parse(message.data as string) as Told);
    socket.onclose = (closed) => {
      this.socket = null;
      this.state = "off";
      if (closed.code === 4401) this.wanted = false;
      if (!this.wanted) return;
      setTimeout(() => this.wanted && this.connect(), PATIENCE[Math.min(this.failures++, PATIENCE.length - 1)]);
    };
  }

  close(): void {
    this.wanted = false;
    this.socket?.close();
  }

  followRun(run: string, handlers: RunHandlers): () => void {
    this.runs.set(run, handlers);
    this.subscribe(run, handlers);
    return () => {
      this.runs.delete(run);
      this.send({ type: "unsubscribe", topic: "run", run });
    };
  }

  follow(topic: "runs", listener: (told: Changes) => void): () => void;
  follow(topic: "metrics", listener: (told: unknown) => void): () => void;
  follow(topic: "runs" | "metrics", listener: (told: never) => void): () => void {
    const listeners = this.topics[topic] as Set<(told: never) => void>;
    listeners.add(listener);
    this.send({ type: "subscribe", topic });
    return () => {
      listeners.delete(listener);
      if (!listeners.size) this.send({ type: "unsubscribe", topic });
    };
  }

  private subscribe(run: string, handlers: RunHandlers): void {
    this.send({ type: "subscribe", topic: "run", run, ...handlers.position() });
  }

  private send(message: object): void {
    if (this.state === "on") this.socket?.send(JSON.stringify(message));
  }

  private receive(told: Told): void {
    if (told.type === "ready") {
      // Where no key is required, the first greeting comes before the service has seen our token; a second follows.
      const early = !told.keys_required && key.get() !== "" && !this.greeted;
      this.greeted = true;
      if (early) return;
      this.state = "on";
      this.failures = 0;
      this.runs.forEach((handlers, run) => this.subscribe(run, handlers));
      for (const topic of ["runs", "metrics"] as const) {
        if (this.topics[topic].size) this.send({ type: "subscribe", topic });
      }
    } else if (told.type === "event") {
      this.runs.get(told.run!)?.event(told.event!);
    } else if (told.type === "rewind" || told.type === "dropped") {
      this.runs.get(told.run!)?.reread();
    } else if (told.type === "runs") {
      this.topics.runs.forEach((listener) => listener({ changed: told.changed!, removed: told.removed!, more: told.more! }));
    } else if (told.type === "metrics") {
      this.topics.metrics.forEach((listener) => listener(told.metrics));
    }
  }
}

export const live = new Live();
