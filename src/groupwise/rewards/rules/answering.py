"""Does a reply answer its question? What words alone can say about that, and the grounds for it.

    answers = form · substance

`form` is what every reply needs: an order of words that English has, nothing said twice, little filler, no
instructions to whoever scores it. `substance` compares with a reference answer where there is one: how much of what
the reference adds to the question the reply says, without contradicting its numbers or its negations. Without a
reference it is only whether the reply takes up the question and adds something of its own. That tells an answer from a
polite constant, but not a right answer from a wrong one, so such scores carry the flag `style_only`.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import mul

from groupwise.rewards.rules.components import QUOTES, SENTENCE, listed, words_of
from groupwise.rewards.rules.contradictions import contradicts, contradicts_itself
from groupwise.rewards.rules.english import (
    DOUBLED,
    FORBIDDEN,
    FUNCTION_WORDS,
    SMALL_START,
    STRAYS,
    is_generic,
)
from groupwise.rewards.rules.evasions import INCONSISTENT, economy, evasiveness, respect, shape
from groupwise.rewards.rules.plain_text import figures, plain, units_differ
from groupwise.stems import stem

STYLE_ONLY = "style_only"
INJECTED = "injected"

# Requests to whoever gives the score: they are addressed to no reader of the reply.
INSTRUCTIONS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\W+(?:\w+\W+){0,3}(?:instructions?|prompts?|guidelines|rubrics?|criteria|rules)\b"
    # An order, not a report such as "customers rate it highly"
    r"|(?:^|[.!?:;,\n(\[]\s*|\b(?:please|must|should|and|to|you|always|now)\s+)(?:score|rate|grade|mark|rank|judge|"
    r"evaluate|award|give)\s+(?:this|it|me|my|the)\W+(?:\w+\W+){0,4}(?:\d+|high\w*|perfect\w*|maximum|max|full|top|best|"
    r"ten|points?|marks?|reward|score|rating)\b"
    r"|\b(?:judges?|graders?|evaluators?|scorers?|raters?|reward models?|reward functions?)\b\W+(?:\w+\W+){0,6}"
    r"(?:score|rate|grade|mark|award|give|assign|note|must|should|please)\b"
    r"|\b(?:note|message|attention|instructions?|dear|memo)\W+(?:\w+\W+){0,3}"
    r"(?:judges?|graders?|evaluators?|scorers?|raters?|reviewers?|reward model)\b"
    r"|\b(?:full|top|maximum|highest|perfect)\W+(?:possible\W+)?(?:scores?|marks?|ratings?|rewards?|grades?|points)\b"
    r"|\b(?:10|100|5|1\.0)\s?(?:/|out of)\s?(?:10|100|5|1\.0)\b",
    re.IGNORECASE,
)


@lru_cache(4096)
def subjects(text: str) -> frozenset[str]:
    """The stems of the words in a text that say what it is about."""
    return frozenset(
        stem(word) for word in words_of(text) if word not in FUNCTION_WORDS and (len(word) > 1 or word.isdigit())
    )


@lru_cache(4096)
def specifics(text: str) -> frozenset[str]:
    """The stems of the words that do not fit any question."""
    return frozenset(
        stem(word) for word in words_of(text) if not is_generic(word) and (len(word) > 1 or word.isdigit())
    )


@dataclass(frozen=True)
class Answering:
    """How well a reply answers, in [0, 1], and what that is made of."""

    form: float
    substance: float
    flags: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.form * self.substance


def answering(question: str, reply: str, references: Sequence[str] = ()) -> Answering:
    """How well a reply answers a question, by its best reference if there are several."""
    injected = INSTRUCTIONS.search(reply) is not None and INSTRUCTIONS.search(question) is None
    flags = (INJECTED,) if injected else ()
    question, reply = plain(question), plain(reply)
    form = 0.0 if injected else form_of(reply)
    taken_up = relevance(question, reply)
    if references:
        # A reply that shares no word with a reference may still say the same.
        best = max(agreement(question, reply, plain(reference)) for reference in references)
        return Answering(form, best + LEAST * taken_up * (1 - best), flags)
    return Answering(form, taken_up, (*flags, STYLE_ONLY))


@lru_cache(4096)
def form_of(reply: str) -> float:
    """Near 1 for plain prose; less for filler, repetition, heaps, and words in an order that English does not have."""
    words = words_of(reply)
    if not words:
        return 0.0
    consistent = INCONSISTENT if contradicts_itself(reply) else 1.0
    return word_order(reply) * without_repetition(words) * density(reply) * respect(reply) * consistent


REPEATED = 3  # words in a row


def without_repetition(words: Sequence[str]) -> float:
    """The square of the share of runs of three words that are new: a text said twice scores a quarter."""
    return (1 - repeated_share(words)) ** 2


def repeated_share(words: Sequence[str]) -> float:
    """The share of runs of three words that occurred before in the text."""
    runs = [tuple(words[n : n + REPEATED]) for n in range(max(1, len(words) - REPEATED + 1))]
    return 1 - len(set(runs)) / len(runs)


FEWEST_FUNCTION_WORDS = 0.25  # ordinary prose has 0.4 to 0.55
MOST_DIFFERENT, CROWDED = (
    0.42,
    0.08,
)  # different function words as a share of all words; by how much more nothing is left
CHANCE = 1.15  # over the square root of the number of words: a short text may have more
BRIEF = 4  # words that need no function word among them
ORDER_PRICE = 10.0  # per violation and word: shuffled prose has about one in ten words


def word_order(text: str) -> float:
    """1 − 10 · violations / words, at least 0, times min(1, share of function words / 0.25).

    More different function words than 0.42 + 1.15 / √words cost too: prose says "the" and "and" again and again.

    A violation is a pair of neighbouring words that English does not have ("the of", "I the", "to is"), a word said
    twice in a row, a capital inside a sentence, or a sentence that starts small where others do not. One is forgiven.
    """
    plain = text.translate(QUOTES)
    words = words_of(plain)
    if not words:
        return 0.0
    spoken = SENTENCE.findall(plain)
    found = sum(len(stray.findall(plain)) for stray in STRAYS)
    # Whoever begins every sentence small writes so; only a mixture shows that words were moved.
    if any(sentence.lstrip()[:1].isupper() for sentence in spoken):
        found += len(SMALL_START.findall(plain))
    for sentence in spoken:
        for before, after in pairwise(words_of(sentence)):
            doubled = before == after and before not in DOUBLED and not before.isdigit()
            found += doubled or any(before in first and after in second for first, second in FORBIDDEN)
    order = max(0.0, 1 - ORDER_PRICE * max(0, found - 1) / len(words))
    # A name or two is an answer; a heap of them is not.
    prose = (sum(word in FUNCTION_WORDS for word in words) + min(1.0, BRIEF / len(words))) / len(words)
    different = len(FUNCTION_WORDS.intersection(words)) / len(words)
    crowded = max(0.0, different - MOST_DIFFERENT - CHANCE / math.sqrt(len(words))) / CROWDED
    return order * min(1.0, prose / FEWEST_FUNCTION_WORDS) * max(0.0, 1 - crowded)


# What a question says about the answer it wants, not about its subject
REQUESTS = frozenset(
    map(
        stem,
        listed(
            "write, describe, explain, compose, create, list, summarise, summarize, suggest, recommend, imagine, "
            "begin, turn, show, name, poem, poems, haiku, limerick, story, stories, tale, slogan, toast, verse, "
            "verses, line, lines, sentence, sentences, paragraph, paragraphs, stanza, dialogue, monologue, scene, "
            "opening, title, letter, message, short, brief, word, words, about, difference, between, vivid, "
            "fable, riddle, joke, song, lyrics, chorus, sonnet, ode, essay, plot, character, metaphor"
        ),
    )
)
FOCUSED = 10  # words of its own for every word of the question that a reply takes up; more of them are beside the point
HALF_ADDED = 4  # words of its own that earn a reply half of what such words can earn
UNRELATED = 0.2  # of a short reply that takes up nothing: it may still be an answer


def relevance(question: str, reply: str) -> float:
    """√(taken up · added), without a reference, less for evasions, echoes and the wrong shape (`rules.evasions`).

    taken up: how many subjects of the question the reply mentions, for every 10 words of its own, at most 1.
    added: n / (n + 4) for the n words it adds that the question does not have and that do not fit any question.
    """
    asked, said = specifics(question) - REQUESTS, specifics(reply)
    own = _weight(said - asked)
    need = max(1.0, len(said - asked) / FOCUSED)
    taken_up = min(1.0, max(UNRELATED, len(asked & said)) / need) if asked else 1.0
    found = float((taken_up * own / (own + HALF_ADDED)) ** 0.5)
    return found * economy(question, reply) * evasiveness(reply) * shape(question, reply)


LEAST = 0.1  # of a reply that consists of words for any occasion, so that even then one can be better than another


def density(reply: str) -> float:
    """The share of words in a reply's sentences that do not fit any question: filler lowers it.

    Sentences count by their length, so that "Sorry!" costs one word and a paragraph of sympathy costs all of its own.
    """
    sentences = [words for found in SENTENCE.findall(reply) if (words := words_of(found))]
    shares = [len(specifics(text)) / max(1, len(subjects(text))) for text in map(" ".join, sentences)]
    total = sum(map(len, sentences))
    return LEAST + (1 - LEAST) * sum(map(mul, shares, map(len, sentences))) / total if total else 0.0


CONTRADICTED = 0.3  # of the agreement is left if a sentence says the opposite
OTHER_NUMBERS = 0.5  # of the agreement is left if the reply's numbers are others
RECALL = 3.0  # how many times recall weighs as much as precision (F-measure, beta squared)


def agreement(question: str, reply: str, reference: str) -> float:
    """How far a reply says what a reference says: F of what both add to the question, less for contradictions."""
    asked = subjects(question)
    reply = reply if "?" in reference else _stated(reply)
    wanted, said = subjects(reference), subjects(reply)
    # What the question already says is no merit, unless the reference adds nothing else.
    new = {word for word in wanted if word not in asked and word not in _generic_stems(reference)} or wanted
    if not new:
        return 0.0
    recall = _weight(new & said) / _weight(new)
    given = specifics(reply) - asked
    precision = _weight(given & wanted) / _weight(given) if given else float(bool(new & said))
    both = RECALL * precision + recall
    found = (1 + RECALL) * precision * recall / both if both else 0.0
    if _numbers_differ(question, reply, reference) or units_differ(reply, reference):
        found *= OTHER_NUMBERS
    return min(1.0, found) * (CONTRADICTED if contradicts(reply, reference, question) else 1.0)


WONDERS = re.compile(
    r"^\W*(?:(?:or|so|and|but)\s+)?(?:is|are|was|were|does|do|did)\s+(?!(?:you|your|we|i)\b)", re.IGNORECASE
)


def _stated(reply: str) -> str:
    """A reply without the sentences that only ask whether something is so; a suggestion may be a question."""
    return "".join(found for found in SENTENCE.findall(reply) if not (found.endswith("?") and WONDERS.search(found)))


def _generic_stems(text: str) -> set[str]:
    return {stem(word) for word in words_of(text) if is_generic(word)}


def _weight(stems: Iterable[str]) -> float:
    """Numbers count twice: they are the hardest to say by chance."""
    return sum(2.0 if word[0].isdigit() else 1.0 for word in stems)


def _numbers_differ(question: str, reply: str, reference: str) -> bool:
    """Whether the reply states numbers of its own while it lacks one of the reference's."""
    asked, stated, right = (figures(text) for text in (question, reply, reference))
    return bool(right - asked - stated) and bool(stated - right - asked)
