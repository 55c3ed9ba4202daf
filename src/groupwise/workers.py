"""Child processes that answer requests: the one protocol for all of them.

    with Workers("my_package.my_module:make_handler", count=4, args=("cpu",)) as workers:
        answer = workers.submit(request, seconds=10).result()

    submit ─► waiting requests ─► a child with room ─── REQUEST ───► handler(request)
    future ◄────────────────────────── EVENT … EVENT, then DONE or FAILED ◄──┘

`make_handler("cpu")` runs in the child and returns the handler, a callable of one request. The handler may return a
value, a coroutine, or an asynchronous iterator, whose items arrive one by one (`on_event`). If it has a `close` method,
that is called when the child ends politely. What a child prints goes to stderr. `worker_process` is the child's side.

What the protocol promises:

- A child starts with the first request that needs it, and again after it died or was killed.
- A request that overruns its time limit costs the child, because work in a child can be killed but not interrupted.
- A child that dies fails the requests it was working on (`WorkerLost`) and no others; waiting ones go to its successor.
- No child outlives its parent, even a parent that is killed, and Ctrl-C reaches the parent alone.
- `submit` works from any thread. After a fork, the forked process starts children of its own.

Children run our code as our user and are trusted, so messages are pickled; `json=True` is for children that handle what
strangers send. docs/decisions/0009-one-worker-protocol.md says who uses this, and what the sandbox shares of it.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing.spawn
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Self, TypeAlias

from groupwise.errors import ContractError, GroupwiseError
from groupwise.event_loop import EventLoop
from groupwise.worker_process import BUFFER, HEAD, Frame, Kind, codec, read_frame

START = 120.0  # seconds for a child to import its code and make its handler, on a busy machine
EXIT = 5.0  # seconds for a child to end once it has been asked to, or has closed its end of the socket

Entry: TypeAlias = "str | Callable[..., Callable[[Any], Any]]"


class WorkerLost(GroupwiseError):
    """The child died or could not start. `status` is its exit status, negative for a signal.

    `cannot_start` means that it said itself why its handler cannot be made: another child would fail in the same way.
    """

    code = "worker_lost"
    status: int | None = None
    cannot_start = False


class WorkerTimeout(GroupwiseError):
    code = "took_too_long"


class WorkersBusy(GroupwiseError):
    code = "busy"


class RequestFailed(GroupwiseError):
    """What the handler raised, in the shape that all our errors have."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], hint=error.get("hint", ""), field=error.get("field", ""))
        self.code = error["code"]
        self.status = int(error.get("status", 0) or 0)


