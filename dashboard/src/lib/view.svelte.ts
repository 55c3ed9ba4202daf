/** How curves are looked at: which steps, on which axis, how smooth. It is kept in the address, so that a link shows the same. */
import { router } from "./router.svelte";

export const AXES: Record<string, string> = { step: "Steps", samples: "Samples", time: "Seconds of training", processor: "Seconds of processor time" };

class View {
  axis = $derived(router.query.get("axis") ?? "step");
  smooth = $derived(Math.min(0.99, Number(router.query.get("smooth")) || 0));
  log = $derived(router.query.get("log") === "1");
  from = $derived(place("from"));
  to = $derived(place("to"));

  zoom(from: number | null, to: number | null): void {
    router.ask({ from: from === null ? null : Math.max(0, Math.floor(from)), to: to === null ? null : Math.ceil(to) });
  }
}

function place(name: string): number | null {
  const given = router.query.get(name);
  const value = Number(given);
  return given && Number.isFinite(value) && value >= 0 ? Math.round(value) : null;
}

export const view = new View();

/** A running mean in which the past weighs `weight`, without the pull towards 0 at its beginning. */
export function smoothed(values: number[], weight: number): number[] {
  if (!weight) return values;
  let mean = 0;
  let sum = 0;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}
