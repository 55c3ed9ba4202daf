"""Caches of any shape: rows picked, repeated and joined, the shorter ones padded on the left."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.language.engine import model_batcher
from groupwise.language.engine.model_batcher import _batches
from groupwise.language.engine.model_cache import joined, picked


@dataclass
class Layer:
    """As models keep them: keys [rows, heads, length, size], a state [rows, size], a counter, a flag, and more."""

    keys: torch.Tensor
    state: torch.Tensor
    seen: int
    ready: bool = False
    name: str = "layer"
    none: None = None
    empty: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    scalar: torch.Tensor = field(default_factory=lambda: torch.tensor(3.0))
    config: Any = field(default_factory=lambda: SimpleNamespace(model_type="llama", sizes=[1]))


def cache(rows: int, length: int, first: float, *, ready: bool = False) -> dict[str, Any]:
    keys = torch.arange(rows * 2 * length * 3, dtype=torch.float32).view(rows, 2, length, 3) + first
    state = torch.arange(rows * 3, dtype=torch.float32).view(rows, 3) + first
    return {"layers": [Layer(keys, state, length, ready)], "pair": (keys[:, 0] + 1, length), "length": length}


def test_rows_are_picked_in_any_order_and_more_than_once() -> None:
    one = cache(3, 4, 1.0)
    rows = torch.tensor([2, 0, 2, 2])
    found = picked(one, rows)
    layer, before = found["layers"][0], one["layers"][0]
    assert torch.equal(layer.keys, before.keys[rows])
    assert torch.equal(layer.state, before.state[rows])
    assert torch.equal(found["pair"][0], one["pair"][0][rows])
    assert (found["length"], found["pair"][1], layer.seen) == (4, 4, 4)
    assert (type(found["pair"]), type(found["layers"])) == (tuple, list)
    assert (layer.ready, layer.name, layer.none, layer.scalar.item()) == (False, "layer", None, 3.0)
    assert layer.config is before.config, "a configuration is not copied"
    layer.keys.zero_()
    layer.seen = 9
    assert (before.seen, before.keys.shape) == (4, (3, 2, 4, 3))
    assert before.keys.all(), "the cache it was picked from is as before"


@pytest.mark.parametrize("lengths", [(2, 5), (5, 2), (3, 3), (1, 4, 2)])
def test_joined_rows_are_padded_with_zeros_on_the_left(lengths: tuple[int, ...]) -> None:
    parts = [cache(1 + i, length, 10.0 * i + 1) for i, length in enumerate(lengths)]
    found, longest = joined(parts), max(lengths)
    layer = found["layers"][0]
    assert layer.keys.shape == (sum(range(1, len(lengths) + 1)), 2, longest, 3)
    row = 0
    for part, length in zip(parts, lengths, strict=True):
        keys, mine = layer.keys[row : row + len(part["layers"][0].keys)], part["layers"][0]
        assert torch.equal(keys[:, :, longest - length :], mine.keys)
        assert not keys[:, :, : longest - length].any()
        assert torch.equal(layer.state[row : row + len(mine.state)], mine.state)
        assert torch.equal(found["pair"][0][row : row + len(keys), longest - length :], part["pair"][0])
        row += len(keys)
    assert (layer.seen, found["length"], found["pair"][1]) == (longest, longest, longest)
    assert joined(parts[:1]) is parts[0]


def test_a_flag_is_not_a_counter() -> None:
    found = joined([cache(1, 2, 1.0, ready=False), cache(1, 2, 1.0, ready=True)])
    assert found["layers"][0].ready is False


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=14), pads=st.booleans(), most=st.integers(1, 30))
def test_prompts_are_read_in_few_batches_that_are_not_too_large(lengths: list[int], pads: bool, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_batcher, "SWEEP_TOKENS", most)
        batches = _batches(lengths, pads)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    sizes = [sorted(lengths[i] for i in batch) for batch in batches]
    for size in sizes:
        assert len(size) == 1 or len(size) * size[-1] <= most
        assert pads or size[0] == size[-1]
    for one, following in pairwise(sizes):
        assert one[-1] <= following[0], "neighbours in length are read together"
        fits = (len(one) + 1) * following[0] <= most
        assert not (fits and (pads or one[-1] == following[0])), "no batch is smaller than it has to be"
