"""What a judge leaves behind: a cache of its answers, a record of every call and verdict, and counters.

The cache is keyed by a hash of everything that was asked, and lives in memory or in a SQLite file, which several
processes may share. A cache that cannot be read or written counts as empty. The record can be read by its owner only
and never contains the API key. The counters continue when a run is resumed.
"""

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from groupwise.errors import StorageError
from groupwise.rewards.judge.endpoint import Address, EndpointError, JudgeReply
from groupwise.rewards.judge.question_and_answer import JudgeQuestion
from groupwise.types import Failed, Hint, Score, Task, Trajectory

TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT NOT NULL, at TEXT DEFAULT CURRENT_TIMESTAMP)"
)


def digest(*parts: Any) -> str:
    """A hash of the content of JSON values."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()


class JudgeCache:
    """The `size` answers used last and, with a `path`, every answer so far."""

    def __init__(self, path: str | Path | None = None, size: int = 4096) -> None:
        self.size = size
        self.troubles = 0
        self._recent: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._file = None if path is None else _opened(Path(path))

    def get(self, key: str) -> Any:
        """The value stored under this key, or None."""
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
            if self._file is None:
                return
            try:
                with self._file:
                    self._file.execute("INSERT OR REPLACE INTO answers (key, value) VALUES (?, ?)", (key, text))
            except sqlite3.Error:
                self.troubles += 1

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


def _opened(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(path, timeout=5.0, check_same_thread=False)
        # So that readers and a writer in other processes do not block each other.
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(TABLE)
        file.commit()
    except (sqlite3.Error, OSError) as error:
        message = f"the judge's cache {path} cannot be used: {error}"
        raise StorageError(message, hint="Delete it, or choose another path.") from error
    return file


class JudgeRecord:
    """Appends JSON lines to `path`, if there is one. If the disk refuses, it counts the lost lines."""

    def __init__(self, path: str | Path | None, address: Address) -> None:
        self.path = None if path is None else Path(path)
        self.address = address
        self.lost = 0
        self._lock = threading.Lock()
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _append(self.path, b"")
            except OSError as error:
                raise StorageError(f"the judge's record {path} cannot be written: {error}") from error

    def call(
        self, key: str, number: int, asked: JudgeQuestion, reply: JudgeReply | None, error: EndpointError | None,
        seconds: float,
    ) -> None:  # fmt: skip
        """One exchange with the server."""
        self._add(
            {"kind": "call", "key": key, "try": number, "model": self.address.model, "url": self.address.url},
            {"asked": asked.messages, "answered": reply and reply.text, "error": error and error.message},
            {"seconds": round(seconds, 3), "prompt_tokens": reply and reply.prompt_tokens},
            {"completion_tokens": reply and reply.completion_tokens},
        )

    def verdict(
        self, task: Task, group: Sequence[Trajectory], scores: Sequence[Score | Failed], by: str, why: str
    ) -> None:
        """Each attempt's score, who gave it, and why it was not the judge."""
        given = [None if isinstance(score, Failed) else {"total": score.total, **score.parts} for score in scores]
        self._add(
            {"kind": "verdict", "task": task.id, "group": group[0].group_id, "by": by, "why": why},
            {"scores": dict(zip([attempt.id for attempt in group], given, strict=True))},
        )

    def _add(self, *parts: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        line: dict[str, Any] = {"time": round(time.time(), 3)}
        for part in parts:
            line |= part
        text = json.dumps(self._redacted(line), ensure_ascii=False) + "\n"
        with self._lock:
            try:
                _append(self.path, text.encode("utf8", "replace"))
            except OSError:
                self.lost += 1

    def _redacted(self, value: Any) -> Any:
        """The value with the API key removed from every text; attempts may contain it too."""
        if isinstance(value, str):
            return self.address.redacted(value)
        if isinstance(value, Mapping):
            return {name: self._redacted(part) for name, part in value.items()}
        return [self._redacted(part) for part in value] if isinstance(value, list | tuple) else value


def _append(path: Path, line: bytes) -> None:
    # Opened for appending, so that several processes do not overwrite each other's lines.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


RECENT = 64  # groups
By: TypeAlias = Literal["judge", "cache", "fallback", "nobody"]


class Price(NamedTuple):
    """The price of a million tokens, in any currency."""

    prompt: float
    completion: float


class JudgeTally:
    """Counts calls, tokens and who scored each group. Shares are over the last 64 groups, the rest over the run."""

    def __init__(self, price: Price | None = None) -> None:
        self.price = price
        self.counts: Counter[str] = Counter()
        self.recent: deque[By] = deque(maxlen=RECENT)
        self.last: EndpointError | None = None
        self._reported: set[str] = set()

    def call(self, number: int, reply: JudgeReply | None) -> None:
        """Count an exchange with the server, its `number`-th retry; `reply` is None if there was none."""
        self.counts.update({"calls": 1, "retries": number > 0})
        if reply is not None:
            tokens = (reply.prompt_tokens, reply.completion_tokens)
            self.counts.update({"prompt_tokens": tokens[0] or 0, "completion_tokens": tokens[1] or 0})
            self.counts["uncounted"] += None in tokens

    def group(self, by: By, why: EndpointError | None = None) -> None:
        """Count a group by who scored it, and `why` it was not the judge."""
        self.counts["groups"] += 1
        self.recent.append(by)
        self.last = why or self.last

    @property
    def cost(self) -> float | None:
        """In the currency of the price; None without a price."""
        if self.price is None:
            return None
        used = self.counts["prompt_tokens"], self.counts["completion_tokens"]
        return (used[0] * self.price.prompt + used[1] * self.price.completion) / 1e6

    def metrics(self) -> dict[str, float]:
        found = {f"judge/{name}": float(self.counts[name]) for name in COUNTED}
        for name, by in (("cache", "cache"), ("fallback", "fallback"), ("failed", "nobody")):
            found[f"judge/{name}_share"] = self.recent.count(by) / max(len(self.recent), 1)  # type: ignore[arg-type]
        groups = max(self.counts["groups"], 1)
        found["judge/calls_per_group"] = self.counts["calls"] / groups
        if self.cost is not None:
            found |= {"judge/cost": self.cost, "judge/cost_per_group": self.cost / groups}
        return found

    def hints(self) -> Sequence[Hint]:
        """New problems, each kind once."""
        if self.last is None or self.last.code in self._reported:
            return ()
        self._reported.add(self.last.code)
        missed = sum(by in ("fallback", "nobody") for by in self.recent)
        remedy = self.last.hint or "Check judge/fallback_share, and read the judge's answers in its record."
        instead = "; the fallback did" if "fallback" in self.recent else ""
        message = (
            f"the judge did not score {missed} of the last {len(self.recent)} groups{instead}: {self.last.message}"
        )
        return (Hint("judge_fallback", message, remedy),)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "recent": list(self.recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts = Counter(state["counts"])
        self.recent = deque(state["recent"], maxlen=RECENT)


COUNTED = ("groups", "calls", "retries", "prompt_tokens", "completion_tokens", "uncounted")
