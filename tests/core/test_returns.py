"""Returns, GAE and return-to-go beside the group, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from groupwise.core import discounted_returns, gae, group_return_to_go


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_discounted_returns_by_hand() -> None:
    rewards = rows([1, 2, 3], [4, 5, 99])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert discounted_returns(rewards, mask, 0.5).tolist() == [[2.75, 3.5, 3.0], [6.5, 5.0, 0.0]]
    assert discounted_returns(rewards, mask, 1.0).tolist() == [[6.0, 5.0, 3.0], [9.0, 5.0, 0.0]]
    assert discounted_returns(rewards, mask, 0.0).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]]


def test_no_time_passes_and_nothing_is_earned_outside_the_mask() -> None:
    rewards = rows([7, 1, 7, 7, 2])
    mask = torch.tensor([[0, 1, 0, 0, 1]])
    for gamma, expected in ((0.5, 2.0), (1e-60, 1.0)):
        assert discounted_returns(rewards, mask, gamma).tolist() == [[0.0, expected, 0.0, 0.0, 2.0]]


@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.99, 0.999])
def test_the_cumulative_sum_is_as_exact_as_the_recursion(gamma: float) -> None:
    g = torch.Generator().manual_seed(1)
    rewards = torch.randn(4, 300, generator=g, dtype=torch.float64)
    mask = torch.rand(4, 300, generator=g) < 0.9
    expected = torch.zeros_like(rewards)
    for b in range(4):
        following = 0.0
        for t in reversed(range(300)):
            if mask[b, t]:
                following = float(rewards[b, t]) + gamma * following
                expected[b, t] = following
    torch.testing.assert_close(discounted_returns(rewards, mask, gamma), expected, rtol=1e-12, atol=1e-12)


def test_a_discount_whose_powers_underflow_is_still_exact() -> None:
    found = discounted_returns(torch.ones(1, 500, dtype=torch.float64), torch.ones(1, 500), 0.1)
    torch.testing.assert_close(found[0, :400], torch.full((400,), 10 / 9, dtype=torch.float64))
    # Every second step is another's: no time passes there.
    own = torch.arange(1000)[None] % 2 == 0
    found = discounted_returns(torch.ones(1, 1000, dtype=torch.float64), own, 0.1)
    torch.testing.assert_close(found[own][:400], torch.full((400,), 10 / 9, dtype=torch.float64))
    assert not found[~own].any()


@pytest.mark.parametrize("gamma", [0.3, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("exponent", [-190, -199, -201, -300, -307, -308, -309, -315, -322, -324, -400])
def test_returns_are_exact_however_small_the_last_power_of_the_discount_is(gamma: float, exponent: int) -> None:
    # From the powers that a cumulative sum may use over those that float64 holds with few digits to none at all.
    length = round(exponent * math.log(10) / math.log(gamma))
    rewards = torch.randn(2, length, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    expected = torch.zeros(2, length, dtype=torch.float64)
    following = torch.zeros(2, dtype=torch.float64)
    for t in reversed(range(length)):
        following = rewards[:, t] + gamma * following
        expected[:, t] = following
    found = discounted_returns(rewards, torch.ones(2, length), gamma)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_a_discount_outside_zero_to_one_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=f"gamma is {gamma}"):
        discounted_returns(torch.ones(1, 2), torch.ones(1, 2), gamma)


def ends(*values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def test_gae_by_hand() -> None:
    # δ = [1 + .5·4 − 2, 1 + .5·6 − 4, 1 − 6] = [1, 0, −5];  A₂ = −5, A₁ = 0 − .25·5, A₀ = 1 − .25·1.25
    found = gae(
        rows([1, 1, 1]), rows([2, 4, 6]), rows([4, 6, 8]), ends([0, 0, 1]), ends([0, 0, 0]), torch.ones(1, 3),
        gamma=0.5, lam=0.5,
    )  # fmt: skip
    assert found.advantages.tolist() == [[0.6875, -1.25, -5.0]]
    assert found.returns.tolist() == [[2.6875, 2.75, 1.0]]


def test_an_end_has_no_future_and_a_cut_has_one() -> None:
    one = {
        "rewards": rows([1.0]),
        "values": rows([2.0]),
        "next_values": rows([10.0]),
        "mask": torch.ones(1, 1),
    }
    ended = gae(**one, terminated=ends([1]), truncated=ends([0]), gamma=0.5, lam=0.9)
    cut = gae(**one, terminated=ends([0]), truncated=ends([1]), gamma=0.5, lam=0.9)
    unfinished = gae(**one, terminated=ends([0]), truncated=ends([0]), gamma=0.5, lam=0.9)
    both = gae(**one, terminated=ends([1]), truncated=ends([1]), gamma=0.5, lam=0.9)
    assert ended.advantages.item() == both.advantages.item() == 1 - 2
    assert cut.advantages.item() == unfinished.advantages.item() == 1 + 5 - 2


def test_nothing_flows_back_over_an_end_or_a_cut_inside_a_row() -> None:
    for terminated, truncated, first in (
        (ends([1, 0]), ends([0, 0]), -1.0),
        (ends([0, 0]), ends([1, 0]), 4.0),
    ):
        found = gae(
            rows([1, 100]), rows([2, 0]), rows([10, 0]), terminated, truncated, torch.ones(1, 2),
            gamma=0.5, lam=0.9,
        )  # fmt: skip
        assert found.advantages.tolist() == [[first, 100.0]]


def test_one_bootstrap_value_per_row_stands_behind_its_last_step() -> None:
    rewards, values = rows([1, 1, 1], [1, 1, 99]), rows([2, 4, 6], [2, 4, 99])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    none = torch.zeros(2, 3, dtype=torch.bool)
    found = gae(rewards, values, torch.tensor([8.0, 6.0]), none, none, mask, gamma=0.5, lam=0.5)
    full = gae(
        rewards, values, rows([4, 6, 8], [4, 6, 99]), none, none, mask, gamma=0.5, lam=0.5
    )  # fmt: skip
    torch.testing.assert_close(found.advantages, full.advantages)
    assert found.advantages[1, 2] == found.returns[1, 2] == 0.0


def test_gae_walks_over_holes_in_the_mask() -> None:
    mask = torch.tensor([[1, 0, 0, 1]])
    terminated = ends([0, 0, 0, 1])
    holed = gae(
        rows([1, 7, 7, 1]), rows([2, 7, 7, 4]), torch.zeros(1), terminated, ends([0, 0, 0, 0]), mask,
        gamma=0.5, lam=0.5,
    )  # fmt: skip
    dense = gae(
        rows([1, 1]), rows([2, 4]), torch.zeros(1), ends([0, 1]), ends([0, 0]), torch.ones(1, 2),
        gamma=0.5, lam=0.5,
    )  # fmt: skip
    assert holed.advantages[0, [0, 3]].tolist() == dense.advantages[0].tolist()


def test_lambda_one_is_the_return_minus_the_value() -> None:
    g = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(3, 6, generator=g), torch.randn(3, 6, generator=g)
    mask = torch.arange(6) < torch.tensor([6, 4, 1]).unsqueeze(1)
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    found = gae(rewards, values, torch.zeros(3), last, torch.zeros_like(last), mask, gamma=0.9, lam=1.0)
    expected = (discounted_returns(rewards, mask, 0.9) - values).where(mask, 0)
    torch.testing.assert_close(found.advantages, expected)
    torch.testing.assert_close(found.returns, discounted_returns(rewards, mask, 0.9))


def errors_added_up(
    row: int, rewards: Tensor, values: Tensor, after: Tensor, terminated: Tensor, truncated: Tensor, mask: Tensor,
    gamma: float, lam: float,
) -> dict[int, float]:  # fmt: skip
    """A_t = Σ_l (γλ)^l δ_{t+l} over the steps of the mask, up to the first end or cut: the definition, step by step."""
    steps = mask[row].nonzero().flatten().tolist()
    found = {}
    for place, start in enumerate(steps):
        factor = total = 0.0
        for number, t in enumerate(steps[place:]):
            factor = 1.0 if number == 0 else factor * gamma * lam
            future = 0.0 if terminated[row, t] else float(after[row, t])
            total += factor * (float(rewards[row, t]) + gamma * future - float(values[row, t]))
            if terminated[row, t] or truncated[row, t]:
                break
        found[start] = total
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.7), (1.0, 1.0), (0.8, 0.0), (0.0, 0.9), (1.0, 0.5), (0.5, 1.0)])
def test_gae_is_its_definition_step_by_step(gamma: float, lam: float, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    rewards, values, after = torch.randn(3, 4, 7, generator=g, dtype=torch.float64)
    mask, terminated, truncated = (torch.rand(4, 7, generator=g) < share for share in (0.7, 0.2, 0.2))
    found = gae(rewards, values, after, terminated, truncated, mask, gamma=gamma, lam=lam)
    for row in range(4):
        expected = errors_added_up(row, rewards, values, after, terminated, truncated, mask, gamma, lam)
        for t in range(7):
            assert float(found.advantages[row, t]) == pytest.approx(expected.get(t, 0.0), abs=1e-12)
            target = expected[t] + float(values[row, t]) if t in expected else 0.0
            assert float(found.returns[row, t]) == pytest.approx(target, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_without_next_values_of_each_step_the_next_step_of_the_row_has_them(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, 4, 7, generator=g, dtype=torch.float64)
    last = torch.randn(4, generator=g, dtype=torch.float64)
    mask, terminated, truncated = (torch.rand(4, 7, generator=g) < share for share in (0.6, 0.2, 0.2))
    after = torch.zeros_like(values)
    for row in range(4):
        steps = mask[row].nonzero().flatten().tolist()
        for t, following in zip(steps, [*steps[1:], None], strict=True):
            after[row, t] = last[row] if following is None else values[row, following]
    found = gae(rewards, values, last, terminated, truncated, mask, gamma=0.9, lam=0.8)
    full = gae(rewards, values, after, terminated, truncated, mask, gamma=0.9, lam=0.8)
    torch.testing.assert_close(found.advantages, full.advantages)
    torch.testing.assert_close(found.returns, full.returns)


def test_gae_passes_no_gradient_and_names_what_does_not_fit() -> None:
    values = torch.zeros(1, 2, requires_grad=True)
    none = torch.zeros(1, 2, dtype=torch.bool)
    found = gae(torch.ones(1, 2), values, torch.zeros(1), none, none, ~none, gamma=0.9, lam=0.9)
    assert not found.advantages.requires_grad
    assert not found.returns.requires_grad
    with pytest.raises(ValueError, match="next_values has shape"):
        gae(torch.ones(1, 2), values, torch.zeros(3), none, none, ~none, gamma=0.9, lam=0.9)


def test_return_to_go_is_compared_with_the_others_still_alive() -> None:
    # returns-to-go: [3, 2, 1], [2, 1, –], [1, –, –]
    alive = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]])
    found = group_return_to_go(torch.ones(3, 3), alive, 1.0)
    assert found.tolist() == [[1.5, 1.0, 0.0], [0.0, -1.0, 0.0], [-1.5, 0.0, 0.0]]


def test_a_member_that_has_ended_is_left_out_and_not_taken_for_zero() -> None:
    alive = torch.tensor([[1, 1], [1, 1], [1, 0]])
    found = group_return_to_go(rows([0, 5], [0, 3], [0, 0]), alive, 1.0)
    assert found[:, 1].tolist() == [2.0, -2.0, 0.0]


@pytest.mark.parametrize("gamma", [0.05, 0.97, 1.0])
def test_groups_together_are_groups_one_by_one(gamma: float) -> None:
    g = torch.Generator().manual_seed(3)
    rewards = torch.randn(9, 200, generator=g, dtype=torch.float64)
    alive = torch.arange(200) < torch.randint(1, 200, (9,), generator=g).unsqueeze(1)
    groups = torch.tensor([4, 4, -1, 4, -1, 8, -1, 4, -1])
    together = group_return_to_go(rewards, alive, gamma, group_ids=groups)
    for group in (4, -1, 8):
        members = groups == group
        alone = group_return_to_go(rewards[members], alive[members], gamma)
        torch.testing.assert_close(together[members], alone)
    assert together[groups == 8].abs().sum() == 0


def test_equal_episodes_give_exactly_zero_at_every_step() -> None:
    rewards = torch.full((6, 50), 0.1)
    found = group_return_to_go(rewards, torch.ones(6, 50), 0.99)
    assert found.abs().max() == 0.0


def test_the_advantages_of_those_alive_sum_to_zero_at_every_step() -> None:
    g = torch.Generator().manual_seed(4)
    alive = torch.arange(30) < torch.randint(1, 30, (8,), generator=g).unsqueeze(1)
    found = group_return_to_go(torch.randn(8, 30, generator=g, dtype=torch.float64), alive, 0.9)
    assert found.sum(0).abs().max() < 1e-12


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0])
def test_return_to_go_beside_the_group_is_its_definition_step_by_step(gamma: float, seed: int) -> None:
    """Attempts that end at different times, and one that pauses; groups of three, two and one."""
    g = torch.Generator().manual_seed(seed)
    rewards = torch.randn(6, 5, generator=g, dtype=torch.float64)
    alive = torch.arange(5) < torch.randint(0, 6, (6,), generator=g).unsqueeze(1)
    alive[0] = torch.tensor([1, 0, 1, 1, 0]).bool()
    groups = torch.tensor([2, 7, 2, 7, 5, 2])
    returns = discounted_returns(rewards, alive, gamma)
    found = group_return_to_go(rewards, alive, gamma, group_ids=groups)
    for i in range(6):
        for t in range(5):
            others = [float(returns[j, t]) for j in range(6) if j != i and groups[j] == groups[i] and alive[j, t]]
            compared = bool(alive[i, t]) and others
            expected = float(returns[i, t]) - sum(others) / len(others) if compared else 0.0
            assert float(found[i, t]) == pytest.approx(expected, abs=1e-12)


def test_returns_to_go_equal_up_to_eps_give_exactly_zero_whoever_has_ended() -> None:
    """An attempt that has ended has no return to go; its 0 must not make the others differ."""
    alive = torch.tensor([[1], [1], [0]])
    assert group_return_to_go(rows([4.0], [3.75], [0.0]), alive, 1.0, eps=0.125).tolist() == [[0.0]] * 3
    assert group_return_to_go(rows([-4.0], [-3.75], [0.0]), alive, 1.0, eps=0.125).tolist() == [[0.0]] * 3
    assert group_return_to_go(rows([4.0], [3.25], [0.0]), alive, 1.0, eps=0.125).tolist() == [[0.75], [-0.75], [0.0]]
