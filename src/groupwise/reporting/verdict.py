"""What a run's numbers say in words: what was trained, what came of it, what to try next."""

import math
import statistics
from pathlib import Path

from groupwise.products import Metric
from groupwise.reporting.history import History
from groupwise.reporting.text import capital
from groupwise.training.formatting import finite, number, trend

# Every product evaluates this one; it is the headline unless the product declares another first.
REWARD = "eval/reward_mean"
EVALUATION_REWARD = Metric(name=REWARD, meaning="evaluation reward", better="higher")


def headline_metric(history: History) -> Metric:
    """What the run is judged by: the first held-out metric its product declares that has values."""
    declared = (metric for metric in history.metrics if metric.name.startswith("eval/") and metric.better)
    return next((metric for metric in declared if history.series(metric.name)[1]), EVALUATION_REWARD)


def verdict(history: History) -> str:
    """Before and after, in words."""
    metric = headline_metric(history)
    steps, tests = history.series(metric.name)
    if len(tests) > 1:
        attempts = history.last("eval/attempts")
        size = f", over {attempts:,.0f} attempts each" if attempts else ""
        said = f"{_before_and_after(history, metric)}{size}."
        # Where the run learned from a reward of its own, what that reward says is not what the task's check says.
        checks = history.series("eval/check_mean")
        if metric.name != REWARD and checks[1] and checks != history.series(REWARD):
            declared = next((known for known in history.metrics if known.name == REWARD), EVALUATION_REWARD)
            said += f" {_before_and_after(history, declared)}."
        return said
    if tests:
        return f"{capital(metric.meaning)} {in_unit(metric, tests[0])} at step {steps[0]}, the only evaluation."
    what, name = ("loss", "loss/supervised") if history.supervised else ("reward", "reward/mean")
    values = history.series(name)[1]
    if not values:
        return "No step was completed."
    few = max(1, min(5, len(values) // 2))
    first, last = statistics.fmean(values[:few]), statistics.fmean(values[-few:])
    how = "rose" if last > first else "fell"
    return f"Training {what} {how} from {number(first)} to {number(last)}; the run was never evaluated."


def _before_and_after(history: History, metric: Metric) -> str:
    steps, tests = history.series(metric.name)
    how = _compared(history, metric, steps[0], steps[-1])
    before = "before training" if steps[0] == 0 else f"at step {steps[0]}"
    ends = f"from {in_unit(metric, tests[0])} {before} to {in_unit(metric, tests[-1])} after step {steps[-1]}"
    return f"{capital(metric.meaning)} {how} {ends}"


def in_unit(metric: Metric, value: float) -> str:
    return f"{value:.1%}" if metric.unit == "share" else number(value)


def _compared(history: History, metric: Metric, first: int, last: int) -> str:
    """`rose` or `fell` where the difference exceeds two standard errors, else `hardly moved`."""
    means, variances = [], 0.0
    for step in (first, last):
        metrics = history.evals[step]["metrics"]
        mean = finite(metrics.get(metric.name)) or 0.0
        means.append(mean)
        spread = "eval/check_std" if metric.name == "eval/check_mean" else "eval/reward_std"
        std, attempts = finite(metrics.get(spread)), finite(metrics.get("eval/attempts"))
        # A share of right answers is binomial; only rewards come with a standard deviation.
        std = math.sqrt(max(mean * (1 - mean), 0.0)) if metric.unit == "share" else std
        variances += (std or 0.0) ** 2 / max(attempts or 1.0, 1.0)
    change = means[1] - means[0]
    if abs(change) <= 2 * math.sqrt(variances):
        return "hardly moved:"
    return "rose" if change > 0 else "fell"


def subject(history: History) -> str:
    """What was trained, on what; a model from a checkpoint goes by its run's name."""
    task, model = history.setting("task.environment"), history.setting("policy.model_name")
    folder = Path(str(model or ""))
    run = folder.parent.parent if folder.parent.name == "checkpoints" else folder
    parts = [run.name, Path(str(task)).name if task else ""]
    return " on ".join(part for part in parts if part)


def method(history: History) -> str:
    """How the run makes its batches and learns from them, as far as its settings say."""
    tasks, size = history.setting("rollout.tasks_per_step"), history.setting("rollout.num_generations")
    loss, credit = history.setting("loss.loss_type"), history.setting("advantage.estimator")
    if history.supervised:
        return f"supervised, {tasks} demonstrations a step"
    parts = [
        f"{tasks} × {size} attempts a step" if tasks and size else "",
        f"{loss} loss" if loss else "",
        f"{credit} advantages" if credit else "",
    ]
    return " · ".join(part for part in parts if part)


def advice(history: History) -> list[str]:
    """What to try next: the remedies of the hints, and what the curve suggests."""
    tips = list(dict.fromkeys(str(hint.get("remedy")) for _, hint in history.hints if hint.get("remedy")))
    rewards = history.series("reward/mean")[1]
    tests = history.series(headline_metric(history).name)[1]
    tips += _from_evaluations(history) if len(tests) > 1 else _from_training(rewards)
    if not history.evals:
        tips.append("Set run.eval_steps to measure progress on held-out tasks.")
    if history.end is None:
        tips.append("The run has not ended. If no process is writing to it, resume it (see below).")
    if rewards and not tips:
        tips.append("Nothing looks wrong. This is one seed: repeat the run with other values of run.seed.")
    return tips


def _from_evaluations(history: History) -> list[str]:
    """Held-out results decide: a training reward can rise while they fall."""
    metric = headline_metric(history)
    steps, tests = history.series(metric.name)
    sign = -1 if metric.better == "lower" else 1
    worse, improved = ("rose", "fell") if sign < 0 else ("fell", "rose")
    best = max(range(len(tests)), key=lambda place: sign * tests[place])
    if _compared(history, metric, steps[best], steps[-1]) == worse:
        top, end = in_unit(metric, tests[best]), in_unit(metric, tests[-1])
        change = f"{capital(metric.meaning)} reached {top} at step {steps[best]} and {worse} to {end} by the end"
        return [f"{change}: use an earlier checkpoint, or set training.early_stopping."]
    # The last quarter of the evaluations, or the last two.
    earlier = min(len(tests) * 3 // 4, len(tests) - 2)
    if best == len(tests) - 1 and _compared(history, metric, steps[earlier], steps[-1]) == improved:
        return [f"Still improving at the end ({metric.meaning}): train longer (training.num_episodes)."]
    return []


def _from_training(rewards: list[float]) -> list[str]:
    slope, error = trend(rewards[-max(10, len(rewards) // 4) :])
    if len(rewards) >= 10 and slope > 2 * error and trend(rewards[-5:])[0] > 0:
        return ["The training reward was still rising at the end: train longer (training.num_episodes)."]
    return []
