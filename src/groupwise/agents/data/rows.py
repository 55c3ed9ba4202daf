"""Reads data files into rows: JSON lines, JSON, Parquet, and folders of them or of a saved Hugging Face dataset.

Everything is read at once. Every error names the file and the line.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.machine_memory import in_words, memory_limit
from groupwise.readers import data_limits, json_lines, load_json, opened, read_bytes

TRAINING = ("train", "training")
HELD_OUT = ("test", "validation", "valid", "eval")


@dataclass(frozen=True)
class DataRow:
    """The columns of one row, and where it came from."""

    place: str
    columns: Mapping[str, Any]


def read_splits(path: Path) -> tuple[list[DataRow], list[DataRow] | None]:
    """Return the training rows and, if a folder has them, the held-out rows."""
    if not path.is_dir():
        return read_rows(path), None
    train, test = (_parts_of(path, names) for names in (TRAINING, HELD_OUT))
    if train:
        return _all_rows(train), _all_rows(test) if test else None
    # A dataset saved without splits.
    if (path / "state.json").is_file():
        return read_rows(path), None
    beside = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
    message = f"{path}: the folder has no training data (it contains {beside})"
    raise refused(message, f"Add a train file ending in {', '.join(READERS)}, or the output of `Dataset.save_to_disk`.")


def read_rows(path: Path) -> list[DataRow]:
    """Return all rows of one file or one saved dataset; there must be at least one."""
    try:
        rows = list(_reader(path)(path))
    except OSError as error:
        raise refused(f"{path}: cannot be read: {error.strerror or error}") from None
    if not rows:
        raise refused(f"{path}: the file is empty", "It needs at least one row.")
    return rows


def refused(message: str, hint: str = "") -> ConfigError:
    return ConfigError(message, hint=hint, field="task.environment")


def _reader(path: Path) -> Callable[[Path], Iterator[DataRow]]:
    if not path.exists():
        raise refused(f"{path}: no such file", f"Paths are relative to {Path.cwd()}.")
    if path.is_dir():
        return _saved_dataset
    if not path.is_file():
        raise refused(f"{path} is not a regular file")
    if path.suffix.lower() not in READERS:
        raise refused(f"{path}: a data file ends in {', '.join(READERS)}, not {path.suffix!r}")
    return READERS[path.suffix.lower()]


def _parts_of(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the files or saved datasets of the first of these splits that exists; it may be in numbered parts."""
    for name in names:
        part = re.compile(rf"{name}(-\d+-of-\d+)?\.\w+")
        found = [child for child in sorted(folder.iterdir()) if part.fullmatch(child.name) and child.suffix in READERS]
        if (folder / name / "state.json").is_file():
            found.append(folder / name)
        if found:
            return found
    return []


def _all_rows(paths: list[Path]) -> list[DataRow]:
    return [row for path in paths for row in read_rows(path)]


def _json_lines(path: Path) -> Iterator[DataRow]:
    try:
        for number, value in json_lines(path, data_limits()):
            yield _row(f"{path} line {number}", value)
    except ConfigError as error:
        raise _named(path, error) from None


def _json_list(path: Path) -> Iterator[DataRow]:
    content = _json_file(path)
    if not isinstance(content, list):
        raise refused(f"{path} contains {_kind(content)}, not a list of objects", "Use .jsonl for one object per line.")
    for number, entry in enumerate(content, start=1):
        yield _row(f"{path} entry {number}", entry)


def _json_file(path: Path) -> Any:
    limits = data_limits()
    try:
        return load_json(read_bytes(path, limits), limits)
    except ConfigError as error:
        raise _named(path, error) from None


def _named(path: Path, error: ConfigError) -> ConfigError:
    """The error with the file in front: "x.jsonl line 3: …"."""
    between = " " if error.message.startswith("line ") else ": "
    return refused(f"{path}{between}{error.message}", error.hint)


def _row(place: str, value: Any) -> DataRow:
    if not isinstance(value, dict):
        raise refused(f"{place} is {_kind(value)}, not an object with columns")
    if not value:
        raise refused(f"{place} has no columns")
    return DataRow(place, value)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


