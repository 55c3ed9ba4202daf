/** An advantage as a colour: the more, the stronger; none at 0. */
const STRONGEST = 0.55;

export function tint(advantage: number | null, most: number): string {
  if (advantage === null || !most || !advantage) return "transparent";
  const strength = Math.min(1, Math.abs(advantage) / most) * STRONGEST;
  return `rgb(var(--${advantage > 0 ? "plus" : "minus"}) / ${(100 * strength).toFixed(0)}%)`;
}
