"""Educational: estimates the learner's level from answers, and adapts the explanations."""

import re
from dataclasses import dataclass, replace
from typing import Literal, Self

from groupwise.agents.strategies.intents import intent_after
from groupwise.agents.strategies.reading import contrasted
from groupwise.agents.strategies.registry import Signal, strategy, words_of
from groupwise.types import Message

Level = Literal["beginner", "intermediate", "advanced"]
Mode = Literal["explain", "check", "simplify", "extend"]

CONFUSED = Signal(
    r"(?:don't|do not|didn't|can't) (?:really |quite )?(?:understand|get|follow|see) | confus\w+ | i'm lost | "
    r"no idea | makes no sense | what does (?:that|this|it) mean | too (?:hard|fast|difficult|complicated) | "
    r"not (?:clear|sure) | i don't know | explain (?:it |that )?(?:again|more simply)",
    denied=False,
)
UNDERSTOOD = Signal("i see | got it | (?:that )?makes sense | i understand | now i get it | clear now | aha | easy")
NO_LONGER = Signal(r"(?:not|no longer|isn't) (?:\w+ )?(?:confus\w+|lost|too hard|unclear)", denied=False)
NEWCOMER = Signal(
    r"(?:complete |total |absolute )?beginner | new to (?:this|\w+) | never (?:learned|learnt|studied|heard|did) | "
    r"first time | from scratch",
    denied=False,
)
VERSED = Signal(
    r"(?:i )?already know | i(?:'ve| have) studied | (?:phd|degree|graduate|professor|engineer) | "
    r"i(?:'m| am) familiar | formal(?:ly)? | rigorous(?:ly)? | prove | proof | derive | derivation | in general | "
    r"edge cases? | complexity"
)
RIGHT = Signal("correct | exactly | that's right | well done | you got it | right! | perfect | good job | yes,")
WRONG = Signal(
    "incorrect | not (?:quite|right|correct|exactly) | wrong | almost | close,? but | try again | mistake", denied=False
)
TOPIC = re.compile(
    r"(?:learn|teach me|explain|understand|help me with|about|what (?:is|are)|how (?:do|does)) (?:me )?(?:about |to )?"
    r"(?P<topic>[\w' -]{3,60}?)(?: work\w*)?[.?!,]*(?:$|\n|[.?!,] )",
    re.IGNORECASE,
)

HOW: dict[Level, str] = {
    "beginner": "Use everyday words and one concrete example; no jargon and no formula without explaining it.",
    "intermediate": "Use the proper terms, each tied to what the learner knows, and one worked example.",
    "advanced": "Be exact and brief: definitions, the general case, why it holds and where it fails.",
}
ASKS: dict[Mode, str] = {
    "explain": "Explain one idea, then ask one short question that shows whether it was understood.",
    "check": "The learner has answered: say first whether it is right and why, before anything new.",
    "simplify": "The learner is lost: go one step back and explain it another way, in smaller steps.",
    "extend": "The learner has this: praise briefly and go on to something harder.",
}


@strategy("educational")
@dataclass(frozen=True, slots=True)
class Educational:
    """`ability` (0 … 1) rises with right answers and falls with wrong ones and confusion; `level` is its name."""

    topic: str = ""
    # Starts a little below the middle of "intermediate" (0.35 to 0.65).
    ability: float = 0.45
    level: Level = "intermediate"
    mode: Mode = "explain"
    asked: bool = False
    answered: bool = False
    right: int = 0
    wrong: int = 0
    streak: int = 0
    intent: str = ""

    def advance(self, message: Message) -> Self:
        text = words_of(message)
        if message["role"] == "user":
            return replace(self, intent=intent_after("educational", text, self.intent))._heard(text)
        return self._said(text) if message["role"] == "assistant" else self

    def _heard(self, text: str) -> Self:
        found = TOPIC.search(text)
        new = self if self.topic or not found else replace(self, topic=found["topic"].strip().lower())
        # What learners say about themselves sets the level at once; answers move it in small steps.
        if NEWCOMER.within(text):
            return replace(new, mode="explain", asked=False)._at(min(self.ability, 0.2))
        understanding = _understanding(text)
        if understanding == "confused":
            streak = min(0, self.streak) - 1
            return replace(new, mode="simplify", asked=False, answered=False, streak=streak)._moved(-0.15)
        if VERSED.within(text):
            return replace(new, mode="explain", asked=False)._at(max(self.ability, 0.6))._moved(0.1)
        if understanding == "understood":
            return replace(new, mode="extend")._moved(0.05)
        # A question in reply to a question is not an answer.
        answered = self.asked and not text.rstrip().endswith("?")
        return replace(new, mode="check" if answered else "explain", answered=answered, asked=False)

    def _said(self, text: str) -> Self:
        """Take in the tutor's verdict on an answer, and whether it ends with a question."""
        asked = text.rstrip().endswith("?")
        new = replace(self, asked=asked, answered=False)
        if not self.answered:
            return new
        # Before RIGHT: "not quite right" contains both.
        if WRONG.within(text):
            streak = min(0, self.streak) - 1
            # Two wrong answers in a row call for a simpler explanation, two right ones for harder questions.
            mode: Mode = "simplify" if streak <= -2 else "explain"
            return replace(new, wrong=self.wrong + 1, streak=streak, mode=mode)._moved(-0.12)
        if RIGHT.within(text):
            streak = max(0, self.streak) + 1
            mode = "extend" if streak >= 2 else "explain"
            return replace(new, right=self.right + 1, streak=streak, mode=mode)._moved(0.12)
        return new

    def _moved(self, by: float) -> Self:
        return self._at(self.ability + by)

    def _at(self, ability: float) -> Self:
        ability = round(min(1.0, max(0.0, ability)), 3)
        level: Level = "beginner" if ability < 0.35 else "intermediate" if ability < 0.65 else "advanced"
        return replace(self, ability=ability, level=level)

    def guidance(self) -> str:
        about = f" {self.topic}" if self.topic else ""
        return " ".join([
            f"You are teaching{about}; the learner seems to be at the level: {self.level}.",
            HOW[self.level],
            ASKS[self.mode],
            *([f"So far {self.right} answers right, {self.wrong} wrong."] if self.right + self.wrong else []),
        ])  # fmt: skip


def _understanding(text: str) -> str:
    """Whether a learner is confused or has understood, by the last clause that says so; "" if none does."""
    for clause in reversed(contrasted(text)):
        if NO_LONGER.within(clause) or (UNDERSTOOD.within(clause) and not clause.rstrip().endswith("?")):
            return "understood"
        if CONFUSED.within(clause):
            return "confused"
    return ""
