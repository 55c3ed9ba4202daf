"""PCGrad against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from groupwise.core.gradient_surgery import conflict_share, project_conflicts, random_orders


def test_two_conflicting_gradients_by_hand() -> None:
    """(1, 0)·(−1, 1) = −1 and |(−1, 1)|² = 2: (1, 0) + ½ (−1, 1) = (½, ½), and (−1, 1) + 1 · (1, 0) = (0, 1)."""
    projected = project_conflicts(torch.tensor([[1.0, 0.0], [-1.0, 1.0]]))
    assert projected.tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_what_is_projected_away_is_the_other_as_given() -> None:
    """Task 1 loses nothing to the projected (½, ½), with which it would agree, but to (1, 0) itself."""
    given = torch.tensor([[3.0, 0.0], [-1.0, 2.0]])
    assert (project_conflicts(given) * given.flip(0)).sum(1).tolist() == [0.0, 0.0]


def test_gradients_that_agree_are_left_alone() -> None:
    given = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, 3.0], [0.0, 1.0, 0.0]])
    assert torch.equal(project_conflicts(given), given)


def test_the_order_matters_with_three_tasks() -> None:
    """(2, 0) against (−1, 1), then (−1, −1): (1, 1), then (1, 1) + 1 · (−1, −1) = (0, 0). Without (−1, 1): (1, −1)."""
    given = torch.tensor([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    by_number = project_conflicts(given)
    other_way = project_conflicts(given, torch.tensor([[2, 1, 0], [0, 1, 2], [0, 1, 2]]))
    assert by_number[0].tolist() == [0.0, 0.0]
    assert other_way[0].tolist() == [0.0, 0.0]
    uneven = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -0.5]])
    orders = torch.tensor([[0, 2, 1], [0, 1, 2], [0, 1, 2]])
    assert not torch.allclose(project_conflicts(uneven)[0], project_conflicts(uneven, orders)[0])


def test_leading_dimensions_are_independent_and_zeros_do_nothing() -> None:
    given = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0))
    given[2, 1] = 0
    together = project_conflicts(given)
    assert torch.allclose(together, torch.stack([project_conflicts(one) for one in given]))
    assert torch.isfinite(together).all()


def test_random_orders_are_permutations() -> None:
    orders = random_orders(4, torch.Generator().manual_seed(0))
    assert torch.equal(orders.sort(1).values, torch.arange(4).expand(4, 4))


def test_conflicts_are_counted_by_pairs() -> None:
    """(1, 0) and (−1, 1) conflict; (0, 1) conflicts with neither."""
    assert float(conflict_share(torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, 1.0]]))) == pytest.approx(1 / 3)
    assert float(conflict_share(torch.ones(1, 2))) == 0


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\[..., tasks, weights\]"):
        project_conflicts(torch.ones(3))
    with pytest.raises(ValueError, match=r"orders has shape \(2,\)"):
        project_conflicts(torch.ones(2, 3), torch.tensor([0, 1]))
