"""Runs on several ranks, each a real process: the numbers of one process, whatever happens to the ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.config import load_config
from groupwise.control.grpo import build
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, read_config
from groupwise.training.session import execute

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "ranks.py"
GROUPWISE = [sys.executable, "-m", "groupwise"]
SETTINGS = """
[task]
product = "control"
[training]
num_episodes = {steps}
[rollout]
tasks_per_step = 2
num_generations = 4
[policy]
hidden_sizes = [8]
[ranks]
sharding = "{sharding}"
[run]
seed = 5
threads = 1
eval_steps = 4
eval_episodes = 4
save_steps = 2
output_dir = "{folder}"
run_name = "{name}"
"""


def settings_file(folder: Path, name: str, steps: int = 8, sharding: str = "ddp") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(SETTINGS.format(folder=folder, name=name, steps=steps, sharding=sharding))
    return path


def train_here(file: Path) -> None:
    cfg = load_config(file)
    deque(execute(create_run(cfg), build, cfg), maxlen=0)


def numbers(run: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, float]]]:
    """The weights at the end, and the metrics of all steps and evaluations."""
    last = max((run / "checkpoints").iterdir())
    metrics = [dict(e.data["metrics"]) for e in read_events(run / "events.jsonl") if e.type in ("step", "eval")]
    return load_file(last / "model.safetensors"), metrics


def assert_alike(one: Path, other: Path) -> None:
    (weights, metrics), (more_weights, more_metrics) = numbers(one), numbers(other)
    assert len(metrics) == len(more_metrics)
    for name, tensor in weights.items():
        assert torch.allclose(tensor, more_weights[name], atol=1e-5), name
    for step, same in zip(metrics, more_metrics, strict=True):
        assert step == pytest.approx(same, rel=1e-3, abs=1e-5)


def ranks_of(launcher: int) -> list[int]:
    """The processes of the ranks, in the order in which they were started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def wait_for_step(run: Path, step: int, process: subprocess.Popen[Any]) -> None:
    while process.poll() is None:
        events = read_events(run / "events.jsonl") if (run / "events.jsonl").exists() else []
        if any(event.type == "step" and event.step >= step for event in events):
            return
        time.sleep(0.02)
    raise AssertionError(f"the run ended with status {process.returncode} before step {step}")


def test_updates_and_checkpoints_do_not_depend_on_the_number_of_ranks() -> None:
    """Language (an adapter, a critic) and control, DDP and FSDP2, on 2 ranks against one process: see the benchmark."""
    found = subprocess.run([sys.executable, str(BENCHMARK), "--small", "--json"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-3000:]
    claims = json.loads(found.stdout.splitlines()[-1])["claims"]
    assert claims["rank_gap_float32"] <= 1e-5
    assert claims["rank_gap"] <= 1e-9
    assert claims["metrics_gap"] <= 1e-9
    assert claims["reshard_loaded"] == 0.0
    assert claims["reshard_gap"] <= 1e-9


def test_a_rank_is_killed_and_the_run_ends_as_in_one_process(tmp_path: Path) -> None:
    train_here(settings_file(tmp_path, "one"))
    command = [*GROUPWISE, "train", str(settings_file(tmp_path, "two")), "--quiet", "--ranks", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for_step(tmp_path / "two", 3, process)
    os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert "rank 1 was killed by signal SIGKILL" in said
    assert "restart 1 of 3" in said
    assert_alike(tmp_path / "one", tmp_path / "two")
    events = read_events(tmp_path / "two" / "events.jsonl")
    assert events[-1].data["reason"] == "finished"
    assert events[-1].attempt == 2
    # Longer, in one process, from the checkpoint of two ranks: that is said once.
    deque(execute(tmp_path / "two", build, read_config(tmp_path / "two").replace(num_episodes=9)), maxlen=0)
    events = read_events(tmp_path / "two" / "events.jsonl")
    assert [e.data["message"] for e in events if e.data.get("code") == "other_ranks"] == [
        "the checkpoint was written by 2 ranks; 1 rank goes on from it"
    ]


def by_hand(files: list[Path]) -> list[subprocess.Popen[str]]:
    """One rank for each settings file, started as a cluster's own launcher would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(files))}
    return [
        subprocess.Popen(
            [*GROUPWISE, "train", str(file), "--quiet"],
            env={**os.environ, **places, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, file in enumerate(files)
    ]


def test_ranks_with_different_settings_all_end_with_one_sentence(tmp_path: Path) -> None:
    files = [settings_file(tmp_path, name) for name in ("first", "second")]
    ranks = by_hand(files)
    said = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] != [0, 0]
    assert all(rank.returncode for rank in ranks)
    assert "rank 1 on" in said[0]
    assert "has run.run_name = 'second', but rank 0 has 'first'" in said[0]
    assert said[1] == ""
    assert not (tmp_path / "first").exists()


def test_more_ranks_than_groups_are_refused_before_anything_starts(tmp_path: Path) -> None:
    command = [*GROUPWISE, "train", str(settings_file(tmp_path, "many")), "--ranks", "3"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "3 ranks share 2 groups per step" in refused.stderr
    assert not (tmp_path / "many").exists()


@pytest.mark.long
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_ctrl_c_saves_and_any_number_of_ranks_goes_on(tmp_path: Path, sharding: str) -> None:
    train_here(settings_file(tmp_path, "one", 30))
    file = settings_file(tmp_path, "two", 30, sharding)
    process = subprocess.Popen([*GROUPWISE, "train", str(file), "--quiet", "--ranks", "2"])
    wait_for_step(tmp_path / "two", 3, process)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    events = read_events(tmp_path / "two" / "events.jsonl")
    assert [e.type for e in events[-2:]] == ["checkpoint", "end"]
    assert events[-1].data["reason"] == "stopped"
    deque(execute(tmp_path / "two", build), maxlen=0)
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.long
def test_torchrun_starts_a_run_and_goes_on_with_it_after_a_rank_has_died(tmp_path: Path) -> None:
    train_here(settings_file(tmp_path, "one", 30))
    file = settings_file(tmp_path, "two", 30, "fsdp")
    file.write_text(file.read_text().replace('run_name = "two"', ""))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen([*torchrun, "--max-restarts", "2", "-m", "groupwise", "train", str(file), "--quiet"])
    wait_for_step(tmp_path / "cartpole-1", 5, process)
    status = json.loads((tmp_path / "cartpole-1" / "status.json").read_text())
    os.kill(status["pid"], signal.SIGKILL)
    assert process.wait() == 0
    assert not (tmp_path / "cartpole-2").exists()
    assert_alike(tmp_path / "one", tmp_path / "cartpole-1")


@pytest.mark.long
def test_a_refusal_of_one_rank_ends_all_and_is_not_tried_again(tmp_path: Path) -> None:
    """A disk that rank 0 cannot write to in the middle of the run."""
    file = settings_file(tmp_path, "run", 500)
    process = subprocess.Popen(
        [*GROUPWISE, "train", str(file), "--quiet", "--ranks", "2"], stderr=subprocess.PIPE, text=True
    )
    wait_for_step(tmp_path / "run", 3, process)
    # A folder where the next group file belongs: writing it fails, whoever writes.
    for step in range(4, 200):
        (tmp_path / "run" / "groups" / f"{step:06d}.parquet").mkdir(exist_ok=True)
    _, said = process.communicate()
    assert process.returncode == 1
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1
    assert "groups" in said
    assert max(e.attempt for e in read_events(tmp_path / "run" / "events.jsonl")) == 1
