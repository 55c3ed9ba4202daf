/** Gradient surgery, `groupwise.core.gradient_surgery` in TypeScript. */
export const dot = (ours: readonly number[], theirs: readonly number[]): number => ours.reduce((sum, value, at) => sum + value * theirs[at]!, 0);
export const length = (vector: readonly number[]): number => Math.sqrt(dot(vector, vector));

/**
 * PCGrad: g_i ← g_i − (g_i · g_j) / |g_j|² · g_j where g_i · g_j < 0, for every j ≠ i in turn. `orders[i]` says in which
 * order; by number without it. Each g_j is the given gradient, not the projected one.
 */
export function projectConflicts(gradients: readonly number[][], orders?: readonly number[][]): number[][] {
  return gradients.map((gradient, task) => {
    let ours = [...gradient];
    for (const other of orders?.[task] ?? gradients.keys()) {
      if (other === task) continue;
      const theirs = gradients[other]!;
      const share = Math.min(0, dot(ours, theirs)) / Math.max(dot(theirs, theirs), 1e-300);
      ours = ours.map((value, at) => value - share * theirs[at]!);
    }
    return ours;
  });
}

export const sum = (vectors: readonly number[][]): number[] => vectors[0]!.map((_, at) => vectors.reduce((all, vector) => all + vector[at]!, 0));
