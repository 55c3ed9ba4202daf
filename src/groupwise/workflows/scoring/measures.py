"""What a score is made of: four groups of measures, the scale of each, and how it is told in words.

A scale turns a value into a share between 0 and 1. It is fixed by the requirements or by a constant of this table, so a
score means the same in every batch. docs/workflows.md has the formulas and where they come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Group: TypeAlias = Literal["performance", "structure", "maintainability", "resources"]
GROUPS: tuple[Group, ...] = ("performance", "structure", "maintainability", "resources")


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: `scale` says what is worth 1 and what less, `words` tells a value; both may use {reference}."""

    name: str
    group: Group
    unit: str
    scale: str
    words: str


MEASURES: tuple[Measure, ...] = (
    Measure("cycle time", "performance", "s",
            "1 at {reference:.4g} s, which no design goes below; half at twice that",
            "a case takes {value:.4g} s on average"),
    Measure("memory", "performance", "B·s",
            "1 at {reference:.4g} byte-seconds, which every case needs; half at twice that",
            "a case holds {value:.4g} byte-seconds of memory"),
    Measure("CPU utilisation", "performance", "",
            "the share itself",
            "{value:.0%} of the cores of its machines are busy on average"),
    Measure("throughput", "performance", "1/s",
            "1 at {reference:.4g} per second, which is what arrives or could at best be done",
            "{value:.4g} cases are done per second"),
    Measure("cyclomatic complexity", "structure", "",
            "1 at 1, half at 10, McCabe's limit",
            "independent ways through: {value:.0f}"),
    Measure("control-flow complexity", "structure", "",
            "1 at 0, half at 20",
            "states that its splits ask a reader to keep in mind: {value:.0f}"),
    Measure("fan-in and fan-out", "structure", "",
            "1 at 1, half at 5",
            "(fan-in · fan-out)² is {value:.3g} per element"),
    Measure("connectivity", "structure", "",
            "1 at 1 or less, half at 1.5",
            "flows per element: {value:.3g}"),
    Measure("path coverage", "structure", "",
            "the share itself",
            "{value:.0%} of what cases need is done"),
    Measure("readability", "maintainability", "",
            "the mean of five guidelines",
            "size, labels, degree of gateways, nesting and structure together reach {value:.0%}"),
    Measure("modularity", "maintainability", "",
            "the mean of separability and the share of blocks of at most seven parts",
            "it falls into modules to {value:.0%}"),
    Measure("documentation", "maintainability", "",
            "0.8 for activities, 0.2 for the whole",
            "{value:.0%} is described"),
    Measure("testability", "maintainability", "",
            "the mean of basis paths and the rarest activity",
            "how few cases a test needs, and how soon each activity is seen: {value:.0%}"),
    Measure("utilisation", "resources", "",
            "1 at 80%, falling to 0 at nothing and at 100%",
            "{value:.0%} of the staffed time is work"),
    Measure("cost", "resources", "",
            "1 at {reference:.4g}, which no design goes below; half at twice that",
            "a case costs {value:.4g}"),
    Measure("scalability", "resources", "",
            "1 less the load at full staffing",
            "with all servers allowed, the busiest pool would be {value:.0%} loaded"),
    Measure("contention", "resources", "",
            "1 less the share of waiting",
            "{value:.0%} of a case's time goes to waiting"),
)  # fmt: skip
BY_GROUP: dict[Group, tuple[int, ...]] = {
    group: tuple(n for n, measure in enumerate(MEASURES) if measure.group == group) for group in GROUPS
}
BUSY_ENOUGH = 0.8


def at_least(reference: float, value: float) -> float:
    """1 at the least possible value, half at twice it, and so on; nothing at infinity."""
    return min(1.0, reference / value) if value > 0 else 1.0


def halved(value: float, best: float, half: float) -> float:
    """1 at `best` or less, a half at `half`, falling on and never quite 0."""
    return 1.0 if value <= best else 1 / (1 + (value - best) / (half - best))


def busy(value: float) -> float:
    """1 at 80%: servers who are less busy cost too much, those who are more make everybody wait."""
    if not 0 <= value < 1:
        return 0.0
    return value / BUSY_ENOUGH if value <= BUSY_ENOUGH else (1 - value) / (1 - BUSY_ENOUGH)


def share_of(value: float) -> float:
    """A share as it is; what is no number is worth nothing."""
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
