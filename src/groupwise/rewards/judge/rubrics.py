"""What a judge looks for: the criteria of each domain, each with its own score.

A rubric is data. Make your own with `Rubric(name, criteria)`, or choose one of `RUBRICS` by name. In the rubrics here
the criterion `goal` gates the others: style, empathy or brevity cannot make up for a task that was not done.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.errors import ConfigError

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
TAKEN = ("id", "reason")
GOAL = "goal"
# Of an attempt that reaches its goal, the share of the total that the goal earns by itself.
REACHED = 0.7
# Of an attempt that misses it, the most that the other criteria can earn: enough to learn from, too little to win.
MISSED = 0.1


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
    """Named criteria, what else the judge should know about the domain, and which criterion gates the others."""

    name: str
    criteria: tuple[Criterion, ...]
    advice: str = ""
    gate: str | None = None

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            message = f"rubric {self.name!r} has no criteria, so there is nothing to score"
            raise ConfigError(message, hint="Give it at least one Criterion(name, question).")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"rubric {self.name!r} lists {', '.join(twice)} twice", hint="List each criterion once.")
        if self.gate is not None and self.gate not in names:
            message = f"rubric {self.name!r} is gated by {self.gate!r}, which is not one of its criteria"
            raise ConfigError(message, hint=f"Choose one of {', '.join(names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(criterion.name for criterion in self.criteria)

    def total(self, parts: Mapping[str, float]) -> float:
        """In [0, 1]: the weighted mean of the criteria or, with a gate, g·(0.7 + 0.3·m) + (1 − g)·0.1·m.

        g is the gate's mark and m the weighted mean of the other criteria. An attempt with g ≥ 0.8 beats every attempt
        with g ≤ 0.5, whatever the other marks: 0.7 · 0.8 = 0.56 against at most 0.5 + 0.5 · 0.1 = 0.55.
        """
        others = [criterion for criterion in self.criteria if criterion.name != self.gate]
        mean = _weighted_mean(others, parts) if others else 1.0
        if self.gate is None:
            return mean
        reached = parts[self.gate]
        return reached * (REACHED + (1 - REACHED) * mean) + (1 - reached) * MISSED * mean

    def text(self) -> str:
        """The rubric as the judge reads it."""
        lines = [f"- {c.name}{f' (counts {c.weight:g})' if c.weight != 1 else ''}: {c.asks}" for c in self.criteria]
        return "\n".join([*([self.advice] if self.advice else []), *lines])


def _weighted_mean(criteria: Sequence[Criterion], parts: Mapping[str, float]) -> float:
    return math.fsum(c.weight * parts[c.name] for c in criteria) / math.fsum(c.weight for c in criteria)


def _rubric(name: str, advice: str, **criteria: str) -> Rubric:
    """A rubric that its goal gates."""
    return Rubric(name, tuple(Criterion(key, asks) for key, asks in criteria.items()), advice, gate=GOAL)


GENERAL = _rubric(
    "general",
    "An attempt that gets further than another, or as far with less, is the better one.",
    goal="Does it reach what was asked, completely and correctly?",
    efficiency="Does it get there without detours, repetition or padding?",
    honesty="Does it avoid making things up, and say so where it does not know or cannot do something?",
)
CUSTOMER_SERVICE = _rubric(
    "customer_service",
    "A customer is being helped.",
    goal="Is the customer's request dealt with, as far as the assistant could deal with it?",
    helpfulness="Does it move the customer's actual concern forward?",
    empathy="Does it notice how the customer feels and respond to that, sincerely?",
    clarity="Is it easy to understand, and clear about what happens next?",
    professionalism="Is it courteous, calm and appropriate for a company to say?",
    completeness="Does it cover everything that was asked?",
)
TECHNICAL_SUPPORT = _rubric(
    "technical_support",
    "A technical problem is being solved.",
    goal="Would the problem be solved for a user who follows it?",
    accuracy="Is what it says technically right, and safe to follow?",
    clarity="Are the steps in order, concrete, and understandable to this user?",
    problem_resolution="Does it find the cause, and solve the problem or clearly come closer to solving it?",
)
SALES = _rubric(
    "sales",
    "A customer is considering a purchase. Pressure and false claims are faults, not skills.",
    goal="Does the customer get what they need to decide well, including that the product does not suit them?",
    product_knowledge="Is what it says about the product right and specific?",
    needs_identification="Does it find out and address what this customer needs?",
    value_proposition="Does it say honestly what the product would do for this customer?",
)
EDUCATIONAL = _rubric(
    "educational",
    "A learner is being taught.",
    goal="Would this learner come away with a right answer to what they asked, and understand it?",
    correctness="Is everything it teaches right?",
    pedagogical_approach="Does it build on what the learner knows and make them think, rather than just telling them?",
    engagement="Does it keep the learner involved and encouraged?",
)
CREATIVE = _rubric(
    "creative",
    "A text is written for its own sake, within what was asked.",
    goal="Is it a finished piece of the kind, on the subject and within the limits that were asked for?",
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
