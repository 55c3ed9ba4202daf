"""The registry of metrics: what every number that a run logs means, its unit, its direction and when to worry.

The training loop and the rewards report the metrics below; a product declares its own (`Product.metrics`), which take
precedence. The page, reports, the terminal and `docs/reference/metrics.md` read this registry, so that a number means
the same everywhere. A test runs every product and fails on a metric that is not in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from groupwise.errors import GroupwiseError
from groupwise.products import Metric, find

REWARD, HELD_OUT, SUPERVISED = "reward/mean", "eval/reward_mean", "loss/supervised"
MEANINGLESS = (REWARD, "loss/total", "loss/policy")
"""What a step that learns from demonstrations does not report: nothing was attempted, and the surrogate loss is -1."""
DRAWN = "Reward"
"""The panel of the reward, in training and on held-out tasks."""


def _panel(title: str, *metrics: Metric) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=one.name, meaning=one.meaning, unit=one.unit, better=one.better, label=one.label, worry=one.worry,
            panel=title,
        )
        for one in metrics
    )  # fmt: skip


COMMON: tuple[Metric, ...] = (
    *_panel(
        DRAWN,
        Metric(name=REWARD, meaning="mean score of the step's attempts", better="higher", label="Training"),
        Metric(name=HELD_OUT, meaning="evaluation reward", better="higher", label="Held out"),
    ),
    *_panel(
        "Right answers",
        Metric(
            name="eval/accuracy", meaning="held-out tasks that their own check calls right, whatever the reward says",
            unit="share", better="higher", label="Right",
        ),
    ),
    *_panel(
        "Imitation loss",
        Metric(
            name="loss/supervised", meaning="negative log-likelihood per token of the demonstrations", unit="nats",
            better="lower", label="Loss", worry="a rise means that training diverges",
        ),
    ),
    *_panel(
        "KL",
        Metric(
            name="policy/kl", meaning="how far each step moves the policy", unit="nats", label="KL",
            worry="a spike means that the step was too large",
        ),
        Metric(
            name="policy/reference_kl", meaning="how far the policy is from the reference", unit="nats",
            label="To the reference",
        ),
    ),
    *_panel(
        "Entropy",
        Metric(
            name="policy/entropy", meaning="how undecided the policy is", unit="nats", label="Entropy",
            worry="close to zero early on means that it has stopped exploring",
        ),
    ),
    *_panel(
        "Loss",
        Metric(
            name="loss/total", meaning="what the optimiser minimises; in GRPO its level says little", label="Loss",
            worry="watch for jumps",
        ),
    ),
    *_panel(
        "Groups without signal",
        Metric(
            name="groups/zero_spread_share", meaning="groups whose attempts all scored the same, which teach nothing",
            unit="share", better="lower", label="Without signal", worry="above a half, most of the work is wasted",
        ),
        Metric(
            name="groups/failed_share", meaning="attempts that got no score", unit="share", better="lower",
            label="Failed",
        ),
    ),
    *_panel(
        "Clipped",
        Metric(
            name="policy/clip_low", meaning="decisions whose probability ratio was clipped from below", unit="share",
            label="Below",
        ),
        Metric(
            name="policy/clip_high", meaning="decisions whose probability ratio was clipped from above", unit="share",
            label="Above", worry="above a fifth, steps are too large",
        ),
    ),
    *_panel(
        "Sampler gap",
        Metric(
            name="sampler/ratio_gap", meaning="how far sampled probabilities are from what the learner computes",
            label="Measured", worry="rounding in float32, a few percent in half precision; more is a mismatch",
        ),
        Metric(name="sampler/corrected_gap", meaning="what importance weights leave of it", label="Corrected"),
    ),
    *_panel(
        "Workers",
        Metric(name="rollout/workers", meaning="workers that make attempts", unit="workers", label="Workers"),
    ),
    *_panel(
        "Waiting for workers",
        Metric(
            name="rollout/queue_mean", meaning="attempts that waited for a worker, on average", unit="attempts",
            label="Waiting", worry="more workers help while attempts wait",
        ),
    ),
    *_panel(
        "Length",
        Metric(name="attempt/length_mean", meaning="mean length of an attempt", unit="actions", label="Mean"),
        Metric(name="attempt/length_max", meaning="length of the longest attempt", unit="actions", label="Longest"),
    ),
    *_panel(
        "Cut off",
        Metric(
            name="attempt/truncated_share", meaning="attempts that reached the limit on their length", unit="share",
            label="Cut off",
        ),
    ),
    *_panel(
        "Gradient",
        Metric(name="optim/grad_norm", meaning="gradient norm before clipping", label="Policy"),
        Metric(name="optim/critic_grad_norm", meaning="the critic's gradient norm before clipping", label="Critic"),
    ),
    *_panel(
        "Advantage",
        Metric(
            name="advantage/abs_mean", meaning="mean absolute advantage: how far attempts are from their group",
            label="Mean size", worry="near zero there is nothing to learn",
        ),
        Metric(name="advantage/std", meaning="standard deviation of the advantages", label="Deviation"),
    ),
    *_panel(
        "Critic",
        Metric(
            name="value/explained_variance", better="higher", label="Explained variance",
            meaning="how well the critic predicts returns: 1 is perfectly, 0 no better than their mean",
        ),
    ),
    *_panel(
        "Learning rate", Metric(name="optim/learning_rate", meaning="the learning rate", label="Rate")
    ),
    *_panel(
        "Time per step",
        Metric(name="timing/total", meaning="duration of a step", unit="s", better="lower", label="Step"),
        Metric(name="timing/rollout", meaning="making attempts", unit="s", better="lower", label="Attempts"),
        Metric(name="timing/update", meaning="learning from them", unit="s", better="lower", label="Update"),
    ),
    *_panel(
        "Throughput",
        Metric(
            name="timing/samples_per_second", meaning="actions or tokens per second", unit="per second",
            better="higher", label="Samples",
        ),
    ),
    *_panel(
        "Processor",
        Metric(name="timing/processor", meaning="processor time of a step, over all threads", unit="s", label="Step"),
    ),
    *_panel(
        "Memory", Metric(name="timing/memory", meaning="memory of the run's process", unit="GiB", label="Process")
    ),
    Metric(name="timing/score", meaning="duration of scoring", unit="s", better="lower"),
    Metric(name="timing/advantage", meaning="duration of computing advantages", unit="s", better="lower"),
    Metric(name="timing/evaluate", meaning="duration of an evaluation", unit="s", better="lower"),
    Metric(name="timing/*", meaning="duration of a phase", unit="s", better="lower"),
    Metric(name="totals/samples", meaning="actions or tokens so far", unit="actions"),
    Metric(name="totals/attempts", meaning="attempts so far", unit="attempts"),
    Metric(name="eval/attempts", meaning="attempts of the evaluation", unit="attempts"),
    Metric(name="eval/reward_std", meaning="standard deviation of the scores on held-out tasks"),
    Metric(name="eval/reward_min", meaning="lowest score on held-out tasks", better="higher"),
    Metric(name="eval/length_mean", meaning="mean length of an evaluated attempt", unit="actions"),
    Metric(name="eval/failed_share", meaning="evaluated attempts that got no score", unit="share", better="lower"),
    Metric(name="reward/std", meaning="standard deviation of the step's scores"),
    Metric(name="reward/min", meaning="lowest score of the step", better="higher"),
    Metric(name="reward/max", meaning="highest score of the step", better="higher"),
    Metric(name="reward/part/*", meaning="mean of one part of the score, over all scored attempts"),
    Metric(name="reward/part_std/*", meaning="standard deviation of one part of the score"),
    Metric(name="reward/correlation/*", meaning="correlation of two parts of the score within groups", unit="r"),
    Metric(name="groups/count", meaning="groups drawn in the step", unit="groups"),
    Metric(name="groups/close_share", meaning="groups whose scores differ too little to count", unit="share"),
    Metric(name="groups/resampled", meaning="groups set aside because they could not teach", unit="groups"),
    Metric(name="groups/rounds", meaning="rounds it took to draw the step's groups", unit="rounds"),
    Metric(name="group/*/reward_mean", meaning="mean score of one weight group", better="higher"),
    Metric(name="group/*/steps", meaning="actions of one weight group", unit="actions"),
    Metric(name="group/*/weight", meaning="weight of an action of one weight group"),
    Metric(name="group/*/share", meaning="share of one weight group in the loss", unit="share"),
    Metric(name="group/*/advantage_rms", meaning="root mean square of the advantages of one weight group"),
    Metric(name="rollout/busy_share", meaning="share of the time that workers were busy", unit="share"),
    Metric(name="rollout/redone", meaning="attempts made again after losing a worker", unit="attempts", better="lower"),
    Metric(name="sampler/servers", meaning="vLLM servers in service", unit="servers"),
    Metric(name="sampler/resent", meaning="requests sent again after a vLLM server was lost", unit="requests"),
    Metric(name="sampler/publish_seconds", meaning="time until all vLLM servers had the present weights", unit="s"),
    Metric(name="replay/share", meaning="groups learned from again", unit="share"),
    Metric(name="replay/age_mean", meaning="mean age of replayed groups", unit="versions"),
    Metric(name="policy/ratio_max", meaning="largest probability ratio of the step"),
    Metric(name="loss/policy", meaning="the policy's part of the loss"),
    Metric(name="loss/kl", meaning="the part of the loss that keeps the policy near the reference"),
    Metric(name="loss/value", meaning="the critic's part of the loss", better="lower"),
    Metric(name="sampler/ratio_gap_max", meaning="largest difference of a ratio between sampler and learner from 1"),
    Metric(name="sampler/kl", meaning="divergence of the learner's probabilities from the sampler's", unit="nats"),
    Metric(name="sampler/truncated_share", meaning="importance weights that reached their cap", unit="share"),
    Metric(name="optim/skipped", meaning="optimiser steps skipped because a gradient was not finite", unit="steps"),
    Metric(name="optim/steps", meaning="optimiser steps taken", unit="steps"),
    Metric(name="optim/epochs", meaning="passes over the step's batch", unit="passes"),
    Metric(
        name="optim/task_conflicts",
        meaning="pairs of tasks whose gradients point against each other, with optim.gradient_surgery",
        unit="share",
    ),
    Metric(name="optim/kl_coef", meaning="coefficient of the KL penalty"),
    Metric(name="answers/words", meaning="mean length of an answer", unit="words"),
    Metric(name="answers/sameness", meaning="overlap of answers to different tasks", unit="share", better="lower"),
    Metric(name="answers/repetition", meaning="repeated phrases within answers", unit="share", better="lower"),
    Metric(name="answers/parroting", meaning="words of the question in the answer", unit="share", better="lower"),
    Metric(name="judge/groups", meaning="groups scored so far", unit="groups"),
    Metric(name="judge/calls", meaning="calls to the judge so far", unit="calls"),
    Metric(name="judge/retries", meaning="calls repeated after an error", unit="calls", better="lower"),
    Metric(name="judge/prompt_tokens", meaning="tokens sent to the judge so far", unit="tokens"),
    Metric(name="judge/completion_tokens", meaning="tokens received from the judge so far", unit="tokens"),
    Metric(name="judge/uncounted", meaning="answers of the judge without token counts", unit="answers"),
    Metric(name="judge/cache_share", meaning="recent groups scored from the cache", unit="share"),
    Metric(name="judge/fallback_share", meaning="recent groups scored by the heuristic", unit="share", better="lower"),
    Metric(name="judge/failed_share", meaning="recent groups that got no score", unit="share", better="lower"),
    Metric(name="judge/calls_per_group", meaning="calls to the judge for a group", unit="calls"),
    Metric(name="judge/cost", meaning="cost of the judge so far, in the currency of its price", unit="cost"),
    Metric(name="judge/cost_per_group", meaning="cost of judging a group", unit="cost"),
    Metric(name="judge/tokens_per_group", meaning="tokens used to judge a group", unit="tokens"),
    Metric(name="judge/spread", meaning="mean spread of the judge's scores within a group"),
    Metric(name="judge/order_effect", meaning="how much a place in the prompt changes a score", better="lower"),
    Metric(name="judge/constant_share", meaning="groups to which the judge gave equal scores", unit="share"),
    Metric(name="judge/agreement", meaning="agreement of the judge with itself", unit="share", better="higher"),
    Metric(name="judge/breaker_open", meaning="1 while the judge is not asked because it keeps failing"),
    Metric(name="judge/lost", meaning="requests that the judge never answered", unit="calls", better="lower"),
    Metric(
        name="neural/held_out_accuracy", meaning="held-out pairs that the learned reward ranks right", unit="share",
        better="higher",
    ),
    Metric(name="neural/linear_accuracy", meaning="pairs that the linear model ranks right", unit="share"),
    Metric(name="neural/network_accuracy", meaning="pairs that the network ranks right", unit="share"),
    Metric(name="neural/calibration_error", meaning="calibration error of the learned reward", better="lower"),
    Metric(name="neural/loss", meaning="training loss of the learned reward", better="lower"),
    Metric(name="neural/uncertainty", meaning="mean uncertainty of the learned reward", better="lower"),
    Metric(name="neural/fallback_share", meaning="answers too unlike its training data for it to score", unit="share"),
    Metric(name="neural/held_out_pairs", meaning="pairs kept aside to test the learned reward", unit="pairs"),
    Metric(name="neural/replay_size", meaning="pairs it can learn from again", unit="pairs"),
    Metric(name="neural/updates", meaning="updates of the learned reward", unit="updates"),
    Metric(name="neural/failures", meaning="updates of the learned reward that failed", unit="updates"),
    Metric(name="neural/*", meaning="the learned reward's own statistics"),
)  # fmt: skip


def true_metrics(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metrics of a step without those that mean something else there.

    Up to version 0.1, steps that learned from demonstrations logged their mean probability as the reward.
    """
    if metrics.get(SUPERVISED) is None:
        return metrics
    return {name: value for name, value in metrics.items() if name not in MEANINGLESS}


