/** Colours and shapes of groups: told apart in both themes, and without colour. */
const LIGHT = ["#2f5fd0", "#b85410", "#24744a", "#8e3aa8", "#b3261e", "#0d7480", "#7d6300", "#5b606a"];
const DARK = ["#8fb2ff", "#f09654", "#6fcf97", "#d59bf0", "#ff8a80", "#5fd0de", "#dcc04a", "#b0b5c0"];

export const colourOf = (number: number, isDark: boolean): string => (isDark ? DARK : LIGHT)[((number % 8) + 8) % 8]!;

const SHAPES = [
  "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
  "M-4-4h8v8h-8Z",
  "M0-5.2 5 3.8H-5Z",
  "M0-5.6 5.600 0 0 5.600-5.600 0Z",
  "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3Z",
  "M0 5.200 5-3.800H-5Z",
  "M-5 0-2.500-4.500h5L5 0 2.500 4.500h-5Z",
  "M-5-4 4 0-5 4Z",
];
export const shapeOf = (number: number): string => SHAPES[((number % 8) + 8) % 8]!;
export const NONE = "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z";
