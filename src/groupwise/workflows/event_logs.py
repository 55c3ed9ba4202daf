"""Event logs in files: CSV and XES, plain or gzipped.

A CSV file has one event per line, with a case, an activity and a time; its columns are found by their usual names, or
named by the caller. XES is read without document type, entities or network.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, iterparse

from groupwise.workflows.files.formats import BadFile

LARGEST = 256 << 20
# What a column may be called, in small letters; the first that is there counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "case": ("case:concept:name", "case_id", "case id", "caseid", "case", "trace"),
    "activity": ("concept:name", "activity", "task", "event", "activity_name"),
    "time": ("time:timestamp", "timestamp", "complete timestamp", "end_time", "end", "time", "completed"),
    "start": ("start_timestamp", "start timestamp", "start_time", "start", "started"),
    "resource": ("org:resource", "resource", "user", "worker"),
    "role": ("org:role", "org:group", "role", "group", "pool", "department"),
    "lifecycle": ("lifecycle:transition", "lifecycle", "transition", "status"),
}
NEEDED = ("case", "activity", "time")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of a log. Times are seconds since 1970; `start` is there where the log has both on one line."""

    case: str
    activity: str
    time: float
    start: float | None = None
    resource: str = ""
    role: str = ""
    lifecycle: str = "complete"


def read_events(path: str | Path, columns: Mapping[str, str] | None = None) -> list[LogEvent]:
    """The events of a log file. `columns` names those that are called otherwise: {"case": "Order No."}."""
    path = Path(path)
    content = _content(path)
    name = path.name.lower().removesuffix(".gz")
    is_xes = name.endswith(".xes") or (not name.endswith(".csv") and content.lstrip()[:1] == b"<")
    events = list(_xes(path, content) if is_xes else _csv(path, content, columns or {}))
    if not events:
        raise BadFile(f"{path} has no events", hint="A log has one line or <event> for every activity of every case.")
    return events


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if zipped else file).read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > LARGEST:
        raise BadFile(f"{path} holds more than {LARGEST >> 20} MiB", hint="Take a part of the log, of whole cases.")
    return content


def _csv(path: Path, content: bytes, columns: Mapping[str, str]) -> Iterator[LogEvent]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadFile(f"{path}, line {line}: byte {error.start} is no UTF-8", hint="Save the log as UTF-8.") from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(lines, [])
        where = _columns(path, [name.strip() for name in header], columns)
        for row in lines:
            if any(cell.strip() for cell in row):
                yield _event_of(f"{path}, line {lines.line_num}", header, row, where)
    except csv.Error as error:
        raise BadFile(f"{path}, line {lines.line_num}: {error}", hint="Is a quotation mark missing?") from error


def _columns(path: Path, header: list[str], given: Mapping[str, str]) -> dict[str, int]:
    """The number of each column that there is."""
    for what, name in given.items():
        if what not in NAMES or name not in header:
            wrong = f"{what!r} is none of {', '.join(NAMES)}" if what not in NAMES else f"there is no column {name!r}"
            raise BadFile(f"{path}, line 1: {wrong}", hint=f"The columns are {', '.join(header)}.")
    small = [name.lower() for name in header]
    where = {}
    for what, names in NAMES.items():
        known = next((name for name in names if name in small), None)
        if what in given:
            where[what] = header.index(given[what])
        elif known is not None:
            where[what] = small.index(known)
    missing = [what for what in NEEDED if what not in where]
    if missing:
        there = ", ".join(header) or "nothing"
        usual = "; ".join(f"{what} may be {', '.join(NAMES[what][:3])}" for what in missing)
        raise BadFile(
            f"{path}, line 1: no column tells the {' and the '.join(missing)} of an event; there are {there}",
            hint=f"Name the column, or call it as usual: {usual}.",
        )
    return where


def _event_of(place: str, header: list[str], row: list[str], where: Mapping[str, int]) -> LogEvent:
    if len(row) <= max(where.values()):
        raise BadFile(f"{place}: {len(row)} columns, and the first line has {len(header)}")
    cells = {what: row[number].strip() for what, number in where.items()}
    for what in NEEDED:
        if not cells[what]:
            raise BadFile(f"{place}: column {header[where[what]]!r} is empty", hint=f"Every event needs a {what}.")
    start = cells.get("start")
    return LogEvent(
        cells["case"],
        cells["activity"],
        seconds(place, header[where["time"]], cells["time"]),
        seconds(place, header[where["start"]], start) if start else None,
        cells.get("resource", ""),
        cells.get("role", ""),
        cells.get("lifecycle", "").lower() or "complete",
    )


def seconds(place: str, column: str, text: str) -> float:
    """A time as seconds since 1970: a number, or a date in the order year, month, day; without a zone it is UTC."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip().replace("/", "-"))
    except ValueError as error:
        raise BadFile(
            f"{place}: {column!r} is {text[:60]!r}, which is no time",
            hint="Write 2026-03-01T09:30:00+00:00 (ISO 8601), or seconds since 1970.",
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _xes(path: Path, content: bytes) -> Iterator[LogEvent]:
    """Events of traces; an event's place is told by their numbers."""
    trace, number = 0, 0
    events: list[dict[str, Any]] = []
    try:
        for moment, element in iterparse(io.BytesIO(content), events=("start", "end"), forbid_dtd=True):
            tag = element.tag.rpartition("}")[2]
            if tag == "trace" and moment == "start":
                trace, number, events = trace + 1, 0, []
            elif tag == "event" and moment == "end":
                number += 1
                events.append({**_attributes(element), "": f"{path}, event {number} of trace {trace}"})
                element.clear()
            elif tag == "trace" and moment == "end":
                case = _attributes(element).get("concept:name") or str(trace)
                yield from (_xes_event(case, event) for event in events)
                element.clear()
    except ParseError as error:
        line, column = error.position
        raise BadFile(f"{path}, line {line}, column {column + 1}: no well-formed XML: {error}") from error
    except DefusedXmlException as error:
        raise BadFile(
            f"{path} declares a document type or entities, which are not read", hint="Remove the <!DOCTYPE …>."
        ) from error


def _attributes(element: Any) -> dict[str, str]:
    return {child.get("key", ""): child.get("value", "") for child in element if child.get("key")}


def _xes_event(case: str, found: Mapping[str, str]) -> LogEvent:
    place = found[""]
    for key in ("concept:name", "time:timestamp"):
        if not found.get(key):
            raise BadFile(f"{place} has no {key}", hint="Every event needs a concept:name and a time:timestamp.")
    start = found.get("start_timestamp")
    return LogEvent(
        case,
        found["concept:name"],
        seconds(place, "time:timestamp", found["time:timestamp"]),
        seconds(place, "start_timestamp", start) if start else None,
        found.get("org:resource", ""),
        found.get("org:role", "") or found.get("org:group", ""),
        found.get("lifecycle:transition", "complete").lower() or "complete",
    )
