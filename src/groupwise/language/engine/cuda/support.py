"""Whether a model can be decoded on pages with Triton kernels here; if not, the sentence that says why."""

from importlib.util import find_spec

import torch
from torch import nn
from torch.nn import functional as F

from groupwise.language.engine.cuda.live_weights import merged_bytes
from groupwise.language.engine.families import Architecture, DecoderLayer
from groupwise.language.engine.weights import active_module

# Ampere: earlier GPUs have no bfloat16 matrix products.
LEAST_CAPABILITY = (8, 0)
MOST_HEAD = 256
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Merged adapters may take this share of the memory that is free.
MERGED_SHARE = 0.25


def reason_against(a: Architecture, length: int) -> str | None:
    """Why this model cannot be decoded on pages on its present device; None if it can."""
    like = next(a.embedding.parameters())
    return _of_the_machine(like.device) or _of_the_model(a, like.dtype, length) or _of_memory(a, like.device)


def _of_the_machine(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda":
        found = torch.cuda.get_device_capability(device)
        if found < LEAST_CAPABILITY:
            have, need = (f"{major}.{minor}" for major, minor in (found, LEAST_CAPABILITY))
            return f"the GPU has compute capability {have}, and the kernels need {need}"
    return None


def _of_the_model(a: Architecture, dtype: torch.dtype, length: int) -> str | None:
    embedding = active_module(a.embedding)
    if a.rotary is None or a.positions is not None:
        return f"{a.name} models have no rotary positions"
    if type(embedding) is not nn.Embedding or embedding is not a.embedding or embedding.max_norm is not None:
        return f"the embedding is a {type(a.embedding).__name__}"
    if dtype not in DTYPES:
        return f"the weights are {dtype}"
    if a.final_softcap is not None:
        return "its logits are capped"
    if a.head_dim > MOST_HEAD or a.head_dim % 2 or a.heads % a.kv_heads:
        return f"{a.heads} heads of {a.head_dim} on {a.kv_heads} key heads are not a shape of the kernels"
    if len({layer.rope for layer in a.layers}) > 1:
        return "it has several rotary tables"
    if (norm := _other_norm(a.final_norm)) is not None:
        return norm
    return next((reason for layer in a.layers if (reason := _of_a_layer(layer, length)) is not None), None)


def _of_a_layer(layer: DecoderLayer, length: int) -> str | None:
    if not layer.gated or layer.mlp_norm is None or layer.after_attention is not None or layer.after_mlp is not None:
        return "its layers are built in another way"
    if not _is_silu(layer.activation):
        return f"its activation is {type(layer.activation).__name__}"
    if layer.softcap is not None:
        return "its attention scores are capped"
    if layer.window is not None and layer.window < length:
        return f"it attends to a window of {layer.window} tokens"
    norms = (layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm)
    return next((reason for norm in norms if norm is not None and (reason := _other_norm(norm)) is not None), None)


def _other_norm(module: nn.Module) -> str | None:
    inner = active_module(module)
    name = type(inner).__name__
    if isinstance(inner, nn.LayerNorm) or "Gemma" in name or not ("RMSNorm" in name or "RmsNorm" in name):
        return f"its norms are {name}"
    return None


def _is_silu(activation: object) -> bool:
    if isinstance(activation, nn.SiLU) or activation is F.silu:
        return True
    return type(activation).__name__ in ("SiLUActivation", "SiLU")


def _of_memory(a: Architecture, device: torch.device) -> str | None:
    groups = [g for layer in a.layers for g in (layer.qkv, (layer.attention_out,), layer.mlp_in, (layer.mlp_out,))]
    needed = merged_bytes([*groups, (a.head,)])
    if device.type != "cuda" or not needed:
        return None
    free = torch.cuda.mem_get_info(device)[0]
    if needed > MERGED_SHARE * free:
        return f"weights merged with the adapter need {needed / 2**30:.1f} of {free / 2**30:.1f} GiB that are free"
    return None
