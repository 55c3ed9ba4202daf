"""What a group weighs in the loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core.grouping.weighting import RULES, GroupSizes, group_sizes, make_weighting, normalised

few = settings(max_examples=60, deadline=None)


def sizes(size: list[float], means: list[float], low: float = 0.0, high: float = 1.0) -> GroupSizes:
    count = len(size)
    mean = np.array(means, float)
    return GroupSizes(np.arange(count), np.array(size, float), mean, np.full(count, low), np.full(count, high))


def test_weights_by_hand() -> None:
    """100 and 400 steps. Balanced ∝ 1/n: 2.5 and 0.625; 1/√n: 5/3 and 5/6. Both have mean 1 over the 500 steps."""
    batch = sizes([100, 400], [0.5, 0.5])
    assert make_weighting("none")(batch).tolist() == [1, 1]
    assert make_weighting("balanced")(batch).tolist() == pytest.approx([2.5, 0.625])
    assert make_weighting("inv_sqrt_steps")(batch).tolist() == pytest.approx([5 / 3, 5 / 6])


def test_sizes_are_summed_and_returns_averaged_by_group() -> None:
    found = group_sizes(np.array([7, 3, 7]), np.array([10.0, 5.0, 20.0]), np.array([1.0, 2.0, 4.0]))
    assert found.groups.tolist() == [3, 7]
    assert found.size.tolist() == [5, 30]
    assert found.mean.tolist() == [2, 2.5]
    assert found.lowest.tolist() == [2, 1]
    assert found.highest.tolist() == [2, 4]


def test_exponentiated_gradient_by_hand() -> None:
    """Standings 0 and 1 at temperature 1: shares 1/(1+e⁻¹) = .731, then mixed with the floor."""
    weights = make_weighting("performance", floor=0.1)(sizes([100, 100], [0, 1]))
    assert (weights / 2).tolist() == pytest.approx([0.9 * 0.731059 + 0.05, 0.9 * 0.268941 + 0.05], abs=1e-6)


def test_the_worst_task_comes_first_and_nobody_falls_below_the_floor() -> None:
    rule = make_weighting("performance", floor=0.1)
    for _ in range(100):
        weights = rule(sizes([100, 100, 100], [0.1, 0.9, 1.0]))
    assert weights[0] > 2.5
    assert weights.min() >= 0.1
    assert weights.mean() == pytest.approx(1)


def test_temperature_softens() -> None:
    spread = {}
    for temperature in (0.5, 5.0):
        rule = make_weighting("performance", temperature=temperature)
        for _ in range(50):
            spread[temperature] = float(np.ptp(rule(sizes([1, 1], [0.2, 0.8]))))
    assert spread[0.5] > 1.5 * spread[5.0]


@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_weight_follows_a_task_that_falls_behind(method: str) -> None:
    """Both tasks do equally well for long; then the second forgets; then it recovers."""
    rule = make_weighting(method)
    course = [0.9] * 40 + [0.2] * 15 + [0.9] * 60
    second = [float(rule(sizes([100, 100], [0.9, standing]))[1]) for standing in course]
    assert second[39] == pytest.approx(1.0)
    assert second[42] > 1.1
    assert second[54] > 1.5
    if method == "adaptive":
        assert second[-1] == pytest.approx(1.0, abs=0.01)


def test_the_scale_of_rewards_does_not_matter_to_who_is_worst() -> None:
    """A task paid 100 a step that stands at a tenth of its range is behind one paid 0.01 that stands at its best."""
    batch = GroupSizes(
        np.arange(2), np.full(2, 50.0), np.array([500.0, 5.0]), np.array([0.0, 0.0]), np.array([5e4, 5.0])
    )
    for method in ("performance", "adaptive"):
        weights = make_weighting(method)(batch)
        assert weights[0] > weights[1]


def test_a_task_with_constant_reward_has_a_weight_that_is_a_number() -> None:
    batch = sizes([10, 10], [1.0, 1.0], low=1.0, high=1.0)
    for method in RULES:
        assert make_weighting(method)(batch).tolist() == pytest.approx([1, 1])


shapes = st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1)), min_size=1, max_size=6)


@given(shapes, st.sampled_from(sorted(RULES)), st.integers(1, 4))
@few
def test_the_total_is_that_of_weights_of_one(groups: list[tuple[int, float]], method: str, times: int) -> None:
    rule = make_weighting(method)
    batch = sizes([float(n) for n, _ in groups], [p for _, p in groups])
    for _ in range(times):
        weights = rule(batch)
    assert float((weights * batch.size).sum()) == pytest.approx(float(batch.size.sum()))
    assert (weights > 0).all()


@given(shapes, st.sampled_from(sorted(RULES)), st.randoms(use_true_random=False))
@few
def test_names_and_order_of_groups_do_not_matter(groups: list[tuple[int, float]], method: str, random: Any) -> None:
    order = list(range(len(groups)))
    random.shuffle(order)
    batch = sizes([float(n) for n, _ in groups], [p for _, p in groups])
    mixed = GroupSizes(
        np.arange(len(order)) * 13 + 5, *(getattr(batch, name)[order] for name in GroupSizes.__slots__[1:])
    )
    assert make_weighting(method)(mixed).tolist() == pytest.approx(make_weighting(method)(batch)[order].tolist())


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(1, 100)), min_size=1, max_size=5), st.floats(1e-3, 1e3))
@few
def test_the_scale_of_raw_weights_does_not_matter(rows: list[tuple[float, float]], factor: float) -> None:
    raw, size = np.array(rows).T
    assert normalised(raw * factor, size).tolist() == pytest.approx(normalised(raw, size).tolist())


@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_a_rule_goes_on_where_its_state_was_saved(method: str) -> None:
    batches = [sizes([10, 20], [0.1 * n, 0.5], high=2.0 - 0.2 * n) for n in range(1, 7)]
    whole, first, second = (make_weighting(method) for _ in range(3))
    expected = [whole(batch).tolist() for batch in batches]
    found = [first(batch).tolist() for batch in batches[:3]]
    second.load_state_dict(first.state_dict())
    assert found + [second(batch).tolist() for batch in batches[3:]] == expected


def test_groups_may_be_missing_from_a_batch() -> None:
    rule = make_weighting("performance")
    for _ in range(5):
        rule(sizes([10, 10], [0.1, 0.9]))
    alone = GroupSizes(*(getattr(sizes([10, 10], [0.1, 0.9]), name)[1:] for name in GroupSizes.__slots__))
    assert rule(alone).tolist() == [1.0]


@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_a_task_that_appears_later_counts_like_its_equals(method: str) -> None:
    rule = make_weighting(method)
    for _ in range(10):
        rule(sizes([10, 10], [0.5, 0.5]))
    assert rule(sizes([10, 10, 10], [0.5, 0.5, 0.5])).tolist() == pytest.approx([1, 1, 1])


class Plain:
    """Both rules that remember, in dictionaries and loops: the formulas of their documentation."""

    def __init__(self, method: str, temperature: float, floor: float) -> None:
        self.method, self.temperature, self.floor = method, temperature, floor
        self.range: dict[int, tuple[float, float]] = {}
        self.memory: dict[int, float] = {}

    def __call__(self, batch: GroupSizes) -> list[float]:
        raw = {}
        for name, mean, low, high in zip(batch.groups, batch.mean, batch.lowest, batch.highest, strict=True):
            worst, best = self.range.get(name, (low, high))
            self.range[name] = worst, best = min(worst, low), max(best, high)
            standing = (mean - worst) / (best - worst) if best > worst else 0.0
            if self.method == "performance":
                raw[name] = self.memory.get(name, 1.0) * math.exp(-standing / self.temperature)
            else:
                self.memory[name] = 0.8 * self.memory.get(name, standing) + 0.2 * standing
                raw[name] = math.exp(-5 * self.memory[name] / self.temperature)
        total, count = sum(raw.values()), len(raw)
        share = {name: (1 - self.floor) * value / total + self.floor / count for name, value in raw.items()}
        if self.method == "performance":
            self.memory |= {name: value * count for name, value in share.items()}
        steps = float(batch.size.sum())
        return [share[name] * steps / size for name, size in zip(batch.groups, batch.size, strict=True)]


@pytest.mark.parametrize(("temperature", "floor"), [(1.0, 0.1), (0.5, 0.0), (3.0, 0.4), (1.0, 1.0)])
@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_rules_that_remember_are_their_formulas_batch_after_batch(
    method: str, temperature: float, floor: float
) -> None:
    """Groups come and go, and their best and worst returns stay remembered."""
    rng = np.random.default_rng(0)
    rule, plain = make_weighting(method, temperature=temperature, floor=floor), Plain(method, temperature, floor)
    for _ in range(8):
        names = np.sort(rng.choice(6, size=rng.integers(1, 5), replace=False))
        size = rng.integers(1, 50, len(names)).astype(float)
        lowest, mean, highest = np.sort(rng.normal(size=(3, len(names))) * 10, axis=0)
        lowest[0] = highest[0] = mean[0]  # a group whose returns do not vary beside others whose do
        batch = GroupSizes(names, size, mean, lowest, highest)
        assert rule(batch).tolist() == pytest.approx(plain(batch))


@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_temperature_and_floor_are_1_and_a_tenth_unless_told(method: str) -> None:
    batch = sizes([10, 30], [0.2, 0.7])
    assert make_weighting(method)(batch).tolist() == make_weighting(method, temperature=1.0, floor=0.1)(batch).tolist()


@pytest.mark.parametrize("method", ["performance", "adaptive"])
def test_a_saved_state_does_not_change_when_the_rule_goes_on(method: str) -> None:
    rule, other = make_weighting(method), make_weighting(method)
    rule(sizes([1, 1], [0.1, 0.9]))
    state = rule.state_dict()
    other.load_state_dict(state)
    before = repr(state)
    for used in (rule, other):
        used(sizes([1, 1], [0.1, 0.9], low=-5.0, high=5.0))
    assert repr(state) == before


def test_two_rules_do_not_share_what_they_remember() -> None:
    first, second = make_weighting("performance"), make_weighting("performance")
    first(sizes([1, 1], [0.0, 1.0], low=-9.0, high=9.0))
    fresh = make_weighting("performance")(sizes([1, 1], [0.0, 1.0]))
    assert second(sizes([1, 1], [0.0, 1.0])).tolist() == fresh.tolist()


def test_a_group_smaller_than_one_step_counts_like_one_step() -> None:
    """Sizes may be fractions, where the loss averages within attempts first; 1 / n stops growing at 1."""
    batch = sizes([0.5, 4.0], [0.5, 0.5])
    assert make_weighting("balanced")(batch).tolist() == pytest.approx([3.0, 0.75])
    for method in ("performance", "adaptive"):
        assert make_weighting(method)(batch).tolist() == pytest.approx([3.0, 0.75])
    assert normalised(np.zeros(2), np.ones(2)).tolist() == [1.0, 1.0]
    assert normalised(np.array([1.0, 3.0]), np.array([3.0, 1.0])).tolist() == pytest.approx([2 / 3, 2.0])


def test_rules_without_memory_have_no_state_and_give_the_same_twice() -> None:
    for method in ("none", "balanced", "inv_sqrt_steps"):
        rule, batch = make_weighting(method), sizes([9, 16], [0.1, 0.9])
        assert rule(batch).tolist() == rule(batch).tolist()
        assert rule.state_dict() == {}


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_a_floor_at_either_end_is_allowed(floor: float) -> None:
    weights = make_weighting("performance", floor=floor)(sizes([1, 1], [0, 1]))
    assert (weights[0] == pytest.approx(weights[1])) == (floor == 1.0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="a return is inf"):
        group_sizes(np.array([0, 1]), np.ones(2), np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match=r"floor is -0\.1"):
        make_weighting("performance", floor=-0.1)
    with pytest.raises(ValueError, match="temperature is -1"):
        make_weighting("adaptive", temperature=-1)
    with pytest.raises(ValueError, match="a return is nan"):
        group_sizes(np.array([0]), np.array([1.0]), np.array([np.nan]))
    with pytest.raises(ValueError, match="temperature is 0"):
        make_weighting("performance", temperature=0)
    with pytest.raises(ValueError, match=r"floor is 1\.5"):
        make_weighting("performance", floor=1.5)
    with pytest.raises(ValueError, match="'worst'; it must be one of none, balanced"):
        make_weighting("worst")
