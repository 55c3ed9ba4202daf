"""Run folders from outside: their names, their settings and their state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import RunError, RunNotFound
from groupwise.training import control_file
from groupwise.training.control_file import pending_commands, send_command
from groupwise.training.events import EventLog
from groupwise.training.folder import (
    create_run,
    find_run,
    inspect_run,
    inspect_runs,
    is_run,
    latest_metrics,
    read_config,
    run_folders,
    sound_config,
    state_after,
)
from groupwise.training.run import Run
from groupwise.types import Event, GroupRecord

Configure = Callable[..., TrainingConfig]


def event(seq: int, kind: str, step: int = 0, attempt: int = 1, **data: Any) -> Event:
    return Event("r", seq, attempt, 100.0 + seq, step, kind, {"error": {}, **data} if kind == "error" else data)


def write_log(path: Path, *events: Event) -> None:
    log = EventLog(path / "events.jsonl")
    for made in events:
        log.append(made)
    log.close()


@pytest.mark.parametrize(("environment", "product", "name"), [
    ("CartPole-v1", "control", "cartpole"), ("Acrobot-v1", "control", "acrobot"), ("addition", "language", "addition"),
])  # fmt: skip
def test_runs_are_numbered_after_what_they_train_on(
    small_config: Configure, environment: str, product: str, name: str
) -> None:
    cfg = small_config(environment=environment, product=product, model_name="tiny" if product == "language" else None)
    assert [create_run(cfg).name for _ in range(3)] == [f"{name}-{n}" for n in (1, 2, 3)]


def test_a_number_that_is_taken_by_anything_is_passed_over(small_config: Configure) -> None:
    cfg = small_config()
    base = Path(cfg.run.output_dir)
    base.mkdir(parents=True)
    (base / "cartpole-1").write_text("a file")
    (base / "cartpole-2").symlink_to("nowhere")
    (base / "cartpole-3").mkdir()
    assert create_run(cfg).name == "cartpole-4"
    assert sorted(p.name for p in base.iterdir()) == [f"cartpole-{n}" for n in (1, 2, 3, 4)]


def test_a_run_has_a_name_of_its_own_or_is_refused(small_config: Configure) -> None:
    path = create_run(small_config(run_name="mine"))
    assert path.name == "mine"
    with pytest.raises(RunError, match=r"a run named 'mine' already exists in .*\n.*groupwise resume .*mine"):
        create_run(small_config(run_name="mine"))


def test_settings_come_back_and_a_changed_byte_is_noticed(small_config: Configure) -> None:
    cfg = small_config(seed=77)
    path = create_run(cfg)
    assert read_config(path) == cfg
    content = (path / "config.toml").read_text()
    assert sound_config(path) == cfg.to_toml()
    for changed in (content.replace("seed = 77", "seed = 78"), content + "\n", content[:-1], "x" + content):
        (path / "config.toml").write_text(changed)
        assert sound_config(path) is None
        with pytest.raises(RunError, match="missing or damaged, and the event log has no copy"):
            read_config(path)
    (path / "config.toml").write_bytes(b"\xff" + content.encode()[1:])
    assert sound_config(path) is None, "a byte that is not UTF-8 is damage like any other"


def test_damaged_settings_are_those_of_the_last_start(small_config: Configure) -> None:
    path = create_run(small_config())
    (path / "config.toml").unlink()
    starts = [event(n, "start", config=small_config(seed=n).to_dict(), total_steps=6) for n in range(2)]
    write_log(path, *starts, event(2, "hint"))
    assert read_config(path).run.seed == 1


def test_a_run_is_found_by_path_by_name_and_as_the_latest(
    small_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second, third = (create_run(small_config(run_name=n, output_dir="runs")) for n in ("b", "a", "c"))
    for age, path in enumerate((second, third, first)):
        os.utime(path / "config.toml", (1000 - age, 1000 - age))
    assert find_run("latest") == second
    assert find_run("runs/b") == find_run("b") == first
    with pytest.raises(RunNotFound, match=r"no run 'x' here or in runs\nKnown runs: a, b, c\."):
        find_run("x")
    with pytest.raises(RunNotFound, match="Known runs: none yet"):
        find_run("latest", "elsewhere")
    (tmp_path / "b").mkdir()
    assert find_run("b") == first, "a folder of that name that is no run does not hide it"
    (tmp_path / "b" / "events.jsonl").write_text("")
    assert find_run("b") == Path("b")


@pytest.mark.parametrize(("name", "expected"), [
    ("config.toml", True), ("events.jsonl", True), ("checkpoints", True), ("status.json", False), ("groups", False),
])  # fmt: skip
def test_what_makes_a_folder_a_run(tmp_path: Path, name: str, expected: bool) -> None:
    (tmp_path / name).mkdir()
    assert is_run(tmp_path) is expected


def test_a_run_whose_creation_was_cut_short_is_not_listed(small_config: Configure) -> None:
    path = create_run(small_config(run_name="whole"))
    create_run(small_config(run_name="half")).rename(path.parent / ".half.123.tmp")
    (path.parent / "empty").mkdir()
    assert run_folders(path.parent) == [path]


@pytest.mark.parametrize(("kind", "state"), [
    ("end", "finished"), ("error", "failed"), ("step", "interrupted"), ("checkpoint", "interrupted"),
    (None, "created"),
])  # fmt: skip
def test_the_state_after_the_last_event(kind: str | None, state: str) -> None:
    assert state_after(event(0, kind) if kind else None) == state


def test_the_latest_value_of_every_metric_of_steps_and_evaluations() -> None:
    events = [
        event(0, "step", metrics={"a": 1.0, "b": 2.0}), event(1, "eval", metrics={"c": 3.0, "a": 4.0}),
        event(2, "hint", metrics={"a": 9.0}), event(3, "step", metrics={"b": None}), event(4, "end"),
    ]  # fmt: skip
    assert latest_metrics(events) == {"a": 4.0, "b": None, "c": 3.0}


def test_without_a_status_a_run_is_told_from_its_events(small_config: Configure) -> None:
    path = create_run(small_config())
    assert (inspect_run(path).state, inspect_run(path).step, inspect_run(path).attempt) == ("created", 0, 0)
    write_log(
        path, event(0, "start", total_steps=6), event(1, "step", 5, metrics={"x": 1.0}),
        event(2, "start", 2, attempt=2, total_steps=9), event(3, "step", 3, attempt=2, metrics={"x": 2.0}),
    )  # fmt: skip
    found = inspect_run(path)
    assert (found.state, found.step, found.total, found.attempt) == ("interrupted", 5, 9, 2)
    assert (found.updated, found.metrics, found.id) == (103.0, {"x": 2.0}, path.name)
    assert inspect_run(path, lambda where: {
        "state": "failed", "step": 1, "total": 2, "attempt": 3, "updated": 4, "metrics": {},
    }).state == "failed"  # fmt: skip


STATUS = {"state": "stopped", "step": 3, "total": 6, "attempt": 2, "updated": 50.0, "metrics": {"a": 1.0}}


@pytest.mark.parametrize(("changes", "trusted"), [
    ({}, True), ({"step": 0}, True), ({"updated": 9e10}, True), ({"metrics": {}}, True), ({"state": "created"}, True),
    ({"state": "odd"}, False), ({"step": -1}, False), ({"total": 1e11}, False), ({"attempt": "x"}, False),
    ({"updated": None}, False), ({"metrics": {"a": "b"}}, False), ({"metrics": None}, False), ({"step": []}, False),
])  # fmt: skip
def test_a_status_is_trusted_if_it_is_sound(small_config: Configure, changes: dict[str, Any], trusted: bool) -> None:
    path = create_run(small_config())
    (path / "status.json").write_text(json.dumps({**STATUS, **changes}))
    found = inspect_run(path)
    assert (found.attempt == 2) is trusted
    if trusted:
        assert found.state == changes.get("state", "stopped")


@pytest.mark.parametrize("name", ["state", "step", "total", "attempt", "updated", "metrics"])
def test_a_status_lacks_nothing(small_config: Configure, name: str) -> None:
    path = create_run(small_config())
    (path / "status.json").write_text(json.dumps({key: value for key, value in STATUS.items() if key != name}))
    assert inspect_run(path).state == "created"


def test_a_run_that_says_it_is_running_is_interrupted_unless_somebody_holds_its_lock(small_config: Configure) -> None:
    path = create_run(small_config())
    run = Run(path)
    run.set_status("running", 3, 6)
    assert inspect_run(path).state == "running"
    run.close()
    assert inspect_run(path).state == "interrupted"


def test_runs_are_listed_from_the_oldest_to_the_newest_and_damaged_ones_too(small_config: Configure) -> None:
    paths = [create_run(small_config(run_name=name)) for name in ("a", "b", "c")]
    for path, updated in zip(paths, (30.0, 10.0, 20.0), strict=True):
        (path / "status.json").write_text(json.dumps({**STATUS, "updated": updated}))
    assert [run.id for run in inspect_runs(paths[0].parent)] == ["b", "c", "a"]
    (paths[1] / "status.json").unlink()
    (paths[1] / "events.jsonl").write_text('{"v": 9}\n')
    assert {run.id: run.state for run in inspect_runs(paths[0].parent)} == {
        "a": "stopped",
        "b": "damaged",
        "c": "stopped",
    }


def control(path: Path, *lines: bytes | dict[str, Any]) -> list[tuple[str, str]]:
    with open(path, "ab") as file:
        for line in lines:
            file.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    return [(command.id, command.op) for command in pending_commands(path, ())]


def test_commands_are_read_line_by_line_and_only_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "control.jsonl"
    assert pending_commands(path, ()) == []
    assert control(path, {"id": "a", "op": "stop"}, b'{"id": "b", "op": "checkpoint"}') == [("a", "stop")]
    assert control(path, b"\n") == [("a", "stop"), ("b", "checkpoint")]
    assert [command.id for command in pending_commands(path, {"a"})] == ["b"]


@pytest.mark.parametrize(("line", "known"), [
    ({"id": "x" * 64, "op": "stop"}, True), ({"id": "x" * 65, "op": "stop"}, False), ({"id": "", "op": "stop"}, False),
    ({"id": "a-B_9", "op": "scale", "args": {"workers": 2}}, True), ({"id": "a b", "op": "stop"}, False),
    ({"id": "a/b", "op": "stop"}, False), ({"id": "é", "op": "stop"}, False), ({"id": "a", "op": "delete"}, False),
    ({"id": "a", "op": "stop", "args": None}, True), ({"id": "a", "op": "stop", "args": [1]}, False),
    ({"id": "a"}, False), ({"op": "stop"}, False), ({"id": 7, "op": "stop"}, True),
    ({"id": "a\n", "op": "stop"}, False),
])  # fmt: skip
def test_which_commands_are_known(tmp_path: Path, line: dict[str, Any], known: bool) -> None:
    assert bool(control(tmp_path / "control.jsonl", line)) is known


def test_a_line_is_read_up_to_its_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = b'{"id": "a", "op": "stop"}\n'
    monkeypatch.setattr(control_file, "LONGEST_LINE", len(line) - 1)
    assert control(tmp_path / "one", line) == [("a", "stop")]
    monkeypatch.setattr(control_file, "LONGEST_LINE", len(line) - 2)
    assert control(tmp_path / "two", line) == []


def test_resuming_cancels_what_came_before_except_a_scale(tmp_path: Path) -> None:
    lines = [{"id": name, "op": op} for name, op in (
        ("a", "stop"), ("b", "scale"), ("c", "checkpoint"), ("d", "resume"), ("e", "stop"))]  # fmt: skip
    assert control(tmp_path / "control.jsonl", *lines) == [("b", "scale"), ("e", "stop")]


def test_a_command_is_appended_after_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "control.jsonl").write_bytes(b'{"id": "torn')
    sent = send_command(tmp_path, "scale", {"workers": 3})
    assert pending_commands(tmp_path / "control.jsonl", ()) == [sent]
    assert (sent.op, sent.args) == ("scale", {"workers": 3})
    other = send_command(tmp_path, "stop")
    assert pending_commands(tmp_path / "control.jsonl", ()) == [sent, other]
    assert sent.id != other.id
    assert (tmp_path / "control.jsonl").read_bytes().count(b"\n") == 3
    with pytest.raises(RunError, match=r"unknown command 'delete'\nUse one of stop, checkpoint, scale, resume"):
        send_command(tmp_path, "delete")


RECORD = GroupRecord("g", "t", "g/m0", 1.0, {}, (), 0.5, 3, "finished", "", 4)


def test_an_attempt_is_numbered_after_the_last_that_left_a_trace(small_config: Configure) -> None:
    path = create_run(small_config())
    write_log(path, event(0, "start", attempt=4), event(1, "step", attempt=2))
    for expected in (5, 6):
        run = Run(path)
        assert run.attempt == expected, "the second time by the lock alone: no event was written"
        run.close()
    (path / "lock").write_bytes(b"not a note")
    run = Run(path)
    assert run.attempt == 1, "the log was cut to the beginning, as there is no checkpoint"
    run.close()


def test_a_run_opened_again_forgets_what_came_after_its_checkpoint(small_config: Configure) -> None:
    path = create_run(small_config())
    run = Run(path)
    for step in (1, 2, 3):
        run.emit("step", step, {"metrics": {"a": float(step)}})
        run.write_groups(step, [RECORD])
        if step == 2:
            run.save(step, {}, {}, 5)
    run.emit("control", 3, {"id": "later"})
    run.close()
    again = Run(path)
    assert again.checkpoint is not None
    assert (again.checkpoint.step, again.seq, again.attempt) == (2, 2, 2)
    assert sorted(p.name for p in (path / "groups").iterdir()) == ["000001.parquet", "000002.parquet"]
    again.set_status("running", 2, 6)
    assert inspect_run(path).metrics == {"a": 2.0}
    assert again.warnings == []
    send = send_command(path, "checkpoint")
    assert [c.id for c in again.commands()] == [send.id]
    assert list(again.commands()) == [], "each command once"
    again.emit("control", 2, {"id": send.id})
    again.save(2, {}, {}, 5)
    again.close()
    third = Run(path)
    assert list(third.commands()) == [], "nor again after a resume"
    third.close()


def test_a_run_resumed_by_hand_does_not_hear_earlier_orders(small_config: Configure) -> None:
    path = create_run(small_config())
    send_command(path, "stop")
    run = Run(path)
    assert [c.op for c in run.commands()] == ["stop"]
    run.close()
    run = Run(path, by_hand=True)
    assert list(run.commands()) == []
    run.close()


@pytest.mark.parametrize(("limit", "left"), [(1, ["000003"]), (2, ["000002", "000003"])])
def test_a_run_keeps_as_many_checkpoints_as_it_is_told(small_config: Configure, limit: int, left: list[str]) -> None:
    path = create_run(small_config())
    run = Run(path)
    for step in (1, 2, 3):
        run.emit("step", step, {})
        run.save(step, {}, {"n": step}, limit)
    run.close()
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == left


def test_an_event_is_numbered_dated_and_named_after_its_run(small_config: Configure) -> None:
    path = create_run(small_config(run_name="named"))
    run = Run(path)
    made = [run.emit("step", n, {"metrics": {"x": float("nan"), "y": n}}) for n in range(2)]
    assert [(e.run, e.seq, e.attempt, e.step) for e in made] == [("named", 0, 1, 0), ("named", 1, 1, 1)]
    assert made[1].data == {"metrics": {"x": None, "y": 1}}
    run.set_status("failed", 1, 6, error={"code": "x"})
    status = json.loads((path / "status.json").read_text())
    run.close()
    assert status | {"updated": 0} == {
        "v": 1, "run": "named", "state": "failed", "step": 1, "total": 6, "seq": 2, "attempt": 1, "pid": os.getpid(),
        "error": {"code": "x"}, "metrics": {"x": None, "y": 1}, "updated": 0,
    }  # fmt: skip
