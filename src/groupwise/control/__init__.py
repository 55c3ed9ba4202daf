"""The control product: a small policy for a Gymnasium environment, trained by GRPO or, as the baseline, by PPO.

In the order data flows; open `grpo` first.

declaration    settings, defaults and metrics, known before anything heavy is imported
environments   a name → an environment: ours, a suite, or any Gymnasium id
classic/       our vectorised environments: CartPole, Acrobot, Pendulum, mountain car
multitask      several environments as one, suites of them, and a curriculum
policy         the network that learns, and its weights as they act
acting         how its numbers become an action, without torch
soft_modules   a network for several tasks, to use in place of the usual layers
normaliser     running means and scales of observations and returns
episode_workers  the same episodes, shared out among workers
grpo           GRPO: groups of episodes → batches, evaluation, and the settings it refuses
ppo            PPO: fixed-length segments → batches; the baseline, in one file
model          `ControlModel`: learn, predict, save and load as in Stable-Baselines3
gif            one greedy episode as a moving picture
comparison/    many seeds of several algorithms, in worker processes
commands       `groupwise compare` and `groupwise paper`
papers/        small replications of the papers this package builds on
"""
