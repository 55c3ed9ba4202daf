"""What a terminal, a pipe and a dumb terminal get to see of a run."""

import io
import json
import math
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from groupwise.training.console import (
    Summary,
    clock,
    curve,
    live_view,
    resample,
    runs_table,
    summary_table,
    watch,
)
from groupwise.training.events import encode
from groupwise.training.figures import History
from groupwise.types import Event


def run_events(steps: int = 20, name: str = "pole", hint: str = "Try less.") -> Iterator[Event]:
    """A small whole run."""
    seq = 0

    def event(step: int, kind: str, data: dict[str, Any]) -> Event:
        nonlocal seq
        seq += 1
        return Event(name, seq - 1, 1, 1000.0 + seq, step, kind, data)

    yield event(0, "start", {"config": {}, "resumed_from": None, "env": {}, "total_steps": steps})
    yield event(0, "eval", {"metrics": {"eval/reward_mean": 21.0}})
    for step in range(1, steps + 1):
        metrics = {"reward/mean": 20.0 * step, "groups/zero_spread_share": 0.25, "policy/entropy": 0.5}
        yield event(step, "step", {"metrics": metrics, "timing": {"samples_per_second": 1234.0}, "totals": {}})
    yield event(steps, "hint", {"code": "x", "message": "Too fast.", "remedy": hint})
    yield event(steps, "end", {"reason": "finished", "steps": steps, "seconds": 2.0})


def watched(events: Iterator[Event], console: Console, **how: bool) -> tuple[list[Event], Summary]:
    passed = []
    generator = watch(events, console, **how)
    while True:
        try:
            passed.append(next(generator))
        except StopIteration as end:
            return passed, end.value


def terminal(width: int = 80, **more: Any) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, **more)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_events_pass_through_and_the_end_is_summed_up() -> None:
    passed, summary = watched(run_events(), terminal(), quiet=True)
    assert passed == list(run_events())
    assert summary == Summary("pole", "finished", 20, 23.0, 400.0, 21.0, 1, None)


def test_quiet_shows_nothing() -> None:
    console = terminal()
    watched(run_events(), console, quiet=True)
    assert printed(console) == ""


@pytest.mark.parametrize(("force", "json_wanted"), [(False, False), (True, True)])
def test_where_nobody_watches_each_event_is_one_line_of_json(force: bool, json_wanted: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=force)
    watched(run_events(), console, json=json_wanted)
    assert printed(console).encode() == b"".join(encode(event) for event in run_events())
    assert [json.loads(line)["seq"] for line in printed(console).splitlines()] == list(range(24))


