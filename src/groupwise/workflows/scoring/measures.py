"""The measures of a score: four groups, the scale of each measure, and how maintainability is measured.

A scale turns a value into a share between 0 and 1. It is fixed by the requirements or by a constant of this table, so a
score means the same in every batch. docs/workflows.md has the formulas and their sources.

Maintainability asks whether people can read, split up, look up and test a design; each answer is between 0 and 1:

- readability: the seven process modeling guidelines (Mendling, Reijers and van der Aalst 2010), as far as a block
  design can break them: few elements, few ways per gateway, verb and object in every label, structured, little nesting
- modularity: separability (Mendling 2008), and blocks of at most seven parts
- documentation: the share of activities with a description, and whether the design has one
- testability: basis paths to be tested (Watson and McCabe 1996), and how often the rarest activity is executed (one
  part of Voas's propagation, infection and execution, 1992)
"""

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
    """One measure: `scale` says which value scores 1 and which scores less, `words` puts a value into a sentence.

    Both are templates: `scale` with {reference}, `words` with {value}.
    """

    name: str
    group: Group
    unit: str
    scale: str
    words: str


MEASURES: tuple[Measure, ...] = (
    Measure("cycle time", "performance", "s",
            "1 at {reference:.4g} s, the lower bound for any design; half at twice that",
            "a case takes {value:.4g} s on average"),
    Measure("memory", "performance", "B·s",
            "1 at {reference:.4g} byte-seconds, which every case needs; half at twice that",
            "a case uses {value:.4g} byte-seconds of memory"),
    Measure("CPU utilisation", "performance", "", "the share itself",
            "{value:.0%} of the cores of its machines are busy on average"),
    Measure("throughput", "performance", "1/s",
            "1 at {reference:.4g} per second, the arrival rate or the best possible rate",
            "{value:.4g} cases are completed per second"),
    Measure("cyclomatic complexity", "structure", "", "1 at 1, half at 10, McCabe's limit",
            "independent paths: {value:.0f}"),
    Measure("control-flow complexity", "structure", "", "1 at 0, half at 20",
            "states of its splits that a reader must keep in mind: {value:.0f}"),
    Measure("fan-in and fan-out", "structure", "", "1 at 1, half at 5",
            "(fan-in · fan-out)² averages {value:.3g} per element"),
    Measure("connectivity", "structure", "", "1 at 1 or less, half at 1.5", "flows per element: {value:.3g}"),
    Measure("path coverage", "structure", "", "the share itself",
            "{value:.0%} of the activities that cases need are done"),
    Measure("readability", "maintainability", "", "the mean of five guidelines",
            "size, labels, gateways, nesting and structure average {value:.0%}"),
    Measure("modularity", "maintainability", "",
            "the mean of separability and the share of blocks of at most seven parts", "{value:.0%} modular"),
    Measure("documentation", "maintainability", "", "0.8 for activities, 0.2 for the design",
            "{value:.0%} is documented"),
    Measure("testability", "maintainability", "", "the mean of basis paths and the rarest activity",
            "{value:.0%} for few basis paths and activities that are seldom skipped"),
    Measure("utilisation", "resources", "", "1 at 80%, falling to 0 at 0% and at 100%",
            "servers are busy {value:.0%} of their staffed time"),
    Measure("cost", "resources", "", "1 at {reference:.4g}, the lower bound for any design; half at twice that",
            "a case costs {value:.4g}"),
    Measure("scalability", "resources", "", "1 minus the load at full staffing",
            "with as many servers as allowed, the busiest pool would be {value:.0%} loaded"),
    Measure("contention", "resources", "", "1 minus the share of waiting",
            "a case spends {value:.0%} of its time waiting"),
)  # fmt: skip
BY_GROUP: dict[Group, tuple[int, ...]] = {
    group: tuple(n for n, measure in enumerate(MEASURES) if measure.group == group) for group in GROUPS
}
BUSY_ENOUGH = 0.8  # queues grow steeply above this utilisation


def at_least(reference: float, value: float) -> float:
    """1 at the lowest possible value, half at twice that, and so on; 0 at infinity."""
    return min(1.0, reference / value) if value > 0 else 1.0


def halved(value: float, best: float, half: float) -> float:
    """1 up to `best`, one half at `half`, and falling towards 0: 1 / (1 + (value − best) / (half − best))."""
    return 1.0 if value <= best else 1 / (1 + (value - best) / (half - best))


def busy(value: float) -> float:
    """1 at 80%: servers that are less busy cost too much, busier ones make everybody wait."""
    if not 0 <= value < 1:
        return 0.0
    return value / BUSY_ENOUGH if value <= BUSY_ENOUGH else (1 - value) / (1 - BUSY_ENOUGH)


def share_of(value: float) -> float:
    """A share, clipped to 0 … 1; NaN and infinity count as 0."""
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


# Thresholds of the guidelines: more than 50 elements should be decomposed; a gateway has at least three flows; ten
# basis paths are McCabe's limit. At each the measure is one half (at LEAST_DEGREE it is still 1).
TOO_MANY_ELEMENTS = 50
DEEP = 3
LEAST_DEGREE = 3
FEW_PATHS = 10
# Endings of nouns made from verbs ("verification of claim"), and verbs that happen to end like that.
NOUN = re.compile(r"(tion|sion|ment|ance|ence|ness|ity|ing|sis)$")
VERBS = {
    "advance", "balance", "bring", "commence", "commission", "complement", "condition", "document", "enhance",
    "finance", "implement", "mention", "ping", "position", "question", "reference", "ring", "sequence", "supplement",
}  # fmt: skip


def readability(metrics: Metrics, labels: float) -> float:
    """The mean of five guidelines, each between 0 and 1; `labels` is the share with a verb and an object."""
    size = halved(metrics.nodes, 0, TOO_MANY_ELEMENTS)
    degree = min(1.0, LEAST_DEGREE / metrics.mean_degree) if metrics.connectors else 1.0
    return (size + labels + degree + halved(metrics.depth, 0, DEEP) + metrics.structuredness) / 5


@lru_cache(maxsize=65_536)
def verb_and_object(label: str) -> bool:
    """Whether a label reads like "check claim": at least two words, the first not a noun made from a verb."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", label).replace("_", " ").replace("-", " ").lower().split()
    return len(words) >= 2 and (words[0] in VERBS or not NOUN.search(words[0]))


def modularity(anatomy: Anatomy) -> float:
    """The mean of separability and the share of blocks that are small enough to keep in mind."""
    small = 1 - anatomy.wide / anatomy.blocks if anatomy.blocks else 1.0
    return (anatomy.metrics.separability + small) / 2


def is_described(activity: RequiredActivity) -> bool:
    """Whether its documentation says something: at least three words."""
    return len(activity.documentation.split()) >= 3


def documentation(activities: float, whole: bool) -> float:
    """Four fifths for the share of activities with a description, one fifth for a description of the design."""
    return 0.8 * activities + 0.2 * whole


def testability(metrics: Metrics, rarest: float) -> float:
    """The mean of basis paths (1 at one, half at ten) and of the rarest activity (1 if always, half if one in ten)."""
    seen = 1 / (1 - math.log10(rarest)) if rarest > 0 else 0.0
    return (halved(metrics.cyclomatic, 1, FEW_PATHS) + seen) / 2
