export type Tone = "accent" | "minus" | "faint";

/** The page's own colours, as they are now. */
export function palette(): Record<Tone | "line" | "ink" | "soft" | "raised", string> {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    accent: read("accent"), minus: `rgb(${read("minus").split(" ").join(",")})`, faint: read("faint"),
    line: read("line"), ink: read("ink"), soft: read("soft"), raised: read("raised"),
  };
}
