"""Which tokens a loss acts on, by hand. TRL's masks are compared in test_trl_conformance.py."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from groupwise.core import masked_mean, off_policy_mask, overlong_mask, top_entropy_mask
from groupwise.core.tokens import row_lengths

NAN = float("nan")


def test_masked_mean_ignores_what_is_outside_and_is_zero_for_nothing() -> None:
    assert masked_mean(torch.tensor([[1.0, 3.0, NAN]]), torch.tensor([[1, 1, 0]])) == 2.0
    assert masked_mean(torch.tensor([[NAN]]), torch.tensor([[0]])) == 0.0
    assert masked_mean(torch.tensor([[NAN, 6.0]]), torch.tensor([[0, 1]])) == 6.0
    assert masked_mean(torch.tensor([[1.0, 2.0], [6.0, NAN]]), torch.tensor([[1, 1], [1, 0]])) == 3.0


def test_row_lengths_count_each_rows_tokens_and_are_never_zero() -> None:
    assert row_lengths(torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 0]])).tolist() == [[2], [1], [1]]
    assert row_lengths(torch.tensor([[2.0, 0.5, 0.0]])).tolist() == [[2]]


@pytest.mark.parametrize(
    ("quantile", "kept"), [(1.0, [0, 1, 2, 3, 4]), (0.5, [2, 3, 4]), (0.2, [4]), (0.25, [3, 4]), (0.0, [4])]
)
def test_the_share_of_highest_entropy_is_kept(quantile: float, kept: list[int]) -> None:
    entropy = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 9.0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]])
    assert top_entropy_mask(entropy, mask, quantile)[0].nonzero().flatten().tolist() == kept


def test_equal_entropies_are_kept_together_and_an_empty_mask_keeps_nothing() -> None:
    assert top_entropy_mask(torch.ones(1, 4), torch.ones(1, 4), 0.1).all()
    assert not top_entropy_mask(torch.ones(1, 4), torch.zeros(1, 4), 0.5).any()
    with pytest.raises(ValueError, match="quantile is 20"):
        top_entropy_mask(torch.ones(1, 4), torch.ones(1, 4), 20)


@pytest.mark.parametrize("count", [1, 2, 3, 11, 41])
def test_the_tokens_kept_are_those_above_the_exact_quantile(count: int) -> None:
    """Rank ⌈(n − 1)(1 − ρ)⌉ in exact fractions, over every ρ that is a whole number of ranks or halfway between two."""
    entropy = torch.randperm(count, generator=torch.Generator().manual_seed(count)).double()[None]
    for half in range(2 * count - 1):
        share = Fraction(half, max(2 * count - 2, 1))
        lowest = math.ceil((count - 1) * (1 - share))
        expected = (entropy >= lowest).tolist()
        assert top_entropy_mask(entropy, torch.ones(1, count), float(share)).tolist() == expected, share


@pytest.mark.parametrize("quantile", [-0.1, 1.1])
def test_a_share_outside_zero_to_one_is_refused(quantile: float) -> None:
    with pytest.raises(ValueError, match=f"quantile is {quantile}"):
        top_entropy_mask(torch.ones(1, 4), torch.ones(1, 4), quantile)


def test_rows_that_were_cut_are_masked_as_a_whole() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert overlong_mask(torch.tensor([False, True]), mask).tolist() == [[True, True, False], [False] * 3]


def test_only_bad_rows_the_policy_has_left_behind_are_dropped() -> None:
    logp = torch.tensor([[-3.0, NAN], [-3.0, -1.0], [-1.0, -1.0]])
    behavior = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-1.0, NAN]])
    mask = torch.tensor([[1, 0], [1, 1], [1, 1]])
    down = torch.full((3,), -1.0)
    # mean moves: 2 (one token), 1 (two tokens), 0 (a NaN is no evidence)
    assert off_policy_mask(down, logp, behavior, mask, 1.5).flatten().tolist() == [False, True, True]
    assert off_policy_mask(down, logp, behavior, mask, 0.5).flatten().tolist() == [False, False, True]
    assert off_policy_mask(-down, logp, behavior, mask, 0.5).all()
    assert off_policy_mask(down, logp, behavior, mask, 0.1).flatten().tolist() == [False, False, True]
    # a row exactly at the threshold is kept, and so is one whose advantage is 0
    assert off_policy_mask(down, logp, behavior, mask, 1.0).flatten().tolist() == [False, True, True]
    assert off_policy_mask(down * 0, logp, behavior, mask, 0.5).all()
    # what stands outside the mask does not count as a move
    behavior[0, 1], logp[0, 1] = 90.0, 0.0
    assert off_policy_mask(down, logp, behavior, mask, 2.0).all()
    mixed = torch.tensor([[-1.0, 1.0], [0.0, -1.0], [-1.0, -1.0]])
    assert off_policy_mask(mixed, logp, behavior, mask, 0.5).tolist() == [[False, True], [True, False], [True, True]]
