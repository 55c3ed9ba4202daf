"""Run folders of version 0.1.0 (commit b283e55), one per kind of policy, still show, resume and export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import main
from groupwise.training.events import read_events

OLD = Path(__file__).parents[1] / "fixtures" / "old_runs"
RESUMED = json.loads((OLD / "resumed_to_4.json").read_text())
RUNS = ("control", "language", "designer")


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an old run, two steps long, in the folder that its settings name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD / request.param, tmp_path / "runs" / request.param)
    return tmp_path / "runs" / request.param


def call(*words: str) -> int:
    try:
        main([*words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_an_old_run_is_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("show", run.name, "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def test_an_old_run_is_resumed_to_the_numbers_it_would_have_had(run: Path) -> None:
    """The numbers of control and language were recorded with the version that made the runs.

    Those of the designer were recorded anew whenever designs came to be evaluated differently. Another processor may
    round differently.
    """
    assert call("resume", run.name, "--set", "training.num_episodes=4", "--quiet") == 0
    found: dict[str, dict[str, Any]] = {"step": {}, "eval": {}}
    for event in read_events(run / "events.jsonl"):
        if event.type in found and event.step > 2:
            found[event.type][str(event.step)] = event.data["metrics"]
    for kind, steps in RESUMED[run.name].items():
        assert found[kind].keys() == steps.keys()
        for step, metrics in steps.items():
            shared = {name: found[kind][step][name] for name in metrics}
            assert shared == pytest.approx(metrics, rel=1e-4, abs=1e-6)


def test_an_old_language_run_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD / "language", tmp_path / "runs" / "language")
    assert call("export", "language", "model") == 0
    assert (tmp_path / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", RUNS)
def test_old_settings_are_read_and_say_what_no_longer_counts(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 0.1.0 wrote the sections of every product into every run's settings."""
    monkeypatch.chdir(tmp_path)
    assert call("config", "check", str(OLD / name / "config.toml")) == 0
    said = capsys.readouterr()
    assert "no effect" in said.out + said.err
