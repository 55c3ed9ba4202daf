"""Decoding in NumPy is decoding in PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.language.engine import Engine, numpy_decoder
from groupwise.language.engine.cache import Cache
from groupwise.language.engine.families import describe
from groupwise.language.engine.network import Network, PromptPiece
from groupwise.language.engine.numpy_decoder import NumpyDecoder, decoder, squares, suits
from groupwise.language.engine.rotary import RotaryTables
from tests.language.engine.conftest import VOCABULARY, make_model

KNOWN = (
    "llama", "llama-biases", "llama-scaled-rope", "mistral", "qwen2", "qwen3", "gemma", "gemma3", "phi3",
    "phi3-partial-rope",
)  # fmt: skip
SLICED = {"hidden_size": 64, "intermediate_size": 256}


def network_of(model: Any) -> Network:
    architecture = describe(model)
    assert architecture is not None
    rotary = None if architecture.rotary is None else RotaryTables(architecture, paired=True)
    return Network(architecture, rotary, copy=True)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("changes", [{}, SLICED], ids=["whole", "sliced"])
@pytest.mark.parametrize("family", KNOWN)
@torch.inference_mode()
def test_logits_and_cache_are_those_of_the_network(family: str, changes: dict[str, int], even: bool) -> None:
    network = network_of(make_model(family, **changes))
    assert suits(network)
    a, rng = network.architecture, np.random.default_rng(0)
    lengths = [13, 13, 13] if even else [13, 2, 7]
    cache = Cache(len(a.layers), a.kv_heads, a.head_dim, rows=4, length=64, like=next(a.embedding.parameters()))
    cache.ensure(4, 32)
    network.prefill([PromptPiece(row, 0, rng.integers(0, VOCABULARY, n)) for row, n in enumerate(lengths)], cache)
    twin = copy.deepcopy(cache)
    step = torch.tensor([5, 6, 7]), torch.tensor(lengths), torch.arange(3), max(lengths) + 1, even
    torch.testing.assert_close(
        NumpyDecoder(network).decode(*step, twin), network.decode(*step, cache), atol=2e-5, rtol=1e-5
    )
    torch.testing.assert_close(twin.store, cache.store, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["gemma2", "gemma2-last-cap", "phi", "gpt2"])
def test_what_is_not_known_is_left_to_the_network(family: str) -> None:
    network = network_of(make_model(family))
    assert not suits(network)
    assert decoder(network) is network


@pytest.mark.parametrize("new", [True, False])
def test_squares_are_summed_over_the_last_axis_by_any_numpy(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_decoder, "NUMPY_2", new and numpy_decoder.NUMPY_2)
    x = np.array([[[1.0, 2.0], [3.0, 4.0], [0.0, -2.0]]], np.float32)
    assert squares(x).tolist() == [[5.0, 25.0, 4.0]]


def test_half_precision_and_plain_tables_are_left_to_the_network() -> None:
    """Paired tables come with copies, and only in single precision."""
    for dtype, copied, suited in (
        (torch.float32, True, True),
        (torch.float32, False, False),
        (torch.bfloat16, True, False),
    ):
        inside: Any = Engine(make_model("llama").to(dtype), copy_weights=copied)._inside
        assert suits(inside.network) is suited
        assert isinstance(inside.decoder, NumpyDecoder) is suited
