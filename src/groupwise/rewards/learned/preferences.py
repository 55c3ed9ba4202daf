"""What a learned reward learns from: conversations, preferences between two of them, and a prioritised replay of both.

The replay draws preference i with P(i) = pᵢ^α / Σ p^α, where pᵢ is its last loss, and weights it by (N · P(i))^−β over
the largest weight, which undoes the bias of the draw (Schaul et al. 2015, arXiv:1511.05952). β = 1 undoes it
completely: a wrong preference keeps a high loss and is drawn often, but still counts no more than any other.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.readers import data_limits, json_lines
from groupwise.thoughts import apart
from groupwise.types import Message

LONGEST_TURN = 4000  # characters


@dataclass(frozen=True, slots=True)
class RewardTranscript:
    """Turns of (whether the policy spoke, text). Only the beginning and end of a long turn are kept."""

    turns: tuple[tuple[bool, str], ...]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        return cls(tuple((message.get("role") == "assistant", _text(message)) for message in messages))

    @property
    def opening(self) -> tuple[tuple[bool, str], ...]:
        """The turns before the policy first spoke, which the members of a group share."""
        first = next((number for number, (own, _) in enumerate(self.turns) if own), len(self.turns))
        return self.turns[:first]

    def packed(self) -> list[Any]:
        return [[own, text] for own, text in self.turns]

    @classmethod
    def unpacked(cls, state: Sequence[Any]) -> Self:
        return cls(tuple((bool(own), str(text)) for own, text in state))


def stable_hash(*things: object) -> int:
    """A hash that is the same in every process, unlike `hash`."""
    return zlib.crc32(repr(things).encode("utf8", "backslashreplace"))


def _text(message: Message) -> str:
    content = apart(message).get("content") or ""
    if not isinstance(content, str):  # a list of parts, as in chat APIs
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    calls = message.get("tool_calls")
    text = f"{content} {json.dumps(calls, default=str, ensure_ascii=False)}" if calls else content
    return text if len(text) <= LONGEST_TURN else f"{text[: LONGEST_TURN // 2]} … {text[-LONGEST_TURN // 2 :]}"


FEW_OPENINGS = 4
ONE_IN = 5  # one opening in five is held out
MOST_PAIRS = 16  # learned from in one group


@dataclass(frozen=True, slots=True)
class Preference:
    """`better` is preferred to `worse`; `scores` are the teacher's, None if there is no teacher."""

    better: RewardTranscript
    worse: RewardTranscript
    scores: tuple[float, float] | None = None

    def packed(self) -> list[Any]:
        return [self.better.packed(), self.worse.packed(), None if self.scores is None else list(self.scores)]

    @classmethod
    def unpacked(cls, state: Sequence[Any]) -> Self:
        better, worse = map(RewardTranscript.unpacked, state[:2])
        return cls(better, worse, None if state[2] is None else tuple(state[2]))


Row: TypeAlias = "Preference | tuple[str, str, str] | Mapping[str, Any]"
Scored: TypeAlias = tuple[RewardTranscript, float]


def preference_of(row: Row) -> Preference:
    """Read a preference: (prompt, better, worse), or a row with `prompt`, `chosen` and `rejected`.

    Prompts and replies are texts or lists of messages, as in preference datasets.
    """
    if isinstance(row, Preference):
        return row
    try:
        fields = (row.get("prompt", ""), row["chosen"], row["rejected"]) if isinstance(row, Mapping) else row
        prompt, chosen, rejected = fields
        opening = _messages("user", prompt)
        better, worse = (RewardTranscript.of([*opening, *_messages("assistant", said)]) for said in (chosen, rejected))
        return Preference(better, worse)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{row!r:.80} is not a preference"
        raise ConfigError(message, hint="Use (prompt, better, worse) or {prompt, chosen, rejected}.") from error


