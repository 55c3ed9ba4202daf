"""Every attempt of a step, one row each: `groups/<step>.parquet`, and older steps in `groups/<first>-<last>.parquet`.

A step is written as a file of its own. Every `SINGLES` of them become a segment, in which each step is a row group, and
small neighbouring segments are merged, so that a run of any length has few files. A crash may leave a step in both.
"""

import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import RunError
from groupwise.files import disk, open_regular, sync_file, write_atomic
from groupwise.types import GroupRecord

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("group_id", pa.string()),
        ("task_id", pa.string()),
        ("trajectory_id", pa.string()),
        ("total", pa.float64()),
        ("parts", pa.map_(pa.string(), pa.float64())),
        ("flags", pa.list_(pa.string())),
        ("advantage", pa.float64()),
        ("length", pa.int64()),
        ("end", pa.string()),
        ("failure", pa.string()),
        ("version", pa.int64()),
        ("text", pa.string()),
        ("prompt", pa.string()),
        ("tokens", pa.list_(pa.string())),
        ("acted", pa.list_(pa.bool_())),
        ("token_advantages", pa.list_(pa.float32())),
        ("token_logps", pa.list_(pa.float32())),
        ("reasoning", pa.string()),
        ("exhibit", pa.string()),
    ]
)
# Columns that files of older versions may lack, and their values then.
LATER_COLUMNS: dict[str, Any] = {
    "text": "", "prompt": "", "tokens": [], "acted": [], "token_advantages": [], "token_logps": [],
    "reasoning": "", "exhibit": "",
}  # fmt: skip


SINGLES, SEGMENTS = 32, 32  # files of one step and of many, at most, unless segments are at their largest
LARGEST_SEGMENT = 512  # steps
STEPS = b"groupwise.steps"  # in the metadata of a segment: the steps in it, with their rows
NAME = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


class Span(NamedTuple):
    """The first and last step that a file may have."""

    first: int
    last: int


def write_groups(path: Path, step: int, records: Sequence[GroupRecord]) -> None:
    columns = {name: [getattr(record, name) for record in records] for name in SCHEMA.names[1:]}
    columns["exhibit"] = ["" if make is None else make() for make in columns["exhibit"]]
    columns["parts"] = [list(parts.items()) for parts in columns["parts"]]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"step": [step] * len(records), **columns}, SCHEMA), buffer)
    # Not synced here: the next checkpoint syncs all files it counts on.
    write_atomic(path, buffer.getvalue(), durable=False)


def read_groups(path: Path) -> list[dict[str, Any]]:
    """The rows as they were written; columns that older versions lack are empty. Any other file is a `RunError`."""
    return _rows(_table(path), path)


def _table(path: Path, row_group: int | None = None) -> pa.Table:
    try:
        open_regular(path).close()
        if row_group is None:
            return pq.read_table(path, memory_map=True)
        with pq.ParquetFile(path, memory_map=True) as file:
            return file.read_row_group(row_group)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RunError(f"{path.name} is not a group file: {error}", hint=f"Look at {path}.") from error


def _rows(table: pa.Table, path: Path) -> list[dict[str, Any]]:
    if len(set(table.column_names)) < len(table.column_names):
        raise RunError(f"{path.name} is not a group file: some columns occur twice", hint=f"Look at {path}.")
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    lacking = [name for name in SCHEMA.names if name not in kinds and name not in LATER_COLUMNS]
    other = [name for name, kind in kinds.items() if name not in SCHEMA.names or kind != SCHEMA.field(name).type]
    if lacking or other:
        raise RunError(f"{path.name} is not a group file: check the columns {', '.join(lacking + other):.200}")
    rows = [{**LATER_COLUMNS, **row} for row in table.to_pylist()]
    if any(row[name] is None for row in rows for name in SCHEMA.names if name != "total"):
        raise RunError(f"{path.name} is not a group file: some rows have missing values")
    return rows


def file_of_step(folder: Path, step: int) -> Path | None:
    """The file that has a step; None if it was not kept."""
    single = folder / f"{step:06d}.parquet"
    if single.is_file():
        return single
    return next((path for path in segments(folder) if step in range_of(path) and step in _counts(path)), None)


