"""Soft routing against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from groupwise.control.soft_modules import soft_route


def test_routes_by_hand() -> None:
    """Logits 0 and ln 3 are shares of ¼ and ¾; equal logits are the mean."""
    said = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    wanted = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0]])
    assert torch.allclose(soft_route(said, wanted), torch.tensor([[1.0, 6.0], [2.0, 4.0]]))


def test_layers_may_have_unlike_numbers_of_modules() -> None:
    assert soft_route(torch.randn(5, 4, 3), torch.randn(5, 1, 4)).shape == (5, 1, 3)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match=r"logits has shape \(2, 3\), but must have \(2, 4\)"):
        soft_route(torch.ones(4, 2), torch.ones(2, 3))
