"""Gradient surgery in an update: the one written out task by task, on a real batch of three tasks of unlike scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.control.policy import MLPPolicy
from groupwise.control.ppo import build
from groupwise.training.learner import Learner
from groupwise.types import Batch

PLAIN = {
    "product": "ppo", "environment": "reward-scales", "num_envs": 3, "num_steps": 20, "hidden_sizes": [6],
    "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 1e9, "adam_epsilon": 0.1, "num_epochs": 1,
    "per_device_train_batch_size": 100, "gradient_accumulation_steps": 1, "kl_stop": None,
}  # fmt: skip


def settings(**changes: Any) -> TrainingConfig:
    return TrainingConfig.from_dict({**PLAIN, "gradient_surgery": "pcgrad", **changes})


@pytest.fixture(scope="module")
def played() -> Batch:
    return build(settings()).source.next()


def policy_for() -> MLPPolicy:
    policy = build(settings()).policy
    assert isinstance(policy, MLPPolicy)
    return policy


def learned(batch: Batch, **changes: Any) -> tuple[list[Tensor], dict[str, float]]:
    """Every weight after one update, and its metrics."""
    policy = policy_for()
    metrics = Learner(policy, settings(**changes)).update(batch)
    return [p.detach() for p in (*policy.actor_parameters(), *policy.critic_parameters())], metrics


def gradients_by_task(learner: Learner, batch: Batch) -> list[Tensor]:
    """Of the actor and of the critic, [K, P]: each task's share of the usual gradient."""
    assert batch.tasks is not None
    found: list[list[Tensor]] = [[], []]
    for task in range(3):
        part = batch.select(batch.tasks[:, 0] == task)
        terms = learner.losses(part)
        # The critic's loss is a mean over rows; the policy's has the denominator of all rows already.
        losses = terms["loss/policy"], terms["loss/value"] * part.rows / batch.rows
        for loss, weights, table in zip(losses, (learner.actor, learner.critic), found, strict=True):
            gradient = torch.autograd.grad(loss, weights, retain_graph=True)
            table.append(torch.cat([g.flatten() for g in gradient]))
    return [torch.stack(table) for table in found]


def test_an_update_with_surgery_is_the_one_written_out(played: Batch) -> None:
    policy, random = policy_for(), torch.Generator().manual_seed(settings().run.seed)
    torch.randperm(played.rows, generator=random)
    orders = core.random_orders(3, random)
    tables = gradients_by_task(Learner(policy, settings()), played)
    wanted = torch.cat([core.project_conflicts(table, orders).sum(0) for table in tables])
    # AdamW's first step moves every weight by g / (|g| + ε) times the rate.
    before = torch.cat([p.detach().flatten() for p in (*policy.actor_parameters(), *policy.critic_parameters())])
    after, metrics = learned(played)
    torch.testing.assert_close(
        torch.cat([p.flatten() for p in after]), before - 0.1 * wanted / (wanted.abs() + 0.1), rtol=0, atol=1e-6
    )
    products = (tables[0] @ tables[0].T)[[0, 0, 1], [1, 2, 2]]
    assert metrics["optim/task_conflicts"] == pytest.approx(float((products < 0).double().mean()))
    assert not torch.allclose(wanted, torch.cat([table.sum(0) for table in tables]))


def test_splitting_into_micro_batches_does_not_change_it(played: Batch) -> None:
    one, _ = learned(played)
    many, _ = learned(played, per_device_train_batch_size=7, gradient_accumulation_steps=9)
    for first, second in zip(one, many, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-6)


def test_tasks_that_agree_take_the_usual_step(played: Batch) -> None:
    """The same rows under two names."""
    rows = torch.arange(0, played.rows, 3).repeat(2)
    twice = played.select(rows)
    tasks = (torch.arange(len(rows)) >= len(rows) // 2).long()[:, None]
    apart, metrics = learned(replace(twice, tasks=tasks))
    together, usual = learned(replace(twice, tasks=None), gradient_surgery="none")
    for first, second in zip(apart, together, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-6)
    assert metrics["optim/task_conflicts"] == 0
    assert "optim/task_conflicts" not in usual
