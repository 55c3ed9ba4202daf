"""Customer service: tracks the issue, the customer's mood, what was promised, and whether it is settled."""

import re
from dataclasses import dataclass, replace
from typing import Literal, Self

from groupwise.agents.strategies.intents import intent_after
from groupwise.agents.strategies.phrases import SARCASM
from groupwise.agents.strategies.reading import last_turn, wanted
from groupwise.agents.strategies.registry import Signal, clipped, ending, listed, noted, sentences, strategy, words_of
from groupwise.agents.strategies.resolution import heard
from groupwise.types import Message

Status = Literal["listening", "working", "checking", "resolved", "escalated"]
Mood = Literal["angry", "upset", "calm", "pleased"]

# Tried in this order: the first that matches names the issue, so general words ("order") come last.
ISSUE_PHRASES = {
    "refund": r"refund\w* | money back | reimburse\w* | charged? back",
    "damaged item": "damaged | broken | defective | cracked | faulty | torn",
    "wrong item": "wrong (?:item|size|colou?r|order|product) | not what i ordered",
    "cancellation": r"cancel\w* | unsubscribe",
    "billing": r"charged (?:twice|wrongly|again) | double charge\w* | invoice | bill(?:ed|ing)? | overcharged",
    "return or exchange": "return (?:it|this|them|the|my) | exchange | replace(?:ment|d)? | send (?:it|this|them) back",
    "delivery": r"(?:not|never|\w+n't|yet to) (?:\w+ )?(?:arriv\w+|receiv\w+|come) | deliver\w* | late | delay\w* | "
    r"track\w* | shipp?\w* | package | parcel | where is | where's | lost",
    "account": "account | password | log ?in | locked out | sign in",
    "order": "my order | an order | order (?:number|no)",
}
ISSUES = {issue: Signal(phrases, denied=False) for issue, phrases in ISSUE_PHRASES.items()}
REFERENCE = re.compile(r"(?:#\s?|\border (?:number |no\.? |id )?#?)([A-Z]{0,4}-?\d{3,})", re.IGNORECASE)
BAD = Signal(
    r"angry | furious | terrible | awful | unacceptable | ridiculous | worst | disappointed | disappointing | "
    r"annoy\w+ | frustrat\w+ | upset | hate | useless | scam | rude | sick of | fed up | waste | still waiting | "
    r"not (?:happy|acceptable|good enough|satisfied) | never again | disgrace\w* | joke",
    denied=False,
)
GOOD = Signal(
    "thanks? | thank you | great | perfect | wonderful | appreciate | happy | awesome | excellent | lovely | helpful"
)
PERSON = Signal("manager | supervisor | (?:real|actual) (?:person|human) | a human | complaint | lawyer", denied=False)
PROMISE = Signal("i(?:'ll| will| am going to|'m going to) | we(?:'ll| will) | let me")

ASKS: dict[Status, str] = {
    "listening": "Find out what the problem is: greet, then ask about it and the order number, one at a time.",
    "working": "Say in one sentence what you understood, then what you do about it now.",
    "checking": "Ask whether the problem is solved, and wait for the answer.",
    "resolved": "The problem is solved: thank the customer and close; do not bring up anything new.",
    "escalated": "Hand over to a person: say who will answer and by when, and sum up the problem for them.",
}
TONE: dict[Mood, str] = {
    "angry": "The customer is angry: apologise first, plainly and once, and make no excuses.",
    "upset": "The customer is upset: acknowledge that before anything else.",
    "calm": "Be friendly and to the point.",
    "pleased": "The customer is pleased: be warm and brief.",
}


@strategy("customer_service")
@dataclass(frozen=True, slots=True)
class CustomerService:
    """listening → working → checking → resolved or escalated; an issue that comes up again goes back to working.

    `sentiment` from -1 to 1 is a running mean over the customer's messages, and `mood` its name.
    """

    status: Status = "listening"
    issue: str = ""
    references: tuple[str, ...] = ()
    sentiment: float = 0.0
    mood: Mood = "calm"
    promised: tuple[str, ...] = ()
    complaints: int = 0
    intent: str = ""
    asked: str = ""
    said: str = ""

    def advance(self, message: Message) -> Self:
        text = words_of(message)
        if message["role"] == "user":
            return self._heard(text)
        return self._said(text) if message["role"] == "assistant" else self

    def _heard(self, text: str) -> Self:
        issue = wanted(text, ISSUES)
        # "order" and "delivery" do not replace a more specific issue.
        vague = not issue or (issue in ("order", "delivery") and self.issue not in ("", "order"))
        feeling = _feeling(text)
        new = replace(
            self,
            issue=self.issue if vague else issue,
            references=noted(self.references, *REFERENCE.findall(text)),
            complaints=self.complaints + (feeling < 0),
            intent=intent_after("customer_service", text, self.intent),
            asked=self.asked or clipped(text),
        )._feels(feeling)
        return replace(new, status=new._status(text))

    def _status(self, text: str) -> Status:
        # Once handed over, a conversation stays with a person.
        if self.status == "escalated" or PERSON.within(text) or (self.mood == "angry" and self.complaints >= 3):
            return "escalated"
        known, found = bool(self.issue), heard(self.asked, self.said, text)
        if known and found == "settled":
            return "resolved"
        # Goodbyes after it was settled do not open it again.
        if self.status == "resolved" and found != "open" and not any(s.within(text) for s in ISSUES.values()):
            return "resolved"
        return "working" if known else "listening"

    def _said(self, text: str) -> Self:
        promises = [s for s in sentences(text) if PROMISE.within(s) and not s.endswith("?")]
        last = last_turn(text)
        # The assistant asked whether that was all.
        checking = self.status == "working" and last in ("settled?", "more?", "still?")
        status = "checking" if checking else self.status
        return replace(self, promised=noted(self.promised, *promises), status=status, said=ending(text))

    def _feels(self, feeling: float) -> Self:
        # An exponential mean: the last message counts half, the one before a quarter.
        sentiment = round(0.5 * self.sentiment + 0.5 * feeling, 3)
        mood: Mood = (
            "angry" if sentiment <= -0.6 else "upset" if sentiment < -0.15 else "calm" if sentiment < 0.3 else "pleased"
        )
        return replace(self, sentiment=sentiment, mood=mood)

    def guidance(self) -> str:
        about = f" about: {self.issue}" if self.issue else ""
        number = f" ({', '.join(self.references)})" if self.references else ""
        return " ".join([
            f"You are in customer service{about}{number}.",
            TONE[self.mood],
            ASKS[self.status],
            *listed("You promised this, so keep your word", self.promised),
        ])  # fmt: skip


def _feeling(text: str) -> float:
    """Return -1 … 1: kind words minus unkind ones; shouting gives unkind words more weight."""
    loud = text.count("!") >= 2 or any(word.isupper() and len(word) > 3 for word in re.findall(r"[A-Za-z]+", text))
    kind = 0 if SARCASM.within(text) else GOOD.count(text)
    score = (
        0.5 * kind
        - (1.0 if loud else 0.7) * (BAD.count(text) + SARCASM.within(text))
        - (0.4 if loud and not GOOD.within(text) else 0.0)
    )
    return min(1.0, max(-1.0, score))
