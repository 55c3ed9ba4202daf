"""Which modules of a Hugging Face model do what, family by family.

`describe` turns a model into one `Architecture`: the same parts for every family, with the differences as data. For a
model it does not know it returns None, and the engine runs the model's own forward pass (`model_batcher`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]
# Variants that change the mathematics and are not used to generate are left to the model's own forward pass.
UNUSUAL = ("use_bidirectional_attention", "add_cross_attention")


@dataclass(frozen=True)
class DecoderLayer:
    """One decoder layer. The outputs of the modules in `qkv`, and in `mlp_in`, stand side by side."""

    attention_norm: nn.Module
    qkv: tuple[nn.Module, ...]
    attention_out: nn.Module
    mlp_in: tuple[nn.Module, ...]
    mlp_out: nn.Module
    activation: Activation
    scaling: float
    gated: bool = True
    # Without it, the MLP reads what attention read (Phi).
    mlp_norm: nn.Module | None = None
    q_norm: nn.Module | None = None
    k_norm: nn.Module | None = None
    after_attention: nn.Module | None = None
    after_mlp: nn.Module | None = None
    window: int | None = None
    softcap: float | None = None
    # The layer type whose rotary table this layer uses, if the model has several.
    rope: str = ""


@dataclass(frozen=True)
class Architecture:
    """A complete decoder: embedding, layers, last norm, head, and its sizes."""

    name: str
    embedding: nn.Module
    layers: tuple[DecoderLayer, ...]
    final_norm: nn.Module
    head: nn.Module
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    rotary: nn.Module | None = None
    positions: nn.Module | None = None
    final_softcap: float | None = None

    @property
    def shape(self) -> dict[str, int]:
        """The sizes that the cache depends on."""
        sizes = {"layers": len(self.layers), "kv_heads": self.kv_heads}
        return {**sizes, "head_dim": self.head_dim, "vocabulary": self.vocabulary}


def describe(model: nn.Module) -> Architecture | None:
    """The architecture of a model, or None if its family has no description here."""
    core = unwrap(model)
    config = getattr(core, "config", None)
    kind = getattr(config, "model_type", None)
    # Quantised layers are not the matrices they stand for: some round what they read as well.
    if getattr(core, "is_quantized", False):
        return None
    # Models without `lm_head` are not for generating: classifiers, reward models, bare decoders.
    if kind not in FAMILIES or not hasattr(core, "lm_head") or any(getattr(config, name, False) for name in UNUSUAL):
        return None
    return FAMILIES[kind](core, config)


def unwrap(model: nn.Module) -> nn.Module:
    """The Hugging Face model inside a PEFT wrapper; its layers stay the wrapper's (LoRA) layers."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def _architecture(core: Any, config: Any, layers: Sequence[DecoderLayer], **parts: Any) -> Architecture:
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return Architecture(
        name=config.model_type,
        layers=tuple(layers),
        head=core.lm_head,
        heads=heads,
        kv_heads=heads if config.model_type == "gpt2" else config.num_key_value_heads or heads,
        head_dim=head_dim,
        vocabulary=config.vocab_size,
        **parts,
    )


def _llama(core: Any, config: Any) -> Architecture:
    """Llama, Mistral, Qwen2 and Qwen3: pre-norm, rotary, gated MLP; Qwen3 normalises queries and keys.

    Gemma 1 too: its modules know that norms scale by 1 + weight, and that the embedding is scaled.
    """
    layers = [
        DecoderLayer(
            attention_norm=layer.input_layernorm,
            mlp_norm=layer.post_attention_layernorm,
            **_attention(layer.self_attn, config),
            **_gated(layer.mlp),
        )
        for layer in core.model.layers
    ]
    return _rotary_model(core, config, layers)


