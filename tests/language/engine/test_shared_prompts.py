"""Prompts that rows share are read once, and nothing but rounding changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from groupwise.language.engine import Engine, Sampled, SamplingParams, shared_prompts
from groupwise.language.engine.cache import Cache
from groupwise.language.engine.network import PromptPiece
from groupwise.language.engine.numpy_decoder import NumpyDecoder
from groupwise.language.engine.shared_prompts import SMALL, SharedPromptCache, find_shared_prompts, scores_of
from tests.language.engine.conftest import VOCABULARY, make_model
from tests.language.engine.test_numpy_decoder import network_of

PROMPTS = [np.random.default_rng(i).integers(8, VOCABULARY, 12 + 3 * i) for i in range(3)]
MEMBERS = [0, 1, 0, 2, 1, 0, 2, 2]  # of unequal groups, mixed
SAMPLING = SamplingParams(max_new_tokens=24)


@pytest.fixture(autouse=True)
def _share_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prompts, "LEAST_BYTES", 1)


def found(cache: Cache, known: SharedPromptCache | None = None) -> SharedPromptCache | None:
    return find_shared_prompts([PROMPTS[member].tobytes() for member in MEMBERS], cache.store, known)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gemma3"])
@torch.inference_mode()
def test_logits_are_those_of_whole_rows(family: str) -> None:
    network = network_of(make_model(family))
    a, count = network.architecture, len(MEMBERS)
    cache = Cache(len(a.layers), a.kv_heads, a.head_dim, rows=count, length=64, like=next(a.embedding.parameters()))
    cache.ensure(count, 32)
    network.prefill([PromptPiece(row, 0, PROMPTS[member]) for row, member in enumerate(MEMBERS)], cache)
    lengths = torch.tensor([len(PROMPTS[member]) for member in MEMBERS])
    step = torch.arange(5, 5 + count), lengths, torch.arange(count), int(lengths.max()) + 1, False
    wanted = NumpyDecoder(network).decode(*step, cache)
    cache.shared_prompts = found(cache)
    assert cache.shared_prompts is not None
    assert cache.shared_prompts.length == min(len(prompt) for prompt in PROMPTS)
    for rows in (slice(None), slice(0, 3)):  # what rows keep of a prompt is no longer read
        torch.testing.assert_close(NumpyDecoder(network).decode(*step, cache)[rows], wanted[rows], atol=2e-5, rtol=1e-5)
        cache.store[:, :, 3:, :, : cache.shared_prompts.length] = 0


def test_copies_are_taken_once_and_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(2, 2, 4, rows=8, length=32, like=torch.zeros(1))
    cache.ensure(8, 32)
    first = found(cache)
    again = found(cache, first)
    assert first is not None
    assert again is not None
    assert again.store is first.store
    assert find_shared_prompts([PROMPTS[0].tobytes()] * 9 + [p.tobytes() for p in PROMPTS], cache.store, None) is None
    monkeypatch.setattr(shared_prompts, "LEAST_BYTES", 5 * 12 * 2 * 4 * 2 * 4 + 1)
    assert found(cache) is None


def sampled(model: Any, *, change_at: int | None = None) -> list[Sampled]:
    """Three groups whose answers end at many lengths; the weights may change on the way."""
    engine = Engine(model, slots=8, eos=(3, 4, 5))
    futures = [engine.submit(PROMPTS[seed % 3], SAMPLING, seed) for seed in range(20)]
    for step in range(12):
        if step == change_at:
            with torch.no_grad():
                model.model.layers[0].self_attn.k_proj.weight.mul_(1.5)
        engine.step()
    engine.run_until_idle()
    return [future.result() for future in futures]


@pytest.mark.parametrize("change_at", [None, 6])
def test_answers_are_those_of_an_engine_that_shares_nothing(
    change_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sampled(make_model("llama"), change_at=change_at)
    monkeypatch.setattr(shared_prompts, "LEAST_BYTES", 1 << 60)
    alone = sampled(make_model("llama"), change_at=change_at)
    assert len({len(answer) for answer in shared}) > 3
    for one, other in zip(shared, alone, strict=True):
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-4)
        np.testing.assert_array_equal(one.ids, other.ids)


@pytest.mark.parametrize(("heads", "n", "first"), [(1, 4, 0), (2, 2, 37), (4, 1, 5)])
def test_long_spans_are_multiplied_in_parts_that_make_the_whole(heads: int, n: int, first: int) -> None:
    size, rng = 32, np.random.default_rng(n)
    span = 2 * SMALL // (n * size) + 11
    q = rng.normal(size=(3, heads, n, size)).astype(np.float32)
    keys = rng.normal(size=(3, heads, span + 7, size)).astype(np.float32)[:, :, :span]
    out = np.full((3, heads, n, span), np.nan, np.float32)
    assert scores_of(q, keys, out, first) is out
    assert np.isnan(out[..., :first]).all(), "what lies before is somebody else's"
    np.testing.assert_allclose(out[..., first:], (q @ keys.swapaxes(2, 3))[..., first:], rtol=1e-4, atol=1e-4)
