"""What a reward is, as a class or a plain function, and two simple rewards: the environment's own, and a fallback."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.errors import ContractError
from groupwise.rewards.scoring import per_attempt, score_group, score_groups
from groupwise.thoughts import REASONING, apart
from groupwise.types import End, Failed, Group, Message, Reward, Score, Task, Trajectory


def turns_of(attempt: Trajectory) -> list[Message]:
    """The conversation of an attempt, thoughts and answers apart; a single answer counts as a question and a reply."""
    meta = attempt.meta
    if "messages" in meta:
        return [apart(message) for message in meta["messages"]]
    prompt = meta.get("prompt", "")
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if "content" not in meta:
        return [*asked, apart({"role": "assistant", "content": meta.get("text", "")})]
    said = {"content": meta["content"], REASONING: meta["reasoning"], "text": meta["text"]}
    return [*asked, {"role": "assistant", **said}]


def attempt_of(turns: Sequence[Message]) -> Trajectory:
    """A conversation as an attempt without tokens, to score it outside of a run."""
    none = np.zeros(0)
    return Trajectory(
        "conversation", "conversation", "conversation", none, none, none > 0, none, none, none, End.FINISHED, True,
        meta={"messages": tuple(turns)},
    )  # fmt: skip


class RewardFunction:
    """The base class of rewards for conversations.

    Define `compute_reward(turns)`, which sees one conversation and returns a number or a `Score` (or something to
    await). A reward that compares the attempts of a group defines `score_group(task, group)` instead.
    """

    def __init__(self, weight: float = 1.0, name: str | None = None) -> None:
        self.weight = weight
        self.name = name or type(self).__name__

    def compute_reward(self, turns: Sequence[Message]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines neither compute_reward nor score_group")

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        """One score per attempt, in order; if `compute_reward` raises, only that attempt has failed."""
        return await of_turns(self.compute_reward, self.name)(task, group)

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        return await self.score_group(task, group)


def score_conversation(reward: Reward, turns: Sequence[Message]) -> Score:
    """Score one conversation by itself; raises `ContractError` if the reward fails on it."""
    attempt = attempt_of(turns)
    (scored,) = score_groups(reward, [Group(attempt.group_id, Task(attempt.task_id), (attempt,))])
    (score,) = scored.scores
    if isinstance(score, Failed):
        raise ContractError(score.failure.message, hint=score.failure.hint)
    return score


def of_turns(score: Callable[[Sequence[Message]], Any], name: str) -> Reward:
    """A reward from a function of one conversation's turns, async or not; failures mention its name."""
    return per_attempt(lambda _, attempt: score(turns_of(attempt)), name)


def needed(function: Callable[..., Any]) -> int:
    """How many positional arguments the function requires."""
    places = [p for p in parameters(function) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in places)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function; none for a builtin that has no signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return []


class EnvironmentReward:
    """The sum of the rewards that the environment gave along the way."""

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        totals = [float(np.sum(attempt.rewards, dtype=np.float64)) for attempt in group]
        return [
            Score(total, {"environment": total, **attempt.meta.get("parts", {})}, rewards=attempt.rewards)
            for attempt, total in zip(group, totals, strict=True)
        ]


FALLBACK_FLAG = "fallback"


class WithFallback:
    """Asks `reward` up to `1 + retries` times until it scores the whole group, then asks `fallback`.

    A group is scored by one or the other, never by both: scores are compared within the group, and the two use
    different scales. Scores of the fallback carry the flag "fallback"; missing scores of `reward` are never made up.
    """

    def __init__(self, reward: Reward, fallback: Reward, retries: int = 1) -> None:
        self.reward, self.fallback, self.retries = reward, fallback, retries

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        attempts = Group(group[0].group_id, task, tuple(group))
        for _ in range(1 + self.retries):
            scores = (await score_group(self.reward, attempts)).scores
            if not any(isinstance(score, Failed) for score in scores):
                return scores
        return await stand_in(self.fallback, attempts, FALLBACK_FLAG)


async def stand_in(fallback: Reward, group: Group, flag: str) -> Sequence[Score | Failed]:
    """The scores of a reward that replaces another, each with a flag that says so."""
    scores = (await score_group(fallback, group)).scores
    return [s if isinstance(s, Failed) else replace(s, flags=(*s.flags, flag)) for s in scores]
