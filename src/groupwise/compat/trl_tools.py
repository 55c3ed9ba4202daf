"""Tools and environments in TRL's form: typed functions, and objects whose methods are the tools.

As in TRL, functions that are not async run in the thread that called `train`, one at a time: they may use signals, and
objects that belong to that thread.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from groupwise.agents.data.problems import Problem
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.tools.function_tool import Tool
from groupwise.agents.tools.toolbox import Toolbox, WithTools
from groupwise.errors import ConfigError, ContractError
from groupwise.event_loop import in_caller
from groupwise.types import End, Task

Factory = Callable[[], Any]
# Methods of an environment that are not tools.
OURS = ("reset", "get_reward", "close")


class EnvironmentRow(Problem):
    """A row whose prompt may be empty, because the environment's `reset` completes it."""

    def __post_init__(self) -> None:
        """Nothing to check before `reset`."""


class Factories:
    """One environment for every row, or several by name, of which each row's column `environment` names one."""

    def __init__(self, given: Factory | Mapping[str, Factory]) -> None:
        self.by_name = given if isinstance(given, Mapping) else None
        self.only = None if isinstance(given, Mapping) else given
        self.examples = [one() for one in (given.values() if isinstance(given, Mapping) else [given])]
        for example in self.examples:
            if not callable(getattr(example, "reset", None)):
                message = f"the environment {type(example).__name__} has no method reset"
                raise ConfigError(
                    message, hint="Define reset(self, **columns) → a text or None.", field="environment_factory"
                )

    @property
    def scoring(self) -> list[str]:
        """The classes that have a reward of their own."""
        return list(dict.fromkeys(type(one).__name__ for one in self.examples if hasattr(one, "get_reward")))

    def make(self, columns: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """A new environment for a row, and the columns that its `reset` gets."""
        if self.only is not None:
            return self.only(), columns
        assert self.by_name is not None
        name: Any = columns.get("environment")
        if name not in self.by_name:
            hint = f"Its column 'environment' must be one of {', '.join(self.by_name)}."
            raise ContractError(f"a row has environment = {name!r}, which environment_factory does not have", hint=hint)
        return self.by_name[name](), {key: value for key, value in columns.items() if key != "environment"}


def toolbox_of(functions: Sequence[Callable[..., Any]]) -> list[Tool]:
    return [one if isinstance(one, Tool) else _in_turn(Tool.from_function(one)) for one in functions]


def _in_turn(tool: Tool) -> Tool:
    """The tool, called in the thread that trains."""
    if not tool.blocking:
        return tool
    function = tool.run

    async def run(**arguments: Any) -> Any:
        return await in_caller(partial(function, **arguments))

    return replace(tool, run=run)


class ToolTalk:
    """One conversation: the model calls tools until it answers without a call."""

    def __init__(self, tools: Sequence[Tool], factories: Factories | None) -> None:
        self.tools, self.factories = list(tools), factories
        self.for_reward: Any = None

    async def reset(self, task: Task) -> Observation:
        problem = task.payload
        messages = [dict(message) for message in problem.messages]
        tools = list(self.tools)
        if self.factories is not None:
            factories = self.factories
            own, columns = await in_caller(lambda: factories.make(problem.columns))
            told = await in_caller(lambda: own.reset(**columns))
            told = await told if inspect.isawaitable(told) else told
            if told is not None and not isinstance(told, str):
                raise ContractError(f"the environment's reset returned {told!r:.60}, not a text or None")
            messages[-1]["content"] += told or ""
            tools += toolbox_of(_methods(own))
            self.for_reward = own
        if not messages[-1]["content"]:
            raise ContractError(
                "neither the row nor the environment's reset gives a prompt",
                hint="Add a column 'prompt', or let reset return a text.",
            )
        self.talk = WithTools(_OneAnswer(tuple(messages)), Toolbox(tools))
        return await self.talk.reset(task)

    async def step(self, reply: Reply) -> Transition:
        return await self.talk.step(reply)

    async def close(self) -> None:
        if hasattr(self.for_reward, "close"):
            self.for_reward.close()


class _OneAnswer:
    """Ends with the first reply that calls no tool."""

    def __init__(self, messages: tuple[Any, ...]) -> None:
        self.messages = messages

    async def reset(self, task: Task) -> Observation:
        return Observation(self.messages)

    async def step(self, reply: Reply) -> Transition:
        return Transition((), 0.0, End.TRUNCATED if reply.cut else End.FINISHED)


def _methods(environment: Any) -> list[Callable[..., Any]]:
    # Of the class: looking at the object would evaluate its properties.
    found = inspect.getmembers(type(environment), inspect.isfunction)
    return [getattr(environment, name) for name, _ in found if not name.startswith("_") and name not in OURS]
