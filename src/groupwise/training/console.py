"""A run on the terminal: a live display, JSON lines when nobody watches, tables, and a curve in characters.

    terminal                progress, the numbers that matter and the reward's curve, redrawn in place
    dumb terminal           one line of numbers now and then
    not a terminal, --json  every event as one line of JSON, flushed
    quiet                   nothing

A reader that goes away (`groupwise train … | head`) stops the display, never the run.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupwise.training.events import encode
from groupwise.training.figures import History
from groupwise.training.hints import finite, number, percent
from groupwise.types import Event

if TYPE_CHECKING:
    from groupwise.training.run import RunInfo

NUMBERS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("reward", "reward/mean", number),
    ("evaluation", "eval/reward_mean", number),
    ("no spread", "groups/zero_spread_share", percent),
    ("failed", "groups/failed_share", percent),
    ("entropy", "policy/entropy", number),
    ("KL", "policy/kl", number),
    ("clipped low", "policy/clip_low", percent),
    ("clipped high", "policy/clip_high", percent),
    ("gradient", "optim/grad_norm", number),
    ("samples/s", "timing/samples_per_second", number),
)
DUMB_INTERVAL = 5.0
NARROW = 60


@dataclass(frozen=True, slots=True)
class Summary:
    """How a watched run ended. `error` has the one error shape, or is None."""

    run: str
    reason: str
    steps: int
    seconds: float
    reward: float | None
    evaluation: float | None
    hints: int
    error: Mapping[str, Any] | None


def watch(
    events: Iterable[Event], console: Console | None = None, json: bool = False, quiet: bool = False
) -> Generator[Event, None, Summary]:
    """Pass a run's events on while showing them as suits where the output goes.

    The generator returns (to `yield from`, or as `StopIteration.value`) how the run ended.
    """
    history = History()
    display = _display(console or Console(), history, json, quiet)
    with display:
        for event in events:
            with display.lock:
                history.add(event)
            display.show(event)
            yield event
    return summarise(history)


def summarise(history: History) -> Summary:
    end = history.end or {}
    return Summary(
        run=history.run,
        reason=str(end.get("reason") or "interrupted"),
        steps=history.step,
        seconds=history.seconds,
        reward=history.last("reward/mean"),
        evaluation=history.last("eval/reward_mean"),
        hints=len(history.hints),
        error=history.errors[-1] if history.errors else None,
    )


class Silent:
    """Shows nothing; the other displays begin from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._gone = False

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def show(self, event: Event) -> None:
        return None

    @contextmanager
    def _reader(self, stream: Any) -> Iterator[None]:
        """Write inside this: when the reader has gone away, all later output is dropped."""
        try:
            yield
        except BrokenPipeError:
            self._gone = True
            # Whatever else this process says there goes nowhere, rather than failing when Python exits.
            if stream is sys.stdout:
                with open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), stream.fileno())


class JsonLines(Silent):
    """Every event as the event log has it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._stream = console.file

    def show(self, event: Event) -> None:
        if self._gone:
            return
        with self._reader(self._stream):
            line = encode(event)
            if (binary := getattr(self._stream, "buffer", None)) is not None:
                binary.write(line)
            else:
                self._stream.write(line.decode())
            self._stream.flush()


class Plain(Silent):
    """For a terminal that cannot redraw: a line now and then, and whatever needs attention at once."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__()
        self._console, self._history = console, history
        self._due = 0.0

    def show(self, event: Event) -> None:
        text = notice(event)
        if event.type == "end" or (event.type == "step" and time.monotonic() >= self._due):
            self._due = time.monotonic() + DUMB_INTERVAL
            text = Text(_one_line(self._history))
        if text is not None and not self._gone:
            with self._reader(self._console.file):
                self._console.print(text, soft_wrap=True)


