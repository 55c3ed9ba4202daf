/** What charts need: quantiles, boxes, histograms, principal components. Quantiles are NumPy's default, linear ones. */
import { deviation, mean } from "./advantages";

export function quantile(sorted: readonly number[], share: number): number {
  if (!sorted.length) return NaN;
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  const next = sorted[Math.min(below + 1, sorted.length - 1)]!;
  return sorted[below]! + (place - below) * (next - sorted[below]!);
}

export const ascending = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);

export type Box = { low: number; first: number; middle: number; third: number; high: number; outside: number[]; mean: number; count: number };

/** Tukey's box: whiskers reach the farthest value within 1.5 interquartile ranges. */
export function box(values: readonly number[]): Box {
  const sorted = ascending(values);
  const [first, middle, third] = [0.25, 0.5, 0.75].map((share) => quantile(sorted, share)) as [number, number, number];
  const reach = 1.5 * (third - first);
  const inside = sorted.filter((value) => value >= first - reach && value <= third + reach);
  return {
    low: inside[0] ?? NaN, first, middle, third, high: inside.at(-1) ?? NaN, mean: mean(values), count: values.length,
    outside: sorted.filter((value) => value < first - reach || value > third + reach),
  };
}

/** How many values fall between neighbouring edges; the last bin includes its upper edge. */
export function histogram(values: readonly number[], edges: readonly number[]): number[] {
  const counts = new Array<number>(edges.length - 1).fill(0);
  const [low, high] = [edges[0]!, edges.at(-1)!];
  for (const value of values) {
    if (!(value >= low && value <= high)) continue;
    let bin = Math.min(Math.floor(((value - low) / (high - low)) * counts.length), counts.length - 1);
    // Rounding may put a value next to an edge on its wrong side.
    while (bin > 0 && value < edges[bin]!) bin--;
    while (bin < counts.length - 1 && value >= edges[bin + 1]!) bin++;
    counts[bin]!++;
  }
  return counts;
}

export const evenly = (low: number, high: number, count: number): number[] => Array.from({ length: count + 1 }, (_, n) => low + ((high - low) * n) / count);

export const rms = (values: readonly number[]): number => Math.sqrt(mean(values.map((value) => value * value)));

/** Every column with mean 0 and standard deviation 1; one that does not vary becomes 0. */
export function standardised(rows: readonly (readonly number[])[]): number[][] {
  const width = rows[0]?.length ?? 0;
  const columns = Array.from({ length: width }, (_, c) => rows.map((row) => row[c]!));
  const scales = columns.map((column) => {
    const [middle, spread] = [mean(column), deviation(column)];
    const largest = Math.max(1, ...column.map(Math.abs));
    return { middle, spread: spread > 1e-9 * largest ? spread : Infinity };
  });
  return rows.map((row) => row.map((value, c) => (value - scales[c]!.middle) / scales[c]!.spread));
}

export type Components = { directions: [number[], number[]]; shares: [number, number] };

/** The two directions of largest variance, and their shares of it. Signs: the largest weight of each is positive. */
export function principalComponents(points: readonly (readonly number[])[]): Components {
  const width = points[0]?.length ?? 0;
  const covariance = Array.from({ length: width }, (_, i) => Array.from({ length: width }, (_, j) => mean(points.map((row) => row[i]! * row[j]!))));
  const trace = covariance.reduce((sum, row, i) => sum + row[i]!, 0) || 1;
  const { values, vectors } = eigen(covariance);
  const order = values.map((_, n) => n).sort((a, b) => values[b]! - values[a]!);
  const direction = (n: number): number[] => {
    const vector = vectors.map((row) => row[order[n] ?? 0] ?? 0);
    const largest = vector.reduce((best, value) => (Math.abs(value) > Math.abs(best) + 1e-9 ? value : best), 0);
    return largest < 0 ? vector.map((value) => -value) : vector;
  };
  return { directions: [direction(0), direction(1)], shares: [0, 1].map((n) => (values[order[n]!] ?? 0) / trace) as [number, number] };
}

/** Jacobi's method for a symmetric matrix: eigenvalues, and eigenvectors as columns. */
function eigen(matrix: number[][]): { values: number[]; vectors: number[][] } {
  const size = matrix.length;
  const a = matrix.map((row) => [...row]);
  const vectors = a.map((_, i) => a.map((_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let i = 0; i < size; i++) for (let j = i + 1; j < size; j++) off += a[i]![j]! ** 2;
    if (off < 1e-24) break;
    for (let i = 0; i < size; i++) for (let j = i + 1; j < size; j++) if (a[i]![j]) rotate(a, vectors, i, j);
  }
  return { values: a.map((row, i) => row[i]!), vectors };
}

function rotate(a: number[][], vectors: number[][], i: number, j: number): void {
  const theta = (a[j]![j]! - a[i]![i]!) / (2 * a[i]![j]!);
  const t = Math.sign(theta || 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  for (const rows of [a, vectors]) {
    for (const row of rows) [row[i], row[j]] = [c * row[i]! - s * row[j]!, s * row[i]! + c * row[j]!];
  }
  const [top, low] = [a[i]!, a[j]!];
  for (let k = 0; k < a.length; k++) [top[k], low[k]] = [c * top[k]! - s * low[k]!, s * top[k]! + c * low[k]!];
}
