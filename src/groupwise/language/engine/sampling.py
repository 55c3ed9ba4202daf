"""Choosing one token per row, for all rows at once, each row by its own rules.

Every row is sampled by inverting its distribution function, in the order of the vocabulary, at a number from the
request's own random stream. So a row's token depends on its logits, its rules and its seed, not on its neighbours.
Rules that no row uses are skipped; the others become one threshold per row on its scaled logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine.request import SamplingParams

# Constants of SplitMix64 (Steele, Lea and Flood, 2014): 2^64 / golden ratio, and the finaliser's two multipliers.
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
# How many of the most likely tokens to try sorting before all of them.
NUCLEUS_WIDTHS = (64, 1024)


def stream_key(seed: int) -> np.uint64:
    """Where the random stream of a seed (any integer) starts: neighbouring seeds start far apart."""
    # 64 bits of the seed at a time, so that integers of any size and sign have their own stream.
    state, rest = int(seed < 0), abs(seed)
    while True:
        # The state is scaled, or the sign of -1 would be the same as adding 1 and give it the stream of 2.
        word = (state * int(MIX_1) + rest % 2**64 + 1) * GOLDEN % 2**64
        state, rest = int(_mix(np.array([word], np.uint64))[0]), rest >> 64
        if not rest:
            return np.uint64(state)


def uniforms(keys: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float32]:
    """Number `counters[i]` of stream `keys[i]`, uniform on [0, 1) with 24 bits, a float32's precision."""
    mixed = _mix(keys + (counters + 1).astype(np.uint64) * np.uint64(GOLDEN))
    return (mixed >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """The rules of a batch as columns [rows, 1]; None for a rule that no row uses."""

    # `sharpness` is 1 / temperature.
    sharpness: Tensor | None
    greedy: Tensor | None
    all_greedy: bool
    top_k: Tensor | None
    widest_k: int
    top_p: Tensor | None
    log_min_p: Tensor | None
    penalty: Tensor | None


def rules_of(params: Sequence[SamplingParams], vocabulary: int, device: torch.device) -> SamplingRules:
    def column(values: Sequence[float], off: float, dtype: torch.dtype) -> Tensor | None:
        if all(value == off for value in values):
            return None
        return _column(values, dtype, device)

    greedy = [p.temperature == 0 for p in params]
    ks = [p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params]
    sorting = any(k < vocabulary or p.top_p < 1 for k, p in zip(ks, params, strict=True))
    min_ps = [np.log(p.min_p) if p.min_p > 0 else -np.inf for p in params]
    return SamplingRules(
        sharpness=column([1 / p.temperature if p.temperature else 1.0 for p in params], 1.0, torch.float32),
        greedy=column(greedy, False, torch.bool),
        all_greedy=all(greedy),
        top_k=_column(ks, torch.int64, device) if sorting else None,
        widest_k=max((k for k in ks if k < vocabulary), default=0),
        top_p=_column([p.top_p for p in params], torch.float32, device) if sorting else None,
        log_min_p=column(min_ps, -np.inf, torch.float32),
        penalty=column([p.repetition_penalty for p in params], 1.0, torch.float32),
    )


def _column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)


def sample(
    logits: Tensor, rules: SamplingRules, uniform: Tensor, seen: Tensor | None, steered: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tokens [rows] and their log-probabilities [rows] from float32 logits [rows, vocabulary].

    `uniform` [rows, 1] are the numbers at which to invert, `seen` [rows, vocabulary] marks the tokens to penalise. The
    log-probabilities are those of softmax(logits / temperature), before penalty and truncation. Tokens are chosen from
    `steered` instead, if given.
    """
    scaled = logits if rules.sharpness is None else logits * rules.sharpness
    logs = scaled.log_softmax(-1)
    shaped = logits if steered is None else steered
    shaped = shaped if rules.penalty is None or seen is None else penalised(shaped, rules.penalty, seen)
    if rules.all_greedy:
        tokens = shaped.argmax(-1, keepdim=True)
    else:
        tokens = _invert(_weights(logs.exp(), scaled, shaped, logits, rules), uniform)
        if rules.greedy is not None:
            tokens = torch.where(rules.greedy, shaped.argmax(-1, keepdim=True), tokens)
    return tokens.squeeze(1), logs.gather(1, tokens).squeeze(1)


def _weights(probs: Tensor, scaled: Tensor, shaped: Tensor, logits: Tensor, rules: SamplingRules) -> Tensor:
    """The distributions to sample from, up to a factor per row."""
    if shaped is not logits:
        scaled = shaped if rules.sharpness is None else shaped * rules.sharpness
        probs = scaled.softmax(-1)
    if rules.top_k is None and rules.log_min_p is None:
        return probs
    return probs.masked_fill(scaled < threshold(scaled, rules), 0.0)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first token whose cumulated weight exceeds `uniform` of the total; never one of weight 0."""
    # Scaled by the sum that rounding really gave, so that the last token with weight is always reached.
    cumulated = weights.cumsum(-1)
    found = torch.searchsorted(cumulated, uniform * cumulated[:, -1:], right=True)
    return found.clamp_(max=weights.shape[-1] - 1)


def penalised(logits: Tensor, penalty: Tensor, seen: Tensor) -> Tensor:
    """Make tokens seen before less likely: positive logits divided by the penalty, negative ones multiplied."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def threshold(scaled: Tensor, rules: SamplingRules) -> Tensor:
    """The smallest scaled logit that a row may sample, [rows, 1]. All ties at the threshold stay."""
    top = scaled.max(-1, keepdim=True).values
    least = torch.full_like(top, float("-inf")) if rules.log_min_p is None else top + rules.log_min_p
    if rules.top_k is None or rules.top_p is None:
        return least
    vocabulary = scaled.shape[-1]
    for width in (*(w for w in NUCLEUS_WIDTHS if rules.widest_k <= w < vocabulary), vocabulary):
        found = _nucleus(scaled, rules.top_k, rules.top_p, width)
        if found is not None:
            return torch.maximum(least, found)
    raise AssertionError("the full vocabulary always decides")


def _nucleus(scaled: Tensor, top_k: Tensor, top_p: Tensor, width: int) -> Tensor | None:
    """The smallest logit that top-k and top-p keep, from the `width` largest; None if those are too few to tell."""
    vocabulary = scaled.shape[-1]
    ordered = scaled.topk(width, sorted=True).values
    within = torch.arange(width, device=scaled.device) < top_k
    off = (top_k >= vocabulary) & (top_p >= 1)
    narrowed = ordered.masked_fill(~within, float("-inf")).logsumexp(-1, keepdim=True)
    total = torch.where(top_k < vocabulary, narrowed, scaled.logsumexp(-1, keepdim=True))
    probs = (ordered - total).exp()
    # A token stays while the tokens before it have less than top_p together.
    before = probs.cumsum(-1) - probs
    count = (within & ((before < top_p) | (top_p >= 1))).sum(-1, keepdim=True)
    if not bool((off | (count < width) | (top_k <= width)).all()):
        return None
    # before[0] is 0 only up to rounding; at least one token stays.
    least = ordered.gather(1, count.clamp(min=1) - 1)
    return least.masked_fill(off, float("-inf"))
