"""What a reader of a comparison must know before believing any of it."""

from __future__ import annotations

import statistics
from collections import Counter

from groupwise.reporting.comparison import Comparison, count_seeds
from groupwise.reporting.statistics import EXPLORATORY
from groupwise.training.numbers import number

UNEQUAL_BUDGETS = 1.2


def cautions(comparison: Comparison) -> list[str]:
    """One sentence for everything that weakens what the comparison says; often there is none."""
    return [*_few_seeds(comparison), *_budgets(comparison), *_unknown(comparison), *_failed(comparison)]


def _few_seeds(comparison: Comparison) -> list[str]:
    few = [standing for standing in comparison.standings if len(standing.seeds) < EXPLORATORY]
    told = ", ".join(f"{standing.algorithm}: {count_seeds(len(standing.seeds))}" for standing in few)
    rule = f"Fewer than {EXPLORATORY} seeds are exploratory: good for choosing what to run next, for no claim"
    return [f"{rule} ({told})."] if few else []


def _budgets(comparison: Comparison) -> list[str]:
    words = []
    for task in comparison.tasks:
        courses = {name: comparison.of(name, task) for name in comparison.algorithms}
        budgets = {name: statistics.median(c.budget for c in own) for name, own in courses.items() if own}
        if max(budgets.values()) > UNEQUAL_BUDGETS * min(budgets.values()):
            told = ", ".join(f"{name} {number(steps)}" for name, steps in budgets.items())
            words.append(
                f"Budgets differ in {task} (median steps: {told}); a course that ended earlier keeps its last score. "
                "Give all the same number of steps before comparing final scores."
            )
    return words


def _unknown(comparison: Comparison) -> list[str]:
    return [
        f"Nobody says what solves {task}: its scores run from the first (0) to the best of this comparison (1), "
        f"and there is no time to threshold. Give one with --threshold {task}=NUMBER."
        for task, scale in comparison.scales.items()
        if scale.solved is None
    ]


def _failed(comparison: Comparison) -> list[str]:
    told = Counter((f"{f.algorithm} in {f.environment}", f"{f.message} {f.hint}".strip()) for f in comparison.failures)
    return [
        f"{count} of {who} failed and {'is' if count == 1 else 'are'} not in any number: {why}"
        for (who, why), count in told.items()
    ]
