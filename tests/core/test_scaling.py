"""Scores on fixed scales, and within a batch."""

from __future__ import annotations

import pytest
import torch

from groupwise.core import mean_square_by_level, reference_score, zscore

DURATIONS = torch.tensor([10.0, 20.0, 30.0])


def test_fault_11_a_reference_score_does_not_depend_on_the_batch_it_is_in() -> None:
    alone = reference_score(DURATIONS, worst=40.0, best=0.0)
    beside = reference_score(torch.cat([DURATIONS, torch.tensor([500.0])]), worst=40.0, best=0.0)
    assert alone.tolist() == beside[:3].tolist() == [0.75, 0.5, 0.25]
    wrong_alone, wrong_beside = zscore(-DURATIONS), zscore(-torch.cat([DURATIONS, torch.tensor([500.0])]))
    assert abs(float(wrong_alone[2] - wrong_beside[2])) > 1, "the z-score's verdict changes with the company"


def test_a_reference_score_stays_within_its_scale_in_either_direction() -> None:
    assert reference_score(torch.tensor([-5.0, 0.5, 9.0]), worst=0.0, best=1.0).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="they must differ"):
        reference_score(DURATIONS, worst=1.0, best=1.0)


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
