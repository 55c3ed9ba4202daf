/** Calls to the service, and its one shape of error. */
import type { components } from "./shapes";

export type Shapes = components["schemas"];
export type Fault = Shapes["ErrorDetail"];
export type Job = Shapes["JobView"];
export type Metric = Shapes["MetricView"];
export type Run = Shapes["RunView"];
export type RunWhole = Shapes["RunWhole"];
export type RunEvent = Shapes["EventView"];
export type Series = Shapes["SeriesPage"];
export type Group = Shapes["GroupView"];
export type Attempt = Shapes["AttemptView"];
export type Trajectory = Shapes["TrajectoryView"];
export type Me = { name: string; scope: string; keys_required: boolean };

const KEY = "groupwise.key";

/** What the service refused, or could not be asked. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly fault: Fault,
  ) {
    super(fault.message);
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value: string) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

const listeners = new Set<() => void>();
/** Called whenever the service wants a key that it was not shown. */
export const onUnauthorised = (listener: () => void) => void listeners.add(listener);

type Options = { method?: string; body?: unknown; signal?: AbortSignal; headers?: Record<string, string> };

export async function ask(path: string, { method, body, signal, headers }: Options = {}): Promise<Response> {
  const all: Record<string, string> = { ...headers };
  if (body !== undefined) all["content-type"] = "application/json";
  if (key.get()) all.authorization = `Bearer ${key.get()}`;
  let answer: Response;
  try {
    answer = await fetch(path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: all,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, {
      code: "unreachable",
      message: "The service does not answer.",
      hint: "Is it running? Start it with: groupwise serve",
      field: "",
    });
  }
  if (!answer.ok) {
    if (answer.status === 401) listeners.forEach((listener) => listener());
    throw new Refused(answer.status, await faultOf(answer));
  }
  return answer;
}

export async function get<T>(path: string, options: Options = {}): Promise<T> {
  return (await (await ask(path, options)).json()) as T;
}

export const post = <T>(path: string, body: unknown = {}, options: Options = {}): Promise<T> =>
  get<T>(path, { ...options, method: "POST", body });

export const patch = <T>(path: string, body: unknown): Promise<T> => get<T>(path, { method: "PATCH", body });

async function faultOf(answer: Response): Promise<Fault> {
  try {
    return ((await answer.json()) as { error: Fault }).error;
  } catch {
    return { code: "unknown", message: `The service answered ${answer.status}.`, hint: "", field: "" };
  }
}

/** Any error as a fault, to be shown kindly. */
export function asFault(error: unknown): Fault {
  if (error instanceof Refused) return error.fault;
  return { code: "page", message: error instanceof Error ? error.message : String(error), hint: "", field: "" };
}

/** Fetch a file, with the key if there is one, and hand it to the browser. */
export async function download(path: string, name: string, options: Options = {}): Promise<void> {
  const answer = await ask(path, options);
  const said = /filename="?([^";]+)"?/.exec(answer.headers.get("content-disposition") ?? "")?.[1];
  save(await answer.blob(), said ?? name);
}

export function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
