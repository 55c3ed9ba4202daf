"""Problems with one answer as conversations of one turn: whatever has problems can be an agent's environment."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

from groupwise.agents.environment import Observation, Reply, Transition
from groupwise.agents.problems import Problem, Problems
from groupwise.types import End, Message, Task


class OneTurnScenarios:
    """The scenarios are the problems; what an answer earns is their grade."""

    def __init__(self, problems: Problems) -> None:
        self.problems, self.name = problems, problems.name

    def training(self, seed: int, number: int) -> Problem:
        return self.problems.training(seed, number)

    def held_out(self, seed: int, count: int) -> Sequence[Problem]:
        return self.problems.held_out(seed, count)

    def make(self) -> OneTurn:
        return OneTurn(self.problems)

    def demonstration(self, problem: Problem) -> tuple[Message, ...]:
        return ({"role": "assistant", "content": self.problems.demonstration(problem)},)


class OneTurn:
    """A question, an answer, a grade. Grades are made in a thread: one may think for long."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    async def reset(self, task: Task) -> Observation:
        self.problem: Problem = task.payload
        return Observation(tuple(self.problem.messages))

    async def step(self, reply: Reply) -> Transition:
        graded = await asyncio.to_thread(self.problems.grade, self.problem, reply.content, not reply.cut)
        score = await graded if inspect.isawaitable(graded) else graded
        return Transition((), score.total, End.TRUNCATED if reply.cut else End.FINISHED, score.parts)
