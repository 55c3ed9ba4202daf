/** Addresses: the path decides what is shown, and links change it without loading the page again. */
class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.read());
    addEventListener("click", (event) => this.follow(event));
  }

  go(to: string, { replace = false } = {}): void {
    if (to !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", to);
    this.read();
    if (!replace) scrollTo(0, 0);
  }

  /** The parts of the path, decoded. */
  get parts(): string[] {
    return this.path.split("/").filter(Boolean).map(decodeURIComponent);
  }

  private read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
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

export const router = new Router();
export const runPath = (run: string, ...more: (string | number)[]): string =>
  ["/runs", run, ...more].map((part, index) => (index ? encodeURIComponent(String(part)) : part)).join("/");
