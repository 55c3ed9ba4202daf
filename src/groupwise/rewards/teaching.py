"""Teaching: correct, well taught, engaging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from groupwise.rewards.components import Ideas, Referenced, likeness
from groupwise.rewards.speech import Reply, listed, phrase_of, words_of


class CorrectnessRewardComponent(Referenced):
    """1 where the last reply states a right answer word for word; else half its likeness to the nearest one.

    Likeness is that of `SimilarityRewardComponent`. Without a right answer, 0.5 and the flag `no_reference`.
    """

    label = "correctness"

    def compare(self, said: Sequence[Reply], reference: str) -> float:
        last = said[-1]
        return 1.0 if last.says(phrase_of(reference).rstrip("*")) else likeness(last.words, words_of(reference)) / 2


class PedagogicalApproachRewardComponent(Ideas):
    """min(1, n / 3): of an example, a comparison, reasons, building up, a check and a summary, how many are there.

    A question to the learner is a check.
    """

    label = "pedagogical_approach"
    enough = 3
    ideas: ClassVar = {
        "example": listed("for example, for instance, example, suppose, imagine, say we, consider"),
        "comparison": listed("think of it, like a, similar to, just as, analogy, is like, picture"),
        "reasons": listed("because, since, therefore, so that, the reason, which means, why"),
        "building up": listed("first, next, then, step, start with, let's start, build on, remember that, recall"),
        "check": listed("does that make sense, can you, what do you think, try, your turn, what would"),
        "summary": listed("in short, to sum up, in summary, to summarise, to summarize, key point, remember, overall"),
    }

    def found(self, reply: Reply) -> int:
        asked = bool(reply.questions) and not reply.says_any(self.ideas["check"])
        return super().found(reply) + asked


class EngagementRewardComponent(Ideas):
    """min(1, n / 3): of a question, speaking to the reader, praise, doing it together and wonder, how many are."""

    label = "engagement"
    enough = 3
    ideas: ClassVar = {
        "you": listed("you, your, you're, you'll, yourself"),
        "praise": listed("great, well done, good question, excellent, nice, you're right, exactly, good job, proud"),
        "together": listed("let's, let us, together, we can, we'll, shall we"),
        "wonder": listed(
            "imagine, interesting*, fascinat*, curious, surpris*, fun, amazing, guess, discover*, what if"
        ),
    }

    def found(self, reply: Reply) -> int:
        return super().found(reply) + bool(reply.questions)
