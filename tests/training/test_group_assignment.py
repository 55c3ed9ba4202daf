"""Scale, weight and baseline groups in a run: three CartPoles paid 100, 1 and 0.01 a step, on the one loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.control.classic.cartpole import CartPole
from groupwise.control.grpo import build, critic_values, rows_of_steps
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError
from groupwise.rewards.function import EnvironmentReward
from groupwise.rollout.episodes import collect_groups
from groupwise.training.batch_source import GroupSource, NumberedTasks
from groupwise.training.estimators import AdvantageEstimate, Attempts, scored_attempts
from groupwise.training.folder import create_run
from groupwise.training.group_assignment import GroupAssignment
from groupwise.training.session import Parts, execute
from groupwise.types import End, Group, Score, ScoredGroup, Task, Trajectory

Configure = Callable[..., TrainingConfig]
Numbers = Callable[[Path], dict[str, Any]]
PAY = {"rich": 100.0, "plain": 1.0, "poor": 0.01}
LIMITS = {"rich": 100, "plain": 50, "poor": 25}


class Episodes:
    """Each task in a CartPole of its own, paid by its own scale."""

    def __init__(self, policy: MLPPolicy, group_size: int) -> None:
        self.policy = policy
        self.group_size = group_size
        self.rng = np.random.default_rng(3)

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        return [self._group(number, task) for number, task in enumerate(tasks)]

    def _group(self, number: int, task: Task) -> Group:
        env = CartPole(max_steps=LIMITS[task.kind])
        (group,) = collect_groups(env, self.policy, [task], self.group_size, self.rng, version=self.policy.version)
        members = tuple(
            replace(m, id=f"{number}/{m.id}", group_id=str(number), rewards=m.rewards * PAY[task.kind])
            for m in group.members
        )
        return Group(str(number), task, members)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]


def build_suite(cfg: TrainingConfig) -> Parts:
    critic = needs_critic(cfg.advantage.estimator)
    policy = MLPPolicy(4, 2, hidden_sizes=cfg.policy.hidden_sizes, critic=critic, seed=cfg.run.seed)
    kinds = list(PAY)
    source = GroupSource(
        cfg,
        tasks=NumberedTasks(lambda number: Task(f"{kinds[number % 3]}/{number}", None, number)),
        rollout=Episodes(policy, cfg.rollout.num_generations),
        reward=EnvironmentReward(),
        collate=lambda attempts: rows_of_steps(attempts, cfg.loss.loss_type),
        values=critic_values(policy) if critic else None,
    )
    return Parts(policy, source)


@pytest.fixture
def suite(small_config: Configure) -> Configure:
    def make(**changes: Any) -> TrainingConfig:
        return small_config(tasks_per_step=3, eval_steps=0, **changes)

    return make


def by_task(batch: Any, values: torch.Tensor) -> dict[int, torch.Tensor]:
    return {int(g): values[batch.weight_group == g] for g in batch.weight_group.unique()}


@pytest.mark.parametrize("estimator", ["outcome", "group_rtg", "group_gae"])
def test_every_task_is_scaled_by_itself(suite: Configure, estimator: str) -> None:
    cfg = suite(estimator=estimator, advantage_scale="task_rms", beta=1e-9, use_reference_model=True)
    batch = build_suite(cfg).source.next()
    sizes = {g: float(a.square().mean().sqrt()) for g, a in by_task(batch, batch.advantages).items()}
    assert len(sizes) == 3
    if estimator == "outcome":
        assert all(0.3 < size < 3 for size in sizes.values())
    else:
        assert list(sizes.values()) == pytest.approx([1, 1, 1], rel=1e-5)


def test_scaled_by_the_batch_the_rich_task_is_all_there_is(suite: Configure) -> None:
    batch = build_suite(suite(estimator="group_rtg", advantage_scale="batch_std")).source.next()
    sizes = [float(a.square().mean().sqrt()) for a in by_task(batch, batch.advantages).values()]
    assert sizes[0] > 1e3 * sizes[2]


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
@pytest.mark.parametrize("method", ["balanced", "inv_sqrt_steps", "performance", "adaptive"])
def test_weights_keep_the_total_of_a_batch(suite: Configure, method: str, loss_type: str) -> None:
    settings = {"estimator": "group_gae", "advantage_scale": "task_rms", "loss_type": loss_type}
    plain = build_suite(suite(**settings)).source.next()
    batch = build_suite(suite(**settings, group_weight_method=method)).source.next()
    assert batch.weights is not None
    ones = torch.ones_like(batch.weights) if plain.weights is None else plain.weights
    assert float(batch.weights.sum()) == pytest.approx(float(ones.sum()), rel=1e-5)
    assert batch.denominator == plain.denominator
    shares = [float(w.sum() / batch.weights.sum()) for w in by_task(batch, batch.weights).values()]
    if method == "balanced":
        assert shares == pytest.approx([1 / 3] * 3, rel=1e-5)
    assert sum(shares) == pytest.approx(1)


def test_without_a_method_nothing_is_weighed(suite: Configure) -> None:
    assert build_suite(suite()).source.next().weights is None


def test_groups_are_reported_by_the_name_of_their_task(suite: Configure) -> None:
    cfg = suite(estimator="group_gae", advantage_scale="task_rms", group_weight_method="balanced")
    metrics = build_suite(cfg).source.next().metrics
    assert metrics["group/rich/reward_mean"] > 1000 * metrics["group/poor/reward_mean"]
    assert [metrics[f"group/{name}/share"] for name in PAY] == pytest.approx([1 / 3] * 3)
    assert [metrics[f"group/{name}/advantage_rms"] for name in PAY] == pytest.approx([1] * 3)


def test_a_run_of_one_task_reports_no_groups(small_config: Configure) -> None:
    metrics = build(small_config()).source.next().metrics
    assert not [name for name in metrics if name.startswith("group/")]


@pytest.mark.parametrize("strategy", ["difficulty", "length", "auto", "adaptive", "hierarchical", "dirichlet"])
def test_groups_of_the_outcome_scale_and_weigh(suite: Configure, strategy: str) -> None:
    cfg = suite(
        estimator="group_gae", advantage_scale="task_rms", group_strategy=strategy, group_weight_method="balanced"
    )
    batch = build_suite(cfg).source.next()
    assert torch.isfinite(batch.advantages).all()
    shares = [float(w.sum() / batch.weights.sum()) for w in by_task(batch, batch.weights).values()]
    assert shares == pytest.approx([1 / len(shares)] * len(shares), rel=1e-5)


def test_scale_and_weight_may_differ(suite: Configure) -> None:
    cfg = suite(
        estimator="group_gae", advantage_scale="task_rms", scale_group="task", weight_group="difficulty", n_groups=2,
        group_weight_method="balanced",
    )  # fmt: skip
    source: Any = build_suite(cfg).source
    batch = source.next()
    assert set(batch.weight_group.unique().tolist()) == {0, 1}
    assert source.groups.scale.numbers == {"rich": 0, "plain": 1, "poor": 2}


def test_the_ablation_subtracts_the_mean_of_a_quarter_and_says_what_it_does(small_config: Configure) -> None:
    """Within a quarter of the returns the worst of the best is blamed: its advantage is below 0."""
    with pytest.raises(ConfigError, match="best of the worst"):
        small_config(baseline_group="difficulty")
    cfg = small_config(
        estimator="outcome", advantage_scale="none", baseline_group="difficulty", allow_outcome_baseline=True,
        n_groups=2, num_generations=8, tasks_per_step=1, num_episodes=1,
    )  # fmt: skip
    parts = build(cfg)
    records = sorted(parts.source.next().records, key=lambda record: record.total)
    best_half = [record for record in records if record.total > np.median([r.total for r in records])]
    assert best_half[0].advantage < 0 < records[-1].advantage
    assert any("best of the worst" in note for note in parts.notes)
    honest = build(small_config(estimator="outcome", advantage_scale="none", num_generations=8, tasks_per_step=1))
    fair = sorted(honest.source.next().records, key=lambda record: record.total)
    assert [r.total for r in fair] == [r.total for r in records]
    assert sum(r.advantage > 0 for r in fair) != sum(r.advantage > 0 for r in records) or fair[0].advantage < 0


def test_groups_by_task_as_a_baseline_need_no_permission(suite: Configure) -> None:
    batch = build_suite(suite(baseline_group="task", estimator="outcome")).source.next()
    assert torch.isfinite(batch.advantages).all()


ADAPTIVE = [
    {"group_weight_method": "performance"},
    {"group_weight_method": "adaptive", "group_strategy": "adaptive", "n_groups": 3},
    {"group_weight_method": "balanced", "group_strategy": "dirichlet", "history_window": 20},
]


@pytest.mark.parametrize("changes", ADAPTIVE, ids=["performance", "adaptive", "dirichlet"])
def test_an_interrupted_run_ends_bit_for_bit_like_an_undisturbed_one(
    suite: Configure, numbers: Numbers, changes: dict[str, Any]
) -> None:
    settings = {"estimator": "group_gae", "advantage_scale": "task_rms", "num_episodes": 4, **changes}
    whole = create_run(suite(run_name="whole", **settings))
    list(execute(whole, build_suite))
    broken = create_run(suite(run_name="broken", **settings))
    for event in execute(broken, build_suite):
        if event.type == "step" and event.step == 3:
            break
    list(execute(broken, build_suite))
    assert numbers(broken) == numbers(whole)


def test_what_was_learned_about_groups_is_in_the_state(suite: Configure) -> None:
    """Without it the weights of a resumed run would start from equal again."""
    cfg = suite(estimator="group_gae", group_weight_method="performance")
    one: Any = build_suite(cfg).source
    for _ in range(3):
        one.next()
    other: Any = build_suite(cfg).source
    assert other.groups.rule.shares == {}
    other.load_state_dict(one.state_dict())
    assert other.groups.rule.shares == one.groups.rule.shares != {}
    assert other.critic.scales.squares == one.critic.scales.squares != {}


def test_a_group_of_one_learns_by_a_critic_and_by_nothing_else(suite: Configure) -> None:
    alone = build_suite(suite(num_generations=1, advantage_scale="task_rms", estimator="group_rtg")).source.next()
    assert alone.rows == 0
    taught = build_suite(suite(num_generations=1, advantage_scale="task_rms", estimator="group_gae")).source.next()
    assert bool(taught.advantages.ne(0).any())


def test_settings_that_miss_each_other_are_pointed_out(small_config: Configure) -> None:
    assert "meant for 'task_rms'" in " ".join(build(small_config(estimator="group_gae")).notes)
    notes = build(small_config(estimator="group_gae", advantage_scale="task_rms", scale_group="length")).notes
    assert notes == ()


def test_a_run_resumed_with_another_strategy_starts_that_one_afresh(suite: Configure) -> None:
    before: Any = build_suite(suite(group_strategy="adaptive", group_weight_method="performance")).source
    before.next()
    after: Any = build_suite(suite(group_strategy="dirichlet", group_weight_method="performance")).source
    after.load_state_dict(before.state_dict())
    assert after.groups.rule.shares == before.groups.rule.shares
    assert len(after.groups.weight.mixture) == 0
    after.next()


def made(lengths: Sequence[int], totals: Sequence[float], kinds: Sequence[str]) -> Attempts:
    """Attempts of those lengths, totals and tasks; each has one more step, which is not its own."""
    groups = []
    for number, (length, total, kind) in enumerate(zip(lengths, totals, kinds, strict=True)):
        steps = np.arange(length + 1)
        zeros = np.zeros(length + 1)
        member = Trajectory(
            str(number), kind, "g", steps[:, None], steps, steps > 0, zeros, steps, zeros, End.FINISHED, True
        )
        groups.append(ScoredGroup(Group(str(number), Task(f"{kind}/{number}"), (member,)), (Score(total),)))
    return scored_attempts(groups)


@pytest.mark.parametrize(("loss_type", "weights", "shares"), [
    # Steps 1, 3 and 4: the groups have 4 and 4 of them, or 2 attempts and 1.
    ("dapo", [1.0, 1.0, 1.0], [0.5, 0.5]), ("grpo", [0.75, 0.75, 1.5], [0.5, 0.5]),
])  # fmt: skip
def test_the_metrics_of_groups_by_hand(
    small_config: Configure, loss_type: str, weights: list[float], shares: list[float]
) -> None:
    attempts = made([1, 3, 4], [2.0, 6.0, -1.0], ["a", "a", "b"])
    groups = GroupAssignment(small_config(loss_type=loss_type, group_weight_method="balanced"))
    attempts = groups.assign(attempts)
    found = groups.weigh(attempts)
    assert found is not None
    assert found.tolist() == pytest.approx(weights)
    worth = torch.tensor([[9, 1.0, 9, 9, 9], [9, -2, 2, 3, 9], [9, 1, 1, 1, 1]], dtype=torch.float64)
    metrics = groups.metrics(attempts, AdvantageEstimate(worth), found)
    assert metrics == pytest.approx({
        "group/a/reward_mean": 4.0, "group/a/steps": 4.0, "group/a/weight": weights[0], "group/a/share": shares[0],
        "group/a/advantage_rms": 4.5**0.5, "group/b/reward_mean": -1.0, "group/b/steps": 4.0,
        "group/b/weight": weights[2], "group/b/share": shares[1], "group/b/advantage_rms": 1.0,
    })  # fmt: skip
    plain = groups.metrics(attempts, AdvantageEstimate(worth), None)
    assert (plain["group/a/weight"], plain["group/b/weight"]) == (1.0, 1.0)
    assert plain["group/b/share"] == pytest.approx({"dapo": 0.5, "grpo": 1 / 3}[loss_type])


@pytest.mark.parametrize(("kinds", "reported"), [(1, 0), (2, 2), (16, 16), (17, 0)])
def test_groups_are_reported_if_there_are_several_but_not_too_many(
    small_config: Configure, kinds: int, reported: int
) -> None:
    groups = GroupAssignment(small_config())
    attempts = groups.assign(made([1] * kinds, [0.0] * kinds, [f"k{n}" for n in range(kinds)]))
    found = groups.metrics(attempts, AdvantageEstimate(torch.zeros(attempts.mask.shape)), None)
    assert len([name for name in found if name.endswith("/steps")]) == reported


@pytest.mark.parametrize(("scale", "scaled"), [("task_rms", [[0, 1, 1, 0]]), ("batch_std", [[0, 0, 1, 1]])])
def test_each_kind_of_group_has_its_own_strategy(small_config: Configure, scale: str, scaled: list[list[int]]) -> None:
    """Grouped by length for the scale (if there is one), by difficulty for weights, by task for the baseline."""
    attempts = made([1, 9, 9, 1], [5.0, 0.0, 5.0, 0.0], ["x", "x", "y", "y"])
    cfg = small_config(advantage_scale=scale, scale_group="length", weight_group="difficulty", n_groups=2)
    found = GroupAssignment(cfg).assign(attempts)
    assert found.scale_group.tolist() == scaled
    assert found.weight_group.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert found.group.tolist() == [0, 1, 2, 3], "from one start each"
    assert GroupAssignment(small_config(baseline_group="task")).assign(attempts).group.tolist() == [0, 0, 1, 1]
    both = GroupAssignment(small_config(advantage_scale="task_rms", group_strategy="length", n_groups=2))
    assert both.assign(attempts).scale_group.tolist() == [[0, 1, 1, 0]]
    assert both.assign(attempts).weight_group.tolist() == [0, 1, 1, 0]


def test_settings_of_groups_and_weights_reach_them(small_config: Configure) -> None:
    cfg = small_config(
        group_weight_method="performance", group_weight_temperature=0.3, group_weight_floor=0.4, n_groups=3,
        group_strategy="adaptive", history_window=17, seed=5,
    )  # fmt: skip
    groups: Any = GroupAssignment(cfg)
    assert (groups.rule.temperature, groups.rule.floor) == (0.3, 0.4)
    assert (groups.weight.count, groups.weight.seed, groups.weight.history.maxlen) == (3, 5, 17)
    assert groups.weight.name == groups.scale.name == "adaptive"
    assert groups.weight is not groups.scale, "each remembers for itself"


def test_nothing_to_assign_is_nothing_to_weigh(small_config: Configure) -> None:
    groups = GroupAssignment(small_config(group_weight_method="balanced"))
    nothing = made([], [], [])
    assert groups.assign(nothing) is nothing
    assert groups.weigh(nothing) is None


def placed(*places: float) -> Attempts:
    """Attempts of one task, length and total that differ only in where they were."""
    attempts = made([3] * len(places), [1.0] * len(places), ["t"] * len(places))
    members = tuple(replace(m, obs=m.obs * 0.0 + place) for m, place in zip(attempts.members, places, strict=True))
    return replace(attempts, members=members)


@pytest.mark.parametrize(("changes", "field"), [
    ({"weight_group": "auto"}, "weight_group"),
    ({"scale_group": "auto", "advantage_scale": "task_rms"}, "scale_group"),
    ({"baseline_group": "auto", "allow_outcome_baseline": True}, "group"),
])  # fmt: skip
def test_a_strategy_sees_what_happened_in_an_attempt_whichever_group_it_forms(
    small_config: Configure, changes: dict[str, Any], field: str
) -> None:
    """The other two are by task or by start, which look at nothing."""
    cfg = small_config(**{"group_strategy": "task", "n_groups": 2, **changes})
    found = getattr(GroupAssignment(cfg).assign(placed(0.0, 9.0, 0.1, 9.1)), field)
    assert found.reshape(-1, 4).tolist()[0] == [0, 1, 0, 1]


def test_weights_find_their_groups_in_batches_that_lack_some(small_config: Configure) -> None:
    """Tasks keep their numbers: a batch of the third and the first has groups 2 and 0, in whatever order they come."""
    groups = GroupAssignment(small_config(loss_type="dapo", group_weight_method="balanced"))
    first = groups.assign(made([1, 1, 1], [0.0] * 3, ["a", "b", "c"]))
    assert first.weight_group.tolist() == [0, 1, 2]
    second = groups.assign(made([6, 2, 2], [1.0, 2.0, 4.0], ["c", "a", "a"]))
    assert second.weight_group.tolist() == [2, 0, 0]
    weights = groups.weigh(second)
    assert weights is not None
    assert weights.tolist() == pytest.approx([5 / 6, 5 / 4, 5 / 4])
    found = groups.metrics(second, AdvantageEstimate(torch.ones(second.mask.shape)), weights)
    assert (found["group/c/reward_mean"], found["group/a/reward_mean"]) == (1.0, 3.0)
    assert (found["group/c/steps"], found["group/a/steps"]) == (6.0, 4.0)
    assert "group/b/steps" not in found


def test_every_role_of_a_strategy_has_a_state_of_its_own(small_config: Configure) -> None:
    """Scale, weight and baseline of one kind, each of which has seen something else."""
    cfg = small_config(group_strategy="task", baseline_group="task", group_weight_method="performance")
    groups: Any = GroupAssignment(cfg)
    groups.scale.numbers, groups.weight.numbers, groups.baseline.numbers = {"s": 0}, {"w": 0}, {"b": 0}
    groups.rule.shares = {0: 0.5}
    state = groups.state_dict()
    fresh: Any = GroupAssignment(cfg)
    fresh.load_state_dict(state)
    assert (fresh.scale.numbers, fresh.weight.numbers, fresh.baseline.numbers) == ({"s": 0}, {"w": 0}, {"b": 0})
    assert fresh.rule.shares == {0: 0.5}
    other: Any = GroupAssignment(small_config(group_strategy="task", group_weight_method="adaptive"))
    other.load_state_dict(state)
    assert (other.weight.numbers, other.rule.shares) == ({"w": 0}, {}), "another rule starts afresh"


def test_attempts_without_masks_beside_others_with_masks_may_have_done_anything() -> None:
    attempts = made([2, 1], [1.0, 2.0], ["x", "y"])
    masked = replace(attempts.members[1], action_mask=np.array([[True, False], [False, True]]))
    rows = rows_of_steps(replace(attempts, members=(attempts.members[0], masked)), "dapo")
    assert rows.inputs["action_mask"][:, 0].tolist() == [[True, True]] * 3 + [[True, False], [False, True]]
    assert "action_mask" not in rows_of_steps(attempts, "dapo").inputs
