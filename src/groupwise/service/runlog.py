"""A run's event log read again and again: only what is new is read, and a rewind is noticed.

A run that is resumed cuts its log back to its checkpoint and goes on from there (`groupwise.training.run`). A reader
that knows events beyond the cut has to forget them; `refresh` says from which number on.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from groupwise.training.events import decode
from groupwise.types import Event

NAN = float("nan")
Floats = npt.NDArray[np.float64]


class Series:
    """The numbers of one kind of events, `step` or `eval`, as columns."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.steps = array("q")
        self.columns: dict[str, array[float]] = {}

    def add(self, event: Event) -> None:
        before = len(self.seqs)
        self.seqs.append(event.seq)
        self.steps.append(event.step)
        for name, value in event.data.get("metrics", {}).items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = array("d", [NAN]) * before
            column.append(NAN if value is None else value)
        for column in self.columns.values():
            if len(column) == before:
                column.append(NAN)

    def column(self, name: str) -> tuple[Floats, Floats]:
        """Steps and values where there is one."""
        values = np.array(self.columns.get(name, ()), dtype=np.float64)
        steps = np.array(self.steps, dtype=np.float64)[: len(values)]
        there = ~np.isnan(values)
        return steps[there], values[there]


class RunLog:
    """The sound beginning of `events.jsonl`, as lines of bytes and as columns of numbers."""

    def __init__(self, path: Path, numbers: bool = True) -> None:
        """`numbers`: whether the columns are wanted too."""
        self.path, self.with_numbers = path, numbers
        self.lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self.ends = array("Q")  # where the line of each event ends
        self.marks = array("Q")  # a checksum of each line
        self.attempts = array("q")
        self.kinds: list[str] = []
        self.numbers = {"step": Series(), "eval": Series()}

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def attempt(self) -> int:
        return self.attempts[-1] if self.attempts else 0

    def known_until(self, attempt: int) -> int:
        """Up to which event somebody whose last event was of `attempt` can have the same."""
        return bisect.bisect_right(self.attempts, attempt)

    @property
    def _size(self) -> int:
        return int(self.ends[-1]) if self.ends else 0

    def refresh(self) -> int | None:
        """Read what is new; the number from which on events are others than before, if any are."""
        with self.lock:
            try:
                with open(self.path, "rb") as file:
                    known, marks = self._size, self.marks
                    rewound = bool(known) and not self._holds(file)
                    if rewound:
                        self._clear()
                    self._read(file)
            except FileNotFoundError:
                rewound, marks = bool(self.ends), self.marks
                self._clear()
            if not rewound:
                return None
            same = 0
            while same < min(len(marks), len(self.marks)) and marks[same] == self.marks[same]:
                same += 1
            return same if same < len(marks) else None

    def _holds(self, file: object) -> bool:
        """Whether the last known line is still where it was."""
        begin = int(self.ends[-2]) if len(self.ends) > 1 else 0
        file.seek(begin)  # type: ignore[attr-defined]
        line: bytes = file.read(self._size - begin)  # type: ignore[attr-defined]
        return zlib.crc32(line) == self.marks[-1]

    def _read(self, file: object) -> None:
        file.seek(self._size)  # type: ignore[attr-defined]
        for line in file:  # type: ignore[attr-defined]
            event = decode(line) if line.endswith(b"\n") else None
            if event is None or event.seq != len(self.ends):
                return
            self.ends.append(self._size + len(line))
            self.marks.append(zlib.crc32(line))
            self.kinds.append(event.type)
            self.attempts.append(event.attempt)
            if self.with_numbers and event.type in self.numbers:
                self.numbers[event.type].add(event)

    def lines(self, begin: int, end: int) -> list[bytes]:
        """The events from number `begin` up to, not including, `end`, as JSON."""
        with self.lock:
            begin, end = max(0, begin), min(end, len(self.ends))
            if begin >= end:
                return []
            start = int(self.ends[begin - 1]) if begin else 0
            with open(self.path, "rb") as file:
                file.seek(start)
                content = file.read(int(self.ends[end - 1]) - start)
        return content.splitlines()

    def chosen(self, numbers: Sequence[int]) -> list[bytes]:
        """Some events by their numbers, as JSON."""
        with self.lock, open(self.path, "rb") as file:
            found = []
            for number in numbers:
                start = int(self.ends[number - 1]) if number else 0
                file.seek(start)
                found.append(file.read(int(self.ends[number]) - start).rstrip(b"\n"))
            return found


class RunLogs:
    """The logs of the runs that were looked at last."""

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


def thinned(values: Floats, points: int) -> npt.NDArray[np.int64]:
    """Which of the values to show so that at most `points` are left: of each stretch the lowest and the highest.

    The first and the last are always among them.
    """
    count = len(values)
    if count <= points:
        return np.arange(count)
    if points < 4:
        return np.linspace(0, count - 1, points).astype(np.int64)
    edges = np.linspace(0, count, max(1, (points - 2) // 2) + 1).astype(np.int64)
    chosen = {0, count - 1}
    for begin, end in itertools.pairwise(edges):
        stretch = values[begin:end]
        chosen |= {begin + int(np.argmin(stretch)), begin + int(np.argmax(stretch))}
    return np.array(sorted(chosen), dtype=np.int64)
