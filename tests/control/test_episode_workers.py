"""Episodes shared out among workers: the same as one process plays, and a run whose workers change on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.control.ppo import check
from groupwise.errors import ConfigError
from groupwise.training.control_file import send_command
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Event, Group

SMALL: dict[str, Any] = {
    "product": "control", "num_generations": 5, "tasks_per_step": 3, "max_episode_steps": 40, "eval_steps": 0,
    "num_episodes": 6, "seed": 3, "num_workers": 2,
}  # fmt: skip
# One choice with two actions, real numbers, and tasks of different sizes with masks.
ENVIRONMENTS = (("CartPole-v1", 3), ("Pendulum-v1", 2), ("classic", 2))
ARRAYS = ("obs", "actions", "behavior_logp", "rewards")


def settings(**own: Any) -> TrainingConfig:
    return TrainingConfig.from_dict({**SMALL, "environment": "CartPole-v1", **own})


def played(cfg: TrainingConfig) -> tuple[list[Group], Any]:
    """Two rollouts, and the generator's state after them."""
    source: Any = build(cfg).source
    try:
        groups = [group for _ in range(2) for group in source.rollout.collect(source.tasks.take(3))]
        return groups, source.rollout.state_dict()["rng"]
    finally:
        source.close()


def facts(groups: list[Group]) -> list[Any]:
    return [
        (m.id, m.task_id, m.group_id, m.end, *(getattr(m, name).tobytes() for name in ARRAYS))
        for group in groups
        for m in group.members
    ]  # fmt: skip


@pytest.mark.parametrize(("environment", "workers"), ENVIRONMENTS)
def test_workers_play_bit_for_bit_what_one_process_plays(environment: str, workers: int) -> None:
    alone, state = played(settings(environment=environment))
    shared, after = played(settings(environment=environment, backend="processes", num_workers=workers))
    assert facts(shared) == facts(alone)
    assert after == state


def steps(events: list[Event]) -> list[dict[str, Any]]:
    # Everything that learning depends on; the load of workers is beside it.
    kept = [e.data["metrics"] for e in events if e.type == "step"]
    return [{name: value for name, value in row.items() if not name.startswith("rollout/")} for row in kept]


def test_a_scaled_run_learns_the_same_and_says_how_many_workers_it_has(tmp_path: Path) -> None:
    alone = list(execute(create_run(settings(output_dir=str(tmp_path))), build))
    path = create_run(settings(output_dir=str(tmp_path), backend="processes", num_workers=1))
    events = []
    for event in execute(path, build):
        events.append(event)
        if event.type == "step" and event.step == 2:
            send_command(path, "scale", {"scale_factor": 2.0})
        if event.type == "step" and event.step == 4:
            send_command(path, "scale", {"workers": 99_999})
    assert steps(events) == steps(alone)
    assert [e.data["metrics"]["rollout/workers"] for e in events if e.type == "step"] == [1, 1, 2, 2, 2, 2]
    done, refused = (e.data for e in events if e.type == "control")
    assert (done["workers"], done["before"]) == (2, 1)
    assert "99999 workers are more than there is room for" in refused["refused"]
    assert refused["remedy"].startswith("Ask for at most")


def test_a_run_in_one_process_says_why_it_cannot_be_scaled(tmp_path: Path) -> None:
    path = create_run(settings(output_dir=str(tmp_path), num_episodes=2))
    send_command(path, "scale", {"workers": 2})
    (refused,) = [e.data for e in execute(path, build) if e.type == "control"]
    assert "has no workers to scale" in refused["refused"]
    assert "rollout.backend" in refused["remedy"]


def test_a_network_that_cannot_be_sent_is_refused() -> None:
    class Local(nn.Linear):
        pass

    parts = build(settings(backend="processes"), network=Local)
    source: Any = parts.source
    with pytest.raises(ConfigError, match="the network cannot be sent to the workers"):
        source.rollout.collect(source.tasks.take(1))
    source.close()


def test_ppo_has_no_workers() -> None:
    cfg = TrainingConfig.from_dict({"product": "ppo", "environment": "CartPole-v1", "backend": "processes"})
    with pytest.raises(ConfigError, match="rollout.backend = 'processes' cannot be used here"):
        check(cfg)


def test_weights_of_every_version_reach_the_workers() -> None:
    source: Any = (parts := build(settings(backend="processes"))).source
    try:
        policy: Any = parts.policy
        before = source.rollout.collect(source.tasks.take(1))
        with torch.no_grad():
            policy.actor[-1].bias += torch.tensor([50.0, -50.0])
        policy.version += 1
        after = source.rollout.collect(source.tasks.take(1))
        assert len({int(a) for group in before for m in group.members for a in m.actions}) == 2
        assert {int(a) for group in after for m in group.members for a in m.actions} == {0}
        assert {int(v) for group in after for m in group.members for v in np.unique(m.versions)} == {policy.version}
    finally:
        source.close()
