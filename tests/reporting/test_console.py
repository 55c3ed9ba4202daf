"""What a terminal, a pipe and a dumb terminal get to see of a run."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from groupwise.reporting.console import closing, live_view, one_line, watch
from groupwise.reporting.history import History
from groupwise.reporting.summary import Summary
from groupwise.training.events import DAMAGE, encode
from groupwise.types import Event

RunEvents = Callable[..., Iterator[Event]]


def watched(events: Iterator[Event], console: Console, **how: Any) -> tuple[list[Event], Summary]:
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


def test_events_pass_through_and_the_end_is_summed_up(run_events: RunEvents) -> None:
    passed, summary = watched(run_events(), terminal(), quiet=True)
    assert passed == list(run_events())
    assert summary == Summary("pole", "finished", 20, 23.0, 400.0, 21.0, 1, None)


def test_quiet_shows_nothing(run_events: RunEvents) -> None:
    console = terminal()
    watched(run_events(), console, quiet=True)
    assert printed(console) == ""


@pytest.mark.parametrize("force", [False, True])
def test_json_is_one_line_per_event_whether_or_not_it_is_a_terminal(force: bool, run_events: RunEvents) -> None:
    console = Console(file=io.StringIO(), force_terminal=force)
    watched(run_events(), console, json=True)
    assert printed(console).encode() == b"".join(encode(event) for event in run_events())
    assert [json.loads(line)["seq"] for line in printed(console).splitlines()] == list(range(24))


def test_a_pipe_gets_each_line_of_json_at_once(run_events: RunEvents) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(writing, "w", encoding="ascii") as out, open(reading, "rb", buffering=0) as back:
        for event in watch(run_events(name="pôle"), Console(file=out), json=True):
            assert back.read(100_000) == encode(event)


def test_a_file_gets_plain_lines(run_events: RunEvents) -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    watched(run_events(last_evaluation=480.0), console)
    lines = printed(console).splitlines()
    assert lines[0] == "step 0/20  evaluation 21"
    assert lines[-2].startswith("step 20/20  reward 400  evaluation 480")
    assert lines[-1] == "Evaluation reward rose from 21 before training to 480 after step 20."
    assert "Hint at step 20: Too fast. Try less." in lines


def test_right_answers_are_shown_beside_the_reward() -> None:
    metrics = {"eval/reward_mean": 1.0, "eval/accuracy": 0.0}
    events = [
        Event("sums", 0, 1, 1000.0, 0, "start", {"config": {}, "resumed_from": None, "env": {}, "total_steps": 2}),
        Event("sums", 1, 1, 1001.0, 0, "eval", {"metrics": metrics, "timing": {}}),
    ]
    console = Console(file=io.StringIO(), force_terminal=False)
    watched(iter(events), console)
    assert printed(console).splitlines() == ["step 0/2  evaluation 1  correct 0%"]
    console = terminal(120, color_system=None)
    watched(iter(events), console)
    assert re.search(r"correct +0%", printed(console))


def test_a_hint_about_user_code_shows_its_traceback_line_by_line() -> None:
    trace = '  File "r.py", line 2, in mine\n    return 1 / 0\nZeroDivisionError: division by \x1b[2Jzero'
    data = {"code": "reward_raised", "message": "mine raised.", "remedy": "Correct it.", "traceback": trace}
    console = Console(file=io.StringIO(), force_terminal=False)
    watched(iter([Event("sums", 0, 1, 1000.0, 3, "hint", data)]), console)
    assert printed(console).splitlines() == [
        "Hint at step 3: mine raised. Correct it.",
        '  File "r.py", line 2, in mine',
        "    return 1 / 0",
        "ZeroDivisionError: division by �[2Jzero",
    ]


def test_a_stream_that_lacks_a_character_gets_a_question_mark(run_events: RunEvents) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, "ascii", write_through=True), force_terminal=False)
    watched(run_events(hint="Zurück – jetzt"), console)
    assert b"Hint at step 20: Too fast. Zur?ck - jetzt" in raw.getvalue()


def test_a_resumed_run_is_shown_from_its_start(run_events: RunEvents) -> None:
    events = list(run_events(last_evaluation=480.0))
    resumed = Event("pole", 99, 2, 2000.0, 10, "start", {"resumed_from": 10, "total_steps": 20})
    console = terminal(120, color_system=None)
    later = [event for event in events if event.step > 10]
    _, summary = watched(iter([resumed, *later]), console, earlier=events[:15])
    assert "rose from 21 before training to 480 after step 20" in printed(console)
    assert summary.steps == 20


def test_a_run_that_ends_early_says_so_beside_its_bar(run_events: RunEvents) -> None:
    history = History.of([e for e in run_events(100) if e.step <= 16])
    history.add(Event("pole", 99, 1, 2000.0, 16, "end", {"reason": "early_stopping"}))
    console = terminal(120, color_system=None)
    console.print(live_view(history, console, elapsed=10.0))
    first = printed(console).splitlines()[0]
    assert "16/100" in first
    assert "stopped early: no more improvement" in first
    assert "left" not in first


def test_a_supervised_run_shows_its_loss() -> None:
    metrics = {"reward/mean": 0.4, "loss/supervised": 0.91, "policy/kl": 0.0, "policy/clip_low": 0.0}
    history = History(steps={1: {"metrics": metrics}}, total_steps=10)
    console = terminal(100, color_system=None)
    console.print(live_view(history, console, elapsed=1.0))
    text = printed(console)
    assert "loss" in text
    assert "0.91" in text
    for foreign in ("KL", "clipped", "no spread", "reward"):
        assert foreign not in text


@pytest.mark.parametrize(("gap", "shown"), [(0.031, "0.031"), (2e-6, "rounding"), (None, None)])
def test_the_gap_between_sampler_and_learner_is_shown_where_there_is_a_sampler(gap: float, shown: str | None) -> None:
    metrics = {"reward/mean": 0.4} | ({} if gap is None else {"sampler/ratio_gap": gap})
    history = History(steps={1: {"metrics": metrics}}, total_steps=10)
    console = terminal(100, color_system=None)
    console.print(live_view(history, console, elapsed=1.0))
    rows = [line.split() for line in printed(console).splitlines() if "sampler gap" in line]
    assert [row[row.index("gap") + 1] for row in rows] == ([] if shown is None else [shown])


CHILD = """
import sys
import time
from pathlib import Path
from groupwise.reporting.console import watch
from groupwise.training.events import read_events
folder = Path(sys.argv[1])
def events():
    for number, event in enumerate(read_events(folder / "events.jsonl")):
        while number == 1000 and "--wait" in sys.argv and not (folder / "closed").exists():
            time.sleep(0.01)
        yield event
