/** From numbers to places in a drawing, and round numbers for its axes. */
export type Scale = { (value: number): number; domain: [number, number]; range: [number, number]; invert: (place: number) => number };

/** A straight scale; a domain without width is widened, so that nothing is divided by 0. */
export function linear([low, high]: [number, number], range: [number, number]): Scale {
  const [from, to] = Number.isFinite(low) && Number.isFinite(high) ? (low === high ? [low - 0.5, high + 0.5] : [low, high]) : [0, 1];
  const factor = (range[1] - range[0]) / (to - from);
  const scale = (value: number) => range[0] + (value - from) * factor;
  return Object.assign(scale, { domain: [from, to] as [number, number], range, invert: (place: number) => from + (place - range[0]) / factor });
}

/** About `count` round numbers from `low` to `high`. */
export function ticks([low, high]: [number, number], count = 5): number[] {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, n) => (first + n) * step);
}

/** The lowest and highest of some numbers, with a share of room on both sides. */
export function extent(values: Iterable<number>, room = 0): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) return [0, 1];
  const more = (high - low || 1) * room;
  return [low - more, high + more];
}

/** For tests and for whoever measures: domain and range of a scale, as an attribute of the drawing. */
export const written = (scale: Scale): string => [...scale.domain, ...scale.range].join(" ");

/** As much of a name as fits under one of `count` bars: its end, where names of one family differ. */
export function fitting(name: string, count: number): string {
  const most = count > 6 ? 3 : count > 4 ? 8 : count > 3 ? 11 : 15;
  if (name.length <= most) return name;
  return count > 4 && /-\d+$/.test(name) ? name.replace(/^.*-/, "") : `…${name.slice(1 - most)}`;
}
