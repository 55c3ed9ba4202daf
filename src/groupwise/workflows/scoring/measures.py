"""The measures of a score: four groups, the scale of each measure, and how maintainability is measured.

A scale turns a value into a share between 0 and 1. It is fixed by the requirements or by a constant of this table, so a
score means the same in every batch. docs/workflows.md has the formulas and their sources.

Maintainability asks whether people can read, split up, look up and test a design; each answer is between 0 and 1:

- readability: the seven process modeling guidelines (Mendling, Reijers and van der Aalst 2010), as far as a block
  design can break them: few elements, few ways per gateway, verb and object in every label, structured, little nesting
- modularity: separability (Mendling 2008), and blocks of at most seven parts
- documentation: the share of activities with a description that says something, and whether the design has one
- testability: basis paths to be tested (Watson and McCabe 1996), and how often the rarest activity is executed (one
  part of Voas's propagation, infection and execution, 1992)
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
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

    Both are templates: `scale` with {reference}, `words` with {value}. `weight` is relative to the others of its group.
    """

    name: str
    group: Group
    unit: str
    scale: str
    words: str
    weight: float = 1.0


# Time and cost outweigh everything else in performance, and cost in resources: that is what a process is redesigned
# for. The weights were chosen on the pairs of `benchmarks/design_pairs` that are marked for tuning.
MEASURES: tuple[Measure, ...] = (
    Measure("cycle time", "performance", "s",
            "1 at {reference}, the lower bound for any design; half at twice that",
            "a case takes {value} on average", 5.0),
    Measure("cost", "performance", "",
            "1 at {reference:.4g}, with the fewest servers that could do the work; half at twice that",
            "a case costs {value:.4g}", 3.0),
    Measure("memory", "performance", "B·s",
            "1 at {reference:.4g} byte-seconds, which every case needs; half at twice that",
            "a case uses {value:.4g} byte-seconds of memory", 0.5),
    Measure("CPU utilisation", "performance", "", "the share itself",
            "{value:.0%} of the cores of its machines are busy on average", 0.5),
    Measure("throughput", "performance", "1/s",
            "1 at {reference:.4g} per second, the arrival rate or the best possible rate",
            "{value:.4g} cases are completed per second"),
    Measure("cyclomatic complexity", "structure", "",
            "1 at {reference:.0f}, which the requirements demand; half at 9 more",
            "independent paths: {value:.0f}", 2.0),
    Measure("control-flow complexity", "structure", "",
            "1 at {reference:.0f}, which the requirements demand; half at 20 more",
            "states of its splits that a reader must keep in mind: {value:.0f}", 2.0),
    Measure("fan-in and fan-out", "structure", "", "1 at 1, half at 5",
            "the root mean square of fan-in · fan-out is {value:.3g}", 0.5),
    Measure("connectivity", "structure", "", "1 at 1 or less, half at 2", "flows per element: {value:.3g}",
            0.5),
    Measure("path coverage", "structure", "", "the share itself",
            "{value:.0%} of the activities that cases need are done", 2.0),
    Measure("readability", "maintainability", "", "the mean of five guidelines",
            "size, labels, gateways, nesting and structure average {value:.0%}"),
    Measure("modularity", "maintainability", "",
            "0.9 for blocks of at most seven parts, 0.1 for separability", "{value:.0%} modular"),
    Measure("documentation", "maintainability", "", "0.8 for activities, 0.2 for the design",
            "{value:.0%} is documented"),
    Measure("testability", "maintainability", "", "the mean of basis paths and the rarest activity",
            "{value:.0%} for few basis paths and activities that are seldom skipped"),
    Measure("utilisation", "resources", "", "1 at 80%, falling to 0 at 0% and at 100%",
            "servers are busy {value:.0%} of their staffed time"),
    Measure("cost efficiency", "resources", "", "the share itself",
            "{value:.0%} of the cost pays for work that every design needs", 2.0),
    Measure("scalability", "resources", "", "1 minus the load of the busiest pool",
            "the busiest pool is {value:.0%} loaded"),
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
    """1 up to `best`, one half at `half`, and falling towards 0: 1 / (1 + ((value − best) / (half − best))²).

    Squared, because a first split costs a reader next to nothing and the tenth a lot.
    """
    return 1.0 if value <= best else 1 / (1 + ((value - best) / (half - best)) ** 2)


def busy(value: float) -> float:
    """1 at 80%: servers that are less busy cost too much, busier ones make everybody wait."""
    if not 0 <= value < 1:
        return 0.0
    return value / BUSY_ENOUGH if value <= BUSY_ENOUGH else (1 - value) / (1 - BUSY_ENOUGH)


def share_of(value: float) -> float:
    """A share, clipped to 0 … 1; NaN and infinity count as 0."""
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


# Thresholds of the guidelines: more than 50 elements should be decomposed; a gateway has at least three flows; ten
# basis paths, nine more than one, are McCabe's limit. At each the measure is one half (at LEAST_DEGREE it is still 1).
TOO_MANY_ELEMENTS = 50
DEEP = 5
LEAST_DEGREE, MANY_WAYS = 3, 8
MORE_PATHS = 9
# Endings of nouns made from verbs ("verification of claim"), and verbs that happen to end like that.
NOUN = re.compile(r"(tion|sion|ment|ance|ence|ness|ity|ing|sis)$")
VERBS = {
    "advance", "balance", "bring", "commence", "commission", "complement", "condition", "document", "enhance",
    "finance", "implement", "mention", "ping", "position", "question", "reference", "ring", "sequence", "supplement",
}  # fmt: skip


def readability(metrics: Metrics, labels: float) -> float:
    """The mean of five guidelines, each between 0 and 1; `labels` is the share with a verb and an object."""
    size = halved(metrics.nodes, 0, TOO_MANY_ELEMENTS)
    degree = halved(metrics.mean_degree, LEAST_DEGREE, MANY_WAYS)
    return (size + labels + degree + halved(metrics.depth, 0, DEEP) + metrics.structuredness) / 5


@lru_cache(maxsize=65_536)
def verb_and_object(label: str) -> bool:
    """Whether a label reads like "check claim": at least two words, the first not a noun made from a verb."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", label).replace("_", " ").replace("-", " ").lower().split()
    return len(words) >= 2 and (words[0] in VERBS or not NOUN.search(words[0]))


def modularity(anatomy: Anatomy) -> float:
    """Separability for a tenth, and the share of blocks that are small enough to keep in mind.

    Every block is a module, with one way in and one way out; separability would count parallel work as none.
    """
    small = 1 - anatomy.wide / anatomy.blocks if anatomy.blocks else 1.0
    return 0.1 * anatomy.metrics.separability + 0.9 * small


# Words that stand where a description is still missing.
FILLER = {
    "asdf", "bar", "baz", "blah", "description", "dolor", "dummy", "foo", "here", "ipsum", "lorem", "missing", "none",
    "placeholder", "sample", "tba", "tbd", "test", "text", "todo", "xxx",
}  # fmt: skip


def says_something(text: str, name: str) -> bool:
    """Whether a description has three words or more that are neither filler nor in the name of what it describes."""
    words = set(re.findall(r"[^\W\d_]{3,}", text.lower())) - FILLER - set(re.findall(r"[^\W\d_]+", name.lower()))
    # Scripts without spaces between words: a few different signs are a sentence.
    signs = {sign for sign in text if sign > "\u2e80" and sign.isalpha()} - set(name)
    return len(words) >= 3 or len(signs) >= 6


def described(activities: Mapping[str, RequiredActivity]) -> set[str]:
    """The activities whose documentation says something, and not the same as that of another."""
    texts = {name: " ".join(activity.documentation.lower().split()) for name, activity in activities.items()}
    often = Counter(texts.values())
    return {name for name, text in texts.items() if often[text] == 1 and says_something(text, name)}


def documentation(activities: float, whole: bool) -> float:
    """Four fifths for the share of activities with a description, one fifth for a description of the design."""
    return 0.8 * activities + 0.2 * whole


def testability(metrics: Metrics, rarest: float, paths: int) -> float:
    """The mean of basis paths (1 at those demanded, half at nine more) and of the rarest activity.

    That is 1 if every case has it, half if one in ten does.
    """
    seen = 1 / (1 - math.log10(rarest)) if rarest > 0 else 0.0
    return (halved(metrics.paths, paths, paths + MORE_PATHS) + seen) / 2
