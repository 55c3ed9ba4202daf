"""The measures of a score: four groups, the scale of each measure, and how maintainability is measured."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from groupwise.workflows.requirements import RequiredActivity
from groupwise.workflows.scoring.design_metrics import Anatomy
from groupwise.workflows.scoring.metrics import Metrics

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


TOO_MANY_ELEMENTS = 50
DEEP = 3
LEAST_DEGREE = 3
FEW_PATHS = 10
# Endings of nouns made from verbs ("verification of claim"), and verbs that happen to have one.
NOUN = re.compile(r"(tion|sion|ment|ance|ence|ness|ity|ing|sis)$")
VERBS = {"bring", "complement", "commission", "condition", "document", "enhance", "finance", "implement", "mention"}
VERBS |= {
    "advance",
    "balance",
    "commence",
    "ping",
    "position",
    "question",
    "reference",
    "ring",
    "sequence",
    "supplement",
}


def readability(metrics: Metrics, labels: float) -> float:
    """The mean of five guidelines, each between 0 and 1; `labels` is the share with a verb and an object."""
    size = halved(metrics.nodes, 0, TOO_MANY_ELEMENTS)
    degree = min(1.0, LEAST_DEGREE / metrics.mean_degree) if metrics.connectors else 1.0
    return (size + labels + degree + halved(metrics.depth, 0, DEEP) + metrics.structuredness) / 5


@lru_cache(maxsize=65_536)
def verb_and_object(label: str) -> bool:
    """Whether a label reads like "check claim": two words or more, the first no noun made from a verb."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", label).replace("_", " ").replace("-", " ").lower().split()
    return len(words) >= 2 and (words[0] in VERBS or not NOUN.search(words[0]))


def modularity(anatomy: Anatomy) -> float:
    """The mean of separability and the share of blocks that are small enough to keep in mind."""
    small = 1 - anatomy.wide / anatomy.blocks if anatomy.blocks else 1.0
    return (anatomy.metrics.separability + small) / 2


def is_described(activity: RequiredActivity) -> bool:
    """Whether its documentation says something: three words or more."""
    return len(activity.documentation.split()) >= 3


def documentation(activities: float, whole: bool) -> float:
    """Four fifths for the share of activities with a description, one fifth for that of the whole."""
    return 0.8 * activities + 0.2 * whole


def testability(metrics: Metrics, rarest: float) -> float:
    """The mean of basis paths (1 at one, half at ten) and of the rarest activity (1 if always, half if one in ten)."""
    seen = 1 / (1 - math.log10(rarest)) if rarest > 0 else 0.0
    return (halved(metrics.cyclomatic, 1, FEW_PATHS) + seen) / 2
