"""Small random models of every family, and a tokenizer of characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 97
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
GEMMA = {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 16}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
PARTIAL = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    # A norm's epsilon that matters, biases everywhere, and keys that all heads share.
    "llama-biases": (
        "LlamaConfig",
        {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 0.3, "num_key_value_heads": 1},
    ),
    "llama-scaled-rope": ("LlamaConfig", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": 10}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma2-last-cap": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": None, "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "layer_types": MIXED}),
    "phi3": ("Phi3Config", {"sliding_window": 11}),
    "phi3-partial-rope": ("Phi3Config", {"rope_parameters": PARTIAL}),
    "phi": ("PhiConfig", {"layer_norm_eps": 0.3}),
    "phi-qk-norm": ("PhiConfig", {"qk_layernorm": True}),
    "gpt2": ("GPT2Config", {}),
}


def make_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model whose every parameter matters: norms and biases are moved away from 1 and 0."""
    name, extra = FAMILIES[family]
    config = getattr(transformers, name)(**{**BASE, **extra, **changes})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("llama")


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """Characters, some pairs of them, and single bytes of a two-byte letter."""
    pieces = [chr(i) for i in range(32, 32 + 90)] + ["ab", "cd", "END", "\n", "<0xC3>", "<0xA9>", "xyz"]
    assert len(pieces) == VOCABULARY
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=" "))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
