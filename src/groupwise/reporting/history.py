"""A run's events as series by step: what tables, curves and reports are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.errors import RunNotFound
from groupwise.metrics import registry, true_metrics
from groupwise.products import Metric
from groupwise.training.events import looked_at_events
from groupwise.training.formatting import finite
from groupwise.types import Event, Sample

Series: TypeAlias = tuple[list[int], list[float]]
# Steps, and evaluations, that are kept in memory at most, some 4 KB each.
MOST_ROWS = 50_000


@dataclass
class History:
    """A run so far, from its events.

    A `start` event that resumes from an earlier step discards what came after that step, as the run folder does.
    """

    run: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    total_steps: int = 0
    steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    evals: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    hints: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    # First and last event time of each attempt at the run.
    times: dict[int, tuple[float, float]] = field(default_factory=dict)
    # Series already computed; any new event clears them.
    _found: dict[str, Series] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        self._found.clear()
        self.run = event.run
        first, _ = self.times.get(event.attempt, (event.time, event.time))
        self.times[event.attempt] = (first, event.time)
        if event.type == "start":
            self._start(event.data)
        elif event.type == "step":
            self.steps[event.step] = {**event.data, "metrics": true_metrics(_mapping(event.data.get("metrics")))}
            self.steps = _fewer(self.steps)
        elif event.type == "eval":
            self.evals[event.step] = event.data
            self.evals = _fewer(self.evals)
        elif event.type == "hint":
            self.hints.append((event.step, event.data))
        elif event.type == "error":
            self.errors.append(_mapping(event.data.get("error")))
        elif event.type == "end":
            self.end = event.data

    def _start(self, data: Mapping[str, Any]) -> None:
        last = int(finite(data.get("resumed_from")) or 0)
        self.config, self.env = _mapping(data.get("config")), _mapping(data.get("env"))
        self.total_steps = int(finite(data.get("total_steps")) or 0)
        self.steps = {step: kept for step, kept in self.steps.items() if step <= last}
        self.evals = {step: kept for step, kept in self.evals.items() if step <= last}
        self.hints = [(step, kept) for step, kept in self.hints if step <= last]
        # A resumed run is running again, whatever ended it before.
        self.errors, self.end = [], None

    @property
    def step(self) -> int:
        return max(self.steps, default=0)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The registry of metrics as the run's product has it."""
        return registry(str(self.setting("task.product") or ""))

    @property
    def supervised(self) -> bool:
        """Whether the run imitates demonstrations: it logs a supervised loss and has no groups."""
        return self.last("loss/supervised") is not None

    @property
    def seconds(self) -> float:
        """Time spent running, without the pauses between attempts."""
        return sum(last - first for first, last in self.times.values())

    def series(self, name: str) -> Series:
        """The steps and finite values of a metric, of `timing/<phase>` or of `totals/<what>`."""
        if name not in self._found:
            rows, part, key = self._place(name)
            values = ((step, finite(_mapping(data.get(part)).get(key))) for step, data in sorted(rows.items()))
            pairs = [(step, value) for step, value in values if value is not None]
            self._found[name] = [step for step, _ in pairs], [value for _, value in pairs]
        return self._found[name]

    def last(self, name: str) -> float | None:
        """The newest value of a series, searched only in the newest rows, because a display asks often."""
        rows, part, key = self._place(name)
        # A metric missing from the last 100 rows counts as gone.
        for data in islice(reversed(rows.values()), 100):
            if (value := finite(_mapping(data.get(part)).get(key))) is not None:
                return value
        return None

    def _place(self, name: str) -> tuple[dict[int, Mapping[str, Any]], str, str]:
        """Where to find a series: the rows by step, the part of a row, and the key in it."""
        head, _, rest = name.partition("/")
        if head in ("timing", "totals"):
            return self.steps, head, rest
        return self.evals if head == "eval" else self.steps, "metrics", name

    def samples(self) -> dict[int, dict[str, Sample]]:
        """Sample answers of the evaluations, by step and prompt."""
        found: dict[int, dict[str, Sample]] = {}
        for step, data in self.evals.items():
            listed = data.get("samples")
            shown = [_sample(_mapping(value)) for value in (listed if isinstance(listed, list) else [])]
            if shown:
                found[step] = {sample.prompt: sample for sample in shown}
        return found

    def names(self) -> list[str]:
        """Every series there is."""
        found = {str(n) for data in self.evals.values() for n in _mapping(data.get("metrics"))}
        for data in self.steps.values():
            for part, prefix in (("metrics", ""), ("timing", "timing/"), ("totals", "totals/")):
                found.update(f"{prefix}{name}" for name in _mapping(data.get(part)))
        return sorted(found)

    def setting(self, path: str) -> Any:
        """A value of the configuration by its dotted name, or None."""
        value: Any = self.config
        for key in path.split("."):
            value = _mapping(value).get(key)
        return value

    @classmethod
    def read(cls, run_dir: Path) -> History:
        """The history of a run folder, with a part of its steps if it is very long.

        An incomplete last line of its log is ignored.
        """
        if not run_dir.is_dir():
            raise RunNotFound(f"there is no run folder at {run_dir}", hint="`groupwise runs` lists the runs.")
        history = cls.of(looked_at_events(run_dir / "events.jsonl"))
        history.run = history.run or run_dir.name
        return history


def _fewer(rows: dict[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The rows of a run that is watched for very long, more coarsely: every second of the older half goes."""
    if len(rows) <= MOST_ROWS:
        return rows
    steps = list(rows)
    gone = set(steps[1 : len(steps) // 2 : 2])
    return {step: row for step, row in rows.items() if step not in gone}


def _sample(value: Mapping[str, Any]) -> Sample:
    names = ("prompt", "text", "expected", "reasoning")
    prompt, text, expected, reasoning = (str(value.get(name, "")) for name in names)
    # Free text has no right answer (None); anything else that is not true counts as wrong.
    correct = None if "correct" in value and value["correct"] is None else value.get("correct") is True
    return Sample(prompt, text, expected, finite(value.get("total")) or 0.0, correct, reasoning)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
