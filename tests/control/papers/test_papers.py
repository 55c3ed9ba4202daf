"""Each paper's effect with a smaller budget, and the network that came of one of them."""

from __future__ import annotations

import pytest
import torch

from groupwise.control.papers import gpmixture, pcgrad, softmod
from groupwise.control.papers import grpo_replication as grpo
from groupwise.control.papers.paper_result import cell, gain, ratio
from groupwise.control.soft_modules import SoftModules


def silent(done: int, total: int) -> None:
    assert done < total


def test_a_groups_mean_learns_faster_than_no_baseline() -> None:
    seeds = (200, 201)
    groups, nothing = ([grpo.steps_to_learn(arm, seed, 0.3) for seed in seeds] for arm in ("group", "nothing"))
    assert sum(groups) < 0.7 * sum(nothing)
    assert grpo.noise("group", 200) < 0.4 * grpo.noise("nothing", 200)


def test_surgery_lets_drowned_tasks_learn() -> None:
    found = pcgrad.experiment(range(200, 208), silent, steps=100)
    assert found.appeared
    assert found.effects["worst_task_gain"].low > 0
    assert ": reproduced, " in found.sentence


def test_routing_carries_the_task() -> None:
    """Soft modules see the task through their routes alone."""
    share, networks = softmod.train(softmod.ARMS["soft modules"], [200, 201], 150)
    severed = SoftModules(softmod.INPUTS, softmod.ANSWERS, tasks=softmod.TASKS)
    assert float(share.mean()) > 0.45
    seen, answers = softmod.FamilyTasks([200]).questions(200)
    severed.load_state_dict(networks[0].state_dict())
    torch.nn.init.zeros_(severed.task.weight)
    with torch.no_grad():
        without = severed(seen).softmax(-1).gather(-1, answers).mean()
    assert float(without) < 0.35


def test_a_world_that_returns_is_predicted_at_once() -> None:
    found = gpmixture.experiment([103, 107], silent)  # seeds at which a mixture that does not stick flickers
    assert found.effects["agreement"].value > 0.9
    assert found.effects["tasks_found"].value == pytest.approx(3, abs=0.4)
    assert found.effects["error_vs_one_process"].value < 0.2


def test_numbers_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, and 4.303 · 1/√3 either side. Ratios 2 and 8: geometric mean 4."""
    found = gain([2, 4, 6], [1, 2, 3])
    assert (found.value, found.high - found.value) == pytest.approx((2.0, 2.4841), abs=1e-3)
    assert ratio([2, 8], [1, 1]).value == pytest.approx(4.0)
    assert cell([1, 2, 3], 1) == "2.0 (-0.5..4.5)"
