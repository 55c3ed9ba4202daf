"""Reads what a turn means in its dialogue: whether a matter is settled, and what somebody wants.

A turn is read clause by clause. What is denied, asked, supposed, wished for or somebody else's claim does not count; of
clauses that contradict each other ("it works, but …") the last one counts; praise for nothing is no praise. A bare
"yes", "no" or "thanks" means what it answers, so the assistant's turn before it is read too.
"""

import re
from collections.abc import Sequence
from typing import Literal

from groupwise.agents.strategies.phrases import (
    ACCEPTS,
    ASKS_MORE,
    ASKS_RESULT,
    ASKS_SETTLED,
    ASKS_STILL,
    CLAIMED,
    CLOSES,
    COMPLETED,
    CONFIRMS,
    CONTRAST,
    CORRECTS,
    DENIED,
    FAILS,
    GIVES_UP,
    GONE,
    GRUMBLES,
    HANDED_ON,
    LATER,
    MORE,
    NEVER,
    NO,
    NO_TROUBLE,
    OFFERS,
    PRAISED,
    PROMISED,
    QUESTION,
    REFUSED,
    REGRETS,
    REPORTS_DONE,
    REQUESTS,
    SARCASM,
    SETTLED,
    STEP,
    SUPPOSED,
    THANKS,
    TRIES,
    UNAVAILABLE,
    UNDECIDED,
    WANTS,
    YES,
)
from groupwise.agents.strategies.polarity import polarity
from groupwise.agents.strategies.registry import Signal, sentences, words_of
from groupwise.types import Message

Verdict = Literal["settled", "open", ""]
# What the assistant's last turn was: a question whether it is settled, whether there is more, whether the problem is
# still there; another question; a step to take; something done or explained; something promised for later or handed on;
# or that it cannot be done.
LastTurn = Literal["", "settled?", "more?", "still?", "question", "step", "done", "promised", "refused"]


def contrasted(text: str) -> list[str]:
    """The clauses of a turn, divided where it says "but": the later one is what counts."""
    return [part for sentence in sentences(text) for part in CONTRAST.split(sentence) if part and part.strip()]


def is_supposed(clause: str) -> bool:
    """Whether a clause is a question, a condition or a wish, and not what somebody does or finds."""
    return clause.rstrip().endswith("?") or SUPPOSED.within(clause)


def last_turn(text: str) -> LastTurn:
    """What kind of turn an assistant's was, for what a "yes", a "thanks" or a bare report after it means."""
    parts = sentences(text)
    closing = " ".join(parts[-2:])
    done = _is_done(text)
    if "?" in closing:
        if ASKS_MORE.within(closing):
            return "more?"
        if ASKS_STILL.within(closing) and not ASKS_SETTLED.within(closing):
            return "still?"
        # "I have moved it. How long does it take now?" asks for the result, whatever the words.
        if ASKS_SETTLED.within(closing) or ASKS_RESULT.within(closing) or (done and not OFFERS.within(closing)):
            return "settled?"
        return "step" if any(STEP.search(part) for part in parts) else "question"
    if HANDED_ON.within(text):
        return "promised"
    if REFUSED.within(text) or NEVER.within(text) or (REGRETS.within(text) and UNAVAILABLE.within(text) and not done):
        return "refused"
    if PROMISED.within(closing) and not _is_done(parts[-1]):
        return "promised"
    if any(STEP.search(part) for part in parts):
        return "step"
    return "done" if parts else ""


def verdict(text: str, before: LastTurn = "", only_asks: bool = False) -> Verdict:
    """Whether somebody considers their matter settled, by what they say and what they answer; "" if it does not say.

    Who only wants to know (`only_asks`) is served by an answer, whatever they make of it later.
    """
    if any(_is_sarcastic(sentence) for sentence in sentences(text)):
        return "open"
    decided = _decided(text)
    if GIVES_UP.within(text) and decided != "settled":
        return "open"
    if decided := decided or _answered(text, before):
        return decided
    # Anger at what it took does not undo what was just said to work, but alone it is no thanks.
    return "open" if GRUMBLES.within(text) else _implied(text, before, only_asks)


def _decided(text: str) -> Verdict:
    """What the last clause says that says anything; a question does not take back what was said before it."""
    found: Verdict = ""
    for sentence in sentences(text):
        asks = sentence.rstrip().endswith("?")
        for number, clause in enumerate(filter(None, CONTRAST.split(sentence))):
            reading = _clause(clause, asks)
            # "My phone is online, but the tablet isn't."
            if not reading and number and not asks and found == "settled" and polarity(clause) < 0:
                reading = "open"
            found = found if asks and found == "settled" else reading or found
    return found


def is_plain(text: str, before: LastTurn) -> bool:
    """Whether a turn needs no weighing of words: a bare yes or no, or what follows a promise or a refusal."""
    return bool(_answered(text, before)) or (before in ("promised", "refused") and not _decided(text))


