"""Fits a conversation into a token budget: the most important parts verbatim, the rest as a summary.

The system turn, the first and the newest turns are kept. Everything between becomes one summary: the results of tools,
then facts, decisions and open questions (`agents/memory/statements`), then other sentences, as many as fit. What a user
corrected later is left out. A summariser's text comes before them, and does not replace them. A tool's result always
stays with its call.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from groupwise.agents.conversation.extraction import FACT, WORD, Sentence, in_order, ranked_sentences, shorten
from groupwise.errors import ContractError
from groupwise.types import Message

logger = logging.getLogger(__name__)

Count: TypeAlias = Callable[[Sequence[Message]], int]
"""Messages → how many tokens the model reads for them."""
Summarise: TypeAlias = Callable[[Sequence[Message], int], Awaitable[str]]
"""Messages and a number of tokens → a summary of at most that length."""
Block: TypeAlias = tuple[Message, ...]
"""A message and the results of the tools it called; they stay or go together."""

SUMMARY = "summary"
ASKING = ("system", "user")  # the roles that begin a turn
LETTERS_PER_TOKEN = 16  # an upper bound in practice; longer texts need not be counted to know they do not fit


class ContextFull(ContractError):
    """The conversation does not fit even when shortened as far as possible."""

    code = "context_full"


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    """Which blocks are kept verbatim, and which are summarised."""

    head: tuple[Block, ...]
    kept: tuple[Block, ...]
    left: tuple[Block, ...]

    def messages(self, about: str = "") -> tuple[Message, ...]:
        """Return the conversation, with a summary in place of what was left out."""
        blocks = [*self.head, *([(self._summary(about),)] if self.left else []), *self.kept]
        return tuple(message for block in blocks for message in block)

    def _summary(self, about: str) -> Message:
        count = sum(len(block) for block in self.left)
        content = f"[Summary of {count} messages:]\n{about}" if about else f"[{count} earlier messages left out]"
        return {"role": "system", "name": SUMMARY, "content": content}


async def compress(
    messages: Sequence[Message], budget: int, count: Count, *, summarise: Summarise | None = None, first: int = 1,
    recent: int = 4,
) -> tuple[Message, ...]:  # fmt: skip
    """Return the conversation in at most `budget` tokens. One that fits is returned unchanged, so this is idempotent.

    Args:
      messages: all of them, in the form of chat APIs.
      budget: tokens, as `count` counts them.
      count: how many tokens some messages have.
      summarise: writes the summary; without it, sentences are extracted. If it fails, that is logged and sentences are
        extracted instead.
      first, recent: turns kept verbatim at either end, fewer if they do not fit. A turn is a user's message, the system
        messages before it, and everything up to the next one.

    A single turn that exceeds the budget is cut, with a mark that says by how much; if even that does not help,
    `ContextFull` is raised.
    """
    if count(messages) <= budget:
        return tuple(messages)
    # The strictest plan drops part of the newest turn, so it is only for cutting texts.
    *plans, strictest = _plans(_without_giants(messages, budget // 2, count), first, recent)
    plan = _roomy(plans, budget, count)
    if plan is None:
        return _shortened((plans[-1], strictest), budget, count)
    about = await _about(plan, budget, count, summarise)
    return plan.messages(about)


def _without_giants(messages: Sequence[Message], most: int, count: Count) -> list[Message]:
    """Cut messages of more than `most` tokens, so that one cannot push out all others, except the newest question."""
    newest = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    return [message if n == newest else _not_a_giant(message, most, count) for n, message in enumerate(messages)]


def _not_a_giant(message: Message, most: int, count: Count) -> Message:
    if _length(message) <= most or message.get("tool_calls") or message["role"] == "system":
        return message
    alone = _cut_to_fit([{"role": "user", "content": message["content"]}], False, most, count)
    return {**message, "content": alone[0]["content"]} if alone else message


def blocks_of(messages: Sequence[Message]) -> list[Block]:
    """Group every message with the tool results that follow it."""
    blocks: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and blocks:
            blocks[-1].append(message)
        else:
            blocks.append([message])
    return [tuple(block) for block in blocks]


def _plans(messages: Sequence[Message], first: int, recent: int) -> Iterator[CompressionPlan]:
    """Yield ways to shorten the conversation, mildest first: fewer recent turns, no first turn, less of the last.

    The last and strictest keeps only the newest question.
    """
    # Earlier summaries are summarised again, together with what is left out now.
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
        # Twice, because the caller splits off the last plan as the strictest.
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
    """Split blocks into turns. A turn begins with a user or system message that follows somebody else's."""
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
    """Return the mildest plan that leaves enough room for a summary.

    Enough is what the facts among the messages left out need: at least an eighth and at most half of the budget. If
    they need more than any plan leaves, a quarter is enough, then an eighth, then any plan that fits.
    """
    fitting = [(plan, budget - count(plan.messages())) for plan in plans]
    fitting = [(plan, room) for plan, room in fitting if room >= 0]
    for plan, room in fitting:
        facts = [sentence for sentence in ranked_sentences(_messages(plan.left)) if sentence.weight >= FACT]
        needed = count(plan.messages(in_order(facts))) - (budget - room) if facts else 0
        if not plan.left or room >= min(max(needed, budget // 8), budget // 2):
            return plan
    for share in (4, 8):
        for plan, room in fitting:
            if room >= budget // share:
                return plan
    return fitting[0][0] if fitting else None


def _messages(blocks: Sequence[Block]) -> list[Message]:
    return [message for block in blocks for message in block]


async def _about(plan: CompressionPlan, budget: int, count: Count, summarise: Summarise | None) -> str:
    """Summarise what the plan leaves out, in the remaining room."""
    left = _messages(plan.left)
    room = budget - count(plan.messages())
    if not left or room <= 0:
        return ""
    written = await _written(left, room // 2, summarise)
    ranked = ranked_sentences(left)
    if written:
        # Half of the room for the summariser's words, so that facts it does not mention fit behind them.
        written = _fitting(plan, written, budget - room // 2, count)
        said = {*WORD.findall(written.lower())}
        ranked = [one for one in ranked if one.weight >= FACT and not {*WORD.findall(one.words.lower())} <= said]
    return "\n".join(filter(None, [written, _selected(plan, ranked, written, budget, count)]))


async def _written(left: Sequence[Message], room: int, summarise: Summarise | None) -> str:
    if summarise is None:
        return ""
    try:
        return (await summarise(left, room)).strip()
    except Exception as error:  # a failing summariser must not end the conversation
        logger.warning("the summariser failed (%s: %s); using extracted sentences", type(error).__name__, error)
        return ""


def _selected(plan: CompressionPlan, ranked: Sequence[Sentence], before: str, budget: int, count: Count) -> str:
    """As many of the best sentences as fit, back in their order; then shorter ones into what is left."""

    def fits(chosen: Sequence[Sentence]) -> bool:
        about = "\n".join(filter(None, [before, in_order(chosen)]))
        return count(plan.messages(about)) <= budget

    # Texts far beyond the budget need not be counted.
    lengths = itertools.accumulate(len(sentence.text) for sentence in ranked)
    possible = sum(length <= LETTERS_PER_TOKEN * budget for length in lengths)
    most = _largest(0, possible, lambda n: fits(ranked[:n]))
    chosen = list(ranked[:most])
    for sentence in ranked[most + 1 : most + 1 + 8]:
        if fits([*chosen, sentence]):
            chosen.append(sentence)
    return in_order(chosen)


def _fitting(plan: CompressionPlan, text: str, budget: int, count: Count) -> str:
    longest = min(len(text), LETTERS_PER_TOKEN * budget)
    most = _largest(0, longest, lambda n: count(plan.messages(shorten(text, n))) <= budget)
    return shorten(text, most) if most else ""


def _shortened(plans: Sequence[CompressionPlan], budget: int, count: Count) -> tuple[Message, ...]:
    """Cut the long messages of the strictest plans to one length; the system turn only if nothing else helps."""
    for system in (False, True):
        for plan in plans:
            cut = _cut_to_fit(plan.messages(), system, budget, count)
            if cut is not None:
                return cut
    least = count(tuple(_cut(message, 0, True) for message in plans[-1].messages()))
    raise ContextFull(
        f"the conversation needs at least {least} tokens even when shortened, but there is room for {budget}",
        hint="Use a model with a longer context, a shorter system prompt or fewer tools.",
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
    """Cut the text of a message; a message with tool calls stays as it is."""
    if message.get("tool_calls") or (message["role"] == "system" and not system) or _length(message) <= limit:
        return message
    return {**message, "content": shorten(str(message["content"]), limit)}


def _largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Binary search for the largest number in `low` … `high` for which `holds` is true; it is for `low`.

    A tokenizer may need fewer tokens for a longer text, so `holds` is only nearly monotonic. The result still holds.
    """
    if high <= low or holds(high):
        return max(low, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
