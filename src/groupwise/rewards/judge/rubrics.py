"""What a judge looks for: the criteria of each domain, each with its own score.

A rubric is data. Make your own with `Rubric(name, criteria)`, or choose one of `RUBRICS` by name.
"""

import math
import re
from dataclasses import dataclass

from groupwise.errors import ConfigError

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
TAKEN = ("id", "reason")


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing to score from 0 to 1: its name in the scores, the question to the judge, and its weight."""

    name: str
    asks: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in TAKEN:
            hint = f"Use up to 40 lower-case letters, digits and underscores, but not {' or '.join(TAKEN)}."
            raise ConfigError(f"a criterion cannot be called {self.name!r}", hint=hint)
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"criterion {self.name} has weight {self.weight!r}, but needs one above 0")


@dataclass(frozen=True, slots=True)
class Rubric:
    """Named criteria, and what else the judge should know about the domain."""

    name: str
    criteria: tuple[Criterion, ...]
    advice: str = ""

    def __post_init__(self) -> None:
        names = self.names
        if not names or len(set(names)) < len(names):
            message = f"rubric {self.name!r} has criteria {', '.join(names) or 'none'}"
            raise ConfigError(message, hint="List one or more, each only once.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(criterion.name for criterion in self.criteria)

    def total(self, parts: dict[str, float]) -> float:
        """The weighted mean of the criteria, in [0, 1]."""
        weights = math.fsum(c.weight for c in self.criteria)
        return math.fsum(c.weight * parts[c.name] for c in self.criteria) / weights

    def text(self) -> str:
        """The rubric as the judge reads it."""
        lines = [f"- {c.name}{f' (counts {c.weight:g})' if c.weight != 1 else ''}: {c.asks}" for c in self.criteria]
        return "\n".join([*([self.advice] if self.advice else []), *lines])


def _rubric(name: str, advice: str, **criteria: str) -> Rubric:
    return Rubric(name, tuple(Criterion(key, asks) for key, asks in criteria.items()), advice)


GENERAL = _rubric(
    "general",
    "An attempt that reaches the goal beats one that does not; one that gets further, or as far with less, beats "
    "one that does not.",
    goal="Does it reach what was asked, completely and correctly?",
    efficiency="Does it get there without detours, repetition or padding?",
    honesty="Does it avoid making things up, and say so where it does not know or cannot do something?",
)
CUSTOMER_SERVICE = _rubric(
    "customer_service",
    "A customer is being helped.",
    helpfulness="Does it move the customer's actual concern forward?",
    empathy="Does it notice how the customer feels and respond to that, sincerely?",
    clarity="Is it easy to understand, and clear about what happens next?",
    professionalism="Is it courteous, calm and appropriate for a company to say?",
    completeness="Does it cover everything that was asked?",
)
TECHNICAL_SUPPORT = _rubric(
    "technical_support",
    "A technical problem is being solved.",
    accuracy="Is what it says technically right, and safe to follow?",
    clarity="Are the steps in order, concrete, and understandable to this user?",
    problem_resolution="Does it find the cause, and solve the problem or clearly come closer to solving it?",
)
SALES = _rubric(
    "sales",
    "A customer is considering a purchase. Pressure and false claims are faults, not skills.",
    product_knowledge="Is what it says about the product right and specific?",
    needs_identification="Does it find out and address what this customer needs?",
    value_proposition="Does it say honestly what the product would do for this customer?",
)
EDUCATIONAL = _rubric(
    "educational",
    "A learner is being taught.",
    correctness="Is everything it teaches right?",
    pedagogical_approach="Does it build on what the learner knows and make them think, rather than just telling them?",
    engagement="Does it keep the learner involved and encouraged?",
)
CREATIVE = _rubric(
    "creative",
    "A text is written for its own sake, within what was asked.",
    creativity="Is it original and surprising where that serves the piece?",
    coherence="Does it hold together from beginning to end?",
    style="Is the language well crafted, and right for the form and the audience?",
)
RUBRICS = {r.name: r for r in (GENERAL, CUSTOMER_SERVICE, TECHNICAL_SUPPORT, SALES, EDUCATIONAL, CREATIVE)}


def rubric_of(given: Rubric | str) -> Rubric:
    """A rubric by name; a `Rubric` is returned as it is."""
    if isinstance(given, Rubric):
        return given
    if given not in RUBRICS:
        raise ConfigError(f"unknown rubric {given!r}", hint=f"Choose one of {', '.join(RUBRICS)}, or make a Rubric.")
    return RUBRICS[given]
