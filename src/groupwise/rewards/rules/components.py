"""Components of rewards: numbers in [0, 1] from the words of the assistant's replies, by rules anyone can check.

Text is compared as whole words, ignoring case and punctuation, so that "Sorry!" matches "sorry" and "this" does not
match "hi". Here are the components for any domain; those for one domain are in the files beside this one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar

from groupwise.errors import ConfigError
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.scoring import per_attempt
from groupwise.thoughts import REASONING, THINK, apart
from groupwise.types import Failed, Message, Score, Task, Trajectory

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
# Apostrophes of one kind, and none of the characters that nobody sees: "k\u200bill" is read as "kill".
QUOTES = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u02bc": "'"} | dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")
)


@dataclass(frozen=True)
class ReplyText:
    """One turn of the assistant: its answer, as words and sentences, and the thought before it."""

    text: str
    reasoning: str = ""
    raw: str = ""

    @property
    def written(self) -> str:
        """Thought and answer together: as they were written or, if other marks were used, as <think> and the answer."""
        if THINK[0] in self.raw or not self.reasoning:
            return self.raw or self.text
        # A thought without an answer is left open.
        return f"{THINK[0]}\n{self.reasoning}" + (f"\n{THINK[1]}\n\n{self.text}" if self.text.strip() else "")

    @cached_property
    def words(self) -> list[str]:
        return words_of(self.text)

    @cached_property
    def sentences(self) -> list[str]:
        return [found.strip() for found in SENTENCE.findall(self.text) if WORD.search(found)]

    @cached_property
    def questions(self) -> set[str]:
        """The questions in it, without duplicates."""
        return {" ".join(words_of(sentence)) for sentence in self.sentences if sentence.endswith("?")}

    @cached_property
    def spoken(self) -> str:
        """The words with single spaces between and around them, so that a phrase occurs as ` phrase `."""
        return f" {' '.join(self.words)} "

    def says(self, phrase: str) -> bool:
        """Whether a lower-case phrase occurs; `resolv*` matches every word that begins with it."""
        return (f" {phrase[:-1]}" if phrase.endswith("*") else f" {phrase} ") in self.spoken

    def says_any(self, phrases: Iterable[str]) -> bool:
        return any(map(self.says, phrases))


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, with plain apostrophes."""
    return WORD.findall(text.translate(QUOTES).casefold())


def phrase_of(text: str) -> str:
    """A phrase as `ReplyText.says` expects it; a star at its end is kept."""
    return " ".join(words_of(text)) + "*" * text.rstrip().endswith("*")


def replies(turns: Sequence[Message]) -> list[ReplyText]:
    """The assistant's answers, without thoughts. A turn that only calls tools does not count; an empty one does."""
    spoken = [turn for turn in turns if turn.get("role") == "assistant"]
    said = [(_reply(turn), turn.get("tool_calls")) for turn in spoken]
    return [reply for reply, calls in said if reply.text.strip() or not calls]


def _reply(turn: Message) -> ReplyText:
    split = apart(turn)
    raw = turn.get("text") or turn.get("content")
    return ReplyText(text_of(split.get("content")), split.get(REASONING) or "", raw if isinstance(raw, str) else "")


