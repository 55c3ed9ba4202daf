/** The curves shown for every run, in plain words. */
import type { Tone } from "./charts";

export type Panel = {
  title: string;
  says: string;
  share?: boolean;
  lines: { metric: string; name: string; tone: Tone; dashed?: boolean }[];
};

export const REWARD: Panel = {
  title: "Reward",
  says: "Mean score of each step's attempts, and of the policy on held-out tasks. Both should rise.",
  lines: [
    { metric: "reward/mean", name: "Training", tone: "accent" },
    { metric: "eval/reward_mean", name: "Held out", tone: "minus", dashed: true },
  ],
};

export const PANELS: Panel[] = [
  { title: "KL", says: "How far each step moves the policy. Small and steady is healthy; a spike means the step was too large.",
    lines: [{ metric: "policy/kl", name: "KL", tone: "accent" }, { metric: "policy/reference_kl", name: "To the reference", tone: "minus" }] },
  { title: "Entropy", says: "How undecided the policy is. It falls as the policy learns; close to zero early on means it has stopped exploring.",
    lines: [{ metric: "policy/entropy", name: "Entropy", tone: "accent" }] },
  { title: "Loss", says: "What the optimiser minimises. In GRPO its level says little; watch for jumps.",
    lines: [{ metric: "loss/total", name: "Loss", tone: "accent" }] },
  { title: "Right answers", says: "Share of held-out tasks that their own check calls right, whatever the reward says.", share: true,
    lines: [{ metric: "eval/accuracy", name: "Right", tone: "accent" }] },
  { title: "Groups without signal", says: "Share of groups whose attempts all scored the same; nothing can be learned from them.", share: true,
    lines: [{ metric: "groups/zero_spread_share", name: "Without signal", tone: "accent" }] },
  { title: "Clipped", says: "Share of decisions whose probability ratio was clipped.",
    lines: [{ metric: "policy/clip_low", name: "Below", tone: "minus" }, { metric: "policy/clip_high", name: "Above", tone: "accent" }] },
  { title: "Sampler gap", says: "How far sampled probabilities are from what the learner computes, and what importance weights leave of it. Rounding in float32, a few percent in half precision.",
    lines: [{ metric: "sampler/ratio_gap", name: "Measured", tone: "accent" }, { metric: "sampler/corrected_gap", name: "Corrected", tone: "minus" }] },
  { title: "Workers", says: "Workers that make attempts, and attempts that waited for one on average. More workers help while attempts wait.",
    lines: [{ metric: "rollout/workers", name: "Workers", tone: "accent" }, { metric: "rollout/queue_mean", name: "Waiting", tone: "minus" }] },
  { title: "Length", says: "Length of an attempt, in steps or tokens.",
    lines: [{ metric: "attempt/length_mean", name: "Mean", tone: "accent" }, { metric: "attempt/length_max", name: "Longest", tone: "faint" }] },
  { title: "Gradient", says: "Gradient norm before clipping.",
    lines: [{ metric: "optim/grad_norm", name: "Norm", tone: "accent" }] },
  { title: "Advantage", says: "Mean absolute advantage: how far attempts are from their group's mean.",
    lines: [{ metric: "advantage/abs_mean", name: "Mean size", tone: "accent" }] },
];

export const SHOWN = new Set([REWARD, ...PANELS].flatMap((panel) => panel.lines.map((line) => line.metric)));
