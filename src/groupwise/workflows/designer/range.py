"""How far requirements are from those that the policy was trained on, and how to search where it knows little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from groupwise.config.sections import GenerationSettings
from groupwise.workflows.designer.features import WHOLE, whole_of
from groupwise.workflows.designer.problem import Problem
from groupwise.workflows.designer.worlds import SIZES

WARY = GenerationSettings(batch_size=8, epsilon_greedy=0.2, exploration_epsilon=0.5, exploration_share=0.5)
"""Small generations and more chance: the policy's first ideas are tried, and search soon goes on from them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number of requirements: what training had of it, and how far from that a policy can still be relied on."""

    name: str
    trained: tuple[float, float]
    near: tuple[float, float]
    words: str

    def far(self, value: float) -> bool:
        return not self.near[0] <= value <= self.near[1]

    def told(self, value: float) -> str:
        low, high = (f"{end:.2g}" for end in self.trained)
        return f"{self.words} {value:.3g} (trained: {low} to {high})"


SPANS = (
    Span("activities", SIZES, (3, 200), "activities:"),
    Span("pools", (1, 8), (0, 16), "pools:"),
    Span("load", (0.04, 0.75), (0.005, 0.95), "share of all capacity that the work needs:"),
    Span("failure", (0.0, 0.14), (0.0, 0.35), "mean probability that a try fails:"),
    Span("cases", (0.5, 52.0), (0.05, 1000.0), "cases in progress, were there no waiting:"),
    Span("branches", (0.0, 0.55), (0.0, 1.0), "branches per activity:"),
)


def numbers_of(problem: Problem) -> dict[str, float]:
    """What `SPANS` compare."""
    whole = dict(zip(WHOLE, whole_of(problem), strict=True))
    return {
        "activities": len(problem.names),
        "pools": len(problem.pool_names),
        "load": whole["load"],
        "failure": float(problem.failure.mean()),
        "cases": problem.rate * float((problem.mean * problem.share).sum()),
        "branches": len(problem.forks) / len(problem.names),
    }


def far_outside(problem: Problem) -> tuple[str, ...]:
    """In words, how the requirements are unlike anything that was trained on; nothing where they are near enough."""
    return tuple(_far(problem))


def _far(problem: Problem) -> Iterator[str]:
    if problem.requirements.demand.arrivals_per_second is None:
        # Times and loads of a single run are its own, so nothing else is compared but its size.
        yield "a single run (trained: cases that keep arriving)"
    found = numbers_of(problem)
    spans = SPANS if problem.requirements.demand.arrivals_per_second is not None else SPANS[:1]
    yield from (span.told(found[span.name]) for span in spans if span.far(found[span.name]))


def note(far: tuple[str, ...]) -> str:
    return f"far from what the policy was trained on: {'; '.join(far)}. It searches with more chance instead."
