"""Data files to rows: JSON lines, JSON, Parquet, and folders of them or of a Hugging Face `datasets` save.

Everything is read at once and kept in memory. Whatever is wrong is one sentence that names the file and the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from groupwise.errors import ConfigError

LONGEST_LINE = 16 << 20
TRAINING = ("train", "training")
HELD_OUT = ("test", "validation", "valid", "eval")


@dataclass(frozen=True)
class DataRow:
    """The columns of one row, and where it stands."""

    place: str
    columns: Mapping[str, Any]


def read_splits(path: Path) -> tuple[list[DataRow], list[DataRow] | None]:
    """The rows to train on and, where a folder holds some, those to judge on."""
    if not path.is_dir():
        return read_rows(path), None
    train, test = (_parts_of(path, names) for names in (TRAINING, HELD_OUT))
    if train:
        return _all_rows(train), _all_rows(test) if test else None
    if (path / "state.json").is_file():
        return read_rows(path), None
    beside = ", ".join(sorted(child.name for child in path.iterdir())[:5]) or "nothing"
    raise refused(
        f"{path}: the folder has no rows to train on (it holds {beside})",
        f"Put a train file into it, ending in {', '.join(READERS)}, or what `Dataset.save_to_disk` writes.",
    )


def read_rows(path: Path) -> list[DataRow]:
    """All rows of one file, or of one saved dataset; at least one."""
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
        raise refused(f"{path}: no such file", f"Paths count from {Path.cwd()}.")
    if path.is_dir():
        return _saved_dataset
    if not path.is_file():
        raise refused(f"{path}: is not a regular file")
    if path.suffix.lower() not in READERS:
        raise refused(f"{path}: a data file ends in {', '.join(READERS)}, not {path.suffix!r}")
    return READERS[path.suffix.lower()]


def _parts_of(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """The files or saved datasets of the first of these splits that is there; a split may come in numbered parts."""
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
                raise refused(f"{place}: is longer than {LONGEST_LINE >> 20} MiB", "One line holds one JSON object.")
            if line.strip():
                yield _row(place, _parsed(place, line))


def _json_list(path: Path) -> Iterator[DataRow]:
    content = _parsed(str(path), path.read_bytes())
    if not isinstance(content, list):
        raise refused(
            f"{path}: holds {_kind(content)}, not a list of objects", "Lines of objects belong in a .jsonl file."
        )
    for number, entry in enumerate(content, start=1):
        yield _row(f"{path} entry {number}", entry)


def _parsed(place: str, content: bytes) -> Any:
    if b"\0" in content:
        raise refused(f"{place}: is not text: it holds a zero byte")
    try:
        return json.loads(content.decode("utf-8-sig").rstrip(), parse_constant=_not_a_number)
    except UnicodeDecodeError as error:
        raise refused(f"{place}: is not UTF-8 text (at byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise refused(f"{place}: is not valid JSON: {error.msg} (at {where})") from None
    except RecursionError:
        raise refused(f"{place}: is nested too deeply") from None
    except ValueError as error:
        raise refused(f"{place}: is not valid JSON: {error}") from None


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value of JSON")


def _row(place: str, value: Any) -> DataRow:
    if not isinstance(value, dict):
        raise refused(f"{place}: is {_kind(value)}, not an object with columns")
    return DataRow(place, value)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _parquet(path: Path) -> Iterator[DataRow]:
    import pyarrow.parquet as parquet  # heavy: only who reads such a file waits for it
    from pyarrow import ArrowException

    rows: list[DataRow] = []
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            rows.extend(_arrow_rows(path, batch, len(rows)))
    except ArrowException as error:
        raise refused(f"{path}: is not a sound Parquet file: {_first_line(error)}") from None
    yield from rows


def _saved_dataset(folder: Path) -> Iterator[DataRow]:
    """What `datasets.Dataset.save_to_disk` wrote: Arrow streams, listed in state.json."""
    import pyarrow as pa

    if not (folder / "state.json").is_file():
        raise refused(f"{folder}: is a folder without rows of its own", "Name a file, or a folder with a train file.")
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
            raise refused(f"{folder / name}: is not a sound Arrow file: {_first_line(error)}") from None
        number += len(rows)
        yield from rows


def _arrow_rows(path: Path, table: Any, before: int) -> list[DataRow]:
    """The rows of a table or batch that follows `before` others of its file."""
    try:
        rows = table.to_pylist()
    except (ValueError, OverflowError):  # text that is not UTF-8, a time beyond Python's years
        raise _unreadable(path, table, before) from None
    return [DataRow(f"{path} row {number}", row) for number, row in enumerate(rows, start=before + 1)]


def _unreadable(path: Path, table: Any, before: int) -> ConfigError:
    """Where the first value stands that Python cannot hold."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        for number, value in enumerate(column, start=before + 1):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                fault = f"is not UTF-8 text (at byte {error.start})"
            except (ValueError, OverflowError) as error:
                fault = f"holds a {value.type} that Python cannot: {_first_line(error)}"
            else:
                continue
            return refused(f"{path} row {number}: the column {name!r} {fault}")
    return refused(f"{path}: holds values that Python cannot read")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


READERS: Mapping[str, Callable[[Path], Iterator[DataRow]]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".parquet": _parquet,
}
