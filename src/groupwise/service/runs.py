"""Run folders as the API shows them: lists, events, curves, groups and single attempts."""

import difflib
import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import GroupwiseError, RunNotFound
from groupwise.metrics import HELD_OUT, REWARD, about, registry
from groupwise.products import Metric
from groupwise.service.event_stream import Floats, RunLog, RunLogs, downsampled
from groupwise.service.run_index import RunIndex
from groupwise.training.folder import read_config, state_after
from groupwise.training.formatting import finite
from groupwise.training.group_files import file_of_step, kept_steps, read_step
from groupwise.workflows.blocks import Design
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.document import document_of
from groupwise.workflows.files.json_file import read_design
from groupwise.workflows.pictures.svg import svg

SEARCHED = 100  # group files searched for an attempt whose step is not given
SHOWN = 280  # characters of an attempt's text shown in a list


class GroupNotFound(GroupwiseError):
    code = "group_not_found"


class MetricNotFound(GroupwiseError):
    code = "metric_not_found"


class ReportNotFound(GroupwiseError):
    code = "report_not_found"


class TrajectoryNotFound(GroupwiseError):
    code = "trajectory_not_found"


class Runs:
    """The runs below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = RunLogs()
        self.index = RunIndex(folder, self._status)

    def path(self, run: str) -> Path:
        path = self.folder / run
        if not any((path / name).is_file() for name in ("config.toml", "events.jsonl")):
            raise RunNotFound(f"there is no run {run!r:.100}", hint="GET /api/runs lists them.")
        return path

    def _status(self, path: Path) -> dict[str, Any]:
        """What status.json would say, taken from a cached log because clients ask twice a second."""
        log = self.logs.of(path)
        log.refresh()
        with log.lock:
            last = log.last
            return {
                "state": state_after(last), "step": log.step, "total": log.total, "attempt": log.attempt,
                "updated": last.time if last else path.stat().st_mtime, "metrics": dict(log.metrics),
            }  # fmt: skip

    def config(self, run: str) -> dict[str, Any]:
        return read_config(self.path(run)).to_dict()

    def report(self, run: str) -> Path | None:
        path = self.path(run) / "report.html"
        return path if path.is_file() and not path.is_symlink() else None

    def log(self, run: str, begun: bool = True) -> RunLog:
        """The events of a run; with `begun`, it has to be there already."""
        log = self.logs.of(self.path(run) if begun else self.folder / run)
        log.refresh()
        return log

    def series(
        self, run: str, names: Sequence[str], points: int, since: int = 0, until: int | None = None, axis: str = "step"
    ) -> dict[str, Any]:
        """Curves from step `since` to `until`, at most `points` points each; all metrics if no names are given."""
        log = self.log(run)
        with log.lock:
            # Evaluations last: a metric that both have is drawn from its held-out values.
            known = [(name, kind) for kind in ("step", "eval") for name in log.numbers[kind].columns]
            wanted = [(name, kind) for name, kind in known if not names or name in names]
            found = {name: log.numbers[kind].column(name, axis) for name, kind in wanted}
            all_names = log.names()
        if unknown := [name for name in names if name not in found]:
            raise MetricNotFound(
                f"run {run} has no metric {unknown[0]!r:.80}", hint=_near(unknown[0], all_names), field="names"
            )
        curves = {}
        for name, (steps, values, places) in found.items():
            first = int(np.searchsorted(steps, since))
            last = len(steps) if until is None else int(np.searchsorted(steps, until, "right"))
            chosen = first + downsampled(values[first:last], points)
            curve: dict[str, Any] = {"steps": steps[chosen].astype(int).tolist(), "values": _short(values[chosen])}
            curves[name] = curve if axis == "step" else {**curve, "at": _short(places[chosen])}
        return {"run": run, "next": len(log), "names": all_names, "series": curves}

    def known(self, run: str) -> list[dict[str, Any]]:
        """What the run's metrics mean, in the order of the registry; those it does not have come last."""
        rows = registry(self.index.look(run).product)
        found = [about(name, rows) or Metric(name=name, meaning="") for name in self.log(run).names()]
        places = {metric.name: place for place, metric in enumerate(rows)}
        named = zip(self.log(run).names(), found, strict=True)
        ordered = sorted(named, key=lambda pair: (places.get(pair[1].name, len(rows)), pair[0]))
        return [{**asdict(metric), "name": name} for name, metric in ordered]

    def events(self, run: str, begin: int, limit: int) -> tuple[RunLog, list[bytes]]:
        log = self.log(run)
        return log, log.lines(begin, begin + limit)

    def thinned_events(self, run: str, begin: int, points: int) -> tuple[RunLog, list[bytes]]:
        """All events from number `begin` on, with steps and evaluations downsampled to `points` each."""
        log = self.log(run)
        with log.lock:
            numbers = [number for number in log.rare if number >= begin]
            for kind in ("step", "eval"):
                numbers += _thin(log, kind, begin, points)
        return log, log.chosen(sorted(numbers))

    def steps_with_groups(self, run: str) -> list[int]:
        return kept_steps(self.path(run) / "groups")

    def folder_with(self, run: str, step: int) -> Path:
        """The folder of a run whose groups of a step were saved."""
        if file_of_step(self.path(run) / "groups", step) is None:
            hint = f"GET /api/runs/{run}/groups lists the steps that were saved; run.group_log_steps sets how often."
            raise GroupNotFound(f"run {run} has no saved groups for step {step}", hint=hint)
        return self.path(run)

    def rows(self, run: str, step: int) -> list[dict[str, Any]]:
        return read_step(self.folder_with(run, step) / "groups", step) or []

    def groups(self, run: str, step: int) -> dict[str, Any]:
        rows = sorted(self.rows(run, step), key=lambda row: row["group_id"])
        found = [_group(name, list(members)) for name, members in groupby(rows, key=lambda row: row["group_id"])]
        return {"run": run, "step": step, "scale": scale_of(rows), "groups": found}

    def trajectory(self, run: str, trajectory: str, step: int | None) -> dict[str, Any]:
        # Newest first: people look at what was just logged.
        steps = [step] if step is not None else self.steps_with_groups(run)[::-1][:SEARCHED]
        for number in steps:
            rows = self.rows(run, number)
            for row in rows:
                if row["trajectory_id"] == trajectory:
                    group = [one for one in rows if one["group_id"] == row["group_id"]]
                    return {**_attempt_whole(row), "scale": scale_of(rows), "exhibit": shown_exhibit(row, group)}
        where = f"in step {step}" if step is not None else f"in its last {SEARCHED} steps"
        hint = "Add ?step= if you know it."
        raise TrajectoryNotFound(f"run {run} has no attempt {trajectory!r:.80} {where}", hint=hint)