class Workers:
    """Up to `count` child processes that share the requests submitted to them.

    Args:
      entry: makes the handler in the child: "module:name", or a callable that can be pickled.
      count: how many children. Each starts when it is first needed.
      args: the arguments of `entry`.
      at_once: how many requests a child works on at a time. More than 1 is for handlers that await.
      most: how many requests may be under way or waiting; one more raises `WorkersBusy`. None sets no limit.
      json: encode messages as JSON and not with pickle.
      threads: OMP_NUM_THREADS of the children; None leaves the variable as it is.
      stderr: where children print to: an open file or a constant of `subprocess`; None is our own stderr.
    """

    def __init__(
        self,
        entry: Entry,
        count: int = 1,
        *,
        args: Sequence[Any] = (),
        at_once: int = 1,
        most: int | None = None,
        json: bool = False,
        threads: int | None = 1,
        stderr: IO[bytes] | int | None = None,
    ) -> None:
        options = {"args": args, "at_once": at_once, "most": most, "json": json, "threads": threads, "stderr": stderr}
        self._remake = partial(Workers, entry, count, **options)  # type: ignore[arg-type]
        # Kept as recipes: a fork makes a new pool, and a copy of this object makes everything anew.
        self._make_pool = partial(_Pool, _Recipe(entry, tuple(args), json, threads, stderr), count, at_once)
        self._encode, _ = codec(json)
        self.most = most
        self._closed = False
        self._renew()
        _all_workers.add(self)

    def submit(
        self,
        request: Any,
        *,
        worker: int | None = None,
        seconds: float | None = None,
        on_event: Callable[[Any], None] | None = None,
    ) -> Future[Any]:
        """Send the request to a child. Cancelling the future cancels a handler that awaits.

        Args:
          worker: the number of the child, for requests that build on one another; None takes the first with room.
          seconds: the time limit, counted from when a child that is up and has room gets the request.
          on_event: called with every item of a handler that yields, in a thread of ours that it must not hold up.
        """
        if self._closed:
            raise WorkerLost("the worker processes are closed")
        if self.most is not None and self._pool.pending >= self.most:
            raise WorkersBusy(f"{self.most} requests are already in progress", hint="Ask again in a moment.")
        try:
            # Here and not in the loop's thread: errors reach the caller, and a large request does not hold up others.
            body = self._encode(request)
        except Exception as error:
            raise ContractError(f"the request cannot be sent to a process: {error}") from error
        self._pool.count(1)
        future = self._loop.submit(self._pool.perform(_Request(body, worker, seconds, on_event)))
        future.add_done_callback(lambda _, pool=self._pool: pool.count(-1))  # type: ignore[misc]
        return future

    def start(self, worker: int) -> Future[None]:
        """Start a child before its first request, or again after it died; done when its handler is made."""
        return self._loop.submit(self._pool.start(worker))

    @property
    def pending(self) -> int:
        """How many requests are under way or waiting."""
        return self._pool.pending

    @property
    def starts(self) -> int:
        """How many children have been started so far."""
        return self._pool.starts

    @property
    def pids(self) -> list[int]:
        """The children that are running."""
        return [child.process.pid for child in self._pool.children if child is not None and child.alive]

    def resize(self, count: int) -> None:
        """Have `count` children from now on. Those beyond end when they have answered what they work on."""
        self._loop.run(self._pool.resize(count))

    def close(self, grace: float = EXIT) -> None:
        """End all children: ask them to, and kill those that have not ended after `grace` seconds."""
        if self._closed:
            return
        self._closed = True
        if self._pool.starts or self._pool.pending:
            self._loop.run(self._pool.close(grace))
        self._loop.close()
        self._finalizer.detach()

    def kill(self) -> None:
        """Kill all children without asking them to end. Unlike `close`, this works while the program exits."""
        self._closed = True
        self._finalizer()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], Workers], tuple[()]]:
        return self._remake, ()  # a copy in another process starts children of its own

    def _renew(self) -> None:
        self._loop, self._pool = EventLoop("workers"), self._make_pool()
        # The loop's thread refers to the pool and not to this object: once nobody else does, its children are killed.
        self._finalizer = weakref.finalize(self, _abandon, self._loop, self._pool, os.getpid())


@dataclass(frozen=True)
class _Recipe:
    entry: Entry
    args: tuple[Any, ...]
    json: bool
    threads: int | None
    stderr: IO[bytes] | int | None

    @property
    def name(self) -> str:
        return self.entry if isinstance(self.entry, str) else getattr(self.entry, "__qualname__", repr(self.entry))

    def spawn(self, descriptor: int) -> subprocess.Popen[bytes]:
        # The child looks where we look. With `-m`, a json.py in the working folder would come before Python's own.
        boot = f"import sys; ours = {[path for path in sys.path if isinstance(path, str)]!r}; "
        boot += "sys.path[:] = ours + [path for path in sys.path[1:] if path not in ours]; "
        boot += f"from groupwise.worker_process import serve; serve({descriptor}, {os.getpid()})"
        threads = {} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)}
        return subprocess.Popen(
            [sys.executable, "-c", boot, self.name],  # the name is for people who look at `ps`
            stdin=subprocess.DEVNULL,
            stdout=2 if self.stderr is None else self.stderr,
            stderr=self.stderr,
            pass_fds=[descriptor],
            start_new_session=True,  # out of Ctrl-C's reach, and killed together with what it starts
            env={**os.environ, **threads},
        )

    def setup(self) -> tuple[bytes, bytes]:
        """What the child must know before it can unpickle, as multiprocessing has it, and what it unpickles then."""
        recipe = pickle.dumps((self.entry, self.args))
        # The program's own script runs again in the child, but only if something of it is needed there.
        main = multiprocessing.spawn.get_preparation_data(self.name) if b"__main__" in recipe else {}
        main = {key: value for key, value in main.items() if key.startswith("init_main")}
        return pickle.dumps((self.json, main)), recipe


@dataclass(eq=False)
class _Request:
    body: bytes
    worker: int | None
    seconds: float | None
    on_event: Callable[[Any], None] | None
    cancelled: bool = False
    cancel: Callable[[], None] = lambda: None


