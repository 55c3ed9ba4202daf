"""Sums of reasoning-gym whose working counts: demonstrations show it, and an attempt is paid for what is right in it.

    environment = "python:groupwise.agents.environments.worked_sums:WorkedSums"

A way to write scenarios of one's own. Questions are the library's, and what is right is what the library says.
"""

from __future__ import annotations

import re

from groupwise.agents.environments.one_turn import OneTurnScenarios
from groupwise.agents.gym import GymProblems
from groupwise.agents.problems import Problem
from groupwise.types import Message, Score


class WorkedProblems(GymProblems):
    def grade(self, problem: Problem, text: str, finished: bool) -> Score:
        verdict = super().grade(problem, text, finished)
        right, wanted = verdict.parts["correct"], steps_of(worked(problem.text))
        good = [said == step for said, step in zip(steps_of(text), wanted, strict=False)]
        share = (good.index(False) if False in good else len(good)) / len(wanted)
        return Score((right + share) / 2, {"correct": right, "working": share})


class WorkedSums(OneTurnScenarios):
    """`options` are those of reasoning-gym's chain_sum.

    total = ½ · the library's verdict + ½ · the share of steps that are right, counted up to the first that is not.
    """

    def __init__(self, **options: int) -> None:
        super().__init__(WorkedProblems("chain_sum", options))

    def demonstration(self, problem: Problem) -> tuple[Message, ...]:
        return ({"role": "assistant", "content": worked(problem.text)},)


def worked(question: str) -> str:
    """`… 4 - 3 + 9 =` becomes `4-3=1 1+9=10 <answer>10</answer>`."""
    first, *others = re.findall(r"[+-]? ?\d+", question.rpartition(":")[2])
    total, steps = int(first), []
    for term in others:
        number = int(term.replace(" ", ""))
        steps.append(f"{total}{number:+d}={total + number}")
        total += number
    return " ".join([*steps, f"<answer>{total}</answer>"])


def steps_of(text: str) -> list[str]:
    return text.partition("<answer>")[0].split()
