"""Every family against Hugging Face's own forward pass and `generate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.language.engine import Engine, Sampled, SamplingParams

from .conftest import FAMILIES, VOCABULARY, make_model

PROMPTS = [np.random.default_rng(i).integers(0, VOCABULARY, size).tolist() for i, size in enumerate((12, 12, 5, 1))]


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
    params = SamplingParams(max_new_tokens=20, temperature=0.7)
    requests = [(p, seed) for p in PROMPTS for seed in (1, 2)]
    results = engine.generate(requests, params)
    for (prompt, _), result in zip(requests, results, strict=True):
        assert len(result) == 20
        assert logp_error(model, prompt, result, temperature=0.7) < 1e-4


def test_an_unknown_architecture_falls_back_to_generate(caplog: pytest.LogCaptureFixture) -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPTNeoXForCausalLM(config)  # in training mode, with dropout off only while it generates
    engine = Engine(model, eos=())
    assert "no fast path for gpt_neox models" in caplog.text
    prompt = PROMPTS[0]
    seen: list[int] = []
    future = engine.submit(prompt, SamplingParams(max_new_tokens=9), 3, on_token=lambda token, _: seen.append(token))
    again, greedy = engine.generate([(prompt, 3)], SamplingParams(max_new_tokens=9)), SamplingParams(temperature=0)
    result = future.result()
    assert result.ids.tolist() == again[0].ids.tolist() == seen
    assert model.training
    model.eval()
    assert logp_error(model, prompt, result) < 1e-4
    assert result.end == "length"
    assert engine.generate([(prompt, 0)], greedy)[0].end == "context"


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


def test_half_precision_stays_close() -> None:
    model = make_model("qwen3").to(torch.bfloat16)
    engine = Engine(model, eos=())
    result = engine.generate([(PROMPTS[0], 0)], SamplingParams(max_new_tokens=16))[0]
    assert logp_error(model, PROMPTS[0], result) < 0.1
