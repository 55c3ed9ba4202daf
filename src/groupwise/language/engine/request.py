"""A generation request: its sampling parameters and stop strings, its progress, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import ConfigError
from groupwise.language.engine.steering import Steering

EndOfText: TypeAlias = Literal["stop", "length", "cancelled", "context"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a request ends.

    The order is Hugging Face's: repetition penalty on the raw logits, temperature, top-k, top-p on what top-k left,
    min-p. `temperature=0` takes the most likely token. `top_k=0`, `top_p=1`, `min_p=0` and `repetition_penalty=1`
    switch a rule off, and rules that no running request uses cost nothing.

    `stop` are strings; a request ends with the token that completes one, even if it begins or ends inside a token.
    That token is part of the result: it was sampled, so it has a log-probability to learn from.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check("max_new_tokens", self.max_new_tokens, self.max_new_tokens >= 1, "at least 1")
        _check("temperature", self.temperature, math.isfinite(self.temperature) and self.temperature >= 0, "0 or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1 (off)")
        _check("min_p", self.min_p, 0 <= self.min_p < 1, "at least 0 (off) and below 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, math.isfinite(penalty) and penalty > 0, "above 0 (1 is off)")
        _check("stop", self.stop, isinstance(self.stop, tuple) and all(self.stop), "a tuple of non-empty strings")
        ids = self.stop_token_ids
        _check("stop_token_ids", ids, isinstance(ids, tuple) and all(i >= 0 for i in ids), "a tuple of ids from 0")


@dataclass(frozen=True, slots=True)
class Sampled:
    """The tokens of one request.

    `logp[t]` is log softmax(logits / temperature)[ids[t]] over the full vocabulary, from the very logits the token
    was sampled from (temperature 1 when greedy). It is the *policy's* probability at that temperature, which a later
    forward pass can reproduce. Top-k, top-p, min-p and the repetition penalty change what is sampled but not this
    number: with them, tokens come from a renormalised distribution with higher probabilities.

    `versions[t]` is the version of the weights that made token t; `version` is the oldest of them. `end` is the
    reason it ended: "stop" (an end-of-text token, a stop token or a stop string), "length" (`max_new_tokens`),
    "context" (`max_length`) or "cancelled".
    """

    ids: NDArray[np.int64] = field(repr=False)
    logp: NDArray[np.float32] = field(repr=False)
    versions: NDArray[np.int64] = field(repr=False)
    version: int
    end: EndOfText

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def cancelled_unread(cls, version: int) -> Sampled:
        """The result of a request cancelled before its first token."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing.astype(np.float32), nothing, version, "cancelled")


def _check(name: str, value: object, holds: bool, limit: str) -> None:
    if not holds:
        raise ConfigError(f"{name} is {value!r}; it must be {limit}", field=name)


# Characters at the start of a window that may decode differently without the tokens before.
MARGIN = 16
UNKNOWN, NO, MAYBE = 0, 1, 2


class StopStrings:
    """Finds any of several strings in a growing list of tokens.

    Only a token that contains a string's last character (or part of one) can complete it. So a table rules out most
    tokens, and otherwise the tokenizer decodes just the tail, as far back as a string can reach.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Any, vocabulary: int) -> None:
        self.strings = tuple(strings)
        self.tokenizer = tokenizer
        self.longest = max(len(s) for s in strings)
        self.table: NDArray[np.int8] = np.zeros(vocabulary, np.int8)

    def ends(self, ids: NDArray[np.int64]) -> bool:
        """Whether the last token of `ids` completes one of the strings."""
        return self._may_end_with(int(ids[-1])) and self._found_in(ids)

    def _may_end_with(self, token: int) -> bool:
        if self.table[token] == UNKNOWN:
            # Doubled, because some tokenizers drop the space a text begins with.
            text = self._text([token, token])
            # � is part of a character: which one shows only with its neighbours.
            whole = bool(text) and "�" not in text
            ends = any(s[-1] in text for s in self.strings)
            self.table[token] = MAYBE if ends or not whole else NO
        return bool(self.table[token] == MAYBE)

    def _found_in(self, ids: NDArray[np.int64]) -> bool:
        width = self.longest + MARGIN
        while True:
            text = self._text(ids[-width:].tolist())
            if width >= len(ids) or len(text) >= self.longest + MARGIN:
                return any(s in text for s in self.strings)
            width *= 2

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text


OnToken: TypeAlias = Callable[[int, float], object]


@dataclass(eq=False)
class GenerationRequest:
    """A prompt and how to continue it, the future for the answer, and whether it is still wanted."""

    ids: NDArray[np.int64]
    params: SamplingParams
    seed: int
    session: Hashable | None
    on_token: OnToken | None
    stops: StopStrings | None
    # New tokens that fit: max_new_tokens, or fewer if the context ends first.
    limit: int
    cancelled: bool = False
    steering: Steering | None = None
    # What went wrong in the steering; it ends the request.
    fault: Exception | None = None
    future: Future[Sampled] = field(default_factory=Future)

    def __post_init__(self) -> None:
        # Equal prompts have equal keys.
        self.key = self.ids.tobytes()

    @property
    def full_end(self) -> EndOfText:
        """Why the request ends once it has all its tokens."""
        return "length" if self.limit == self.params.max_new_tokens else "context"

    @property
    def watched(self) -> bool:
        """Whether every token must be examined in Python."""
        return self.on_token is not None or self.stops is not None or self.steering is not None

    def resolve(self, outcome: Sampled | BaseException) -> None:
        """Deliver the answer, unless the future was cancelled in the meantime."""
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


Outcome: TypeAlias = tuple[GenerationRequest, Sampled | BaseException]
