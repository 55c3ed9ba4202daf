/** Groups from boundaries that a reader moves: cuts of one quantity, or the nearest of several handles in a plane. */
import { ascending, quantile } from "./statistics";
export type Spot = [number, number];

/** The inner edges of equal shares, as `core.grouping`'s difficulty and length. */
export const quantileEdges = (values: readonly number[], count: number): number[] => {
  const sorted = ascending(values);
  return Array.from({ length: count - 1 }, (_, n) => quantile(sorted, (n + 1) / count));
};

/** A value equal to an edge belongs to the group below it, as `np.searchsorted`. */
export const cut = (values: readonly number[], edges: readonly number[]): number[] => {
  const sorted = ascending(edges);
  return values.map((value) => sorted.filter((edge) => edge < value).length);
};

/** The number of each spot's nearest handle; of equals, the first. */
export const nearest = (spots: readonly Spot[], handles: readonly Spot[]): number[] =>
  spots.map(([x, y]) => {
    let [best, least] = [0, Infinity];
    handles.forEach(([hx, hy], n) => {
      const distance = (x - hx) ** 2 + (y - hy) ** 2;
      if (distance < least) [best, least] = [n, distance];
    });
    return best;
  });

/** The part of a rectangle that is nearest to each handle, as a polygon; empty where two handles lie on one spot. */
export function cells(handles: readonly Spot[], [low, high]: [Spot, Spot]): Spot[][] {
  const frame: Spot[] = [low, [high[0], low[1]], high, [low[0], high[1]]];
  return handles.map((own, n) =>
    handles.reduce<Spot[]>((polygon, other, m) => (m === n ? polygon : halved(polygon, own, other)), frame),
  );
}

/** The part of a polygon that is nearer to `own` than to `other`. */
function halved(polygon: Spot[], own: Spot, other: Spot): Spot[] {
  const [dx, dy] = [other[0] - own[0], other[1] - own[1]];
  const middle = (other[0] ** 2 + other[1] ** 2 - own[0] ** 2 - own[1] ** 2) / 2;
  const side = ([x, y]: Spot) => x * dx + y * dy - middle; // negative: nearer to own
  return polygon.flatMap((from, n): Spot[] => {
    const to = polygon[(n + 1) % polygon.length]!;
    const [here, there] = [side(from), side(to)];
    const crossing = (): Spot => [from[0] + ((to[0] - from[0]) * here) / (here - there), from[1] + ((to[1] - from[1]) * here) / (here - there)];
    if (here <= 0) return there <= 0 ? [from] : [from, crossing()];
    return there <= 0 ? [crossing()] : [];
  });
}
