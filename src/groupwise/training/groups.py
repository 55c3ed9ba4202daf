"""Every attempt that was made, one row each: `groups/<step>.parquet`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.training.storage import write_atomic
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
    ]
)


def write_groups(path: Path, step: int, records: Sequence[GroupRecord]) -> None:
    rows = [{"step": step, **asdict(r), "parts": list(r.parts.items())} for r in records]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer)
    write_atomic(path, buffer.getvalue(), durable=False)


def read_groups(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def first_damaged_step(folder: Path) -> int | None:
    """The first step whose file cannot be read, if any."""
    numbered = sorted((int(path.stem), path) for path in folder.glob("*.parquet") if path.stem.isdigit())
    return next((step for step, path in numbered if not _is_whole(path)), None)


def drop_groups(folder: Path, after: int) -> list[str]:
    """Remove attempts made after step `after` and files that cannot be read; a warning for each of those."""
    warnings = []
    for path in sorted(folder.glob("*.parquet")):
        if not path.stem.isdigit() or int(path.stem) > after:
            path.unlink()
        elif not _is_whole(path):
            path.unlink()
            warnings.append(f"groups/{path.name} was damaged and has been removed; training does not need it")
    for path in folder.glob(".*.tmp"):
        path.unlink()
    return warnings


def _is_whole(path: Path) -> bool:
    try:
        pq.ParquetFile(path).close()
    except (pa.ArrowInvalid, OSError):
        return False
    return True
