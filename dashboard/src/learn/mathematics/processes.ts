/** Gaussian processes and their growing mixture, `groupwise.control.papers.gpmixture` in TypeScript. */
export type Kernel = { length: number; signal: number; noise: number };

/** s² exp(−|x − x'|² / 2ℓ²). */
export function covariance(kernel: Kernel, ours: readonly number[], theirs: readonly number[]): number {
  const squared = ours.reduce((sum, value, at) => sum + (value - theirs[at]!) ** 2, 0);
  return kernel.signal ** 2 * Math.exp(-squared / (2 * kernel.length ** 2));
}

/** The lower triangle L of a positive definite matrix, A = L Lᵀ. */
function cholesky(matrix: readonly number[][]): number[][] {
  const lower = matrix.map(() => [] as number[]);
  matrix.forEach((row, i) => {
    for (let j = 0; j <= i; j++) {
      let left = row[j]!;
      for (let k = 0; k < j; k++) left -= lower[i]![k]! * lower[j]![k]!;
      lower[i]![j] = i === j ? Math.sqrt(Math.max(left, 1e-300)) : left / lower[j]![j]!;
    }
  });
  return lower;
}

/** L y = b. */
function forward(lower: readonly number[][], right: readonly number[]): number[] {
  const found: number[] = [];
  lower.forEach((row, i) => {
    let left = right[i]!;
    for (let k = 0; k < i; k++) left -= row[k]! * found[k]!;
    found.push(left / row[i]!);
  });
  return found;
}

/** The posterior at `points`: a mean for every output, and the variance of an answer there, noise included. */
export function predict(kernel: Kernel, seen: readonly number[][], answers: readonly number[][], points: readonly number[][]): { means: number[][]; variances: number[] } {
  const outputs = answers[0]?.length ?? 1;
  const own = seen.map((ours, i) => seen.map((theirs, j) => covariance(kernel, ours, theirs) + (i === j ? kernel.noise ** 2 : 0)));
  const lower = cholesky(own);
  // L⁻¹ y for every output, once for all points.
  const solved = Array.from({ length: outputs }, (_, q) => forward(lower, answers.map((answer) => answer[q]!)));
  const [means, variances]: [number[][], number[]] = [[], []];
  for (const point of points) {
    const across = forward(lower, seen.map((one) => covariance(kernel, point, one)));
    means.push(solved.map((column) => column.reduce((sum, value, at) => sum + value * across[at]!, 0)));
    const explained = across.reduce((sum, value) => sum + value * value, 0);
    variances.push(Math.max(kernel.signal ** 2 + kernel.noise ** 2 - explained, kernel.noise ** 2));
  }
  return { means, variances };
}

/** log N(answer; mean, variance · I). */
export function logDensity(answer: readonly number[], mean: readonly number[], variance: number): number {
  const squared = answer.reduce((sum, value, at) => sum + (value - mean[at]!) ** 2, 0);
  return -0.5 * (squared / variance + answer.length * Math.log(2 * Math.PI * variance));
}

export type MixtureChoices = { concentration?: number; stickiness?: number; capacity?: number };

/** A growing mixture: every point joins the likeliest task for good, or founds a new one. */
export class ProcessMixture {
  readonly seen: number[][][] = [];
  readonly answers: number[][][] = [];
  readonly sizes: number[] = [];
  current = -1;
  /** Log of the unnormalised posterior of each task at the last point, the last entry for a new task. */
  scores: number[] = [];

  constructor(readonly kernel: Kernel, readonly choices: MixtureChoices = {}) {}

  /** What the task of the previous point would answer here; 0 before any point. */
  expect(point: readonly number[]): number[] {
    if (this.current < 0) return [0];
    return predict(this.kernel, this.seen[this.current]!, this.answers[this.current]!, [[...point]]).means[0]!;
  }

  /** Learn an answer; returns the number of its task. */
  see(point: readonly number[], answer: readonly number[]): number {
    const { concentration = 1, stickiness = 1e4, capacity = 100 } = this.choices;
    const prior = this.kernel.signal ** 2 + this.kernel.noise ** 2;
    this.scores = this.sizes.map((size, task) => {
      const { means, variances } = predict(this.kernel, this.seen[task]!, this.answers[task]!, [[...point]]);
      return Math.log(size + (task === this.current ? stickiness : 0)) + logDensity(answer, means[0]!, variances[0]!);
    });
    this.scores.push(Math.log(concentration) + logDensity(answer, answer.map(() => 0), prior));
    const now = (this.current = this.scores.indexOf(Math.max(...this.scores)));
    this.seen[now] = [...(this.seen[now] ?? []), [...point]].slice(-capacity);
    this.answers[now] = [...(this.answers[now] ?? []), [...answer]].slice(-capacity);
    this.sizes[now] = (this.sizes[now] ?? 0) + 1;
    return now;
  }
}
