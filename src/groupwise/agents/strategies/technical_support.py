"""Technical support: tracks what is wrong and what was tried, and suggests one step at a time."""

import re
from dataclasses import dataclass, replace
from typing import Literal, Self

from groupwise.agents.strategies.intents import intent_after
from groupwise.agents.strategies.registry import Signal, clipped, ending, listed, noted, sentences, strategy, words_of
from groupwise.agents.strategies.resolution import heard
from groupwise.types import Message

Status = Literal["gathering", "trying", "resolved", "escalated"]
NextStep = Literal["ask_symptoms", "ask_details", "suggest_step", "await_result", "confirm_fix", "hand_over"]
PATIENCE = 3  # steps that may fail before a person takes over

PROBLEM = Signal(
    r"\w+(?:n't| not) (?:\w+ )?(?:work|start|load|open|connect|print|turn on|boot|respond)\w* | won't \w+ | "
    r"can(?:'t|not) \w+ | errors? | crash\w* | fail(?:s|ed|ing|ure)? | freez\w+ | frozen | slow | blank | "
    r"black screen | broken | stuck | timed? out | keeps \w+ing | problem | issue | blinks? | drops? | "
    r"disconnect(?:s|ed|ing)",
    denied=False,
)
CODE = re.compile(r"\b(?:0x[0-9a-fA-F]{2,}|[A-Z]{1,5}[-_]?\d{2,}|(?:error|code) (?:code )?#?\d{2,})\b")
ATTEMPT = Signal(
    "i(?:'ve| have)? (?:already |also )?"
    "(?:tried|restarted|rebooted|reinstalled|updated|checked|reset|replaced|unplugged|cleared)"
)
PENDING = Signal("(?:i'll|i will|let me|going to) (?:try|check|test|see|do)", denied=False)
AGAIN = Signal("again | (?:is|it's|came|come) back | returned | once more", denied=False)
PERSON = Signal(r"(?:talk|speak) to (?:a|an|the|some)\s?\w+ | real person | human | technician | supervisor | manager")
VERBS = (
    "try|restart|reboot|check|open|update|reinstall|unplug|plug|clear|reset|run|press|go to|make sure|turn|disconnect|"
    "connect|remove|replace|install|disable|enable|close|hold|log|delete|download|switch|verify"
)
STEP = re.compile(
    r"^(?:\d+[.)]\s*|[-*]\s*)?"
    r"(?:(?:first|next|now|then),? |please |could you |can you |let's |i suggest (?:that )?you )*"
    rf"(?P<step>(?:{VERBS})\b[^.!?\n]*)",
    re.IGNORECASE,
)

ASKS: dict[NextStep, str] = {
    "ask_symptoms": "Ask what exactly happens and what the user expected.",
    "ask_details": "Ask for the exact error message, the device and its version before you suggest anything.",
    "suggest_step": "Suggest exactly one new step, the likeliest first, and ask for its result.",
    "await_result": "Wait for the result of the step below; ask for it, and suggest nothing else meanwhile.",
    "confirm_fix": "It works again: say what the cause probably was and how to keep it from coming back.",
    "hand_over": "Hand over to a technician: sum up symptoms and what was tried, so that nobody has to ask again.",
}


@strategy("technical_support")
@dataclass(frozen=True, slots=True)
class TechnicalSupport:
    """gathering → trying → resolved or escalated; a fault that returns goes back to trying."""

    status: Status = "gathering"
    next_step: NextStep = "ask_symptoms"
    symptoms: tuple[str, ...] = ()
    error_codes: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    suggested: str = ""
    failed: int = 0
    asked_details: bool = False
    intent: str = ""
    asked: str = ""
    said: str = ""

    def advance(self, message: Message) -> Self:
        text = words_of(message)
        if message["role"] == "user":
            wish = intent_after("technical_support", text, self.intent)
            return replace(self, intent=wish, asked=self.asked or clipped(text))._heard(text)._planned()
        return self._said(text)._planned() if message["role"] == "assistant" else self

    def _heard(self, text: str) -> Self:
        """Take in what the user reports: the result of a suggested step, earlier attempts, symptoms."""
        if PERSON.within(text):
            return replace(self, status="escalated")
        found = heard(self.asked, self.said, text)
        worked, still = found == "settled", found == "open"
        noticed = self._noticed(text, symptoms=not worked)
        if worked and (self.symptoms or self.suggested):
            done = noted(noticed.tried, self.suggested)
            return replace(noticed, status="resolved", tried=done, suggested="")
        if self.suggested and not worked and (still or PROBLEM.within(text)) and not PENDING.within(text):
            failed = self.failed + 1
            status: Status = "escalated" if failed >= PATIENCE else "trying"
            tried = noted(noticed.tried, f"{self.suggested} (did not help)")
            return replace(noticed, status=status, failed=failed, tried=tried, suggested="")
        if self.status == "resolved" and (still or AGAIN.within(text) or PROBLEM.within(text)):
            return replace(noticed, status="trying")
        return noticed

    def _noticed(self, text: str, *, symptoms: bool) -> Self:
        parts = sentences(text)
        tried = [s for s in parts if ATTEMPT.within(s)]
        wrong = [s for s in parts if s not in tried and (PROBLEM.within(s) or CODE.search(s))] if symptoms else []
        return replace(
            self,
            symptoms=noted(self.symptoms, *wrong),
            tried=noted(self.tried, *tried),
            error_codes=noted(self.error_codes, *CODE.findall(text)),
        )

    def _said(self, text: str) -> Self:
        """Take in the step that the answer suggests, or that it asked for details."""
        self = replace(self, said=ending(text))
        found = next((match for sentence in sentences(text) if (match := STEP.match(sentence))), None)
        if found is None:
            return replace(self, asked_details=self.asked_details or "?" in text)
        if self.status in ("resolved", "escalated"):
            return self
        return replace(self, status="trying", suggested=clipped(found["step"].strip()))

    def _planned(self) -> Self:
        return replace(self, next_step=self._next())

    def _next(self) -> NextStep:
        if self.status in ("resolved", "escalated"):
            return "confirm_fix" if self.status == "resolved" else "hand_over"
        if self.suggested:
            return "await_result"
        if not self.symptoms:
            return "ask_symptoms"
        known = self.error_codes or self.tried or self.asked_details or len(self.symptoms) > 1
        return "suggest_step" if known else "ask_details"

    def guidance(self) -> str:
        return " ".join([
            f"You are solving a technical problem; it is {self.status}.",
            ASKS[self.next_step],
            *listed("Symptoms", self.symptoms),
            *listed("Error codes", self.error_codes),
            *listed("Already tried, do not suggest again", self.tried),
            *([f"Step under way: {self.suggested}."] if self.suggested else []),
        ])  # fmt: skip
