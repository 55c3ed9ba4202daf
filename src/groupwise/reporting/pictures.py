"""The pictures a run has data for, each with its words and its numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.reporting.canvas import COLOURS, Draw
from groupwise.reporting.charts import HEALTH, PHASES, Chart, Panel
from groupwise.reporting.figures import draw_learning, draw_panels, draw_phases
from groupwise.reporting.history import History
from groupwise.reporting.text import short
from groupwise.training.numbers import number

CSV_ROWS = 5000
LEARNING = ("reward/mean", "reward/std", "reward/min", "reward/max", "eval/reward_mean", "eval/reward_std")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure yet to be drawn, with its words and its data."""

    name: str
    title: str
    caption: str
    alt: str
    csv: str
    draw: Draw


def pictures(history: History) -> list[Picture]:
    """Every figure of the run's course that has data, the learning curve first."""
    found = []
    if history.series("reward/mean")[0] or history.series("eval/reward_mean")[0]:
        found.append(_learning_picture(history))
    for chart in (_parts(history), *HEALTH):
        if panels := _with_data(history, chart):
            found.append(_chart_picture(history, replace(chart, panels=panels)))
    if any(history.series(f"timing/{phase}")[0] for phase in PHASES):
        found.append(_time_picture(history))
    return found


def _parts(history: History) -> Chart:
    names = [name for name in history.names() if name.startswith("reward/part/")][: len(COLOURS)]
    # A single part is the reward itself.
    lines = tuple((n, short(n.removeprefix("reward/part/"), 14)) for n in names) if len(names) > 1 else ()
    caption = "The parts the reward is made of, each as a mean over the step's attempts."
    return Chart("parts", "Parts of the reward", caption, (Panel("mean", lines),))


def _with_data(history: History, chart: Chart) -> tuple[Panel, ...]:
    """The chart's panels and lines that have data."""
    panels = (
        replace(panel, lines=tuple(line for line in panel.lines if history.series(line[0])[0]))
        for panel in chart.panels
    )
    return tuple(panel for panel in panels if panel.lines)


def _learning_picture(history: History) -> Picture:
    return Picture(
        "learning",
        "Learning curve",
        "Mean reward of each step's attempts, with a band of one standard deviation. Dots are evaluations.",
        _in_words(history, [("reward/mean", "training reward"), ("eval/reward_mean", "evaluation reward")]),
        as_csv(history, LEARNING),
        lambda width: draw_learning(history, width),
    )


def _chart_picture(history: History, chart: Chart) -> Picture:
    lines = [(name, f"{panel.title} {label}".strip()) for panel in chart.panels for name, label in panel.lines]
    return Picture(
        chart.name,
        chart.title,
        chart.caption,
        _in_words(history, lines),
        as_csv(history, [name for name, _ in lines]),
        lambda width: draw_panels(history, chart.panels, width),
    )


def _time_picture(history: History) -> Picture:
    return Picture(
        "time",
        "Time per step",
        "Seconds by phase: making attempts, scoring them, advantages, updating the policy.",
        _in_words(history, [(f"timing/{phase}", f"seconds of {phase}") for phase in PHASES]),
        as_csv(history, [f"timing/{phase}" for phase in (*PHASES, "total")]),
        lambda width: draw_phases(history, width),
    )


def _in_words(history: History, lines: Iterable[tuple[str, str]]) -> str:
    """Where each line begins and ends: what a reader who cannot see the figure needs."""
    words = []
    for name, label in lines:
        steps, values = history.series(name)
        if len(values) > 1:
            ends = f"{number(values[0])} at step {steps[0]} to {number(values[-1])} at step {steps[-1]}"
            words.append(f"{label} from {ends}")
        elif values:
            words.append(f"{label} {number(values[0])} at step {steps[0]}")
    return "; ".join(words)


def as_csv(history: History, names: Sequence[str]) -> str:
    """The series as a table by step; of very long runs evenly spaced rows, with the last one."""
    columns = {name: dict(zip(*history.series(name), strict=True)) for name in names}
    columns = {name: column for name, column in columns.items() if column}
    steps = sorted(set[int]().union(*columns.values()))
    every = -(-len(steps) // CSV_ROWS) or 1
    rows = sorted({*steps[::every], *steps[-1:]})
    return csv_text(["step", *columns], ([step, *(c.get(step, "") for c in columns.values())] for step in rows))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
