/** A surface over a grid, turned and seen from above: faces in the order in which they are painted. */
export type Point3 = readonly [number, number, number];
export type Face = { corners: [number, number][]; depth: number; height: number; x: number; y: number };

/** x and y in [−1, 1], height in [0, 1]; turned by `around` degrees, tilted by `above`. Returns [across, up, depth]. */
export function seen([x, y, z]: Point3, around: number, above: number): Point3 {
  const [a, t] = [(around * Math.PI) / 180, (above * Math.PI) / 180];
  const [u, v] = [x * Math.cos(a) - y * Math.sin(a), x * Math.sin(a) + y * Math.cos(a)];
  const height = 1.1 * z - 0.5;
  return [u, v * Math.sin(t) + height * Math.cos(t), v * Math.cos(t) - height * Math.sin(t)];
}

/** Heights by row and column, null where there is none: a face with such a corner is a hole. Far faces come first. */
export function facesOf(heights: readonly (readonly (number | null)[])[], around: number, above: number): Face[] {
  const [rows, columns] = [heights.length, heights[0]?.length ?? 0];
  const place = (n: number, count: number): number => (count > 1 ? (2 * n) / (count - 1) - 1 : 0);
  const faces: Face[] = [];
  for (let y = 0; y + 1 < rows; y++) {
    for (let x = 0; x + 1 < columns; x++) {
      const around4 = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1]] as const;
      const own = around4.map(([i, j]) => heights[j]![i]!);
      if (own.some((height) => height === null || height === undefined)) continue;
      const points = around4.map(([i, j], n) => seen([place(i, columns), place(j, rows), own[n]!], around, above));
      const [depth, height] = [points.reduce((sum, point) => sum + point[2], 0) / 4, own.reduce((sum, one) => sum + one, 0) / 4];
      faces.push({ corners: points.map(([across, up]) => [across, up]), depth, height, x, y });
    }
  }
  return faces.sort((a, b) => b.depth - a.depth);
}
