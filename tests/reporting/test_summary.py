"""Tables for `groupwise show` and `groupwise runs`."""

import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace

from rich.console import Console
from rich.table import Table

from groupwise.reporting.summary import runs_table, summary_table
from groupwise.types import Event

RunEvents = Callable[..., Iterator[Event]]


def shown(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(table)
    return out.getvalue()


def test_summary_table_shows_first_extremes_and_last(run_events: RunEvents) -> None:
    text = shown(summary_table(run_events(last_evaluation=480.0)))
    rows = {line.split("  ")[0].strip(): line.split()[-4:] for line in text.splitlines()}
    assert rows["reward"] == ["20", "20", "400", "400"]
    assert rows["evaluation"] == ["21", "21", "480", "480"]
    assert "pole: finished, 20 steps" in text
    assert "Too fast." in text


def test_runs_table_has_a_row_for_each_run() -> None:
    run = SimpleNamespace(
        id="pole-\x1b[2J", state="running", step=3, total=20, updated=0.0, metrics={"reward/mean": 12.5}
    )
    heading, row = shown(runs_table([run])).splitlines()  # type: ignore[list-item]
    assert heading.split() == ["run", "state", "step", "reward", "evaluation", "updated"]
    assert row.split()[:5] == ["pole-�[2J", "running", "3/20", "12.5", "–"]
