"""How long a context may be, and which dimensions rotary embedding turns together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.language.engine.families import describe
from groupwise.language.engine.rotary import UNLIMITED, RotaryTables, longest, turn

from .conftest import make_model


def config(limit: int | None, rope: dict[str, Any] | None = None) -> Any:
    return SimpleNamespace(max_position_embeddings=limit, rope_parameters=rope)


def scaled(kind: str, original: int | None = None) -> dict[str, Any]:
    return {"rope_type": kind, "original_max_position_embeddings": original}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (SimpleNamespace(), UNLIMITED),
        (config(None), UNLIMITED),
        (config(100), 100),
        (config(100, {}), 100),
        (config(100, {"rope_theta": 1e4}), 100),
        (config(100, scaled("default", 40)), 100),
        (config(100, scaled("llama3", 40)), 100),  # its angles are the same at every length
        (config(100, scaled("yarn", 40)), 100),
        (config(100, scaled("dynamic", 40)), 40),
        (config(100, scaled("longrope", 40)), 40),
        (config(100, scaled("dynamic")), 100),
        (config(100, scaled("dynamic", 400)), 100),
        (config(100, {"full": scaled("default"), "sliding": scaled("dynamic", 30)}), 30),
        (config(100, {"full": scaled("longrope", 50), "sliding": scaled("longrope", 30)}), 30),
        (config(100, {"full": scaled("default"), "sliding": scaled("default", 30)}), 100),
    ],
)
def test_the_context_is_what_the_model_can_read(settings: Any, limit: int) -> None:
    assert longest(settings, None) == limit
    assert longest(settings, limit) == limit
    assert longest(settings, 2) == 2
    for wanted in (limit + 1, 1, 0, -1):
        with pytest.raises(ConfigError, match=f"max_length is {wanted}; it must be between 2 and {limit}, ") as caught:
            longest(settings, wanted)
        assert caught.value.field == "max_length"


@pytest.mark.parametrize(("kind", "which"), [("dynamic", "original_max_position_embeddings"), ("yarn", "")])
def test_the_refusal_names_the_limit_that_applies(kind: str, which: str) -> None:
    with pytest.raises(ConfigError, match=f"the model's {which or 'max_position_embeddings'}$"):
        longest(config(100, scaled(kind, 40)), 500)


@pytest.mark.parametrize("family", ["llama", "llama-scaled-rope", "phi3-partial-rope", "gemma3", "phi"])
def test_both_tables_turn_as_the_models_own_angles(family: str) -> None:
    """rotate_half by hand: dimension i with i + size / 2, and what lies beyond the angles is left alone."""
    architecture = describe(make_model(family))
    assert architecture is not None
    size, positions = architecture.head_dim, torch.tensor([0, 1, 5, 40])
    x = torch.randn(4, 3, size, generator=torch.Generator().manual_seed(0))
    plain, paired = (RotaryTables(architecture, paired=paired) for paired in (False, True))
    order = paired.pair_order(size)
    assert sorted(order.tolist()) == list(range(size))
    for kind in plain.kinds:
        module: Any = architecture.rotary
        cos, sin = (t[0][:, None] for t in (module(x, positions[None], *([kind] if kind else []))))
        half, turned = cos.shape[-1] // 2, x.clone()
        one, other = x[..., :half], x[..., half : 2 * half]
        turned[..., : 2 * half] = x[..., : 2 * half] * cos + torch.cat((-other, one), -1) * sin
        for tables, wanted in ((plain, turned), (paired, turned[..., order])):
            tables.ensure(30)
            tables.ensure(41)  # grown on demand
            found = (x if tables is plain else x[..., order]).clone()
            turn(found, tables.at(positions)[kind])
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
            single = (x if tables is plain else x[..., order])[3:].clone()
            turn(single, tables.at(40)[kind])
            torch.testing.assert_close(single, wanted[3:], atol=1e-5, rtol=1e-5)
