"""Runs side by side: which of their settings differ, and what the statistics of `groupwise compare` say of them."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from groupwise.errors import GroupwiseError
from groupwise.metrics import HELD_OUT
from groupwise.reporting.comparison import Comparison, Course
from groupwise.reporting.comparison_table import cautions
from groupwise.service.runs import Runs

OWN = ("run.run_name", "run.output_dir", "run.seed", "task.seed", "run.resume")  # differ between repetitions
REPETITIONS = 2000  # of the bootstrap: somebody is waiting
LONGEST = 60  # characters of an arm's name


def compared(runs: Runs, names: Sequence[str], metric: str = HELD_OUT) -> dict[str, Any]:
    """Arms of runs that differ in nothing but their seed, the settings in which arms differ, and a verdict."""
    settings = {name: _flat(runs.config(name)) for name in names}
    differing = _differing(settings)
    arms = _arms(settings, differing)
    found: dict[str, Any] = {
        "metric": metric,
        "arms": [{"name": arm, "runs": members} for arm, members in arms.items()],
        "settings": {key: {name: _shown(values.get(key)) for name, values in settings.items()} for key in differing},
    }
    courses = [
        course for arm, members in arms.items() for name in members
        if (course := _course(runs, name, arm, settings[name], metric)) is not None
    ]  # fmt: skip
    if not courses:
        return {**found, "headline": f"None of these runs has measured {metric}.", "verdicts": [], "cautions": []}
    with suppress(GroupwiseError, ValueError):
        comparison = Comparison(tuple(_one_per_seed(courses)), repetitions=REPETITIONS)
        said = {"verdicts": [duel.verdict for duel in comparison.duels], "cautions": cautions(comparison)}
        return {**found, "headline": _headline(comparison), **said}
    return {**found, "headline": "These runs cannot be compared.", "verdicts": [], "cautions": []}


def _headline(comparison: Comparison) -> str:
    if len(comparison.algorithms) > 2:
        return _best_of_many(comparison)
    if len(comparison.algorithms) > 1:
        return comparison.headline
    finals = [course.final for course in comparison.courses]
    seeds = len({course.seed for course in comparison.courses})
    spread = f", with a standard deviation of {statistics.stdev(finals):.3g}" if len(finals) > 1 else ""
    return (
        f"These runs differ in nothing but their seed ({seeds} in all): "
        f"they end at {statistics.fmean(finals):.3g} on average{spread}."
    )


def _best_of_many(comparison: Comparison) -> str:
    """Which arm ends highest, and how many of the others it is distinguishably above."""
    finals: dict[str, list[float]] = {}
    for course in comparison.courses:
        finals.setdefault(course.algorithm, []).append(course.final)
    best = max(finals, key=lambda arm: statistics.fmean(finals[arm]))
    won = Counter(
        duel.ours if duel.final.interval.value > 0 else duel.theirs for duel in comparison.duels if duel.distinguishable
    )
    others = len(finals) - 1
    if won[best] == others:
        return f"{best} ends above every other."
    above = (
        f"distinguishably above {won[best]} of {others} others" if won[best] else "but not distinguishably above any"
    )
    return f"{best} ends highest, at {statistics.fmean(finals[best]):.3g}, {above}."


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _differing(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for values in settings.values() for key in values)
    return [key for key in keys if key not in OWN and len({_shown(v.get(key)) for v in settings.values()}) > 1]


def _arms(settings: Mapping[str, Mapping[str, Any]], differing: Sequence[str]) -> dict[str, list[str]]:
    arms: dict[str, list[str]] = {}
    for name, values in settings.items():
        told = ", ".join(f"{key.rpartition('.')[2]} {_shown(values.get(key))}" for key in differing)
        arms.setdefault(told or "all", []).append(name)
    if any(len(told) > LONGEST for told in arms):
        return {members[0] if len(members) == 1 else f"like {members[0]}": members for members in arms.values()}
    return arms


def _course(runs: Runs, name: str, arm: str, settings: Mapping[str, Any], metric: str) -> Course | None:
    """The run's evaluations over samples where those are counted, else over steps."""
    log = runs.log(name)
    with log.lock:
        kind = "eval" if metric in log.numbers["eval"].columns else "step"
        steps, values, samples = log.numbers[kind].column(metric, "samples")
    places = samples if len(samples) and (np.diff(samples) > 0).all() else steps
    if not len(values) or (np.diff(places) <= 0).any():
        return None
    task = str(settings.get("task.environment", ""))
    seed = int(settings.get("run.seed") or 0)
    return Course(arm, task, task, seed, tuple(int(p) for p in places), tuple(map(float, values)), 0.0, 0.0)


def _one_per_seed(courses: Sequence[Course]) -> list[Course]:
    """Repetitions with equal seeds are one sample, not two: the last counts."""
    return list({(course.algorithm, course.task, course.seed): course for course in courses}.values())


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
