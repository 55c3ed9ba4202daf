"""`TaskEnvironment`: a goal in words, and a function that checks whether it is reached.

    def check(task, messages):                       # the task's mapping, and the conversation so far
        said = messages[-1]["content"]
        return Score(1.0) if said == task["answer"] else "Not yet: look again."

    environment = TaskEnvironment([{"goal": "What is 2 + 2?", "answer": "4"}, …], check, max_turns=3)

The checker decides: a number or a `Score` ends the conversation; a text is sent to the model, and it continues. The
checker may be asynchronous; an ordinary function runs in a thread so that it blocks nobody.

`OneTurnScenarios` turns problems with one answer into conversations of one turn.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.agents.data.problems import Problem, Problems
from groupwise.agents.environments.contract import Listed, Observation, Reply, Transition
from groupwise.errors import ConfigError, ContractError
from groupwise.types import End, Message, Score, Task

Checker = Callable[[Mapping[str, Any], Sequence[Message]], Any]


class TaskEnvironment(Listed[Mapping[str, Any]]):
    """Tasks are mappings with a `goal`, optionally `system` and `demonstration`, and whatever the checker needs.

    Like `ConversationEnvironment`, it is both the scenarios of a run and one conversation.
    """

    def __init__(
        self,
        tasks: Sequence[Mapping[str, Any]],
        checker: Checker,
        max_turns: int = 1,
        *,
        held_out: Sequence[Mapping[str, Any]] | None = None,
        name: str = "task",
    ) -> None:
        if max_turns < 1:
            raise ConfigError(f"max_turns is {max_turns}, but must be at least 1", field="max_turns")
        for number, task in enumerate((*tasks, *(held_out or ()))):
            goal = task.get("goal") if isinstance(task, Mapping) else None
            if not isinstance(goal, str) or not goal.strip():
                message = f"task {number} has no goal: {task!r:.60}"
                raise ConfigError(message, hint='Write it like {"goal": "What is 2 + 2?"}.')
        super().__init__(tasks, held_out)
        self.checker, self.max_turns, self.name = checker, max_turns, name

    def demonstration(self, task: Mapping[str, Any]) -> tuple[Message, ...]:
        if not isinstance(task.get("demonstration"), str):
            message = f"the task {task['goal'][:40]!r} has no demonstration to imitate"
            raise ConfigError(message, hint='Add a "demonstration".')
        return ({"role": "assistant", "content": task["demonstration"]},)

    async def reset(self, task: Task) -> Observation:
        self.task = task.payload if isinstance(task.payload, Mapping) else self.training(0, task.seed)
        self.turns = 0
        system = [{"role": "system", "content": self.task["system"]}] if self.task.get("system") else []
        self.messages: list[Message] = [*system, {"role": "user", "content": self.task["goal"]}]
        return Observation(tuple(self.messages))

    async def step(self, reply: Reply) -> Transition:
        self.turns += 1
        self.messages.append(reply.as_message())
        verdict = await self._verdict()
        if isinstance(verdict, Score):
            return Transition((), verdict.total, End.TRUNCATED if reply.cut else End.FINISHED, verdict.parts)
        said: Message = {"role": "user", "content": verdict}
        self.messages.append(said)
        return Transition((said,), end=End.TURN_LIMIT if self.turns >= self.max_turns else None)

    async def _verdict(self) -> Score | str:
        task, messages = self.task, tuple(self.messages)
        if inspect.iscoroutinefunction(self.checker):
            verdict = await self.checker(task, messages)
        else:
            # In a thread, because a checker may compute for long.
            verdict = await asyncio.to_thread(self.checker, task, messages)
        if isinstance(verdict, Score | str):
            return verdict
        if isinstance(verdict, bool | int | float):
            return Score(float(verdict))
        message = f"the checker returned {verdict!r:.60}"
        raise ContractError(message, hint="Return a number or a Score to end, or a string to continue.")


class OneTurnScenarios:
    """Problems as scenarios of one turn; the reward is the problems' own grade."""

    def __init__(self, problems: Problems) -> None:
        self.problems, self.name = problems, problems.name

    def training(self, seed: int, number: int) -> Problem:
        return self.problems.training(seed, number)

    def held_out(self, seed: int, count: int) -> Sequence[Problem]:
        return self.problems.held_out(seed, count)

    def make(self) -> "OneTurn":
        return OneTurn(self.problems)

    def demonstration(self, problem: Problem) -> tuple[Message, ...]:
        return ({"role": "assistant", "content": self.problems.demonstration(problem)},)


class OneTurn:
    """A question, an answer, a grade. Grading runs in a thread because it may take long."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    async def reset(self, task: Task) -> Observation:
        self.problem: Problem = task.payload
        return Observation(tuple(self.problem.messages), chat_template_kwargs=self.problem.template_options)

    async def step(self, reply: Reply) -> Transition:
        graded = await asyncio.to_thread(self.problems.grade, self.problem, reply.content, not reply.cut)
        score = await graded if inspect.isawaitable(graded) else graded
        return Transition((), score.total, End.TRUNCATED if reply.cut else End.FINISHED, score.parts)
