"""A run's event log, read incrementally and streamed to many clients, each at its own position."""

import asyncio
import bisect
import itertools
import os
import threading
import zlib
from array import array
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from groupwise.errors import RunError, StorageError
from groupwise.files import open_regular
from groupwise.metrics import true_metrics
from groupwise.training.events import decode, lines_of
from groupwise.types import Event

NAN = float("nan")
AXES = ("samples", "time", "processor")
"""What a curve can be drawn against beside steps: samples, seconds of training, seconds of processor time."""
MOST_NAMES = 2000  # metrics of a run; later ones are counted and not drawn
MOST_COUNTED = 100_000
Floats = npt.NDArray[np.float64]


class Series:
    """The numbers of one kind of events, `step` or `eval`, as columns."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.steps = array("q")
        self.axes = {axis: array("d") for axis in AXES}
        self.columns: dict[str, array[float]] = {}
        self.left_out: set[str] = set()  # names beyond `MOST_NAMES`, as far as they are counted

    def add(self, event: Event, stands: Mapping[str, float]) -> None:
        before = len(self.seqs)
        self.seqs.append(event.seq)
        self.steps.append(event.step)
        for axis, place in stands.items():
            self.axes[axis].append(place)
        metrics = numbers_of(event)
        for name, value in metrics.items():
            column = self.columns.get(name)
            if column is None:
                if len(self.columns) >= MOST_NAMES:
                    if len(self.left_out) < MOST_COUNTED:
                        self.left_out.add(name)
                    continue
                column = self.columns[name] = array("d", [NAN]) * before
            column.append(NAN if value is None else value)
        if len(metrics) < len(self.columns):
            for name in self.columns.keys() - metrics.keys():
                self.columns[name].append(NAN)

    def column(self, name: str, axis: str = "step") -> tuple[Floats, Floats, Floats]:
        """Steps and values of a column, and their places on an axis, leaving out missing values."""
        values = np.array(self.columns.get(name, ()), dtype=np.float64)
        steps = np.array(self.steps, dtype=np.float64)[: len(values)]
        places = steps if axis == "step" else np.array(self.axes[axis], dtype=np.float64)[: len(values)]
        there = ~np.isnan(values)
        return steps[there], values[there], places[there]


def numbers_of(event: Event) -> dict[str, float | None]:
    """Every number of a step or an evaluation, by the name that the registry of metrics has for it."""
    found = dict(true_metrics(event.data.get("metrics", {})))
    for table in ("timing", "totals"):
        found |= {f"{table}/{name}": value for name, value in event.data.get(table, {}).items()}
    return found


class RunLog:
    """The intact beginning of `events.jsonl`, as lines of bytes and as columns of numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        # Only grows, so that a client can say how many rewinds it has seen. A run that resumes cuts its log back to a
        # checkpoint and writes other events under the same numbers: that is a rewind.
        self.rewinds: list[int] = []  # for each rewind, the number of the first event that was replaced
        self._clear()

    def _clear(self) -> None:
        # Invariant: event n lies between ends[n - 1] and ends[n], and its `seq` is n. Arrays keep 8 bytes per event, so
        # that a run of a million steps stays small.
        self.ends = array("Q")  # byte offset of the end of each event's line
        self.marks = array("Q")  # CRC-32 of each line
        self.attempts = array("q")
        self.rare: list[int] = []  # the numbers of events other than steps, evaluations and checkpoints
        self.last: Event | None = None
        self.step = self.total = 0  # the latest step, and the planned total
        self.metrics: dict[str, float | None] = {}  # newest value of each metric
        self.numbers = {"step": Series(), "eval": Series()}
        self._stands = dict.fromkeys(AXES, 0.0)  # of the latest event on each axis

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def attempt(self) -> int:
        return self.attempts[-1] if self.attempts else 0

    def known_until(self, attempt: int) -> int:
        """How many events a client whose last event came from `attempt` can share with this log."""
        # `attempts` never falls along the log, so events of attempts up to `attempt` are a prefix.
        return bisect.bisect_right(self.attempts, attempt)

    @property
    def _size(self) -> int:
        return int(self.ends[-1]) if self.ends else 0

    def refresh(self) -> None:
        """Read new events."""
        with self.lock:
            self._refresh()

    def news(self, count: int, rewinds: int, most: int) -> tuple[int, int, list[bytes]]:
        """What a client with `count` events is missing since rewind number `rewinds`: at most the newest `most` lines.

        Returns the number of rewinds so far, the number of the first line, and the lines.
        """
        with self.lock:
            self._refresh()
            # Start at the earliest replaced event, but never further back than `most` lines.
            begin = max(min([count, *self.rewinds[rewinds:]]), len(self.ends) - most)
            return len(self.rewinds), begin, self._lines(begin, len(self.ends))

    def _refresh(self) -> None:
        marks, rewound = self.marks, False
        try:
            with self._opened() as file:
                rewound = bool(self.ends) and not self._holds(file)
                if rewound:
                    self._clear()
                self._read(file)
        except FileNotFoundError:
            rewound = bool(self.ends)
            self._clear()
        if rewound:
            # The old and new checksums agree up to the event from which the run was played again.
            pairs = zip(marks, self.marks, strict=False)
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            if same < len(marks):
                self.rewinds.append(same)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open_regular(self.path) as file:
                yield file
        except FileNotFoundError:
            raise
        except OSError as error:
            run = self.path.parent.name
            hint = f"Check {self.path}."
            raise RunError(f"the event log of run {run} cannot be read: {error.strerror}", hint=hint) from error

    def _holds(self, file: BinaryIO) -> bool:
        """Whether the last line we read is still there, unchanged."""
        # One line is enough: the log is append-only between rewinds, and a rewind changes its last line.
        begin = int(self.ends[-2]) if len(self.ends) > 1 else 0
        file.seek(begin)
        return zlib.crc32(file.read(self._size - begin)) == self.marks[-1]

    def _read(self, file: BinaryIO) -> None:
        size = self._size
        file.seek(size)
        for line in lines_of(file):
            event = decode(line) if line.endswith(b"\n") else None
            # A torn last line is being written right now, or was cut by a crash; the next refresh looks again.
            if event is None or event.seq != len(self.ends):
                return
            size += len(line)
            self.ends.append(size)
            self.marks.append(zlib.crc32(line))
            self.attempts.append(event.attempt)
            self._advance(event)
            self.last, self.step = event, max(self.step, event.step)
            if event.type in self.numbers:
                self.numbers[event.type].add(event, self._stands)
                self.metrics.update(true_metrics(event.data.get("metrics", {})))
            elif event.type != "checkpoint":
                self.rare.append(event.seq)
                self.total = event.data.get("total_steps", 0) if event.type == "start" else self.total

    def _advance(self, event: Event) -> None:
        """Where the event stands on each axis. Pauses between attempts are no training time."""
        stands, last = self._stands, self.last
        if last is not None and last.attempt == event.attempt:
            stands["time"] += max(0.0, event.time - last.time)
        stands["processor"] += event.data.get("timing", {}).get("processor") or 0.0
        stands["samples"] = max(stands["samples"], event.data.get("totals", {}).get("samples") or 0.0)

    def names(self) -> list[str]:
        """Every number there is, sorted."""
        return sorted({name for series in self.numbers.values() for name in series.columns})

    def left_out(self) -> int:
        """How many metrics are too many to be drawn."""
        with self.lock:
            return len(set[str]().union(*(series.left_out for series in self.numbers.values())) - set(self.names()))

    def lines(self, begin: int, end: int) -> list[bytes]:
        """Events `begin` to `end` (exclusive) as JSON lines."""
        with self.lock:
            return self._lines(begin, end)

    def _lines(self, begin: int, end: int) -> list[bytes]:
        begin, end = max(0, begin), min(end, len(self.ends))
        if begin >= end:
            return []
        start = int(self.ends[begin - 1]) if begin else 0
        size = int(self.ends[end - 1]) - start
        content = self._between([(start, size)])[0]
        # A log that was cut back since the last read holds different events by now; the next refresh reads them.
        return content[:-1].split(b"\n") if len(content) == size else []

    def chosen(self, numbers: Sequence[int]) -> list[bytes]:
        """The events with these numbers, as JSON lines."""
        with self.lock:
            known = [number for number in numbers if number < len(self.ends)]
            starts = [int(self.ends[number - 1]) if number else 0 for number in known]
            places = [(start, int(self.ends[number]) - start) for number, start in zip(known, starts, strict=True)]
            found = self._between(places)
        return [line[:-1] for line, (_, size) in zip(found, places, strict=True) if len(line) == size]

    def _between(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at each (offset, size); empty if the file is gone."""
        try:
            with self._opened() as file:
                return [file.read(size) for start, size in places if file.seek(start) == start]
        except FileNotFoundError:
            return [b""] * len(places)


class RunLogs:
    """The logs of the most recently used runs."""

    def __init__(self, most: int = 16) -> None:
        self.most = most
        self._logs: OrderedDict[Path, RunLog] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: Path) -> RunLog:
        """The log of the run at `run`; `refresh` it before use."""
        with self._lock:
            log = self._logs.setdefault(run, RunLog(run / "events.jsonl"))
            self._logs.move_to_end(run)
            while len(self._logs) > self.most:
                self._logs.popitem(last=False)
            return log


def downsampled(values: Floats, points: int) -> npt.NDArray[np.int64]:
    """Indices of at most `points` values to draw: each interval's minimum and maximum, and both ends."""
    count = len(values)
    if count <= points:
        return np.arange(count)
    if points < 4:
        return np.linspace(0, count - 1, points).astype(np.int64)
    # Two indices per interval, plus the two ends: `points` at most.
    edges = np.linspace(0, count, max(1, (points - 2) // 2) + 1).astype(np.int64)
    chosen = {0, count - 1}
    for begin, end in itertools.pairwise(edges):
        stretch = values[begin:end]
        chosen |= {begin + int(np.argmin(stretch)), begin + int(np.argmax(stretch))}
    return np.array(sorted(chosen), dtype=np.int64)


LAG = 1000  # events a client may lag behind before older ones are dropped
PAGE = 200  # events read at once for a client that is catching up
LOOK = 0.05  # seconds between two checks of a log


WhoseRun = Callable[[str], str | None]
"""The job that a run belongs to now; None if it belongs to the operator, or is gone."""


def _operators(run: str) -> None:
    return None


class Follower:
    """New events of one run's log, for every client that follows it.

    A name is free again once its run is deleted, and the next run of that name may be another key's. So nothing is
    passed on before the run is known to belong to the same job as when the follower opened; otherwise it `is_over`.
    """

    def __init__(self, run: str, log: RunLog, whose: WhoseRun = _operators) -> None:
        self.run, self.log, self._whose = run, log, whose
        self.is_over = False
        self._job: str | None = None
        self.count = 0  # events clients may be sent; the log itself is shared and may already hold more
        self.changed: set[asyncio.Event] = set()
        self.rewinds: list[int] = []
        self._recent: deque[tuple[int, str]] = deque(maxlen=LAG)
        self._seen: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        # Before the first look: what is read belongs to this job, or the follower is over.
        self._job = await asyncio.to_thread(self._whose, self.run)
        await self._look()
        self._task = asyncio.create_task(self._follow())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def messages(self, begin: int) -> list[str]:
        """Up to `PAGE` events from number `begin`, as messages to clients."""
        if self._recent and self._recent[0][0] <= begin:
            offset = begin - self._recent[0][0]
            return [self._recent[n][1] for n in range(offset, min(offset + PAGE, len(self._recent)))]
        lines = await asyncio.to_thread(self.log.lines, begin, min(begin + PAGE, self.count))
        return [self._message(line) for line in lines] if await self.is_same_run() else []

    async def is_same_run(self) -> bool:
        """Whether the run still belongs to the job that it belonged to; asked after reading, so of what was read."""
        if not self.is_over and await asyncio.to_thread(self._whose, self.run) != self._job:
            self.is_over = True
            self.close()
            for event in self.changed:
                event.set()
        return not self.is_over

    async def _follow(self) -> None:
        while not self.is_over:
            await asyncio.sleep(LOOK)
            # Not readable right now, or the database does not say whose it is: the next check tries again.
            with suppress(RunError, StorageError):
                await self._look()

    async def _look(self) -> None:
        try:
            found = os.stat(self.log.path)
            seen = (found.st_size, found.st_mtime_ns)
            # Size and modification time together: a rewind can leave the size as it was.
            if seen == self._seen:
                return
            rewinds, begin, lines = await asyncio.to_thread(self.log.news, self.count, len(self.rewinds), LAG)
        except OSError:
            return
        if not await self.is_same_run():
            return
        self._seen = seen
        rewound = rewinds > len(self.rewinds)
        if not lines and not rewound:
            return
        # `_recent` holds consecutive numbers only; after a gap it starts over.
        if rewound or not self._recent or self._recent[-1][0] != begin - 1:
            self._recent.clear()
        self.rewinds = self.log.rewinds[:rewinds]
        self._recent.extend((begin + n, self._message(line)) for n, line in enumerate(lines))
        self.count = begin + len(lines)
        for event in self.changed:
            event.set()

    def _message(self, line: bytes) -> str:
        return f'{{"type":"event","run":"{self.run}","event":{line.decode()}}}'


@dataclass
class StreamPosition:
    """One client's position in one run's log."""

    follower: Follower
    next: int
    rewinds: int
    live: bool = False

    async def news(self) -> AsyncIterator[tuple[str, dict[str, object] | str]]:
        """What to send the client next: rewinds, dropped events, events."""
        follower = self.follower
        if follower.is_over:
            return
        while self.rewinds < len(follower.rewinds):
            first = follower.rewinds[self.rewinds]
            self.rewinds += 1
            if first < self.next:
                self.next = first
                yield "rewind", {"type": "rewind", "run": follower.run, "from": first}
        # A client that is still catching up reads pages from disk; only one that was live can fall behind.
        if self.live and follower.count - self.next > LAG:
            missed, self.next = self.next, follower.count - LAG // 2
            yield "dropped", {"type": "dropped", "run": follower.run, "from": missed, "to": self.next - 1}
        if self.next < follower.count:
            rewinds = len(follower.rewinds)
            for message in await follower.messages(self.next):
                # The log was rewound while the page was read: what is left of it may be replaced already.
                if rewinds != len(follower.rewinds):
                    return
                yield "event", message
                self.next += 1
        self.live = self.live or self.next >= follower.count

    @property
    def has_news(self) -> bool:
        follower = self.follower
        return not follower.is_over and (self.next < follower.count or self.rewinds < len(follower.rewinds))


class Followers:
    """One follower per run that has at least one client."""

    def __init__(self, log_of: Callable[[str], RunLog], whose: WhoseRun = _operators) -> None:
        self.log_of, self.whose = log_of, whose
        self._open: dict[str, tuple[Follower, int]] = {}
        self._lock = asyncio.Lock()

    async def join(
        self, run: str, begin: int, attempt: int | None, changed: asyncio.Event
    ) -> tuple[StreamPosition, int | None]:
        """A position at event `begin` of a run, and where the client must rewind to if its events were replaced."""
        async with self._lock:
            follower, users = self._open.get(run, (None, 0))
            if follower is None or not await follower.is_same_run():
                follower, users = Follower(run, await asyncio.to_thread(self.log_of, run), self.whose), 0
                await follower.open()
            self._open[run] = (follower, users + 1)
        follower.changed.add(changed)
        # Events of a later attempt than the client has seen may replace its own, even under the same numbers.
        known = follower.count if attempt is None else min(follower.count, follower.log.known_until(attempt))
        rewind = known if known < begin else None
        return StreamPosition(follower, min(begin, known), len(follower.rewinds)), rewind

    async def leave(self, place: StreamPosition, changed: asyncio.Event) -> None:
        follower = place.follower
        follower.changed.discard(changed)
        async with self._lock:
            held, users = self._open.get(follower.run, (None, 0))
            if held is not follower:  # it is over, and the run that has its name now has another
                follower.close()
            elif users > 1:
                self._open[follower.run] = (follower, users - 1)
            else:
                del self._open[follower.run]
                follower.close()

    def close(self) -> None:
        for follower, _ in self._open.values():
            follower.close()
