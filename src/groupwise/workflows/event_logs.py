"""Event logs in files: CSV and XES, plain or gzipped.

A CSV file has one event per line, with a case, an activity and a time. Columns are recognised by their usual names, or
named by the caller.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from sys import intern

from groupwise.errors import ConfigError
from groupwise.files import open_regular
from groupwise.readers import ReadLimits, decoded
from groupwise.workflows.files.formats import BadFile
from groupwise.xml_reader import xml_events

LIMITS = ReadLimits(size=256 << 20, values=50_000_000, seconds=600)
MOST_EVENTS = 2_000_000
LONGEST_LINE = 1 << 20
# Seconds since 1970, or thousandths of them: far beyond the year 9999.
LATEST = 1e15
# Usual column names in lower case; the first that is found counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "case": ("case:concept:name", "case_id", "case id", "caseid", "case", "trace"),
    "activity": ("concept:name", "activity", "task", "event", "activity_name"),
    "time": ("time:timestamp", "timestamp", "complete timestamp", "end_time", "end", "time", "completed"),
    "start": ("start_timestamp", "start timestamp", "start_time", "start", "started"),
    "resource": ("org:resource", "resource", "user", "worker"),
    "role": ("org:role", "org:group", "role", "group", "pool", "department"),
    "lifecycle": ("lifecycle:transition", "lifecycle", "transition", "status"),
}
ALSO = {"end": "time"}  # another word for a column that `--column` may use
NEEDED = ("case", "activity", "time")
XES_ELEMENTS = frozenset(
    ("log", "extension", "global", "classifier", "trace", "event", "values", "string", "date", "int", "float",
     "boolean", "id", "list", "container")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event. Times are seconds since 1970; `start` is set if the log has start and end on one line."""

    case: str
    activity: str
    time: float
    start: float | None = None
    resource: str = ""
    role: str = ""
    lifecycle: str = "complete"


def read_events(path: str | Path, columns: Mapping[str, str] | None = None) -> list[LogEvent]:
    """The events of a log file. `columns` gives unusual column names: {"case": "Order No."}."""
    path = Path(path)
    content = _content(path)
    name = path.name.lower().removesuffix(".gz")
    # Without a telling suffix, XML starts with "<".
    is_xes = name.endswith(".xes") or (not name.endswith(".csv") and content.lstrip()[:1] == b"<")
    found = _xes(path, content) if is_xes else _csv(path, content, columns or {})
    events = list(islice(found, MOST_EVENTS + 1))
    if len(events) > MOST_EVENTS:
        raise BadFile(f"{path} has more than {MOST_EVENTS:,} events", hint="Use a part with complete cases.")
    if not events:
        raise BadFile(f"{path} has no events", hint="A log has a line or an <event> for every activity of a case.")
    return events


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if zipped else file).read(LIMITS.size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > LIMITS.size:
        raise BadFile(f"{path} is larger than {LIMITS.size >> 20} MiB", hint="Use a part with complete cases.")
    return content


def _csv(path: Path, content: bytes, columns: Mapping[str, str]) -> Iterator[LogEvent]:
    try:
        first = decoded(content, LIMITS)[:LONGEST_LINE].partition("\n")[0]
    except ConfigError as error:
        raise BadFile(f"{path}: {error.message}", hint=error.hint or "Save the log as UTF-8.") from error
    # The delimiter is whichever candidate occurs most often in the header.
    delimiter = max(",;\t|", key=first.count)
    # Decoded again piece by piece: as one text it may take four bytes a character.
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    lines = csv.reader(_short_lines(path, text), delimiter=delimiter, strict=True)
    try:
        header = next(lines, [])
        where = _columns(path, [name.strip() for name in header], columns)
        for row in lines:
            if any(cell.strip() for cell in row):
                yield _event_of(f"{path}, line {lines.line_num}", header, row, where)
    except csv.Error as error:
        raise BadFile(f"{path}, line {lines.line_num}: {error}", hint="Is a quotation mark missing?") from error


def _short_lines(path: Path, text: io.TextIOWrapper) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE + 1), ""), start=1):
        if len(line) > LONGEST_LINE:
            raise BadFile(f"{path}, line {number} has more than {LONGEST_LINE:,} characters", hint="Is this a log?")
        yield line