def registry(product: str = "") -> tuple[Metric, ...]:
    """All metrics that the runs of a product may report: its own first, each placed in its common panel."""
    try:
        own = find(product).metrics if product else ()
    except GroupwiseError:  # a product that is not installed here
        own = ()
    common = {metric.name: metric for metric in COMMON}
    placed = tuple(_placed(metric, common.get(metric.name)) for metric in own)
    names = {metric.name for metric in placed}
    return (*placed, *(metric for metric in COMMON if metric.name not in names))


def _placed(own: Metric, common: Metric | None) -> Metric:
    if common is None:
        return own
    return Metric(
        name=own.name, meaning=own.meaning, unit=own.unit, better=own.better,
        panel=own.panel or common.panel, label=own.label or common.label, worry=own.worry or common.worry,
    )  # fmt: skip


def about(name: str, known: Sequence[Metric]) -> Metric | None:
    """The row of a metric: of its own name, else of the first pattern that fits."""
    exact = next((metric for metric in known if metric.name == name), None)
    return exact or next((metric for metric in known if "*" in metric.name and fnmatchcase(name, metric.name)), None)


def reference() -> str:
    """The page `docs/reference/metrics.md`."""
    from groupwise.products import PRODUCTS

    lines = [
        "# Metrics",
        "",
        "Written by `python -m groupwise.metrics` from the registry that the page and reports read. `*` stands for any",
        "part of a name. A run logs those that its settings make meaningful.",
        "",
        "## Every product",
        "",
        *_table(COMMON),
    ]
    for product in PRODUCTS:
        lines += ["", f"## {product}", "", *_table(find(product).metrics)]
    return "\n".join(lines) + "\n"


def _table(metrics: Iterable[Metric]) -> list[str]:
    rows = ["| metric | meaning | unit | better | when to worry |", "|---|---|---|---|---|"]
    for _, named in groupby(metrics, key=lambda metric: metric.name):
        metric = next(named)
        rows.append(f"| `{metric.name}` | {metric.meaning} | {metric.unit} | {metric.better} | {metric.worry} |")
    return rows


if __name__ == "__main__":
    print(reference(), end="")
