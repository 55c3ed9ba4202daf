"""What a terminal shows of a run while it runs: progress, the numbers that matter and the curve."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupwise.reporting.curve import curve
from groupwise.reporting.history import History
from groupwise.reporting.summary import NUMBERS
from groupwise.reporting.text import clock, printable

NARROW = 60


def live_view(history: History, console: Console, elapsed: float, first_step: int = 0) -> RenderableType:
    """Progress, numbers and curve for the width of `console`."""
    table = _numbers(history)
    if console.width < NARROW:
        return Group(_progress(history, console, elapsed, first_step), table)
    body = Table.grid(padding=(0, 3))
    drawn = curve(
        history.series("reward/mean")[1],
        console.width - 29,
        max(table.row_count - 2, 4),
        **_axis(history, console),
    )
    body.add_row(table, Group(Text("reward", style="dim"), Text(drawn)))
    return Group(_progress(history, console, elapsed, first_step), body)


def _axis(history: History, console: Console) -> dict[str, Any]:
    steps = history.series("reward/mean")[0]
    ends = (steps[0], steps[-1]) if steps else None
    return {"steps": ends, "ascii_only": console.options.ascii_only}


def _progress(history: History, console: Console, elapsed: float, first_step: int) -> RenderableType:
    """A bar, where the run stands, and the time it has taken and will take."""
    step, total = history.step, history.total_steps
    done = step - first_step
    left = f"{clock(elapsed / done * (total - step))} left" if done > 0 and total > step else ""
    row = Table.grid(padding=(0, 2))
    name = Text(printable(history.run or "starting"), style="bold", no_wrap=True, overflow="ellipsis")
    width = max(console.width - 60, 10)
    name.truncate(24, overflow="ellipsis")
    bar = ProgressBar(total=total or None, completed=step, width=width, pulse=not total, complete_style="cyan")
    row.add_row(name, bar, f"{step}/{total}" if total else f"step {step}", clock(elapsed), left)
    return row


def _numbers(history: History) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", width=12)
    table.add_column(justify="right", width=9)
    for label, name, form in NUMBERS:
        value = history.last(name)
        if label != "failed" or value:
            table.add_row(label, "–" if value is None else form(value))
    return table


def one_line(history: History) -> str:
    words = [f"step {history.step}/{history.total_steps}"]
    for label, name, form in NUMBERS:
        if (value := history.last(name)) is not None:
            words.append(f"{label} {form(value)}")
    return "  ".join(words)
