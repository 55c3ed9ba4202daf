"""What a run's numbers say in words: what was trained, what came of it, what to try next."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from groupwise.reporting.history import History
from groupwise.training.formatting import finite, number, trend


def verdict(history: History) -> str:
    """Before and after, in words."""
    steps, right = history.series("eval/accuracy")
    if len(right) > 1:
        asked = int(history.last("eval/attempts") or 0)
        how = _compared(history, steps[0], steps[-1], "accuracy")
        when = "before training" if steps[0] == 0 else f"at step {steps[0]}"
        return (
            f"Right answers to {asked} held-out tasks {how} from {right[0]:.1%} {when} "
            f"to {right[-1]:.1%} after step {steps[-1]}."
        )
    steps, tests = history.series("eval/reward_mean")
    if len(tests) > 1:
        how = _compared(history, steps[0], steps[-1])
        before = "before training" if steps[0] == 0 else f"at step {steps[0]}"
        return (
            f"Evaluation reward {how} from {number(tests[0])} {before} to {number(tests[-1])} after step {steps[-1]}."
        )
    if tests:
        return f"Evaluation reward {number(tests[0])} at step {steps[0]}; there is no other to compare with."
    rewards = history.series("reward/mean")[1]
    if not rewards:
        return "No step was completed."
    size = max(1, min(5, len(rewards) // 2))
    first, last = statistics.fmean(rewards[:size]), statistics.fmean(rewards[-size:])
    word = "rose" if last > first else "went"
    return f"Training reward {word} from {number(first)} to {number(last)}; it was never evaluated."


def _compared(history: History, first: int, last: int, name: str = "reward_mean") -> str:
    """`rose` or `fell` where the difference is larger than two standard errors, else `hardly moved`."""
    means, variances = [], 0.0
    for step in (first, last):
        metrics = history.evals[step]["metrics"]
        mean = finite(metrics.get(f"eval/{name}")) or 0.0
        means.append(mean)
        std, attempts = finite(metrics.get("eval/reward_std")), finite(metrics.get("eval/attempts"))
        std = math.sqrt(max(mean * (1 - mean), 0.0)) if name == "accuracy" else std
        variances += (std or 0.0) ** 2 / max(attempts or 1.0, 1.0)
    change = means[1] - means[0]
    if abs(change) <= 2 * math.sqrt(variances):
        return "hardly moved:"
    return "rose" if change > 0 else "fell"


def subject(history: History) -> str:
    """What was trained, on what."""
    task, model = history.setting("task.environment"), history.setting("policy.model_name")
    parts = [_model(Path(str(model))) if model else "", Path(str(task)).name if task else ""]
    return " on ".join(part for part in parts if part) or history.run


def _model(path: Path) -> str:
    """The model's name; of a checkpoint, its run's."""
    return path.parent.parent.name if path.parent.name == "checkpoints" else path.name


def method(history: History) -> str:
    """The run's name and how its groups are made and learned from, as far as its settings say."""
    tasks, size = history.setting("rollout.tasks_per_step"), history.setting("rollout.num_generations")
    loss, credit = history.setting("loss.loss_type"), history.setting("advantage.estimator")
    parts = [
        f"{tasks} × {size} attempts a step" if tasks and size else "",
        f"{loss} loss" if loss else "",
        f"{credit} advantages" if credit else "",
    ]
    return " · ".join(part for part in (f"Run {history.run}", *parts) if part)


def advice(history: History) -> list[str]:
    """What to try next: the remedies of the hints, and what the curve itself suggests."""
    tips = list(dict.fromkeys(str(hint.get("remedy")) for _, hint in history.hints if hint.get("remedy")))
    rewards = history.series("reward/mean")[1]
    slope, error = trend(rewards[-max(10, len(rewards) // 4) :])
    if len(rewards) >= 10 and slope > 2 * error and trend(rewards[-5:])[0] > 0:
        tips.append("The reward was still rising at the end: train longer (training.num_episodes).")
    if not history.evals:
        tips.append("Set run.eval_steps, so that progress is measured on tasks apart from training.")
    if history.end is None:
        tips.append("The run has not ended. If nothing is writing to it any more, resume it (see below).")
    if rewards and not tips:
        tips.append("Nothing looks wrong. One run is one seed: repeat it with other values of run.seed.")
    return tips
