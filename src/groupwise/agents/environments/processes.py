"""Environments in worker processes, for those that compute: one that thinks for a second holds up no conversation.

    scenarios = …
    with InProcesses(scenarios.make, workers=2) as processes:
        Conversations(engine, frame, processes.make, …)

A worker holds many conversations, one step at a time. One that dies or hangs fails only the conversations it holds,
and another takes its place. What goes to and fro is pickled: `make` must be importable there (a function or class of
a module, or a bound method of an object that can be pickled), and so must be tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

from groupwise.agents.environments.contract import Environment, Observation, Reply, Transition
from groupwise.errors import ConfigError, ContractError
from groupwise.types import Task

SPAWN = multiprocessing.get_context("spawn")
READY = -1  # the answer that nobody asked for: it has started
LATEST = 5.0  # seconds that a worker has to end by itself


class WorkerLost(ContractError):
    """The process that held the conversation is gone."""

    code = "worker_lost"


class InProcesses:
    """Worker processes, started with the first conversation, and what makes environments in them.

    Args:
      make: makes one environment; called in a worker.
      workers: how many processes.
      seconds: how long a step may take before its worker is taken for hanging and replaced; None for any time.
    """

    def __init__(self, make: Callable[[], Environment], workers: int = 2, seconds: float | None = 60.0) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers} and must be at least 1", field="workers")
        self._make, self.seconds = make, seconds
        self._workers: list[Worker | None] = [None] * workers
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closed = False

    def make(self) -> RemoteEnvironment:
        """An environment whose reset and step happen in a worker."""
        return RemoteEnvironment(self, next(self._numbers))

    def worker(self, number: int) -> Worker:
        """The process of a conversation, a new one where that is gone."""
        place = number % len(self._workers)
        with self._lock:
            if self._closed:
                raise WorkerLost("the worker processes are closed")
            found = self._workers[place]
            if found is None or not found.alive:
                found = self._workers[place] = Worker(self._make)
            return found

    def close(self) -> None:
        """End all workers; conversations still held in them fail."""
        with self._lock:
            self._closed = True
            workers, self._workers = [w for w in self._workers if w is not None], [None] * len(self._workers)
        for worker in workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteEnvironment:
    """One conversation's environment, elsewhere."""

    def __init__(self, processes: InProcesses, number: int) -> None:
        self.processes, self.number = processes, number
        self.worker: Worker | None = None

    async def reset(self, task: Task) -> Observation:
        # The process starts in a thread: that takes a while.
        self.worker = await asyncio.to_thread(self.processes.worker, self.number)
        observation: Observation = await self._ask("reset", task)
        return observation

    async def step(self, reply: Reply) -> Transition:
        transition: Transition = await self._ask("step", reply)
        return transition

    async def close(self) -> None:
        if self.worker is not None and self.worker.alive:
            self.worker.ask(self.number, "close", None)

    async def _ask(self, what: str, given: Any) -> Any:
        if self.worker is None:
            raise ContractError(f"{what} before reset")
        worker, seconds = self.worker, self.processes.seconds
        waiting = asyncio.wrap_future(worker.ask(self.number, what, given))
        while not waiting.done() and (seconds is None or worker.busy_for() < seconds):
            await asyncio.wait({waiting}, timeout=None if seconds is None else max(0.02, seconds - worker.busy_for()))
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        worker.kill()
        raise WorkerLost(
            f"the environment took longer than {seconds:g} s over {what} in its process, which was ended",
            hint="Raise the limit of InProcesses, or make the environment faster.",
        )


class Worker:
    """A process, the pipe to it, and what it has yet to answer."""

    def __init__(self, make: Callable[[], Environment]) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_work, args=(theirs, make, os.getpid()), name="environments", daemon=True)
        self._process.start()
        theirs.close()
        self._waiting: dict[int, Future[Any]] = {}
        self._questions = itertools.count()
        self._lock = threading.Lock()
        self.alive = True
        self._since: float | None = None
        threading.Thread(target=self._listen, name="environments", daemon=True).start()

    def ask(self, number: int, what: str, given: Any) -> Future[Any]:
        """The answer to come, or the failure."""
        answer: Future[Any] = Future()
        question = next(self._questions)
        with self._lock:
            if not self.alive:
                raise _lost(self._process)
            if not self._waiting and self._since is not None:
                self._since = time.monotonic()
            self._waiting[question] = answer
            try:
                self._pipe.send((question, number, what, given))
            except OSError:
                del self._waiting[question]
                raise _lost(self._process) from None
            except Exception as error:
                del self._waiting[question]
                raise ContractError(f"what {what} is given cannot be sent to a process: {error}") from error
        return answer

    def busy_for(self) -> float:
        """Seconds since it began with what it is at now; its start and questions that wait their turn do not count."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def kill(self) -> None:
        """End it now. It counts as gone from here on, not from when the pipe notices."""
        with self._lock:
            self.alive = False
        self._process.kill()

    def close(self) -> None:
        """Ask it to end, and insist."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(LATEST)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(LATEST)

    def _listen(self) -> None:
        while True:
            try:
                question, error, result = self._pipe.recv()
            except (EOFError, OSError):
                break
            self._since = time.monotonic()
            answer = self._waiting.pop(question, None)
            if answer is None or not answer.set_running_or_notify_cancel():
                continue
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)
        with self._lock:
            self.alive = False
            lost, self._waiting = list(self._waiting.values()), {}
        self._process.join(LATEST)
        for answer in lost:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(_lost(self._process))


def _lost(process: Any) -> WorkerLost:
    code = process.exitcode
    how = f"with exit code {code}" if code is None or code >= 0 else f"by signal {-code}"
    return WorkerLost(
        f"the process that held the conversation ended {how}",
        hint="Another has taken its place; run the environment in this process to see why.",
    )


def _work(pipe: Connection, make: Callable[[], Environment], parent: int) -> None:
    """A worker's life: one event loop, one question after the other, until it is told to end or left alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    environments: dict[int, Environment] = {}
    pipe.send((READY, None, None))
    with asyncio.Runner() as runner:
        while os.getppid() == parent:
            try:
                if not pipe.poll(1.0):
                    continue
                asked = pipe.recv()
            except (EOFError, OSError):
                return
            if asked is None:
                break
            question, *rest = asked
            pipe.send((question, *runner.run(_answer(environments, make, *rest))))
        for environment in environments.values():
            if hasattr(environment, "close"):
                runner.run(environment.close())


async def _answer(
    environments: dict[int, Environment], make: Callable[[], Environment], number: int, what: str, given: Any
) -> tuple[Exception | None, Any]:
    try:
        if what == "close":
            environment = environments.pop(number, None)
            if environment is not None and hasattr(environment, "close"):
                await environment.close()
            return None, None
        if what == "reset":
            environments[number] = make()
        return None, await getattr(environments[number], what)(given)
    except Exception as error:
        return ContractError(f"in its process, {what} raised {type(error).__name__}: {error}"), None
