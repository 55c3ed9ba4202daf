"""A run in a cell of a notebook while it runs: progress, the numbers that matter and the reward's curve, in one output.

It is drawn with IPython, which every notebook has; nothing else is needed.
"""

from __future__ import annotations

import time
from html import escape
from typing import Any

from groupwise.reporting.console import Silent, notice
from groupwise.reporting.history import History
from groupwise.reporting.summary import ending, numbers_of
from groupwise.reporting.text import clock, course, printable, resample
from groupwise.reporting.verdict import verdict
from groupwise.types import Event

INTERVAL = 1.0  # seconds between drawings
WIDTH, HEIGHT, MOST_POINTS = 420, 120, 400


class Notebook(Silent):
    """One output that is replaced as the run goes on; hints are below the curve."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history, self._notices = history, list[str]()
        self._began, self._due = time.monotonic(), 0.0
        self._handle: Any = None

    def __exit__(self, *reason: object) -> None:
        self._draw()

    def show(self, event: Event) -> None:
        said = notice(event)
        if said is not None:
            self._notices.append(said.plain)
        if event.type != "step" or time.monotonic() >= self._due:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        self._due = time.monotonic() + INTERVAL
        with self.lock:
            shown = HTML(as_html(self._history, time.monotonic() - self._began, self._notices))
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def as_html(history: History, elapsed: float, notices: list[str]) -> str:
    """Progress, numbers, curve and hints of a run as one piece of HTML without scripts."""
    step, total = history.step, history.total_steps
    state = ending(str(history.end.get("reason"))) if history.end is not None else "running"
    of = f"/{total}" if total else ""
    head = f"<b>{escape(printable(history.run))}</b> · step {step}{of} · {clock(elapsed)} · {escape(printable(state))}"
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td style='text-align:right'>{escape(form(value))}</td></tr>"
        for label, name, form in numbers_of(history)
        if (value := history.last(name)) is not None
    )
    bar = f"<progress max='{total or 1}' value='{step}' style='width:{WIDTH}px'></progress>"
    label, metric = ("loss", "loss/supervised") if history.supervised else ("reward", "reward/mean")
    steps, values = history.series(metric)
    hints = "".join(f"<p>{escape(printable(words))}</p>" for words in notices)
    end = f"<p>{escape(printable(verdict(history)))}</p>" if history.end is not None else ""
    return (
        f"<div><p>{head}</p>{bar}<div style='display:flex;gap:2em'><table>{rows}</table>"
        f"<figure><figcaption>{label}</figcaption>{_curve(course(steps, values))}</figure></div>{hints}{end}</div>"
    )


def _curve(values: list[float]) -> str:
    """A line through the values, from the lowest to the highest."""
    known = [value for value in values if value == value]
    if len(known) < 2:
        return ""
    points = resample(known, min(len(known), MOST_POINTS))
    low, high = min(points), max(points)
    size = (high - low) or 1.0
    across = WIDTH / (len(points) - 1)
    line = " ".join(f"{n * across:.1f},{HEIGHT - (v - low) / size * HEIGHT:.1f}" for n, v in enumerate(points))
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT + 24}' viewBox='0 -12 {WIDTH} {HEIGHT + 24}'>"
        f"<polyline points='{line}' fill='none' stroke='#2563eb' stroke-width='2'/>"
        f"<text x='0' y='-2' font-size='11'>{high:.3g}</text>"
        f"<text x='0' y='{HEIGHT + 11}' font-size='11'>{low:.3g}</text></svg>"
    )
