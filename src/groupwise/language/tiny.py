"""`model_name="tiny"`: a small transformer made from scratch, for learning offline on a CPU.

Four layers of width 128 in the Llama shape with tied embeddings, about 0.9 million parameters. Its weights
depend on the seed alone: not on the global random state, which is neither read nor moved, and not on how a
version of Transformers happens to initialise.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from groupwise.language.extras import extra
from groupwise.language.tokenizer import character_tokenizer

LAYERS, WIDTH, HEADS, CONTEXT = 4, 128, 4, 2048


def tiny_model(
    seed: int = 0, *, layers: int = LAYERS, width: int = WIDTH, kv_heads: int = HEADS, tokenizer: Any = None
) -> tuple[Any, Any]:
    """A fresh model (in evaluation mode, float32, on the CPU) and its tokenizer: by characters unless given."""
    transformers = extra("transformers")
    tokenizer = tokenizer or character_tokenizer(CONTEXT)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=kv_heads, max_position_embeddings=CONTEXT,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        model = transformers.LlamaForCausalLM(config)
    _initialise(model, layers, torch.Generator().manual_seed(seed))
    return model.float().eval(), tokenizer


@torch.no_grad()
def _initialise(model: Any, layers: int, generator: torch.Generator) -> None:
    """Normal weights of variance 1/width; what writes to the residual stream is smaller the deeper the model.

    The embeddings too: at a fifth of that the model needs up to four times as many steps before it learns to add.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        std = 1 / math.sqrt(parameter.shape[1])
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= math.sqrt(2 * layers)
        parameter.normal_(0.0, std, generator=generator)
