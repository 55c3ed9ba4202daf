"""A sweep as people run it: real runs in real processes, interrupted and continued."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run
from groupwise.config import TrainingConfig, load_config
from groupwise.control.sweep.findings import findings_of
from groupwise.control.sweep.page import write_sweep
from groupwise.control.sweep.running import Sweep, make_plan
from groupwise.errors import ConfigError

SETTINGS = """
environment = "CartPole-v1"
estimator = "group_rtg"
advantage_scale = "batch_std"
num_generations = 4
tasks_per_step = 1
num_episodes = 4
per_device_train_batch_size = 256
gradient_accumulation_steps = 1
hidden_sizes = [8]
eval_steps = 1
eval_episodes = 5
save_steps = 1
threads = 1
"""
OVER = ["optim.learning_rate=1e-3:1e-2:log:4", "rollout.num_generations=2,4"]
WORDS = [word for over in OVER for word in ("--over", over)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "grpo.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    """A finished sweep of eight settings with one seed."""
    folder = tmp_path_factory.mktemp("done") / "sweep"
    plan = make_plan({"grpo": load_config(base)}, OVER, seeds=[0], files={"grpo": str(base)})
    told: list[tuple[float, int, int]] = []
    under_way = Sweep(folder, plan)
    result = under_way.run(2, lambda *counts: told.append(counts))
    assert told[-1] == (8.0, 8, 8)
    write_sweep(under_way, findings_of(result, repetitions=5), "groupwise sweep …")
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_has_the_table_the_figures_the_page_and_all_numbers(done: Path) -> None:
    rows = table(done)
    assert [row["state"] for row in rows] == ["finished"] * 8
    assert {row["rollout.num_generations"] for row in rows} == {"2", "4"}
    for name in ("importance-grpo", "surface-grpo", "responses-grpo", "shares"):
        assert (done / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert (done / "figures" / f"{name}.svg").is_file()
        assert len((done / "figures" / f"{name}.csv").read_text().splitlines()) > 2
    page = (done / "report.html").read_text()
    assert "<script" not in page
    assert "optim.learning_rate" in page

    found: dict[str, Any] = json.loads((done / "sweep.json").read_text())
    assert (found["v"], found["kind"], found["state"]) == (1, "sweep", "finished")
    assert found["score"]["solved"] == 475.0
    assert [axis["name"] for axis in found["axes"]] == ["optim.learning_rate", "rollout.num_generations"]
    assert len(found["trials"]) == 8
    assert float(rows[0]["score"]) == found["trials"][0]["seeds"][0]["score"] == found["trials"][0]["mean"]
    findings = found["findings"]["grpo"]
    surface = findings["surface"]
    assert len(surface["scores"]) == len(surface["y"]["values"])
    assert len(surface["scores"][0]) == len(surface["x"]["values"])
    best = max(found["trials"], key=lambda trial: trial["mean"])
    assert findings["recommendation"]["score"] == best["mean"]


def test_the_command_again_trains_nothing_and_more_seeds_train_only_those(
    done: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in (done / "courses").iterdir()}
    assert run(["sweep", str(base), *WORDS, "--seeds", "1", "--out", str(done), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["runs"]["finished"]) == ("finished", 8)
    assert {path: path.stat().st_mtime_ns for path in (done / "courses").iterdir()} == before
    plan = make_plan({"grpo": load_config(base)}, OVER, seeds=[0, 1])
    half = Sweep(done, plan).result()
    assert not half.finished
    assert {trial.state for trial in half.trials} == {"running"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gamma": 0.9}, r"grpo.toml has changed since this sweep began \(advantage.gamma: .* → 0.9\)"),
        ({"over": OVER[:1]}, "other ranges"),
        ({"method": "random"}, "other method: grid, and now random"),
        ({"name": "other"}, "other algorithms: grpo, and now other"),
    ],
)
def test_another_sweep_in_the_folder_is_refused(done: Path, base: Path, change: dict[str, Any], words: str) -> None:
    settings = {name: value for name, value in change.items() if name == "gamma"}
    cfg: TrainingConfig = load_config(base).replace(**settings)
    name = change.get("name", "grpo")
    method = change.get("method", "grid")
    plan = make_plan({name: cfg}, change.get("over", OVER), method=method, seeds=[0], files={name: "grpo.toml"})
    with pytest.raises(ConfigError, match=words):
        Sweep(done, plan)


def test_a_sweep_that_was_killed_ends_with_the_same_table(done: Path, base: Path, tmp_path: Path) -> None:
    assert_survives(done, base, tmp_path, kills=1)


@pytest.mark.long
def test_a_sweep_that_was_killed_five_times_ends_with_the_same_table(done: Path, base: Path, tmp_path: Path) -> None:
    assert_survives(done, base, tmp_path, kills=5)


def assert_survives(done: Path, base: Path, folder: Path, kills: int) -> None:
    """Kill the command at random moments, each after more runs have ended, and let it end at last."""
    chance, out = random.Random(os.urandom(8)), folder / "out"
    command = [sys.executable, "-m", "groupwise", "sweep", str(base), *WORDS, "--seeds", "1", "--out", str(out)]
    for kill in range(kills):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = max(1, 7 * kill // kills)  # so that every attempt has something left to do
        while len(list(out.glob("courses/*.json"))) < wanted or not list(out.glob("runs/*/events.jsonl")):
            assert running.poll() is None
            time.sleep(0.02)
        time.sleep(chance.random() * 0.3)
        running.send_signal(signal.SIGKILL)
        running.wait()
        half = json.loads((out / "sweep.json").read_text())
        assert half["state"] == "unfinished"
        assert len(half["trials"]) == 8
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert table(out) == table(done)


def test_a_suggestion_that_no_run_can_be_made_of_counts_as_failed(tmp_path: Path, base: Path) -> None:
    """Optuna cannot know which values go together, and a sweep must not end because of it."""
    ppo = TrainingConfig(product="ppo", environment="CartPole-v1", estimator="gae", eval_steps=1)
    plan = make_plan({"ppo": ppo}, ["advantage.estimator=gae,group_rtg"], method="optuna", settings=2, seeds=[0])
    under_way = Sweep(tmp_path, plan)
    under_way._add("ppo", [("group_rtg",), ("gae",)])
    first, second = under_way.result().trials
    assert (first.state, second.state) == ("failed", "waiting")
    assert "group_rtg" in first.runs[0].message
    assert [job.algorithm for job in under_way.jobs()] == ["ppo-0002"]
