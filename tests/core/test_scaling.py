"""Scores on fixed scales, and within a batch."""

from __future__ import annotations

import pytest
import torch

from groupwise.core import reference_score, zscore

DURATIONS = torch.tensor([10.0, 20.0, 30.0])


def test_fault_11_a_reference_score_does_not_depend_on_the_batch_it_is_in() -> None:
    alone = reference_score(DURATIONS, worst=40.0, best=0.0)
    beside = reference_score(torch.cat([DURATIONS, torch.tensor([500.0])]), worst=40.0, best=0.0)
    assert alone.tolist() == beside[:3].tolist() == [0.75, 0.5, 0.25]
    wrong_alone, wrong_beside = zscore(-DURATIONS), zscore(-torch.cat([DURATIONS, torch.tensor([500.0])]))
    assert abs(float(wrong_alone[2] - wrong_beside[2])) > 1, "the z-score's verdict changes with the company"


def test_a_reference_score_stays_within_its_scale_in_either_direction() -> None:
    assert reference_score(torch.tensor([-5.0, 0.5, 9.0]), worst=0.0, best=1.0).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="two different points"):
        reference_score(DURATIONS, worst=1.0, best=1.0)


def test_z_scores_by_hand_and_without_spread() -> None:
    assert zscore(torch.tensor([1.0, 1.0, 0.0])).tolist() == pytest.approx([0.7071, 0.7071, -1.4142], abs=1e-4)
    assert zscore(torch.tensor([0.3, 0.1 + 0.2, 0.3], dtype=torch.float64)).tolist() == [0.0, 0.0, 0.0]
    assert zscore(torch.tensor([4.0])).tolist() == [0.0]
