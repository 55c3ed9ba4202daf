/** Who is here, and how the page should look. */
import { asFault, get, key, onUnauthorised, type Fault, type Me } from "./api";
import { live } from "./live.svelte";

export type Theme = "system" | "light" | "dark";
const THEME = "groupwise.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

class Session {
  me = $state<Me | null>(null);
  fault = $state<Fault | null>(null);
  needsKey = $state(false);
  /** Why the last key was not taken. */
  refusal = $state.raw<Fault | null>(null);
  theme = $state<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "system");
  systemDark = $state(dark.matches);
  isDark = $derived(this.theme === "system" ? this.systemDark : this.theme === "dark");

  constructor() {
    dark.addEventListener("change", (event) => (this.systemDark = event.matches));
    onUnauthorised(() => this.askForKey());
    this.takeToken();
    this.show();
  }

  /** The address that the service prints when it starts has a token. It is used like a key, and taken out of sight. */
  private takeToken(): void {
    const address = new URL(location.href);
    const token = address.searchParams.get("token");
    if (!token) return;
    key.set(token);
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address);
  }

  async start(): Promise<void> {
    this.fault = null;
    try {
      this.me = await get<Me>("/api/me");
      this.needsKey = false;
      live.connect();
    } catch (error) {
      this.refusal = asFault(error);
      if (!this.needsKey) this.fault = this.refusal;
    }
  }

  async useKey(value: string): Promise<boolean> {
    key.set(value.trim());
    await this.start();
    if (this.needsKey) key.set("");
    return !this.needsKey;
  }

  askForKey(): void {
    this.needsKey = true;
    live.close();
  }

  forgetKey(): void {
    key.set("");
    location.assign("/");
  }

  choose(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(THEME, theme);
    this.show();
  }

  may(scope: "train" | "admin"): boolean {
    return this.me?.scope === "admin" || this.me?.scope === scope;
  }

  private show(): void {
    if (this.theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.theme;
  }
}

export const session = new Session();