def read_preferences(path: Path) -> list[Preference]:
    """The preferences in a JSON Lines file."""
    try:
        return [preference_of(row) for _, row in json_lines(path, data_limits())]
    except ConfigError as error:
        message = f"{path} cannot be read as preferences: {error.message}"
        raise ConfigError(message, hint='Each line: {"prompt": …, "chosen": …, …}.') from error


def _messages(role: str, said: Any) -> list[Mapping[str, Any]]:
    return [{"role": role, "content": said}] if isinstance(said, str) else list(said)


class Split:
    """Decides for good which conversations are learned from and which are held out, by their text and not by chance.

    Conversations with the same opening stay together; one opening in five is held out. The first few openings are split
    by the complete conversation instead, so that a run with a single prompt has held-out examples too.
    """

    def __init__(self) -> None:
        self.first: list[int] = []

    def holds_out(self, transcript: RewardTranscript) -> bool:
        opening = stable_hash(transcript.opening)
        if opening not in self.first and len(self.first) < FEW_OPENINGS:
            self.first.append(opening)
        # By hash, so that the same conversation falls on the same side in every process and after a resume.
        return (stable_hash(transcript.turns) if opening in self.first else opening) % ONE_IN == 0


def all_pairs(group: Sequence[Scored], rng: np.random.Generator) -> list[Preference]:
    """Every pair whose scores differ, or a random choice of them if there are many."""
    pairs = [_pair(a, b) for number, a in enumerate(group) for b in group[:number] if a[1] != b[1]]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    return [pairs[number] for number in sorted(rng.choice(len(pairs), MOST_PAIRS, replace=False).tolist())]


def disjoint_pairs(group: Sequence[Scored], rng: np.random.Generator) -> list[Preference]:
    """Pairs that share no conversation, as the binomial test requires."""
    order = [group[number] for number in rng.permutation(len(group)).tolist()]
    return [_pair(a, b) for a, b in zip(order[::2], order[1::2], strict=False) if a[1] != b[1]]


def _pair(a: Scored, b: Scored) -> Preference:
    (better, high), (worse, low) = (a, b) if a[1] > b[1] else (b, a)
    return Preference(better, worse, (high, low))


LEAST_PRIORITY = 1e-3


class PrioritisedReplay:
    """The newest `capacity` preferences. A preference that was never drawn gets the highest priority so far."""

    def __init__(self, capacity: int = 4096, alpha: float = 0.3, beta: float = 1.0) -> None:
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.kept: list[Preference] = []
        self.priorities = np.zeros(0)
        self.next = 0

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, preference: Preference) -> None:
        # The first one has no others to take a priority from.
        urgent = self.priorities.max(initial=LEAST_PRIORITY) if len(self.priorities) else 1.0
        if len(self.kept) < self.capacity:
            self.kept.append(preference)
            self.priorities = np.append(self.priorities, urgent)
        else:
            self.kept[self.next], self.priorities[self.next] = preference, urgent
        self.next = (self.next + 1) % self.capacity

    def draw(self, count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The indices of distinct preferences, and the weight of each."""
        chances = self.priorities**self.alpha
        chances /= chances.sum()
        numbers = rng.choice(len(self.kept), min(count, len(self.kept)), replace=False, p=chances)
        weights = (len(self.kept) * chances[numbers]) ** -self.beta
        return numbers, weights / weights.max()

    def settle(self, numbers: NDArray[np.int64], losses: Sequence[float]) -> None:
        """Update the priorities of drawn preferences with their losses."""
        self.priorities[numbers] = np.maximum(losses, LEAST_PRIORITY)

    def state_dict(self) -> dict[str, Any]:
        return {
            "kept": [preference.packed() for preference in self.kept],
            "priorities": torch.from_numpy(self.priorities.copy()),
            "next": self.next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = [Preference.unpacked(preference) for preference in state["kept"]]
        self.priorities = state["priorities"].numpy().copy()
        self.next = state["next"]
