"""A conversation under a budget of tokens: what matters most word for word, the rest in short.

Kept are the system turn, the first and the newest turns. What lies between becomes one summary in its place, written by
a given summariser or made of the sentences that say most. A tool's result always stays with its call.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from groupwise.errors import ContractError
from groupwise.types import Message

logger = logging.getLogger(__name__)

Count: TypeAlias = Callable[[Sequence[Message]], int]
"""How many tokens a model reads for some messages."""
Summarise: TypeAlias = Callable[[Sequence[Message], int], Awaitable[str]]
"""A text of at most so many tokens about some messages."""
Block: TypeAlias = tuple[Message, ...]
"""A message and the results of the tools it called: they stay or go together."""

SUMMARY = "summary"
ASKING = ("system", "user")  # the roles that a turn begins with
LETTERS_PER_TOKEN = 16  # no text needs fewer tokens than this, near enough; it spares counting what cannot fit
LONGEST_SENTENCE = 300
WORD, SENTENCE = re.compile(r"\w+"), re.compile(r"(?<=[.!?])\s+|\n+")
WEIGHT = {"user": 1.2, "assistant": 1.0, "system": 1.5, "tool": 0.7}


class ContextFull(ContractError):
    """The conversation does not fit, however it is shortened."""

    code = "context_full"


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Which blocks stay as they are, and which are told in short."""

    head: tuple[Block, ...]
    kept: tuple[Block, ...]
    left: tuple[Block, ...]

    def messages(self, about: str = "") -> tuple[Message, ...]:
        """The conversation, with a summary where something was left out."""
        blocks = [*self.head, *([(self._summary(about),)] if self.left else []), *self.kept]
        return tuple(message for block in blocks for message in block)

    def _summary(self, about: str) -> Message:
        count = sum(len(block) for block in self.left)
        told = f"[{count} earlier messages, in short:]\n{about}" if about else f"[{count} earlier messages left out]"
        return {"role": "system", "name": SUMMARY, "content": told}


