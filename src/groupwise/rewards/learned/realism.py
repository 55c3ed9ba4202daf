"""Does a reply look like the replies that preferences were about? What does not is doubted, whatever it would score.

A learned reward knows only the replies it was shown. A policy that is trained against it, or any hill climbing, finds
text that it likes and nobody would: heaps of good words, repetition, the question said back. So a small logistic model
learns to tell the replies of the preferences (real) from spoiled ones (fake), which are made from them:

    garbled    the words in random order          repeated   the reply twice or three times
    salad      words of many replies              parroted   the question said back, perhaps with a piece of the reply
    climbed    random changes that raised the reward as it is now

It looks at ten properties of the text, such as the share of runs of two and three words that other real replies
contain too. A
real reply in entirely new phrases is doubted as well: nothing that was shown tells it from a fake.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.rewards.learned.linear import said_and_asked
from groupwise.rewards.learned.preferences import RewardTranscript

Floats: TypeAlias = NDArray[np.float64]
Rate: TypeAlias = Callable[[Sequence[RewardTranscript]], Sequence[float]]

PROPERTIES = 10
MOST_COUNTED, MOST_REAL = 4000, 400  # replies whose words are counted, and whose properties are learned from
MOST_CLIMBED = 64  # kept
ROUNDS, PROPOSALS = 12, 8  # of a climb: changes accepted, and changes compared for each
RIDGE = 0.1
CERTAIN = 0.05, 0.9  # below, a chance of being fake is no doubt; above, it is complete


class Realism:
    """What real replies are made of, and the logistic model on their properties."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.neighbours: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()  # of three words
        self.weights = np.zeros(PROPERTIES + 1)
        self.centre, self.scale = np.zeros(PROPERTIES), np.ones(PROPERTIES)
        self.typical_length = 0.0  # the mean logarithm of the number of words
        self.climbed: list[RewardTranscript] = []
        self.fitted = False

    def fit(self, real: Sequence[RewardTranscript], rng: random.Random) -> None:
        """Learn from real replies, and from fakes made of them."""
        counted = _at_most(MOST_COUNTED, real, rng)
        real = _at_most(MOST_REAL, counted, rng)
        self.words, self.neighbours, self.runs = Counter(), Counter(), Counter()
        for transcript in counted:
            said = said_and_asked(transcript)[0]
            self.words.update(set(said))
            self.neighbours.update(set(_neighbours(said)))
            self.runs.update(set(_runs(said)))
        self.typical_length = float(np.mean([math.log(len(said_and_asked(one)[0]) or 1) for one in counted]))
        fakes = [spoil(transcript, real, rng) for transcript in real for spoil in rng.sample(SPOILERS, 2)]
        fakes += self.climbed
        # A real reply must not vouch for itself: what it alone contains counts as unseen.
        known = [self.properties(transcript, own=1) for transcript in real]
        table = np.array(known + [self.properties(transcript) for transcript in fakes])
        fake = np.array([0.0] * len(real) + [1.0] * len(fakes))
        self.centre, self.scale = table.mean(0), np.maximum(table.std(0), 1e-3)
        self.weights = _logistic((table - self.centre) / self.scale, fake)
        self.fitted = True

    def properties(self, transcript: RewardTranscript, own: int = 0) -> Floats:
        said, asked = said_and_asked(transcript)
        text = " ".join(text for mine, text in transcript.turns if mine)
        n = max(len(said), 1)
        pairs = _neighbours(said)
        known = sum(self.words[stem] > own for stem in said) / n
        near = sum(self.neighbours[pair] > own for pair in pairs) / max(len(pairs), 1)
        runs = _runs(said)
        ends = sum(text.count(mark) for mark in ".!?")
        return np.array([
            math.log(n),
            (math.log(n) - self.typical_length) ** 2,
            known,
            near,
            near * near,  # a text that is half real is not half trusted
            sum(self.runs[run] > own for run in runs) / max(len(runs), 1),
            len(set(said)) / n,
            len(set(pairs)) / max(len(pairs), 1),
            len(set(said) & set(asked)) / max(len(set(said)), 1),
            ends / n,
        ])  # fmt: skip

    def doubts(self, batch: Sequence[RewardTranscript]) -> Floats:
        """The doubt about each: 0 if it is fake with a chance below 5%, 1 above 90%, and in proportion between them."""
        table = (np.array([self.properties(transcript) for transcript in batch]) - self.centre) / self.scale
        logits = table @ self.weights[1:] + self.weights[0]
        fake = 1 / (1 + np.exp(-np.clip(logits, -12, 12)))
        # Otherwise a policy would gain by imitating known replies ever more closely, and replies that are all new would
        # be ranked by how new they are.
        low, high = CERTAIN
        return np.asarray(((fake - low) / (high - low)).clip(0, 1), np.float64)

    def climb(self, start: RewardTranscript, rate: Rate, rng: random.Random) -> None:
        """Keep what comes out when random changes of a reply are accepted if the reward rises."""
        words = sorted(self.words)
        best, reward = start, rate([start])[0]
        for _ in range(ROUNDS):
            tries = [_changed(best, words, rng) for _ in range(PROPOSALS)]
            rewards = rate(tries)
            top = int(np.argmax(rewards))
            if rewards[top] > reward:
                best, reward = tries[top], rewards[top]
        if best != start:
            self.climbed = [*self.climbed, best][-MOST_CLIMBED:]

    def state_dict(self) -> dict[str, Any]:
        return {
            "words": dict(self.words),
            "neighbours": dict(self.neighbours),
            "runs": dict(self.runs),
            "weights": self.weights.tolist(),
            "centre": self.centre.tolist(),
            "scale": self.scale.tolist(),
            "typical_length": self.typical_length,
            "climbed": [transcript.packed() for transcript in self.climbed],
            "fitted": self.fitted,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.words, self.neighbours, self.runs = (
            Counter(state.get(name, {})) for name in ("words", "neighbours", "runs")
        )
        self.weights, self.centre, self.scale = (np.array(state[name]) for name in ("weights", "centre", "scale"))
        self.climbed = [RewardTranscript.unpacked(packed) for packed in state["climbed"]]
        self.typical_length = float(state["typical_length"])
        # Checkpoints of before know fewer properties: their owner fits it anew.
        self.fitted = bool(state["fitted"]) and len(self.weights) == PROPERTIES + 1


@lru_cache(maxsize=16_384)
def parrots(transcript: RewardTranscript) -> bool:
    """Whether the policy says most of the question back: 4 or more words of it, and 60% of all, in one piece.

    Rewards that count words like that, so a teacher's word for it is not taken.
    """
    said, asked = said_and_asked(transcript)
    longest, runs = 0, [0] * (len(asked) + 1)
    # runs[i] is the length of the piece that ends at word i of the question and at this word of the reply.
    for stem in said:
        runs = [0, *(runs[i] + 1 if stem == other else 0 for i, other in enumerate(asked))]
        longest = max(longest, *runs)
    return longest >= max(4, 0.6 * len(asked))


def _at_most(count: int, real: Sequence[RewardTranscript], rng: random.Random) -> list[RewardTranscript]:
    return rng.sample(list(real), count) if len(real) > count else list(real)


def _neighbours(said: Sequence[str]) -> list[str]:
    return [f"{a} {b}" for a, b in pairwise(("", *said, ""))]


def _runs(said: Sequence[str]) -> list[str]:
    padded = ("", *said, "")
    return [f"{a} {b} {c}" for a, b, c in zip(padded, padded[1:], padded[2:], strict=False)]


def _logistic(x: Floats, y: Floats) -> Floats:
    """Ridge logistic regression by Newton's method, intercept first; both classes count the same."""
    x = np.column_stack([np.ones(len(x)), x])
    share = np.where(y > 0, 0.5 / max(y.mean(), 1e-9), 0.5 / max(1 - y.mean(), 1e-9))
    weights = np.zeros(x.shape[1])
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] = 1e-6
    for _ in range(12):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (share * (p - y)) + ridge * weights
        curve = (x * (share * p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        weights = weights - np.linalg.solve(curve, slope)
    return weights


def _with_reply(transcript: RewardTranscript, text: str) -> RewardTranscript:
    """The conversation with another last reply."""
    last = max((n for n, (own, _) in enumerate(transcript.turns) if own), default=len(transcript.turns))
    return RewardTranscript((*transcript.turns[:last], (True, text)))


def _reply(transcript: RewardTranscript) -> list[str]:
    return next((text for own, text in reversed(transcript.turns) if own), "").split()


Spoil: TypeAlias = Callable[[RewardTranscript, Sequence[RewardTranscript], random.Random], RewardTranscript]


def garbled(one: RewardTranscript, real: Sequence[RewardTranscript], rng: random.Random) -> RewardTranscript:
    words = _reply(one)
    return _with_reply(one, " ".join(rng.sample(words, len(words))))


def repeated(one: RewardTranscript, real: Sequence[RewardTranscript], rng: random.Random) -> RewardTranscript:
    return _with_reply(one, " ".join(_reply(one) * rng.choice((2, 3))))


def salad(one: RewardTranscript, real: Sequence[RewardTranscript], rng: random.Random) -> RewardTranscript:
    words = [word for other in rng.sample(list(real), min(8, len(real))) for word in _reply(other)]
    return _with_reply(one, " ".join(rng.sample(words, min(len(words), max(3, len(_reply(one)))))))


def parroted(one: RewardTranscript, real: Sequence[RewardTranscript], rng: random.Random) -> RewardTranscript:
    asked = " ".join(text for own, text in one.turns if not own).split()
    piece = _reply(one)[: rng.randrange(4)]
    return _with_reply(one, " ".join((asked * 3)[: max(3, len(_reply(one)))] + piece))


SPOILERS: tuple[Spoil, ...] = (garbled, repeated, salad, parroted)


def _changed(transcript: RewardTranscript, words: Sequence[str], rng: random.Random) -> RewardTranscript:
    """One word replaced, added, removed or moved."""
    said = _reply(transcript)
    place, word = rng.randrange(len(said) + 1), rng.choice(words) if words else "a"
    kind = rng.choice(("replace", "add", "remove", "move"))
    if kind == "add" or not said:
        said.insert(place, word)
    else:
        taken = said.pop(min(place, len(said) - 1))
        if kind != "remove":
            said.insert(rng.randrange(len(said) + 1) if kind == "move" else place, taken if kind == "move" else word)
    return _with_reply(transcript, " ".join(said))
