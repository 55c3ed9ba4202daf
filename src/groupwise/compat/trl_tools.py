"""Tools and environments in TRL's form: typed functions, and objects whose methods are the tools."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.tools.function_tool import Tool
from groupwise.agents.tools.toolbox import Toolbox, WithTools
from groupwise.errors import ContractError
from groupwise.types import End, Task

# Methods of an environment that are not tools.
OURS = ("reset", "get_reward", "close")


def toolbox_of(functions: Sequence[Callable[..., Any]]) -> list[Tool]:
    return [one if isinstance(one, Tool) else Tool.from_function(one) for one in functions]


class ToolTalk:
    """One conversation: the model calls tools until it answers without a call."""

    def __init__(self, tools: Sequence[Tool], factory: Callable[[], Any] | None) -> None:
        self.tools = list(tools)
        self.own: Any = None if factory is None else factory()

    async def reset(self, task: Task) -> Observation:
        problem = task.payload
        messages = [dict(message) for message in problem.messages]
        tools = list(self.tools)
        if self.own is not None:
            told = self.own.reset(**problem.columns)
            told = await told if inspect.isawaitable(told) else told
            if told is not None and not isinstance(told, str):
                raise ContractError(f"the environment's reset returned {told!r:.60}, not a text or None")
            messages[-1]["content"] += told or ""
            tools += [Tool.from_function(method) for method in _methods(self.own)]
        self.talk = WithTools(_OneAnswer(self.own, tuple(messages)), Toolbox(tools))
        return await self.talk.reset(task)

    async def step(self, reply: Reply) -> Transition:
        return await self.talk.step(reply)

    async def close(self) -> None:
        if hasattr(self.own, "close"):
            self.own.close()


class _OneAnswer:
    """Ends with the first reply that calls no tool."""

    def __init__(self, own: Any, messages: tuple[Any, ...]) -> None:
        self.own, self.messages = own, messages

    async def reset(self, task: Task) -> Observation:
        return Observation(self.messages)

    async def step(self, reply: Reply) -> Transition:
        earned = float(self.own.get_reward()) if hasattr(self.own, "get_reward") else 0.0
        return Transition((), earned, End.TRUNCATED if reply.cut else End.FINISHED)


def _methods(environment: Any) -> list[Callable[..., Any]]:
    found = inspect.getmembers(environment, inspect.ismethod)
    return [method for name, method in found if not name.startswith("_") and name not in OURS]
