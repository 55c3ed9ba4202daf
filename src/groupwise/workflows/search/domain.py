"""What a search needs to know of its domain, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Judged:
    """What an evaluation found: a value from 0 to 1 that guides the search, and whether nothing is left to improve.

    `notes` say the rest (outcome, message, time …) in what JSON can hold.
    """

    value: float
    solved: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


def itself(action: str) -> tuple[str, ...]:
    return (action,)


@dataclass(frozen=True, slots=True)
class Domain(Generic[State]):
    """Things made action by action from `root`; what has no further actions is finished and can be evaluated.

    name      tells domains apart; a saved tree is only taken up again by the domain that made it
    root      where everything begins
    actions   what may come next, each with its log-probability under the prior; none where a thing is finished
    step      the state after an action
    key       equal for states that are worth the same: they share a node, and one evaluation
    evaluate  what a finished thing is worth; called from several threads when several are in flight
    traits    what an action has in common with others, so that experience with one says something about the other
    """

    name: str
    root: State
    actions: Callable[[State], Sequence[tuple[str, float]]]
    step: Callable[[State, str], State]
    key: Callable[[State], str]
    evaluate: Callable[[State], Judged]
    traits: Callable[[str], Sequence[str]] = itself
