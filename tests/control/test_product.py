"""The control product on the one loop: every estimator, loss and term has its effect on a real environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.grpo import BEYOND_EVALUATION, build, check, make_tasks
from groupwise.core import LOSSES
from groupwise.errors import ConfigError
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.folder import create_run
from groupwise.training.session import execute

Configure = Callable[..., TrainingConfig]

LEARNS = {
    "num_episodes": 10, "num_generations": 8, "tasks_per_step": 2, "hidden_sizes": [32], "learning_rate": 4e-3,
    "num_epochs": 6, "per_device_train_batch_size": 256, "eval_steps": 0, "warmup_ratio": 0.0,
}  # fmt: skip


def metrics_of(cfg: TrainingConfig) -> list[dict[str, Any]]:
    events = execute(create_run(cfg), build)
    return [dict(e.data["metrics"]) for e in events if e.type == "step"]


@pytest.mark.parametrize("estimator", ["outcome", "group_rtg", "gae"])
def test_every_estimator_learns(small_config: Configure, estimator: str) -> None:
    scale = "group_std" if estimator == "outcome" else "batch_std"
    steps = metrics_of(small_config(**LEARNS, estimator=estimator, advantage_scale=scale))
    assert steps[-1]["reward/mean"] > 2.5 * steps[0]["reward/mean"]


@pytest.mark.parametrize("half", [False, True])
def test_a_sampler_differs_from_the_learner_only_in_another_precision(small_config: Configure, half: bool) -> None:
    first = metrics_of(small_config(**{**LEARNS, "num_episodes": 1}, bf16=half))[0]
    assert ("sampler/ratio_gap" in first) == half
    if half:
        assert 1e-4 < first["sampler/ratio_gap"] < 0.05


def test_the_critic_learns_to_explain_the_returns(small_config: Configure) -> None:
    steps = metrics_of(small_config(**LEARNS, estimator="gae", value_clip=None, critic_learning_rate=0.02))
    assert steps[-1]["value/explained_variance"] > max(0.3, steps[0]["value/explained_variance"])
    assert all(step["optim/critic_grad_norm"] > 0 for step in steps)


SEQUENCE = ("gspo", "luspo", "vespo")


@pytest.mark.parametrize("loss_type", SEQUENCE)
def test_losses_of_whole_attempts_are_refused(small_config: Configure, loss_type: str) -> None:
    with pytest.raises(ConfigError, match="single steps"):
        build(small_config(loss_type=loss_type))


def test_losses_by_attempt_count_attempts_and_not_steps(small_config: Configure) -> None:
    """grpo is the mean over attempts of the mean over their steps, dr_grpo divides by attempts × longest."""
    batch = build(small_config(loss_type="grpo")).source.next()
    assert batch.weights is not None
    assert batch.denominator == 8
    lengths = [record.length for record in batch.records]
    assert float(batch.weights.sum()) == pytest.approx(8 if batch.rows == sum(lengths) else batch.weights.sum())
    assert build(small_config(loss_type="dr_grpo", max_completion_length=500)).source.next().denominator == 4000


@pytest.mark.parametrize("loss_type", sorted(set(LOSSES) - set(SEQUENCE)))
def test_every_loss_trains(small_config: Configure, loss_type: str) -> None:
    cfg = small_config(num_episodes=3, loss_type=loss_type, max_completion_length=500)
    steps = metrics_of(cfg)
    assert all(step["optim/steps"] > 0 and step["optim/skipped"] == 0 for step in steps)


def test_a_strong_pull_to_the_reference_keeps_the_policy_near_it(small_config: Configure) -> None:
    """β = 20 is far stronger than any advantage, which has size 1."""
    kl = {}
    for beta in (1e-6, 20.0):
        steps = metrics_of(small_config(**LEARNS, beta=beta, use_reference_model=True))
        kl[beta] = steps[-1]["policy/reference_kl"]
    assert kl[20.0] < 0.2 * kl[1e-6]


def test_an_adaptive_coefficient_moves(small_config: Configure) -> None:
    steps = metrics_of(small_config(**LEARNS, beta=0.05, use_reference_model=True, kl_target=1e-4, kl_horizon=50))
    assert steps[-1]["optim/kl_coef"] > 0.05


def test_cut_off_attempts_are_left_out_when_asked(small_config: Configure) -> None:
    """Every episode is cut after five steps: then there is nothing left to learn from."""
    short = {"max_episode_steps": 5, "num_episodes": 2, "eval_steps": 0, "estimator": "group_rtg"}
    policies = []
    for masked in (False, True):
        cfg = small_config(**short, mask_truncated=masked, entropy_coef=0.01)
        parts = build(cfg)
        batch = parts.source.next()
        policies.append((parts, batch))
        assert batch.metrics["attempt/truncated_share"] == 1.0
    kept = policies[1][1].keep
    assert policies[0][1].keep is None
    assert kept is not None
    assert not bool(kept.any())


def test_evaluation_starts_are_never_trained_on() -> None:
    tasks = make_tasks(CartPole(), "CartPole-v1", 0).take(200)
    assert len({task.seed for task in tasks}) == 200
    assert min(task.seed for task in tasks) >= BEYOND_EVALUATION


def test_members_of_a_group_start_alike_and_groups_differ(small_config: Configure) -> None:
    parts = build(small_config())
    source: Any = parts.source
    groups = source.rollout.collect(source.tasks.take(2))
    starts = [[tuple(member.obs[0]) for member in group.members] for group in groups]
    assert all(len(set(members)) == 1 for members in starts)
    assert starts[0][0] != starts[1][0]


def test_a_policy_says_of_recorded_actions_what_it_said_when_acting(small_config: Configure) -> None:
    parts = build(small_config())
    batch = parts.source.next()
    with torch.no_grad():
        seen = parts.policy.evaluate(batch.inputs)
    assert torch.allclose(seen.logp, batch.behavior_logp, atol=1e-6)


ANY = {
    "masks": {"environment": "Taxi-v4", "max_episode_steps": 20},
    "numbers": {"environment": "Pendulum-v1", "max_episode_steps": 20},
    "Gymnasium's own": {"environment": "CartPole-v1", "options": {"gymnasium": True}},
    "a suite of unlike tasks": {"environment": "classic", "max_episode_steps": 20, "tasks_per_step": 3},
    "Box2D": {"environment": "LunarLander-v3", "max_episode_steps": 20},
}


@pytest.mark.parametrize("kind", ANY)
@pytest.mark.parametrize("estimator", ["group_rtg", "gae"])
def test_every_kind_of_environment_trains_and_replays(small_config: Configure, kind: str, estimator: str) -> None:
    if kind == "Box2D":
        pytest.importorskip("Box2D", reason="pip install 'groupwise[box2d]'")
    cfg = small_config(**ANY[kind], num_episodes=3, estimator=estimator, replay_size=4, replay_groups=1, beta=0.01,
                       use_reference_model=True)  # fmt: skip
    batch = build(cfg).source.next()
    policy = build(cfg).policy
    with torch.no_grad():
        seen = policy.evaluate(batch.inputs)
    assert torch.allclose(seen.logp, batch.behavior_logp, atol=1e-5)
    assert ("action_mask" in batch.inputs) == (kind in ("masks", "a suite of unlike tasks"))
    steps = metrics_of(cfg)
    assert all(step["optim/steps"] > 0 and step["optim/skipped"] == 0 for step in steps)
    # Twenty steps of a masked taxi always cost 20, so its groups have nothing to teach again.
    assert steps[-1]["replay/share"] > 0 or kind == "masks"


def test_masked_runs_resume_bit_for_bit_with_what_they_replay(small_config: Configure, numbers: Any) -> None:
    options = {
        **ANY["a suite of unlike tasks"],
        "replay_size": 4,
        "replay_groups": 1,
        "save_steps": 2,
        "num_episodes": 4,
    }
    whole, broken = (create_run(small_config(**options, run_name=name)) for name in ("whole", "broken"))
    list(execute(whole, build))
    for event in execute(broken, build):
        if event.type == "step" and event.step == 3:
            break
    list(execute(broken, build))
    assert numbers(broken) == numbers(whole)
    assert numbers(whole)["steps"][-1][1]["replay/share"] > 0


def test_gymnasiums_cartpole_trains_exactly_as_ours(small_config: Configure) -> None:
    ours, theirs = (metrics_of(small_config(num_episodes=2, options=options)) for options in ({}, {"gymnasium": True}))
    assert ours == theirs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "LunarLander-v2"}, "LunarLander-v2 no longer exists\nDid you mean 'LunarLander-v3'?"),
        ({"environment": "reward-scale"}, "there is no environment reward-scale\nDid you mean 'reward-scales'?"),
        ({"options": {"half_lenght": 1.0}}, "half_lenght"),
        ({"environment": "Pendulum-v1", "options": {"gymnasium": True, "gravity": 9.0}}, "gravity"),
        ({"options": {"gymnasium": "yes"}}, "gymnasium = 'yes' must be true or false"),
        ({"environment": "Blackjack-v1"}, "no step limit"),
    ],
)
def test_an_environment_that_cannot_be_made_is_refused_in_plain_words(
    small_config: Configure, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check(small_config(**changes))
    assert message in str(error.value)


def test_a_network_of_ones_own_trains_and_is_saved(small_config: Configure) -> None:
    def network(inputs: int, outputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, outputs))

    cfg = small_config(num_episodes=2, estimator="gae")
    path = create_run(cfg)
    list(execute(path, lambda c: build(c, network=network)))
    newest = load_checkpoint(max((path / "checkpoints").iterdir()))
    assert newest.model["actor.0.weight"].shape == (16, 4)
    assert newest.model["critic.2.weight"].shape == (1, 16)
