"""What a summary keeps of a conversation: its lines, ranked by how much would be lost without them.

The results of tools come first, then facts, decisions and open questions (`agents/memory/statements`), then sentences
with rare words. What the user corrected later is left out, and what was said twice is kept once.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.agents.memory.facts import Fact, read_facts
from groupwise.agents.memory.statements import SpokenStatement, read, sentences, values
from groupwise.agents.memory.vocabulary import terms
from groupwise.types import Message

LONGEST_SENTENCE = 300
WORD = re.compile(r"\w+")
# How much a sentence counts in the extractive summary, by who said it.
WEIGHT = {"user": 1.0, "assistant": 0.3, "system": 0.8}
RESULT = 12.0  # what a tool's result counts: more than any sentence
FACT = 1.0  # from this weight on, a sentence is a fact that deserves room
RARITY = 0.6  # what a sentence of nothing but rare words adds
SAME_SUBJECT = 0.6  # share of the words, other than names and numbers, that a correction repeats


@dataclass(frozen=True, slots=True)
class Sentence:
    """A line of the summary: who said what, how much it matters by itself, and in relation to its length."""

    place: tuple[int, int]
    speaker: str
    words: str
    weight: float
    score: float

    @property
    def text(self) -> str:
        return f"{self.speaker}: {self.words}" if self.speaker else self.words


def extract(messages: Sequence[Message], most: int) -> str:
    """Return the `most` most important lines in their order, each with its speaker."""
    return in_order(ranked_sentences(messages)[:most])


def ranked_sentences(messages: Sequence[Message]) -> list[Sentence]:
    """Rank what was said by (what kind of statement it is + how rare its words are) / √(8 + words).

    The rarity of a sentence is the mean of ln(1 + N / n(word)) / ln(1 + N) over its words, of N sentences: 1 if none of
    its words occurs again. The 8 keeps a "Yes." from counting more than a short fact.
    """
    lines = conversation_lines(messages)
    words = [frozenset(WORD.findall(line.words.lower())) for line in lines]
    frequency = Counter(word for some in words for word in some)
    whole = math.log(1 + len(lines))
    ranked: dict[tuple[str, str], Sentence] = {}
    for line, some in zip(lines, words, strict=True):
        # Sorted, so that the sum does not depend on the hash order of a set.
        rarity = sum(sorted(math.log(1 + len(lines) / frequency[word]) for word in some)) / (len(some) * whole)
        weight = line.weight + (RARITY * WEIGHT.get(line.speaker, 1.0) * rarity if line.weight < RESULT else 0.0)
        # What is said again is said once, where it was said last.
        ranked[line.speaker, line.words.lower()] = replace(line, score=weight / math.sqrt(8 + len(some)))
    # Of equals the newer first: it is likelier to be needed.
    return sorted(ranked.values(), key=lambda s: (-s.score, (-s.place[0], s.place[1])))


def conversation_lines(messages: Sequence[Message]) -> list[Sentence]:
    """What was said, sentence by sentence, without what was corrected later."""
    calls = {call.get("id"): call for message in messages for call in message.get("tool_calls") or ()}
    lines: list[Sentence] = []
    own: list[tuple[int, SpokenStatement]] = []  # the user's statements, and which line each is
    for number, message in enumerate(messages):
        role, content = str(message["role"]), str(message.get("content") or "")
        if role == "tool":
            result = shorten(" ".join(content.split()), LONGEST_SENTENCE)
            lines.append(Sentence((number, 0), "tool", f"{_call(message, calls)}{result}", RESULT, 0.0))
            continue
        if message.get("tool_calls"):  # what it calls is said with the result
            continue
        speaker = "" if role == "system" else role
        for place, sentence in enumerate(sentences(content)):
            found = read(sentence, by_user=role != "assistant")
            weight = found.weight * WEIGHT.get(role, 1.0)
            if found.weight >= 0:
                words = shorten(sentence, LONGEST_SENTENCE)
                lines.append(Sentence((number, place), speaker, words, weight, 0.0))
                own += [(len(lines) - 1, found)] if role == "user" else []
    gone = _corrected(own)
    stale = frozenset(value for line in gone for value in values(lines[line].words))
    fresh = frozenset(value for n, _ in own if n not in gone for value in values(lines[n].words))
    return [
        line
        for n, line in enumerate(lines)
        # Nor what the assistant made of a value that was corrected.
        if n not in gone
        and WORD.search(line.words)
        and not (line.speaker == "assistant" and values(line.words) & (stale - fresh))
    ]


def _call(message: Message, calls: Mapping[Any, Mapping[str, Any]]) -> str:
    """The call that a result answers, as `name(arguments) -> `."""
    made = calls.get(message.get("tool_call_id"), {}).get("function") or {"name": message.get("name") or ""}
    if not made.get("name"):
        return ""
    given = made.get("arguments") or {}
    arguments = given if isinstance(given, str) else ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{made['name']}({shorten(str(arguments), 80)}) -> "


def _corrected(said: Sequence[tuple[int, SpokenStatement]]) -> set[int]:
    """The lines that a later statement of the user replaces: the same fact with another value."""
    gone: set[int] = set()
    newest: dict[str, int] = {}
    facts: list[Fact] = []
    for place, (line, statement) in enumerate(said):
        found = read_facts(statement.text, facts[-3:])
        for fact in found:
            if fact.key in newest and newest[fact.key] != line:
                gone.add(newest[fact.key])
            newest[fact.key] = line
        facts += found
        if statement.corrects and not found:
            gone |= {earlier for earlier, other in said[:place] if _replaces(statement.text, other.text)}
    return gone


def _replaces(new: str, old: str) -> bool:
    """Whether a correction says again what was said, with another name, number or date."""
    changing = {term for value in values(new) | values(old) for term in terms(value)}
    mine, theirs = ({t for t in terms(text) if t not in changing and not t.isdecimal()} for text in (new, old))
    shared = len(mine & theirs)
    same = theirs <= mine or (shared >= 2 and shared >= SAME_SUBJECT * len(theirs))
    return bool(values(old) - values(new)) and shared > 0 and same


def in_order(sentences: Sequence[Sentence]) -> str:
    return "\n".join(sentence.text for sentence in sorted(sentences, key=lambda s: s.place))


def shorten(text: str, limit: int) -> str:
    """Keep the beginning and the end of a text, with a mark between that says how much is missing.

    The mark itself is never cut, so a limit below its length (about 36 characters) leaves only the mark.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - len(f" [... {len(text)} characters left out ...] "))
    end = room // 3  # two thirds for the beginning, one third for the end
    mark = f"[... {len(text) - room} characters left out ...]"
    if not room:
        return min(mark, text, key=len)
    return f"{text[: room - end]} {mark} {text[len(text) - end :]}"
