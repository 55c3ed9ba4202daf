"""Technical support: accuracy, guidance step by step, a problem resolved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from groupwise.rewards.components import Component, Ideas, Referenced
from groupwise.rewards.speech import Reply, listed, words_of

STEP = re.compile(r"^[ \t>*_#-]*(?:step[ \t]+)?(\d{1,2})[.):]", re.IGNORECASE | re.MULTILINE)
ORDINALS = listed("first, second, third, next, then, after that, once, finally, lastly")
SHORTEST = 4


class AccuracyRewardComponent(Referenced):
    """The share of a reference's telling words that the replies state, for the best reference.

    Telling are numbers and words of four letters or more, each once (all words, where none is). Saying more than the
    reference costs nothing here: length stands against that. Without a reference, 0.5 and the flag `no_reference`.
    """

    label = "accuracy"

    def compare(self, said: Sequence[Reply], reference: str) -> float:
        words = set(words_of(reference))
        telling = {word for word in words if len(word) >= SHORTEST or word.isdigit()} or words
        stated = {word for reply in said for word in reply.words}
        return len(telling & stated) / len(telling)


class StepByStepRewardComponent(Component):
    """min(1, n / 3): n different step numbers at the beginnings of lines, or words of order (first, then, finally)."""

    label = "step_by_step"
    enough = 3

    def rate(self, reply: Reply) -> float:
        numbered = len(set(STEP.findall(reply.text)))
        return min(1.0, max(numbered, sum(map(reply.says, ORDINALS))) / self.enough)


class ProblemResolutionRewardComponent(Ideas):
    """min(1, n / 3): of a cause, a remedy, a test that it worked and what to do if not, how many are there."""

    label = "problem_resolution"
    enough = 3
    ideas: ClassVar = {
        "cause": listed("because, caused by, due to, the reason, happens when, means that, the problem is"),
        "remedy": listed(
            "fix*, resolv*, solv*, restart*, reset*, reinstall*, install*, updat*, replac*, remov*, enabl*, disabl*, "
            "configur*, clear*, reconnect*, run, set"
        ),
        "test": listed(
            "check*, verify, test*, confirm, make sure, should now, you should see, let me know if, does that, did "
            "that, is it working, try again"
        ),
        "otherwise": listed(
            "if that doesn't, if this doesn't, if it doesn't, if not, otherwise, still, escalat*, alternatively, if "
            "the problem, if the issue, contact"
        ),
    }