class Animated(Silent):
    """The live display. Rich redraws it from its own thread, hence the lock around the history."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__()
        self._console, self._history = console, history
        self._began, self._first_step = time.monotonic(), -1
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4)

    def __enter__(self) -> Animated:
        with self._reader(self._console.file):
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        with self._reader(self._console.file):
            self._live.stop()

    def show(self, event: Event) -> None:
        if event.type == "start":
            self._first_step = int(finite(event.data.get("resumed_from")) or 0)
        text = notice(event)
        if text is not None and not self._gone:
            with self._reader(self._console.file):
                self._console.print(text)

    def _draw(self) -> RenderableType:
        with self.lock:
            elapsed = time.monotonic() - self._began
            return live_view(self._history, self._console, elapsed, max(self._first_step, 0))


def _display(console: Console, history: History, json: bool, quiet: bool) -> Silent:
    if quiet:
        return Silent()
    if json or not console.is_terminal:
        return JsonLines(console)
    return Plain(console, history) if console.is_dumb_terminal else Animated(console, history)


def notice(event: Event) -> Text | None:
    """What a person should read at once: a hint or an error."""
    if event.type == "hint":
        words = f"{printable(event.data.get('message'))} {printable(event.data.get('remedy'))}"
        return Text.assemble((f"Hint at step {event.step}: ", "bold yellow"), (words, "yellow"))
    if event.type == "error":
        error = event.data.get("error")
        shape = error if isinstance(error, Mapping) else {}
        words = f"{printable(shape.get('message'))} {printable(shape.get('hint'))}"
        return Text.assemble(("Error: ", "bold red"), (words, "red"))
    return None


def printable(value: Any) -> str:
    """Text from a run, for a terminal: control characters could move its cursor, so they are replaced."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "�" for c in text)


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


def _one_line(history: History) -> str:
    words = [f"step {history.step}/{history.total_steps}"]
    for label, name, form in NUMBERS:
        if (value := history.last(name)) is not None:
            words.append(f"{label} {form(value)}")
    return "  ".join(words)


def clock(seconds: float) -> str:
    """A duration as h:mm:ss, or m:ss below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def curve(
    values: Sequence[float | None],
    width: int = 60,
    height: int = 8,
    *,
    steps: tuple[int, int] | None = None,
    ascii_only: bool = False,
) -> str:
    """A line in Braille dots (2 × 4 to a character) with its range at the left and its steps below.

    `width` and `height` are characters, labels included in the width; the steps add one line below.
    """
    known = [value for v in values if (value := finite(v)) is not None]
    if not known:
        return "(no values yet)"
    low, high = min(known), max(known)
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    margin = max(len(number(low)), len(number(high)))
    columns = max(width - margin - 2, 4)
    across, down = (1, 1) if ascii_only else (2, 4)
    points = resample(known, columns * across)
    scale = (height * down - 1) / (high - low)
    levels = [round((value - low) * scale) for value in points]
    cells = [[0] * columns for _ in range(height)]
    for x, level in enumerate(levels):
        # A steep stretch is filled up to half way to its neighbours, so that the line does not fall apart.
        near = [*levels[max(x - 1, 0) : x], *levels[x + 1 : x + 2]]
        ends = [level, *((level + other + (level > other)) // 2 for other in near)]
        for y in range(min(ends), max(ends) + 1):
            row = height - 1 - y // down
            cells[row][x // across] |= DOTS[x % across][y % down]
    return _with_axes(cells, low, high, margin, steps or (1, len(values)), ascii_only)


DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def _with_axes(
    cells: Sequence[Sequence[int]],
    low: float,
    high: float,
    margin: int,
    steps: tuple[int, int],
    ascii_only: bool,
) -> str:
    bar = "|" if ascii_only else "│"
    lines = []
    for i, row in enumerate(cells):
        label = number(high) if i == 0 else number(low) if i == len(cells) - 1 else ""
        ink = "".join(("*" if ascii_only else chr(0x2800 + bits)) if bits else " " for bits in row)
        lines.append(f"{label:>{margin}} {bar}{ink}".rstrip())
    first, last = map(str, steps)
    gap = len(cells[0]) - len(first) - len(last)
    lines.append(" " * (margin + 2) + (first + " " * gap + last if gap > 0 else last))
    return "\n".join(lines)


def resample(values: Sequence[float], count: int) -> list[float]:
    """`count` values along the same course: means of neighbours when fewer, straight lines when more."""
    n = len(values)
    if n >= count:
        edges = [i * n // count for i in range(count + 1)]
        return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    if n == 1:
        return [values[0]] * count
    places = [i * (n - 1) / (count - 1) for i in range(count)]
    floors = [min(int(place), n - 2) for place in places]
    return [values[i] + (values[i + 1] - values[i]) * (p - i) for i, p in zip(floors, places, strict=True)]


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


STATES = {"running": "green", "failed": "red", "interrupted": "yellow"}
