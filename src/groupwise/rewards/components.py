"""What a reply is rated by: components of rewards, each a number in [0, 1] from the assistant's own turns.

    components.py   length, keywords, similarity, and the two classes the others are made of
    service.py      empathy, professionalism, action-oriented
    support.py      accuracy, step-by-step guidance, problem resolution
    selling.py      product knowledge, needs identification, value proposition
    teaching.py     correctness, pedagogical approach, engagement
    writing.py      creativity, coherence, style

They are rules of thumb over English words: cheap, the same every time, and no judge of meaning. Each looks for
*different* signs and stops counting at enough of them, so that repeating one, or piling up all, gains nothing more.
A conversation scores the mean over the assistant's turns, and 0 where the assistant said nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from groupwise.errors import ConfigError
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.scoring import per_attempt
from groupwise.rewards.speech import Reply, listed, phrase_of, replies, words_of
from groupwise.types import Failed, Message, Score, Task, Trajectory

NO_REFERENCE = "no_reference"
HELPFUL = listed("help*, please, thank*, welcome, solution, solve*, resolv*, happy to, let me know, assist*")


class Component(RewardFunction):
    """A reward in [0, 1] that rates one reply at a time: give `rate(reply)` and a `label`."""

    label: ClassVar[str]

    def __init__(self, weight: float = 1.0, name: str | None = None) -> None:
        super().__init__(weight, name or self.label)

    def rate(self, reply: Reply) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not say how it rates a reply")

    def compute_reward(self, turns: Sequence[Message]) -> float | Score:
        rated = [self.rate(reply) for reply in replies(turns)]
        return fmean(rated) if rated else 0.0


class Ideas(Component):
    """min(1, n / enough): how many different ideas a reply expresses, each by any of its phrases."""

    ideas: ClassVar[Mapping[str, tuple[str, ...]]]
    enough: ClassVar[int]

    def found(self, reply: Reply) -> int:
        return sum(reply.says_any(phrases) for phrases in self.ideas.values())

    def rate(self, reply: Reply) -> float:
        return min(1.0, self.found(reply) / self.enough)


class LengthRewardComponent(Component):
    """With n words: n / target below the target, 1 from there to the limit, limit / n beyond it."""

    label = "length"

    def __init__(
        self, weight: float = 1.0, target_words: int = 50, max_words: int = 200, name: str | None = None
    ) -> None:
        super().__init__(weight, name)
        if not 1 <= target_words <= max_words:
            raise ConfigError(
                f"length: target_words = {target_words} and max_words = {max_words} do not go together",
                hint="The target is at least 1 and at most max_words.",
            )
        self.target_words, self.max_words = target_words, max_words

    def rate(self, reply: Reply) -> float:
        count = len(reply.words)
        return min(1.0, count / self.target_words, self.max_words / max(count, 1))


class KeywordRewardComponent(Component):
    """min(1, n / enough): how many different keywords a reply uses; without keywords, words of helping and thanking.

    A keyword may be several words, and `resolv*` is any word that begins so. `enough` is half of them by default.
    """

    label = "keywords"

    def __init__(
        self,
        weight: float = 1.0,
        keywords: Iterable[str] | None = None,
        enough: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name)
        given = [keywords] if isinstance(keywords, str) else HELPFUL if keywords is None else keywords
        self.keywords = tuple(dict.fromkeys(phrase for phrase in map(phrase_of, given) if phrase.strip("*")))
        if not self.keywords:
            raise ConfigError("keywords: none of them has a word in it", hint="Give one word at least.")
        self.enough = enough if enough is not None else max(1, len(self.keywords) // 2)
        if not 1 <= self.enough <= len(self.keywords):
            raise ConfigError(
                f"keywords: enough = {enough}, and there are {len(self.keywords)} keywords",
                hint=f"It is a number from 1 to {len(self.keywords)}.",
            )

    def rate(self, reply: Reply) -> float:
        return min(1.0, sum(map(reply.says, self.keywords)) / self.enough)


class Referenced(Component):
    """A component that compares with what is known: the references given, or else those that come with the task.

    Of the task, it takes `expected_responses` or else `answer`. Where nothing is known it scores 0.5, which tells no
    attempt from another, with the flag `no_reference`.
    """

    def __init__(
        self, weight: float = 1.0, expected_responses: str | Iterable[str] | None = None, name: str | None = None
    ) -> None:
        super().__init__(weight, name)
        self.references = _texts(expected_responses)

    def compare(self, said: Sequence[Reply], reference: str) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not say how it compares")

    def compute_reward(self, turns: Sequence[Message]) -> float | Score:
        return self._against(turns, self.references)

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        references = self.references or _texts(known(task, "expected_responses")) or _texts(known(task, "answer"))
        return await per_attempt(lambda _, attempt: self._against(turns_of(attempt), references))(task, group)

    def _against(self, turns: Sequence[Message], references: Sequence[str]) -> float | Score:
        said = replies(turns)
        if not references:
            return Score(0.5, flags=(NO_REFERENCE,))
        return max(self.compare(said, reference) for reference in references) if said else 0.0


class SimilarityRewardComponent(Referenced):
    """The likeness of the most similar pair of a reference and a reply, or a sentence of a reply.

    Likeness is the mean of two Dice coefficients, 2·|common| / (|a| + |b|), of the words and of the pairs of
    neighbouring words (of the words alone where one text has a single word). Equal texts have 1.
    """

    label = "similarity"

    def compare(self, said: Sequence[Reply], reference: str) -> float:
        wanted = words_of(reference)
        texts = [words for reply in said for words in (reply.words, *map(words_of, reply.sentences))]
        return max((likeness(words, wanted) for words in texts), default=0.0)


def likeness(first: Sequence[str], second: Sequence[str]) -> float:
    """The mean of the Dice coefficients of words and of neighbouring words."""
    alone = dice(Counter(first), Counter(second))
    if min(len(first), len(second)) < 2:
        return alone
    pairs = dice(Counter(pairwise(first)), Counter(pairwise(second)))
    return (alone + pairs) / 2


def dice(first: Counter[Any], second: Counter[Any]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0


def known(task: Task, name: str) -> Any:
    """What came with a task under a name, as a column, an entry or an attribute of its payload; else None."""
    payload = task.payload
    if isinstance(payload, Mapping):
        return payload.get(name)
    columns = getattr(payload, "columns", None)
    found = columns.get(name) if isinstance(columns, Mapping) else None
    return getattr(payload, name, None) if found is None else found


def _texts(given: Any) -> tuple[str, ...]:
    """One or several texts, those without words left out."""
    several = [given] if isinstance(given, str) else given if isinstance(given, Iterable) else []
    return tuple(text for text in several if isinstance(text, str) and words_of(text))
