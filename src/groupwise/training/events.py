"""The event log: one JSON object per line, numbered without gaps, append-only between checkpoints."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from groupwise.errors import RunError
from groupwise.files import disk, open_regular
from groupwise.types import EVENT_TYPES, Event

VERSION = 1
# The code of a hint about files that were lost or damaged: shown even to those who asked for quiet.
DAMAGE = "damage"
# A number whose square is still finite, so that readers can compute variances.
LARGEST = 1e150
# Bytes of a line: a longer one is not an event, and is never read into memory as a whole.
LONGEST = 16 << 20
TABLES = ("metrics", "timing", "totals")
FIELDS = frozenset(("v", "run", "seq", "attempt", "time", "step", "type", "data"))


def encode(event: Event) -> bytes:
    """An event as one line. Numbers that JSON cannot express (NaN, infinity) become null."""
    fields = {"v": event.v, **asdict(event)}
    return (json.dumps(plain(fields), ensure_ascii=False, allow_nan=False) + "\n").encode("utf8", "replace")


def plain(value: Any) -> Any:
    """`value` as JSON can express it: finite numbers, strings, lists, dictionaries, null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) and abs(number) < LARGEST else None


def decode(line: bytes) -> Event | None:
    """The event of a line, or None if the line is not a complete event of this version."""
    try:
        raw = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(raw, dict) or raw.keys() != FIELDS or raw["v"] != VERSION or raw["type"] not in EVENT_TYPES:
        return None
    counts = (raw["seq"], raw["attempt"], raw["step"])
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        return None
    sound = type(raw["run"]) is str and _is_time(raw["time"]) and _is_data(raw["type"], raw["data"])
    return Event(**raw) if sound else None


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e11


def _is_data(kind: str, data: Any) -> bool:
    """Whether the parts that readers rely on have the expected shape."""
    if not isinstance(data, dict):
        return False
    if not all(is_numbers(data[name]) for name in TABLES if name in data):
        return False
    if kind == "start":
        total = data.get("total_steps", 0)
        return type(total) is int and 0 <= total < 2**53 and isinstance(data.get("config", {}), dict)
    return kind != "error" or isinstance(data.get("error"), dict)


def is_numbers(table: Any) -> bool:
    """Whether this is a table of names and numbers."""
    if not isinstance(table, dict):
        return False
    # A long log has millions of numbers: no call, one type check and one comparison for each.
    for value in table.values():
        kind = type(value)
        if (kind is not float and kind is not int and value is not None) or (value and not -LARGEST < value < LARGEST):
            return False
    return True


def sound_events(path: Path) -> Iterator[tuple[Event, int]]:
    """The log's events up to the first damage, each with the offset at which its line ends.

    It stops at the first line that is torn, is not an event or is out of order. A log of a newer version is not damaged
    but refused: whoever took it for damaged would cut it.
    """
    if not path.is_file():
        return
    offset = 0
    with open_regular(path) as file:
        for expected, line in enumerate(lines_of(file)):
            event = decode(line) if line.endswith(b"\n") else None
            if event is None or event.seq != expected:
                _refuse_newer(line, path)
                return
            offset += len(line)
            yield event, offset


def _refuse_newer(line: bytes, path: Path) -> None:
    try:
        raw = from_json(line)
    except ValueError:
        return
    version = raw.get("v") if isinstance(raw, dict) else None
    if type(version) is int and version > VERSION:
        raise RunError(
            f"{path} was written by a newer Groupwise: its events have version {version}, this one reads {VERSION}",
            hint="Update Groupwise to open this run.",
        )


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines from here on; one that is too long comes in parts, and no part is an event."""
    return iter(lambda: file.readline(LONGEST), b"")


def read_events(path: Path) -> list[Event]:
    return [event for event, _ in sound_events(path)]


# A log of more bytes is read in part by those who only look at it: some 40,000 events of usual size.
LONG = 50 << 20
# Steps, and evaluations, that are read of such a log at most, about.
THINNED = 4000
# The type stands before the data and after short fields, none of which can contain a quotation mark.
HEAD = 600


def looked_at_events(path: Path) -> list[Event]:
    """The events of a log for those who only look: all of them, or of a long log the steps and evaluations in part.

    Of a long log it has the first and last and some 4,000 steps in between, as many evaluations, and everything else.
    Lines in between are counted, not parsed, which takes a thirtieth of the time: about 2 s for a million steps.
    """
    if not is_long(path):
        return read_events(path)
    found = _chosen_events(path)
    # A line that is not what its place in the log says: only reading all of it finds where the damage begins.
    return read_events(path) if found is None else found


def is_long(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > LONG


def _chosen_events(path: Path) -> list[Event] | None:
    """Some events of a long log, or None if one of them is not what its place says."""
    places: dict[str, list[tuple[int, int]]] = {"step": [], "eval": [], "rest": []}
    stride, offset, number = max(1, path.stat().st_size // THINNED), 0, 0
    next_step, last = 0, (0, 0)
    with open_regular(path) as file:
        for line in lines_of(file):
            if not line.endswith(b"\n"):
                break
            head = line[:HEAD]
            if b'"type": "step"' in head:
                last = (number, offset)
                if offset >= next_step:
                    places["step"].append(last)
                    next_step = offset + stride
            elif b'"type": "eval"' in head:
                places["eval"].append((number, offset))
            elif b'"type": "checkpoint"' not in head:
                places["rest"].append((number, offset))
            number, offset = number + 1, offset + len(line)
        places["step"].append(last)
        evals = places["eval"]
        places["eval"] = [*evals[:: max(1, len(evals) // THINNED)], *evals[-1:]]
        found = {}
        for expected, start in {place for some in places.values() for place in some}:
            file.seek(start)
            event = decode(file.readline(LONGEST))
            if event is None or event.seq != expected:
                return None
            found[expected] = event
    return [found[place] for place in sorted(found)]


class EventLog:
    """The writer's side. One write per line, so that a crash can only tear the last line."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        """Open `path`, dropping a torn end and, with `keep`, all events from number `keep` on."""
        self.path = path
        self.count = self.offset = 0
        for event, offset in sound_events(path):
            if keep is not None and event.seq >= keep:
                break
            self.count, self.offset = event.seq + 1, offset
        with disk(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._descriptor, self.offset)

    def append(self, event: Event) -> None:
        assert event.seq == self.count, f"event {event.seq} would leave a gap after {self.count - 1}"
        line = encode(event)
        with disk(self.path):
            written = 0
            try:
                while written < len(line):
                    written += os.pwrite(self._descriptor, line[written:], self.offset + written)
            except OSError:
                # A full disk may have taken half a line: take it back, so that the log stays sound.
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self.offset)
                raise
        self.offset += len(line)
        self.count += 1

    def sync(self) -> None:
        with disk(self.path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