def read_step(folder: Path, step: int) -> list[dict[str, Any]] | None:
    """The rows of a step, wherever they are; None if it was not kept."""
    path = file_of_step(folder, step)
    if path is None or "-" not in path.stem:
        return None if path is None else read_groups(path)
    known = _counts(path)
    if not known[step]:
        return []
    place = sum(1 for other, count in known.items() if count and other < step)
    return _rows(_table(path, place), path)


def kept_steps(folder: Path) -> list[int]:
    """Every step whose groups are there. A segment that cannot be read has none."""
    found = {span_of(path).first for path in numbered(folder)}
    for path in segments(folder):
        try:
            found |= _counts(path).keys()
        except RunError:
            continue
    return sorted(found)


def _counts(path: Path) -> dict[int, int]:
    """The steps of a segment in order, and how many rows each has."""
    stat = path.stat()
    return _counts_of(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=512)
def _counts_of(path: Path, modified: int, size: int) -> dict[int, int]:
    try:
        open_regular(path).close()
        found = pq.read_metadata(path, memory_map=True)
        listed = json.loads((found.metadata or {})[STEPS])
        steps = {int(step): int(count) for step, count in listed}
        rows = [found.row_group(n).num_rows for n in range(found.num_row_groups)]
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path.name} is not a group file: {error}", hint=f"Look at {path}.") from error
    if [count for count in steps.values() if count] != rows or list(steps) != sorted(steps):
        raise RunError(f"{path.name} is not a group file: its steps and rows do not agree", hint=f"Look at {path}.")
    return steps


def _tables(path: Path) -> Iterator[tuple[int, pa.Table]]:
    """The steps of a file, each as a table of today's columns."""
    if "-" not in path.stem:
        yield span_of(path).first, pa.Table.from_pylist(read_groups(path), SCHEMA)
        return
    place = 0
    for step, count in _counts(path).items():
        yield step, _table(path, place).cast(SCHEMA) if count else SCHEMA.empty_table()
        place += count > 0


def _write_segment(path: Path, sources: Sequence[Path], without: Collection[int] = ()) -> None:
    """The steps of the sources in one file, each a row group; synced, because the sources are deleted next."""
    tables = dict(pair for source in sources for pair in _tables(source))
    kept = {step: table for step, table in sorted(tables.items()) if step not in without}
    listed = json.dumps([[step, table.num_rows] for step, table in kept.items()]).encode()
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, SCHEMA.with_metadata({STEPS: listed})) as writer:
        for table in kept.values():
            if table.num_rows:
                writer.write_table(table, row_group_size=table.num_rows)
    write_atomic(path, buffer.getvalue())


