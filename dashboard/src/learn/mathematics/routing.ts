import { softmax } from "./policy";

/** g_i = Σ_j p_ij o_j with p_ij = softmax_j(z_ij): what the next layer's modules receive. Equal logits give the mean. */
export function softRoute(outputs: readonly number[][], logits: readonly number[][]): number[][] {
  return logits.map((row) => {
    const shares = softmax(row);
    return outputs[0]!.map((_, at) => shares.reduce((sum, share, j) => sum + share * outputs[j]![at]!, 0));
  });
}
