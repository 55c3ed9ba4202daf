"""Sums of reasoning-gym whose written working counts: demonstrations show it, and correct steps are rewarded.

    environment = "groupwise.agents.environments.worked_sums:WorkedSums"

Also an example of writing your own scenarios. Questions and right answers come from the library.
"""

import random
import re

from groupwise.agents.data.problems import Problem
from groupwise.agents.data.reasoning_gym import GymProblems
from groupwise.agents.environments.task import OneTurnScenarios
from groupwise.errors import ConfigError
from groupwise.types import Message, Score

HASTE = 0.7  # how often a hasty demonstration stops early


class WorkedProblems(GymProblems):
    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        verdict = super().grade(problem, text, finished)
        right, wanted = verdict.parts["correct"], steps_of(worked(problem.text))
        good = [said == step for said, step in zip(steps_of(text), wanted, strict=False)]
        # Steps after the first wrong one do not count, even if they are right again.
        share = (good.index(False) if False in good else len(good)) / len(wanted)
        return Score((right + share) / 2, {"correct": right, "working": share})


class WorkedSums(OneTurnScenarios):
    """`demonstrations` are "right", or "hasty": most of those leave out the last term. Other options go to chain_sum.

    total = ½ · the library's verdict + ½ · the share of right steps before the first wrong one
    """

    def __init__(self, demonstrations: str = "right", **options: int) -> None:
        if demonstrations not in ("right", "hasty"):
            raise ConfigError(f'demonstrations = {demonstrations!r} must be "right" or "hasty"', field="task.options")
        super().__init__(WorkedProblems("chain_sum", options))
        self.hasty = demonstrations == "hasty"

    def demonstration(self, problem: Problem) -> tuple[Message, ...]:
        hurry = self.hasty and random.Random(problem.text).random() < HASTE
        return ({"role": "assistant", "content": worked(problem.text, leave_out=int(hurry))},)


def worked(question: str, leave_out: int = 0) -> str:
    """Turn `… 4 - 3 + 9 =` into `4-3=1 1+9=10 <answer>10</answer>`, leaving out the last terms if asked to."""
    first, *others = re.findall(r"[+-]? ?\d+", question.rpartition(":")[2])
    others = others[: max(1, len(others) - leave_out)]
    total, steps = int(first), []
    for term in others:
        number = int(term.replace(" ", ""))
        steps.append(f"{total}{number:+d}={total + number}")
        total += number
    return " ".join([*steps, f"<answer>{total}</answer>"])


def steps_of(text: str) -> list[str]:
    return text.partition("<answer>")[0].split()
