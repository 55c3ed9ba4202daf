"""Sales: the stages of a sale, driven by the customer's intent."""

import re
from dataclasses import dataclass, replace
from typing import Literal, Self

from groupwise.agents.strategies.intents import intent_after
from groupwise.agents.strategies.phrases import SARCASM
from groupwise.agents.strategies.reading import contrasted, is_supposed
from groupwise.agents.strategies.registry import Signal, listed, noted, sentences, strategy, words_of
from groupwise.types import Message

Stage = Literal["opening", "needs", "proposal", "objection", "close"]
Outcome = Literal["open", "won", "lost"]

# In order of what weighs most: a message that objects and asks is an objection.
INTENTS = {
    "refuse": Signal(
        "not interested | no,? thanks?(?: you)? | stop (?:calling|writing|asking) | we decided against | leave it | "
        "went with (?:another|someone else|a competitor)",
        denied=False,
    ),
    "object": Signal(
        r"too (?:expensive|much|high|complicated|long|late|big|risky) | expensive | not (?:so |really )?sure | "
        r"can(?:'t|not) afford | over (?:our |my )?budget | think about it | already (?:have|use|using) | "
        r"competitors? | cheaper | worried | concern(?:s|ed)? | hesitat\w+ | risky | not (?:ready|yet|now)"
    ),
    "buy": Signal(
        "i'll take (?:it|them|one|two|that) | we'll take (?:it|them|one|two|that) | sign (?:me|us) up | "
        "let's do (?:it|that) | let's go ahead | (?:want|like|ready) to (?:buy|order|sign|subscribe|start) | "
        "where do (?:i|we) sign | send (?:me|us) the (?:contract|invoice) | we have a deal | place (?:the|an) order"
    ),
    "ask": Signal(
        r"how much | (?:what|which) (?:do|does|would|is|are|plan|model|one|can)\b[^.!?\n]{0,80}\? | prices? | "
        r"costs? | recommend | tell me (?:more )?about | (?:does|do|can|could) (?:it|you|they) | features? | demo",
        denied=False,
    ),
    "need": Signal(
        "(?:i|we) (?:really |also |just )?(?:need|want|require|must have) | looking for | searching for | "
        "(?:i'm|we're|i am|we are) (?:trying|hoping|struggling) | (?:my|our) (?:problem|team|company|goal|current) | "
        "budget | (?:people|users|employees|seats)"
    ),
    "agree": Signal(
        "yes | yeah | sure | ok(?:ay)? | sounds (?:good|great|fair|reasonable) | makes sense | that works | perfect | "
        "great | fair enough | deal | i like (?:it|that)"
    ),
}  # fmt: skip

NEXT: dict[Stage, dict[str, Stage]] = {
    "opening": {"need": "needs", "ask": "needs", "object": "needs", "buy": "close"},
    "needs": {"ask": "proposal", "object": "objection", "buy": "close"},
    "proposal": {"need": "needs", "object": "objection", "agree": "close", "buy": "close"},
    "objection": {"agree": "close", "buy": "close", "ask": "proposal", "need": "proposal"},
    "close": {"object": "objection", "ask": "proposal"},
}
OFFER = Signal(r"i(?:'d| would)? (?:recommend|suggest) | our \w+ plan | we offer | would suit you | fits? your")
BUDGET = re.compile(r"(?:[$€£]\s?\d[\d,.]*\s?k?|\d[\d,.]*\s?(?:dollars|euros|pounds|usd|eur))", re.IGNORECASE)

ASKS: dict[Stage, str] = {
    "opening": "Greet the customer briefly and ask one open question about what they want to achieve.",
    "needs": "Find out what they need before you offer anything: ask about use, size and budget, one at a time.",
    "proposal": "Offer the one option that fits the needs below, and say what it does for each of them.",
    "objection": "Take the latest objection seriously: repeat it, answer with a fact, and ask whether that settles it.",
    "close": "Agree on the next step: say what happens, when, and what you need from them. Offer nothing new.",
}
ENDED = {
    "won": "The customer has agreed to buy. Thank them, confirm what was agreed, and do not sell any further.",
    "lost": "The customer has said no. Accept it politely in one sentence and do not try again.",
}


@strategy("sales")
@dataclass(frozen=True, slots=True)
class Sales:
    """opening → needs → proposal → objection → close, and whether it was won or lost."""

    stage: Stage = "opening"
    outcome: Outcome = "open"
    intent: str = ""
    needs: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    budget: str = ""
    wish: str = ""

    def advance(self, message: Message) -> Self:
        text = words_of(message)
        if message["role"] == "assistant":
            offered = self.stage == "needs" and self.needs and OFFER.within(text)
            return replace(self, stage="proposal") if offered else self
        if message["role"] != "user":
            return self
        return replace(self, wish=intent_after("sales", text, self.wish))._heard(text)

    def _heard(self, text: str) -> Self:
        intent = _intent(text)
        if not intent:
            return replace(self, intent="")
        needs = [s for s in sentences(text) if INTENTS["need"].within(s) and not INTENTS["object"].within(s)]
        objections = [s for s in sentences(text) if INTENTS["object"].within(s)]
        money = BUDGET.search(text)
        return replace(
            self,
            stage=NEXT[self.stage].get(intent, self.stage),
            outcome=self._outcome(intent),
            intent=intent,
            needs=noted(self.needs, *needs),
            objections=noted(self.objections, *objections),
            budget=money.group().strip() if money and "budget" in text.lower() else self.budget,
        )

    def _outcome(self, intent: str) -> Outcome:
        """Buying, or agreeing to the closing question, wins; refusing loses; anything else reopens the sale."""
        if intent == "refuse":
            return "lost"
        if intent == "buy" or (intent == "agree" and (self.stage == "close" or self.outcome == "won")):
            return "won"
        return "open"

    def guidance(self) -> str:
        asked = ENDED.get(self.outcome, ASKS[self.stage])
        return " ".join([
            f"You are selling; the sale is at the stage: {self.stage}.",
            asked,
            *listed("What they need", self.needs),
            *([f"Their budget: {self.budget}."] if self.budget else []),
            *listed("What they objected", self.objections),
        ])  # fmt: skip


def _intent(text: str) -> str:
    """What a customer is about: of clauses that contradict each other, the last that says something."""
    found = [name for clause in contrasted(text) if (name := _of_clause(clause))]
    strongest = [name for name in INTENTS if name in found[-1:]]
    # "We need 12 seats. What does it cost?": without a contradiction, what weighs most.
    if len(sentences(text)) == len(contrasted(text)):
        strongest = [name for name in INTENTS if name in found]
    return "object" if SARCASM.within(text) else strongest[0] if strongest else ""


def _of_clause(clause: str) -> str:
    name = next((name for name, signal in INTENTS.items() if signal.within(clause)), "")
    # "We would buy it if it were cheaper", "How do I order?"
    if name == "buy" and is_supposed(clause):
        return "ask" if clause.rstrip().endswith("?") else "object"
    return name
