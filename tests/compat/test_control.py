"""The founding plan's classes: they run with their defaults, and do what the sound part of the plan says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.compat import GRPO, AdaptiveGrouper, GroupAdvantageNormalizer, GroupingStrategy, GroupWeightCalculator
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.episodes import collect_groups
from groupwise.types import Task, Trajectory


def episodes(policy: MLPPolicy, seed: int = 0, groups: int = 2) -> list[Trajectory]:
    tasks = [Task(f"CartPole-v1/{seed + n}", None, seed + n) for n in range(groups)]
    made = collect_groups(CartPole(), policy, tasks, 8, np.random.default_rng(seed), version=policy.version)
    return [member for group in made for member in group.members]


def rollout(rewards: list[float], seed: int = 0, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    size = len(rewards)
    return SimpleNamespace(
        obs=rng.normal(size=(size, 3)), actions=rng.integers(2, size=size), rewards=np.array(rewards), **more
    )


@pytest.fixture
def rollouts() -> list[Any]:
    return [rollout([1.0] * (n + 2), seed=n) for n in range(8)]


def test_the_defaults_run_on_plain_rollouts_and_a_notice_says_what_groups_are_used_for(rollouts: list[Any]) -> None:
    with pytest.warns(UserWarning, match="scale and weight advantages, but their mean is not subtracted"):
        grpo = GRPO()
    loss = grpo.update(rollouts)
    assert isinstance(loss, float)
    assert np.isfinite(loss)
    assert grpo.cfg.grouping.group_strategy == "auto"
    assert sum(name.endswith("/weight") for name in grpo.metrics) == 4
    assert grpo.policy is not None
    assert grpo.policy.version > 0


def test_groups_that_are_fixed_before_acting_need_no_notice(rollouts: list[Any], recwarn: Any) -> None:
    grpo = GRPO(group_strategy="task")
    grpo.update(rollouts)
    assert grpo.notice == ""
    assert not [w for w in recwarn if "group_strategy" in str(w.message)]


@pytest.mark.filterwarnings("ignore:group_strategy")
@pytest.mark.parametrize("strategy", ["auto", "task"])
def test_it_learns_cartpole(strategy: str) -> None:
    policy = MLPPolicy(4, 2, hidden_sizes=(32,), critic=True)
    grpo = GRPO(strategy, policy=policy, learning_rate=6e-3, gamma=0.98)
    lengths = []
    for step in range(8):
        made = episodes(policy, seed=10 * step)
        lengths.append(np.mean([len(member) for member in made]))
        grpo.update(made)
    assert lengths[-1] > 2.5 * lengths[0]


def test_settings_keep_their_names_and_unknown_ones_are_answered() -> None:
    grpo = GRPO("task", clip_ratio=0.1, learning_rate=3e-4, estimator="group_rtg")
    assert (grpo.cfg.loss.clip_ratio, grpo.cfg.optim.learning_rate) == (0.1, 3e-4)
    with pytest.raises(ConfigError, match="clip_range"):
        GRPO("task", clip_range=0.1)
    with pytest.raises(ConfigError, match="best of the worst"):
        GRPO("task", baseline_group="difficulty", estimator="outcome")
    with pytest.raises(ConfigError, match="'quartile'"):
        GRPO("quartile")


def test_rollouts_that_cannot_be_learned_from_are_refused_by_number(rollouts: list[Any]) -> None:
    grpo = GRPO("task")
    with pytest.raises(ContractError, match="no rollouts"):
        grpo.update([])
    with pytest.raises(ContractError, match="rollout 1, a SimpleNamespace, has no obs and no rewards"):
        grpo.update([rollouts[0], SimpleNamespace(actions=np.zeros(2))])
    with pytest.raises(ContractError, match="rollout 1 has .* not finite"):
        grpo.update([rollouts[0], rollout([np.nan])])
    with pytest.raises(ContractError, match="not whole numbers"):
        GRPO("task").update([SimpleNamespace(obs=np.zeros((2, 1)), actions=np.zeros(2), rewards=np.zeros(2))])


def test_a_single_rollout_and_one_of_constant_reward_are_no_trouble() -> None:
    assert np.isfinite(GRPO("task").update([rollout([0.0, 0.0, 0.0])]))


def test_a_cut_rollout_is_bootstrapped_from_what_came_next() -> None:
    found = {}
    for terminated in (True, False):
        grpo = GRPO("task", advantage_scale="none")
        grpo.update([rollout([1.0] * 3, terminated=terminated, last_obs=np.ones(3))])
        found[terminated] = grpo.metrics["advantage/std"]
    assert found[True] != found[False]


def test_difficulty_groups_are_the_plans_quartiles() -> None:
    given = [rollout([float(n)], seed=n) for n in range(1, 9)]
    found = GroupingStrategy("difficulty", 4).group_trajectories(given)
    assert {group: [r.rewards.sum() for r in members] for group, members in found.items()} == {
        0: [1, 2], 1: [3, 4], 2: [5, 6], 3: [7, 8],
    }  # fmt: skip


@pytest.mark.parametrize("strategy", ["auto", "task", "difficulty", "length"])
def test_every_rollout_is_in_one_group(rollouts: list[Any], strategy: str) -> None:
    found = GroupingStrategy(strategy, 3).group_trajectories(rollouts)
    assert sorted(id(r) for members in found.values() for r in members) == sorted(id(r) for r in rollouts)
    assert len(found) == (1 if strategy == "task" else 3)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_normalising_divides_and_does_not_recentre(make: Any) -> None:
    normalizer = GroupAdvantageNormalizer()
    assert normalizer.normalize(make([3.0, 4.0, 0.0, 0.0]), "a").tolist() == pytest.approx([1.2, 1.6, 0, 0])
    assert normalizer.scales == {"a": 2.5}
    assert normalizer.normalize(make([0.0, 0.0]), "b").tolist() == [0, 0]
    assert normalizer.normalize(make([5.0]), "c").tolist() == [1]
    with pytest.raises(ContractError, match="group 'd' are not all finite"):
        normalizer.normalize(make([1.0, float("nan")]), "d")


def test_balanced_weights_give_every_group_the_same_share() -> None:
    grouped = {0: [rollout([1.0] * 10)], 4: [rollout([1.0] * 20), rollout([1.0] * 10)]}
    weights = GroupWeightCalculator("balanced").compute_weights(grouped, {})
    assert weights == pytest.approx({0: 2.0, 4: 2 / 3})


def test_a_lone_short_rollout_does_not_decide_the_update() -> None:
    grouped = {0: [rollout([1.0] * 10)], 1: [rollout([1.0] * 300)], 2: [rollout([1.0] * 290)]}
    plain = GroupWeightCalculator("balanced", largest=1000.0).compute_weights(grouped)
    assert plain[0] == pytest.approx(20.0)
    limited = GroupWeightCalculator("balanced").compute_weights(grouped)
    assert limited[0] == pytest.approx(4.0)
    assert (10 * limited[0] + 300 * limited[1] + 290 * limited[2]) / 600 == pytest.approx(1.0)
    assert limited[1] * 300 == pytest.approx(limited[2] * 290)
    # One group alone weighs 1, whatever the limit.
    assert GroupWeightCalculator("balanced").compute_weights({3: [rollout([1.0])]}) == {3: 1.0}


def test_a_group_without_advantages_has_nothing_to_teach_and_the_others_share_its_weight() -> None:
    grouped = {0: [rollout([1.0] * 10)], 1: [rollout([1.0] * 20)], 2: [rollout([1.0] * 10)]}
    advantages = {0: np.zeros(10), 1: torch.ones(20, requires_grad=True), 2: np.array([1.0] * 5 + [0.0] * 5)}
    weights = GroupWeightCalculator("balanced").compute_weights(grouped, advantages)
    assert weights == pytest.approx({0: 0.0, 1: 25 / 40, 2: 25 / 10})
    assert GroupWeightCalculator("none").compute_weights(grouped, advantages) == {0: 0.0, 1: 1.0, 2: 1.0}
    with pytest.raises(ContractError, match="group 1 are not all finite"):
        GroupWeightCalculator().compute_weights(grouped, {**advantages, 1: [float("inf")]})


def test_the_plans_update_runs_on_its_parts_and_its_gradient_improves_the_policy(rollouts: list[Any]) -> None:
    grpo = GRPO("task", group_weight_method="none", advantage_scale="none")
    assert isinstance(grpo.grouping_strategy, GroupingStrategy)
    grouped = grpo.grouping_strategy.group_trajectories(rollouts)
    (members,) = grouped.values()
    advantages = grpo.compute_gae(members)
    assert advantages.shape == (sum(len(one.rewards) for one in members),)
    wanted = torch.linspace(-1, 1, len(advantages))
    loss = grpo.compute_group_policy_loss(members, wanted)
    assert loss.item() == pytest.approx(-float(wanted.mean()), abs=1e-6)  # on policy every ratio is 1
    assert grpo.policy is not None
    (gradient, *_) = torch.autograd.grad(loss, grpo.policy.actor_parameters(), retain_graph=True)
    assert gradient.abs().max() > 0
    with pytest.raises(ContractError, match=r"44 steps but 3 advantages"):
        grpo.compute_group_policy_loss(members, [1.0, 2.0, 3.0])
    with pytest.raises(ContractError, match="need a critic"):
        GRPO("task", estimator="group_rtg").compute_gae(members)


def test_an_adaptive_grouper_remembers_its_window(rollouts: list[Any]) -> None:
    grouper = AdaptiveGrouper(history_window=5)
    groups = grouper.update_groups(rollouts)
    assert groups.shape == (8,)
    assert len(grouper.history) == 5
    assert AdaptiveGrouper().history.maxlen == 1000
