"""Reads data files into rows: JSON lines, JSON, Parquet, and folders of them or of a saved Hugging Face dataset.

Everything is read at once and kept in memory. Every error names the file and the line.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from groupwise.errors import ConfigError

LONGEST_LINE = 16 << 20  # bytes
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
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
            place = f"{path} line {number}"
            if len(line) > LONGEST_LINE:
                raise refused(f"{place} is longer than {LONGEST_LINE >> 20} MiB", "Write one JSON object per line.")
            if line.strip():
                yield _row(place, _parsed(place, line))


def _json_list(path: Path) -> Iterator[DataRow]:
    content = _parsed(str(path), path.read_bytes())
    if not isinstance(content, list):
        raise refused(f"{path} contains {_kind(content)}, not a list of objects", "Use .jsonl for one object per line.")
    for number, entry in enumerate(content, start=1):
        yield _row(f"{path} entry {number}", entry)


def _parsed(place: str, content: bytes) -> Any:
    if b"\0" in content:
        raise refused(f"{place} is not text: it contains a zero byte")
    try:
        return json.loads(content.decode("utf-8-sig").rstrip(), parse_constant=_not_a_number)
    except UnicodeDecodeError as error:
        raise refused(f"{place} is not UTF-8 text (at byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise refused(f"{place} is not valid JSON: {error.msg} (at {where})") from None
    except RecursionError:
        raise refused(f"{place} is nested too deeply") from None
    except ValueError as error:
        raise refused(f"{place} is not valid JSON: {error}") from None


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _row(place: str, value: Any) -> DataRow:
    if not isinstance(value, dict):
        raise refused(f"{place} is {_kind(value)}, not an object with columns")
    return DataRow(place, value)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _parquet(path: Path) -> Iterator[DataRow]:
    import pyarrow.parquet as parquet  # slow to import, and only needed for such files
    from pyarrow import ArrowException

    rows: list[DataRow] = []
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            rows.extend(_arrow_rows(path, batch, len(rows)))
    except ArrowException as error:
        raise refused(f"{path} is not a valid Parquet file: {_first_line(error)}") from None
    yield from rows


def _saved_dataset(folder: Path) -> Iterator[DataRow]:
    """Read what `datasets.Dataset.save_to_disk` wrote: Arrow streams, listed in state.json."""
    import pyarrow as pa

    if not (folder / "state.json").is_file():
        raise refused(f"{folder} is not a saved dataset", "Name a file, or a folder with a train file.")
    state = _parsed(f"{folder}/state.json", (folder / "state.json").read_bytes())
    try:
        names = [Path(entry["filename"]).name for entry in state["_data_files"]]
    except (TypeError, KeyError):
        raise refused(f"{folder}/state.json: does not list the data files of a saved dataset") from None
    number = 0
    for name in names:
        try:
            with pa.memory_map(str(folder / name)) as source:
                rows = _arrow_rows(folder, pa.ipc.open_stream(source).read_all(), number)
        except pa.ArrowException as error:
            raise refused(f"{folder / name} is not a valid Arrow file: {_first_line(error)}") from None
        number += len(rows)
        yield from rows


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
