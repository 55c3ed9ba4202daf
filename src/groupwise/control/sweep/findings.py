"""What a sweep says about an algorithm: how many settings solve, which matter, how the score changes, which to take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.control.sweep.axes import Axis, plain_value
from groupwise.control.sweep.importance import LEAST, REPETITIONS, ForestAnatomy, dissect, places, resampled
from groupwise.control.sweep.running import SweepResult
from groupwise.control.sweep.trials import SweepTrial, named
from groupwise.errors import MissingExtra
from groupwise.reporting import statistics as st
from groupwise.reporting.comparison import unique
from groupwise.reporting.statistics import EXPLORATORY, Interval
from groupwise.training.formatting import number, percent

METHOD = (
    "functional analysis of variance on a random forest of 64 trees (scikit-learn) fitted to the mean score of each "
    "setting; shares of the forest's variance over the swept ranges; 95% percentile intervals from 100 bootstrap "
    "samples of settings and, within each, of seeds"
)
# Below this share of explained variance, importance is mostly noise.
WEAK_FIT = 0.2
# Budgets that differ by more than this factor make scores hard to compare.
UNEQUAL = 1.2
TOP = 5


@dataclass(frozen=True)
class AxisImportance:
    """The share of the score's variance that a setting accounts for: alone, and in all with its pairs."""

    axis: Axis
    total: Interval
    alone: Interval

    def to_dict(self) -> dict[str, Any]:
        return {"setting": self.axis.name, **_interval("importance", self.total), **_interval("alone", self.alone)}


@dataclass(frozen=True)
class ScoreCurve:
    """The score along one axis, averaged over all others: predicted, with a 95% interval at every level."""

    axis: Axis
    values: tuple[Any, ...]
    scores: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        return {
            "setting": self.axis.name,
            "values": [plain_value(value) for value in self.values],
            **{name: getattr(self, name).tolist() for name in ("scores", "low", "high")},
        }


@dataclass(frozen=True)
class Surface:
    """The predicted score over two axes, averaged over all others: `scores[i][j]` at `y.values[i]`, `x.values[j]`."""

    x: Axis
    y: Axis
    scores: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        sides = {
            side: {"setting": axis.name, "values": [plain_value(v) for v in axis.level_values()]}
            for side, axis in (("x", self.x), ("y", self.y))
        }
        meaning = "scores[i][j] is the score predicted at y.values[i] and x.values[j], averaged over all other settings"
        return {"meaning": meaning, **sides, "scores": self.scores.tolist()}


@dataclass(frozen=True)
class Recommendation:
    """The setting with the best mean score. `score` has its interval over seeds, `fresh` what new seeds would give.

    `fresh` leaves out one seed at a time, chooses by the others, and scores that choice by the seed left out; so it
    does not profit from luck in choosing.
    """

    trial: SweepTrial
    score: Interval
    fresh: Interval | None
    ties: int

    def to_dict(self, axes: Sequence[Axis]) -> dict[str, Any]:
        fresh = None if self.fresh is None else _interval("score", self.fresh)
        return {
            "trial": self.trial.candidate.name,
            "settings": named(axes, self.trial.candidate.values),
            **_interval("score", self.score),
            "on_a_fresh_seed": fresh,
            "settings_with_the_same_score": self.ties,
        }


@dataclass(frozen=True)
class Findings:
    """Everything a sweep says about one algorithm. `solving` is None without a threshold."""

    algorithm: str
    axes: tuple[Axis, ...]
    trials: tuple[SweepTrial, ...]
    importance: tuple[AxisImportance, ...] = ()
    pairs: tuple[tuple[str, str, float], ...] = ()
    responses: tuple[ScoreCurve, ...] = ()
    surface: Surface | None = None
    fit: float = math.nan
    recommendation: Recommendation | None = None
    solving: Interval | None = None
    runs_solving: float | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings_finished": sum(trial.complete for trial in self.trials),
            "share_of_settings_that_solve": None if self.solving is None else _interval("share", self.solving),
            "share_of_runs_that_solve": self.runs_solving,
            "importance": [found.to_dict() for found in self.importance],
            "interactions": [{"settings": [one, other], "importance": share} for one, other, share in self.pairs],
            "forest_fit": None if math.isnan(self.fit) else self.fit,
            "responses": [found.to_dict() for found in self.responses],
            "surface": None if self.surface is None else self.surface.to_dict(),
            "recommendation": None if self.recommendation is None else self.recommendation.to_dict(self.axes),
            "notes": list(self.notes),
        }


