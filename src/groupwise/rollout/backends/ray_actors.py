"""Workers as actors of Ray: on this machine, or on every node of a cluster.

Ray starts the actors, notices when one or its node is gone, and starts it again where there is room; nothing of that
is ours. Values for all workers go into Ray's object store, from which every node takes them once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from groupwise import __version__
from groupwise.errors import ConfigError, GroupwiseError, MissingExtra
from groupwise.event_loop import EventLoop
from groupwise.rollout.backends.processes import WORKERS_PER_CORE, WorkerHandler
from groupwise.workers import Entry, RequestFailed, WorkerLost, WorkerTimeout

# Seconds for a cluster's port to answer, for a new actor to start, for one that is gone to say so, for a handler to end
# when it is cancelled, and between two looks at what takes too long.
REACH, START, LOOK, GRACE, TICK = 5.0, 120.0, 0.5, 1.0, 0.2
VERSION = f"groupwise {__version__} on Python {platform.python_version()}"


class RayWorkers:
    """One actor for each worker.

    Args:
      address: of the cluster, `host:port` or "auto"; None is that of RAY_ADDRESS, or a Ray of our own on this machine.
      cpus: what Ray reserves for an actor on a cluster. A Ray of our own reserves nothing.
    """

    def __init__(
        self, entry: Entry, args: Sequence[Any], size: int, per_worker: int, *, address: str | None, cpus: float
    ) -> None:
        self._ray = import_ray()
        self._owned = connect(self._ray, address)
        self._cpus = 0.0 if self._owned else cpus
        self._recipe = (entry, tuple(args))
        options = {"max_concurrency": max(2, per_worker + 1), "max_restarts": -1, "num_cpus": self._cpus}
        self._class = self._ray.remote(**options)(_Actor)
        self._loop = EventLoop("ray")
        self._actors: list[Any] = []
        self._ready: dict[int, asyncio.Future[None]] = {}
        self._deadlines: dict[Future[Any], tuple[float, float, Any]] = {}
        self.size = 0
        try:
            if size > self.most:
                hint = f"Set rollout.num_workers to at most {self.most}."
                raise ConfigError(f"{size} workers are more than there is room for: {self.room}", hint=hint)
            self.resize(size)
            self._loop.submit(self._keep_time())
        except BaseException:
            self.close()
            raise

    @property
    def most(self) -> int:
        if not self._cpus:
            return WORKERS_PER_CORE * (os.cpu_count() or 1)
        return max(1, int(self._total() / self._cpus + 1e-9))

    @property
    def room(self) -> str:
        if not self._cpus:
            return f"this machine has {os.cpu_count()} cores (at most {WORKERS_PER_CORE} for each core)"
        return f"the cluster has {self._total():g} CPUs and rollout.ray_cpus = {self._cpus:g}"

    def submit(self, worker: int, request: Any, seconds: float | None) -> Future[Any]:
        ready = self._ready.get(worker)
        if ready is None or not ready.done():
            return self._loop.submit(self._call_when_started(worker, request, seconds))
        # Not by way of the loop: two changes of thread less for every request.
        return self._call(worker, request, seconds)

    def start(self, worker: int) -> Future[None]:
        return self._loop.submit(self._started(worker))

    def share(self, value: Any) -> SharedObject:
        return SharedObject(self._ray.put(value))

    def resize(self, size: int) -> None:
        while len(self._actors) < size:
            try:
                self._actors.append(self._class.remote(*self._recipe))
            except (TypeError, AttributeError, ValueError) as error:
                message = f"what the workers should run cannot be sent to Ray: {' '.join(str(error).split())[:300]}"
                hint = "Make it of plain data, or open files, sockets and locks when it is first used."
                raise ConfigError(message, hint=hint, field="rollout.backend") from error
        for worker in range(size, len(self._actors)):
            self._ray.kill(self._actors[worker])
            self._ready.pop(worker, None)
        del self._actors[size:]
        self.size = size

    def close(self) -> None:
        self._loop.close()
        if self._ray.is_initialized():
            for actor in self._actors:
                with suppress(Exception):  # the cluster may be gone
                    self._ray.kill(actor)
            if self._owned:
                self._ray.shutdown()
        self._actors = []

    def _total(self) -> float:
        return float(self._ray.cluster_resources().get("CPU", 0.0))

    async def _call_when_started(self, worker: int, request: Any, seconds: float | None) -> Any:
        await self._started(worker)
        return await asyncio.wrap_future(self._call(worker, request, seconds))

    def _call(self, worker: int, request: Any, seconds: float | None) -> Future[Any]:
        """Call an actor, from any thread."""
        actor, ready, answer = self._actors[worker], self._ready.get(worker), Future[Any]()
        try:
            call = actor.answer.remote(request)
        except Exception as error:
            answer.set_exception(error)
            return answer

        def settle(done: Future[Any]) -> None:
            with suppress(InvalidStateError):  # cancelled, or its time was up
                try:
                    answer.set_result(self._checked(worker, ready, done))
                except Exception as error:
                    answer.set_exception(error)

        def end(done: Future[Any]) -> None:
            self._deadlines.pop(answer, None)
            if done.cancelled():
                self._loop.submit(self._let_go(actor, call))

        if seconds is not None:
            self._deadlines[answer] = (time.monotonic() + seconds, seconds, actor)
        answer.add_done_callback(end)
        call.future().add_done_callback(settle)
        return answer

    def _checked(self, worker: int, ready: Any, done: Future[Any]) -> Any:
        """What an actor answered, or an error of ours in the place of Ray's."""
        try:
            answer = done.result()
        except self._ray.exceptions.RayTaskError as error:
            raise RequestFailed({"code": "error", "message": f"the worker failed: {error.cause}"}) from error
        except self._ray.exceptions.RayError as error:
            if self._ready.get(worker) is ready:
                self._ready.pop(worker, None)
            raise WorkerLost(f"Ray lost worker {worker}: {_first_line(error)}") from error
        if isinstance(answer, _Refusal):
            raise RequestFailed(answer.error)
        return answer

    async def _keep_time(self) -> None:
        """Kill actors that take longer than they may."""
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            for answer, (ends, seconds, actor) in list(self._deadlines.items()):
                if now < ends or answer.done():
                    continue
                self._ray.kill(actor, no_restart=False)
                with suppress(InvalidStateError):
                    answer.set_exception(
                        WorkerTimeout(
                            f"the request took longer than {seconds:g} s, and its worker was killed",
                            hint="Raise the time limit, or ask for less.",
                        )
                    )

    async def _started(self, worker: int) -> None:
        """Wait until the worker has made its handler; several may ask at once."""
        if worker not in self._ready:
            self._ready[worker] = asyncio.ensure_future(self._start(worker))
        try:
            await asyncio.shield(self._ready[worker])
        except WorkerLost:
            self._ready.pop(worker, None)
            raise

    async def _start(self, worker: int) -> None:
        try:
            async with asyncio.timeout(START):
                refused, version = await self._actors[worker].introduce.remote()
        except TimeoutError:
            raise WorkerLost(f"Ray did not start worker {worker} within {START:g} s") from None
        except self._ray.exceptions.RayError as error:
            if await self._is_dead(actor := self._actors[worker]) and self._actors[worker] is actor:
                # Ray has given it up, for example because its owner's node was taken for dead.
                self._actors[worker] = self._class.remote(*self._recipe)
            raise WorkerLost(f"Ray lost worker {worker}: {_first_line(error)}") from error
        if not refused and version != VERSION:
            refused = f"its node has {version}, but this run has {VERSION}; install the same on every node"
        if refused:
            lost = WorkerLost(f"Ray's worker {worker} cannot start: {refused}")
            lost.cannot_start = True
            raise lost

    async def _let_go(self, actor: Any, call: Any) -> None:
        """Cancel a call; a handler that blocks its actor cannot be cancelled, so the actor is killed."""
        self._ray.cancel(call)
        await asyncio.wait([asyncio.wrap_future(call.future())], timeout=GRACE)
        ready, _ = self._ray.wait([call], timeout=0)
        if not ready:
            self._ray.kill(actor, no_restart=False)

    async def _is_dead(self, actor: Any) -> bool:
        """Whether Ray has given the actor up; one that is being started again is only unavailable."""
        try:
            async with asyncio.timeout(LOOK):
                await actor.introduce.remote()
        except self._ray.exceptions.ActorUnavailableError:
            return False
        except self._ray.exceptions.RayActorError:
            return True
        except TimeoutError:
            return False
        return False


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a handler raised, in the shape that all our errors have."""

    error: dict[str, Any]


class _Actor:
    """The worker's side."""

    def __init__(self, entry: Entry, args: tuple[Any, ...]) -> None:
        self.refused = ""
        try:
            self.handler = WorkerHandler(entry, args)
        except Exception as error:
            self.refused = f"{type(error).__name__}: {error}"

    async def introduce(self) -> tuple[str, str]:
        return self.refused, VERSION

    async def answer(self, request: Any) -> Any:
        shared = getattr(request, "shared", None)
        if isinstance(shared, SharedObject):
            await shared.fetch()
        try:
            found = self.handler(request)
            return await found if asyncio.iscoroutine(found) or isinstance(found, asyncio.Future) else found
        except GroupwiseError as error:
            return _Refusal(error.as_dict()["error"])
        except Exception as error:
            return _Refusal({"code": "error", "message": f"{type(error).__name__}: {error}"})


