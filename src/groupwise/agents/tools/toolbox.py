"""Runs the tool calls of a turn in parallel, each with a time limit; every outcome has a name and a message.

`WithTools` adds tools to any environment: it answers calls itself and passes other replies on.
"""

import asyncio
import copy
import difflib
import inspect
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Self, TypeVar

import pydantic_core

from groupwise.agents.environments.contract import BrokenCall, Environment, Observation, Reply, ToolCall, Transition
from groupwise.agents.tools.function_tool import BadArguments, Tool, ToolError, ToolUnavailable, shortened
from groupwise.errors import ConfigError, ContractError
from groupwise.types import End, Message, Task

T = TypeVar("T")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # removed from results, which must be the same in every run
HANGING = 32  # calls of one tool that may exceed their time before it counts as out of order


class ToolOutcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    RAISED = "raised"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed_out"
    MALFORMED = "malformed"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: the text that the model sees, and how long it took."""

    call: ToolCall | BrokenCall
    outcome: ToolOutcome
    content: str
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.outcome is ToolOutcome.OK

    def as_message(self) -> Message:
        name = {"name": self.call.name[:64]} if isinstance(self.call, ToolCall) else {}
        return {"role": "tool", "tool_call_id": self.call.id, **name, "content": self.content}


class Toolbox:
    """A set of tools, and how to run calls to them.

    Args:
      tools: `Tool`s, or functions to make them from.
      timeout: seconds a call may take.
      parallel: how many calls of one turn run at once.
      longest_result: how many characters of a result the model sees.
      most_calls: how many calls of one turn are run.
    """

    def __init__(
        self, tools: Iterable[Any], *, timeout: float = 10.0, parallel: int = 8, longest_result: int = 4000,
        most_calls: int = 16,
    ) -> None:  # fmt: skip
        made = [given if isinstance(given, Tool) else Tool.from_function(given) for given in tools]
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in made}
        self.timeout, self.parallel = timeout, parallel
        self.longest_result, self.most_calls = longest_result, most_calls
        self._hanging: dict[str, set[Any]] = {tool.name: set() for tool in made}
        _insist_on_sound(self, made)

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """The tools in the form that chat templates and chat APIs expect."""
        return tuple(tool.schema for tool in self.tools.values())

    def with_tool(self, tool: Tool) -> Self:
        """The same toolbox with one more tool; it shares which calls are hanging."""
        other = copy.copy(self)
        other.tools = {**self.tools, tool.name: tool}
        other._hanging = {**self._hanging, tool.name: set()}
        return other

    def close(self) -> None:
        """Stop the servers behind the tools."""
        for tool in self.tools.values():
            tool.close()

    async def run(self, calls: Sequence[ToolCall], broken: Sequence[BrokenCall] = ()) -> list[ToolResult]:
        """Run a turn's calls and return the results in the order of the calls. What a tool raises becomes a result."""
        written = Reply("", tuple(calls), tuple(broken)).written
        places = asyncio.Semaphore(self.parallel)

        async def carry_out(call: ToolCall | BrokenCall) -> ToolResult:
            async with places:
                began = time.perf_counter()
                outcome, content = await self._outcome(call)
                return ToolResult(call, outcome, content, time.perf_counter() - began)

        results = await asyncio.gather(*(carry_out(call) for call in written[: self.most_calls]))
        if len(written) <= self.most_calls:
            return results
        # One message for all that are left out: there may be very many.
        problem = f"error: {len(written)} calls in one turn; only {self.most_calls} are run"
        return [*results, ToolResult(written[self.most_calls], ToolOutcome.TOO_MANY, problem)]

    async def _outcome(self, call: ToolCall | BrokenCall) -> tuple[ToolOutcome, str]:
        if isinstance(call, BrokenCall):
            return ToolOutcome.MALFORMED, f"error: {shortened(call.problem, 300)}, in {shortened(call.text, 100)!r}"
        tool = self.tools.get(call.name)
        if tool is None:
            near = difflib.get_close_matches(call.name[:64], self.tools, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.tools)}"
            return ToolOutcome.UNKNOWN_TOOL, f"error: there is no tool {shortened(call.name, 60)!r}; {remedy}"
        try:
            arguments = tool.arguments.read(call.arguments)
        except BadArguments as error:
            return ToolOutcome.BAD_ARGUMENTS, f"error: wrong arguments for {tool.name}: {error}"
        return await self._answered(tool, arguments)

    async def _answered(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[ToolOutcome, str]:
        limit = tool.timeout or self.timeout
        if len(self._hanging[tool.name]) >= HANGING:
            problem = f"error: {tool.name} is out of order: {HANGING} earlier calls have not returned"
            return ToolOutcome.TIMED_OUT, problem
        work = in_thread(partial(_called, tool, arguments)) if tool.blocking else _started(tool, arguments)
        waiting = asyncio.wrap_future(work) if isinstance(work, Future) else work
        try:
            await asyncio.wait({waiting}, timeout=limit)
        finally:
            # A thread cannot be stopped, so it is counted until it returns.
            if not work.done():
                self._hanging[tool.name].add(work)
                work.add_done_callback(self._hanging[tool.name].discard)
                waiting.cancel()
        if not waiting.done() or waiting.cancelled():
            return ToolOutcome.TIMED_OUT, f"error: {tool.name} took longer than {limit:g} s"
        outcome, content = waiting.result()
        return outcome, shortened(content, self.longest_result)


def _called(tool: Tool, arguments: Mapping[str, Any]) -> tuple[ToolOutcome, str]:
    """Call an ordinary function; whatever it raises is an outcome."""
    try:
        value = tool.run(**arguments)
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("it returned a coroutine; it should be async itself")
        return ToolOutcome.OK, as_text(value)
    except BaseException as error:
        return _raised(error)


def _started(tool: Tool, arguments: Mapping[str, Any]) -> asyncio.Task[tuple[ToolOutcome, str]]:
    """Start an asynchronous function in its own task, so that one that refuses to stop can be abandoned."""

    async def answer() -> tuple[ToolOutcome, str]:
        try:
            return ToolOutcome.OK, as_text(await tool.run(**arguments))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # we cancelled it; otherwise the tool raised it itself
                raise
            return _raised(error)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return _raised(error)

    return asyncio.ensure_future(answer())


def _raised(error: BaseException) -> tuple[ToolOutcome, str]:
    kind = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
    outcome = ToolOutcome.UNAVAILABLE if isinstance(error, ToolUnavailable) else ToolOutcome.RAISED
    return outcome, "error: " + ADDRESS.sub("", kind + shortened(" ".join(str(error).split()), 500))


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run work in a daemon thread of its own, which never blocks anyone, not even the exit of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # so that it cannot be cancelled any more
    run = copy_context().run
    threading.Thread(target=lambda: done.set_result(run(work)), name="tool", daemon=True).start()
    return done


def as_text(value: Any) -> str:
    """Return a tool's result as text: a string unchanged, anything else as JSON or, if that fails, as repr()."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(pydantic_core.to_jsonable_python(value), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError, pydantic_core.PydanticSerializationError):
        return ADDRESS.sub("", repr(value))


def _insist_on_sound(box: Toolbox, made: Sequence[Tool]) -> None:
    twice = [name for name, count in Counter(tool.name for tool in made).items() if count > 1]
    if twice:
        raise ConfigError(f"two tools are named {twice[0]!r}", hint="Rename one of them (name=…).")
    loose = next((tool for tool in made if tool.unbound), None)
    if loose is not None:
        message = f"the tool {loose.name} is a method without an object"
        raise ConfigError(message, hint=f"Pass the method of an object: thing.{loose.name}.")
    for name in ("timeout", "parallel", "longest_result", "most_calls"):
        if not getattr(box, name) > 0:
            hint = "It must be greater than 0."
            raise ConfigError(f"a toolbox cannot have {name} = {getattr(box, name)!r}", hint=hint)


class WithTools:
    """Adds tools to an environment.

    A reply with calls is answered with their results, without the environment; any other reply is a step of the
    environment. `parts` count calls and errors, in total (`tool_calls`, `tool_errors`) and by outcome
    (`tool_errors/unknown_tool`). After `max_failures` turns in a row in which every call failed, the conversation ends
    with `End.TOOL_FAILURE`.
    """

    def __init__(self, environment: Environment, toolbox: Toolbox, max_failures: int | None = None) -> None:
        if max_failures is not None and max_failures < 1:
            raise ConfigError(f"max_failures = {max_failures}", hint="Use 1 or more, or None for no limit.")
        self.environment, self.toolbox, self.max_failures = environment, toolbox, max_failures
        self.failures = 0
        self.results: list[ToolResult] = []

    async def reset(self, task: Task) -> Observation:
        self.failures, self.results = 0, []
        observation = await self.environment.reset(task)
        if observation.tools:
            message = "the environment has its own tools, whose calls it would not see"
            raise ContractError(message, hint="Put all tools into one toolbox.")
        return replace(observation, tools=self.toolbox.schemas)

    async def step(self, reply: Reply) -> Transition:
        if not reply.tool_calls and not reply.broken:
            self.failures = 0
            transition = await self.environment.step(reply)
            return replace(transition, parts={"tool_calls": 0.0, "tool_errors": 0.0, **transition.parts})
        results = await self.toolbox.run(reply.tool_calls, reply.broken)
        self.results += results
        self.failures = 0 if any(result.ok for result in results) else self.failures + 1
        given_up = self.max_failures is not None and self.failures >= self.max_failures
        messages = tuple(result.as_message() for result in results)
        return Transition(messages, end=End.TOOL_FAILURE if given_up else None, parts=counts(results))

    async def close(self) -> None:
        if hasattr(self.environment, "close"):
            await self.environment.close()


def counts(results: Sequence[ToolResult]) -> dict[str, float]:
    """Count the calls and those that failed, in total and by outcome."""
    wrong = Counter(f"tool_errors/{result.outcome}" for result in results if not result.ok)
    return {"tool_calls": float(len(results)), "tool_errors": float(wrong.total()), **wrong}
