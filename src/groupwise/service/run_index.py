"""What the list shows of every run folder, kept current without reading thousands of files for each request.

A folder is read again only when one of its small files has changed. A full refresh looks at all of them; a partial one,
for updates twice a second, at new and running ones and, in turn, at a tenth of the rest. Where a full refresh takes
long, those asked for soon after it are partial: looking takes a tenth of the time at most.
"""

import itertools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from groupwise.errors import RunError, RunNotFound
from groupwise.files import read_small, write_atomic
from groupwise.service.schemas import RUN_NAME, LabelChange
from groupwise.training.folder import inspect_run

LABELS = "labels.json"
LOOKED_AT = ("status.json", "config.toml", LABELS)
LIVE = ("running", "created")
SHARE = 10  # a partial refresh looks at one in so many of the runs at rest
LONG = 0.02  # processor seconds of a full refresh
REST = 9  # times as long as it took, the next ones are partial
SETTING = re.compile(rb'^(product|environment|seed) = "?([^"\n]*)"?\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Labels:
    """What people say about a run, kept in its folder."""

    title: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    archived: bool = False


@dataclass(frozen=True)
class RunCard:
    """A run as the list shows it. `version` grows whenever any of it changes."""

    id: str
    state: str
    step: int
    total: int
    attempt: int
    updated: float
    metrics: Mapping[str, Any]
    product: str = ""
    environment: str = ""
    labels: Labels = field(default_factory=Labels)
    version: int = 0


class RunIndex:
    """Cards of all runs below `folder`; `status` is asked for runs whose status file is missing or damaged."""

    def __init__(self, folder: Path, status: Callable[[Path], dict[str, Any]]) -> None:
        self.folder, self.status = folder, status
        self.cards: dict[str, RunCard] = {}
        self.removed: dict[str, int] = {}  # runs that are gone, with the version at which they went
        self.version = 0
        self._stamps: dict[str, object] = {}
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self._took = self._ended = 0.0  # the last full refresh

    def refresh(self, whole: bool = True) -> None:
        """Look at all runs, or at those that are likely to have changed."""
        with self._lock:
            whole = whole and (self._took < LONG or time.monotonic() - self._ended > REST * self._took)
            began = time.thread_time()
            names = set(self._names())
            for name in self.cards.keys() - names:
                self._forget(name)
            turn = next(self._turn) % SHARE
            for place, name in enumerate(sorted(names)):
                card = self.cards.get(name)
                if whole or card is None or card.state in LIVE or place % SHARE == turn:
                    self._look(name, card)
            if whole:
                self._took, self._ended = time.thread_time() - began, time.monotonic()

    def look(self, name: str) -> RunCard:
        """The card of one run, as it is now."""
        with self._lock:
            self._look(name, self.cards.get(name))
            if name not in self.cards:
                raise RunNotFound(f"there is no run {name!r:.100}", hint="GET /api/runs lists them.")
            return self.cards[name]

    def _names(self) -> Iterator[str]:
        try:
            with os.scandir(self.folder) as found:
                # Other folders beside the runs (.service, exports) have names that no run may have, or no config.toml.
                yield from (entry.name for entry in found if re.fullmatch(RUN_NAME, entry.name))
        except OSError:
            return

    def _look(self, name: str, card: RunCard | None) -> None:
        path = self.folder / name
        stamp = tuple(_stamp(path / file) for file in LOOKED_AT)
        if stamp[1] is None:  # not a run
            if card is not None:
                self._forget(name)
            return
        if stamp[0] is None or (card is not None and card.state == "damaged"):
            stamp = (*stamp, _stamp(path / "events.jsonl"))
        # Whether a run that says it is running still has a process is not written in its files.
        if card is not None and stamp == self._stamps.get(name) and card.state != "running":
            return
        now = self._read(path, card, changed=stamp != self._stamps.get(name))
        self._stamps[name] = stamp
        if card is None or replace(now, version=card.version) != card:
            self.version += 1
            self.cards[name] = replace(now, version=self.version)
            self.removed.pop(name, None)

    def _read(self, path: Path, card: RunCard | None, changed: bool) -> RunCard:
        try:
            info = inspect_run(path, self.status)
        except (OSError, ValueError, KeyError, TypeError, RunError):
            try:
                updated = path.stat().st_mtime
            except OSError:
                updated = 0.0
            return RunCard(path.name, "damaged", 0, 0, 0, updated, {}, *_settings(path), read_labels(path))
        told = _settings(path) if card is None or changed else (card.product, card.environment)
        labels = read_labels(path) if card is None or changed else card.labels
        return RunCard(
            info.id, info.state, info.step, info.total, info.attempt, info.updated, info.metrics, *told, labels
        )

    def _forget(self, name: str) -> None:
        self.version += 1
        self.cards.pop(name, None)
        self._stamps.pop(name, None)
        self.removed[name] = self.version
        while len(self.removed) > 10_000:
            self.removed.pop(next(iter(self.removed)))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _settings(path: Path) -> tuple[str, str]:
    """Product and environment, found by their lines: reading the settings of thousands of runs would take a minute."""
    try:
        text = read_small(path / "config.toml")
    except OSError:
        return "", ""
    known = {name.decode(): value.decode("utf8", "replace") for name, value in reversed(SETTING.findall(text))}
    return known.get("product", ""), known.get("environment", "")


def read_labels(path: Path) -> Labels:
    """The labels in a run folder; none if the file is missing or damaged."""
    try:
        found = LabelChange.model_validate(json.loads(read_small(path / LABELS)))
    except (OSError, ValueError, RecursionError):
        return Labels()
    return Labels(found.title or "", tuple(found.tags or ()), found.notes or "", bool(found.archived))


def change_labels(path: Path, change: LabelChange) -> Labels:
    """Change what is given and keep the rest."""
    given = change.model_dump(exclude_none=True)
    if "tags" in given:
        given["tags"] = tuple(dict.fromkeys(given["tags"]))
    labels = replace(read_labels(path), **given)
    told = {"title": labels.title, "tags": list(labels.tags), "notes": labels.notes, "archived": labels.archived}
    write_atomic(path / LABELS, json.dumps(told, ensure_ascii=False).encode("utf8", "replace"))
    return labels
