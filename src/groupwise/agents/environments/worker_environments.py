"""Environments in worker processes: one that computes for a second then delays only its own conversations.

    scenarios = …
    with InProcesses(scenarios.make, workers=2) as processes:
        Conversations(engine, frame, processes.make, …)

A worker holds many conversations and does one step at a time. If it dies or hangs, the conversations it held fail and
another worker takes its place. Messages are pickled, so `make` must be importable in the worker (a function or class of
a module, or a bound method of an object that can be pickled), and tasks must be picklable too.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Self

from groupwise.agents.environments.contract import Environment, Observation, Reply, Transition
from groupwise.errors import ConfigError, ContractError
from groupwise.types import Task
from groupwise.workers import RequestFailed, WorkerLost, Workers, WorkerTimeout


class InProcesses:
    """Makes environments that live in worker processes, which start with the first conversations.

    Args:
      make: makes one environment; called in a worker.
      workers: how many processes.
      seconds: how long a step may take before its worker counts as hanging and is replaced; None for any time.
    """

    def __init__(self, make: Callable[[], Environment], workers: int = 2, seconds: float | None = 60.0) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}, but must be at least 1", field="workers")
        self.count, self.seconds = workers, seconds
        self._workers = Workers(_HeldEnvironments, workers, args=(make,))
        self._numbers = itertools.count()

    def make(self) -> "RemoteEnvironment":
        """Return an environment whose reset and step run in a worker."""
        return RemoteEnvironment(self, next(self._numbers))

    async def ask(self, number: int, what: str, given: Any) -> Any:
        """Ask a conversation's environment in the worker that has it."""
        # A conversation always goes to the same worker, which has its environment.
        request, place = (number, what, given), number % self.count
        try:
            return await asyncio.wrap_future(self._workers.submit(request, worker=place, seconds=self.seconds))
        except WorkerTimeout:
            message = f"{what} of the environment took longer than {self.seconds:g} s, so its process was killed"
            raise WorkerLost(message, hint="Raise the limit of InProcesses, or make the environment faster.") from None
        except RequestFailed as error:
            raise (WorkerLost if error.code == WorkerLost.code else ContractError)(error.message) from None

    def forget(self, number: int) -> None:
        """Close a conversation's environment, without waiting for it."""
        self._workers.submit((number, "close", None), worker=number % self.count, seconds=self.seconds)

    def close(self) -> None:
        """End all workers; conversations that they still hold fail."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteEnvironment:
    """The environment of one conversation, in another process."""

    def __init__(self, processes: InProcesses, number: int) -> None:
        self.processes, self.number = processes, number
        self._open = False

    async def reset(self, task: Task) -> Observation:
        self._open = True
        observation: Observation = await self._ask("reset", task)
        return observation

    async def step(self, reply: Reply) -> Transition:
        if not self._open:
            raise ContractError("step was called before reset")
        transition: Transition = await self._ask("step", reply)
        return transition

    async def close(self) -> None:
        if self._open:
            self._open = False
            self.processes.forget(self.number)

    async def _ask(self, what: str, given: Any) -> Any:
        try:
            return await self.processes.ask(self.number, what, given)
        except WorkerLost:
            self._open = False
            raise


class _HeldEnvironments:
    """The environments of one worker's conversations; runs in the worker."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self.make = make
        self.held: dict[int, Environment] = {}

    async def __call__(self, request: tuple[int, str, Any]) -> Any:
        number, what, given = request
        try:
            if what == "close":
                await _close(self.held.pop(number, None))
                return None
            if what == "reset":
                self.held[number] = self.make()
            if number in self.held:
                return await getattr(self.held[number], what)(given)
        except Exception as error:
            raise ContractError(f"in its process, {what} raised {type(error).__name__}: {error}") from error
        raise WorkerLost("the conversation's process ended and was replaced by another")

    async def close(self) -> None:
        for environment in self.held.values():
            await _close(environment)


async def _close(environment: Any) -> None:
    if hasattr(environment, "close"):
        await environment.close()
