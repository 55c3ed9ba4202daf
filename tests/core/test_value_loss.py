"""The critic's loss and what it explains."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("clip", [None, 0.0, 0.25, 10.0])
def test_the_critics_loss_is_its_formula_step_by_step(clip: float | None) -> None:
    """Values below, at and above the clip on either side of old values on either side of the returns."""
    places = (-1.0, -0.25, 0.0, 0.125, 0.25, 1.0)
    cases = [(old + move, old, target) for old in (-0.5, 0.5) for move in places for target in (-0.75, 0.0, 0.6)]
    values, old, returns = torch.tensor(cases, dtype=torch.float64).T.unsqueeze(1)
    mask = torch.arange(len(cases)) % 4 != 3
    expected = 0.0
    for inside, (value, before, target) in zip(mask.tolist(), cases, strict=True):
        error = (value - target) ** 2
        if clip is not None:
            near = before + min(max(value - before, -clip), clip)
            error = max(error, (near - target) ** 2)
        expected += 0.5 * error / 5 if inside else 0.0
    found = value_loss(values, returns, mask.unsqueeze(0), denominator=5, old_values=old, value_clip=clip)
    assert float(found) == pytest.approx(expected)


def test_what_stands_outside_the_mask_touches_neither_the_loss_nor_its_gradient() -> None:
    values = torch.tensor([[1.0, float("nan")]], requires_grad=True)
    other = torch.tensor([[3.0, float("nan")]])
    loss = value_loss(values, other, torch.tensor([[1, 0]]), denominator=1, old_values=other, value_clip=0.5)
    loss.backward()
    assert loss.item() == 2.0
    assert values.grad is not None
    assert values.grad[0].tolist() == [-2.0, 0.0]
    with pytest.raises(ValueError, match="denominator is 0"):
        value_loss(values, other, torch.tensor([[1, 0]]), denominator=0)


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


def test_explained_variance_is_a_share_of_the_variance_of_the_returns() -> None:
    """In any units, and whatever constant is added to either."""
    returns, values = torch.tensor([[1.0, 3.0, 9.0, 50.0]]), torch.tensor([[3.0, 3.0, 7.0, -50.0]])
    mask = torch.tensor([[1, 1, 1, 0]])
    expected = 1 - np.var([1 - 3, 3 - 3, 9 - 7]) / np.var([1, 3, 9])
    for factor in (0.1, 1.0, 20.0):
        found = explained_variance(values * factor + 5, returns * factor - 3, mask)
        assert float(found) == pytest.approx(expected)
    far = torch.tensor([[2.0**24, 2.0**24 + 2]])
    assert explained_variance(torch.ones(1, 2), far, torch.ones(1, 2)) == 0.0


def test_nothing_to_explain_is_not_a_number() -> None:
    assert explained_variance(RETURNS, torch.ones(1, 3), MASK).isnan()
    assert explained_variance(RETURNS, RETURNS, torch.zeros(1, 3)).isnan()
