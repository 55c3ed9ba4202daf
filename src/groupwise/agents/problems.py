"""The contract of whatever delivers problems: a registered task, a data file, or a library of generators.

    find_problems(cfg.task) → Problems → Problem → the model's text → Score

`agents/finding.py` finds one by name; training, evaluation and supervised runs know no more than this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from groupwise.errors import ConfigError
from groupwise.types import Message, Score


@dataclass(frozen=True)
class Problem:
    """What is asked, and what is known about its answer.

    `prompt` is one text, or the messages of a chat so far. `columns` are all that came with the problem, for rewards
    that need more than the answer. `place` says where it is from, for messages about it.
    """

    prompt: str | tuple[Message, ...]
    answer: str
    columns: Mapping[str, Any] = field(default_factory=dict, repr=False)
    demonstration: str | None = None
    place: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ConfigError(f"{self.place or 'a problem'} has an empty prompt", hint="Ask something, or drop it.")

    @property
    def label(self) -> str:
        """How messages name the problem: by its place or, without one, by how it begins."""
        return self.place or f"the problem {self.text[:40]!r}"

    @property
    def messages(self) -> list[Message]:
        """The prompt as a chat."""
        return [{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else list(self.prompt)

    @property
    def roles(self) -> tuple[str, ...]:
        """Who speaks, in order."""
        return tuple(message["role"] for message in self.messages)

    @property
    def text(self) -> str:
        """The prompt as a reader sees it."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(message["content"] for message in self.prompt)


class Problems(Protocol):
    """Where problems come from.

    `training` is a pure function of its arguments, so that a run can go on anywhere; what it returns is never among
    what `held_out` returns, whatever the seeds. `grade` is called in a thread; what it returns may have to be awaited.
    `demonstration` is the text a supervised run imitates, or a
    `ConfigError` that says there is none.
    """

    @property
    def name(self) -> str: ...
    def training(self, seed: int, number: int) -> Problem: ...
    def held_out(self, seed: int, count: int) -> Sequence[Problem]: ...
    def grade(self, problem: Problem, text: str, finished: bool) -> Score | Awaitable[Score]: ...
    def demonstration(self, problem: Problem) -> str: ...


def is_correct(score: Score) -> bool | None:
    """Whether an answer is right: as a part `correct` of its score says, or else if it earned all of 1.

    None where nothing tells: a total beyond 0 to 1, or one that several rewards were combined into.
    """
    said = [value for name, value in score.parts.items() if name.rpartition(".")[2] == "correct"]
    if said:
        return min(said) >= 1.0
    combined = len(score.parts) > 1 and "environment" not in score.parts
    return score.total >= 1.0 if 0.0 <= score.total <= 1.0 and not combined else None
