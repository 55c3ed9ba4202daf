"""Conversations whose other side runs in a worker: environments, tools, and your own rollout functions.

    here: Conversation ── reset, step ──► worker: the environment of that conversation
    here: CustomAttempt ── start ──► worker: the rollout function ── what it asks the model ──► here: the answer ──► …

The model and the tokens stay here. An attempt keeps its worker from beginning to end; if that is lost, the attempt is
made again on another from its beginning, with the same seeds. Tasks, replies and messages are pickled.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from groupwise.agents.conversation.completion_client import (
    Completed,
    Completes,
    CompletionClient,
    ContextUsedUp,
    RolloutScenarios,
    TurnsUsedUp,
)
from groupwise.agents.environments.contract import (
    Environment,
    EnvironmentFailed,
    Observation,
    Reply,
    Scenarios,
    Transition,
    failure_of,
)
from groupwise.agents.environments.equipped import EquippedScenarios, scenarios_from
from groupwise.errors import ContractError
from groupwise.rollout.backends import AttemptLost, Place
from groupwise.types import Failure, Task

# Seconds beyond the limit of a turn after which a worker that does not even notice the end of its time is killed.
GRACE = 1.0
_numbers = itertools.count()
# What a worker answers about an attempt that it does not have: it took the place of the one that had it.
_UNKNOWN = "unknown attempt"


class RemoteAttempt:
    """What both kinds of attempts have in common: a number in their worker, and that it is forgotten in the end."""

    def __init__(self, place: Place, seconds: float | None) -> None:
        self.place, self.number = place, next(_numbers)
        self.seconds = None if seconds is None else seconds + GRACE
        self.open = False

    async def ask(self, what: str, given: Any) -> Any:
        try:
            answer = await self.place.ask((self.number, what, given), self.seconds)
        except AttemptLost:
            self.open = False
            raise
        if answer == _UNKNOWN:
            self.open = False
            raise AttemptLost("the attempt's worker was replaced while the attempt was under way")
        if isinstance(answer, _Limit):
            raise answer.error
        if isinstance(answer, Failure):
            raise EnvironmentFailed(answer)
        return answer

    async def close(self) -> None:
        if self.open:
            self.open = False
            self.place.tell((self.number, "close", None))


class RemoteEnvironment(RemoteAttempt):
    """The environment of one conversation, in a worker."""

    async def reset(self, task: Task) -> Observation:
        self.open = True
        observation: Observation = await self.ask("reset", task)
        return observation

    async def step(self, reply: Reply) -> Transition:
        if not self.open:
            raise ContractError("step was called before reset")
        transition: Transition = await self.ask("step", reply)
        # The worker has closed an environment whose conversation is over.
        self.open = getattr(transition, "end", None) is None
        return transition


class RemoteRollout(RemoteAttempt):
    """A rollout function in a worker, which asks here whenever it calls the model."""

    async def __call__(self, client: CompletionClient, payload: Any) -> Any:
        self.open = True
        try:
            answer = await self.ask("start", payload)
            while isinstance(answer, _ModelCall):
                answer = await self.ask("answer", (answer.number, await _settled(client.who, answer)))
            self.open = False
            return answer.value
        finally:
            await self.close()


async def _settled(who: Completes, call: _ModelCall) -> Completed | BaseException:
    try:
        return await who.complete(call.messages, call.tools, call.most, call.options)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # raised once more where the function called
        return error


@dataclass(frozen=True, slots=True)
class _ModelCall:
    """What a rollout function asked of the model."""

    number: int
    messages: Sequence[Any]
    tools: Any
    most: int | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Limit:
    """A rollout function reached a limit of its run, which is no fault."""

    error: Exception


@dataclass(frozen=True, slots=True)
class _Returned:
    """What a rollout function returned."""

    value: Any


class AttemptWorker:
    """The handler in a worker. `source` is the run's sections `task` and `tools`, or scenarios made in code."""

    def __init__(self, source: Mapping[str, Any] | Scenarios) -> None:
        self.scenarios = scenarios = scenarios_from(source) if isinstance(source, Mapping) else source
        self.make: Callable[..., Any] = scenarios.rollout if isinstance(scenarios, RolloutScenarios) else scenarios.make
        self.held: dict[int, Environment | _RunningRollout] = {}

    async def __call__(self, request: tuple[int, str, Any]) -> Any:
        number, what, given = request
        if what == "close":
            await self._close(number)
            return None
        try:
            if what == "reset":
                self.held[number] = self.make()
            if what == "start":
                self.held[number] = _RunningRollout(self.make, given)
            held: Any = self.held.get(number)
            if held is None:
                return _UNKNOWN
            answer = await (held.next(given) if what in ("start", "answer") else getattr(held, what)(given))
        except (TurnsUsedUp, ContextUsedUp) as limit:
            await self._close(number)
            return _Limit(limit)
        except Exception as error:
            await self._close(number)
            return failure_of(error)
        if isinstance(answer, _Returned) or getattr(answer, "end", None) is not None:
            await self._close(number)
        return answer

    async def _close(self, number: int) -> None:
        held: Any = self.held.pop(number, None)
        if hasattr(held, "close"):
            await held.close()

    async def close(self) -> None:
        for number in list(self.held):
            with suppress(Exception):
                await self._close(number)
        if isinstance(self.scenarios, EquippedScenarios):
            self.scenarios.close()


class _RunningRollout:
    """A rollout function under way. Its calls of the model are queued, and go out one at a time."""

    def __init__(self, rollout: Callable[[CompletionClient, Any], Awaitable[Any]], payload: Any) -> None:
        self._calls: asyncio.Queue[_ModelCall | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Completed]] = {}
        self._numbers = itertools.count()
        self._work = asyncio.ensure_future(rollout(CompletionClient(self), payload))
        self._work.add_done_callback(lambda _: self._calls.put_nowait(None))

    async def complete(
        self, messages: Sequence[Any], tools: Any, most: int | None, options: Mapping[str, Any]
    ) -> Completed:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait(_ModelCall(number, messages, tools, most, options))
        completed: Completed = await answer
        return completed

    async def next(self, given: Any) -> _ModelCall | _Returned:
        """Pass on the model's answer, if this is one, and wait for the next call or the end."""
        if self._answers:
            number, answer = given
            waiting = self._answers.pop(number)
            if isinstance(answer, BaseException):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
        call = await self._calls.get()
        return _Returned(await self._work) if call is None else call

    async def close(self) -> None:
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
