"""Conversations to be rated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.types import Group, Score, Task


def said(*replies: str) -> list[dict[str, Any]]:
    """A conversation in which the assistant says these, one after another."""
    return [
        turn
        for text in replies
        for turn in ({"role": "user", "content": "And?"}, {"role": "assistant", "content": text})
    ]


@pytest.fixture(scope="session")
def growth() -> Callable[[Callable[[int], Any]], float]:
    """How many times the processor time of `work(size)` grows when the size does by 4: 4 is linear, 16 quadratic.

    It is a ratio of the program's own time, the best of three, and so does not depend on how busy the machine is.
    """

    def seconds(work: Callable[[int], Any], size: int) -> float:
        taken = []
        for _ in range(3):
            began = time.process_time()
            work(size)
            taken.append(time.process_time() - began)
        return min(taken)

    return lambda work: seconds(work, 80_000) / max(seconds(work, 20_000), 0.005)


@pytest.fixture(scope="session")
def rated() -> Callable[..., float]:
    """The total a reward gives to one conversation of these replies."""

    def rate(reward: Any, *replies: str) -> float:
        found = reward.compute_reward(said(*replies))
        return float(found.total if isinstance(found, Score) else found)

    return rate


@pytest.fixture(scope="session")
def scored() -> Callable[..., Sequence[Any]]:
    """The scores of a group of single replies, as a run would get them."""

    def score(reward: Any, *replies: str, payload: Any = None) -> Sequence[Any]:
        members = tuple(attempt_of(said(reply)) for reply in replies)
        (found,) = score_groups(reward, [Group("g", Task("t", payload), members)])
        return found.scores

    return score
