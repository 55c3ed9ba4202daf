/** The curves that are shown of every run, in plain words. */
import type { Tone } from "./charts";

export type Panel = {
  title: string;
  says: string;
  share?: boolean;
  lines: { metric: string; name: string; tone: Tone; dashed?: boolean }[];
};

export const REWARD: Panel = {
  title: "Reward",
  says: "The mean score of a step's attempts, and of the policy on held-out tasks. Both should rise.",
  lines: [
    { metric: "reward/mean", name: "Training", tone: "accent" },
    { metric: "eval/reward_mean", name: "Held out", tone: "minus", dashed: true },
  ],
};

export const PANELS: Panel[] = [
  { title: "KL", says: "How far a step moves the policy. Small and steady is healthy; a spike is too large a step.",
    lines: [{ metric: "policy/kl", name: "KL", tone: "accent" }, { metric: "policy/reference_kl", name: "To the reference", tone: "minus" }] },
  { title: "Entropy", says: "How undecided the policy is. It falls as it learns; near nothing early means it has stopped trying things.",
    lines: [{ metric: "policy/entropy", name: "Entropy", tone: "accent" }] },
  { title: "Loss", says: "What the optimiser lowers. In GRPO its level says little; watch it for jumps.",
    lines: [{ metric: "loss/total", name: "Loss", tone: "accent" }] },
  { title: "Groups without signal", says: "The share of groups whose attempts all scored the same: nothing can be learned from them.", share: true,
    lines: [{ metric: "groups/zero_spread_share", name: "Without signal", tone: "accent" }] },
  { title: "Clipped", says: "The share of decisions whose change was cut off at the clip range.",
    lines: [{ metric: "policy/clip_low", name: "Below", tone: "minus" }, { metric: "policy/clip_high", name: "Above", tone: "accent" }] },
  { title: "Length", says: "How long an attempt is, in steps or tokens.",
    lines: [{ metric: "attempt/length_mean", name: "Mean", tone: "accent" }, { metric: "attempt/length_max", name: "Longest", tone: "faint" }] },
  { title: "Gradient", says: "The size of the gradient before it is cut to the limit.",
    lines: [{ metric: "optim/grad_norm", name: "Norm", tone: "accent" }] },
  { title: "Advantage", says: "How far attempts stand from the mean of their group, in size.",
    lines: [{ metric: "advantage/abs_mean", name: "Mean size", tone: "accent" }] },
];

export const SHOWN = new Set([REWARD, ...PANELS].flatMap((panel) => panel.lines.map((line) => line.metric)));