def _interval(name: str, found: Interval) -> dict[str, float | None]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), found.as_list(), strict=True))


def findings_of(result: SweepResult, repetitions: int = REPETITIONS) -> list[Findings]:
    """The findings for every algorithm of the sweep."""
    return [_findings(result, name, repetitions) for name in result.plan.bases]


def _findings(result: SweepResult, algorithm: str, repetitions: int) -> Findings:
    axes, trials = result.plan.axes, tuple(result.of(algorithm))
    done = [trial for trial in trials if trial.complete]
    notes = [*_failed(trials), *_budgets(done), *_few_seeds(result)]
    solved = result.scale.solved
    solving, runs = _solving(trials, solved) if solved is not None else (None, None)
    if solved is None and done:
        notes.append(
            "No threshold is known for this task, so no setting counts as solving. Give one: --threshold TASK=NUMBER."
        )
    if result.plan.method == "optuna":
        notes.append("Optuna tries good regions more often, so the share that solves is not that of the whole ranges.")
    anatomy: dict[str, Any] = {}
    reason = _no_importance(done)
    if reason:
        notes.append(reason)
    else:
        try:
            anatomy = _anatomy(axes, done, repetitions)
        except MissingExtra as error:
            notes.append(f"{error.message}: {error.hint}")
    if anatomy and not anatomy["fit"] >= WEAK_FIT:
        notes.append(
            "The forest hardly predicts the score of settings it has not seen (R² "
            f"{number(anatomy['fit'])}), so importance and surface are mostly noise. More settings or seeds help."
        )
    predicted = anatomy.pop("predicted", {})
    recommendation = recommend(done, predicted)
    return Findings(
        algorithm,
        axes,
        trials,
        recommendation=recommendation,
        solving=solving,
        runs_solving=runs,
        notes=tuple(notes),
        **anatomy,
    )


def _no_importance(done: Sequence[SweepTrial]) -> str:
    if len(done) < LEAST:
        return f"Importance and surface need at least {LEAST} settings with all seeds; {len(done)} are finished."
    means = [trial.mean for trial in done]
    return "Every setting has the same score, so none of them matters here." if len(set(means)) == 1 else ""


def _anatomy(axes: Sequence[Axis], done: Sequence[SweepTrial], repetitions: int) -> dict[str, Any]:
    x = places(axes, [trial.candidate.values for trial in done])
    whole = dissect(axes, x, np.array([trial.mean for trial in done]))
    samples = resampled(axes, x, [trial.scores for trial in done], repetitions)
    totals = [[sample.total(d) for d in range(len(axes))] for sample in samples]
    importance = [
        AxisImportance(
            axis,
            _around(whole.total(d), np.array(totals)[:, d]),
            _around(float(whole.share[d]), np.array([sample.share[d] for sample in samples])),
        )
        for d, axis in enumerate(axes)
    ]
    responses = [_response(axis, d, whole, samples) for d, axis in enumerate(axes)]
    order = sorted(range(len(axes)), key=lambda d: -whole.total(d))
    surface = None
    if len(axes) > 1:
        # The more important setting runs along the figure's longer side.
        x_axis, y_axis = order[0], order[1]
        table = whole.pairs[min(x_axis, y_axis), max(x_axis, y_axis)]
        surface = Surface(axes[x_axis], axes[y_axis], table.T if x_axis < y_axis else table)
    pairs = sorted(
        ((axes[d].name, axes[e].name, share) for (d, e), share in whole.together.items()), key=lambda p: -p[2]
    )
    return {
        "importance": tuple(importance[d] for d in order),
        "pairs": tuple(pairs),
        "responses": tuple(responses[d] for d in order),
        "surface": surface,
        "fit": whole.fit,
        "predicted": {trial.candidate.name: _predicted(whole, axes, trial) for trial in done},
    }


def _around(value: float, samples: NDArray[np.float64]) -> Interval:
    """The percentile interval of bootstrap samples, which always contains the value itself."""
    if not len(samples):
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(samples, [0.025, 0.975])
    return Interval(value, min(float(low), value), max(float(high), value))


def _response(axis: Axis, d: int, whole: ForestAnatomy, samples: Sequence[ForestAnatomy]) -> ScoreCurve:
    curves = np.array([sample.alone[d] for sample in samples] or [whole.alone[d]])
    low, high = np.quantile(curves, [0.025, 0.975], axis=0)
    middle = whole.alone[d]
    return ScoreCurve(axis, tuple(axis.level_values()), middle, np.minimum(low, middle), np.maximum(high, middle))