def test_a_pipe_gets_each_line_at_once() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(writing, "w", encoding="ascii") as out, open(reading, "rb", buffering=0) as back:
        for event in watch(run_events(name="pôle"), Console(file=out)):
            assert back.read(100_000) == encode(event)


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_console import run_events
from groupwise.training.console import watch
seen = sum(1 for _ in watch(run_events(2000)))
Path({out!r}).write_text(str(seen))
print("what a command says at the end")
"""


def child(tmp_path: Path) -> list[str]:
    code = CHILD.format(folder=str(Path(__file__).parent), out=str(tmp_path / "seen"))
    return [sys.executable, "-c", code]


def test_a_reader_that_goes_away_does_not_stop_the_run(tmp_path: Path) -> None:
    process = subprocess.Popen(child(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0
    assert (tmp_path / "seen").read_text() == "2004"


def in_terminal(command: list[str], **env: str) -> str:
    """What a program writes to a real pseudo-terminal of 80 columns."""
    master, slave = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env=base | {"COLUMNS": "80", **env})
    os.close(slave)
    out = b""
    try:
        while chunk := os.read(master, 65536):
            out += chunk
    except OSError:
        # Linux says that the other end is closed by an error.
        pass
    finally:
        os.close(master)
    assert process.wait(30) == 0
    return out.decode()


def test_a_terminal_gets_a_display_that_is_redrawn_in_place(tmp_path: Path) -> None:
    out = in_terminal(child(tmp_path), TERM="xterm-256color")
    assert "2000/2000" in out
    assert "\x1b[33m" in out, "hints are yellow"
    assert "\x1b[2K" in out, "the display is drawn again in place"
    assert out.endswith("\x1b[?25h") or "\x1b[?25h" in out[-40:], "the cursor comes back"


def test_no_color_is_respected(tmp_path: Path) -> None:
    out = in_terminal(child(tmp_path), TERM="xterm-256color", NO_COLOR="1")
    assert "2000/2000" in out
    assert not re.findall(r"\x1b\[[0-9;]*(?:3[0-7]|38;5;\d+|9[0-7])m", out)


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    out = in_terminal(child(tmp_path), TERM="dumb")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].startswith("step 1/2000")
    assert lines[-2].startswith("step 2000/2000")
    assert any(line.startswith("Hint at step 2000: Too fast. Try less.") for line in lines)
    assert len(lines) < 20


@pytest.mark.parametrize("width", [30, 59, 60, 80, 120, 200])
def test_the_display_fits_the_terminal(width: int) -> None:
    console = terminal(width, color_system=None)
    name = "a-very-long-run-name-" * 5
    console.print(live_view(History.of(run_events(name=name)), console, elapsed=3725.0))
    lines = printed(console).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 14
    text = " ".join(lines)
    for number in ("20/20", "400", "25%", "1,234"):
        assert number in text
    assert "failed" not in text, "no attempt has failed, so there is no need to speak of it"


def test_time_left_counts_only_the_steps_of_this_attempt() -> None:
    console = terminal(80, color_system=None)
    events = [e for e in run_events(100) if e.step <= 60]
    console.print(live_view(History.of(events), console, elapsed=100.0, first_step=40))
    assert "1:40  3:20 left" in printed(console)


def test_control_characters_from_a_run_never_reach_the_terminal() -> None:
    evil = "evil\x1b]0;owned\x07\x1b[2J\r[bold]not markup[/bold]"
    console = terminal(200, color_system=None)
    watched(run_events(name=evil, hint=evil), console)
    out = printed(console)
    assert "\x1b]" not in out
    assert "\x1b[2J" not in out
    assert "\x07" not in out
    assert "[bold]not markup[/bold]" in out


def test_an_error_is_shown_with_its_hint_and_kept_in_the_summary() -> None:
    error = {"code": "storage", "message": "disk full", "hint": "Free some space.", "field": ""}
    console = terminal()
    event = Event("pole", 0, 1, 1.0, 3, "error", {"error": error})
    _, summary = watched(iter([event]), console)
    assert "Error: disk full Free some space." in re.sub(r"\x1b\[[\d;]*m", "", printed(console))
    assert summary.error == error
    assert summary.reason == "interrupted"


def test_the_display_is_taken_down_when_the_run_raises() -> None:
    def broken() -> Iterator[Event]:
        yield from list(run_events())[:5]
        raise KeyboardInterrupt

    console = terminal()
    with pytest.raises(KeyboardInterrupt):
        watched(broken(), console)
    assert printed(console).rstrip("\n").endswith("\x1b[?25h")


def test_a_long_run_is_drawn_quickly() -> None:
    history = History.of(run_events(20_000))
    console = terminal()
    began = time.perf_counter()
    console.print(live_view(history, console, 10.0))
    assert time.perf_counter() - began < 0.5


def test_a_rewind_forgets_the_steps_that_are_made_again() -> None:
    events = list(run_events(20))
    again = Event("pole", 12, 2, 2000.0, 8, "start", {"config": {}, "resumed_from": 8, "total_steps": 20})
    history = History.of([*events, again])
    assert history.series("reward/mean")[0] == list(range(1, 9))
    assert history.end is None
    assert history.hints == []


def test_a_series_grows_with_its_run() -> None:
    history = History()
    lengths = []
    for event in run_events(3):
        history.add(event)
        lengths.append(len(history.series("reward/mean")[0]))
    assert lengths == [0, 0, 1, 2, 3, 3, 3]


def test_curve_goes_from_corner_to_corner() -> None:
    lines = curve([0.0, 1.0], 20, 4).splitlines()
    assert lines[0].startswith("1 │")
    assert lines[3].startswith("0 │")
    assert lines[0].rstrip()[-1] == "⠉" or ord(lines[0].rstrip()[-1]) & 0x08, "the last dot is at the top right"
    assert ord(lines[3][3]) & 0x40, "the first dot is at the bottom left"
    assert lines[4].split() == ["1", "2"]


@pytest.mark.parametrize("width", [12, 40, 80])
@pytest.mark.parametrize("height", [2, 5, 10])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_curve_stays_in_its_box_without_gaps(width: int, height: int, ascii_only: bool) -> None:
    values = [math.sin(i / 9) * 1000 for i in range(500)]
    lines = curve(values, width, height, ascii_only=ascii_only).splitlines()
    assert len(lines) == height + 1
    assert max(map(len, lines)) <= width
    columns = [line.ljust(width) for line in lines[:-1]]
    start = lines[0].index("|" if ascii_only else "│") + 1
    assert all(any(line[x] != " " for line in columns) for x in range(start, max(map(len, lines))))
    assert ascii_only == "".join(lines).isascii()


def test_curve_joins_a_jump() -> None:
    lines = curve([0.0] * 20 + [1.0] * 20, 40, 8).splitlines()[:-1]
    assert all(line.partition("│")[2].strip() for line in lines)


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [0.0, 0.0], [None, math.nan, 2.0], [1e-9, 1e9]])
def test_curve_takes_whatever_a_run_gives(values: list[float | None]) -> None:
    assert len(curve(values, 40, 5).splitlines()) == 6


def test_curve_of_nothing_says_so() -> None:
    assert curve([], 40, 5) == curve([None, math.nan], 40, 5) == "(no values yet)"


def test_resample_keeps_the_mean_and_the_ends() -> None:
    assert resample([1, 2, 3, 4], 2) == [1.5, 3.5]
    assert resample([0, 10], 5) == [0, 2.5, 5, 7.5, 10]
    assert len(resample(list(range(1000)), 77)) == 77


def test_summary_table_shows_first_extremes_and_last() -> None:
    console = terminal(80, color_system=None)
    console.print(summary_table(run_events()))
    rows = {line.split("  ")[0].strip(): line.split()[-4:] for line in printed(console).splitlines()}
    assert rows["reward"] == ["20", "20", "400", "400"]
    assert "pole: finished, 20 steps" in printed(console)
    assert "Too fast." in printed(console)


def test_runs_table_has_a_row_for_each_run() -> None:
    run = SimpleNamespace(
        id="pole-\x1b[2J", state="running", step=3, total=20, updated=0.0, metrics={"reward/mean": 12.5}
    )
    console = terminal(80, color_system=None)
    console.print(runs_table([run]))  # type: ignore[list-item]
    heading, row = printed(console).splitlines()
    assert heading.split() == ["run", "state", "step", "reward", "evaluation", "updated"]
    assert row.split()[:5] == ["pole-�[2J", "running", "3/20", "12.5", "–"]


def test_clock_reads_like_a_clock() -> None:
    assert [clock(s) for s in (0, 59.9, 60, 3725)] == ["0:00", "0:59", "1:00", "1:02:05"]
