/** Numbers, times and names in the reader's words. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e").replaceAll("-", "−");
  if (size >= 1000) return Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))).toLocaleString("en-GB").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

export const signed = (value: number): string => (value > 0 ? "+" : "") + number(value);
export const percent = (share: number | null | undefined): string =>
  share === null || share === undefined ? "–" : `${Math.round(share * 100)}%`;

export function ago(unix: number, now = Date.now() / 1000): string {
  const seconds = Math.max(0, now - unix);
  if (seconds < 10) return "just now";
  for (const [size, name] of [[60, "s"], [3600, "min"], [86_400, "h"]] as const) {
    const unit = { s: 1, min: 60, h: 3600 }[name];
    if (seconds < size) return `${Math.floor(seconds / unit)} ${name} ago`;
  }
  return new Date(unix * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** A time in the unit that people would use, and that the service's own sentences use. */
export function duration(seconds: number, digits = 3): string {
  const [size, unit] = timeUnit(seconds);
  return `${number(seconds / size, digits)} ${unit}`;
}

export const timeUnit = (seconds: number): readonly [size: number, unit: string] =>
  seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172_800 ? [3600, "h"] : [86_400, "days"];

export const plain = (name: string): string => {
  const words = name.replace(/[_-]+/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
};

export const PRODUCTS: Record<string, string> = {
  control: "Control",
  ppo: "PPO",
  language: "Language",
  agent: "Agent",
  "warm-start": "Warm start",
  designer: "Designer",
  code: "Code",
};

/** What a run is doing, in a word, a tone to show it in, and a sentence. */
export const STATES: Record<string, { word: string; tone: string; says: string }> = {
  queued: { word: "Queued", tone: "quiet", says: "Waiting for a free worker." },
  created: { word: "Starting", tone: "quiet", says: "Setting up." },
  running: { word: "Running", tone: "live", says: "Training now." },
  stopping: { word: "Stopping", tone: "warn", says: "Finishing its step and saving, then stopping." },
  interrupted: { word: "Interrupted", tone: "warn", says: "Its process ended early. You can resume it from its last checkpoint." },
  stopped: { word: "Stopped", tone: "quiet", says: "Stopped. You can resume it." },
  cancelled: { word: "Stopped", tone: "quiet", says: "Stopped. You can resume it." },
  failed: { word: "Failed", tone: "bad", says: "Ended with an error." },
  finished: { word: "Finished", tone: "good", says: "Completed all its steps." },
  damaged: { word: "Damaged", tone: "bad", says: "Its folder cannot be read." },
};
