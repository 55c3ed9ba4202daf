/** Addresses: the path decides what is shown, and links change it without loading the page again. */
import { saved } from "./saved";

/** In a saved file the address stands behind the #: a file has one path only. */
const here = (): string => (saved ? location.hash.slice(1) || saved.address : location.pathname + location.search);
const write = (to: string, replace: boolean): void => history[replace ? "replaceState" : "pushState"](null, "", saved ? `#${to}` : to);
const parsed = (): URL => new URL(here(), "http://page");

class Router {
  path = $state(parsed().pathname);
  query = $state(parsed().searchParams);

  constructor() {
    addEventListener("popstate", () => this.read());
    addEventListener("click", (event) => this.follow(event));
  }

  go(to: string, { replace = false } = {}): void {
    if (to !== here()) write(to, replace);
    this.read();
    if (!replace) scrollTo(0, 0);
  }

  /** Change some parameters of the address and keep the rest; null or "" removes one. */
  ask(changes: Record<string, string | number | null>, { replace = true } = {}): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    const text = query.toString();
    const to = this.path + (text ? `?${text}` : "");
    if (to === here()) return;
    write(to, replace);
    this.read();
  }

  /** The parts of the path, decoded. */
  get parts(): string[] {
    return this.path.split("/").filter(Boolean).map(decoded);
  }

  private read(): void {
    this.path = parsed().pathname;
    this.query = parsed().searchParams;
  }

  private follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element).closest("a");
    if (!link || link.origin !== location.origin || link.target || link.download) return;
    if (/^\/(api|v1|docs|metrics|openapi)/.test(link.pathname)) return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

/** A part of an address that is not properly encoded stands for itself. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const router = new Router();
export const runPath = (run: string, ...more: (string | number)[]): string =>
  ["/runs", run, ...more].map((part, index) => (index ? encodeURIComponent(String(part)) : part)).join("/");
export const attemptPath = (run: string, step: number, id: string): string =>
  `/runs/${encodeURIComponent(run)}/attempts/${step}/${id.split("/").map(encodeURIComponent).join("/")}`;
