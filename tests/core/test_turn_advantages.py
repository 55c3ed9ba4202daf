"""Credit by turns, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupwise.core import Baseline, group_advantages, turn_advantages, turn_numbers

BASELINES: tuple[Baseline, ...] = ("group_mean", "group_median", "leave_one_out", "global_mean", "none")

# Two turns of two tokens and one token, with a prompt before and another's words between.
MASK = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 1, 0, 1]]).bool()
PAIR = torch.zeros(2, dtype=torch.long)


def rewards(*rows: tuple[float, float]) -> Tensor:
    """The reward of each turn, at its last token."""
    return torch.tensor([[0, 0, first, 0, second] for first, second in rows], dtype=torch.float64)


def by_turn(table: Tensor) -> list[list[float]]:
    return table[:, [1, 4]].tolist()


def test_tokens_are_numbered_by_turn() -> None:
    assert turn_numbers(MASK)[0].tolist() == [0, 0, 0, 0, 1]


def test_a_final_reward_fades_towards_the_first_turn() -> None:
    advantages = turn_advantages(rewards((0, 1), (0, 0)), MASK, PAIR, 0.5)
    assert by_turn(advantages) == [[0.25, 0.5], [-0.25, -0.5]]
    assert advantages[0].tolist() == [0, 0.25, 0.25, 0, 0.5]


def test_a_turn_is_not_credited_with_what_was_earned_before_it() -> None:
    assert by_turn(turn_advantages(rewards((1, 0), (0, 0)), MASK, PAIR, 1.0)) == [[0.5, 0.0], [-0.5, 0.0]]


def test_attempts_that_earn_the_same_learn_nothing_whenever_they_earned_it() -> None:
    for rows in (((1, 0), (1, 0)), ((1, 0), (0, 1)), ((0.5, 0.5), (0.5, 0.5))):
        assert not turn_advantages(rewards(*rows), MASK, PAIR, 0.9).any()


def test_a_turn_that_the_others_did_not_have_gets_what_the_whole_attempt_earned_beyond_them() -> None:
    mask = torch.tensor([[1, 0, 0, 0], [1, 0, 1, 0]]).bool()
    paid = torch.tensor([[0.0, 0, 0, 0], [0.0, 0, 1, 0]])
    advantages = turn_advantages(paid, mask, PAIR, 0.5)
    assert advantages.tolist() == [[-0.5, 0, 0, 0], [0.25, 0, 0.5, 0]]


def test_a_turn_that_only_some_had_is_compared_with_those_who_had_it() -> None:
    """Only the second attempt has a second and a third turn: what the second earned is usual for a second turn."""
    mask = torch.tensor([[1, 0, 0, 0, 0], [1, 0, 1, 0, 1]]).bool()
    paid = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    advantages = turn_advantages(paid, mask, PAIR, 0.5)
    assert advantages.tolist() == [[-0.5, 0, 0, 0, 0], [0.125, 0, 0.25, 0, 0.5]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_without_discount_the_first_turn_has_the_advantage_of_the_whole_attempt(data: st.DataObject) -> None:
    count, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    seed = data.draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, width, generator=generator) < 0.6
    mask[:, 0] = True
    paid = torch.randn(count, width, generator=generator, dtype=torch.float64) * mask
    groups = torch.randint(0, 2, (count,), generator=generator)
    advantages = turn_advantages(paid, mask, groups, 1.0)
    torch.testing.assert_close(advantages[:, 0], group_advantages(paid.sum(1), groups, scale="none"))
    assert not advantages[~mask].any()


def plainly(paid: Tensor, mask: Tensor, groups: Tensor, gamma: float, baseline: Baseline) -> Tensor:
    """The definition, turn by turn: what was earned beyond those who had that turn, the rest at the last turn."""
    turns = []
    for row in range(len(mask)):
        starts = [t for t in range(mask.shape[1]) if mask[row, t] and (t == 0 or not mask[row, t - 1])]
        ends = [next((u for u in range(t, mask.shape[1]) if not mask[row, u]), mask.shape[1]) for t in starts]
        turns.append(list(zip(starts, ends, strict=True)))
    earned = [[float(paid[row, a:b].sum()) for a, b in turns[row]] for row in range(len(mask))]
    standing = group_advantages(
        torch.tensor([sum(e) for e in earned]).double(), groups, baseline=baseline, scale="none"
    )
    found = torch.zeros_like(paid)
    for row in range(len(mask)):
        mates = [other for other in range(len(mask)) if groups[other] == groups[row]]
        if not any(standing[mate] for mate in mates):
            continue
        credit = []
        for k, gained in enumerate(earned[row]):
            had = [earned[mate][k] for mate in mates if k < len(earned[mate])]
            credit.append(gained - sum(had) / len(had))
        credit[-1] += float(standing[row]) - sum(credit)
        for k, (a, b) in enumerate(turns[row]):
            found[row, a:b] = sum(gamma**j * later for j, later in enumerate(credit[k:]))
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from(BASELINES))
def test_credit_by_turns_is_its_definition_turn_by_turn(seed: int, gamma: float, baseline: Baseline) -> None:
    g = torch.Generator().manual_seed(seed)
    count, width = int(torch.randint(1, 7, (), generator=g)), int(torch.randint(1, 9, (), generator=g))
    mask = torch.rand(count, width, generator=g) < 0.6
    mask[torch.arange(count), torch.randint(0, width, (count,), generator=g)] = True
    paid = torch.randint(-2, 3, (count, width), generator=g).double() * mask
    groups = torch.randint(0, 3, (count,), generator=g) * 5 - 3
    found = turn_advantages(paid + 7.0 * ~mask, mask, groups, gamma, baseline=baseline)
    torch.testing.assert_close(found, plainly(paid, mask, groups, gamma, baseline))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_credit_is_worked_out_in_float64(dtype: torch.dtype) -> None:
    paid = torch.tensor([[0.1, 0, 0.7], [0.3, 0, 0.2]], dtype=dtype)
    mask = torch.tensor([[1, 0, 1], [1, 0, 1]])
    found = turn_advantages(paid, mask, PAIR, 0.9)
    assert found.dtype == torch.float64
    assert torch.equal(found, turn_advantages(paid.double(), mask, PAIR, 0.9))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_no_attempts_and_no_tokens_have_no_credit(shape: tuple[int, int]) -> None:
    nothing = torch.zeros(shape)
    assert turn_advantages(nothing, nothing, torch.zeros(shape[0]), 0.9).shape == shape
    assert turn_numbers(nothing).shape == shape


@pytest.mark.parametrize(
    ("mask", "numbers"),
    [([1, 1, 1], [0, 0, 0]), ([0, 0, 1], [0, 0, 0]), ([1, 0, 1], [0, 0, 1]), ([0, 0], [0, 0]),
     ([0, 1, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 1, 2])],
)  # fmt: skip
def test_a_turn_is_a_run_of_the_policys_tokens(mask: list[int], numbers: list[int]) -> None:
    assert turn_numbers(torch.tensor([mask])).tolist() == [numbers]


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="group_ids"):
        turn_advantages(rewards((1, 0), (0, 0)), MASK, PAIR[:1], 0.5)
