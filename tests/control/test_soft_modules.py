"""Soft routing against numbers worked out by hand, and soft modules as the network of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.control import grpo, ppo
from groupwise.control.model import ControlModel
from groupwise.control.policy import MLPPolicy
from groupwise.control.soft_modules import SoftModules, soft_route
from groupwise.errors import ConfigError
from groupwise.training.folder import create_run
from groupwise.training.session import execute

Configure = Callable[..., TrainingConfig]
GROUPS = {"num_generations": 4, "tasks_per_step": 3}
BASELINE = {"product": "ppo", "estimator": "gae", "num_envs": 3, "num_steps": 32, "value_clip": None}
SOFT = {"architecture": "soft_modules", "module_count": 3, "module_width": 8}
BOTH = [(grpo.build, GROUPS), (ppo.build, BASELINE)]


def test_routes_by_hand() -> None:
    """Logits 0 and ln 3 are shares of ¼ and ¾; equal logits are the mean."""
    said = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    wanted = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0]])
    assert torch.allclose(soft_route(said, wanted), torch.tensor([[1.0, 6.0], [2.0, 4.0]]))


def test_layers_may_have_unlike_numbers_of_modules() -> None:
    assert soft_route(torch.randn(5, 4, 3), torch.randn(5, 1, 4)).shape == (5, 1, 3)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"logits has shape \(2, 3\), but must have \(2, 4\)"):
        soft_route(torch.ones(4, 2), torch.ones(2, 3))


@pytest.mark.parametrize(("make", "own"), BOTH)
def test_they_train_on_a_suite_by_a_setting(small_config: Configure, make: Any, own: dict[str, Any]) -> None:
    cfg = small_config(environment="reward-scales", max_episode_steps=40, num_episodes=2, eval_steps=2, **SOFT, **own)
    parts = make(cfg)
    batch = parts.source.next()
    parts.policy.evaluate(batch.inputs).logp.sum().backward()
    assert isinstance(parts.policy.actor, SoftModules)
    assert parts.policy.actor.count == 3
    assert all(weight.grad is not None for weight in parts.policy.actor.parameters())
    steps = [event for event in execute(create_run(cfg), make) if event.type == "step"]
    assert [event.data["metrics"]["optim/skipped"] for event in steps] == [0, 0]


def test_their_weights_depend_on_the_seed_alone(small_config: Configure) -> None:
    def made(seed: int) -> MLPPolicy:
        policy = ppo.build(small_config(environment="reward-scales", seed=seed, **SOFT, **BASELINE)).policy
        assert isinstance(policy, MLPPolicy)
        return policy

    before = torch.random.get_rng_state()
    one, same, other = made(1), made(1), made(2)
    assert torch.equal(before, torch.random.get_rng_state())
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name
    assert not torch.equal(one.actor.first, other.actor.first)  # type: ignore[arg-type]
    assert not torch.equal(one.actor.first, one.critic.first)  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize(("make", "own"), BOTH)
@pytest.mark.parametrize("environment", ["CartPole-v1", "curriculum"])
def test_they_need_a_suite_that_tells_its_task(
    small_config: Configure, make: Any, own: dict[str, Any], environment: str
) -> None:
    with pytest.raises(ConfigError, match=f"is routed by task, but {environment} does not tell its task") as refused:
        make(small_config(environment=environment, **SOFT, **own))
    assert refused.value.field == "policy.architecture"


def test_a_saved_model_has_them_without_being_told(tmp_path: Path) -> None:
    model = ControlModel("reward-scales", max_episode_steps=20, hidden_sizes=[64, 64], **GROUPS, **SOFT)
    model.learn(total_steps=1)
    rows = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    rows[:, 4:] = np.eye(3)[np.arange(50) % 3]
    loaded = ControlModel.load(model.save(tmp_path / "model"))
    assert isinstance(loaded.policy.actor, SoftModules)
    np.testing.assert_array_equal(loaded.predict(rows)[0], model.predict(rows)[0])
    np.testing.assert_array_equal(loaded.policy._head(rows), model.policy._head(rows))


def test_sizes_of_the_other_network_are_said_to_have_no_effect(small_config: Configure) -> None:
    both = {"environment": "reward-scales", "hidden_sizes": [8], **GROUPS}
    assert "hidden_sizes has no effect on a control run" in grpo.notes(small_config(**both, **SOFT))
    assert "module_count has no effect on a control run" in grpo.notes(small_config(**both, module_count=3))
