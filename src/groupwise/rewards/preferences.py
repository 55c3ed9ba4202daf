"""What a learned reward learns from: of two conversations, which is better; and, where known, what each scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ConfigError
from groupwise.rewards.transcripts import Transcript, mark

FEW_OPENINGS = 4
ONE_IN = 5
MOST_PAIRS = 16


@dataclass(frozen=True, slots=True)
class Preference:
    """`better` is preferred to `worse`; their scores are those of whoever said so, None where nobody gave any."""

    better: Transcript
    worse: Transcript
    scores: tuple[float, float] | None = None

    def packed(self) -> list[Any]:
        return [self.better.packed(), self.worse.packed(), None if self.scores is None else list(self.scores)]

    @classmethod
    def unpacked(cls, state: Sequence[Any]) -> Preference:
        better, worse, scores = state
        return cls(Transcript.unpacked(better), Transcript.unpacked(worse), None if scores is None else tuple(scores))


Row: TypeAlias = "Preference | tuple[str, str, str] | Mapping[str, Any]"
Scored: TypeAlias = tuple[Transcript, float]


def preference_of(row: Row) -> Preference:
    """A preference from what a user has: (prompt, better, worse), or a row with `prompt`, `chosen` and `rejected`.

    Prompt and replies are texts or lists of messages, as datasets of preferences hold them.
    """
    if isinstance(row, Preference):
        return row
    try:
        prompt, chosen, rejected = (
            (row.get("prompt", ""), row["chosen"], row["rejected"]) if isinstance(row, Mapping) else row
        )
        opening = _messages("user", prompt)
        better, worse = (Transcript.of([*opening, *_messages("assistant", said)]) for said in (chosen, rejected))
        return Preference(better, worse)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{row!r:.80} is not a preference", hint="Give (prompt, better, worse) or {prompt, chosen, rejected}."
        ) from error


def read_preferences(path: Path) -> list[Preference]:
    """The rows of a file of JSON lines."""
    try:
        lines = path.read_text("utf8").splitlines()
        return [preference_of(json.loads(line)) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is no file of preferences: {error}", hint='A line is {"prompt", "chosen", …}.'
        ) from error


def _messages(role: str, said: Any) -> list[Mapping[str, Any]]:
    return [{"role": role, "content": said}] if isinstance(said, str) else list(said)


class Split:
    """Who is learned from and who is kept to judge the judge, for good: by what was said, not by chance.

    Conversations with one opening stay together, one opening in five is held out. The first few openings are divided
    by the whole conversation instead, so that a run of a single prompt has something to be judged on.
    """

    def __init__(self) -> None:
        self.first: list[int] = []

    def holds_out(self, transcript: Transcript) -> bool:
        opening = mark(transcript.opening)
        if opening not in self.first and len(self.first) < FEW_OPENINGS:
            self.first.append(opening)
        return (mark(transcript.turns) if opening in self.first else opening) % ONE_IN == 0


def all_pairs(group: Sequence[Scored], rng: np.random.Generator) -> list[Preference]:
    """Every pair whose scores differ; of many, a choice."""
    pairs = [_pair(a, b) for number, a in enumerate(group) for b in group[:number] if a[1] != b[1]]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    return [pairs[number] for number in sorted(rng.choice(len(pairs), MOST_PAIRS, replace=False).tolist())]


def disjoint_pairs(group: Sequence[Scored], rng: np.random.Generator) -> list[Preference]:
    """Pairs of which no two share a conversation: what a test that counts successes may count."""
    order = [group[number] for number in rng.permutation(len(group)).tolist()]
    return [_pair(a, b) for a, b in zip(order[::2], order[1::2], strict=False) if a[1] != b[1]]


def _pair(a: Scored, b: Scored) -> Preference:
    (better, high), (worse, low) = (a, b) if a[1] > b[1] else (b, a)
    return Preference(better, worse, (high, low))
