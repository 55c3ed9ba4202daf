"""PPO on the one loop: rows that are steps and nothing else, values beyond a cut, and a resume to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig, load_config
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.policy import MLPPolicy
from groupwise.control.ppo import SegmentSource, build, check
from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.segments import EnvironmentCopies, SeparateEnvironments
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.session import execute
from groupwise.types import Batch, Task

Configure = Callable[..., TrainingConfig]
CONFIGS = Path(__file__).parents[2] / "configs"
PPO = {
    "product": "ppo", "estimator": "gae", "num_envs": 4, "num_steps": 16, "value_clip": None, "eval_steps": 0,
    "warmup_ratio": 0.0,
}  # fmt: skip


@pytest.fixture
def ppo_config(small_config: Configure) -> Configure:
    return lambda **changes: small_config(**{**PPO, **changes})


def copies_of(environment: Any, count: int = 4) -> EnvironmentCopies:
    return EnvironmentCopies(environment, count, lambda number, copy: Task(f"CartPole-v1/{number}", None, number), 0)


def metrics_of(cfg: TrainingConfig) -> list[dict[str, Any]]:
    return [dict(e.data["metrics"]) for e in execute(create_run(cfg), build) if e.type == "step"]


def test_it_learns_to_balance(ppo_config: Configure) -> None:
    cfg = ppo_config(
        hidden_sizes=[32], num_envs=8, num_steps=64, num_episodes=24, gamma=0.98, gae_lambda=0.8, num_epochs=8,
        per_device_train_batch_size=256, learning_rate=4e-3, max_grad_norm=0.5, value_coef=1.0,
    )  # fmt: skip
    rewards = [reward for step in metrics_of(cfg) if (reward := step["reward/mean"]) is not None]
    assert np.mean(rewards[-4:]) > 4 * np.mean(rewards[:4])


def test_every_row_is_a_step_of_the_environment_and_none_a_reset() -> None:
    segment = copies_of(CartPole()).play(MLPPolicy(4, 2), 200)
    physics = CartPole()
    checked = 0
    for t in range(200):
        physics.set_state(segment.obs[t])
        after = physics.step(segment.actions[t])[0]
        over = segment.terminated[t] | segment.truncated[t]
        np.testing.assert_allclose(segment.obs[t + 1][~over], after[~over], atol=1e-5)
        assert (np.abs(segment.obs[t + 1][over]) <= 0.05).all()
        checked += int(over.sum())
    assert checked == len(segment.episodes) > 10
    assert (segment.rewards == 1).all()


def test_an_environment_per_copy_gives_the_same_segments_as_one_for_all() -> None:
    together = copies_of(CartPole(max_steps=30))
    apart = copies_of(SeparateEnvironments(lambda: CartPole(max_steps=30)))
    for _ in range(3):
        one, other = together.play(MLPPolicy(4, 2), 25), apart.play(MLPPolicy(4, 2), 25)
        assert one.episodes == other.episodes
        for name in ("obs", "actions", "logp", "rewards", "terminated", "truncated", "cut_obs"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_advantages_look_to_the_state_a_step_led_to_unless_the_pole_fell(ppo_config: Configure) -> None:
    """λ = 0 and a linear critic: A = 1 + γ V(next) − V(now), where physics says what is next; 1 − V(now) at a fall.

    What a limit cut off counts as going on, in the state that was cut off and not in the one the copy started next.
    """
    cfg = ppo_config(
        max_episode_steps=12, num_steps=64, gae_lambda=0.0, gamma=0.9, advantage_normalization=False, hidden_sizes=[]
    )
    parts = build(cfg)
    with torch.no_grad():
        head = parts.policy.critic[-1]  # type: ignore[attr-defined]
        head.weight.copy_(torch.tensor([[3.0, -2.0, 30.0, 5.0]]))
        head.bias.fill_(10.0)
    batch = parts.source.next()
    physics = CartPole()
    obs = batch.inputs["obs"][:, 0]
    physics.set_state(obs.numpy())
    after, _, fell, _ = physics.step(batch.inputs["actions"][:, 0].numpy())
    value = parts.policy.value  # type: ignore[attr-defined]
    with torch.no_grad():
        goes_on = 0.9 * value(torch.from_numpy(after)) * torch.from_numpy(~fell)
        expected = 1 + goes_on - value(obs)
    ends = [record.end for record in batch.records]
    assert fell.sum() == ends.count("finished") > 0
    assert ends.count("truncated") > 0
    torch.testing.assert_close(batch.advantages[:, 0], expected, atol=1e-3, rtol=1e-3)


def test_beyond_a_cut_the_critic_judges_the_state_cut_off_and_not_the_next_start() -> None:
    segment = copies_of(CartPole(max_steps=12)).play(MLPPolicy(4, 2), 64)
    assert len(segment.cut_obs) == segment.truncated.sum() > 0
    copies = np.argwhere(segment.truncated)
    physics = CartPole()
    for (t, copy), cut in zip(copies, segment.cut_obs, strict=True):
        physics.set_state(segment.obs[t])
        np.testing.assert_allclose(physics.step(segment.actions[t])[0][copy], cut, atol=1e-5)


INTERRUPTED = [("CartPole-v1", 40, 1), ("CartPole-v1", 40, 3), ("Pendulum-v1", 20, 3), ("LunarLander-v3", 40, 3)]


@pytest.mark.parametrize(("environment", "length", "steps"), INTERRUPTED)
def test_an_interrupted_run_ends_bit_for_bit_like_an_undisturbed_one(
    ppo_config: Configure, numbers: Callable[[Path], dict[str, Any]], environment: str, length: int, steps: int
) -> None:
    """Choices and real numbers, vectorised copies and separate ones; Box2D cannot save its state, and need not."""
    if environment.startswith("Lunar"):
        pytest.importorskip("Box2D")
    settings = {
        "environment": environment, "max_episode_steps": length, "num_episodes": 100, "total_samples": 6 * 64,
        "lr_scheduler_type": "linear", "clip_scheduler_type": "linear",
    }  # fmt: skip
    whole, broken = (create_run(ppo_config(**settings, run_name=name)) for name in ("whole", "broken"))
    list(execute(whole, build))
    for event in execute(broken, build):
        if event.type == "step" and event.step == steps:
            break
    list(execute(broken, build))
    assert numbers(broken) == numbers(whole)


def test_episodes_under_way_go_on_where_they_were() -> None:
    policy = MLPPolicy(4, 2)
    first = copies_of(CartPole(max_steps=40))
    first.play(policy, 33)
    second = copies_of(CartPole(max_steps=40))
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.totals, first.totals)
    ours, theirs = second.play(policy, 50), first.play(policy, 50)
    assert ours.episodes == theirs.episodes
    np.testing.assert_array_equal(ours.obs, theirs.obs)


def test_training_ends_by_samples_and_schedules_count_them(ppo_config: Configure) -> None:
    """Half-way through the samples the rate is at half, whatever number of iterations is allowed."""
    steps = metrics_of(ppo_config(num_episodes=1000, total_samples=256, lr_scheduler_type="linear", learning_rate=0.02))
    assert [step["optim/learning_rate"] for step in steps] == pytest.approx([0.02, 0.015, 0.01, 0.005])


@pytest.mark.parametrize(("course", "clipped"), [("constant", False), ("linear", True)])
def test_a_clip_that_shrinks_clips_more_at_the_end(ppo_config: Configure, course: str, clipped: bool) -> None:
    """The same batch at the start and near the end of a run: ratios that were inside the clip no longer are."""
    cfg = ppo_config(
        clip_scheduler_type=course, clip_ratio=0.9, num_episodes=1000, lr_scheduler_type="constant",
        learning_rate=3e-3, num_epochs=10,
    )  # fmt: skip
    parts = build(cfg)
    learner = Learner(parts.policy, cfg)
    batch = parts.source.next()
    share = [learner.update(batch)]
    learner.updates = 990
    share.append(learner.update(batch))
    first, last = (found["policy/clip_low"] + found["policy/clip_high"] for found in share)
    assert first < 0.05
    assert (last > 0.5) == clipped


def test_every_task_of_a_suite_gets_the_same_number_of_steps(ppo_config: Configure) -> None:
    batch = build(ppo_config(environment="reward-scales", num_envs=6, num_steps=64)).source.next()
    tasks = batch.inputs["obs"][:, 0, -3:]
    assert tasks.sum(0).tolist() == [128, 128, 128]
    kinds = {record.task_id.rpartition("/")[0]: record.total / record.length for record in batch.records}
    assert kinds == {"cartpole": 100, "cartpole-long": 1, "cartpole-short-reversed": pytest.approx(0.01)}


def test_settings_that_are_not_ppos_are_refused(ppo_config: Configure) -> None:
    with pytest.raises(ConfigError, match="PPO has no groups"):
        check(ppo_config(estimator="group_rtg"))
    with pytest.raises(ConfigError, match="PPO does not use a reference model"):
        check(ppo_config(use_reference_model=True))


def test_numbers_that_are_not_finite_are_refused_by_name() -> None:
    class Broken(CartPole):
        def step(self, actions: Any) -> Any:
            obs, rewards, terminated, truncated = super().step(actions)
            rewards[2] = np.nan
            return obs, rewards, terminated, truncated

    with pytest.raises(ContractError, match="Broken returned the observation .* and the reward nan; both must"):
        copies_of(Broken()).play(MLPPolicy(4, 2), 5)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_shipped_settings_are_sound(path: Path) -> None:
    cfg = load_config(path)
    algorithm, *name = path.relative_to(CONFIGS).with_suffix("").parts
    assert cfg.task.environment == "/".join(name)
    assert cfg.task.product == ("ppo" if algorithm == "ppo" else "control")


def test_every_task_may_have_a_scale_of_its_own_for_advantages_and_for_the_critic() -> None:
    def batch_of(scale: str, estimator: str) -> tuple[Batch, SegmentSource]:
        cfg = TrainingConfig(
            product="ppo", environment="reward-scales", num_envs=3, num_steps=64, seed=2, advantage_scale=scale,
            estimator=estimator,
        )  # fmt: skip
        source = build(cfg).source
        assert isinstance(source, SegmentSource)
        return source.next(), source

    (together, _), (apart, _) = batch_of("batch_std", "gae"), batch_of("task_rms", "gae")
    # Rows lie copy by copy, and each copy plays one task: rewards of 100, 1 and 0.01.
    spreads = together.advantages.reshape(3, 64).std(1)
    assert spreads[0] > 1_000 * spreads[2]
    own = apart.advantages.reshape(3, 64)
    np.testing.assert_allclose(own.mean(1), 0.0, atol=1e-5)
    np.testing.assert_allclose(own.std(1, correction=0), 1.0, atol=1e-4)
    # The critic's targets are returns, unless it has units too.
    assert torch.equal(apart.returns, together.returns)
    in_units, source = batch_of("task_rms", "group_gae")
    targets = in_units.returns.reshape(3, 64).square().mean(1).sqrt()
    assert ((targets > 0.3) & (targets < 3.0)).all()
    again = build(source.cfg).source
    again.load_state_dict(source.state_dict())
    assert again.state_dict()["task_units"] == source.state_dict()["task_units"]
