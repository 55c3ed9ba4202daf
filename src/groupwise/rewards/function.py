"""What a reward is, as a class or a plain function, and three simple rewards.

The three are the environment's own reward, a heuristic on the words, and a reward with a fallback.
"""

import inspect
import re
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


WORD = re.compile(r"\w+")
ENOUGH_WORDS = 40  # a reply of so many words is full marks for substance


class HeuristicReward(RewardFunction):
    """A rough score from the words alone: the mean of three parts in [0, 1], and 0 if nothing was said.

    - relevance: the share of the user's words of four letters or more that the replies repeat (1 if there are none);
    - substance: words in the replies / `enough`, at most 1;
    - variety: distinct words / words, which falls with repetition.
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
    texts = [apart(turn).get("content") for turn in turns if turn.get("role") == role]
    return [word for text in texts if isinstance(text, str) for word in WORD.findall(text.lower())]
