/** The parts of ECharts that are used, and how charts look here. */
import { LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { format, init, use, type ECharts } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { number, percent } from "./words";

use([LineChart, ScatterChart, GridComponent, TooltipComponent, CanvasRenderer]);

export type Line = { name: string; tone: Tone; dashed?: boolean; points: [number, number][] };
export type Tone = "accent" | "minus" | "faint";
export type { ECharts };

export const start = (element: HTMLElement): ECharts => init(element);

/** The page's own colours, as they are now. */
export function palette(): Record<Tone | "line" | "ink" | "soft" | "raised", string> {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    accent: read("accent"), minus: `rgb(${read("minus").split(" ").join(",")})`, faint: read("faint"),
    line: read("line"), ink: read("ink"), soft: read("soft"), raised: read("raised"),
  };
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function axis(colours: ReturnType<typeof palette>) {
  return {
    axisLine: { show: false }, axisTick: { show: false },
    axisLabel: { color: colours.faint, fontSize: 11, fontFamily: FONT, hideOverlap: true, formatter: (value: number): string => number(value) },
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

type Shown = { seriesName: string; value: [number, number]; color: string };

export function lineOptions(lines: Line[], share: boolean, range: [number, number]): Record<string, unknown> {
  const colours = palette();
  const told = (shown: Shown[]) =>
    [
      html`<span style="color:${colours.faint}">Step ${shown[0]!.value[0]}</span>`,
      ...shown.map((one) => html`<span style="color:${one.color}">●</span> ${one.seriesName}&ensp;<b>${number(one.value[1], 4)}</b>`),
    ].join("<br>");
  return {
    animation: false,
    grid: { left: 2, right: 12, top: 8, bottom: 3, containLabel: true },
    tooltip: { ...tooltip(colours), trigger: "axis", axisPointer: { lineStyle: { color: colours.faint } }, formatter: told },
    xAxis: { type: "value", min: range[0], max: range[1], minInterval: 1, ...axis(colours), splitLine: { show: false } },
    yAxis: { type: "value", scale: !share, splitNumber: 4, ...axis(colours), ...(share ? shares(colours) : {}) },
    series: lines.map((line) => ({
      type: "line", name: line.name, data: line.points, symbol: "circle", symbolSize: line.dashed ? 6 : 4,
      showSymbol: line.points.length < 30, color: colours[line.tone],
      lineStyle: { width: line.dashed ? 2 : 1.7, type: line.dashed ? [5, 4] : "solid" },
      emphasis: { disabled: true },
    })),
  };
}

/** What changes of `lineOptions` when a curve grows. */
export const lineNumbers = (lines: Line[], range: [number, number]): Record<string, unknown> => ({
  xAxis: { min: range[0], max: range[1] },
  series: lines.map((line) => ({ data: line.points, showSymbol: line.points.length < 30 })),
});

export type Dot = { x: number; y: number; name: string; chosen: boolean };

export function dotOptions(dots: Dot[], xName: string, yName: string): Record<string, unknown> {
  const colours = palette();
  const naming = (name: string, gap: number) => ({ name, nameLocation: "middle", nameGap: gap, nameTextStyle: { color: colours.soft, fontSize: 12, fontFamily: FONT } });
  return {
    animation: false,
    grid: { left: 30, right: 16, top: 12, bottom: 24, containLabel: true },
    tooltip: { ...tooltip(colours), trigger: "item", formatter: (one: { data: { told: string } }) => one.data.told },
    xAxis: { type: "value", scale: true, ...axis(colours), ...naming(xName, 26), splitLine: { show: false } },
    yAxis: { type: "value", scale: true, ...axis(colours), ...naming(yName, 54) },
    series: [{
      type: "scatter",
      data: dots.map((dot) => ({
        value: [dot.x, dot.y],
        told: html`${dot.name}<br>${xName} <b>${number(dot.x)}</b><br>${yName} <b>${number(dot.y)}</b>`,
        symbolSize: dot.chosen ? 16 : 10,
        itemStyle: { color: dot.chosen ? colours.accent : colours.faint, opacity: dot.chosen ? 1 : 0.65 },
      })),
    }],
  };
}
