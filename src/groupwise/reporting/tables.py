"""Tables on the terminal: one run in numbers, and all runs."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from groupwise.reporting.history import History
from groupwise.reporting.summary import NUMBERS, summarise
from groupwise.reporting.text import clock, printable
from groupwise.training.folder import RunInfo
from groupwise.training.numbers import finite, number
from groupwise.types import Event

STATES = {"running": "green", "failed": "red", "interrupted": "yellow"}


def summary_table(events: Iterable[Event]) -> Table:
    """A run in one table for `groupwise show`: first, best and last of the numbers that matter."""
    history = History.of(events)
    summary = summarise(history)
    title = f"{summary.run}: {summary.reason}, {summary.steps} steps in {clock(summary.seconds)}"
    table = Table(title=Text(printable(title), style="bold"), title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for heading in ("first", "lowest", "highest", "last"):
        table.add_column(heading, justify="right")
    for label, name, form in NUMBERS:
        values = history.series(name)[1]
        if values:
            table.add_row(label, *(form(v) for v in (values[0], min(values), max(values), values[-1])))
    if history.hints:
        step, hint = history.hints[-1]
        table.caption = Text(f"Hint at step {step}: {printable(hint.get('message'))}", style="yellow")
        table.caption_justify = "left"
    return table


def runs_table(runs: Iterable[RunInfo]) -> Table:
    """Runs, one a row, for `groupwise runs`."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "step", "reward", "evaluation", "updated"):
        table.add_column(heading, justify="right" if heading in ("step", "reward", "evaluation") else "left")
    table.columns[0].overflow = "fold"
    for run in runs:
        scores = [finite(run.metrics.get(name)) for name in ("reward/mean", "eval/reward_mean")]
        table.add_row(
            Text(printable(run.id)),
            Text(printable(run.state), style=STATES.get(run.state, "")),
            f"{run.step}/{run.total}" if run.total else str(run.step),
            *("–" if score is None else number(score) for score in scores),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(run.updated)),
        )
    return table
