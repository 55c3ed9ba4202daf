"""Every attempt of a step, one row each: `groups/<step>.parquet`."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import RunError
from groupwise.files import open_regular, write_atomic
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
    try:
        open_regular(path).close()
        table = pq.read_table(path, memory_map=True)
        kinds = {name: table.schema.field(name).type for name in table.column_names}
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RunError(f"{path.name} is not a group file: {error}", hint=f"Look at {path}.") from error
    lacking = [name for name in SCHEMA.names if name not in kinds and name not in LATER_COLUMNS]
    other = [name for name, kind in kinds.items() if name not in SCHEMA.names or kind != SCHEMA.field(name).type]
    if lacking or other:
        raise RunError(f"{path.name} is not a group file: check the columns {', '.join(lacking + other):.200}")
    rows = [{**LATER_COLUMNS, **row} for row in table.to_pylist()]
    if any(row[name] is None for row in rows for name in SCHEMA.names if name != "total"):
        raise RunError(f"{path.name} is not a group file: some rows have missing values")
    return rows


def rewards_of(path: Path) -> dict[str, float]:
    """The rewards of a step's attempts, as the step's own metrics have them; nothing if the file cannot be read."""
    try:
        rows = read_groups(path)
    except RunError:
        return {}
    totals = np.array([row["total"] for row in rows if row["total"] is not None])
    if not len(totals):
        return {}
    summary = {"mean": totals.mean(), "std": totals.std(), "min": totals.min(), "max": totals.max()}
    return {f"reward/{name}": float(value) for name, value in summary.items()}


def thin_groups(folder: Path) -> set[Path]:
    """Delete every second file of the older half: a long run keeps its whole history, but ever more coarsely."""
    paths = numbered(folder)
    gone = set(paths[: len(paths) // 2][1::2])
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def groups_after(folder: Path, step: int) -> list[Path]:
    """Files of attempts after `step`, and files that a crash left half-written."""
    return [path for path in numbered(folder) if int(path.stem) > step] + list(folder.glob(".*.tmp"))


def damaged_groups(folder: Path, look_at: int = 20) -> list[Path]:
    """The newest files that cannot be read; a crash can only damage the end of a run."""
    return [path for path in numbered(folder)[-look_at:] if not _is_whole(path)]


def numbered(folder: Path) -> list[Path]:
    return sorted(
        (p for p in folder.glob("*.parquet") if re.fullmatch("[0-9]+", p.stem) and p.is_file()),
        key=lambda p: int(p.stem),
    )


def _is_whole(path: Path) -> bool:
    try:
        pq.ParquetFile(path).close()
    except (pa.ArrowInvalid, OSError):
        return False
    return True