def _thin(log: RunLog, kind: str, begin: int, points: int) -> list[int]:
    series = log.numbers[kind]
    seqs = np.array(series.seqs, dtype=np.int64)
    since = int(np.searchsorted(seqs, begin))
    column = series.columns.get(REWARD if kind == "step" else HELD_OUT)
    values = np.nan_to_num(np.array(column if column is not None else [0.0] * len(seqs), dtype=np.float64))
    return [int(seq) for seq in seqs[since:][downsampled(values[since:], points)]]


def _short(values: Floats) -> list[float]:
    """Eight digits, which is more than a curve shows: a page of curves is half as long."""
    return [float(f"{value:.8g}") for value in values]


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    start = f"Did you mean {near[0]!r}? " if near else ""
    return f"{start}GET /api/runs/{{run}} lists its metrics under `known`; send names=a&names=b for several."


def scale_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """The largest advantage among attempts."""
    return max((abs(row["advantage"]) for row in rows), default=0.0)


def _group(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    totals = [row["total"] for row in rows if row["total"] is not None]
    return {
        "id": name, "task_id": rows[0]["task_id"], "prompt": rows[0]["prompt"], "size": len(rows),
        "mean": statistics.fmean(totals) if totals else None,
        "std": statistics.pstdev(totals) if totals else None,
        "zero_signal": len(totals) < 2 or max(totals) == min(totals),
        "attempts": [_attempt(row) for row in rows],
    }  # fmt: skip


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("trajectory_id", "total", "flags", "advantage", "length", "end", "failure", "version")
    words = {name: row[name] if len(row[name]) <= SHOWN else row[name][:SHOWN] + "…" for name in ("text", "reasoning")}
    return {**{name: row[name] for name in fields}, "parts": dict(row["parts"] or ()), **words}


def _attempt_whole(row: Mapping[str, Any]) -> dict[str, Any]:
    attempt = {**_attempt(row), "text": row["text"], "reasoning": row["reasoning"]}
    return {
        **attempt, "step": row["step"], "group_id": row["group_id"], "task_id": row["task_id"], "prompt": row["prompt"],
        "turns": _turns(row),
    }  # fmt: skip


def _turns(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tokens turn by turn: written by the model (`policy`) or given to it (`context`)."""
    columns = [row.get(name) or [] for name in ("tokens", "acted", "token_advantages", "token_logps")]
    tokens = list(zip(*columns, strict=False))
    turns = []
    for acted, turn in groupby(tokens, key=lambda token: bool(token[1])):
        shown = [
            {"text": text, "advantage": finite(advantage) if acted else None, "logp": finite(logp) if acted else None}
            for text, _, advantage, logp in turn
        ]
        turns.append({"role": "policy" if acted else "context", "tokens": shown})
    return turns


# What is shown of an attempt beside its tokens. Runs may come from anywhere, so exhibits are not trusted.
KINDS = ("episode", "design", "program", "search")


def shown_exhibit(row: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The exhibit of an attempt; a design is drawn and compared with the worst of its group."""
    found = _exhibit(row)
    if found is None or found["kind"] != "design":
        return found
    with suppress(GroupwiseError, ValueError, RecursionError):
        design = _design(str(found["workflow"]))
        scored = [one for one in group if one["total"] is not None]
        worst = min(scored, key=lambda one: float(one["total"]), default=None)
        other = None if worst is None else _exhibit(worst)
        changes: list[str] = []
        if other is not None and worst is not None and worst["trajectory_id"] != row["trajectory_id"]:
            changes = list(compare_workflows(_design(str(other["workflow"])), design).sentences())
        return {"kind": "design", "svg": svg(document_of(design)), "changes": changes}
    return None


def _exhibit(row: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(row.get("exhibit") or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") in KINDS else None


@lru_cache(maxsize=64)
def _design(text: str) -> Design:
    return read_design(text.encode())
