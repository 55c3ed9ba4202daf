/** The grouping strategies of `groupwise.core.grouping`, and what each does. */
export const STRATEGIES: Record<string, string> = {
  auto: "k-means on all features, from scratch in every step.",
  task: "One group for each task. Fixed before acting, so nothing is decided by the outcome.",
  difficulty: "Equal shares from the lowest return to the highest.",
  length: "Equal shares from the shortest attempt to the longest.",
  adaptive: "k-means over this step and those before it; clusters keep their numbers as they drift.",
  hierarchical: "Tasks first, then clusters within each task: the number of groups is per task.",
  dirichlet: "A Dirichlet-process mixture: attempts arrive one by one, join a cluster or found one. It finds the number itself.",
};
/** Strategies whose number of groups is theirs to find, or always that of the tasks. */
export const FIXED = ["task", "dirichlet"];
/** The largest number of groups that may be asked for. */
export const LARGEST = 8;
