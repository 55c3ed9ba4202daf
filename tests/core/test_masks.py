"""Which tokens a loss acts on, by hand. TRL's masks are compared in test_trl_conformance.py."""

from __future__ import annotations

import pytest
import torch

from groupwise.core import masked_mean, off_policy_mask, overlong_mask, top_entropy_mask

NAN = float("nan")


def test_masked_mean_ignores_what_is_outside_and_is_zero_for_nothing() -> None:
    assert masked_mean(torch.tensor([[1.0, 3.0, NAN]]), torch.tensor([[1, 1, 0]])) == 2.0
    assert masked_mean(torch.tensor([[NAN]]), torch.tensor([[0]])) == 0.0


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
    assert off_policy_mask(down.unsqueeze(1).expand(3, 2), logp, behavior, mask, 0.5).shape == (3, 2)
