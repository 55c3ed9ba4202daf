"""The report of a design call on a terminal, at most 110 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from groupwise.designer.design_call import DesignReport
from groupwise.designer.explanation import Explanation, ParetoRow, few, in_a_line, in_time, lines_of, listed
from groupwise.designer.outcome import DesignOutcome

WIDEST = 110
LONGEST = 10
"""Lines of the workflow before it is cut off."""


def show(call: DesignReport, written: Sequence[Path], notes: Iterable[str], console: Console) -> None:
    """Print the report: the result first, notes and written files last."""
    width = min(console.width, WIDEST)
    for part in _parts(call, written, notes, width):
        console.print(part, width=width, highlight=False)


def _parts(call: DesignReport, written: Sequence[Path], notes: Iterable[str], width: int) -> Iterator[RenderableType]:
    yield headline(call)
    yield Padding(picture(call, width - 2), (1, 0, 0, 2), expand=False)
    if rows := call.rows():
        yield section("Pareto-optimal designs")
        yield Padding(pareto_table(few(rows), len(rows)), (0, 0, 0, 2), expand=False)
    yield section(f"Changes from {call.explanation.baseline.words}")
    yield Padding(changes_table(call.explanation), (0, 0, 0, 2), expand=False)
    if call.outcome.analysis is not None:
        yield section("Simulation of the best design")
        yield Padding(Group(*map(Text, call.outcome.analysis.lines())), (0, 0, 0, 2), expand=False)
    yield section("Time by stage")
    yield Padding(stage_table(call.outcome, width - 2), (0, 0, 0, 2), expand=False)
    ends = [*(Text(f"Note: {note}", style="yellow") for note in notes), *(Text(f"Wrote {path}") for path in written)]
    if call.learned is not None:
        ends.append(Text(f"Learned weights: {call.learned} (use them with --policy {call.learned})"))
    if ends:
        yield Text("")
        yield Group(*ends)


def section(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def headline(call: DesignReport) -> RenderableType:
    words = Text.assemble((f"{call.design.name}: ", "bold"), call.explanation.headline())
    if call.score.broken:
        words.stylize("red")
    effort = f"{call.outcome.evaluations} evaluations in {duration(sum(call.outcome.stages.values()))}"
    return Group(words, Text(effort, style="dim"))


def picture(call: DesignReport, width: int) -> RenderableType:
    """The workflow as a few lines of text."""
    lines = Text(in_a_line(call.design)).wrap(Console(width=width), width)
    return Group(*lines[:LONGEST], *([Text("…", style="dim")] if len(lines) > LONGEST else []))


def pareto_table(rows: Sequence[ParetoRow], of: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for name in ("score", "cycle time", "cost per case", "control-flow complexity", "servers"):
        table.add_column(name, justify="right")
    for row in rows:
        values = (
            f"{row.score:.3f}",
            in_time(row.cycle_time),
            f"{row.cost:.4g}",
            f"{row.control_flow:.0f}",
            str(row.servers),
        )
        table.add_row("▶" if row.chosen else "", *values, style="bold" if row.chosen else "")
    more = [Text(f"and {of - len(rows)} more", style="dim")] if of > len(rows) else []
    return Group(table, *more)


def changes_table(told: Explanation) -> RenderableType:
    """What changed, and which measures raised and lowered the score."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    if told.before.broken:
        table.add_row(
            "✗", Text(f"no score, because it breaks rules: {listed([str(rule) for rule in told.before.broken], 2)}")
        )
    found = list(lines_of(told.differences))
    for mark, words in found or [("=", "nothing: no better design was found")]:
        table.add_row(mark, Text(words))
    for mark, style, reasons in (("▲", "green", told.rose), ("▼", "red", told.fell)):
        if reasons:
            table.add_row(Text(mark, style), Text(listed([str(reason) for reason in reasons], 3)))
    return table


def stage_table(outcome: DesignOutcome, width: int) -> RenderableType:
    """The six stages with their times, and a bar for each one's share of the total."""
    total = sum(outcome.stages.values()) or 1.0
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, seconds in outcome.stages.items():
        bar = "━" * round(min(30, width - 40) * seconds / total)
        table.add_row(name, duration(seconds) if seconds else "–", Text(bar, style="cyan"))
    return table


def duration(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "< 1 ms"
    return f"{seconds:.3g} s"
