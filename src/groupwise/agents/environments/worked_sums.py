"""Sums of reasoning-gym with demonstrations that show the working: the library's own are bare answers.

    environment = "python:groupwise.agents.environments.worked_sums:WorkedSums"

A way to write scenarios of one's own: questions and judge are the library's, only what a warm start imitates is new.
"""

from __future__ import annotations

import re

from groupwise.agents.environments.one_turn import OneTurnScenarios
from groupwise.agents.gym import GymProblems
from groupwise.agents.problems import Problem
from groupwise.types import Message


class WorkedSums(OneTurnScenarios):
    """`options` are those of reasoning-gym's chain_sum."""

    def __init__(self, **options: int) -> None:
        super().__init__(GymProblems("chain_sum", options))

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
