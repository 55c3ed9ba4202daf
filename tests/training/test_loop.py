"""The loop: orders, stops, evaluation, bad rewards and environments, a full disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from groupwise.config import TrainingConfig
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.environments import OWN
from groupwise.control.grpo import build
from groupwise.errors import ContractError, NoSignalError, StorageError
from groupwise.rewards.scoring import per_attempt
from groupwise.training.control_file import pending_commands, send_command
from groupwise.training.events import read_events
from groupwise.training.folder import create_run, inspect_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute
from groupwise.training.stop_conditions import EarlyStopping
from groupwise.types import Event, Score, Task, Trajectory

Configure = Callable[..., TrainingConfig]


def run_with(reward: Any, cfg: TrainingConfig) -> tuple[Path, list[Event]]:
    path = create_run(cfg)
    return path, list(execute(path, lambda settings: build(settings, reward)))


def steps(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [dict(e.data["metrics"]) for e in events if e.type == "step"]


def test_a_step_reports_what_grpo_users_need(small_config: Configure) -> None:
    path = create_run(small_config())
    events = list(execute(path, build))
    metrics = steps(events)[-1]
    wanted = {
        "reward/mean", "reward/std", "reward/part/environment", "groups/zero_spread_share",
        "groups/failed_share", "advantage/std", "policy/clip_low", "policy/clip_high", "policy/kl",
        "policy/entropy", "attempt/length_mean", "attempt/truncated_share", "optim/grad_norm",
        "optim/learning_rate", "loss/policy",
    }  # fmt: skip
    assert wanted <= metrics.keys()
    timing = next(e for e in events if e.type == "step").data["timing"]
    assert {"rollout", "score", "advantage", "update", "total", "samples_per_second"} <= timing.keys()
    assert [e.type for e in events][:2] == ["start", "eval"]
    assert events[-1].data["reason"] == "finished"
    assert inspect_run(path).state == "finished"


def test_every_attempt_is_kept_with_its_group(small_config: Configure) -> None:
    cfg = small_config()
    path = create_run(cfg)
    list(execute(path, build))
    rows = read_groups(path / "groups" / "000003.parquet")
    assert len(rows) == cfg.rollout.num_generations * cfg.rollout.tasks_per_step
    assert {row["version"] for row in rows} == {2}
    assert {row["end"] for row in rows} <= {"finished", "truncated"}
    assert all(dict(row["parts"])["environment"] == row["total"] == row["length"] for row in rows)


def test_an_attempt_whose_reward_raises_is_excluded_and_counted(small_config: Configure) -> None:
    def picky(task: Task, attempt: Trajectory) -> float:
        if attempt.id.endswith("m0"):
            raise ValueError("cannot score the first member")
        return float(attempt.rewards.sum())

    path, events = run_with(per_attempt(picky), small_config())
    assert all(m["groups/failed_share"] == 0.25 for m in steps(events))
    rows = read_groups(path / "groups" / "000001.parquet")
    failed = [row for row in rows if row["failure"]]
    assert [row["trajectory_id"][-2:] for row in failed] == ["m0", "m0"]
    assert all(row["total"] is None and row["advantage"] == 0 for row in failed)
    assert "ValueError: cannot score the first member" in failed[0]["failure"]
    assert events[-1].data["reason"] == "finished"


def test_a_reward_that_is_not_a_number_never_reaches_the_weights(small_config: Configure) -> None:
    def holes(task: Task, attempt: Trajectory) -> float:
        return float("nan") if attempt.id.endswith("m1") else float(attempt.rewards.sum())

    _, events = run_with(per_attempt(holes), small_config(estimator="outcome"))
    assert all(m["groups/failed_share"] == 0.25 for m in steps(events))
    assert all(np.isfinite(m["reward/mean"]) and np.isfinite(m["loss/total"]) for m in steps(events))


def test_a_group_with_all_rewards_missing_teaches_nothing_and_the_others_go_on(
    small_config: Configure,
) -> None:
    async def first_group_fails(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        if group[0].group_id.endswith("g0"):
            raise RuntimeError("judge is away")
        return [Score(float(t.rewards.sum())) for t in group]

    _, events = run_with(first_group_fails, small_config())
    assert all(m["groups/failed_share"] == 0.5 and m["groups/zero_spread_share"] < 1 for m in steps(events))
    assert all(m["optim/steps"] > 0 for m in steps(events))


def test_when_every_attempt_fails_the_run_stops_with_the_reason_and_can_be_resumed(
    small_config: Configure,
) -> None:
    calls = 0

    async def breaks_after_a_while(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise ConnectionError("no route to the judge")
        return [Score(float(t.rewards.sum())) for t in group]

    path = create_run(small_config())
    seen = []
    with pytest.raises(NoSignalError, match="last 3 steps failed.*ConnectionError: no route to the judge"):
        for event in execute(path, lambda cfg: build(cfg, breaks_after_a_while)):
            seen.append(event)
    assert seen[-1].type == "error"
    assert seen[-1].data["error"]["code"] == "no_signal"
    assert inspect_run(path).state == "failed"
    events = list(execute(path, build))
    assert events[-1].data["reason"] == "finished"


def test_steps_without_a_score_end_a_run_only_in_a_row(small_config: Configure) -> None:
    calls = 0

    async def every_other_step_fails(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise ConnectionError("no route to the judge")
        return [Score(float(t.rewards.sum())) for t in group]

    _, events = run_with(every_other_step_fails, small_config(num_episodes=7, tasks_per_step=1, eval_steps=0))
    assert [m["groups/failed_share"] for m in steps(events)] == [1, 0, 1, 0, 1, 0, 1]
    assert events[-1].data["reason"] == "finished"


def test_an_environment_that_breaks_its_contract_is_named(
    small_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(CartPole):
        def step(self, actions: Any) -> Any:
            obs, rewards, terminated, truncated = super().step(actions)
            return obs, rewards[:-1], terminated, truncated

    monkeypatch.setitem(OWN, "CartPole-v1", Short)  # type: ignore[misc]
    path = create_run(small_config())
    with pytest.raises(ContractError, match="Short"):
        list(execute(path, build))
    assert inspect_run(path).state == "failed"


def test_an_environment_that_raises_fails_its_attempts_only(
    small_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shaky(CartPole):
        calls = 0

        def step(self, actions: Any) -> Any:
            type(self).calls += 1
            if type(self).calls == 40:
                raise OSError("simulator crashed")
            return super().step(actions)

    monkeypatch.setitem(OWN, "CartPole-v1", Shaky)  # type: ignore[misc]
    path = create_run(small_config(eval_steps=0))
    events = list(execute(path, build))
    assert sum(m["groups/failed_share"] > 0 for m in steps(events)) == 1
    assert events[-1].data["reason"] == "finished"


def test_orders_in_the_control_file_are_obeyed_between_steps_and_echoed(small_config: Configure) -> None:
    path = create_run(small_config(num_episodes=50, save_steps=50))
    events = []
    for event in execute(path, build):
        events.append(event)
        if event.type == "step" and event.step == 3:
            send_command(path, "checkpoint")
        if event.type == "step" and event.step == 5:
            send_command(path, "scale", {"workers": 4})
            send_command(path, "stop")
    assert [(e.step, e.data["op"]) for e in events if e.type == "control"] == [
        (3, "checkpoint"), (5, "scale"), (5, "stop"),
    ]  # fmt: skip
    assert [e.step for e in events if e.type == "checkpoint"] == [3, 5]
    assert (events[-1].step, events[-1].data["reason"]) == (5, "stopped")
    send_command(path, "resume")
    resumed = execute(path, build)
    assert next(e.step for e in resumed if e.type == "step") == 6
    resumed.close()


def test_a_stop_that_nobody_heard_does_not_stop_a_run_resumed_by_hand(small_config: Configure) -> None:
    path = create_run(small_config())
    send_command(path, "stop")
    send_command(path, "resume")
    assert list(execute(path, build))[-1].data["reason"] == "finished"


def test_resuming_by_hand_cancels_earlier_orders_but_not_a_number_of_workers(small_config: Configure) -> None:
    path = create_run(small_config())
    for order in ("checkpoint", "scale", "stop", "resume", "checkpoint"):
        send_command(path, order, {"workers": 4} if order == "scale" else None)
    left = pending_commands(path / "control.jsonl", ())
    assert [(order.op, order.args) for order in left] == [("scale", {"workers": 4}), ("checkpoint", {})]
    assert [order.op for order in pending_commands(path / "control.jsonl", {left[0].id})] == ["checkpoint"]


def test_a_plateau_is_no_improvement(small_config: Configure) -> None:
    """An improvement is more than the threshold, as a share of the best score but at least the threshold itself."""
    stopping = {"early_stopping": True, "early_stopping_patience": 2}
    for threshold, scores in ((0.0, [1, 1, 1]), (0.5, [4, 6, 6]), (0.5, [0.2, 0.7, 0.7]), (0.0, [-3, -3, -4])):
        watch = EarlyStopping(small_config(early_stopping_threshold=threshold, **stopping))
        assert [watch.reason(step, score) for step, score in enumerate(scores)] == [None, None, "early_stopping"]
        assert watch.best_step == 0
    watch = EarlyStopping(small_config(early_stopping_threshold=0.0, **stopping))
    assert [watch.reason(step, score) for step, score in enumerate([1, 1, 1.1, 1.1, 1.1])] == [None] * 4 + [
        "early_stopping"
    ]


def test_a_target_is_reached_at_the_target(small_config: Configure) -> None:
    watch = EarlyStopping(small_config(target_reward=2.0))
    assert [watch.reason(step, score) for step, score in enumerate([1.99, 2.0])] == [None, "target_reached"]


def test_an_evaluation_that_says_nothing_does_not_poison_early_stopping(small_config: Configure) -> None:
    watch = EarlyStopping(small_config(early_stopping=True, early_stopping_patience=3))
    scores = [float("nan"), 10.0, float("nan"), 50.0, 200.0]
    assert [watch.reason(step, score) for step, score in enumerate(scores)] == [None] * 5
    assert watch.best == 200.0


def test_an_evaluation_without_a_score_is_named(small_config: Configure) -> None:
    def lacking(cfg: TrainingConfig) -> Any:
        return replace(build(cfg), evaluate=lambda policy: {"eval/accuracy": 1.0})

    with pytest.raises(ContractError, match="eval/reward_mean"):
        list(execute(create_run(small_config()), lacking))


@pytest.mark.parametrize("line", [
    '{"id": "\\ud800", "op": "checkpoint"}', '{"id": "a", "op": "stop", "args": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"id": "' + "x" * 100_000 + '", "op": "stop"}', "[]", "7", '{"op": "stop"}', '{"id": 1, "op": ["stop"]}',
])  # fmt: skip
def test_a_poisoned_control_file_stops_nothing(small_config: Configure, line: str) -> None:
    path = create_run(small_config())
    (path / "control.jsonl").write_text(line + "\n")
    assert list(execute(path, build))[-1].data["reason"] == "finished"


def test_a_sampler_elsewhere_gets_the_weights_before_the_first_step(small_config: Configure) -> None:
    path = create_run(small_config())
    list(zip(execute(path, build), range(12), strict=False))
    published = []

    def watched(cfg: TrainingConfig) -> Any:
        parts = build(cfg)
        parts.source.publish = lambda policy: published.append(policy.version)  # type: ignore[method-assign]
        return parts

    next(execute(path, watched))
    assert published
    assert published[0] > 0


def test_library_code_leaves_signals_and_threads_as_they_were(small_config: Configure) -> None:
    before, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    first, second = (execute(create_run(small_config(threads=1)), build) for _ in range(2))
    next(first), next(second)
    second.close(), first.close()
    assert signal.getsignal(signal.SIGINT) is before
    assert torch.get_num_threads() == threads


def test_one_thread_is_one_thread_of_numpy_too(small_config: Configure) -> None:
    def most() -> int:
        return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    with threadpool_limits(2, "blas"):
        events = execute(create_run(small_config(threads=1)), build)
        next(events)
        during = most()
        events.close()
        assert (during, most()) == (1, 2)


def test_early_stopping_waits_its_patience_and_stops(small_config: Configure) -> None:
    cfg = small_config(
        num_episodes=50, eval_steps=1, early_stopping=True, early_stopping_patience=3, learning_rate=1e-9
    )
    events = list(execute(create_run(cfg), build))
    assert (events[-1].step, events[-1].data["reason"]) == (3, "early_stopping")


SCRIPT = """
import sys
from groupwise.cli import main
main(["train", sys.argv[1], "--json", "--set", "training.num_episodes=100000", "--set", "run.save_steps=100000"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_the_run_resumes_there(small_config: Configure, tmp_path: Path, number: int) -> None:
    cfg = small_config(run_name="ctrl-c")
    settings = tmp_path / "settings.toml"
    settings.write_text(cfg.to_toml())
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["type"] == "step" and lines[-1]["step"] == 5:
            process.send_signal(number)
    assert process.wait(30) == 130, process.stderr and process.stderr.read()
    assert [line["type"] for line in lines][-2:] == ["checkpoint", "end"]
    assert lines[-1]["data"]["reason"] == "stopped"
    path = Path(cfg.run.output_dir) / "ctrl-c"
    assert inspect_run(path).state == "stopped"
    stopped_at = lines[-1]["step"]
    resumed = execute(path, build)
    assert next(resumed).data["resumed_from"] == stopped_at
    resumed.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real file system with room for a few checkpoints only."""
    place = tmp_path / "small"
    place.mkdir()
    answer = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if answer.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {answer.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_run_with_the_remedy_and_loses_nothing(
    small_config: Configure, small_disk: Path, numbers: Callable[[Path], Any]
) -> None:
    changes = dict(num_episodes=12, save_steps=2, save_total_limit=2)
    whole = create_run(small_config(run_name="whole", **changes))
    list(execute(whole, build))
    path = create_run(small_config(run_name="full", **changes, output_dir=str(small_disk)))
    filler = small_disk / "filler"
    with pytest.raises(StorageError, match=r"No space left.*\n.*Free some disk space.*groupwise resume"):
        for event in execute(path, build):
            if event.type == "checkpoint" and not filler.exists():
                with open(filler, "wb") as file:
                    file.write(b"0" * max(0, shutil.disk_usage(small_disk).free - 9000))
    assert inspect_run(path).state in ("failed", "interrupted")
    filler.unlink()
    list(execute(path, build))
    assert numbers(path) == numbers(whole)


def test_a_folder_that_may_not_be_written_is_refused_at_once(small_config: Configure, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        create_run(small_config(output_dir=str(blocker / "runs")))


def test_an_event_log_is_whole_after_every_event(small_config: Configure) -> None:
    """Whoever reads the log while it is written sees exactly the events already yielded."""
    path = create_run(small_config())
    for number, _ in enumerate(execute(path, build)):
        assert len(read_events(path / "events.jsonl")) == number + 1
    assert time.time() - inspect_run(path).updated < 60
    assert os.path.getsize(path / "events.jsonl") > 0
