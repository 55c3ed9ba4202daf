/** What the page on GRPO says, step by step. */
import type { Step } from "./Derivation.svelte";

export const STEPS: readonly Step[] = [
  {
    title: "What PPO and GRPO share", formula: "∇J = E[ A · ∇ log π(y | x) ]",
    says: "Make an answer y to a task x likelier if its advantage A is positive, less likely if it is negative. Any baseline b that does not depend on y may be subtracted from the reward: it changes the noise of the gradient, not its direction on average.",
  },
  {
    title: "No critic", formula: "PPO: b = V(x), learned.   GRPO: b = mean of the group, measured",
    says: "PPO learns its baseline: a value network, often as large as the policy, trained alongside. GRPO tries the same task several times and takes the mean. That saves a network and its mistakes, and costs G attempts per task.",
  },
  {
    title: "The group", formula: "x → y₁ … y_G ~ π_b( · | x ),   r_i = score(y_i)",
    says: "A group is G attempts at the same task (the same prompt; in control the same start), sampled by the same policy π_b before any update (b for behaviour; the baseline is another b). Who belongs together is fixed before acting. Scores need to be comparable only within a group.", code: "rewards, group_ids",
  },
  {
    title: "The advantage", formula: "A_i = (r_i − b) / s,   b = mean(r),   s = std(r)",
    says: "How far a score stands above its group's mean, in standard deviations of the group. Every token of attempt i gets the same A_i: there is no per-token value, and no GAE.", code: "core.advantages.group_advantages",
  },
  {
    title: "Which standard deviation", formula: "[1, 0] → ±1 (population, ÷ n) or ±0.707 (sample, ÷ n − 1)",
    says: "It is a choice, and must be named; here the default is the population's. With [1, 1, 0] that gives +0.707, +0.707, −1.414. Dividing makes a group of small differences count as much as one of large differences; Dr. GRPO (“GRPO done right”) therefore does not divide (scale “none”), and tasks with larger scores then pull harder.", code: "advantage.std_type, advantage.advantage_scale",
  },
  {
    title: "A group of one, or without spread", formula: "G = 1, or r₁ = … = r_G   ⇒   A = 0, no update",
    says: "One attempt has nothing to be compared with; its advantage is 0, not its reward. If all scores are equal (to one part in a million), none is better, and nothing is divided by their spread. Such a group teaches nothing and gets no entropy bonus either; only a KL term (step 9), if there is one, still pulls the policy back. The run reports the share of such groups.", code: "groups/zero_spread_share",
  },
  {
    title: "The ratio, against whoever sampled", formula: "ρ_it = π(y_it) / π_b(y_it)",
    says: "Weighs a token by how much likelier it is now than when it was sampled. In the first pass over the policy's own samples it is exactly 1. Samples of an older policy, a replay or a search keep the log-probabilities recorded when they were sampled, and the ratio is taken against those; otherwise the gradient is that of another policy.", code: "behavior_logp",
  },
  {
    title: "The clip, as in PPO", formula: "surrogate = min( ρ·A,  clip(ρ, 1 − ε, 1 + ε)·A )",
    says: "Once a token's ratio has left 1 ± ε in the direction that pays, its gradient is 0: several passes over one batch cannot run away with it. The ratio is clipped, never the advantage. The minimum keeps the gradient of a token that went the wrong way.", code: "loss.clip_ratio; core.surrogates.clipped",
  },
  {
    title: "KL, inside the loss", formula: "+ β · ( e^−d + d − 1 ),   d = log π − log π_ref",
    says: "Pulls the policy back towards a frozen reference, usually the model training started from, so that it does not give up its language for reward. PPO for language subtracts it from the reward; GRPO adds it to the loss, estimated per token, never negative. β = 0 leaves it out.", code: "core.divergence.kl_estimate, \"k3\"",
  },
  {
    title: "The sum", formula: "loss = (1/G) Σ_i (1/|y_i|) Σ_t [ − surrogate_it + β KL_it ] − entropy bonus",
    says: "GRPO averages the |y_i| tokens of each attempt, then the attempts; its variant DAPO averages over all tokens at once, so that long attempts are not diluted. The attempts of several groups are averaged together. Entropy is a bonus and is subtracted from what is minimised.", code: "core.losses.LOSSES",
  },
  {
    title: "The order of things", formula: "sample → score → advantages of whole groups → shuffle, split → loss → step",
    says: "Advantages come first, over whole groups. After shuffling or inside a micro-batch the mean would be that of other attempts at other tasks, whose scores are not comparable, and the gradient would depend on how the batch was cut. An attempt whose scorer failed is reported and left out; it does not score 0.",
  },
];

export const SYMBOLS = [
  ["x, y_i", "Task, Trajectory", "a task, and attempt i at it"],
  ["G", "rollout.num_generations", "attempts in a group"],
  ["r_i", "rewards", "the score of attempt i"],
  ["b, s", "baseline, scale", "what is subtracted, and what it is divided by"],
  ["A_i", "advantages", "how the score stands in its group"],
  ["π, π_b", "logp, behavior_logp", "the policy now, and the one that sampled"],
  ["ρ_it", "ratio", "π/π_b of token t of attempt i"],
  ["ε", "clip_low, clip_high", "how far the ratio pays"],
  ["β, π_ref", "reference.beta, reference.logp", "weight of the KL, and the frozen policy"],
  ["1/G, 1/|y_i|", "denominator, mean_of_means", "how tokens are averaged"],
] as const;

/** What a reader of PPO finds changed. */
export const CHANGES = [
  ["baseline", "a learned critic V(s)", "the mean score of the group"],
  ["advantage", "GAE, one for every step", "one for the attempt, the same at all its tokens"],
  ["scale", "normalised over the batch", "divided by the group's std (or not at all)"],
  ["sampling", "any mixture of tasks", "G attempts at each task"],
  ["clipped ratio", "yes", "yes, the same"],
  ["KL to a reference", "in the reward, if at all", "in the loss"],
  ["learns nothing from", "an action that did exactly as well as the critic expected", "a group of one, or one without spread"],
] as const;
