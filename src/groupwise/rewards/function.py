"""`RewardFunction`: a reward as a class, for conversations. Subclass it, or give a plain function to `as_reward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.rewards.scoring import is_async, per_attempt
from groupwise.types import End, Failed, Message, Reward, Score, Task, Trajectory


def turns_of(attempt: Trajectory) -> list[Message]:
    """The conversation of an attempt; a single answer is a question and a reply."""
    meta = attempt.meta
    if "messages" in meta:
        return list(meta["messages"])
    prompt = meta.get("prompt", "")
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return [*asked, {"role": "assistant", "content": meta.get("text", "")}]


def attempt_of(turns: Sequence[Message]) -> Trajectory:
    """A conversation as an attempt, for scoring it outside of a run: it has no tokens."""
    none = np.zeros(0)
    return Trajectory(
        "conversation", "conversation", "conversation", none, none, none > 0, none, none, none, End.FINISHED, True,
        meta={"messages": tuple(turns)},
    )  # fmt: skip


class RewardFunction:
    """What a conversation is worth.

    Give `compute_reward(turns)`, which sees one conversation and returns a number or a `Score` (or something to await).
    A reward that compares the attempts of a group gives `score_group(task, group)` instead.
    """

    def __init__(self, weight: float = 1.0, name: str | None = None) -> None:
        self.weight = weight
        self.name = name or type(self).__name__

    def compute_reward(self, turns: Sequence[Message]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} gives neither compute_reward nor score_group")

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        """One score each, in order; where `compute_reward` raises, that attempt alone has failed."""
        return await of_turns(self.compute_reward, self.name)(task, group)

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        return await self.score_group(task, group)


def as_reward(given: Reward | Callable[[Sequence[Message]], Any]) -> Reward:
    """A reward from what a user has: a `RewardFunction`, an async reward of a group, or a function of turns."""
    if isinstance(given, type) or not callable(given):
        raise ConfigError(
            f"{given!r:.60} is no reward",
            hint=f"Make it first: {given.__name__}(…)." if isinstance(given, type) else "Give a function of turns.",
        )
    if isinstance(given, RewardFunction) or (is_async(given) and needed(given) != 1):
        return given  # type: ignore[return-value]
    return of_turns(given, getattr(given, "__qualname__", type(given).__name__))  # type: ignore[arg-type]


def of_turns(score: Callable[[Sequence[Message]], Any], name: str) -> Reward:
    """A reward from a function of one conversation's turns, async or not; failures tell its name."""

    def score_one(_: Task, attempt: Trajectory) -> Any:
        return score(turns_of(attempt))

    score_one.__qualname__ = name
    return per_attempt(score_one)


def needed(function: Callable[..., Any]) -> int:
    """How many arguments must be given by place."""
    places = [p for p in parameters(function) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in places)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those of a function; none of one that does not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return []
