"""A run on the terminal while it runs.

    notebook                the same in one output of a cell
    terminal                progress, the numbers that matter and the reward's curve, redrawn in place
    file, pipe, dumb term.  one line of numbers now and then
    both, at the end        the first and the last evaluation, in words
    --json                  every event as one line of JSON, flushed
    quiet                   nothing

A reader that goes away (`groupwise train … | head`) stops the display, never the run.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from groupwise.reporting.history import History
from groupwise.reporting.summary import Summary, ending, numbers_of, summarise
from groupwise.reporting.text import clock, curve, printable, tolerate_any_text, traceback_lines
from groupwise.reporting.verdict import verdict
from groupwise.training.events import DAMAGE, encode
from groupwise.training.formatting import finite
from groupwise.types import Event, Hint

# Columns below which the curve is left out.
NARROW = 60
# Seconds between lines where the display cannot be redrawn.
PLAIN_INTERVAL = 5.0


def watch(
    events: Iterable[Event],
    console: Console | None = None,
    json: bool = False,
    quiet: bool = False,
    earlier: Iterable[Event] = (),
) -> Generator[Event, None, Summary]:
    """Pass a run's events on while showing them in the way that suits the output.

    `earlier` are the events already in the log of a resumed run, so that its curve and summary begin at the run's
    start. The generator returns (to `yield from`, or as `StopIteration.value`) how the run ended.
    """
    history = History.of(earlier)
    given = console is not None
    console = console or Console()
    tolerate_any_text(console.file)
    with _display(console, history, json, quiet, given) as display:
        for event in events:
            with display.lock:
                history.add(event)
            display.show(event)
            yield event
    return summarise(history)


class Silent:
    """Shows nothing but damage to the run's files, on stderr; the other displays begin from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._gone = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None: ...

    def show(self, event: Event) -> None:
        if event.type == "hint" and event.data.get("code") == DAMAGE:
            print(f"note: {printable(event.data.get('message'))}", file=sys.stderr)

    def _say(self, console: Console, text: Text | None) -> None:
        if text is not None and not self._gone:
            with self._reader(console.file):
                # Only an animated display wraps: a line in a file or a log stays one line.
                console.print(text, soft_wrap=console.is_dumb_terminal or not console.is_terminal)

    @contextmanager
    def _reader(self, stream: Any) -> Iterator[None]:
        """Write inside this: once nobody reads any more, all later output is dropped."""
        try:
            yield
        except (OSError, SystemExit):  # Rich turns a broken pipe into SystemExit.
            self._gone = True
            # Later output of this process goes nowhere, rather than failing when Python exits.
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
    """For a file, a pipe or a dumb terminal: a line now and then, and at once for every evaluation and hint."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__()
        self._console, self._history = console, history
        self._due, self._last = 0.0, ""

    def show(self, event: Event) -> None:
        if event.type == "end" or (event.type == "step" and time.monotonic() >= self._due):
            self._due = time.monotonic() + PLAIN_INTERVAL
            self._line(one_line(self._history))
        elif event.type == "eval":
            self._line(one_line(self._history, ("evaluation", "correct")))
        self._say(self._console, notice(event))
        if event.type == "end":
            self._say(self._console, closing(self._history))

    def _line(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._say(self._console, Text(text))


class Animated(Silent):
    """The live display. Rich redraws it from its own thread, hence the lock around the history."""

    def __init__(self, console: Console, history: History) -> None:
        super().__init__()
        self._console, self._history = console, history
        self._began, self._first_step = time.monotonic(), -1
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4)

    def __enter__(self) -> Self:
        with self._reader(self._console.file):
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        with self._reader(self._console.file):
            self._live.stop()
        self._say(self._console, closing(self._history))

    def show(self, event: Event) -> None:
        if event.type == "start":
            # The time left counts only steps of this attempt.
            self._first_step = int(finite(event.data.get("resumed_from")) or 0)
        self._say(self._console, notice(event))

    def _draw(self) -> RenderableType:
        with self.lock:
            elapsed = time.monotonic() - self._began
            return live_view(self._history, self._console, elapsed, max(self._first_step, 0))


def in_notebook() -> bool:
    """Whether this code runs in a cell that can show more than text."""
    # Without IPython loaded this cannot be a notebook, and importing it would take time.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _display(console: Console, history: History, json: bool, quiet: bool, given: bool) -> Silent:
    if quiet:
        return Silent()
    if json:
        return JsonLines(console)
    if not given and in_notebook():
        cell: Silent = import_module("groupwise.reporting.notebook").Notebook(history)  # it builds on this module
        return cell
    if console.is_terminal and not console.is_dumb_terminal:
        return Animated(console, history)
    return Plain(console, history)


def live_view(history: History, console: Console, elapsed: float, first_step: int = 0) -> RenderableType:
    """Progress, numbers and curve for the width of `console`."""
    progress, table = _progress(history, console, elapsed, first_step), _numbers(history)
    if console.width < NARROW:
        return Group(progress, table)
    label, metric = ("loss", "loss/supervised") if history.supervised else ("reward", "reward/mean")
    steps, values = history.series(metric)
    ends = (steps[0], steps[-1]) if steps else None
    height = max(table.row_count - 2, 4)
    drawn = curve(values, console.width - 29, height, steps=ends, ascii_only=console.options.ascii_only)
    body = Table.grid(padding=(0, 3))
    body.add_row(table, Group(Text(label, style="dim"), Text(drawn)))
    return Group(progress, body)


def _progress(history: History, console: Console, elapsed: float, first_step: int) -> RenderableType:
    """A bar, the step, and the time taken; then the time left, or how the run ended."""
    step, total = history.step, history.total_steps
    done = step - first_step
    left = f"{clock(elapsed / done * (total - step))} left" if done > 0 and total > step else ""
    if history.end is not None:
        # A run that ends early says so: its bar stays where it stood.
        left = ending(str(history.end.get("reason"))) if step < total else ""
    row = Table.grid(padding=(0, 2))
    name = Text(printable(history.run or "starting"), style="bold", no_wrap=True, overflow="ellipsis")
    width = max(console.width - 60, 10)
    name.truncate(24, overflow="ellipsis")
    bar = ProgressBar(total=total or None, completed=step, width=width, pulse=not total, complete_style="cyan")
    row.add_row(name, bar, f"{step}/{total}" if total else f"step {step}", clock(elapsed), printable(left))
    return row


def _numbers(history: History) -> Table:
    table = Table.grid(padding=(0, 1))
    # Fixed widths: the table must not jump while it is redrawn.
    table.add_column(style="dim", width=12)
    table.add_column(justify="right", width=9)
    for label, name, form in numbers_of(history):
        value = history.last(name)
        # A run without failures, a sampler of its own, or an evaluation that tells right from wrong has no such row.
        if label not in ("failed", "correct", "sampler gap") or (value if label == "failed" else value is not None):
            table.add_row(label, "–" if value is None else form(value))
    return table


def one_line(history: History, only: Collection[str] = ()) -> str:
    """The step and the numbers, or `only` those with these labels."""
    words = [f"step {history.step}/{history.total_steps}"]
    for label, name, form in numbers_of(history):
        if (value := history.last(name)) is not None and (not only or label in only):
            words.append(f"{label} {form(value)}")
    return "  ".join(words)


def notice(event: Event) -> Text | None:
    """What a person should read at once. An error is also raised, and told by whoever catches it."""
    return hint_text(f"Hint at step {event.step}: ", event.data) if event.type == "hint" else None


def hint_text(head: str, hint: Mapping[str, Any]) -> Text:
    """A hint and, if user code raised, the traceback below it."""
    words = f"{printable(hint.get('message'))} {printable(hint.get('remedy'))}"
    said = Text.assemble((head, "bold yellow"), (words, "yellow"))
    return said.append("".join(f"\n{line}" for line in traceback_lines(hint)), "dim")


def print_hints(hints: Iterable[Hint]) -> None:
    """Print hints on stderr, for commands that do not show a run."""
    for hint in hints:
        Console(stderr=True, soft_wrap=True).print(hint_text("Hint: ", hint.as_dict()), highlight=False)


def closing(history: History) -> Text | None:
    """Before and after, once a run has ended with two evaluations or more to compare."""
    tests = history.series("eval/reward_mean")[1]
    return Text(verdict(history)) if history.end and len(tests) > 1 else None
