/** The parts of ECharts that are used, and how charts look here. */
import { LineChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { format, init, use, type ECharts } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { palette, type Tone } from "./palette";
import { number, percent } from "./words";

use([LineChart, GridComponent, TooltipComponent, CanvasRenderer]);

export type { Tone } from "./palette";
/** `colour` instead of a tone where runs are compared; `band` is drawn around the line; `raw` is what was smoothed. */
export type Line = { name: string; tone?: Tone; colour?: string; dashed?: boolean; points: Point[]; raw?: Point[]; band?: [Point[], Point[]] };
export type Point = [number, number];
export type Look = { share: boolean; log: boolean; axis: string; range: [number, number] };
export type { ECharts };

export const start = (element: HTMLElement): ECharts => init(element);

/** The chart as an SVG drawing of its own; the renderer is loaded when somebody wants one. */
export async function asSvg(options: Record<string, unknown>, width: number, height: number): Promise<string> {
  const { drawn } = await import("./svg");
  return drawn({ ...options, backgroundColor: palette().raised }, width, height);
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function axis(colours: ReturnType<typeof palette>, digits = 3) {
  return {
    axisLine: { show: false }, axisTick: { show: false },
    axisLabel: { color: colours.faint, fontSize: 11, fontFamily: FONT, hideOverlap: true, formatter: (value: number): string => number(value, digits) },
    splitLine: { lineStyle: { color: colours.line } },
  };
}

const shares = (colours: ReturnType<typeof palette>) => ({
  min: 0, max: 1, interval: 0.25, axisLabel: { ...axis(colours).axisLabel, formatter: percent },
});

function tooltip(colours: ReturnType<typeof palette>) {
  return {
    backgroundColor: colours.raised, borderColor: colours.line, borderWidth: 1, padding: [7, 10], confine: true,
    textStyle: { color: colours.ink, fontSize: 12, fontFamily: FONT }, transitionDuration: 0,
  };
}

/** HTML for a tooltip: whatever is put in is text, because names come from runs and models. */
const html = (parts: TemplateStringsArray, ...values: (string | number)[]): string =>
  parts.reduce((all, part, n) => all + format.encodeHTML(String(values[n - 1])) + part);

type Shown = { seriesName: string; value: Point; color: string };

function extremes(lines: Line[]): { low: number; high: number; size: number } {
  let [low, high] = [Infinity, -Infinity];
  for (const { points } of lines) for (const [, value] of points) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return { low, high, size: Math.max(Math.abs(low), Math.abs(high)) };
}

/** An axis for numbers that differ by rounding only would make a drama of it: it spans a few hundredths of them. */
function calm(lines: Line[]): { min?: number; max?: number } {
  const { low, high, size } = extremes(lines);
  return high - low < 1e-3 * size ? { min: low - 0.02 * size, max: high + 0.02 * size } : {};
}

/** So many digits that no two labels of an axis read the same. */
function digitsOf(lines: Line[]): number {
  const { low, high, size } = extremes(lines);
  return high - low < 1e-3 * size || !(size > 0) ? 3 : Math.max(3, Math.ceil(Math.log10(size / (high - low))) + 2);
}

/** On a logarithmic axis, numbers that have no logarithm are left out. */
const drawable = (points: Point[], log: boolean): Point[] => (log ? points.filter(([, value]) => value > 0) : points);

const limits = ({ min, max }: { min?: number; max?: number }) => ({ min: min ?? null, max: max ?? null });

export function lineOptions(lines: Line[], look: Look): Record<string, unknown> {
  const colours = palette();
  const told = (shown: Shown[]) => {
    const named = shown.filter((one) => one.seriesName);
    const head = html`<span style="color:${colours.faint}">${look.axis} ${number(named[0]?.value[0] ?? 0, 7)}</span>`;
    return [head, ...named.slice(0, 12).map((one) => html`<span style="color:${one.color}">●</span> ${one.seriesName}&ensp;<b>${number(one.value[1], 4)}</b>`)].join("<br>");
  };
  return {
    animation: false,
    grid: { left: 2, right: 12, top: 8, bottom: 3, containLabel: true },
    tooltip: { ...tooltip(colours), trigger: "axis", axisPointer: { lineStyle: { color: colours.faint } }, formatter: told },
    xAxis: { type: "value", min: look.range[0], max: look.range[1], ...(look.axis === "Step" ? { minInterval: 1 } : {}), ...axis(colours), splitLine: { show: false } },
    yAxis: { type: look.log ? "log" : "value", scale: !look.share, splitNumber: 4, ...axis(colours, digitsOf(lines)), ...(look.log ? {} : look.share ? shares(colours) : limits(calm(lines))) },
    series: seriesOf(lines, look.log, colours),
  };
}

function seriesOf(lines: Line[], log: boolean, colours: ReturnType<typeof palette>): Record<string, unknown>[] {
  return lines.flatMap((line) => {
    const color = line.colour ?? colours[line.tone ?? "accent"];
    const common = { type: "line", color, emphasis: { disabled: true }, silent: true };
    const main = {
      ...common, name: line.name, data: drawable(line.points, log), symbol: "circle", symbolSize: line.dashed ? 6 : 4,
      showSymbol: line.points.length < 30, z: 3,
      lineStyle: { width: line.dashed ? 2 : 1.7, type: line.dashed ? [5, 4] : "solid" },
    };
    const behind = { ...common, name: "", showSymbol: false, tooltip: { show: false } };
    const raw = line.raw ? [{ ...behind, data: drawable(line.raw, log), lineStyle: { width: 1, opacity: 0.28 } }] : [];
    const band = line.band ? line.band.map((edge, at) => ({
      ...behind, data: edge, lineStyle: { opacity: 0 }, stack: `band ${line.name}`, stackStrategy: "all",
      ...(at ? { areaStyle: { color, opacity: 0.16 } } : {}),
    })) : [];
    return [...band, ...raw, main];
  });
}

/** What changes of `lineOptions` when a curve grows. */
export const lineNumbers = (lines: Line[], look: Look): Record<string, unknown> => ({
  xAxis: { min: look.range[0], max: look.range[1] },
  ...(look.log || look.share ? {} : { yAxis: limits(calm(lines)) }),
  series: seriesOf(lines, look.log, palette()).map(({ data, showSymbol }) => ({ data, showSymbol })),
});

export type Dot = { x: number; y: number; name: string; chosen: boolean };

export function dotOptions(dots: Dot[], xName: string, yName: string): Record<string, unknown> {
  const colours = palette();
  const naming = (name: string, gap: number) => ({ name, nameLocation: "middle", nameGap: gap, nameTextStyle: { color: colours.soft, fontSize: 12, fontFamily: FONT } });
  return {
    animation: false,
    grid: { left: 44, right: 16, top: 12, bottom: 24, containLabel: true },
    tooltip: { ...tooltip(colours), trigger: "item", formatter: (one: { data: { told: string } }) => one.data.told },
    xAxis: { type: "value", scale: true, ...axis(colours), ...naming(xName, 26), splitLine: { show: false } },
    yAxis: { type: "value", scale: true, ...axis(colours), ...naming(yName, 54) },
    series: [{
      type: "line", lineStyle: { opacity: 0 }, symbol: "circle", // dots without a line: scatter charts are not loaded for them
      data: dots.map((dot) => ({
        value: [dot.x, dot.y],
        told: html`${dot.name}<br>${xName} <b>${number(dot.x)}</b><br>${yName} <b>${number(dot.y)}</b>`,
        symbolSize: dot.chosen ? 16 : 10,
        itemStyle: { color: dot.chosen ? colours.accent : colours.faint, opacity: dot.chosen ? 1 : 0.65 },
      })),
    }],
  };
}