def rewards_of(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The rewards of a step's attempts, as the step's own metrics have them."""
    totals = np.array([row["total"] for row in rows if row["total"] is not None])
    if not len(totals):
        return {}
    summary = {"mean": totals.mean(), "std": totals.std(), "min": totals.min(), "max": totals.max()}
    return {f"reward/{name}": float(value) for name, value in summary.items()}


class GroupFolder:
    """The folder `groups` of a run that is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsynced: set[Path] = set()
        self._singles = len(numbered(path))
        self._steps = len(kept_steps(path))

    def write(self, step: int, records: Sequence[GroupRecord], limit: int = 0) -> None:
        """Keep the groups of a step; beyond `limit` steps, older ones are kept more coarsely."""
        path = self.path / f"{step:06d}.parquet"
        write_groups(path, step, records)
        self._unsynced.add(path)
        self._singles, self._steps = self._singles + 1, self._steps + 1
        with suppress(RunError):  # a damaged file stays as it is, and is set aside when the run is resumed
            if limit and self._steps > limit:
                self._drop(to_drop(kept_steps(self.path), max(1, limit // 8)))
            if self._singles > SINGLES:
                self._pack()

    def sync(self) -> None:
        """What a checkpoint counts on has to be on disk before it."""
        while self._unsynced:
            sync_file(self._unsynced.pop())

    def _pack(self) -> None:
        """Make a segment of all but the newest file, and merge small segments."""
        singles = numbered(self.path)[:-1]
        self._singles = 1
        _write_segment(_segment(self.path, singles), singles)
        self._unlink(singles)
        known = segments(self.path)
        sizes = [len(_counts(path)) for path in known]
        while len(known) > SEGMENTS:
            pairs = [(one + other, place) for place, (one, other) in enumerate(pairwise(sizes))]
            size, place = min(pairs)
            if size > LARGEST_SEGMENT:
                return
            both = known[place : place + 2]
            _write_segment(_segment(self.path, both), both)
            self._unlink(both)
            known[place : place + 2] = [_segment(self.path, both)]
            sizes[place : place + 2] = [size]

    def _drop(self, steps: Collection[int]) -> None:
        for path in numbered(self.path):
            if span_of(path).first in steps:
                self._unlink([path])
                self._singles -= 1
        for path in segments(self.path):
            with suppress(RunError):
                _without(path, steps)
        self._steps = len(kept_steps(self.path))

    def _unlink(self, paths: Sequence[Path]) -> None:
        with disk(self.path):
            for path in paths:
                path.unlink(missing_ok=True)
        self._unsynced -= set(paths)


def to_drop(steps: Sequence[int], least: int) -> set[int]:
    """At least so many of the steps, every second one where the older ones are densest.

    A long run keeps its history, but more coarsely. The newest quarter stays.
    """
    gone: set[int] = set()
    while len(gone) < least:
        left = [step for step in steps if step not in gone]
        older, before = left[: 3 * len(left) // 4], len(gone)
        gaps = [later - one for one, later in pairwise(older)]
        last = older[0] if older else 0
        # Where steps are densest, so that what is left stays evenly spaced.
        for step in older[1:]:
            if step - last <= min(gaps):
                gone.add(step)
            else:
                last = step
        if len(gone) == before:
            break
    return gone


def forget_after(folder: Path, step: int) -> None:
    """Drop what came after a step, and what a crash left half-written or twice."""
    for path in folder.glob(".*.tmp"):
        path.unlink()
    for path in numbered(folder):
        if span_of(path).first > step:
            path.unlink()
    twice: set[int] = set()
    for path in segments(folder):
        try:
            later = {other for other in _counts(path) if other > step or other in twice}
            twice |= _counts(path).keys()
            _without(path, later)
        except RunError:
            continue  # damaged: it is set aside
    for path in numbered(folder):
        if span_of(path).first in twice:
            path.unlink()


def _without(path: Path, steps: Collection[int]) -> None:
    """Drop steps from a segment."""
    known = _counts(path)
    if not any(step in steps for step in known):
        return
    if all(step in steps for step in known):
        path.unlink()
    else:
        _write_segment(path, [path], steps)


def damaged_groups(folder: Path, look_at: int = 20) -> list[Path]:
    """The newest files that cannot be read; a crash can only damage the end of a run."""
    return [path for path in [*segments(folder)[-look_at:], *numbered(folder)[-look_at:]] if not _is_whole(path)]


def numbered(folder: Path) -> list[Path]:
    """The files of a single step, in order."""
    return _named(folder, single=True)


def segments(folder: Path) -> list[Path]:
    """The files of many steps, in order."""
    return _named(folder, single=False)


def _named(folder: Path, single: bool) -> list[Path]:
    found = [(match, path) for path in folder.glob("*.parquet") if (match := NAME.fullmatch(path.stem))]
    return sorted((path for match, path in found if (match[2] is None) == single and path.is_file()), key=span_of)


def span_of(path: Path) -> Span:
    first, _, last = path.stem.partition("-")
    return Span(int(first), int(last or first))


def range_of(path: Path) -> range:
    first, last = span_of(path)
    return range(first, last + 1)


def _segment(folder: Path, sources: Sequence[Path]) -> Path:
    return folder / f"{span_of(sources[0]).first:06d}-{span_of(sources[-1]).last:06d}.parquet"


def _is_whole(path: Path) -> bool:
    try:
        pq.ParquetFile(path).close()
    except (pa.ArrowInvalid, OSError):
        return False
    return True
