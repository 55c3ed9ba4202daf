"""Workers that make attempts, wherever they are: who gets the next place, and what happens when one is lost.

    workers.ask_all(requests) ─► a place in the least busy worker ─► backend.submit ─► handler(request) in the worker
                                          ▲                                                 │ lost
                                          └────────────── once more, elsewhere ◄────────────┘

A worker has `per_worker` places. Whoever finds none waits in one queue, so no more is under way than there are places
(back-pressure), and the length of the queue says whether more workers would help. An answer counts once: work is done
again only after the worker that had it was lost, and what a lost worker may still send is ignored.

The backend says where workers are: `processes` or `ray_actors`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from groupwise.errors import GroupwiseError, ResourceError
from groupwise.event_loop import EventLoop
from groupwise.rollout.backends.scaling import Load, WorkerLimits
from groupwise.workers import WorkerLost

T = TypeVar("T")
# Workers that may be lost over one piece of work before it counts as what kills them.
TRIES = 5
# Seconds before a worker that could not be started is started once more.
AGAIN = 0.5


class Shared(Protocol):
    """A value that workers need more than once; a worker fetches it when it first needs it."""

    def get(self) -> Any: ...


class Backend(Protocol):
    """Workers 0 … size − 1, each with the same handler.

    `start` is done when a worker has made its handler, for the first time or again. `submit` fails with `WorkerLost` if
    the worker died; it answers None with None. `most` is the largest size that the machine or cluster has room for, and
    `room` says so in words.
    """

    size: int

    @property
    def most(self) -> int: ...
    @property
    def room(self) -> str: ...
    def start(self, worker: int) -> Future[None]: ...
    def submit(self, worker: int, request: Any, seconds: float | None) -> Future[Any]: ...
    def share(self, value: Any) -> Shared: ...
    def resize(self, size: int) -> None: ...
    def close(self) -> None: ...


class AttemptLost(WorkerLost):
    """A worker was lost, and with it what it was working on, which is done again on another."""


class Place:
    """One of a worker's places: everything about one attempt goes to the same worker."""

    def __init__(self, workers: RolloutWorkers, worker: int) -> None:
        self.workers, self.worker = workers, worker

    async def ask(self, request: Any, seconds: float | None = None) -> Any:
        return await self._answer(self.workers.backend.submit(self.worker, request, seconds))

    async def start(self) -> None:
        """Wait for the worker itself, so that nobody's time limit counts it."""
        if not self.workers.is_up(self.worker):
            await self._answer(self.workers.backend.start(self.worker))
            self.workers.started(self.worker)

    async def _answer(self, asked: Future[Any]) -> Any:
        try:
            return await asyncio.wrap_future(asked)
        except WorkerLost as error:
            self.workers.lose(self.worker, error)
            raise AttemptLost(error.message, hint=error.hint) from error
        except asyncio.CancelledError:
            # Somebody's time is up. Whether the worker still answers has to be seen before it gets more work.
            self.workers.doubt(self.worker)
            raise

    def tell(self, request: Any) -> None:
        """Send a request without waiting for its answer."""
        self.workers.backend.submit(self.worker, request, None).add_done_callback(lambda done: done.exception())


