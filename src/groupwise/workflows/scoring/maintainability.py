"""How well people will get on with a design: can it be read, taken apart, looked up and tested? Each is 0 to 1.

- readability: the seven process modeling guidelines (Mendling, Reijers and van der Aalst 2010), those that a block
  design can break: few elements, few ways per gateway, verb and object in every label, structured, not nested deeply
- modularity: separability (Mendling 2008), and blocks of at most seven parts
- documentation: the share of activities that are described, and whether the whole is
- testability: basis paths to be tested (Watson and McCabe 1996), and how often the rarest activity is executed (one
  part of Voas's propagation, infection and execution, 1992)
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from groupwise.workflows.requirements import Activity
from groupwise.workflows.scoring.anatomy import Anatomy
from groupwise.workflows.scoring.measures import halved
from groupwise.workflows.scoring.metrics import Metrics

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


def is_described(activity: Activity) -> bool:
    """Whether its documentation says something: three words or more."""
    return len(activity.documentation.split()) >= 3


def documentation(activities: float, whole: bool) -> float:
    """Four fifths for the share of activities with a description, one fifth for that of the whole."""
    return 0.8 * activities + 0.2 * whole


def testability(metrics: Metrics, rarest: float) -> float:
    """The mean of basis paths (1 at one, half at ten) and of the rarest activity (1 if always, half if one in ten)."""
    seen = 1 / (1 - math.log10(rarest)) if rarest > 0 else 0.0
    return (halved(metrics.cyclomatic, 1, FEW_PATHS) + seen) / 2