@dataclass(eq=False)
class _Child:
    """A process that has started, and queues for the answers it owes."""

    process: subprocess.Popen[bytes]
    link: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: dict[int, asyncio.Queue[Frame | None]] = field(default_factory=dict)
    alive: bool = True
    listener: asyncio.Task[None] | None = None

    def send(self, number: int, kind: Kind, body: bytes = b"") -> None:
        with suppress(OSError, RuntimeError):  # if it is gone, the listener notices
            self.writer.write(HEAD.pack(number, kind, len(body)) + body)

    async def listen(self) -> None:
        """Hand out answers until the child closes its end of the socket; then tell everyone who still waits."""
        while (frame := await read_frame(self.reader)) is not None:
            if (queue := self.answers.get(frame[0])) is not None:
                queue.put_nowait(frame)
        self.alive = False
        await self.end(EXIT)
        for queue in self.answers.values():
            queue.put_nowait(None)

    async def end(self, grace: float) -> None:
        await asyncio.to_thread(end_process, self.process, grace)
        self.writer.close()

    def kill(self) -> None:
        self.alive = False  # from now on, not from when the socket closes
        _kill_group(self.process)


class _Pool:
    """The children, and the requests that wait for them. Runs in the event loop, except `count`."""

    def __init__(self, recipe: _Recipe, count: int, at_once: int) -> None:
        self.recipe, self.at_once = recipe, at_once
        _, self._decode = codec(recipe.json)
        self.children: list[_Child | None] = [None] * count
        self.pending = self.starts = 0
        self._counting = threading.Lock()
        self._closed = False
        # Index n is child n everywhere: its process, how many requests it works on (at most `at_once`), and the lock on
        # its start.
        self._active = [0] * count
        self._opening = [asyncio.Lock() for _ in range(count)]
        self._limit = count  # places from here on are not handed out any more
        self._waiting: deque[tuple[int | None, asyncio.Future[int]]] = deque()
        self._numbers = itertools.count(1)

    def count(self, change: int) -> None:
        with self._counting:
            self.pending += change

    async def perform(self, request: _Request) -> Any:
        place = await self._claim(request.worker)
        work = asyncio.ensure_future(self._ask(place, request))
        # A cancelled request keeps its place until the child has answered, because the child may be unable to stop.
        work.add_done_callback(lambda done: self._release(place, done))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            request.cancelled = True
            request.cancel()
            raise

    async def start(self, place: int) -> None:
        await self._started(place)

    async def resize(self, count: int) -> None:
        new = max(0, count - len(self.children))
        self.children += [None] * new
        self._active += [0] * new
        self._opening += [asyncio.Lock() for _ in range(new)]
        self._limit = count
        await asyncio.gather(*(self._retire(place) for place in range(count, len(self.children))))
        self._hand_out()

    async def _retire(self, place: int) -> None:
        child = self.children[place]
        if child is not None and not self._active[place]:
            self.children[place] = None
            child.send(0, Kind.END)
            await child.end(EXIT)

    async def close(self, grace: float) -> None:
        self._closed = True
        children = [child for child in self.children if child is not None]
        for child in children:
            child.send(0, Kind.END)
        await asyncio.gather(*(child.end(grace) for child in children))
        await asyncio.gather(*(child.listener for child in children if child.listener is not None))
        while self._waiting or any(self._active):  # they find the pool closed
            await asyncio.sleep(0)

    async def _ask(self, place: int, request: _Request) -> Any:
        child = await self._started(place)
        # It was cancelled while the child was starting.
        if request.cancelled:
            return None
        number = next(self._numbers)
        queue = child.answers[number] = asyncio.Queue()
        request.cancel = lambda: child.send(number, Kind.CANCEL)
        # There is no await since the child was found alive, so if it dies from now on, the listener finds our queue.
        child.send(number, Kind.REQUEST, request.body)
        try:
            async with asyncio.timeout(request.seconds):
                while (frame := await queue.get()) is not None:
                    value = self._decode(frame[2])
                    if frame[1] is Kind.DONE:
                        return value
                    if frame[1] is Kind.FAILED:
                        raise RequestFailed(value)
                    if request.on_event is not None and not request.cancelled:
                        request.on_event(value)
        except TimeoutError:
            child.kill()
            raise WorkerTimeout(
                f"the request took longer than {request.seconds:g} s, and its process was killed",
                hint="Raise the time limit, or ask for less.",
            ) from None
        finally:
            del child.answers[number]
        raise _lost(self.recipe, child.process)

    async def _started(self, place: int) -> _Child:
        async with self._opening[place]:
            child = self.children[place]
            if self._closed:
                raise WorkerLost("the worker processes are closed")
            if child is None or not child.alive:
                child = self.children[place] = await self._start()
            return child

    async def _start(self) -> _Child:
        # A socket and not pipes: one descriptor to pass, and each end closes with its process.
        ours, theirs = socket.socketpair()
        with theirs:
            process = self.recipe.spawn(theirs.fileno())
        self.starts += 1
        child = _Child(process, ours, *await asyncio.open_connection(sock=ours, limit=BUFFER))
        # Two frames: the first prepares `__main__`, without which the second may not unpickle.
        for body in self.recipe.setup():
            child.send(0, Kind.REQUEST, body)
        frame: Frame | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(START):
                frame = await read_frame(child.reader)
        if frame is None or frame[1] is not Kind.READY:
            await child.end(EXIT if frame is None else 0)
            raise _lost(self.recipe, process, frame)
        child.listener = asyncio.create_task(child.listen())
        return child

    async def _claim(self, worker: int | None) -> int:
        """Wait for room in a child, first come, first served; which child it is."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((worker, turn))
        self._hand_out()
        return await turn

    def _release(self, place: int, work: asyncio.Future[Any]) -> None:
        work.cancelled() or work.exception()  # mark as seen: if the request was cancelled, nobody else looks
        self._active[place] -= 1
        if place >= self._limit:
            self._retiring = asyncio.ensure_future(self._retire(place))
        self._hand_out()

    def _hand_out(self) -> None:
        # A copy, because entries are removed on the way.
        for entry in list(self._waiting):
            worker, turn = entry
            place = self._room_for(worker)
            if not turn.done():
                if place is None and worker is None:
                    return  # no child has room
                if place is None:
                    continue
                self._active[place] += 1
                turn.set_result(place)
            self._waiting.remove(entry)

    def _room_for(self, worker: int | None) -> int | None:
        """The child that is least busy, preferably one that has started; None if it has no room."""
        places = range(self._limit) if worker is None else (worker,)
        best = min(places, key=lambda place: (self._active[place], self.children[place] is None))
        return best if self._active[best] < self.at_once else None


def end_process(process: subprocess.Popen[Any], grace: float = 0.0) -> None:
    """Wait up to `grace` seconds for a process to end, then kill it; reap it and close its pipes."""
    with suppress(subprocess.TimeoutExpired):
        # With a grace of 0 this only looks whether it has ended.
        process.wait(grace)
    _kill_group(process)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process, and what it started if it leads a group of its own."""
    if process.poll() is not None:  # reaped: its number may be another's by now
        return
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def how_it_ended(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "did not answer"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def _lost(recipe: _Recipe, process: subprocess.Popen[Any], frame: Frame | None = None) -> WorkerLost:
    if frame is not None:  # it said why before it ended
        refusal = WorkerLost(f"the worker process {recipe.name} cannot start: {frame[2].decode('utf8', 'replace')}")
        refusal.cannot_start = True
        return refusal
    hint = "Signal 9 often means that the machine ran out of memory." if process.returncode == -signal.SIGKILL else ""
    lost = WorkerLost(f"the worker process {recipe.name} {how_it_ended(process.returncode)}", hint=hint)
    lost.status = process.returncode
    return lost


def _abandon(loop: EventLoop, pool: _Pool, owner: int) -> None:
    """Runs when a `Workers` is dropped without being closed, or when the program ends."""
    if os.getpid() != owner:  # a forked process must not kill its parent's children
        return
    for child in pool.children:
        if child is not None:
            _kill_group(child.process)
    loop.stop()


_all_workers: weakref.WeakSet[Workers] = weakref.WeakSet()
_left_behind: list[Any] = []


def _after_fork() -> None:
    """No thread serves the forked process's copies of the pools: leave them behind and make new ones.

    The copies are kept for ever. An event loop that is collected closes itself, and would take the parent's sockets out
    of the epoll instance that both share.
    """
    for workers in list(_all_workers):
        _left_behind.append((workers._loop, workers._pool, workers._finalizer))
        for child in workers._pool.children:
            if child is not None:
                child.link.close()
        workers._renew()


os.register_at_fork(after_in_child=_after_fork)
