"""The control product: a small policy for a Gymnasium environment, trained by GRPO or, as the baseline, by PPO.

In the order data flows; open `grpo` first.

declaration    settings, defaults and metrics, known before anything heavy is imported
spaces         any Gymnasium space ↔ the policy's rows of numbers; saved with the weights
environments   a name → an environment: ours, a suite, one given as an object, or any Gymnasium id
provided       environments given as objects: an Env, a function, a vector environment
gymnasium_environment  copies of a Gymnasium environment as one `VectorEnvironment`
gymnasium_ids  how an id is made, and what is said of one that does not exist
own_suites     a suite of one's own: a list or table from Python, or a TOML file
vector_form    an environment in Gymnasium's vector form
classic/       our vectorised environments: CartPole, Acrobot, Pendulum, mountain car
multitask      several environments as one, suites of them, and a curriculum
atari          games from pixels, as ALE's vector form gives them
image_network  convolutions for images, other numbers beside them
policy         the network that learns, and its weights as they act
acting         how its numbers become an action, without torch
soft_modules   a network for several tasks, to use in place of the usual layers
normaliser     running means and scales of observations and returns
episode_workers  the same episodes, shared out among workers
checks         what is checked of settings before there is a run, without torch
grpo           GRPO: groups of episodes → batches, and evaluation
ppo            PPO: fixed-length segments → batches; the baseline, in one file
model          `ControlModel`: learn, predict, save and load as in Stable-Baselines3
evaluation     `evaluate_policy`: the same score by name, in Gymnasium, wrapped or on a vector
gif            one greedy episode as a moving picture
comparison/    many seeds of several algorithms, in worker processes
sweep/         many values of a few settings, and which of them matter
commands       `groupwise compare` and `groupwise paper`
starter        `groupwise init` for an environment
papers/        small replications of the papers this package builds on
"""
