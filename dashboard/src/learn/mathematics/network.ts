/** A network of two layers, logits = tanh(x W + b) V + c, with its gradient worked out by hand. */
import type { Random } from "./random";

export type Shape = { inputs: number; hidden: number; outputs: number };
export const sizeOf = ({ inputs, hidden, outputs }: Shape): number => inputs * hidden + hidden + hidden * outputs + outputs;

/** Weights in one flat list: W, b, V, c; normal with deviation 1/√(inputs of the layer), biases 0. */
export function initial({ inputs, hidden, outputs }: Shape, random: Random, last = 1): number[] {
  return [
    ...random.normals(inputs * hidden, 1 / Math.sqrt(inputs)), ...new Array<number>(hidden).fill(0),
    ...random.normals(hidden * outputs, last / Math.sqrt(hidden)), ...new Array<number>(outputs).fill(0),
  ];
}

export type Pass = { hidden: number[]; outputs: number[] };

export function forward(shape: Shape, weights: readonly number[], input: readonly number[]): Pass {
  const { inputs, hidden: width, outputs: count } = shape;
  const [shift, second] = [inputs * width, inputs * width + width];
  const hidden = new Array<number>(width);
  for (let h = 0; h < width; h++) {
    let total = weights[shift + h]!;
    for (let d = 0; d < inputs; d++) total += input[d]! * weights[d * width + h]!;
    hidden[h] = Math.tanh(total);
  }
  const outputs = new Array<number>(count);
  for (let o = 0; o < count; o++) {
    let total = weights[second + width * count + o]!;
    for (let h = 0; h < width; h++) total += hidden[h]! * weights[second + h * count + o]!;
    outputs[o] = total;
  }
  return { hidden, outputs };
}

/** Adds to `gradient` the gradient of a loss whose slope by the outputs is `slopes`. */
export function addGradient(shape: Shape, weights: readonly number[], input: readonly number[], pass: Pass, slopes: readonly number[], gradient: number[]): void {
  const { inputs, hidden: width, outputs: count } = shape;
  const [shift, second] = [inputs * width, inputs * width + width];
  for (let o = 0; o < count; o++) gradient[second + width * count + o]! += slopes[o]!;
  for (let h = 0; h < width; h++) {
    let back = 0;
    const active = pass.hidden[h]!;
    for (let o = 0; o < count; o++) {
      gradient[second + h * count + o]! += active * slopes[o]!;
      back += weights[second + h * count + o]! * slopes[o]!;
    }
    back *= 1 - active * active;
    gradient[shift + h]! += back;
    for (let d = 0; d < inputs; d++) gradient[d * width + h]! += input[d]! * back;
  }
}
