"""What a reward is, as a class or a plain function, and three small ones.

They are the environment's own pay, a heuristic on the words, and one reward standing in for another.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.errors import ConfigError
from groupwise.rewards.scoring import is_async, per_attempt, score_group
from groupwise.types import End, Failed, Group, Message, Reward, Score, Task, Trajectory


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


class EnvironmentReward:
    """Scores an attempt by the sum of its environment's rewards."""

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        return [_paid(trajectory) for trajectory in group]


def _paid(trajectory: Trajectory) -> Score:
    total = float(np.sum(trajectory.rewards, dtype=np.float64))
    parts = trajectory.meta.get("parts", {})
    return Score(total, {"environment": total, **parts}, rewards=trajectory.rewards)


FALLBACK_FLAG = "fallback"


class WithFallback:
    """Asks `reward` up to `1 + retries` times until it scores the whole group, then asks `fallback`.

    A group is scored by one of them or the other, never half and half: scores are compared within the group,
    and two scales cannot be compared. Scores of the fallback carry the flag "fallback". What `reward` did
    not answer is never made up.
    """

    def __init__(self, reward: Reward, fallback: Reward, retries: int = 1) -> None:
        self.reward = reward
        self.fallback = fallback
        self.retries = retries

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        attempts = Group(group[0].group_id, task, tuple(group))
        for _ in range(1 + self.retries):
            scores = (await score_group(self.reward, attempts)).scores
            if not any(isinstance(score, Failed) for score in scores):
                return scores
        return await stand_in(self.fallback, attempts, FALLBACK_FLAG)


async def stand_in(fallback: Reward, group: Group, flag: str) -> Sequence[Score | Failed]:
    """The scores of a reward that stands in for another, each with a flag that says so."""
    scores = (await score_group(fallback, group)).scores
    return [s if isinstance(s, Failed) else replace(s, flags=(*s.flags, flag)) for s in scores]


WORD = re.compile(r"\w+")
ENOUGH_WORDS = 40


class HeuristicReward(RewardFunction):
    """The mean of three parts, each from 0 to 1; 0 for an attempt that said nothing.

    - relevance: the share of the user's words of four letters and more that the replies take up (1 if there are none);
    - substance: words in the replies by `enough`, at most 1;
    - variety: different words by words, which falls with repetition.
    """

    def __init__(self, weight: float = 1.0, name: str | None = None, enough: int = ENOUGH_WORDS) -> None:
        super().__init__(weight, name)
        self.enough = enough

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        said, asked = _words(turns, "assistant"), {word for word in _words(turns, "user") if len(word) > 3}
        if not said:
            return Score(0.0, {"relevance": 0.0, "substance": 0.0, "variety": 0.0})
        parts = {
            "relevance": len(asked & {*said}) / len(asked) if asked else 1.0,
            "substance": min(1.0, len(said) / self.enough),
            "variety": len({*said}) / len(said),
        }
        return Score(sum(parts.values()) / len(parts), parts)


def _words(turns: Sequence[Message], role: str) -> list[str]:
    texts = [turn.get("content") for turn in turns if turn.get("role") == role]
    return [word for text in texts if isinstance(text, str) for word in WORD.findall(text.lower())]
