"""Answers that were paid for once: by a hash of all that was asked, in memory or in a SQLite file.

Several processes may share a file. A cache that cannot be read or written is a cache that knows nothing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.errors import StorageError

TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT NOT NULL, at TEXT DEFAULT CURRENT_TIMESTAMP)"
)


def digest(*parts: Any) -> str:
    """The address of some content: equal content, equal address."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()


class JudgeCache:
    """The `size` answers used last, and with a `path` every answer ever given."""

    def __init__(self, path: str | Path | None = None, size: int = 4096) -> None:
        self.size = size
        self.troubles = 0
        self._recent: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._file = None if path is None else _opened(Path(path))

    def get(self, key: str) -> Any:
        """What was put under this key, or None."""
        with self._lock:
            text = self._recent.get(key)
            if text is None:
                text = self._read(key)
            if text is None:
                return None
            self._remember(key, text)
        with suppress(ValueError):
            return json.loads(text)
        return None

    def put(self, key: str, value: Any) -> None:
        text = json.dumps(value)
        with self._lock:
            self._remember(key, text)
            self._write(key, text)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _remember(self, key: str, text: str) -> None:
        self._recent[key] = text
        self._recent.move_to_end(key)
        while len(self._recent) > self.size:
            self._recent.popitem(last=False)

    def _read(self, key: str) -> str | None:
        if self._file is None:
            return None
        try:
            row = self._file.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error:
            self.troubles += 1
            return None
        return str(row[0]) if row else None

    def _write(self, key: str, text: str) -> None:
        if self._file is None:
            return
        try:
            with self._file:
                self._file.execute("INSERT OR REPLACE INTO answers (key, value) VALUES (?, ?)", (key, text))
        except sqlite3.Error:
            self.troubles += 1


def _opened(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(TABLE)
        file.commit()
    except (sqlite3.Error, OSError) as error:
        raise StorageError(
            f"the judge's cache {path} cannot be used: {error}", hint="Delete it, or name another."
        ) from error
    return file
