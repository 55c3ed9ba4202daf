"""Z-scores and the scale of nested groups, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.core import mean_square_by_level, zscore
from groupwise.core.objectives import normalize_then_sum


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
    assert mean_square_by_level(squares * 0, counts * 0, levels).tolist() == [0.0] * 4
    assert mean_square_by_level(squares, counts // 2, levels * 0).tolist() == [4.0] * 4


def test_a_task_is_scaled_by_itself_alone() -> None:
    squares, counts = torch.tensor([4.0, 4e8]), torch.tensor([1, 1])
    assert mean_square_by_level(squares, counts, torch.tensor([[5, 2]])).tolist() == [4.0, 4e8]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("trust", [0.5, 4.0])
def test_a_mean_square_borrows_from_level_to_level(seed: int, trust: float) -> None:
    """Three levels, with groups of one attempt, attempts of several squares, and attempts without any."""
    g = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (8,), generator=g)
    squares = torch.rand(8, generator=g, dtype=torch.float64) * 9 * (counts > 0)
    levels = torch.tensor([[0, 0, 0, 0, 0, 4, 4, 4], [1, 1, 1, 2, 2, 3, 3, 3], [5, 5, 6, 7, 7, 8, 9, 9]])

    def own(row: int, groups: Tensor) -> tuple[float, int]:
        members = [other for other in range(8) if groups[other] == groups[row]]
        total, count = sum(float(squares[m]) for m in members), sum(int(counts[m]) for m in members)
        return total / max(count, 1), len(members)

    expected = []
    for row in range(8):
        found = own(row, levels[0])[0]
        for groups in levels[1:]:
            mean, members = own(row, groups)
            if mean > 0:
                found = (members * mean + trust * found) / (members + trust)
        expected.append(found)
    assert mean_square_by_level(squares, counts, levels, trust=trust).tolist() == pytest.approx(expected)


def test_a_group_is_trusted_half_at_four_attempts_unless_told_and_never_without_a_number() -> None:
    squares, counts = torch.tensor([8.0] * 4 + [0.0] * 4), torch.ones(8)
    levels = torch.tensor([[0] * 8, [0] * 4 + [1] * 4])
    assert mean_square_by_level(squares, counts, levels)[0] == (8.0 + 4.0) / 2
    for trust in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"trust is {trust}"):
            mean_square_by_level(squares, counts, levels, trust=trust)


@pytest.mark.parametrize("values", [[0.0, 3.0, 5.0, 5.0], [-2e6, 1e6], [1e-5, 3e-5, -2e-5]])
def test_z_scores_are_numpys(values: list[float]) -> None:
    expected = (np.array(values) - np.mean(values)) / np.std(values)
    assert zscore(torch.tensor(values, dtype=torch.float64)).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("values", "varies"),
    [([0.0, 1e-8], True), ([0.0, 1e-9], False), ([1e6, 1e6 + 0.01], True), ([-1e6, -1e6 - 1e-4], False)],
)
def test_a_spread_that_is_rounding_beside_the_values_scores_zero(values: list[float], varies: bool) -> None:
    assert bool(zscore(torch.tensor(values, dtype=torch.float64)).any()) == varies
    columns = np.array(values)[:, None]
    assert bool(normalize_then_sum(columns, [1.0]).any()) == varies
