"""GAE in JAX against GAE in torch: rows of unlike length with holes, ends and cuts anywhere, in both forms."""

from __future__ import annotations

import sys

import pytest
import torch

from groupwise.core import gae
from groupwise.core.jax_gae import jax_gae
from groupwise.errors import MissingExtra


def steps(seed: int, rows: int, width: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    made = {n: torch.randn(rows, width, generator=draw, dtype=torch.float64) for n in ("rewards", "values")}
    flags = {n: torch.rand(rows, width, generator=draw) < 0.2 for n in ("terminated", "truncated")}
    return {**made, **flags, "mask": torch.rand(rows, width, generator=draw) < 0.8}


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 7), (5, 40), (0, 4)])
@pytest.mark.parametrize("by_step", [True, False])
def test_it_is_gae_to_rounding(rows: int, width: int, by_step: bool) -> None:
    pytest.importorskip("jax")
    for seed in range(5):
        given = steps(seed, rows, width)
        shape = (rows, width) if by_step else (rows,)
        after = torch.randn(shape, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64)
        wanted = gae(**given, next_values=after, gamma=0.97, lam=0.9)
        found = jax_gae(**given, next_values=after, gamma=0.97, lam=0.9)
        torch.testing.assert_close(found.advantages, wanted.advantages, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.returns, wanted.returns, rtol=0, atol=1e-12)


def test_what_does_not_fit_is_named() -> None:
    given = steps(0, 2, 3)
    with pytest.raises(ValueError, match="next_values has shape"):
        jax_gae(**given, next_values=torch.zeros(5), gamma=0.9, lam=0.9)


def test_without_jax_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match="needs jax") as error:
        jax_gae(**steps(0, 2, 3), next_values=torch.zeros(2), gamma=0.9, lam=0.9)
    assert "groupwise[jax]" in error.value.hint