def _is_sarcastic(sentence: str) -> bool:
    """Praise for a failure: by its phrases, or by what the praise goes on to say."""
    # "Great, now it works" begins like "Great, now it is gone".
    if SARCASM.within(sentence):
        return not SETTLED.within(sentence) or FAILS.within(sentence)
    praised = PRAISED.match(sentence)
    return (
        praised is not None
        and not CONTRAST.search(sentence)
        and polarity(praised["rest"]) < 0
        and not _decided(sentence)
    )


def _is_done(text: str) -> bool:
    return COMPLETED.within(text) or any(REPORTS_DONE.match(sentence) for sentence in sentences(text))


def resolved_by_rules(dialogue: Sequence[Message]) -> bool:
    """Whether the rules find that the user's need was met by the end of a dialogue.

    The last turn that says so counts. An honest "no" answers a question, but meets no request. If the assistant has the
    last word, it settles the matter by confirming an answer or by reporting what was done, and opens it by correcting.
    """
    before: LastTurn = ""
    found: Verdict = ""
    asked = next((words_of(m) for m in dialogue if m["role"] == "user"), "")
    only_asks = asked.rstrip().endswith("?") and not REQUESTS.within(asked)
    for message in dialogue:
        text = words_of(message)
        if message["role"] == "assistant":
            before = last_turn(text)
        elif message["role"] == "user" and before:
            if before == "refused" and only_asks:
                # Regret about an honest answer is no complaint about it.
                objects = "?" in text or SARCASM.within(text) or GIVES_UP.within(text)
                found = "open" if objects else "settled"
            else:
                found = verdict(text, before, only_asks) or found
    return (last_word(dialogue) or found) == "settled"


def last_word(dialogue: Sequence[Message]) -> Verdict:
    """What the assistant makes of the matter where it speaks last: it corrects, or it confirms or reports it done."""
    if not dialogue or dialogue[-1]["role"] != "assistant":
        return ""
    text = words_of(dialogue[-1])
    if CORRECTS.within(text):
        return "open"
    closes = last_turn(text) in ("done", "more?", "settled?")
    return "settled" if closes and (CONFIRMS.search(text) or _is_done(text)) else ""


def _implied(text: str, before: LastTurn, only_asks: bool) -> Verdict:
    """What a turn says between the lines, by how it sounds and by what it follows.

    A report that sounds like no failure settles a matter after a question for the result and after a step that was
    taken; a friendly or accepting one after something was done or explained; nothing does after a promise or a refusal,
    nor does a turn that puts something off or asks for more.
    """
    asks_on = "?" in text or (REQUESTS.within(text) and not THANKS.within(text))
    if not before or asks_on:
        return "open" if before not in ("", "question", "more?") else ""
    if before == "question" and polarity(text) < 0:
        return "open"
    if before in ("question", "more?"):
        return "settled" if THANKS.within(text) and polarity(text) >= 0 and not LATER.within(text) else ""
    put_off = (UNDECIDED.within(text) and not only_asks) or (before != "done" and LATER.within(text))
    if before in ("promised", "refused") or put_off or polarity(text) < 0:
        return "open"
    accepts = only_asks or polarity(text) > 0 or THANKS.within(text) or ACCEPTS.within(text) or CLOSES.within(text)
    return "settled" if accepts or before in ("settled?", "still?", "step") else ""


def _answered(text: str, before: LastTurn) -> Verdict:
    if before in ("settled?", "still?") and YES.match(text):
        return "settled" if before == "settled?" else "open"
    if before in ("settled?", "still?") and NO.match(text):
        return "open" if before == "settled?" else "settled"
    if before == "more?" and MORE.match(text):
        return "open"
    return "settled" if before == "more?" and NO.match(text) and "?" not in text else ""


def _clause(clause: str, asks: bool) -> Verdict:
    """What one clause says about the matter."""
    plain = NO_TROUBLE.pattern.sub(" ", clause)
    gone = GONE.within(plain)
    fails = FAILS.within(GONE.pattern.sub(" ", plain))
    if asks or QUESTION.match(plain):
        return "open" if fails else ""
    if fails:
        return "open"
    if SUPPOSED.within(plain) or CLAIMED.within(plain):
        # "I'll try it" and "it should work" leave the matter open.
        return "open" if SETTLED.within(plain) or TRIES.within(plain) else ""
    return "settled" if gone or SETTLED.within(plain) else ""


def wanted(text: str, choices: dict[str, Signal], general: Sequence[str] = ()) -> str:
    """Which of some matters a turn is about: one that is asked for before one that is mentioned, never a denied one.

    Of several that are equally wanted, the first in the order of `choices`; general ones only if there is no other.
    """
    parts = [
        part for sentence in sentences(text) for part in re.split(r",\s+|;\s+|\s+but\s+", sentence) if part.strip()
    ]
    best: Sequence[tuple[bool, bool, int, str]] = [
        (name in general, not WANTS.within(part), order, name)
        for part in parts
        for order, (name, signal) in enumerate(choices.items())
        if signal.within(part) and not _is_denied(part, signal)
    ]
    return min(best)[3] if best else ""


def _is_denied(part: str, signal: Signal) -> bool:
    """Whether a clause mentions something only to say that it is not wanted."""
    denials = [match.start() for match in DENIED.found(part)]
    return bool(denials) and all(min(denials) < match.start() for match in signal.found(part))