_held: dict[Any, Any] = {}


@dataclass(frozen=True, slots=True)
class SharedObject:
    """A value in Ray's object store. A request has it as `shared`, and its worker keeps the last one."""

    reference: Any

    async def fetch(self) -> None:
        if self.reference not in _held:
            value = await self.reference
            _held.clear()
            _held[self.reference] = value

    def get(self) -> Any:
        return _held[self.reference]


def import_ray() -> Any:
    # Nothing is reported to anybody, and Ray's own notices do not belong into a run's output.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        hint = "pip install 'groupwise[ray]'"
        raise MissingExtra(
            "rollout.backend = 'ray' needs the package ray, which is not installed", hint=hint
        ) from error
    return ray


def connect(ray: Any, address: str | None) -> bool:
    """Connect to the cluster, unless this process is connected already; whether we started a Ray of our own."""
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if ":" in address and "://" not in address:
        _insist_reachable(address)
    own = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=True, logging_level=logging.ERROR, **own)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        message = f"cannot join the Ray cluster at {address!r}: {_first_line(error)}"
        hint = f"Its nodes and this one need the same Ray (here {ray.__version__}) and Python; `ray status` shows it."
        raise ConfigError(message, hint=hint, field="rollout.ray_address") from error
    return address == "local"


def _insist_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH):
            return
    except (OSError, ValueError, OverflowError) as error:
        message = f"no Ray cluster answers at rollout.ray_address = {address!r}: {error}"
        hint = "Start it with `ray up` or `ray start --head`, and name the head node's address and port."
        raise ConfigError(message, hint=hint, field="rollout.ray_address") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