async def compress(
    messages: Sequence[Message], budget: int, count: Count, *, summarise: Summarise | None = None, first: int = 1,
    recent: int = 4,
) -> tuple[Message, ...]:  # fmt: skip
    """The conversation in at most `budget` tokens; one that fits comes back as it is, so twice changes nothing.

    Args:
      messages: the whole of it, as chat APIs write it.
      budget: tokens, as `count` counts them.
      count: how many tokens some messages have.
      summarise: writes the summary; without one, sentences are picked. One that fails is reported and replaced.
      first, recent: turns kept word for word at either end, fewer where they do not fit. A turn is a user's message,
        with what the system says before it, and all up to the next.

    A single turn too long for the budget is shortened, with a mark that says by how much; `ContextFull` if even that
    does not help.
    """
    if count(messages) <= budget:
        return tuple(messages)
    *plans, strictest = _plans(_without_giants(messages, budget // 2, count), first, recent)
    plan = _roomy(plans, budget, count)
    if plan is None:
        return _shortened((plans[-1], strictest), budget, count)
    about = await _about(plan, budget, count, summarise)
    return plan.messages(about)


def _without_giants(messages: Sequence[Message], most: int, count: Count) -> list[Message]:
    """The messages, those of more than `most` tokens cut, so that one cannot push out all others; the newest question
    stays whole, if it can."""
    newest = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    return [message if n == newest else _not_a_giant(message, most, count) for n, message in enumerate(messages)]


def _not_a_giant(message: Message, most: int, count: Count) -> Message:
    if _length(message) <= most or message.get("tool_calls") or message["role"] == "system":
        return message
    alone = _cut_to_fit([{"role": "user", "content": message["content"]}], False, most, count)
    return {**message, "content": alone[0]["content"]} if alone else message


def blocks_of(messages: Sequence[Message]) -> list[Block]:
    """The messages, each with the results of tools behind it."""
    blocks: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and blocks:
            blocks[-1].append(message)
        else:
            blocks.append([message])
    return [tuple(block) for block in blocks]


def _plans(messages: Sequence[Message], first: int, recent: int) -> Iterator[CompressionPlan]:
    """Ways to shorten the conversation, from the mildest on: fewer recent turns, no first, less of the last.

    The strictest keeps no more than the newest question.
    """
    before = tuple(block for block in blocks_of(messages) if block[0].get("name") == SUMMARY)
    blocks = [block for block in blocks_of(messages) if block not in before]
    opening = next((n for n, block in enumerate(blocks) if block[0]["role"] != "system"), len(blocks))
    head = tuple(blocks[:opening])
    turns = _turns(blocks[opening:])
    for most in range(min(recent, len(turns)), 0, -1):
        start = min(first, len(turns) - most)
        middle = [block for turn in turns[start : len(turns) - most] for block in turn]
        begun = tuple(block for turn in turns[:start] for block in turn)
        recently = tuple(block for turn in turns[len(turns) - most :] for block in turn)
        yield CompressionPlan((*head, *begun), recently, (*before, *middle))
    if not turns:
        yield from [CompressionPlan(head, (), before)] * 2
        return
    earlier = (*before, *(block for turn in turns[:-1] for block in turn))
    answered = next((n for n, block in enumerate(turns[-1]) if block[0]["role"] not in ASKING), len(turns[-1]))
    asked, rest = turns[-1][:answered], turns[-1][answered:]
    for dropped in range(len(rest) or 1):
        yield CompressionPlan(head, (*asked, *rest[dropped:]), (*earlier, *rest[:dropped]))
    newest = asked[-1:] or rest[-1:]
    yield CompressionPlan(head, tuple(newest), (*earlier, *(block for block in turns[-1] if block is not newest[0])))


def _turns(blocks: Sequence[Block]) -> list[list[Block]]:
    """A turn begins with what a user says, or what the system says before that, once somebody else has spoken."""
    turns: list[list[Block]] = []
    before = ""
    for block in blocks:
        role = block[0]["role"]
        if not turns or (role in ASKING and before not in ASKING):
            turns.append([])
        turns[-1].append(block)
        before = role
    return turns


def _roomy(plans: Sequence[CompressionPlan], budget: int, count: Count) -> CompressionPlan | None:
    """The mildest plan that leaves an eighth of the budget to a summary, else the mildest that fits at all."""
    fitting = None
    for plan in plans:
        size = count(plan.messages())
        if size <= budget and (not plan.left or budget - size >= budget // 8):
            return plan
        if size <= budget and fitting is None:
            fitting = plan
    return fitting


async def _about(plan: CompressionPlan, budget: int, count: Count, summarise: Summarise | None) -> str:
    """What the plan leaves out, in the room there is."""
    left = [message for block in plan.left for message in block]
    room = budget - count(plan.messages())
    if not left or room <= 0:
        return ""
    if summarise is not None:
        try:
            written = (await summarise(left, room)).strip()
        except Exception as error:  # whatever a summariser does, the conversation goes on
            logger.warning("the summariser failed (%s: %s); sentences are picked instead", type(error).__name__, error)
        else:
            return _fitting(plan, written, budget, count)
    ranked = _ranked(left)
    most = _largest(0, len(ranked), lambda n: count(plan.messages(_in_order(ranked[:n]))) <= budget)
    return _in_order(ranked[:most])


def _fitting(plan: CompressionPlan, text: str, budget: int, count: Count) -> str:
    longest = min(len(text), LETTERS_PER_TOKEN * budget)
    most = _largest(0, longest, lambda n: count(plan.messages(shorten(text, n))) <= budget)
    return shorten(text, most) if most else ""


@dataclass(frozen=True, slots=True)
class Sentence:
    place: tuple[int, int]
    text: str
    score: float


def extract(messages: Sequence[Message], most: int) -> str:
    """The `most` sentences that say most, in their order, each line with who said it."""
    return _in_order(_ranked(messages)[:most])


def _ranked(messages: Sequence[Message]) -> list[Sentence]:
    """Sentences by what they say that others do not: their words' mean inverse frequency, more at a message's start."""
    said = [
        ((number, place), str(message["role"]), sentence)
        for number, message in enumerate(messages)
        for place, sentence in enumerate(_sentences(message))
    ]
    words = [frozenset(WORD.findall(sentence.lower())) for _, _, sentence in said]
    frequency = Counter(word for some in words for word in some)
    rarity = {word: math.log(1 + len(said) / times) for word, times in frequency.items()}
    ranked = []
    for (place, role, sentence), some in zip(said, words, strict=True):
        weight = WEIGHT.get(role, 1.0) * (1.3 if place[1] == 0 else 1.0)
        score = weight * sum(sorted(rarity[word] for word in some)) / math.sqrt(1 + len(some))
        ranked.append(Sentence(place, sentence if role == "system" else f"{role}: {sentence}", score))
    return sorted(ranked, key=lambda s: (-s.score, s.place))


def _sentences(message: Message) -> list[str]:
    parts = (part.strip() for part in SENTENCE.split(str(message.get("content") or "")))
    return [shorten(part, LONGEST_SENTENCE) for part in parts if WORD.search(part)]


def _in_order(sentences: Sequence[Sentence]) -> str:
    return "\n".join(sentence.text for sentence in sorted(sentences, key=lambda s: s.place))


def _shortened(plans: Sequence[CompressionPlan], budget: int, count: Count) -> tuple[Message, ...]:
    """The strictest plans, their long messages cut to one length: others first, the system turn only if it must be."""
    for system in (False, True):
        for plan in plans:
            cut = _cut_to_fit(plan.messages(), system, budget, count)
            if cut is not None:
                return cut
    least = count(tuple(_cut(message, 0, True) for message in plans[-1].messages()))
    raise ContextFull(
        f"the conversation has at least {least} tokens however it is shortened, and there is room for {budget}",
        hint="Take a model with a longer context, a shorter system prompt or fewer tools.",
    )


def _cut_to_fit(messages: Sequence[Message], system: bool, budget: int, count: Count) -> tuple[Message, ...] | None:
    def cut(limit: int) -> tuple[Message, ...]:
        return tuple(_cut(message, limit, system) for message in messages)

    longest = min(max(map(_length, messages)), LETTERS_PER_TOKEN * budget)
    if budget < 1 or count(cut(0)) > budget:
        return None
    return cut(_largest(0, longest, lambda limit: count(cut(limit)) <= budget))


def _length(message: Message) -> int:
    return len(str(message.get("content") or ""))


def _cut(message: Message, limit: int, system: bool) -> Message:
    """The message with its text cut; a call of a tool is whole or not there."""
    if message.get("tool_calls") or (message["role"] == "system" and not system) or _length(message) <= limit:
        return message
    return {**message, "content": shorten(str(message["content"]), limit)}


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text, with a mark between that says how much is missing.

    The mark itself is always whole, so that a limit below its 36 letters or so leaves the mark alone.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - len(f" [... {len(text)} characters left out ...] "))
    end = room // 3
    mark = f"[... {len(text) - room} characters left out ...]"
    if not room:
        return min(mark, text, key=len)
    return f"{text[: room - end]} {mark} {text[len(text) - end :]}"


def _largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest number from `low` to `high` that holds; `low` does, and what is smaller than one that does, does too.

    Where that is only nearly so (a tokenizer may need fewer tokens for a longer text), it is still one that holds.
    """
    if high <= low or holds(high):
        return max(low, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