def _columns(path: Path, header: list[str], given: Mapping[str, str]) -> dict[str, int]:
    given = {ALSO.get(what, what): name for what, name in given.items()}
    for what, name in given.items():
        if what not in NAMES or name not in header:
            wrong = f"{what!r} must be one of {', '.join(NAMES)}" if what not in NAMES else f"no column {name!r}"
            raise BadFile(f"{path}, line 1: {wrong}", hint=f"The columns are {', '.join(header):.300}.")
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
            f"{path}, line 1: no column for the {' and the '.join(missing)} of an event; found: {there:.300}",
            hint=f"Name the column, or use a usual name: {usual}.",
        )
    return where


def _event_of(place: str, header: list[str], row: list[str], where: Mapping[str, int]) -> LogEvent:
    if len(row) <= max(where.values()):
        raise BadFile(f"{place}: {len(row)} columns, but the first line has {len(header)}")
    cells = {what: row[number].strip() for what, number in where.items()}
    for what in NEEDED:
        if not cells[what]:
            raise BadFile(f"{place}: column {header[where[what]]!r} is empty", hint=f"Every event needs a {what}.")
    start = cells.get("start")
    return LogEvent(
        intern(cells["case"]),
        intern(cells["activity"]),
        seconds(place, header[where["time"]], cells["time"]),
        seconds(place, header[where["start"]], start) if start else None,
        intern(cells.get("resource", "")),
        intern(cells.get("role", "")),
        intern(cells.get("lifecycle", "").lower() or "complete"),
    )


def seconds(place: str, column: str, text: str) -> float:
    """A time as seconds since 1970. It may be a number or an ISO date; without a time zone it is UTC."""
    try:
        found = float(text)
    except ValueError:
        found = _date(text)
    # Not a number is not below any limit either.
    if not abs(found) <= LATEST:
        raise BadFile(
            f"{place}: {column!r} is {text[:60]!r}, which is not a time",
            hint="Write 2026-03-01T09:30:00+00:00 (ISO 8601), or seconds since 1970.",
        )
    return found


def _date(text: str) -> float:
    try:
        # Dates such as 2026/03/01 are common in CSV exports.
        found = datetime.fromisoformat(text.strip().replace("/", "-"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def _xes(path: Path, content: bytes) -> Iterator[LogEvent]:
    """The events of the traces. An error names an event by its number and the number of its trace."""
    trace, number = 0, 0
    events: list[dict[str, str]] = []
    # The attributes of the open elements: of the log, a trace, an event, and of attributes inside attributes.
    open_: list[dict[str, str]] = [{}]
    try:
        for step in xml_events(content, LIMITS):
            tag = step.text.rpartition("}")[2]
            if step.kind == "start":
                if tag not in XES_ELEMENTS or (len(open_) == 1 and tag != "log"):
                    raise BadFile(f"{path}, line {step.line}: <{tag:.60}> has no place in an XES log")
                given = dict(step.attributes)
                if given.get("key"):
                    open_[-1][given["key"]] = given.get("value", "")
                open_.append({})
                if tag == "trace":
                    trace, number, events = trace + 1, 0, []
            elif step.kind == "end":
                found = open_.pop()
                if tag == "event":
                    number += 1
                    events.append({**found, "": f"{path}, event {number} of trace {trace}"})
                elif tag == "trace":
                    case = found.get("concept:name") or str(trace)
                    yield from (_xes_event(case, event) for event in events)
    except BadFile:
        raise
    except ConfigError as error:
        raise BadFile(f"{path}: {error.message}", hint=error.hint) from error


def _xes_event(case: str, found: Mapping[str, str]) -> LogEvent:
    place = found[""]
    for key in ("concept:name", "time:timestamp"):
        if not found.get(key):
            raise BadFile(f"{place} has no {key}", hint="Every event needs a concept:name and a time:timestamp.")
    start = found.get("start_timestamp")
    return LogEvent(
        intern(case),
        intern(found["concept:name"]),
        seconds(place, "time:timestamp", found["time:timestamp"]),
        seconds(place, "start_timestamp", start) if start else None,
        intern(found.get("org:resource", "")),
        intern(found.get("org:role", "") or found.get("org:group", "")),
        intern(found.get("lifecycle:transition", "complete").lower() or "complete"),
    )
