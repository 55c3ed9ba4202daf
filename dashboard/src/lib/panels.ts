/** The charts of a run, made from what the registry of metrics says of the numbers it has logged. */
import type { Metric } from "./api";
import type { Tone } from "./charts";
import { percent, number } from "./words";

export type PanelLine = { metric: string; name: string; tone: Tone; dashed?: boolean };
export type Panel = { title: string; says: string; unit: string; lines: PanelLine[]; wide?: boolean };

const TONES: Tone[] = ["accent", "minus", "faint"];
const WIDE = ["Reward", "Imitation loss"]; // what a run is about
export const REWARD = "reward/mean";
export const HELD_OUT = "eval/reward_mean";
export const SIGNAL = ["Groups without signal", "Advantage"]; // shown with the groups, too

const sentence = (text: string) => text && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
const told = (metric: Metric) => [sentence(metric.meaning), sentence(metric.worry)].filter(Boolean).join(" ");

/** Panels in the registry's order: first what is wide, then the rest. */
export function panelsOf(known: Metric[]): Panel[] {
  const found = new Map<string, Metric[]>();
  for (const metric of known) if (metric.panel) found.set(metric.panel, [...(found.get(metric.panel) ?? []), metric]);
  const panels = [...found].map(([title, metrics]) => panelOf(title, metrics.slice(0, TONES.length)));
  return [...panels.filter((panel) => panel.wide), ...panels.filter((panel) => !panel.wide)];
}

function panelOf(title: string, metrics: Metric[]): Panel {
  const training = metrics.filter((metric) => !metric.name.startsWith("eval/"));
  const ordered = [...training, ...metrics.filter((metric) => metric.name.startsWith("eval/"))];
  // Held-out numbers are dashed and orange in every chart, whether training has such a number or not.
  const lines = ordered.map((metric, place): PanelLine => {
    const held = metric.name.startsWith("eval/") && WIDE.includes(title);
    return { metric: metric.name, name: metric.label || metric.name, tone: held ? "minus" : TONES[place]!, dashed: held };
  });
  // One axis has one unit, or none: a training score beside a share of right answers is no share.
  const unit = metrics.every((metric) => metric.unit === metrics[0]!.unit) ? metrics[0]!.unit : "";
  return { title, says: ordered.map(told).join(" "), unit, lines, wide: WIDE.includes(title) };
}

/** Below this, a loss or a divergence is what float32 rounds to, and stands for 0; other numbers mean what they are. */
const ROUNDING = 1e-6;
const isRounded = (metric: string, unit: string) => unit === "nats" || metric.startsWith("loss/");
export const cleaned = (value: number, metric: string, unit: string): number => (Math.abs(value) < ROUNDING && isRounded(metric, unit) ? 0 : value);

/** A chart of one metric that has none of its own. */
export const single = (name: string, metric: Metric | undefined): Panel =>
  ({ title: name, says: metric ? told(metric) : "", unit: metric?.unit ?? "", lines: [{ metric: name, name, tone: "accent" }] });

export const inUnit = (value: number | null | undefined, unit: string): string => (unit === "share" ? percent(value) : number(value));
