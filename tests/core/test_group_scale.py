"""Z-scores and the scale of nested groups, by hand."""

from __future__ import annotations

import pytest
import torch

from groupwise.core import mean_square_by_level, zscore


def test_z_scores_by_hand_and_without_spread() -> None:
    assert zscore(torch.tensor([1.0, 1.0, 0.0])).tolist() == pytest.approx([0.7071, 0.7071, -1.4142], abs=1e-4)
    assert zscore(torch.tensor([0.3, 0.1 + 0.2, 0.3], dtype=torch.float64)).tolist() == [0.0, 0.0, 0.0]
    assert zscore(torch.tensor([4.0])).tolist() == [0.0]


def test_a_mean_square_by_level_by_hand() -> None:
    """Own mean squares 1 and 9 inside a task's 5; two attempts of the four that would be believed half: a third."""
    squares, counts = torch.tensor([2.0, 0.0, 18.0, 0.0]), torch.tensor([1, 1, 1, 1])
    levels = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])
    assert mean_square_by_level(squares, counts, levels[:1]).tolist() == [5.0] * 4
    found = mean_square_by_level(squares, counts, levels, trust=4.0)
    assert found.tolist() == pytest.approx([(2 * 1 + 4 * 5) / 6] * 2 + [(2 * 9 + 4 * 5) / 6] * 2)


def test_a_group_without_spread_is_scaled_by_what_lies_around_it() -> None:
    squares, counts = torch.tensor([0.0, 0.0, 8.0, 8.0]), torch.tensor([2, 2, 2, 2])
    levels = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])
    assert mean_square_by_level(squares, counts, levels)[0] == 2.0
    assert mean_square_by_level(squares * 0, counts, levels).tolist() == [0.0] * 4


def test_a_task_is_scaled_by_itself_alone() -> None:
    squares, counts = torch.tensor([4.0, 4e8]), torch.tensor([1, 1])
    assert mean_square_by_level(squares, counts, torch.tensor([[5, 2]])).tolist() == [4.0, 4e8]
