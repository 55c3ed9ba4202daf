"""Decoding on pages: the same tokens as on a CPU, whatever is shared, ends, or changes on the way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import ContractError
from groupwise.language.engine import Engine, Sampled, SamplingParams

from ..conftest import VOCABULARY, make_model

LONG = np.random.default_rng(5).integers(0, VOCABULARY, 150).tolist()
SHORT = LONG[:5]
FEW = SamplingParams(max_new_tokens=3)
MakeEngine = Callable[..., Engine]


def small(family: str = "qwen3", **changes: Any) -> Any:
    return make_model(family, num_hidden_layers=2, **changes)


def same(found: list[Sampled], wanted: list[Sampled]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-4)
        assert one.end == other.end


def on_cpu(model: Any, **options: Any) -> Engine:
    """The engine that the result must agree with; it reads a copy on the CPU."""
    import copy

    return Engine(copy.deepcopy(model).cpu(), **{"eos": (), "max_length": 256, **options})


@pytest.mark.parametrize("family", ["qwen3", "llama", "llama-biases", "phi3-partial-rope"])
def test_tokens_and_logprobs_are_those_of_the_cpu(family: str, paged: MakeEngine) -> None:
    changes = {"sliding_window": None} if family.startswith("phi3") else {}
    model = small(family, **changes)
    asked = [(SHORT, 1), (LONG[:70], 2), (SHORT, 3)]
    same(paged(model).generate(asked, FEW), on_cpu(model).generate(asked, FEW))


@pytest.mark.parametrize(
    "rules",
    [
        {"temperature": 0.0},
        {"temperature": 0.7, "top_k": 9},
        {"top_p": 0.5},
        {"temperature": 1.3, "top_k": 30, "top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.4},
    ],
    ids=str,
)
def test_rules_choose_the_same_tokens_as_on_the_cpu(rules: dict[str, float], paged: MakeEngine) -> None:
    model, params = small(), SamplingParams(max_new_tokens=3, **rules)  # type: ignore[arg-type]
    asked = [(SHORT, seed) for seed in range(3)]
    same(paged(model).generate(asked, params), on_cpu(model).generate(asked, params))


def test_rules_of_one_row_are_not_those_of_another(paged: MakeEngine) -> None:
    model = small()
    rules = [SamplingParams(max_new_tokens=2, temperature=t, top_k=k) for t, k in ((0.0, 0), (1.0, 0), (0.5, 4))]

    def answers(engine: Engine) -> list[Sampled]:
        futures = [engine.submit(SHORT, params, 7) for params in rules]
        engine.run_until_idle()
        return [future.result() for future in futures]

    same(answers(paged(model)), answers(on_cpu(model)))


def test_a_groups_prompt_is_read_once_and_its_pages_are_shared(paged: MakeEngine) -> None:
    engine = paged(small())
    engine.generate([(LONG[:130], seed) for seed in range(3)], FEW)
    assert engine.tokens_read == 130
    inside: Any = engine._inside
    # Two full pages for all, and one of its own for each.
    assert len(inside.pages) == 5


def test_what_rows_share_is_read_once_per_step(paged: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.language.engine.cuda import cuda_batcher

    monkeypatch.setattr(cuda_batcher, "LEAST_SPARED", 1)
    model = small()
    asked = [(LONG[:130], 1), (LONG[:130], 2), (SHORT, 3)]
    engine = paged(model)
    found = engine.generate(asked, FEW)
    inside: Any = engine._inside
    assert inside.shares
    same(found, on_cpu(model).generate(asked, FEW))


def test_a_turn_reads_only_what_is_new_and_says_what_a_fresh_engine_says(paged: MakeEngine) -> None:
    model = small()
    engine = paged(model)
    [first] = engine.generate([(LONG[:126], 1)], SamplingParams(max_new_tokens=4))
    told = [*LONG[:126], *first.ids.tolist(), 11, 12]
    before = engine.tokens_read
    second = engine.generate([(told, 2)], FEW)
    # Two pages of the first turn, the second of which holds some of the answer.
    assert engine.tokens_read - before == len(told) - 128
    same(second, paged(model).generate([(told, 2)], FEW))


def test_rows_end_by_themselves_and_others_take_their_place(paged: MakeEngine) -> None:
    model = small()
    greedy = SamplingParams(max_new_tokens=12, temperature=0)
    free = on_cpu(model).generate([(LONG[:n], 0) for n in (5, 9)], greedy)
    stop = int(free[0].ids[2])
    asked = [(LONG[:n], n) for n in (5, 9, 6)]
    engine, other = paged(model, slots=2, eos=(stop,)), on_cpu(model, slots=2, eos=(stop,))
    found = engine.generate(asked, greedy)
    same(found, other.generate(asked, greedy))
    assert found[0].end == "stop"


def test_a_stop_string_ends_a_request_in_the_middle_of_a_burst(paged: MakeEngine, tokenizer: Any) -> None:
    model = small()
    engine = paged(model)
    engine.tokenizer = tokenizer
    [free] = engine.generate([(SHORT, 1)], SamplingParams(max_new_tokens=6))
    text = tokenizer.decode(free.ids[:3])[-1]
    [cut] = engine.generate([(SHORT, 1)], SamplingParams(max_new_tokens=6, stop=(text,)))
    assert cut.end == "stop"
    assert len(cut) <= 3
    np.testing.assert_array_equal(cut.ids, free.ids[: len(cut)])


def test_tokens_are_passed_on_in_order(paged: MakeEngine) -> None:
    engine, told = paged(small()), list[int]()
    future = engine.submit(SHORT, FEW, 1, on_token=lambda token, _: told.append(token))
    engine.run_until_idle()
    assert told == future.result().ids.tolist()


def test_new_weights_make_the_next_token(paged: MakeEngine) -> None:
    """In place, as an optimiser changes them, while a request runs: what follows is what a fresh engine says."""
    model = small()
    engine = paged(model)
    future = engine.submit(SHORT, SamplingParams(max_new_tokens=24, temperature=0), 1)
    engine.step()
    engine.step()
    with engine.hold(), torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.manual_seed(1)).to(parameter.device))
    engine.load(model, version=1)
    engine.run_until_idle()
    answer = future.result()
    assert {0, 1} == set(answer.versions.tolist())
    old = int((answer.versions == 0).sum())
    rest = SamplingParams(max_new_tokens=24 - old, temperature=0)
    [fresh] = on_cpu(model).generate([([*SHORT, *answer.ids[:old].tolist()], 1)], rest)
    np.testing.assert_array_equal(answer.ids[old:], fresh.ids)


def test_the_engine_reads_the_parameters_themselves(paged: MakeEngine) -> None:
    model = small()
    values = {name: p.detach().clone().cpu() for name, p in model.named_parameters()}
    engine = paged(model)
    layer = engine._inside.network.layers[0]  # type: ignore[attr-defined]
    attention = model.model.layers[0].self_attn
    assert layer.qkv.weight.data_ptr() == attention.q_proj.weight.data_ptr()
    assert attention.k_proj.weight.untyped_storage().data_ptr() == layer.qkv.weight.untyped_storage().data_ptr()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad
        torch.testing.assert_close(parameter.detach().cpu(), values[name], rtol=0, atol=0)
    # A second engine finds them side by side already.
    twin = paged(model)._inside.network.layers[0]  # type: ignore[attr-defined]
    assert twin.qkv.weight.data_ptr() == layer.qkv.weight.data_ptr()


def test_rows_that_do_not_fit_wait_and_this_is_said_once(
    paged: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from groupwise.language.engine.cuda.cuda_batcher import CudaBatcher

    monkeypatch.setattr(CudaBatcher, "_pages_that_fit", lambda self, replaced: 2)
    model = small()
    engine = paged(model)
    asked = [(LONG[:n], n) for n in (4, 5, 6, 7)]
    with caplog.at_level(logging.WARNING):
        found = engine.generate(asked, FEW)
    same(found, on_cpu(model).generate(asked, FEW))
    assert [record.message for record in caplog.records] == [
        "the GPU's memory holds 2 of 4 rows at once; the others wait for a place"
    ]


def test_a_request_longer_than_the_cache_is_refused_alone(paged: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.language.engine.cuda.cuda_batcher import CudaBatcher

    monkeypatch.setattr(CudaBatcher, "_pages_that_fit", lambda self, replaced: 2)
    engine = paged(small())
    long, short = engine.submit(LONG[:140], FEW, 1), engine.submit(SHORT, FEW, 1)
    engine.run_until_idle()
    assert len(short.result()) == 3
    with pytest.raises(ContractError, match="up to 143 tokens does not fit into the GPU's cache of 128"):
        long.result()


def test_a_row_that_is_not_finite_fails_alone(paged: MakeEngine) -> None:
    model = small()
    with torch.no_grad():
        model.model.embed_tokens.weight[90] = torch.nan
    engine = paged(model)
    bad, good = engine.submit([1, 90], FEW, 1), engine.submit(SHORT, SamplingParams(max_new_tokens=1), 1)
    engine.run_until_idle()
    with pytest.raises(ContractError, match="not finite"):
        bad.result()
    assert len(good.result()) == 1


def test_a_cancelled_request_keeps_its_tokens_and_gives_its_pages_back(paged: MakeEngine) -> None:
    engine = paged(small())
    future = engine.submit(SHORT, SamplingParams(max_new_tokens=100), 1)
    engine.step()
    engine.step()
    engine.cancel(future)
    engine.run_until_idle()
    assert future.result().end == "cancelled"
    inside: Any = engine._inside
    assert inside.pages.available == len(inside.pages)


def test_frequencies_are_those_of_the_distribution(paged: MakeEngine) -> None:
    """Chi-square over the first tokens of many seeds."""
    model = small()
    count = 4000 if torch.cuda.is_available() else 60
    # Few kinds of tokens: only those that top-k leaves.
    params = SamplingParams(max_new_tokens=1, temperature=1.5, top_k=8)
    engine = paged(model, slots=min(count, 1024))
    drawn = [one.ids[0] for one in engine.generate([(SHORT, seed) for seed in range(count)], params)]
    with torch.no_grad():
        logits = model(torch.tensor([SHORT], device=next(model.parameters()).device)).logits[0, -1].float().cpu() / 1.5
    best = logits.topk(8)
    expected = best.values.softmax(-1).numpy() * count
    observed = np.array([drawn.count(token) for token in best.indices.tolist()])
    assert observed.sum() == count
    # 24.3 is the 99.9% quantile of chi-square with 7 degrees of freedom.
    assert ((observed - expected) ** 2 / expected).sum() < 24.3
