"""Credit by turns, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupwise.core import group_advantages, turn_advantages, turn_numbers

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


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="group_ids"):
        turn_advantages(rewards((1, 0), (0, 0)), MASK, PAIR[:1], 0.5)
