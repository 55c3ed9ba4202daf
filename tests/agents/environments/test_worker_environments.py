"""Conversations whose other side is in a worker: the same conversations, and each is made exactly once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.agents import language_product
from groupwise.agents.agent_product import build
from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ResourceError
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.training.worker_rewards import RemoteReward
from groupwise.types import End, Task, Trajectory

sys.path.insert(0, str(Path(__file__).parent))
import talking_environments as talking

SETTINGS: dict[str, Any] = {
    "product": "agent", "environment": f"python:{talking.__file__}:Talk", "model_name": "tiny", "num_generations": 3,
    "tasks_per_step": 2, "max_new_tokens": 4, "threads": 1, "eval_steps": 0, "num_workers": 2, "warmup_ratio": 0.0,
    "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1, "num_epochs": 1,
}  # fmt: skip


def source_of(backend: str, scenarios: Any = None, **own: Any) -> Any:
    parts = build(TrainingConfig.from_dict({**SETTINGS, "backend": backend, **own}), scenarios=scenarios)
    parts.source.publish(parts.policy)
    return parts.source


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    source = source_of("local")
    yield source
    source.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    source = source_of("processes", turn_timeout=5.0)
    yield source
    source.close()


def attempts(source: Any, *payloads: str) -> list[Trajectory]:
    tasks = [Task(f"talk/{n}", payload, n) for n, payload in enumerate(payloads)]
    return [member for group in source.rollout.collect(tasks) for member in group.members]


def facts(members: list[Trajectory]) -> list[Any]:
    return [(m.id, m.end, m.meta["content"], m.actions.tolist(), m.rewards.tolist(), m.mask.tolist()) for m in members]


def test_conversations_in_workers_are_those_of_one_process(alone: Any, shared: Any) -> None:
    mine, theirs = attempts(alone, "fine", "well", "good"), attempts(shared, "fine", "well", "good")
    assert facts(theirs) == facts(mine)
    assert all(np.allclose(a.behavior_logp, b.behavior_logp, atol=1e-5) for a, b in zip(mine, theirs, strict=True))
    places = {m.meta["parts"]["process"] for m in theirs}
    assert len(places) == 2
    assert os.getpid() not in places


def test_a_fault_of_the_environment_is_told_as_if_it_were_here(alone: Any, shared: Any) -> None:
    (mine, *_), (theirs, *_) = attempts(alone, "raises"), attempts(shared, "raises")
    assert theirs.end is End.ENV_ERROR
    assert mine.error is not None
    assert theirs.error is not None
    assert (theirs.error.message, theirs.error.code, theirs.error.hint) == (
        mine.error.message, mine.error.code, mine.error.hint,
    )  # fmt: skip
    assert "no such order" in theirs.error.traceback


def test_a_conversation_whose_worker_dies_is_made_again_and_counts_once(
    alone: Any, shared: Any, tmp_path: Path
) -> None:
    payload = f"dies {tmp_path / 'once'}"
    redone = shared.workers.redone
    theirs = attempts(shared, payload, "fine")
    (tmp_path / "once").touch()
    assert facts(theirs) == facts(attempts(alone, payload, "fine"))
    assert len({m.id for m in theirs}) == len(theirs) == 6
    assert shared.workers.redone > redone


def test_a_worker_that_hangs_costs_its_conversation_alone() -> None:
    source = source_of("processes", turn_timeout=0.5, num_generations=1, attempts_per_worker=1)
    try:
        attempts(source, "fine", "fine")  # both workers are up
        hung, *fine = attempts(source, "hangs", "fine", "well")
        assert hung.error is not None
        assert "longer than 0.5 s" in hung.error.message
        assert all(member.error is None for member in fine)
    finally:
        source.close()


def test_a_rollout_function_in_a_worker_asks_the_model_here(alone: Any) -> None:
    scenarios = RolloutScenarios(talking.rollout, talking.TASKS)
    mine, theirs = source_of("local", scenarios), source_of("processes", scenarios)
    try:
        assert facts(attempts(theirs, "one", "two")) == facts(attempts(mine, "one", "two"))
        for payload, end in (("raises", End.ENV_ERROR), ("endless", End.TRUNCATED)):
            a, b = attempts(mine, payload)[0], attempts(theirs, payload)[0]
            assert b.end is a.end
            assert (b.error and b.error.message) == (a.error and a.error.message)
            assert payload != "raises" or b.end is end
    finally:
        mine.close()
        theirs.close()


def test_scenarios_that_cannot_be_sent_are_refused() -> None:
    class Inside(talking.Talk):
        pass

    with pytest.raises(ConfigError, match=r"cannot be sent to a process.*Inside"):
        source_of("processes", Inside())


def test_an_environment_that_a_worker_cannot_make_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "vanishing.py"
    file.write_text(Path(talking.__file__).read_text())
    source = source_of("processes", environment=f"python:{file}:Talk")
    file.unlink()
    with pytest.raises(ResourceError, match=r"cannot start: .*vanishing\.py"):
        attempts(source, "fine")
    source.close()


def test_a_run_whose_workers_die_learns_what_an_undisturbed_one_learns(tmp_path: Path) -> None:
    courses = []
    for backend in ("local", "processes"):
        cfg = TrainingConfig.from_dict(
            {**SETTINGS, "backend": backend, "num_episodes": 3, "output_dir": str(tmp_path), "run_name": backend}
        )
        events = []
        for event in execute(create_run(cfg), build):
            events.append(event)
        courses.append([e.data["metrics"]["reward/mean"] for e in events if e.type == "step"])
        assert [e.data["totals"]["attempts"] for e in events if e.type == "step"] == [6, 12, 18]
    assert courses[0] == pytest.approx(courses[1], abs=1e-6)


def test_a_reward_that_keeps_nothing_is_computed_by_the_workers(tmp_path: Path) -> None:
    reward = tmp_path / "own.py"
    reward.write_text("import os\ndef score(turns):\n    return float(os.getpid())\n")
    cfg = TrainingConfig.from_dict(
        {"product": "language", "environment": "addition", "model_name": "tiny", "backend": "processes",
         "num_workers": 2, "tasks_per_step": 4, "num_generations": 2, "max_new_tokens": 3, "threads": 1,
         "reward_name": f"python:{reward}:score"}
    )  # fmt: skip
    source: Any = language_product.build(cfg).source
    try:
        assert isinstance(source.reward, RemoteReward)
        groups = source.rollout.collect(source.tasks.take(4))
        pids = {score.total for group in source.scorer.score(source.reward, groups) for score in group.scores}
        assert float(os.getpid()) not in pids
        assert 1 <= len(pids) <= 2
    finally:
        source.close()
    stays: Any = language_product.build(cfg.replace(reward_name="neural")).source
    assert not isinstance(stays.reward, RemoteReward), "it learns from group to group"
    stays.close()


def test_of_a_combination_the_workers_compute_what_keeps_nothing() -> None:
    cfg = TrainingConfig.from_dict(
        {"product": "language", "environment": "addition", "model_name": "tiny", "tasks_per_step": 2, "threads": 1,
         "num_generations": 2, "max_new_tokens": 3, "num_workers": 1, "reward_name": "multi_objective",
         "reward_options": {"components": ["neural", "customer_service", "heuristic"]}}
    )  # fmt: skip
    scored = []
    for backend in ("local", "processes"):
        source: Any = language_product.build(cfg.replace(backend=backend)).source
        try:
            kinds = {name: isinstance(part, RemoteReward) for name, part in source.reward.components.items()}
            assert kinds["heuristic"] is (backend == "processes")
            assert not kinds["neural"]
            groups = source.rollout.collect(source.tasks.take(2))
            scored.append([s.total for group in source.scorer.score(source.reward, groups) for s in group.scores])
        finally:
            source.close()
    assert scored[0] == scored[1]
