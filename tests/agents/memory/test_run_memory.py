"""A training run shows every member of a group the same memory, keeps what users say, and rewinds it on resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents import agent_product
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import End, Task


class Guests:
    """Two users with one name: each tells their table on the first visit and asks for it later."""

    name = "guests"

    def training(self, seed: int, number: int) -> Mapping[str, Any]:
        user = f"id-{number % 2}"
        said = f"My name is Anna. My table is number {7 + number % 2}." if number < 2 else "Which table is mine?"
        return {"user_id": user, "said": said}

    def held_out(self, seed: int, count: int) -> Sequence[Mapping[str, Any]]:
        return [self.training(seed, 2)] * count

    def make(self) -> Guests:
        return Guests()

    async def reset(self, task: Task) -> Observation:
        return Observation(({"role": "user", "content": task.payload["said"]},))

    async def step(self, reply: Reply) -> Transition:
        return Transition((), reward=float("a" in reply.content), end=End.FINISHED)


def config(folder: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{
        "product": "agent", "environment": "guests", "model_name": "tiny", "output_dir": str(folder),
        "options": {"memory": str(folder / "users.sqlite")}, "max_new_tokens": 2, "num_generations": 2,
        "tasks_per_step": 2, "num_episodes": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1,
        "eval_steps": 0, "threads": 1, "save_steps": 1, **changes,
    })  # fmt: skip


def built(cfg: TrainingConfig) -> Any:
    return agent_product.build(cfg, scenarios=Guests())


def test_a_group_shares_what_is_recalled_and_no_user_sees_the_other(tmp_path: Path) -> None:
    parts = built(config(tmp_path))
    try:
        parts.source.next()
        memory = parts.source.rollout.memory.memory
        assert [fact.value for fact in memory.facts("id-1")] == ["Anna", "number 8"]
        groups = parts.source.rollout.collect(parts.source.tasks.take(2))
        for group, mine, other in zip(groups, ("7", "8"), ("8", "7"), strict=True):
            prompts = {member.meta["prompt"] for member in group.members}
            assert len(prompts) == 1, "the same for every member"
            (prompt,) = prompts
            assert f"My table is number {mine}." in prompt
            assert f"number {other}" not in prompt
    finally:
        parts.source.close()


def test_a_resumed_run_finds_the_memory_of_its_checkpoint(tmp_path: Path) -> None:
    parts = built(config(tmp_path))
    parts.source.next()
    state = parts.source.state_dict()
    memory = parts.source.rollout.memory.memory
    with memory.generation(2):
        memory.hear("id-0", "My table is number 99.")
    parts.source.close()
    again = built(config(tmp_path))
    again.source.load_state_dict(state)
    assert [fact.value for fact in again.source.rollout.memory.memory.facts("id-0")] == ["Anna", "number 7"]
    again.source.close()


def test_a_run_with_a_memory_trains_and_leaves_it_behind(tmp_path: Path) -> None:
    cfg = config(tmp_path, num_episodes=2)
    events = list(execute(create_run(cfg), built, cfg))
    assert events[-1].type == "end"
    with UserMemory(tmp_path / "users.sqlite") as memory:
        assert memory.store.now == 2
        assert {kept.shown for kept in memory.kept("id-0")} == {0, 1}


def test_a_rollout_function_cannot_be_given_a_memory(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("TASKS = [{'q': 1}]\nasync def rollout(client, task):\n    return 1.0\n")
    cfg = config(tmp_path, environment=f"python:{tmp_path}/own.py:rollout")
    with pytest.raises(ConfigError, match="has no effect on a rollout function"):
        agent_product.check(cfg)
