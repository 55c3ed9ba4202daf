"""The layers of a plain decoder on packed tokens, with gradients written by hand: few kernels, few saved numbers.

A layer's input is a pair whose sum is the residual stream: what came before, and what the MLP before it added. So
that sum is made by the kernel that also normalises it.

    total = x + change                       q, k, v = heads(W_qkv norm(total))
    middle = total + W_o attend(q, k, v)     change' = W_down gate(W_up norm(middle))        → (middle, change')

For the backward pass a layer keeps `total`, the outputs of W_qkv, of attention and of W_up, and `middle`; the rest is
computed again by kernels that read those anyway. A layer that keeps less keeps `total` only and runs again: all of
them where checkpointing was asked for, otherwise as many as memory asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from groupwise.language.engine.families import Architecture, DecoderLayer
from groupwise.language.fused import row_kernels as kernels
from groupwise.language.fused.attention import attend, attend_backward
from groupwise.language.fused.packing import PackedRows
from groupwise.language.fused.projection import Part, Projection, apply, read_module
from groupwise.language.fused.row_kernels import Turns

# Of the memory that is free, what activations may take: the rest is for gradients and for what layers need at once.
SHARE_FOR_ACTIVATIONS = 0.7


@dataclass(frozen=True, slots=True)
class Pass:
    """What all layers need to know of a pass over packed tokens: rows, rotary angles, and the type of products."""

    rows: PackedRows
    turns: Turns
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Kept:
    """What a layer keeps for its backward pass, besides its input."""

    size_in: Tensor
    qkv: Tensor
    attended: tuple[Tensor, ...]
    middle: Tensor
    size_middle: Tensor
    joined: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.size_in, self.qkv, self.middle, self.size_middle, self.joined, *self.attended

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Kept:
        size_in, qkv, middle, size_middle, joined, *attended = tensors
        return cls(size_in, qkv, tuple(attended), middle, size_middle, joined)


class FusedLayer:
    """One decoder layer over the model's live tensors."""

    def __init__(self, a: Architecture, layer: DecoderLayer, projections: Sequence[Projection]) -> None:
        assert layer.mlp_norm is not None
        self.heads, self.kv_heads, self.head_dim, self.scaling = a.heads, a.kv_heads, a.head_dim, layer.scaling
        self.norms: tuple[Any, Any] = (layer.attention_norm, layer.mlp_norm)
        self.head_norms = (layer.q_norm, layer.k_norm)
        self.qkv, self.attention_out, self.mlp_in, self.mlp_out = projections
        own: list[Any] = [norm.weight for norm in (*self.norms, *self.head_norms) if norm is not None]
        self.tensors: list[Tensor] = [*own, *(t for p in projections for t in p.tensors)]

    @property
    def numbers_kept(self) -> int:
        """How many numbers per token the layer keeps besides its input, if it does not run again."""
        width = len(self.norms[0].weight)
        return 2 * width + sum(self.qkv.outputs) + self.heads * self.head_dim + sum(self.mlp_in.outputs)

    def forward(self, x: Tensor, change: Tensor | None, p: Pass) -> tuple[Tensor, Tensor, Kept]:
        """(total, change', kept); `kept.middle` is the first half of the output."""
        total, kept, _ = self.run(x, change, p)
        return total, apply(kernels.gate(kept.joined), self.mlp_out.matrices(p.dtype)), kept

    def run(
        self, x: Tensor, change: Tensor | None, p: Pass, repeat: int = 1
    ) -> tuple[Tensor, Kept, tuple[Tensor, ...]]:
        """(total, kept, queries, keys and values): all but the MLP's second half."""
        total, normed, size_in = kernels.add_and_norm(x, change, *_norm(self.norms[0]), p.dtype)
        qkv = apply(normed, self.qkv.matrices(p.dtype))
        q, k, v = self._turned(qkv, p, repeat)
        attended = attend(q, k, v, p.rows.sequences, self.scaling)
        mixed = apply(attended[0].flatten(1), self.attention_out.matrices(p.dtype))
        middle, normed, size_middle = kernels.add_and_norm(total, mixed, *_norm(self.norms[1]), p.dtype)
        joined = apply(normed, self.mlp_in.matrices(p.dtype))
        return total, Kept(size_in, qkv, attended, middle, size_middle, joined), (q, k, v)

    def backward(
        self, g_middle: Tensor, g_change: Tensor, total: Tensor, kept: Kept | None, p: Pass
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The gradient of the layer's input, and those of `tensors`. Without what was kept, the layer runs again."""
        turned: tuple[Tensor, ...] = ()
        if kept is None:
            _, kept, turned = self.run(total, None, p, self.heads // self.kv_heads)
        m = self.mlp_out.matrices(p.dtype)
        d_joined, gated = kernels.gate_backward(self.mlp_out.input_gradient(g_change, m), kept.joined)
        for_mlp_out = self.mlp_out.weight_gradients(g_change, gated, m)
        del gated
        m = self.mlp_in.matrices(p.dtype)
        d_middle, normed, d_norm_2 = kernels.norm_backward(
            self.mlp_in.input_gradient(d_joined, m), kept.middle, self.norms[1].weight, kept.size_middle, g_middle
        )
        for_mlp_in = self.mlp_in.weight_gradients(d_joined, normed, m)
        del d_joined, normed
        m, d_mixed = self.attention_out.matrices(p.dtype), d_middle.to(p.dtype)
        for_out = self.attention_out.weight_gradients(d_mixed, kept.attended[0].flatten(1), m)
        d_attended = self.attention_out.input_gradient(d_mixed, m).view(kept.attended[0].shape)
        q, k, v = turned or self._turned(kept.qkv, p, self.heads // self.kv_heads)
        gradients = attend_backward(d_attended, q, k, v, kept.attended, p.rows.sequences, self.scaling)
        del q, k, v, turned, d_attended, d_mixed
        d_qkv, d_head_norms = self._turned_back(gradients, kept.qkv, p)
        del gradients
        m = self.qkv.matrices(p.dtype)
        d_total, normed, d_norm_1 = kernels.norm_backward(
            self.qkv.input_gradient(d_qkv, m), total, self.norms[0].weight, kept.size_in, d_middle
        )
        for_qkv = self.qkv.weight_gradients(d_qkv, normed, m)
        found = [d_norm_1, d_norm_2, *(g for g in d_head_norms if g is not None)]
        of_norms = [g.to(t.dtype) if t.requires_grad else None for g, t in zip(found, self.tensors, strict=False)]
        return d_total, [*of_norms, *for_qkv, *for_out, *for_mlp_in, *for_mlp_out]

    def _turned(self, qkv: Tensor, p: Pass, repeat: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of every token, and keys and values in the order of the sequences.

        For the gradient, keys and values are repeated for each query head that shares them: attention adds up the
        gradients of shared heads in a kernel of its own, and `heads_backward` does it on the way.
        """
        q, k, v = self._columns(qkv)
        return (
            kernels.heads(q, self.heads, p.turns, *_norm(self.head_norms[0]), gathered=False),
            kernels.heads(k, self.kv_heads, p.turns, *_norm(self.head_norms[1]), repeat=repeat),
            kernels.heads(v, self.kv_heads, p.turns, None, 0.0, turned=False, repeat=repeat),
        )

    def _turned_back(
        self, gradients: tuple[Tensor, Tensor, Tensor], qkv: Tensor, p: Pass
    ) -> tuple[Tensor, list[Tensor | None]]:
        d_qkv, repeat = torch.empty_like(qkv), self.heads // self.kv_heads
        pieces = zip(gradients, self._columns(qkv), self._columns(d_qkv), strict=True)
        (dq, q, to_q), (dk, k, to_k), (dv, v, to_v) = pieces
        found = [
            kernels.heads_backward(dq, q, to_q, p.turns, *_norm(self.head_norms[0]), gathered=False),
            kernels.heads_backward(dk, k, to_k, p.turns, *_norm(self.head_norms[1]), repeat=repeat),
            kernels.heads_backward(dv, v, to_v, p.turns, None, 0.0, turned=False, repeat=repeat),
        ]
        return d_qkv, found

    def _columns(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv.split([n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)], 1)
        return q, k, v


def _norm(module: Any) -> tuple[Any, float]:
    return (None, 0.0) if module is None else (module.weight.detach(), module.variance_epsilon)


class _Layer(torch.autograd.Function):
    """A layer of (x, change) → (middle, change'). Its tensors are named so that their gradients find them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, change: Tensor | None, layer: FusedLayer, p: Pass, keeps: bool, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        total, out, kept = layer.forward(x, change, p)
        ctx.save_for_backward(total, *(kept.tensors if keeps else ()))
        ctx.layer, ctx.p, ctx.is_first = layer, p, change is None
        return kept.middle, out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_middle: Tensor, g_change: Tensor) -> tuple[Any, ...]:
        total, *tensors = ctx.saved_tensors
        kept = Kept.of(tensors) if tensors else None
        d_total, found = ctx.layer.backward(g_middle.contiguous(), g_change.contiguous(), total, kept, ctx.p)
        # Both halves of the sum have its gradient.
        d_change = None if ctx.is_first else d_total.to(ctx.p.dtype)
        return d_total, d_change, None, None, None, *found


class _LastNorm(torch.autograd.Function):
    """The norm of x + change, of the wanted tokens only."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, change: Tensor, weight: Tensor, eps: float, wanted: Tensor, dtype: torch.dtype
    ) -> Tensor:
        total, normed, size = kernels.add_and_norm(x[wanted], change[wanted], weight, eps, dtype)
        ctx.save_for_backward(total, weight, size, wanted)
        ctx.tokens, ctx.change_dtype = len(x), change.dtype
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        total, weight, size, wanted = ctx.saved_tensors
        found, _, d_weight = kernels.norm_backward(gradient.contiguous(), total, weight, size, None)
        # Every token is wanted once at most.
        dx = found.new_zeros((ctx.tokens, found.shape[1])).index_copy_(0, wanted, found)
        learns = ctx.needs_input_grad[2]
        return dx, dx.to(ctx.change_dtype), d_weight.to(weight.dtype) if learns else None, None, None, None


@dataclass(frozen=True, slots=True)
class FusedLayers:
    """Embedding, layers and last norm of an architecture, over the model's live parameters."""

    architecture: Architecture
    layers: tuple[FusedLayer, ...]

    def hidden(self, rows: PackedRows, *, keeps: bool = True) -> Tensor:
        """The hidden states [N, width] before the wanted actions. keeps: do not run layers again, if memory allows."""
        a = self.architecture
        assert a.rotary is not None
        x: Tensor = a.embedding(rows.ids)
        with torch.no_grad():
            cos, sin = (t[0, :, : a.head_dim // 2].contiguous() for t in a.rotary(x, rows.positions[None]))
        p = Pass(rows, Turns(cos, sin, rows.source, rows.first_copy, rows.copies), _product_type(x))
        again = self._run_again(x, p) if keeps else len(self.layers)
        change: Tensor | None = None
        with torch.autocast(x.device.type, enabled=False):
            for number, layer in enumerate(self.layers):
                x, change = _Layer.apply(x, change, layer, p, number >= again, *layer.tensors)  # type: ignore[no-untyped-call]
            norm: Any = a.final_norm
            states: Tensor = _LastNorm.apply(  # type: ignore[no-untyped-call]
                x, change, norm.weight, norm.variance_epsilon, rows.wanted, p.dtype
            )
        return states

    def _run_again(self, x: Tensor, p: Pass) -> int:
        """How many layers keep only their input, because memory would not hold what all of them keep."""
        if not torch.is_grad_enabled() or not x.is_cuda:
            return 0
        layer = len(x) * self.layers[0].numbers_kept * p.dtype.itemsize
        inputs = len(self.layers) * x.nbytes
        room = SHARE_FOR_ACTIVATIONS * free_bytes(x.device) - inputs
        return min(len(self.layers), max(0, len(self.layers) - int(room // layer)))


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that a tensor could have: what nobody holds, and what torch holds without using it."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _product_type(x: Tensor) -> torch.dtype:
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def fuse(a: Architecture) -> FusedLayers | str:
    """The fused layers of an architecture, or why it has none, to follow "because"."""
    if a.rotary is None or a.positions is not None or a.head_dim % 8 or a.head_dim > 256:
        return f"heads of {a.head_dim} dimensions with this position encoding are not known to the kernels"
    layers = []
    for layer in a.layers:
        if (why := _unusual(layer)) is not None:
            return why
        groups = (layer.qkv, (layer.attention_out,), layer.mlp_in, (layer.mlp_out,))
        parts = [[read_module(module) for module in group] for group in groups]
        known = [[part for part in group if part is not None] for group in parts]
        if known != parts:
            return "a layer has a linear module or an adapter of another kind"
        layers.append(FusedLayer(a, layer, [Projection(group) for group in known]))
    if not _is_rms_norm(a.final_norm):
        return f"its norm is a {type(a.final_norm).__name__}"
    types = {tensor.dtype for layer in layers for part in _parts(layer) for tensor in (part.weight,)}
    if len(types) > 1 or not types <= {torch.float32, torch.bfloat16, torch.float16}:
        return f"its matrices are of type {', '.join(sorted(map(str, types)))}"
    return FusedLayers(a, tuple(layers))


def _parts(layer: FusedLayer) -> list[Part]:
    return [part for p in (layer.qkv, layer.attention_out, layer.mlp_in, layer.mlp_out) for part in p.parts]


def _unusual(layer: DecoderLayer) -> str | None:
    """What of a layer is not as in Llama or Qwen: an RMSNorm before each half, full attention, a gated MLP."""
    norms = (layer.attention_norm, layer.mlp_norm, *(n for n in (layer.q_norm, layer.k_norm) if n is not None))
    strange = [norm for norm in norms if not _is_rms_norm(norm)]
    if strange:
        return f"its norm is a {type(strange[0]).__name__}"
    if layer.window is not None or layer.softcap is not None or layer.rope:
        return "its attention is local or capped"
    if (
        layer.after_attention is not None
        or layer.after_mlp is not None
        or (layer.q_norm is None) != (layer.k_norm is None)
    ):
        return "it has norms in other places"
    if not layer.gated or (len(layer.qkv), len(layer.mlp_in)) != (3, 2) or not _is_silu(layer.activation):
        return "its MLP or its projections are of another kind"
    return None


def _is_rms_norm(norm: Any) -> bool:
    return type(norm).__name__.endswith("RMSNorm") and hasattr(norm, "variance_epsilon")


def _is_silu(activation: Any) -> bool:
    few = torch.linspace(-3, 3, 7)
    return isinstance(activation, nn.Module) and bool(torch.equal(activation(few), F.silu(few)))
