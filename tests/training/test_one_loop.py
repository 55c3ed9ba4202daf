"""One loop and one learner train a control policy, a language model and a graph policy; neither knows which it has."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.control import grpo as control
from groupwise.designer import product as designer
from groupwise.designer.tasks import random_requirements
from groupwise.training.folder import create_run
from groupwise.training.session import Build, Parts, execute
from groupwise.types import Event, Reward, Task, Trajectory

Configure = Callable[..., TrainingConfig]
Numbers = Callable[[Path], dict[str, Any]]

CARTPOLE = {
    "hidden_sizes": [64, 64], "num_generations": 8, "tasks_per_step": 4, "learning_rate": 3e-3,
    "per_device_train_batch_size": 512, "num_epochs": 8, "num_episodes": 8, "eval_steps": 8,
    "eval_episodes": 20, "save_steps": 100,
}  # fmt: skip
LANGUAGE = {
    "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 8, "tasks_per_step": 8,
    "learning_rate": 5e-3, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "num_epochs": 2,
    "num_episodes": 25, "eval_steps": 25, "save_steps": 100,
}  # fmt: skip
DESIGNER = {
    "product": "designer", "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 16,
    "loss_type": "grpo", "learning_rate": 3e-3, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
    "num_episodes": 30, "eval_steps": 30, "eval_episodes": 1, "save_steps": 100, "epsilon_greedy": 0.0,
    "exploration_share": 0.0,
}  # fmt: skip
SEEDS = (0, 1, 2)


def held_out(build: Build, cfg: TrainingConfig) -> tuple[float, float]:
    """Mean reward on held-out tasks before and after training."""
    events = execute(create_run(cfg), build)
    rewards = [e.data["metrics"]["eval/reward_mean"] for e in events if e.type == "eval"]
    return rewards[0], rewards[-1]


def design(cfg: TrainingConfig) -> Parts:
    """A designer of one workflow of six activities."""
    return designer.build(cfg, {"six": random_requirements(4, 6)})


def shuffled(reward: Reward) -> Reward:
    """The same scores, dealt out anew inside each group: the placebo.

    The deal depends on the group's name alone, so that it is the same in a run that was interrupted.
    """

    async def placebo(task: Task, group: Sequence[Trajectory]) -> list[Any]:
        scores = await reward(task, group)
        deal = np.random.default_rng(zlib.crc32(group[0].group_id.encode())).permutation(len(scores))
        return [scores[n] for n in deal]

    return placebo


def test_one_loop_trains_a_control_policy_a_language_model_and_a_graph_policy(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    for seed in SEEDS:
        before, after = held_out(control.build, small_config(**CARTPOLE, seed=seed))
        assert after > before + 100, f"CartPole of seed {seed} went from {before} to {after}"
        before, after = held_out(tiny_language.build, small_config(**LANGUAGE, seed=seed))
        assert before < 0.1
        assert after > 0.6, f"the language model of seed {seed} went from {before} to {after}"
        before, after = held_out(design, small_config(**DESIGNER, seed=seed))
        assert after > before + 0.04, f"the designer of seed {seed} went from {before} to {after}"


def test_the_language_model_learns_next_to_nothing_from_rewards_shuffled_inside_each_group(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    placebo = shuffled(tiny_language.per_attempt(tiny_language.share_of_wanted))
    gains = []
    for seed in SEEDS:
        before, after = held_out(lambda cfg: tiny_language.build(cfg, placebo), small_config(**LANGUAGE, seed=seed))
        gains.append(after - before)
    assert max(gains) < 0.1, gains
    assert abs(np.mean(gains)) < 0.05, gains


@pytest.mark.parametrize(("settings", "steps"), [
    ({}, 1), ({}, 4), ({"beta": 0.05, "use_reference_model": True}, 3), ({"estimator": "gae", "bf16": True}, 3),
], ids=["plain-1", "plain-4", "kl-3", "critic-bf16-3"])  # fmt: skip
def test_an_interrupted_language_run_ends_bit_for_bit_like_an_undisturbed_one(
    small_config: Configure, tiny_language: ModuleType, numbers: Numbers, settings: dict[str, Any], steps: int
) -> None:
    changes = {**LANGUAGE, "num_episodes": 5, "eval_steps": 2, "save_steps": 2, **settings}
    whole, broken = (create_run(small_config(**changes, run_name=name)) for name in ("whole", "broken"))
    finish(execute(whole, tiny_language.build))
    finish(execute(broken, tiny_language.build), steps)
    finish(execute(broken, tiny_language.build))
    assert numbers(broken) == numbers(whole)
    assert len(numbers(whole)["steps"]) == 5


def finish(events: Iterator[Event], steps: int | None = None) -> None:
    """Run to the end, or drop everything on the floor after some steps, like a process that vanished."""
    for event in events:
        if event.type == "step" and event.step == steps:
            return


def test_held_out_prompts_are_never_trained_on(tiny_language: ModuleType) -> None:
    trained = {task.payload for task in tiny_language.Prompts(seed=0).take(10_000)}
    unseen = set(tiny_language.all_prompts(held_out=True))
    assert unseen
    assert not trained & unseen


def test_the_learner_sees_the_log_probabilities_that_were_recorded_when_sampling(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    """Ragged prompts and answers: a shift by one token, or padding that leaks, would show here."""
    parts = tiny_language.build(small_config(**LANGUAGE))
    batch = parts.source.next()
    logp = parts.policy.evaluate(batch.inputs).logp.detach()
    assert batch.mask.sum(1).unique().numel() > 1
    assert (logp - batch.behavior_logp).abs().where(batch.mask, 0).max() < 1e-5
    shifted = logp.roll(1, dims=1)
    assert (shifted - batch.behavior_logp).abs().where(batch.mask, 0).max() > 0.01


def test_every_token_of_an_answer_and_no_other_carries_the_answers_advantage(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    batch = tiny_language.build(small_config(**LANGUAGE)).source.next()
    sampled = batch.behavior_logp != 0  # recorded where a token was sampled, and nowhere else
    known = torch.tensor([record.advantage for record in batch.records]).unique()
    assert torch.equal(batch.mask, sampled)
    assert torch.equal(batch.advantages != 0, sampled)
    for row in range(batch.rows):
        (advantage,) = batch.advantages[row][sampled[row]].unique()
        assert (known - advantage).abs().min() < 1e-6
