"""The last round of a search: the designs worth showing are simulated, and the best of them is chosen.

A search compares many designs by formulas, or by short simulations. What is shown and written is simulated for longer,
exactly as `groupwise score` and `groupwise simulate` do for the written file, so that all of them say the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.designer.baseline import Baseline
from groupwise.designer.generations import Candidate, pareto_front
from groupwise.designer.tasks import PreparedRequirements, control_flow_of
from groupwise.workflows.blocks import Design, tidied
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.scoring import DesignScore

# How many designs are simulated and shown, and how many more are tried if all of these break a rule.
SHOWN, MORE = 6, 12


@dataclass(frozen=True, slots=True)
class Finalists:
    """The chosen design, the Pareto-optimal ones with it, and the score of the baseline.

    The best breaks a rule only if all did. `kept`: the baseline itself is the best.
    """

    best: Candidate
    front: tuple[Candidate, ...]
    start: DesignScore
    kept: bool


def measured(prepared: PreparedRequirements, design: Design) -> DesignScore:
    """The score of a design as `groupwise score` gives it."""
    requirements = prepared.problem.requirements
    # What breaks a rule by its shape has no score, and need not be simulated.
    performance = None if broken_rules(design, requirements) else evaluate(design, requirements, "measured")
    return prepared.scorer(design, performance)


def choose_finalists(prepared: PreparedRequirements, found: Sequence[Candidate], start: Baseline) -> Finalists:
    """Simulate the most promising of the evaluated candidates, and choose among them and the baseline."""
    before = measured(prepared, start.design)
    legal: list[Candidate] = []
    broken: list[Candidate] = []
    for number, candidate in enumerate(_promising(found)):
        if number >= (SHOWN if legal else SHOWN + MORE):
            break
        design = replace(candidate.design, root=tidied(candidate.design.root))
        final = replace(candidate, design=design, score=measured(prepared, design))
        (broken if final.score is not None and final.score.broken else legal).append(final)
    today = _as_candidate(start.design, before)
    everyone = [*legal, *([] if before.broken else [today])]
    if not everyone:
        return Finalists(max(broken, key=lambda one: one.standing), (), before, kept=False)
    # Of designs that look the same, the one with the higher score stays.
    everyone.sort(key=lambda one: -one.total)
    front = [everyone[number] for number in pareto_front(np.array([_as_shown(one) for one in everyone]))]
    best = max(front, key=lambda one: (not _risky(prepared, one), one.total))
    others = sorted((one for one in front if one is not best), key=lambda one: -one.total)
    return Finalists(best, (best, *others), before, kept=best is today)


def objectives(candidate: Candidate) -> tuple[float, float, float, float]:
    """Cycle time, cost, control-flow complexity, and lost cases (in half percents)."""
    score = candidate.score
    assert score is not None
    assert score.performance is not None
    lost = round(200 * (1 - score.kept))
    return score.performance.cycle_time, score.performance.cost, control_flow_of(score), lost


def _as_shown(candidate: Candidate) -> tuple[float, float, float, float]:
    """The objectives as they are printed: a smaller difference is no reason to prefer a more complex design."""
    time, cost, complexity, lost = objectives(candidate)
    return float(f"{time:.3g}"), float(f"{cost:.4g}"), complexity, lost


def _promising(found: Sequence[Candidate]) -> Iterator[Candidate]:
    # The best score, then the fastest, the cheapest and the simplest, then by score; those that break a rule last.
    ranked = sorted(found, key=lambda one: -one.standing)
    legal = [one for one in ranked if one.score is not None and not one.score.broken]
    extremes = [min(legal, key=lambda one: objectives(one)[number]) for number in range(3)] if legal else []
    yield from {id(one): one for one in [*legal[:1], *extremes, *ranked]}.values()


def _risky(prepared: PreparedRequirements, candidate: Candidate) -> bool:
    """Whether the deadline is within the interval of the cycle time."""
    deadline = prepared.problem.requirements.rules.deadline
    assert candidate.score is not None
    performance = candidate.score.performance
    return deadline is not None and performance is not None and performance.interval[1] > deadline


def _as_candidate(design: Design, score: DesignScore) -> Candidate:
    nothing = np.zeros(0, np.int64)
    return Candidate(design, "start", 0.0, 0, nothing, nothing, np.zeros(0, np.bool_), -1, score)
