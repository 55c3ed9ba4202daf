"""Run folders from strangers: nothing in one may break the others, leave its folder or pass for sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run as command
from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.errors import RunError, RunLocked
from groupwise.training.control_file import pending_commands, send_command
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, inspect_runs
from groupwise.training.run import Run
from groupwise.training.session import execute

Configure = Callable[..., TrainingConfig]

ODD = [
    {"step": "a"}, {"step": None}, {"step": 10**400}, {"step": -1}, {"time": "x"}, {"time": 1e300}, {"attempt": "q"},
    {"attempt": []}, {"data": "s"}, {"data": [1]}, {"data": {"metrics": [1]}}, {"data": {"metrics": {"a": 1.7e308}}},
    {"data": {"metrics": {"a": "high"}}}, {"v": 0}, {"type": "start", "data": {"total_steps": "many"}},
    {"type": "error", "data": {"error": []}}, {"type": "nonsense"}, {"run": 7},
]  # fmt: skip


@pytest.fixture
def finished(small_config: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    path = create_run(small_config(run_name="x", output_dir="runs"))
    list(execute(path, build))
    return path


@pytest.mark.parametrize("change", ODD, ids=str)
def test_an_odd_event_ends_the_sound_part_of_a_log_and_breaks_no_command(
    finished: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    log = finished / "events.jsonl"
    sound = len(read_events(log))
    event = json.loads(log.read_text().splitlines()[-2]) | {"seq": sound} | change
    log.write_text(log.read_text() + json.dumps(event) + "\n")
    (finished / "status.json").unlink()
    assert len(read_events(log)) == sound
    for words in (["runs"], ["show", "x"], ["plot", "x"], ["report", "x"]):
        assert command(words) == 0, words
    assert "should not happen" not in capsys.readouterr().err


@pytest.mark.parametrize("line", ["[" * 200_000, "{", "", "\x00", '{"v": NaN}'])
def test_a_line_that_is_no_event_is_survived(finished: Path, line: str) -> None:
    log = finished / "events.jsonl"
    sound = len(read_events(log))
    log.write_text(log.read_text() + line + "\n")
    assert len(read_events(log)) == sound


@pytest.mark.parametrize("name", ["status.json", "events.jsonl", "config.toml"])
@pytest.mark.parametrize("content", ["[]", "null", "{" * 100_000, '{"state": "running", "step": "a"}', "\udcff"])
def test_one_bad_run_does_not_hide_the_others(finished: Path, small_config: Configure, name: str, content: str) -> None:
    other = create_run(small_config(run_name="other", output_dir="runs"))
    (other / name).write_bytes(content.encode("utf8", "surrogateescape"))
    assert {info.id for info in inspect_runs(Path("runs"))} == {"x", "other"}


@pytest.mark.parametrize("name", ["groups", "checkpoints", "events.jsonl", "damaged", "control.jsonl"])
def test_a_link_out_of_the_run_folder_is_refused(finished: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    if (finished / name).exists():
        (finished / name).rename(outside)
    else:
        outside.mkdir()
    (finished / name).symlink_to(outside)
    with pytest.raises(RunError, match="is a symbolic link"):
        Run(finished)
    assert outside.exists()


def test_escape_sequences_do_not_reach_the_terminal(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = finished / "events.jsonl"
    event = json.loads(log.read_text().splitlines()[-1])
    data = {"code": "x", "message": "\x1b]0;PWNED\x07\x1b[2J", "remedy": "[bold]x"}
    event |= {"seq": len(read_events(log)), "type": "hint", "data": data}
    log.write_text(log.read_text() + json.dumps(event) + "\n")
    assert command(["show", "x"]) == 0
    assert "\x1b]0" not in capsys.readouterr().out


def test_settings_edited_by_hand_are_not_used_and_that_is_said(finished: Path) -> None:
    config = finished / "config.toml"
    config.write_text(config.read_text().replace("learning_rate = 0.003", "learning_rate = 0.5"))
    events = list(execute(finished, build))
    assert events[0].data["config"]["optim"]["learning_rate"] == 0.003
    assert any("edited or damaged" in e.data["message"] for e in events if e.type == "hint")


def test_a_refused_resume_does_not_void_an_order_to_stop(finished: Path) -> None:
    held = Run(finished)
    send_command(finished, "stop")
    with pytest.raises(RunLocked):
        next(execute(finished, build, by_hand=True))
    assert [order.op for order in pending_commands(finished / "control.jsonl", ())] == ["stop"]
    held.close()


def test_a_run_may_not_be_called_latest(small_config: Configure) -> None:
    with pytest.raises(RunError, match="latest"):
        create_run(small_config(run_name="latest"))


def test_settings_no_run_can_be_made_of_leave_no_folder(
    small_config: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text(small_config(output_dir="runs", environment="Pong").to_toml())
    assert command(["train", "bad.toml"]) == 2
    assert command(["config", "check", "bad.toml"]) == 2
    assert not (tmp_path / "runs").exists()


def test_a_device_that_is_not_there_is_refused_at_once(small_config: Configure) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(ValueError, match="policy.device = 'cuda' is not available"):
        list(execute(create_run(small_config(device="cuda")), build))


def test_settings_without_effect_are_pointed_out(small_config: Configure) -> None:
    events = list(execute(create_run(small_config(scale_group="length", num_generations=1)), build))
    told = " ".join(e.data["message"] for e in events if e.type == "hint")
    assert "grouping.scale_group = 'length' has no effect" in told
    assert "a group of one" in told