seen = sum(1 for _ in watch(events()))
(folder / "seen").write_text(str(seen))
print("what a command says at the end")
"""


@pytest.fixture
def child(tmp_path: Path, run_events: RunEvents) -> list[str]:
    """A program that watches a run of 2000 steps."""
    (tmp_path / "events.jsonl").write_bytes(b"".join(map(encode, run_events(2000))))
    return [sys.executable, "-c", CHILD, str(tmp_path)]


def test_a_reader_that_goes_away_does_not_stop_the_run(tmp_path: Path, child: list[str]) -> None:
    process = subprocess.Popen([*child, "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    # Half of the run is still to come, however quick the program was.
    (tmp_path / "closed").touch()
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


def test_a_terminal_gets_a_display_that_is_redrawn_in_place(child: list[str]) -> None:
    out = in_terminal(child, TERM="xterm-256color")
    assert "2000/2000" in out
    assert "\x1b[33m" in out, "hints are yellow"
    assert "\x1b[2K" in out, "the display is drawn again in place"
    assert out.endswith("\x1b[?25h") or "\x1b[?25h" in out[-40:], "the cursor comes back"


def test_no_color_is_respected(child: list[str]) -> None:
    out = in_terminal(child, TERM="xterm-256color", NO_COLOR="1")
    assert "2000/2000" in out
    assert not re.findall(r"\x1b\[[0-9;]*(?:3[0-7]|38;5;\d+|9[0-7])m", out)


def test_a_dumb_terminal_gets_plain_lines(child: list[str]) -> None:
    out = in_terminal(child, TERM="dumb")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].startswith("step 0/2000")
    assert lines[-2].startswith("step 2000/2000")
    assert any(line.startswith("Hint at step 2000: Too fast. Try less.") for line in lines)
    assert len(lines) < 20


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_is_left_with_the_first_and_the_last_evaluation(run_events: RunEvents, term: str) -> None:
    console = terminal(120, _environ={"TERM": term}, color_system=None)
    watched(run_events(last_evaluation=480.0), console)
    last = printed(console).replace("\x1b[?25h", "").rstrip().splitlines()[-1]
    assert last == "Evaluation reward rose from 21 before training to 480 after step 20."


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_without_an_end_or_a_second_evaluation_nothing_is_compared(run_events: RunEvents, term: str) -> None:
    interrupted = [event for event in run_events(last_evaluation=480.0) if event.type != "end"]
    for events in (interrupted, run_events()):
        console = terminal(120, _environ={"TERM": term}, color_system=None)
        watched(iter(events), console)
        assert "Evaluation reward" not in printed(console)


@pytest.mark.parametrize("width", [30, 59, 60, 80, 120, 200])
def test_the_display_fits_the_terminal(width: int, run_events: RunEvents) -> None:
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


def test_time_left_counts_only_the_steps_of_this_attempt(run_events: RunEvents) -> None:
    console = terminal(80, color_system=None)
    events = [e for e in run_events(100) if e.step <= 60]
    console.print(live_view(History.of(events), console, elapsed=100.0, first_step=40))
    assert "1:40  3:20 left" in printed(console)


def test_control_characters_from_a_run_never_reach_the_terminal(run_events: RunEvents) -> None:
    evil = "evil\x1b]0;owned\x07\x1b[2J\r[bold]not markup[/bold]"
    console = terminal(200, color_system=None)
    watched(run_events(name=evil, hint=evil), console)
    out = printed(console)
    assert "\x1b]" not in out
    assert "\x1b[2J" not in out
    assert "\x07" not in out
    assert "[bold]not markup[/bold]" in out


def test_an_error_is_kept_in_the_summary_and_left_to_whoever_catches_it() -> None:
    error = {"code": "storage", "message": "disk full", "hint": "Free some space.", "field": ""}
    console = terminal()
    event = Event("pole", 0, 1, 1.0, 3, "error", {"error": error})
    _, summary = watched(iter([event]), console)
    assert "disk full" not in printed(console)
    assert summary.error == error
    assert summary.reason == "interrupted"


def test_the_display_is_taken_down_when_the_run_raises(run_events: RunEvents) -> None:
    def broken() -> Iterator[Event]:
        yield from list(run_events())[:5]
        raise KeyboardInterrupt

    console = terminal()
    with pytest.raises(KeyboardInterrupt):
        watched(broken(), console)
    assert printed(console).rstrip("\n").endswith("\x1b[?25h")


def test_drawing_a_long_run_makes_about_one_call_per_step(run_events: RunEvents) -> None:
    def calls(steps: int) -> int:
        history, console, count = History.of(run_events(steps)), terminal(), 0
        history.series("reward/mean")  # Series are kept between events.

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            console.print(live_view(history, console, 10.0))
        finally:
            sys.setprofile(None)
        return count

    assert calls(20_000) < 2 * 20_000


def one_step(**metrics: float) -> History:
    names = {name.replace("__", "/"): value for name, value in metrics.items()}
    rows = {1: {"metrics": {name: value for name, value in names.items() if not name.startswith("eval")}}}
    evals = {0: {"metrics": {name: value for name, value in names.items() if name.startswith("eval")}}}
    return History(steps=dict(rows), evals=dict(evals), total_steps=10)


def drawn(history: History, width: int = 120, elapsed: float = 10.0, first: int = 0) -> str:
    console = terminal(width, color_system=None)
    console.print(live_view(history, console, elapsed, first))
    return printed(console)


@pytest.mark.parametrize(
    ("metrics", "row"),
    [
        ({"groups__failed_share": 0.0}, None),
        ({"groups__failed_share": 0.25}, r"failed +25%"),
        ({}, None),
        ({"eval__accuracy": 0.0}, r"correct +0%"),
        ({"reward__mean": 0.5}, r"reward +0\.5"),
        ({}, r"reward +–"),
        ({}, r"evaluation +–"),
        ({"policy__kl": 0.0}, r"KL +0\b"),
    ],
)
def test_numbers_are_shown_and_those_that_do_not_concern_a_run_are_not(
    metrics: dict[str, float], row: str | None
) -> None:
    text = drawn(one_step(**metrics))
    assert (re.search(row, text) is not None) if row else not re.search(r"failed|correct|sampler gap", text)


@pytest.mark.parametrize(
    ("step", "total", "first", "elapsed", "left"),
    [
        (10, 40, 0, 100.0, "5:00 left"),
        (10, 40, 5, 100.0, "10:00 left"),
        (10, 10, 0, 100.0, None),
        (10, 40, 10, 100.0, None),
        (10, 0, 0, 100.0, None),
        (1, 2, 0, 59.9, "0:59 left"),
    ],
)
def test_the_time_left_is_that_of_the_steps_to_come_at_the_pace_so_far(
    step: int, total: int, first: int, elapsed: float, left: str | None
) -> None:
    history = History(run="pole", steps={step: {}}, total_steps=total)
    line = drawn(history, elapsed=elapsed, first=first).splitlines()[0]
    assert line.rstrip().endswith(left) if left else "left" not in line
    assert (f"{step}/{total}" if total else f"step {step}") in line


@pytest.mark.parametrize(("step", "words"), [(4, "stopped by hand"), (10, None)])
def test_a_run_that_ended_before_its_last_step_says_why(step: int, words: str | None) -> None:
    history = History(run="pole", steps={step: {}}, total_steps=10, end={"reason": "stopped"})
    line = drawn(history).splitlines()[0]
    assert (words in line) if words else "stopped" not in line
    assert "left" not in line


@pytest.mark.parametrize(("width", "curve"), [(59, False), (60, True)])
def test_a_narrow_terminal_has_no_curve(width: int, curve: bool) -> None:
    history = History(steps={n: {"metrics": {"reward/mean": float(n)}} for n in range(1, 9)}, total_steps=10)
    assert ("│" in drawn(history, width)) is curve


def test_a_line_has_the_step_and_the_numbers_that_there_are() -> None:
    history = one_step(reward__mean=2.0, eval__reward_mean=3.0, eval__accuracy=0.5)
    assert one_line(history) == "step 1/10  reward 2  evaluation 3  correct 50%"
    assert one_line(history, ("evaluation", "correct")) == "step 1/10  evaluation 3  correct 50%"
    assert one_line(History(total_steps=3)) == "step 0/3"


@pytest.mark.parametrize(
    ("interval", "steps"),
    [(1e9, ["0/4", "1/4", "4/4", "4/4"]), (0.0, ["0/4", "1/4", "2/4", "3/4", "4/4", "4/4", "4/4"])],
)
def test_a_file_gets_a_line_now_and_then_and_for_each_evaluation_and_the_end(
    interval: float, steps: list[str], run_events: RunEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.reporting.console.PLAIN_INTERVAL", interval)
    console = Console(file=io.StringIO(), force_terminal=False)
    watched(run_events(4, last_evaluation=480.0), console)
    assert [line.split()[1] for line in printed(console).splitlines() if line.startswith("step")] == steps


def test_the_end_compares_two_evaluations_and_needs_both(run_events: RunEvents) -> None:
    events = list(run_events(5, last_evaluation=9.0))
    assert str(closing(History.of(events))).startswith("Evaluation reward")
    assert closing(History.of(event for event in events if event.type != "end")) is None
    assert closing(History.of(run_events(5))) is None


def test_damage_to_a_runs_files_is_told_even_if_nothing_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    def hint(code: str) -> Event:
        return Event("pole", 0, 1, 1.0, 3, "hint", {"code": code, "message": "lost\x1b line", "remedy": "x"})

    console = terminal()
    watched(iter([hint("reward_flat")]), console, quiet=True)
    assert capsys.readouterr().err == ""
    watched(iter([hint(DAMAGE)]), console, quiet=True)
    assert capsys.readouterr().err == "note: lost� line\n"
    assert printed(console) == ""
