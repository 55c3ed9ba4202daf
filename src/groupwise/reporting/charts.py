"""Which charts of a run's health there are: the metrics in each, and how to read it."""

from __future__ import annotations

from dataclasses import dataclass

PHASES = ("rollout", "score", "advantage", "update")


@dataclass(frozen=True, slots=True)
class Panel:
    """One small set of axes: its title and, for each line, the metric and a direct label."""

    title: str
    lines: tuple[tuple[str, str], ...]
    percent: bool = False
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of stacked panels over the steps, and how to read it."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


SUPERVISED = Chart(
    "supervised",
    "Supervised loss",
    "Negative log-likelihood of the demonstrations per token. Lower is better; a rise means that it diverges.",
    (Panel("nats per token", (("loss/supervised", ""),)),),
)
# Charts that mean nothing without groups and a sampled policy.
GROUPS_ONLY = ("spread", "drawing", "advantage", "movement")
HEALTH = (
    Chart(
        "spread",
        "Groups that teach nothing",
        "A group whose attempts all score the same has no better and worse to learn from.",
        (
            Panel(
                "share of groups",
                (("groups/zero_spread_share", "no spread"), ("groups/failed_share", "failed")),
                percent=True,
                top=1.0,
            ),
        ),
    ),
    Chart(
        "drawing",
        "Groups drawn anew and groups replayed",
        "Groups put aside because they teach nothing cost samples all the same. Old groups teach less than fresh ones.",
        (
            Panel("put aside", (("groups/resampled", "groups"), ("groups/rounds", "rounds"))),
            Panel("share that is replayed", (("replay/share", ""),), percent=True, top=1.0),
            Panel("age in versions", (("replay/age_mean", ""),)),
        ),
    ),
    Chart(
        "advantage",
        "Size of the advantages",
        "How far attempts stand from their group. Near 0 there is nothing to learn from.",
        (Panel("advantage", (("advantage/std", "std"), ("advantage/abs_mean", "size"))),),
    ),
    Chart(
        "entropy",
        "Entropy of the policy",
        "How much the policy still tries out. A slow fall is learning; a drop to 0 ends exploration.",
        (Panel("nats", (("policy/entropy", ""),)),),
    ),
    Chart(
        "movement",
        "How far an update moves the policy",
        "KL from the policy that made the attempts, and the share of samples whose ratio was clipped.",
        (
            Panel("KL", (("policy/kl", "sampling"), ("policy/reference_kl", "reference"))),
            Panel("clipped", (("policy/clip_low", "low"), ("policy/clip_high", "high")), percent=True),
        ),
    ),
    Chart(
        "gradient",
        "Gradient and learning rate",
        "The gradient's norm before it is clipped, and the step size in use.",
        (
            Panel("gradient norm", (("optim/grad_norm", "policy"), ("optim/critic_grad_norm", "critic"))),
            Panel("learning rate", (("optim/learning_rate", ""),)),
        ),
    ),
    Chart(
        "length",
        "Length of the attempts",
        "Being cut off is success in some tasks (a pole that stays up) and failure in others.",
        (
            Panel("length", (("attempt/length_mean", "mean"), ("attempt/length_max", "longest"))),
            Panel("cut off at the limit", (("attempt/truncated_share", ""),), percent=True, top=1.0),
        ),
    ),
    Chart(
        "critic",
        "The critic",
        "Explained variance: 1 is a perfect prediction of returns, 0 no better than their mean.",
        (
            Panel("explained variance", (("value/explained_variance", ""),)),
            Panel("value loss", (("loss/value", ""),)),
        ),
    ),
)
