"""One metric of several runs in one picture."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.reporting.canvas import MANY, draw_line, finish, label_ends, limit, render, stacked_axes
from groupwise.reporting.charts import Panel
from groupwise.reporting.history import History
from groupwise.reporting.text import short
from groupwise.training.numbers import number, percent
from groupwise.training.storage import disk


def plot_runs(run_dirs: Sequence[Path], metric: str, out: Path) -> Path:
    """Compare a metric of several runs in one figure, written as .png, .svg or .pdf."""
    kind = out.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise ConfigError(f"{out.name!r} is not a picture Groupwise can write", hint="Use .png, .svg or .pdf.")
    histories = [History.read(path) for path in run_dirs]
    shown = [history for history in histories if history.series(metric)[0]]
    if not shown:
        raise ConfigError(_no_such_metric(metric, histories), field="metric", hint=_near(metric, histories))
    content = render(lambda width: _draw_runs(shown, metric, width), 8.0, kind)
    with disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content)
    return out


def _draw_runs(histories: Sequence[History], metric: str, width: float) -> Any:
    shares = metric.endswith("_share") or metric.startswith("policy/clip")
    lines = [history.series(metric) for history in histories]
    ends = [steps[-1] for steps, _ in lines]
    colours = [MANY[i % len(MANY)] for i in range(len(lines))]
    values = [percent(values[-1]) if shares else number(values[-1]) for _, values in lines]
    names = [f"{short(history.run, 28)} {value}" for history, value in zip(histories, values, strict=True)]
    figure, (axes,) = stacked_axes(width, 4.2, 1, names)
    for i, (series, colour) in enumerate(zip(lines, colours, strict=True)):
        draw_line(axes, series, colour, linestyle=("-", "--", ":")[i // len(MANY) % 3])
        axes.plot([ends[i], max(ends)], [series[1][-1]] * 2, color=colour, linewidth=0.6, alpha=0.4)
    limit(axes, Panel(metric, (), percent=shares))
    finish(axes, metric, (min(steps[0] for steps, _ in lines), max(ends)))
    label_ends(axes, [(line[1][-1], name, c) for line, name, c in zip(lines, names, colours, strict=True)])
    return figure


def _no_such_metric(metric: str, histories: Sequence[History]) -> str:
    return f"no value of {metric!r} in {', '.join(short(history.run, 40) for history in histories) or 'no run'}"


def _near(metric: str, histories: Sequence[History]) -> str:
    names = sorted({name for history in histories for name in history.names()})
    near = difflib.get_close_matches(metric, names, n=1, cutoff=0.5)
    known = f"Known: {', '.join(names)}." if names else "Nothing has been recorded yet."
    return f"Did you mean {near[0]!r}? {known}" if near else known
