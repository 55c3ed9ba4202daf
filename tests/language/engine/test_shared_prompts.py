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


@pytest.mark.parametrize(
    ("members", "in_turn"),
    [([0, 0, 1, 1], True), ([0, 0, 0], True), ([0, 1, 0, 1], False), ([0, 0, 1], False), ([1, 1, 0, 0], True)],
)
def test_scores_and_mixtures_are_those_of_whole_rows(members: list[int], in_turn: bool) -> None:
    """Products by hand, of rows whose groups follow each other and of others; the next member is noticed too."""
    heads, n, size, span, rng = 2, 3, 4, 20, np.random.default_rng(len(members))
    rows = len(members)
    prompts = rng.normal(size=(2, 2, 2, heads, span, size)).astype(np.float32)  # of each layer, part and prompt
    cache = Cache(2, heads, size, rows=rows, length=32, like=torch.zeros(1))
    cache.ensure(rows, 32)
    whole = rng.normal(size=(2, 2, rows, heads, span, size)).astype(np.float32)
    for row, member in enumerate(members):
        length = len(PROMPTS[member])
        whole[:, :, row, :, :length] = prompts[:, :, member, :, :length]
    cache.store[:, :, :, :, :span] = torch.from_numpy(whole)
    keys = [PROMPTS[member].tobytes() for member in members]
    shared = find_shared_prompts(keys, cache.store, None)
    assert shared is not None
    assert shared.in_turn is in_turn
    assert shared.length == min(len(PROMPTS[member]) for member in members)
    q = rng.normal(size=(rows, heads, n, size)).astype(np.float32)
    weights = rng.random((rows, heads, n, span)).astype(np.float32)
    for layer in range(2):
        scores = shared.scores(layer, q, whole[layer, 0])
        np.testing.assert_allclose(scores, q @ whole[layer, 0].swapaxes(2, 3), rtol=1e-4, atol=1e-5)
        mixed = shared.mixed(layer, weights, whole[layer, 1])
        np.testing.assert_allclose(mixed, weights @ whole[layer, 1], rtol=1e-4, atol=1e-5)


def test_what_is_known_of_other_prompts_is_not_used() -> None:
    """As many groups as before, one of them another; and the same ones in another order."""
    cache = Cache(1, 1, 2, rows=6, length=32, like=torch.zeros(1))
    cache.ensure(6, 32)
    cache.store.normal_(generator=torch.Generator().manual_seed(0))

    def shared(members: list[int], known: SharedPromptCache | None = None) -> SharedPromptCache:
        result = find_shared_prompts([PROMPTS[member].tobytes() for member in members], cache.store, known)
        assert result is not None
        return result

    first = shared([0, 0, 1, 1])
    np.testing.assert_array_equal(first.store, cache.store[:, :, [0, 2], :, :12].numpy())
    other = shared([0, 0, 2, 2], first)
    assert other.keys == (PROMPTS[0].tobytes(), PROMPTS[2].tobytes())
    assert other.store is not first.store
    turned = shared([1, 1, 1, 0], first)
    assert turned.store is first.store
    assert (turned.keys, turned.in_turn) == (first.keys, False)
    assert turned.taking[:, 0].tolist() == [[3, 3, 3], [0, 1, 2]]
    assert turned.giving[1:, 0].tolist() == [4, 5, 2]


def test_sharing_begins_where_it_pays_and_ends_where_padding_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(2, 2, 4, rows=8, length=32, like=torch.zeros(1))
    cache.ensure(8, 32)
    spared = 5 * 12 * 2 * 4 * 2 * 4  # rows without their own copy, positions, heads, sizes, keys and values, bytes
    for least, pays in ((spared - 1, True), (spared, True), (spared + 1, False)):
        monkeypatch.setattr(shared_prompts, "LEAST_BYTES", least)
        assert (found(cache) is not None) is pays
    monkeypatch.setattr(shared_prompts, "LEAST_BYTES", 1)
    for most, pays in ((9 / 8 - 0.01, False), (9 / 8, True)):  # 3 groups of up to 3 are 9 places for 8 rows
        monkeypatch.setattr(shared_prompts, "MOST_PADDING", most)
        assert (found(cache) is not None) is pays
    assert find_shared_prompts([PROMPTS[0].tobytes()], cache.store, None) is None
