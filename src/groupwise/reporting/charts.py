"""The charts of a run's health: the metrics in each, and how to read it."""

from dataclasses import dataclass

PHASES = ("rollout", "score", "advantage", "update")


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes: its title and, for each line, the metric and a label. `top` fixes the upper end."""

    title: str
    lines: tuple[tuple[str, str], ...]
    percent: bool = False
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of panels stacked above one step axis, and how to read it."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


SUPERVISED = Chart(
    "supervised",
    "Supervised loss",
    "Negative log-likelihood of the demonstrations per token. Lower is better; a rise means that training diverges.",
    (Panel("nats per token", (("loss/supervised", ""),)),),
)
# Charts that mean nothing without groups and a sampled policy.
GROUPS_ONLY = ("spread", "drawing", "advantage", "movement")
HEALTH = (
    Chart(
        "spread",
        "Groups that teach nothing",
        "A group whose attempts all score the same gives nothing to learn from.",
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
        "Resampled and replayed groups",
        "Groups without spread are resampled, which costs samples. Replayed groups teach less the older they are.",
        (
            Panel("resampled", (("groups/resampled", "groups"), ("groups/rounds", "rounds"))),
            Panel("share replayed", (("replay/share", ""),), percent=True, top=1.0),
            Panel("age in versions", (("replay/age_mean", ""),)),
        ),
    ),
    Chart(
        "advantage",
        "Size of the advantages",
        "How far attempts differ from their group. Near 0 there is nothing to learn.",
        (Panel("advantage", (("advantage/std", "std"), ("advantage/abs_mean", "size"))),),
    ),
    Chart(
        "entropy",
        "Entropy of the policy",
        "How much the policy still explores. A slow fall is normal; a drop to 0 ends exploration.",
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
        "sampler",
        "Difference between sampler and learner",
        "How far the probabilities of sampled tokens are from what the learner computes with the same weights: "
        "rounding in float32, a few percent in half precision. Importance weights correct it, up to their cap.",
        (
            Panel("|ratio − 1|", (("sampler/ratio_gap", "mean"), ("sampler/corrected_gap", "corrected"))),
            Panel("KL", (("sampler/kl", ""),)),
        ),
    ),
    Chart(
        "gradient",
        "Gradient and learning rate",
        "The norm of the gradient before clipping, and the learning rate.",
        (
            Panel("gradient norm", (("optim/grad_norm", "policy"), ("optim/critic_grad_norm", "critic"))),
            Panel("learning rate", (("optim/learning_rate", ""),)),
        ),
    ),
    Chart(
        "length",
        "Length of the attempts",
        "Reaching the limit is success in some tasks (a pole stays up) and failure in others (an answer is cut off).",
        (
            Panel("length", (("attempt/length_mean", "mean"), ("attempt/length_max", "longest"))),
            Panel("cut off at the limit", (("attempt/truncated_share", ""),), percent=True, top=1.0),
        ),
    ),
    Chart(
        "critic",
        "The critic",
        "Explained variance: 1 means that the critic predicts returns perfectly, 0 no better than their mean.",
        (
            Panel("explained variance", (("value/explained_variance", ""),)),
            Panel("value loss", (("loss/value", ""),)),
        ),
    ),
)
