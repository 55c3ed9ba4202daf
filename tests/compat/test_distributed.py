"""Document 4's distributed trainer, as it wrote it: several processes, with the weights of one in the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.agent import Agent
from groupwise.compat import DistributedConfig, launch_distributed_training
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.loading import load_model

sys.path.insert(0, str(Path(__file__).parents[1] / "agents" / "environments"))
import talking_environments as talking


def settings(folder: Path, name: str, **changes: Any) -> TrainingConfig:
    given: dict[str, Any] = {
        "product": "agent", "num_generations": 4, "tasks_per_step": 2, "max_new_tokens": 4, "learning_rate": 2e-3,
        "num_episodes": 2, "num_epochs": 1, "threads": 1, "per_device_train_batch_size": 8, "warmup_ratio": 0.0,
        "eval_steps": 0, "gradient_accumulation_steps": 1, "output_dir": str(folder), "run_name": name, **changes,
    }  # fmt: skip
    return TrainingConfig(**given)


def trained(folder: Path, name: str, config: DistributedConfig) -> tuple[torch.Tensor, Any]:
    agent = Agent("tiny")
    results = launch_distributed_training(
        agent=agent,
        environment=talking.Talk(),
        training_config=settings(folder, name),
        distributed_config=config,
    )
    model: Any = agent.language.model
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), results


def test_two_ranks_train_the_agent_as_one_process_does(tmp_path: Path) -> None:
    alone, _ = trained(tmp_path, "one", DistributedConfig())
    shared, results = trained(tmp_path, "two", DistributedConfig(world_size=2))
    assert (results.steps, results.reason, results.attempts) == (2, "finished", 1)
    assert results.path == tmp_path / "two"
    assert "reward/mean" in results.metrics
    untrained = torch.cat([parameter.detach().flatten() for parameter in load_model("tiny").model.parameters()])
    # Adam turns a gradient that is only rounding into a full step, so a few weights differ.
    assert (shared - alone).norm() < 0.01 * (alone - untrained).norm()


def test_what_cannot_be_sent_to_the_ranks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reward_function cannot be sent to the ranks") as told:
        launch_distributed_training(
            Agent("tiny"), talking.Talk(), lambda turns: 0.0, settings(tmp_path, "run"), DistributedConfig(world_size=2)
        )
    assert "torchrun" in told.value.hint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"world_size": 0}, {"gradient_accumulation_steps": 1.5}, {"max_restarts": -1}])
def test_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a whole number from"):
        DistributedConfig(**wrong)