# Bytes of Python objects for every row and every value of a row.
ROW, VALUE = 300, 60
# What a file may grow to in memory: so many times its size, but a small one may in any case become this large.
GROWTH, SMALL = 100, 64 << 20
# Rows unpacked at a time: a few bytes may stand for millions of equal ones.
ROWS = 10_000


def _repeated(column: Any) -> int:
    """The bytes of text that a column has only once, but its rows many times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return 0
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


class _Room:
    """Counts what rows take in memory, and refuses a file that unpacks to far more than its size."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.taken = path, path.stat().st_size, 0
        self.most = min(max(GROWTH * self.size, SMALL), memory_limit() // 4)

    def take(self, table: Any) -> None:
        self.taken += table.nbytes + table.num_rows * (ROW + VALUE * table.num_columns)
        self.taken += sum(map(_repeated, table.columns))
        self.insist(self.taken)

    def insist(self, size: int) -> None:
        if size > self.most:
            raise refused(
                f"{self.path} has {in_words(self.size)} but needs more than {in_words(self.most)} in memory",
                "Is this the right file? Otherwise use a part of its rows and columns.",
            )


def _parquet(path: Path) -> Iterator[DataRow]:
    import pyarrow.parquet as parquet  # slow to import, and only needed for such files
    from pyarrow import ArrowException

    room, number = _Room(path), 0
    _insist_on_regular(path)
    try:
        # Mapped, because a claimed length beyond the end of the file then fails before anything is allocated.
        source = parquet.ParquetFile(path, memory_map=True)
        room.insist(sum(source.metadata.row_group(n).total_byte_size for n in range(source.num_row_groups)))
        for batch in source.iter_batches(ROWS):
            room.take(batch)
            yield from _arrow_rows(path, batch, number)
            number += batch.num_rows
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise refused(f"{path} is not a valid Parquet file: {_first_line(error)}") from None


def _saved_dataset(folder: Path) -> Iterator[DataRow]:
    """Read what `datasets.Dataset.save_to_disk` wrote: Arrow streams, listed in state.json."""
    import pyarrow as pa

    if not (folder / "state.json").is_file():
        raise refused(f"{folder} is not a saved dataset", "Name a file, or a folder with a train file.")
    state = _json_file(folder / "state.json")
    try:
        names = [Path(entry["filename"]).name for entry in state["_data_files"]]
    except (TypeError, KeyError):
        raise refused(f"{folder}/state.json: does not list the data files of a saved dataset") from None
    number = 0
    for name in names:
        room = _Room(folder / name)
        _insist_on_regular(folder / name)
        try:
            with pa.memory_map(str(folder / name)) as file:
                for batch in pa.ipc.open_stream(file):
                    # Reading a value at a false offset would crash the process.
                    batch.validate(full=True)
                    room.take(batch)
                    yield from _arrow_rows(folder, batch, number)
                    number += batch.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise refused(f"{folder / name} is not a valid Arrow file: {_first_line(error)}") from None


def _insist_on_regular(path: Path) -> None:
    try:
        opened(path, data_limits()).close()
    except ConfigError as error:
        raise _named(path, error) from None


def _arrow_rows(path: Path, table: Any, before: int) -> list[DataRow]:
    """Return the rows of a table or batch that comes after `before` others of its file."""
    try:
        rows = table.to_pylist()
    except (ValueError, OverflowError):  # text that is not UTF-8, or a date beyond Python's range
        raise _unreadable(path, table, before) from None
    return [DataRow(f"{path} row {number}", row) for number, row in enumerate(rows, start=before + 1)]


def _unreadable(path: Path, table: Any, before: int) -> ConfigError:
    """Find the first value that Python cannot represent."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for number, value in enumerate(column, start=before + 1):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                fault = f"is not UTF-8 text (at byte {error.start})"
            except (ValueError, OverflowError) as error:
                fault = f"contains a {value.type} that Python cannot represent: {_first_line(error)}"
            else:
                continue
            return refused(f"{path} row {number}: the column {name!r} {fault}")
    return refused(f"{path}: contains values that Python cannot represent")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


READERS: Mapping[str, Callable[[Path], Iterator[DataRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".parquet": _parquet,
}
