"""`groupwise demo`, with its own settings made small: what it does and says. That it learns, a benchmark shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.agents import commands as demo
from groupwise.cli import run
from groupwise.config import load_config
from groupwise.training.folder import read_config

SMALL = {
    "column_addition_sft.toml": ["training.num_episodes=3", "run.eval_episodes=10"],
    "column_addition.toml": ["training.num_episodes=2", "run.eval_episodes=10", "rollout.tasks_per_step=4"],
}


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, changes in SMALL.items():
        (tmp_path / name).write_text(load_config(demo.SETTINGS / name, changes).to_toml())
    monkeypatch.setattr(demo, "SETTINGS", tmp_path)
    monkeypatch.chdir(tmp_path)


def test_it_makes_two_runs_the_second_from_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--seed", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seed"], told["finished"]) == (5, True)
    assert 0 <= told["before"] <= 1
    assert 0 < told["warm_seconds"] < told["seconds"]
    warm, grpo = read_config(Path(told["warm_start"])), read_config(Path(told["run"]))
    assert (warm.task.product, grpo.task.product) == ("warm-start", "language")
    assert Path(str(grpo.policy.model_name)) == Path(told["warm_start"]).resolve() / "checkpoints/000003"
    assert "What it answered, before and after" in Path(told["report"]).read_text()


def test_it_tells_before_and_after_and_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--seed", "5", "--runs-dir", "elsewhere"]) == 0
    told = capsys.readouterr().out
    for wanted in ("1. Warm start", "2. GRPO", "sum", "before", "of 10 unseen sums correct", "See the report:"):
        assert wanted in told
    report = next(line.split()[-1] for line in told.splitlines() if line.startswith("See the report:"))
    assert Path(report).is_file()
    assert report.startswith("elsewhere/")
    assert "Traceback" not in told