class RolloutWorkers:
    """The workers of a run.

    Args:
      backend: where they are.
      per_worker: places of each worker.
      limits: how many there may be, when the number follows the load.
      when_lost: what to do while lost workers cannot be replaced: go on with the others ("shrink"), the same but wait
        for ever when none is left ("wait"), or end the run ("stop").
      patience: seconds a lost worker may take to come back.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        per_worker: int = 1,
        limits: WorkerLimits | None = None,
        when_lost: str = "shrink",
        patience: float = 60.0,
    ) -> None:
        self.backend, self.per_worker, self.when_lost, self.patience = backend, per_worker, when_lost, patience
        self.limits = limits
        self.redone = 0
        self._load = Load(backend.size * per_worker)
        self._active = [0] * backend.size
        self._waiting: deque[Future[int]] = deque()
        # Workers known to have made their handler; and those that get no work now, with a clock if they are lost.
        self._up: set[int] = set()
        self._down: dict[int, threading.Timer | None] = {}
        self._broken: GroupwiseError | None = None
        self._closed = False
        # Re-entrant: handing out a place may run a callback that gives one back.
        self._lock = threading.RLock()
        self._loop = EventLoop("rollouts")
        self._shared: tuple[object, Shared] | None = None
        self._reported = 0
        self._news = ""
        self._settling = True

    @property
    def size(self) -> int:
        return self.backend.size

    def share(self, version: object, value: Callable[[], Any]) -> Shared:
        """Hand a value to all workers, once for each version."""
        if self._shared is None or self._shared[0] != version:
            self._shared = (version, self.backend.share(value()))
        return self._shared[1]

    def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        """Every request's answer, in order; waits in ordinary code."""

        async def together() -> list[Any]:
            return await asyncio.gather(*map(self.ask, requests))

        return self._loop.run(together())

    async def ask(self, request: Any, seconds: float | None = None) -> Any:
        """The answer of whichever worker has a place first."""
        return await self.redo(lambda place: place.ask(request, seconds))

    async def redo(self, work: Callable[[Place], Awaitable[T]]) -> T:
        """Do the work at a place, and from its beginning at another one if the worker is lost."""
        tries = 0
        while True:
            worker = await self._place()
            try:
                await (place := Place(self, worker)).start()
                return await work(place)
            except AttemptLost as error:
                tries += 1
                self.redone += 1
                if tries == TRIES:
                    message = f"the same work was lost with {TRIES} workers, one after the other: {error.message}"
                    raise ResourceError(
                        message, hint="Look for what ends a worker: memory, a crash, an exit."
                    ) from error
            finally:
                self._release(worker)

    def lose(self, worker: int, error: WorkerLost) -> None:
        """Leave a worker out until it is back."""
        with self._lock:
            if error.cannot_start:
                hint = "A worker makes the same environment as this process, from the same modules. If they include a "
                hint += 'script, what it runs belongs under `if __name__ == "__main__":`.'
                return self._fail(ResourceError(error.message, hint=error.hint or hint))
            if worker in self._down or worker >= self.size:
                return None
            self._up.discard(worker)
            self._down[worker] = timer = self._timer(worker)
        if timer is not None:
            timer.start()
        self._start_again(worker)
        return None

    def doubt(self, worker: int) -> None:
        """Give a worker nothing more until it has answered a question."""
        with self._lock:
            if self._broken is not None or worker in self._down or worker >= self.size:
                return
            self._down[worker] = None
        self.backend.submit(worker, None, None).add_done_callback(lambda done: self._returned(worker, done))

    def is_up(self, worker: int) -> bool:
        return worker in self._up

    def started(self, worker: int) -> None:
        with self._lock:
            self._up.add(worker)

    def scale(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an order to scale: `workers`, `scale_factor`, or `least` and `most`. What changed, or why not."""
        before = self.size
        if "least" in args or "most" in args:
            least = int(args.get("least", 1))
            self.limits = WorkerLimits(least, int(args.get("most", max(least, self.backend.most))))
            wanted = min(max(before, self.limits.least), self.limits.most)
        else:
            wanted = int(args.get("workers") or max(1, round(before * float(args.get("scale_factor", 1.0)))))
            self.limits = None  # an explicit number ends automatic scaling
        if wanted > (most := self.backend.most):
            message = f"{wanted} workers are more than there is room for: {self.backend.room}"
            return {"refused": message, "remedy": f"Ask for at most {most}."}
        self._resize(wanted)
        self._news = f"{before} → {self.size} workers, as ordered" if self.size != before else ""
        return {"workers": self.size, "before": before}

    def adjust(self) -> str:
        """Between two steps: follow the load, if the number of workers is automatic. What changed, in words."""
        load, before = self._load.taken(), self.size
        if self._news:
            news, self._news = self._news, ""
            return news
        settling, self._settling = self._settling, False
        # After a change a step starts workers, which says nothing about how busy they will be.
        if self.limits is None or settling:
            return ""
        wanted = self.limits.wanted(before, load, self.per_worker)
        wanted = max(1, min(wanted, self.backend.most))
        if wanted == before:
            return ""
        self._resize(wanted)
        return (
            f"{before} → {wanted} workers: {load.waiting:.1f} attempts waited and {load.busy:.0%} of places were used"
        )

    def metrics(self) -> dict[str, float]:
        """Workers, their load since the last `adjust`, and the work done again since the last call."""
        load = self._load.seen()
        redone, self._reported = self.redone - self._reported, self.redone
        return {
            "rollout/workers": float(self.size), "rollout/queue_mean": load.waiting, "rollout/busy_share": load.busy,
            "rollout/redone": float(redone),
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.size, "limits": None if self.limits is None else (self.limits.least, self.limits.most)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.limits = None if state["limits"] is None else WorkerLimits(*state["limits"])
        self._resize(min(int(state["size"]), self.backend.most))

    def close(self) -> None:
        self._closed = True
        self._fail(ResourceError("the workers are closed"))
        self._loop.close()
        self.backend.close()

    def _resize(self, size: int) -> None:
        if size == self.size:
            return
        self.backend.resize(size)
        self._settling = True
        with self._lock:
            self._active += [0] * (size - len(self._active))
            for worker in [worker for worker in self._down if worker >= size]:
                self._back(worker)
            self._up = {worker for worker in self._up if worker < size}
            self._load.places = size * self.per_worker
            self._hand_out()

    async def _place(self) -> int:
        turn: Future[int] = Future()
        with self._lock:
            self._waiting.append(turn)
            self._hand_out()
        try:
            return await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            # It may have been given a place in the same moment.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._release(turn.result())
            raise

    def _release(self, worker: int) -> None:
        with self._lock:
            self._active[worker] -= 1
            self._hand_out()

    def _hand_out(self) -> None:
        """Give places to those who wait, first come, first served; the least busy worker first."""
        while self._waiting:
            if self._broken is not None:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_exception(self._broken)
                continue
            free = [w for w in range(self.size) if w not in self._down and self._active[w] < self.per_worker]
            if not free:
                break
            turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                worker = min(free, key=lambda worker: self._active[worker])
                self._active[worker] += 1
                turn.set_result(worker)
        self._load.now(len(self._waiting), sum(self._active))

    def _timer(self, worker: int) -> threading.Timer | None:
        if self.when_lost == "wait":
            return None
        timer = threading.Timer(self.patience, self._overdue, (worker,))
        timer.daemon = True
        return timer

    def _overdue(self, worker: int) -> None:
        """A lost worker did not come back in time."""
        with self._lock:
            left = self.size - len(self._down)
            if worker in self._down and (self.when_lost == "stop" or left == 0):
                lost = f"{len(self._down)} of {self.size} workers are lost and did not come back"
                hint = "Resume the run when there is room; rollout.when_worker_lost says what a run does about it."
                self._fail(ResourceError(f"{lost} within {self.patience:g} s", hint=hint))

    def _start_again(self, worker: int) -> None:
        if worker < self.size and self._broken is None:
            self.backend.start(worker).add_done_callback(lambda done: self._returned(worker, done))

    def _returned(self, worker: int, done: Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, WorkerLost) and error.cannot_start:
            self._fail(ResourceError(error.message, hint=error.hint))
        elif isinstance(error, WorkerLost) and not self._closed:
            again = threading.Timer(AGAIN, self._start_again, (worker,))
            again.daemon = True
            again.start()
        else:
            with self._lock:
                self._back(worker)
                self._hand_out()

    def _back(self, worker: int) -> None:
        timer = self._down.pop(worker, None)
        if timer is not None:
            timer.cancel()

    def _fail(self, error: GroupwiseError) -> None:
        with self._lock:
            self._broken = self._broken or error
            for worker in list(self._down):
                self._back(worker)
            self._hand_out()
