/** The views of the laboratory, each loaded when it is opened. */
export type View = { name: string; title: string; says: string; load: () => Promise<{ default: any }> };

export const views: View[] = [
  { name: "by-hand", title: "GRPO by hand", says: "Sample a group, score it, take the step: on a policy small enough to see.", load: () => import("./views/ByHand.svelte") },
  { name: "formation", title: "Group formation", says: "Which attempts are compared with which, and what each grouping does to advantages and weights.", load: () => import("./views/Formation.svelte") },
  { name: "advantages", title: "Advantages", says: "PPO beside GRPO, and one scale for all beside one per group, on the same attempts.", load: () => import("./views/Advantages.svelte") },
  { name: "tasks", title: "Several tasks", says: "Which tasks learn, which starve and since when, and how they share the gradient.", load: () => import("./views/Tasks.svelte") },
  { name: "dynamics", title: "Training dynamics", says: "Rewards, weights, KL and convergence of a run, each step a door to the other views.", load: () => import("./views/Dynamics.svelte") },
  { name: "sensitivity", title: "Sensitivity", says: "What a sweep found: which settings matter, and which values to use.", load: () => import("./views/Sensitivity.svelte") },
  { name: "papers", title: "Papers", says: "Four papers step by step, each with an ablation to run and pitfalls to fall into.", load: () => import("./views/Papers.svelte") },
];
