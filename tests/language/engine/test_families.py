"""Every family against Hugging Face's own forward pass and `generate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine import Engine, Sampled, SamplingParams
from groupwise.language.engine.batcher import Batcher
from groupwise.language.engine.families import describe
from groupwise.language.engine.weights import at_rest

from .conftest import FAMILIES, VOCABULARY, make_model

PROMPTS = [np.random.default_rng(i).integers(0, VOCABULARY, size).tolist() for i, size in enumerate((12, 12, 5, 1))]
TEN = SamplingParams(max_new_tokens=10)


@torch.no_grad()
def full_forward(model: Any, prompt: list[int], ids: NDArray[np.int64]) -> Tensor:
    """Logits [len(ids), V] that each sampled token was drawn from, by a fresh forward over everything."""
    both = torch.tensor([prompt + ids.tolist()])
    logits: Tensor = model(both).logits[0, len(prompt) - 1 : -1]
    return logits.float()


def logp_error(model: Any, prompt: list[int], sampled: Sampled, temperature: float = 1.0) -> float:
    logp = (full_forward(model, prompt, sampled.ids) / temperature).log_softmax(-1)
    expected = logp.gather(1, torch.from_numpy(sampled.ids)[:, None])[:, 0]
    return float((expected - torch.from_numpy(sampled.logp)).abs().max())


@pytest.mark.parametrize("copy_weights", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_generates(family: str, copy_weights: bool) -> None:
    model = make_model(family)
    engine = Engine(model, eos=(), copy_weights=copy_weights)
    results = engine.generate([(p, 0) for p in PROMPTS], SamplingParams(max_new_tokens=24, temperature=0))
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = torch.tensor([prompt])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=0
        )[0, len(prompt) :].numpy()
        top = full_forward(model, prompt, expected).topk(2).values
        clear = (top[:, 0] - top[:, 1] > 1e-3).numpy()
        until = len(clear) if clear.all() else int(np.argmin(clear))  # a near tie may part the ways
        assert until > 0
        np.testing.assert_array_equal(result.ids[:until], expected[:until])
        assert logp_error(model, prompt, result) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_a_fresh_forwards(family: str) -> None:
    model = make_model(family, seed=1)
    engine = Engine(model, eos=(), slots=3)  # fewer slots than requests: rows join while others run
    assert isinstance(engine._inside, Batcher), "none of them needs the model's own forward pass"
    params = SamplingParams(max_new_tokens=20, temperature=0.7)
    requests = [(p, seed) for p in PROMPTS for seed in (1, 2)]
    results = engine.generate(requests, params)
    for (prompt, _), result in zip(requests, results, strict=True):
        assert len(result) == 20
        assert logp_error(model, prompt, result, temperature=0.7) < 1e-4


@pytest.mark.parametrize("copy_weights", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_session_goes_on_as_a_fresh_forward(family: str, copy_weights: bool) -> None:
    """Several tokens on top of what is in the cache, beyond any window, beside a row of another length."""
    model = make_model(family, seed=2)
    engine, params = Engine(model, eos=(), copy_weights=copy_weights), SamplingParams(max_new_tokens=6)
    ids = [PROMPTS[0], PROMPTS[2]]
    for turn in range(3):
        before = engine.tokens_read
        futures = [engine.submit(prompt, params, turn, session=s) for s, prompt in enumerate(ids)]
        engine.run_until_idle()
        assert engine.tokens_read - before == (12 if turn else 17)  # of each: the last sampled, and 5 new
        for s, future in enumerate(futures):
            assert logp_error(model, ids[s], future.result()) < 1e-4
            ids[s] = ids[s] + future.result().ids.tolist() + PROMPTS[1][:5]


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"])
@pytest.mark.parametrize("copy_weights", [True, False])
def test_adapters_are_part_of_the_weights(family: str, copy_weights: bool) -> None:
    from peft import LoraConfig, get_peft_model

    base = make_model(family)
    targets = ["c_attn", "c_proj"] if family == "gpt2" else ["q_proj", "v_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=4, target_modules=targets, lora_dropout=0.5))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    prompt, params = PROMPTS[0], SamplingParams(max_new_tokens=12)
    engine = Engine(model, eos=(), copy_weights=copy_weights)
    model.train()
    on = engine.generate([(prompt, 0)], params)[0]
    assert model.training
    model.eval()
    assert logp_error(model, prompt, on) < 1e-4
    with model.disable_adapter():
        off = engine.generate([(prompt, 0)], params)[0]
        assert logp_error(model, prompt, off) < 1e-4
    assert not np.allclose(on.logp, off.logp, atol=1e-3)
    np.testing.assert_array_equal(engine.generate([(prompt, 0)], params)[0].ids, on.ids)


@pytest.mark.parametrize("copy_weights", [True, False])
def test_switching_and_merging_adapters_is_noticed(copy_weights: bool) -> None:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=2, target_modules=["q_proj", "up_proj"], modules_to_save=["norm", "lm_head"])
    model: Any = get_peft_model(make_model("llama"), settings)
    model.add_adapter("second", settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    engine, params = Engine(model.eval(), eos=(), copy_weights=copy_weights), SamplingParams(max_new_tokens=6)

    def sampled() -> NDArray[np.float32]:
        result = engine.generate([(PROMPTS[0], 0)], params)[0]
        assert logp_error(model, PROMPTS[0], result) < 1e-4
        return result.logp

    first = sampled()
    model.set_adapter("second")
    second = sampled()
    with model.disable_adapter():
        off = sampled()
    model.merge_adapter()
    merged = sampled()
    model.unmerge_adapter()
    model.set_adapter("default")
    assert not np.allclose(first, second, atol=1e-3)
    assert not np.allclose(off, second, atol=1e-3)
    np.testing.assert_allclose(merged, second, atol=1e-4)
    np.testing.assert_allclose(sampled(), first, atol=1e-4)


def test_only_models_that_generate_as_described_are_described() -> None:
    model = make_model("llama")
    found = describe(model)
    assert found is not None
    assert (found.name, found.heads, found.kv_heads, found.head_dim, found.vocabulary) == ("llama", 4, 2, 8, VOCABULARY)
    assert found.shape == {"layers": 3, "kv_heads": 2, "head_dim": 8, "vocabulary": VOCABULARY}
    assert describe(model.model) is None, "a bare decoder"
    assert describe(transformers.LlamaForSequenceClassification(model.config)) is None
    model.is_quantized = True
    assert describe(model) is None
    for name in ("use_bidirectional_attention", "add_cross_attention"):
        model = make_model("gemma3")
        setattr(model.config, name, True)
        assert describe(model) is None
        setattr(model.config, name, False)
        assert describe(model) is not None
    model.config.model_type = "another"
    assert describe(model) is None


@pytest.mark.parametrize(
    ("family", "attention", "caps", "final"),
    [
        ("gemma2", "eager", [2.0] * 3, 3.0),
        # With this attention, Transformers leaves the cap on scores out.
        ("gemma2", "sdpa", [None] * 3, 3.0),
        ("gemma2-last-cap", "eager", [None] * 3, 3.0),
        ("gemma3", "eager", [None] * 3, None),
    ],
)
def test_scores_are_capped_where_the_models_own_attention_caps_them(
    family: str, attention: str, caps: list[float | None], final: float | None
) -> None:
    model = make_model(family)
    model.config._attn_implementation = attention
    found = describe(model)
    assert found is not None
    assert ([layer.softcap for layer in found.layers], found.final_softcap) == (caps, final)


@pytest.mark.parametrize(
    ("family", "changes", "windows"),
    [
        ("mistral", {}, [10] * 3),
        ("mistral", {"sliding_window": None}, [None] * 3),
        ("qwen2", {}, [None] * 3),
        ("qwen2-window", {}, [None, 8, 8]),
        ("qwen2-window", {"use_sliding_window": False}, [None] * 3),
        ("gemma3", {}, [9, None, 9]),
        ("phi3", {}, [11] * 3),
        ("llama", {}, [None] * 3),
    ],
)
def test_the_window_of_every_layer(family: str, changes: dict[str, Any], windows: list[int | None]) -> None:
    found = describe(make_model(family, **changes))
    assert found is not None
    assert [layer.window for layer in found.layers] == windows


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_any_number_of_heads_may_share_keys(kv_heads: int) -> None:
    for family in ("llama", "gemma2"):
        model = make_model(family, num_key_value_heads=kv_heads)
        for copy_weights in (True, False):
            engine = Engine(model, eos=(), copy_weights=copy_weights)
            for prompt, result in zip(PROMPTS, engine.generate([(p, 0) for p in PROMPTS], TEN), strict=True):
                assert logp_error(model, prompt, result) < 1e-4


def test_several_threads_sample_the_same() -> None:
    """They decode in PyTorch instead of NumPy."""
    model, threads = make_model("qwen3"), torch.get_num_threads()
    alone = Engine(model, eos=()).generate([(p, 0) for p in PROMPTS], TEN)
    torch.set_num_threads(2)
    try:
        engine = Engine(model, eos=())
        assert engine._inside.decoder is engine._inside.network  # type: ignore[attr-defined]
        together = engine.generate([(p, 0) for p in PROMPTS], TEN)
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.logp, other.logp, atol=1e-4)


def test_only_what_is_in_training_mode_is_put_at_rest_and_back() -> None:
    model = make_model("llama").train()
    parts = [model.model.layers[0].mlp, model.lm_head]
    parts[0].eval()
    before = [module.training for module in model.modules()]
    resting = make_model("llama")
    with pytest.raises(KeyError), at_rest([model, resting]):
        assert not any(module.training for module in (*model.modules(), *resting.modules()))
        raise KeyError
    assert [module.training for module in model.modules()] == before
    assert not any(module.training for module in resting.modules())


@pytest.mark.parametrize("copy_weights", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_precisions_stay_as_close_as_they_are_fine(family: str, copy_weights: bool) -> None:
    """They go through PyTorch's own norms and through rotary tables without pairs."""
    for dtype, near in ((torch.bfloat16, 0.15), (torch.float64, 1e-4)):
        model = make_model(family).to(dtype)
        engine = Engine(model, eos=(), copy_weights=copy_weights)
        for prompt, result in zip(PROMPTS, engine.generate([(p, 0) for p in PROMPTS], TEN), strict=True):
            assert logp_error(model, prompt, result) < near


def test_without_its_fast_path_a_model_samples_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    fast = Engine(model, eos=())
    monkeypatch.setattr("groupwise.language.engine.engine.describe", lambda model: None)
    slow = Engine(model, eos=())
    for params in (
        SamplingParams(max_new_tokens=12, temperature=0.8),
        SamplingParams(max_new_tokens=12, top_k=9, top_p=0.9, repetition_penalty=1.5),
        SamplingParams(max_new_tokens=12, min_p=0.05, stop_token_ids=(7, 8, 9)),
    ):
        requests = [(PROMPTS[0], seed) for seed in range(3)]
        for one, other in zip(slow.generate(requests, params), fast.generate(requests, params), strict=True):
            assert (one.ids.tolist(), one.end) == (other.ids.tolist(), other.end)