def text_of(content: Any) -> str:
    """The text of a message's content, which is a string, a list of parts as in chat APIs, or None."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = [part.get("text", "") if isinstance(part, dict) else part for part in content]
    return "\n".join(str(part) for part in parts)


def listed(phrases: str) -> tuple[str, ...]:
    """Phrases from a comma-separated list."""
    return tuple(phrase.strip() for phrase in phrases.split(","))


def named(table: str) -> dict[str, tuple[str, ...]]:
    """Lists of phrases by name, from `name: phrase, phrase; name: …`."""
    return {name.strip(): listed(phrases) for name, phrases in (row.split(":") for row in table.split(";"))}


NO_REFERENCE = "no_reference"
HELPFUL = listed("help*, please, thank*, welcome, solution, solve*, resolv*, happy to, let me know, assist*")


class Component(RewardFunction):
    """A reward in [0, 1], the mean over replies. Subclasses define `rate(reply)` and a `label`."""

    label: ClassVar[str]

    def __init__(self, weight: float = 1.0, name: str | None = None) -> None:
        super().__init__(weight, name or self.label)

    def rate(self, reply: ReplyText) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define rate")

    def compute_reward(self, turns: Sequence[Message]) -> float | Score:
        rated = [self.rate(reply) for reply in replies(turns)]
        return fmean(rated) if rated else 0.0


class Ideas(Component):
    """min(1, n / enough), where n is how many different ideas a reply expresses, each by any of its phrases."""

    ideas: ClassVar[Mapping[str, tuple[str, ...]]]
    enough: ClassVar[int]

    def found(self, reply: ReplyText) -> int:
        return sum(reply.says_any(phrases) for phrases in self.ideas.values())

    def rate(self, reply: ReplyText) -> float:
        return min(1.0, self.found(reply) / self.enough)


class LengthRewardComponent(Component):
    """For n words: n / target below the target, 1 up to the limit, and limit / n beyond it."""

    label = "length"

    def __init__(
        self, weight: float = 1.0, target_words: int = 50, max_words: int = 200, name: str | None = None
    ) -> None:
        super().__init__(weight, name)
        if not 1 <= target_words <= max_words:
            message = f"length: target_words = {target_words} does not fit max_words = {max_words}"
            raise ConfigError(message, hint="target_words must be at least 1 and at most max_words.")
        self.target_words, self.max_words = target_words, max_words

    def rate(self, reply: ReplyText) -> float:
        count = len(reply.words)
        return min(1.0, count / self.target_words, self.max_words / max(count, 1))


class KeywordRewardComponent(Component):
    """min(1, n / enough), where n is how many different keywords a reply uses.

    A keyword can have several words, and `resolv*` matches any word that begins with it. By default the keywords are
    words of helping and thanking, and `enough` is half of the keywords.
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
            raise ConfigError("keywords: none of them contains a word", hint="Use at least one word.")
        self.enough = enough if enough is not None else max(1, len(self.keywords) // 2)
        if not 1 <= self.enough <= len(self.keywords):
            message = f"keywords: enough = {enough}, but there are {len(self.keywords)} keywords"
            raise ConfigError(message, hint=f"Choose a number from 1 to {len(self.keywords)}.")

    def rate(self, reply: ReplyText) -> float:
        return min(1.0, sum(map(reply.says, self.keywords)) / self.enough)


class Referenced(Component):
    """A component that compares replies with references: those given, or else the task's own.

    The task's are its `expected_responses`, `reference` or `answer`. Without any, every attempt scores 0.5, which
    favours none, with the flag `no_reference`.
    """

    def __init__(
        self, weight: float = 1.0, expected_responses: str | Iterable[str] | None = None, name: str | None = None
    ) -> None:
        super().__init__(weight, name)
        self.references = texts_of(expected_responses)

    def compare(self, said: Sequence[ReplyText], reference: str) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define compare")

    def compute_reward(self, turns: Sequence[Message]) -> float | Score:
        return self._against(turns, self.references)

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        references = self.references or task_references(task)
        return await per_attempt(lambda _, attempt: self._against(turns_of(attempt), references))(task, group)

    def _against(self, turns: Sequence[Message], references: Sequence[str]) -> float | Score:
        said = replies(turns)
        if not references:
            return Score(0.5, flags=(NO_REFERENCE,))
        return max(self.compare(said, reference) for reference in references) if said else 0.0


class SimilarityRewardComponent(Referenced):
    """The likeness of the most similar pair of a reference and a reply, or of a reference and a sentence.

    Likeness is the mean of two Dice coefficients, 2·|common| / (|a| + |b|): of the words, and of the pairs of
    neighbouring words (of the words alone if a text has only one). Equal texts score 1.
    """

    label = "similarity"

    def compare(self, said: Sequence[ReplyText], reference: str) -> float:
        wanted = words_of(reference)
        # Also sentence by sentence, so that a long reply that contains the response is not penalised for the rest.
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
    """A value that came with a task, as a column, an entry or an attribute of its payload; None if there is none."""
    payload = task.payload
    if isinstance(payload, Mapping):
        return payload.get(name)
    columns = getattr(payload, "columns", None)
    found = columns.get(name) if isinstance(columns, Mapping) else None
    return getattr(payload, name, None) if found is None else found


def task_references(task: Task) -> tuple[str, ...]:
    """The reference answers that came with a task: the first of these columns that has any."""
    found = (texts_of(known(task, name)) for name in ("expected_responses", "reference", "answer"))
    return next(filter(None, found), ())


def texts_of(given: Any) -> tuple[str, ...]:
    """One or several texts, without those that contain no words."""
    several = [given] if isinstance(given, str) else given if isinstance(given, Iterable) else []
    return tuple(text for text in several if isinstance(text, str) and words_of(text))
