"""Workers as actors of Ray, on two nodes that are simulated on this machine; one cluster for all tests."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.rollout.backends import make_workers
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Event
from tests.rollout.backend_handlers import Echo, Versioned

ray = pytest.importorskip("ray", reason="needs pip install 'groupwise[ray]'")
ENTRY = "tests.rollout.backend_handlers:Echo"


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "no-such-host.invalid:6379", "127.0.0.1:port"])
def test_a_cluster_that_nobody_answers_for_is_named(address: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        given = address.replace("{port}", str(free.getsockname()[1]))
    with pytest.raises(ConfigError, match="no Ray cluster answers at rollout.ray_address") as found:
        make_workers(TrainingConfig(backend="ray", ray_address=given).rollout, ENTRY)
    assert found.value.field == "rollout.ray_address"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with two CPUs each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def workers_of(count: int, entry: Any = ENTRY, args: tuple[Any, ...] = (), **own: Any) -> Any:
    rollout = TrainingConfig(backend="ray", num_workers=count, **{"ray_cpus": 0.5, **own}).rollout
    return make_workers(rollout, entry, args)


@pytest.mark.long
def test_actors_answer_in_order_and_a_killed_one_counts_once(cluster: Any, tmp_path: Path) -> None:
    workers = workers_of(3)
    try:
        assert [a[0] for a in workers.ask_all([("wait", n / 1000) for n in range(9)])] == [n / 1000 for n in range(9)]
        answers = workers.ask_all([("die once", str(tmp_path / "once")), *[("wait", 0.01)] * 8])
        assert len(answers) == 9
        assert workers.redone >= 1
        shared = workers.share(1, lambda: {"weights": np.arange(4)})
        assert all(answer[0]["weights"].tolist() == [0, 1, 2, 3] for answer in workers.ask_all([Versioned(shared)] * 6))
        with pytest.raises(GroupwiseError, match="bad news"):
            workers.ask_all([("raise", "bad news")])
    finally:
        workers.close()


@pytest.mark.long
def test_the_cluster_says_how_many_workers_it_has_room_for(cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"9 workers are more than there is room for: the cluster has 4 CPUs"):
        workers_of(9)
    workers = workers_of(1, ray_cpus=1.0)
    try:
        assert workers.scale({"workers": 3}) == {"workers": 3, "before": 1}
        assert len({answer[1] for answer in workers.ask_all([("block", 0.1)] * 12)}) == 3
        assert "the cluster has 4 CPUs" in workers.scale({"scale_factor": 2.0})["refused"]
        assert workers.scale({"workers": 1})["workers"] == 1
    finally:
        workers.close()


@pytest.mark.long
def test_an_actor_that_cannot_make_its_handler_says_why(cluster: Any) -> None:
    workers = workers_of(1, Echo, ("no licence here",))
    with pytest.raises(GroupwiseError, match=r"cannot start: .*no licence here"):
        workers.ask_all([("wait", 0.0)])
    workers.close()
    with pytest.raises(ConfigError, match="cannot be sent to Ray"):
        workers_of(1, Echo, (threading.Lock(),))


def settings(folder: Path, **own: Any) -> TrainingConfig:
    return TrainingConfig.from_dict(
        {"product": "control", "environment": "CartPole-v1", "num_generations": 8, "tasks_per_step": 2, "seed": 3,
         "num_episodes": 12, "eval_steps": 0, "max_episode_steps": 60, "save_steps": 100, "output_dir": str(folder),
         "num_workers": 2, "ray_cpus": 1.0, "when_worker_lost": "wait", **own}
    )  # fmt: skip


def learned(events: list[Event]) -> list[Any]:
    rows = [event.data["metrics"] for event in events if event.type == "step"]
    return [{name: value for name, value in row.items() if not name.startswith("rollout/")} for row in rows]


@pytest.mark.long
def test_a_run_on_ray_is_bit_for_bit_that_of_one_process_though_actors_and_a_node_are_lost(
    cluster: Any, tmp_path: Path
) -> None:
    alone = learned(list(execute(create_run(settings(tmp_path)), build)))
    extra = cluster.add_node(num_cpus=2)
    sources: list[Any] = []

    def make(cfg: TrainingConfig) -> Any:
        parts = build(cfg)
        sources.append(parts.source)
        return parts

    events = []
    for event in execute(create_run(settings(tmp_path, backend="ray", num_workers=4)), make):
        events.append(event)
        if event.type == "step" and event.step in (3, 5):
            ray.kill(sources[0].workers.backend._actors[event.step % 4], no_restart=False)
        if event.type == "step" and event.step == 7:
            cluster.remove_node(extra, allow_graceful=False)
    assert learned(events) == alone
    assert events[-1].data["reason"] == "finished"
    assert sum(event.data["metrics"]["rollout/redone"] for event in events if event.type == "step") >= 1


@pytest.mark.long
def test_a_worker_that_blocks_is_killed_and_its_place_used_again(cluster: Any) -> None:
    workers = workers_of(1)
    try:
        workers.ask_all([("wait", 0.0)])
        began = time.monotonic()
        with pytest.raises(GroupwiseError, match="took longer than 0.5 s"):
            workers._loop.run(workers.ask(("block", 60.0), seconds=0.5))
        assert workers.ask_all([("wait", 0.0)])[0][0] == 0.0
        assert time.monotonic() - began < 50
    finally:
        workers.close()
