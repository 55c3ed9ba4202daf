"""The critic's loss and what it explains."""

from __future__ import annotations

import pytest
import torch

from groupwise.core import explained_variance, value_loss

MASK = torch.tensor([[True, True, False]])
RETURNS = torch.tensor([[1.0, 2.0, 50.0]])


def test_plain_value_loss_by_hand() -> None:
    values = torch.tensor([[3.0, 1.0, float("nan")]], requires_grad=True)
    loss = value_loss(values, RETURNS, MASK, denominator=2)
    loss.backward()
    assert loss.item() == 0.5 * (4 + 1) / 2
    assert values.grad is not None
    assert values.grad.tolist() == [[1.0, -0.5, 0.0]]


def test_the_clip_takes_the_worse_of_the_two_errors_and_stops_the_gradient() -> None:
    # first value has run from 2 past the return to 1.0: clipped at 1.8, the error there is larger
    values = torch.tensor([[1.0, 1.5, 0.0]], requires_grad=True)
    old = torch.tensor([[2.0, 1.4, 0.0]])
    loss = value_loss(values, RETURNS, MASK, denominator=1, old_values=old, value_clip=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (0.8**2 + 0.5**2))
    assert values.grad is not None
    assert values.grad[0].tolist() == pytest.approx([0.0, -0.5, 0.0])


def test_micro_batches_add_up() -> None:
    g = torch.Generator().manual_seed(0)
    values, returns = torch.randn(4, 5, generator=g), torch.randn(4, 5, generator=g)
    mask = torch.rand(4, 5, generator=g) < 0.6
    whole = value_loss(values, returns, mask, denominator=7)
    parts = sum(value_loss(values[i], returns[i], mask[i], denominator=7) for i in (slice(0, 1), slice(1, 4)))
    torch.testing.assert_close(whole, parts)


def test_a_clip_without_old_values_is_refused() -> None:
    with pytest.raises(ValueError, match="old_values"):
        value_loss(RETURNS, RETURNS, MASK, denominator=1, value_clip=0.2)


def test_explained_variance_of_perfect_constant_and_harmful_critics() -> None:
    returns = torch.tensor([[1.0, 3.0, 9.0]])
    assert explained_variance(torch.tensor([[1.0, 3.0, 0.0]]), returns, MASK) == 1.0
    assert explained_variance(torch.tensor([[7.0, 7.0, 0.0]]), returns, MASK) == 0.0
    assert explained_variance(torch.tensor([[3.0, 1.0, 0.0]]), returns, MASK) == -3.0


def test_nothing_to_explain_is_not_a_number() -> None:
    assert explained_variance(RETURNS, torch.ones(1, 3), MASK).isnan()
    assert explained_variance(RETURNS, RETURNS, torch.zeros(1, 3)).isnan()
