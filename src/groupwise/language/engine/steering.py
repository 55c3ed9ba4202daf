"""What a single request may change about how its tokens are chosen, and see of the alternatives.

A steering never changes the log-probabilities that are recorded: those are the model's own, as the learner computes
them. It changes which tokens are chosen, and only for its request.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.errors import ConfigError
from groupwise.language.model_lookup import import_extra

STRUCTURED = "pip install 'groupwise[structured]'"


class Steering(Protocol):
    """`shape` returns the logits [vocabulary] to choose the next token from; `see` is told what was chosen."""

    def shape(self, logits: Tensor, sampled: NDArray[np.int64]) -> Tensor: ...
    def see(self, logs: Tensor, token: int) -> None: ...


@dataclass
class Likeliest:
    """Keeps the `count` likeliest alternatives of every token, as (token, log-probability)."""

    count: int
    found: list[list[tuple[int, float]]] = field(default_factory=list)

    def shape(self, logits: Tensor, sampled: NDArray[np.int64]) -> Tensor:
        return logits

    def see(self, logs: Tensor, token: int) -> None:
        best = logs.topk(min(self.count, len(logs)))
        self.found.append(list(zip(best.indices.tolist(), best.values.tolist(), strict=True)))


@dataclass
class Penalties:
    """OpenAI's penalties and biases: `frequency` per earlier occurrence of a token, `presence` once, `bias` always."""

    frequency: float = 0.0
    presence: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def shape(self, logits: Tensor, sampled: NDArray[np.int64]) -> Tensor:
        shaped = logits.clone()
        if len(sampled):
            tokens, counts = np.unique(sampled, return_counts=True)
            lowered = self.frequency * counts + self.presence
            shaped[torch.from_numpy(tokens)] -= torch.from_numpy(lowered).to(shaped)
        for token, value in self.bias.items():
            shaped[token] += value
        return shaped

    def see(self, logs: Tensor, token: int) -> None:
        """Nothing to remember: the tokens so far are passed to `shape`."""


class Grammar:
    """Lets through only tokens that continue a text which fits a JSON schema, or a grammar in Lark (by llguidance)."""

    def __init__(self, tokenizer: Any, vocabulary: int, wanted: Mapping[str, Any] | str) -> None:
        library = import_extra("llguidance", STRUCTURED)
        self.vocabulary, self.numpy = vocabulary, import_extra("llguidance.numpy")
        try:
            matcher = library.LLMatcher
            made = matcher.grammar_from_lark if isinstance(wanted, str) else matcher.grammar_from_json_schema
            grammar = made(wanted)
            self.matcher = library.LLMatcher(_tokens(tokenizer, vocabulary), grammar)
        except ValueError as error:
            raise _unusable(str(error)) from None
        if fault := self.matcher.get_error():
            raise _unusable(fault)
        self.bits = self.numpy.allocate_token_bitmask(1, vocabulary)

    def shape(self, logits: Tensor, sampled: NDArray[np.int64]) -> Tensor:
        self.numpy.fill_next_token_bitmask(self.matcher, self.bits, 0)
        allowed = np.unpackbits(self.bits.view(np.uint8), bitorder="little")[: self.vocabulary].astype(bool)
        if not allowed.any():
            raise _unusable(self.matcher.get_error() or "no token may come next")
        return logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -math.inf)

    def see(self, logs: Tensor, token: int) -> None:
        self.matcher.consume_token(token)


@dataclass
class Several:
    """Steerings one after the other."""

    parts: Sequence[Steering]

    def shape(self, logits: Tensor, sampled: NDArray[np.int64]) -> Tensor:
        for part in self.parts:
            logits = part.shape(logits, sampled)
        return logits

    def see(self, logs: Tensor, token: int) -> None:
        for part in self.parts:
            part.see(logs, token)


def _unusable(fault: str) -> ConfigError:
    said = " ".join(fault.split())[:300]
    return ConfigError(f"the JSON schema cannot be followed: {said}", hint="Simplify it.", field="response_format")


@lru_cache(maxsize=4)
def _tokens(tokenizer: Any, vocabulary: int) -> Any:
    """The tokenizer as llguidance needs it: the bytes of every token."""
    library, hf = import_extra("llguidance"), import_extra("llguidance.hf")
    try:
        return hf.from_tokenizer(tokenizer, n_vocab=vocabulary)
    except ValueError:  # a decoder that it does not know, such as one that only joins characters
        return library.LLTokenizer(library.TokenizerWrapper(_Bytes(tokenizer, vocabulary)))


class _Bytes:
    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self.tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = tokenizer.eos_token_id, tokenizer.bos_token_id
        self.special_token_ids = list(tokenizer.all_special_ids)
        texts = [tokenizer.decode([token], skip_special_tokens=True) for token in range(vocabulary)]
        self.tokens = [text.encode() for text in texts]

    def __call__(self, text: str | bytes) -> list[int]:
        plain = text if isinstance(text, str) else text.decode("utf8", "replace")
        ids: list[int] = self.tokenizer.encode(plain, add_special_tokens=False)
        return ids