def _predicted(whole: ForestAnatomy, axes: Sequence[Axis], trial: SweepTrial) -> float:
    """How good the neighbourhood of a setting is: the sum of the curves of all axes at its values."""
    total = 0.0
    for d, (axis, value) in enumerate(zip(axes, trial.candidate.values, strict=True)):
        total += float(whole.alone[d][np.abs(axis.levels() - axis.place(value)).argmin()])
    return total


def _solving(trials: Sequence[SweepTrial], solved: float) -> tuple[Interval | None, float | None]:
    """The share of ended settings whose mean score solves, with its interval over settings, and the share of runs."""
    ended = [trial for trial in trials if trial.state in ("finished", "failed")]
    if not ended:
        return None, None
    # A setting with a run that failed does not solve: whoever takes it may get that run.
    hits = np.array([float(trial.complete and (trial.mean or 0.0) >= solved) for trial in ended])
    runs = [bool(run.solved) for trial in ended for run in trial.runs]
    return st.estimate(st.mean, hits[:, np.newaxis]), float(np.mean(runs))


def recommend(done: Sequence[SweepTrial], predicted: dict[str, float]) -> Recommendation | None:
    """The best setting; among equals the one whose neighbours do best, then the one that learned sooner."""
    if not done:
        return None

    def rank(trial: SweepTrial) -> tuple[float, float, float]:
        assert trial.mean is not None
        return trial.mean, predicted.get(trial.candidate.name, 0.0), trial.efficiency

    best = max(done, key=rank)
    found = best.interval()
    assert found is not None
    ties = sum(trial.mean == best.mean for trial in done) - 1
    return Recommendation(best, found, _on_fresh_seeds(done), ties)


def _on_fresh_seeds(done: Sequence[SweepTrial]) -> Interval | None:
    scores = np.array([trial.scores for trial in done])
    count = scores.shape[1]
    if count < 2 or len(done) < 2:
        return None
    outside = []
    for seed in range(count):
        rest = np.delete(scores, seed, axis=1).mean(1)
        # Settings that are equally good by the other seeds count alike.
        outside.append(scores[rest == rest.max(), seed].mean())
    return st.estimate(st.mean, np.array(outside)[:, np.newaxis])


def _failed(trials: Sequence[SweepTrial]) -> list[str]:
    failed = [run for trial in trials for run in trial.runs if run.state == "failed"]
    if not failed:
        return []
    reasons = "; ".join(unique(run.message for run in failed)[:3])
    left = "Their settings count as not solving, and are left out of everything else"
    return [f"{len(failed)} {'run' if len(failed) == 1 else 'runs'} failed ({reasons}). {left}."]


def _budgets(done: Sequence[SweepTrial]) -> list[str]:
    steps = [run.steps for trial in done for run in trial.runs if run.steps]
    if not steps or max(steps) <= UNEQUAL * min(steps):
        return []
    span = f"between {number(min(steps))} and {number(max(steps))}"
    rule = "A run ends after the training step that reaches training.total_samples, if that is set"
    return [f"Runs had {span} steps, and more steps give better scores. {rule}."]


def _few_seeds(result: SweepResult) -> list[str]:
    count = len(result.plan.seeds)
    if count >= EXPLORATORY:
        return []
    seeds = "1 seed" if count == 1 else f"{count} seeds"
    return [f"{seeds} a setting: enough to see what matters, too few to claim that one setting is better than another."]


def headline(found: Findings) -> str:
    """The findings in a sentence or two."""
    words = []
    if found.solving is not None:
        interval = (
            "" if math.isnan(found.solving.low) else f" ({percent(found.solving.low)} to {percent(found.solving.high)})"
        )
        words.append(f"{percent(found.solving.value)}{interval} of the settings solve the task.")
    first = found.importance[0] if found.importance and found.fit >= WEAK_FIT else None
    if first is not None:
        words.append(
            f"{first.axis.name} matters most: {percent(first.total.value)} of the variance "
            f"({percent(first.total.low)} to {percent(first.total.high)})."
        )
    if not words:
        ended = sum(trial.complete for trial in found.trials)
        words.append(f"{ended} of {len(found.trials)} settings are finished.")
    return " ".join(words)
