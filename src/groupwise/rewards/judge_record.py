"""A line of JSON for everything asked, answered and given: readable by its owner only, without any key."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import StorageError
from groupwise.rewards.endpoint import EndpointError, Reply
from groupwise.rewards.judge_question import Question
from groupwise.rewards.providers import Address
from groupwise.types import Failed, Score, Task, Trajectory


class JudgeRecord:
    """Appends to `path`, or keeps nothing without one. A disk that refuses costs lines, which are counted, no score."""

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
        self, key: str, number: int, asked: Question, reply: Reply | None, error: EndpointError | None, seconds: float
    ) -> None:
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
        """What each attempt got, from whom, and why not from the judge."""
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
        """The same with no key in any text; the attempts may hold it too."""
        if isinstance(value, str):
            return self.address.redacted(value)
        if isinstance(value, Mapping):
            return {name: self._redacted(part) for name, part in value.items()}
        return [self._redacted(part) for part in value] if isinstance(value, list | tuple) else value


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
