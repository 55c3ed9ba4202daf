"""Small runs, made up: their events, their folder, their groups."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.training.events import encode
from groupwise.training.group_files import write_groups
from groupwise.types import Event, GroupRecord


@pytest.fixture(scope="session")
def run_events() -> Callable[..., Iterator[Event]]:
    return a_small_run


@pytest.fixture(scope="session")
def records() -> Callable[..., list[GroupRecord]]:
    return a_group


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    return a_run_folder


def a_small_run(
    steps: int = 20, name: str = "pole", hint: str = "Try less.", last_evaluation: float | None = None
) -> Iterator[Event]:
    """A small whole run, evaluated before its first step and perhaps after its last."""
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
    if last_evaluation is not None:
        yield event(steps, "eval", {"metrics": {"eval/reward_mean": last_evaluation}})
    yield event(steps, "hint", {"code": "x", "message": "Too fast.", "remedy": hint})
    yield event(steps, "end", {"reason": "finished", "steps": steps, "seconds": 2.0})


def a_step(step: int) -> dict[str, Any]:
    level = 20 + 8 * step
    metrics = {
        "reward/mean": level, "reward/std": 0.3 * level, "reward/min": 9.0, "reward/max": 1.5 * level,
        "groups/zero_spread_share": 0.1, "groups/failed_share": 0.0, "advantage/std": 0.9,
        "advantage/abs_mean": 0.7, "attempt/length_mean": level, "attempt/length_max": 1.5 * level,
        "attempt/truncated_share": 0.2, "policy/entropy": 0.69 - 0.005 * step, "policy/kl": 0.004,
        "policy/clip_low": 0.02, "policy/clip_high": 0.05, "optim/grad_norm": 0.4,
        "optim/learning_rate": 3e-4,
    }  # fmt: skip
    timing = {"rollout": 0.2, "score": 0.01, "advantage": 0.01, "update": 0.3, "total": 0.52}
    return {"metrics": metrics, "timing": timing, "totals": {"samples": 1000 * step, "attempts": 64 * step}}


def a_group(scores: list[float | None], group: str = "g0", failure: str = "timeout") -> list[GroupRecord]:
    return [
        GroupRecord(group, "task", f"{group}-{i}", score, {}, (), 0.5, 100, "finished", "" if score else failure, 1)
        for i, score in enumerate(scores)
    ]


def a_run_folder(
    folder: Path,
    steps: int = 60,
    evals: bool = True,
    end: str | None = "finished",
    change: Callable[[int, dict[str, Any]], None] | None = None,
    extra: tuple[tuple[str, dict[str, Any]], ...] = (),
    config: dict[str, Any] | None = None,
) -> Path:
    (folder / "groups").mkdir(parents=True)
    config = config or TrainingConfig(target_reward=475.0, num_episodes=60).to_dict()
    rows: list[tuple[int, str, dict[str, Any]]] = [
        (0, "start", {"config": config, "resumed_from": None, "env": {"command": "groupwise train a.toml"},
                      "total_steps": 60}),
    ]  # fmt: skip
    for step in range(steps + 1):
        if step:
            data = a_step(step)
            if change:
                change(step, data)
            rows.append((step, "step", data))
        if evals and step % 10 == 0:
            score = {"eval/reward_mean": 20.0 + 8 * step, "eval/reward_std": 5.0, "eval/attempts": 20.0}
            rows.append((step, "eval", {"metrics": score}))
    rows += [(steps, kind, data) for kind, data in extra]
    if end:
        rows.append((steps, "end", {"reason": end, "steps": steps, "seconds": 30.0}))
    events = [Event(folder.name, i, 1, 1000.0 + i, *row) for i, row in enumerate(rows)]
    (folder / "events.jsonl").write_bytes(b"".join(map(encode, events)))
    if steps:
        write_groups(folder / "groups" / f"{steps:06d}.parquet", steps, a_group([500.0, 300.0, 100.0, None]))
    return folder
