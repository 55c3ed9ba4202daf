"""A linear model of preferences on hashed features: the baseline that the network has to beat.

    r(conversation) = w · φ,    loss = Σ log(1 + exp(−w · (φ(better) − φ(worse)))) + ½ · penalty · |w|²

φ says which stems the policy used, which of them came before which, and which it used in answer to which stem of the
question. Each of the three kinds is scaled to length 1, or 2 for the pairs, so a longer reply has no larger φ; a reply
of a few words has a smaller one, because little speaks for it. With few preferences this beats the network; with many,
the network may beat it.
"""

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise.rewards.learned.preferences import Preference, RewardTranscript
from groupwise.stems import VERSION, stem

BUCKETS = 1 << 16
# The length of each kind, and how many features it must have for that length.
WEIGHTS = {"stem": (1.0, 10), "order": (2.0, 45), "answer": (2.0, 40)}
PENALTIES = (0.1, 0.5, 2.0)  # wrong labels need a larger one
REACH = 32  # words that a word is said to come before
MOST_STEMS = 256  # of the reply, and of the question; the first and last halves
ITERATIONS = 40
FOLDS = 3
WORD = re.compile(r"\w{1,24}")


Sparse: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]


def stems(text: str) -> list[str]:
    """The stems of the words, of a long text those of its beginning and its end."""
    found = [stem(word) for word in WORD.findall(text.lower())]
    return found[: MOST_STEMS // 2] + found[-MOST_STEMS // 2 :] if len(found) > MOST_STEMS else found


@lru_cache(maxsize=16_384)
def said_and_asked(transcript: RewardTranscript) -> tuple[list[str], list[str]]:
    """The stems of the policy's words, and those of everyone else's."""
    said, asked = (" ".join(text for own, text in transcript.turns if own is side) for side in (True, False))
    return stems(said), stems(asked)


@lru_cache(maxsize=16_384)
def features(transcript: RewardTranscript) -> Sparse:
    """φ as buckets and their values; values of the same bucket add up."""
    said, asked = said_and_asked(transcript)
    once, questions = set(said), set(asked)
    kinds: dict[str, set[tuple[str, ...]]] = {
        "stem": {(stem,) for stem in once},
        "order": {(a, b) for n, a in enumerate(said) for b in said[n + 1 : n + 1 + REACH] if a != b},
        "answer": {(a, b) for a in questions for b in once},
    }
    buckets: list[int] = []
    values: list[float] = []
    for kind, keys in kinds.items():
        length, enough = WEIGHTS[kind]
        values += [length / math.sqrt(max(len(keys), enough))] * len(keys)
        # Sorted, so that sums do not depend on the order of a set, which differs from process to process.
        buckets += sorted(zlib.crc32(" ".join((kind, *key)).encode("utf8", "backslashreplace")) for key in keys)
    return np.array(buckets, np.int64) % BUCKETS, np.array(values, np.float64)


class LinearReward:
    """Weights on hashed features, fitted to all preferences at once."""

    def __init__(self, penalty: float = 0.5) -> None:
        self.penalty = penalty
        self.weights = torch.zeros(BUCKETS, dtype=torch.float64)

    def fit(self, pairs: Sequence[Preference]) -> None:
        """Minimise the loss by L-BFGS, from the weights so far."""
        rows, buckets, values = _sparse(_difference(pair) for pair in pairs)
        # Weights of features that no pair differs in stay 0 and take no time.
        used, places = buckets.unique(return_inverse=True)
        weights = self.weights[used].requires_grad_()
        optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            margins = torch.zeros(len(pairs), dtype=torch.float64).index_add(0, rows, weights[places] * values)
            loss = torch.nn.functional.softplus(-margins).sum() + 0.5 * self.penalty * weights.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        if not bool(torch.isfinite(weights).all()):
            raise FloatingPointError("a weight of the linear model is not finite")
        self.weights = torch.zeros(BUCKETS, dtype=torch.float64).index_copy(0, used, weights.detach())

    def crossed(self, pairs: Sequence[Preference]) -> list[tuple[float, float]]:
        """r of the better and the worse side of each pair, by a model fitted without its third of the pairs."""
        found = [(0.0, 0.0)] * len(pairs)
        for fold in range(FOLDS):
            model = LinearReward(self.penalty)
            model.fit([pair for n, pair in enumerate(pairs) if n % FOLDS != fold])
            left = pairs[fold::FOLDS]
            sides = [model.rewards([getattr(pair, side) for pair in left]) for side in ("better", "worse")]
            found[fold::FOLDS] = list(zip(*(side.tolist() for side in sides), strict=True))
        return found

    def rewards(self, batch: Sequence[RewardTranscript]) -> NDArray[np.float64]:
        rows, buckets, values = _sparse(map(features, batch))
        found = torch.zeros(len(batch), dtype=torch.float64).index_add(0, rows, self.weights[buckets] * values)
        return np.asarray(found.numpy(), np.float64)

    def state_dict(self) -> dict[str, Any]:
        used = self.weights.nonzero().squeeze(1)
        return {"penalty": self.penalty, "buckets": used, "weights": self.weights[used].clone(), "stems": VERSION}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weights = torch.zeros(BUCKETS, dtype=torch.float64)
        self.penalty = float(state["penalty"])
        self.weights[state["buckets"]] = state["weights"]


def _difference(pair: Preference) -> Sparse:
    (buckets, values), (others, less) = features(pair.better), features(pair.worse)
    return np.append(buckets, others), np.append(values, -less)


def _sparse(lines: Iterable[Sparse]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row numbers, buckets and values of a sparse matrix."""
    buckets, values = zip(*lines, strict=True)
    rows = np.repeat(np.arange(len(buckets)), [len(line) for line in buckets])
    return torch.from_numpy(rows), torch.from_numpy(np.concatenate(buckets)), torch.from_numpy(np.concatenate(values))