def _gemma_sandwich(core: Any, config: Any) -> Architecture:
    """Gemma 2 and 3: a norm before and after each half; soft caps in 2, two rotary tables in 3.

    With "sdpa" attention, Transformers 5.17 leaves out Gemma 2's cap on scores; then so does the engine, because its
    log-probabilities must be those of the model that is trained.
    """
    two = config.model_type == "gemma2"
    capped = two and config._attn_implementation != "sdpa"
    layers = [
        DecoderLayer(
            attention_norm=layer.input_layernorm,
            after_attention=layer.post_attention_layernorm,
            mlp_norm=layer.pre_feedforward_layernorm,
            after_mlp=layer.post_feedforward_layernorm,
            softcap=config.attn_logit_softcapping if capped else None,
            rope="" if two else layer.self_attn.layer_type,
            **_attention(layer.self_attn, config),
            **_gated(layer.mlp),
        )
        for layer in core.model.layers
    ]
    return _rotary_model(core, config, layers, final_softcap=getattr(config, "final_logit_softcapping", None))


def _phi3(core: Any, config: Any) -> Architecture:
    """Phi-3 and Phi-4: Llama with its projections already joined, possibly with partial rotary."""
    layers = [
        DecoderLayer(
            attention_norm=layer.input_layernorm,
            mlp_norm=layer.post_attention_layernorm,
            qkv=(layer.self_attn.qkv_proj,),
            attention_out=layer.self_attn.o_proj,
            scaling=layer.self_attn.scaling,
            window=config.sliding_window,
            mlp_in=(layer.mlp.gate_up_proj,),
            mlp_out=layer.mlp.down_proj,
            activation=layer.mlp.activation_fn,
        )
        for layer in core.model.layers
    ]
    return _rotary_model(core, config, layers)


def _phi(core: Any, config: Any) -> Architecture:
    """Phi-1 and 2: attention and MLP side by side on one LayerNorm, partial rotary, biases everywhere."""
    layers = [
        DecoderLayer(
            attention_norm=layer.input_layernorm,
            qkv=(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
            q_norm=getattr(layer.self_attn, "q_layernorm", None),
            k_norm=getattr(layer.self_attn, "k_layernorm", None),
            attention_out=layer.self_attn.dense,
            scaling=layer.self_attn.scaling,
            mlp_in=(layer.mlp.fc1,),
            mlp_out=layer.mlp.fc2,
            activation=layer.mlp.activation_fn,
            gated=False,
        )
        for layer in core.model.layers
    ]
    return _rotary_model(core, config, layers, norm="final_layernorm")


def _gpt2(core: Any, config: Any) -> Architecture:
    """GPT-2: LayerNorm, learned positions, a plain MLP, transposed weights."""
    layers = [
        DecoderLayer(
            attention_norm=block.ln_1,
            mlp_norm=block.ln_2,
            qkv=(block.attn.c_attn,),
            attention_out=block.attn.c_proj,
            scaling=block.attn.scaling,
            mlp_in=(block.mlp.c_fc,),
            mlp_out=block.mlp.c_proj,
            activation=block.mlp.act,
            gated=False,
        )
        for block in core.transformer.h
    ]
    body = core.transformer
    return _architecture(core, config, layers, embedding=body.wte, positions=body.wpe, final_norm=body.ln_f)


def _rotary_model(
    core: Any, config: Any, layers: Sequence[DecoderLayer], norm: str = "norm", **parts: Any
) -> Architecture:
    body = core.model
    ends = {"embedding": body.embed_tokens, "final_norm": getattr(body, norm), "rotary": body.rotary_emb}
    return _architecture(core, config, layers, **ends, **parts)


def _attention(attention: Any, config: Any) -> dict[str, Any]:
    window = attention.sliding_window if hasattr(attention, "sliding_window") else None
    # Mistral keeps its window in the configuration; newer families keep one per layer.
    if config.model_type == "mistral":
        window = config.sliding_window
    return {
        "qkv": (attention.q_proj, attention.k_proj, attention.v_proj),
        "attention_out": attention.o_proj,
        "q_norm": getattr(attention, "q_norm", None),
        "k_norm": getattr(attention, "k_norm", None),
        "scaling": attention.scaling,
        "window": window,
    }


def _gated(mlp: Any) -> dict[str, Any]:
    return {"mlp_in": (mlp.gate_proj, mlp.up_proj), "mlp_out": mlp.down_proj, "activation": mlp.act_fn}


FAMILIES: dict[str, Callable[[Any, Any], Architecture]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma"), _llama),
    **dict.fromkeys(("gemma2", "gemma3_text"), _gemma_sandwich),
    "phi3": _phi3,
    "phi": _phi,
    "gpt2": _gpt2,
}
