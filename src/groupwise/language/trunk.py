"""The layers of a plain decoder as a CPU learns them: fewer passes over memory than the model's own modules make.

- All tokens of a micro-batch, shared prompts and the rests of rows, are one matrix [tokens, width].
- A norm's weight is multiplied into the matrices behind it, and gets its gradient from theirs.
- Short rows attend by plain products and keep their probabilities, which is faster than a fused kernel that makes
  them twice.

Adapters and biases are called as the modules they are. Whether hidden states are the model's own is tried, not
believed (`sharing.reads_rightly`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from groupwise.language.engine.families import Architecture, Layer, describe
from groupwise.language.sharing import SharedPrompts, reads_rightly

SHORT = 4  # rows up to this many times a head's dimension attend by plain products


def find_trunk(model: nn.Module, decoder: nn.Module) -> Trunk | None:
    """The layers of a model in full precision on a CPU, where all in them is known here."""
    a, like = describe(model), next(model.parameters())
    if a is None or a.rotary is None or like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return None
    trunk = Trunk(a) if all(_is_plain(layer) for layer in a.layers) else None
    return trunk if trunk is not None and reads_rightly(decoder, trunk.hidden) else None


def _is_plain(layer: Layer) -> bool:
    """Whether a layer is like Llama's or Qwen's: an RMSNorm before each half, full attention, a gated MLP."""
    norms = all(hasattr(norm, "variance_epsilon") for norm in (layer.attention_norm, layer.mlp_norm))
    odd = (layer.window, layer.softcap, layer.after_attention, layer.after_mlp)
    halves = layer.gated and (len(layer.qkv), len(layer.mlp_in)) == (3, 2)
    return norms and halves and not layer.rope and all(part is None for part in odd)


@dataclass(frozen=True, slots=True)
class Trunk:
    """Embedding, layers and last norm of an architecture, over the model's live parameters."""

    architecture: Architecture

    def hidden(self, rows: SharedPrompts) -> Tensor:
        """The hidden states of the rests, [B, R, H]."""
        a = self.architecture
        assert a.rotary is not None
        x: Tensor = a.embedding(torch.cat((rows.prompts.reshape(-1), rows.rests.reshape(-1))))
        mixing = _Mixing(rows, a.head_dim, x.dtype)
        cos, sin = (table[0].unsqueeze(1) for table in a.rotary(x, mixing.positions[None]))
        sin = torch.cat((-sin[..., : a.head_dim // 2], sin[..., a.head_dim // 2 :]), -1)
        for layer in a.layers:
            assert layer.mlp_norm is not None
            q, k, v = (t.view(len(x), -1, a.head_dim) for t in _project(x, layer.attention_norm, layer.qkv))
            if layer.q_norm is not None and layer.k_norm is not None:
                q, k = layer.q_norm(q), layer.k_norm(k)
            mixed = mixing(_turn(q, cos, sin), _turn(k, cos, sin), v, layer.scaling)
            x = _add(x, mixed, layer.attention_out)
            gate, up = _project(x, layer.mlp_norm, layer.mlp_in)
            x = _add(x, layer.activation(gate) * up, layer.mlp_out)
        states: Tensor = a.final_norm(x[rows.prompts.numel() :])
        return states.view(*rows.rests.shape, -1)


class _Mixing:
    """Who attends to whom: prompts to themselves, the rest of a row to its prompt and itself."""

    def __init__(self, rows: SharedPrompts, head_dim: int, dtype: torch.dtype) -> None:
        self.shapes = rows.prompts.shape, rows.rests.shape
        self.sizes = [rows.prompts.numel(), rows.rests.numel()]
        self.head_dim = head_dim
        self.members = F.one_hot(rows.group, len(rows.prompts)).to(dtype)
        place, following = rows.place(), torch.arange(rows.rests.shape[1], device=rows.rests.device)
        behind = rows.start[:, None] + following
        self.positions = torch.cat((place.clamp(min=0).reshape(-1), behind.reshape(-1)))
        there, own = place >= 0, following <= following[:, None]
        if bool(there.all()):  # one mask for all
            there, group = there[:1], rows.group[:1] * 0
        else:
            group = rows.group
        column = torch.arange(place.shape[1], device=place.device)
        among = (column <= column[:, None]) & (there[:, None] | (column == column[:, None]))  # padding sees itself
        across = there[group][:, None].expand(-1, len(own), -1)
        self.bias_of_prompts = _bias(among, dtype)
        self.bias = _bias(torch.cat((across, own.expand(len(across), -1, -1)), 2), dtype)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """The attention of all tokens, from [tokens, heads, head_dim] to [tokens, heads · head_dim]."""
        (qp, qr), (kp, kr), (vp, vr) = (self._cut(t) for t in (q, k, v))
        kr, vr = (torch.cat((self._hand_out(p), r), 2) for p, r in ((kp, kr), (vp, vr)))
        both = attend(qp, kp, vp, self.bias_of_prompts, scaling), attend(qr, kr, vr, self.bias, scaling)
        return torch.cat(
            [mixed.transpose(1, 2).reshape(size, -1) for mixed, size in zip(both, self.sizes, strict=True)]
        )

    def _cut(self, t: Tensor) -> list[Tensor]:
        """Prompts and rests apart, [rows, heads, length, head_dim] each."""
        parts = zip(t.split(self.sizes), self.shapes, strict=True)
        return [part.view(*shape, -1, self.head_dim).transpose(1, 2) for part, shape in parts]

    def _hand_out(self, of_prompts: Tensor) -> Tensor:
        """To every row what is its prompt's. As a product, because a CPU is slow at the gradient of an index."""
        return (self.members @ of_prompts.flatten(1)).view(-1, *of_prompts.shape[1:])


def _bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may look and -inf elsewhere, [rows, 1, queries, keys]."""
    zeros = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return zeros.masked_fill_(~seen, float("-inf")).unsqueeze(1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [tokens, heads, head_dim]; `sin` has rotate-half's sign."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _project(x: Tensor, norm: Any, modules: Sequence[nn.Module]) -> Sequence[Tensor]:
    """What linear modules make of the normalised x."""
    if all(_is_matrix(module) for module in modules):
        made: Sequence[Tensor] = _NormedProducts.apply(  # type: ignore[no-untyped-call]
            x, norm.weight, norm.variance_epsilon, *(module.weight for module in modules)
        )
        return made
    normalised = norm(x)
    return [module(normalised) for module in modules]


def _add(x: Tensor, change: Tensor, module: Any) -> Tensor:
    if not _is_matrix(module):
        return x + module(change)
    added: Tensor = _AddedProduct.apply(x, change, module.weight)  # type: ignore[no-untyped-call]
    return added


def _is_matrix(module: nn.Module) -> bool:
    return type(module) is nn.Linear and module.bias is None


class _NormedProducts(torch.autograd.Function):
    """x̂ (W · w)ᵀ for several matrices W, with x̂ = x / rms(x) and the norm's weight w.

    With g the gradient of the products, ∂x = (∂x̂ − x̂ mean(∂x̂ · x̂)) / rms(x), ∂W = (gᵀ x̂) · w and ∂w = Σ (gᵀ x̂) · W.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, *matrices: Tensor) -> tuple[Tensor, ...]:
        width = x.shape[-1]
        size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        size = torch.hypot(size, size.new_tensor((width * eps) ** 0.5)).mul_(width**-0.5)
        normalised = x / size
        ctx.save_for_backward(normalised, size, weight, *matrices)
        return tuple(_product(normalised, (matrix * weight).t()) for matrix in matrices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        normalised, size, weight, *matrices = ctx.saved_tensors
        dx, d_weight = _product(gradients[0], matrices[0] * weight), torch.zeros_like(weight)
        d_matrices: list[Tensor | None] = [None] * len(matrices)
        for place, (gradient, matrix) in enumerate(zip(gradients, matrices, strict=True)):
            if place:
                dx += _product(gradient, matrix * weight)
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[3 + place]:
                d_matrix = gradient.t() @ normalised
                d_weight += (d_matrix * matrix).sum(0)
                d_matrices[place] = d_matrix.mul_(weight)
        along = torch.linalg.vecdot(dx, normalised).unsqueeze(-1).div_(-dx.shape[-1])
        return dx.addcmul_(normalised, along).div_(size), d_weight, None, *d_matrices


class _AddedProduct(torch.autograd.Function):
    """x + change Wᵀ."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(change, matrix)
        return _product(change, matrix.t()).add_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        change, matrix = ctx.saved_tensors
        d_matrix = gradient.t() @ change if ctx.needs_input_grad[2] else None
        return gradient, _product(gradient, matrix), d_matrix


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scaling: float) -> Tensor:
    """Attention of [rows, heads, length, head_dim]; several heads of q may share one of k and v."""
    if k.shape[2] <= SHORT * k.shape[3]:
        mixed: Tensor = _PlainAttention.apply(q, k, v, bias, scaling)  # type: ignore[no-untyped-call]
        return mixed
    return F.scaled_dot_product_attention(q, k, v, bias, scale=scaling, enable_gqa=q.shape[1] != k.shape[1])


class _PlainAttention(torch.autograd.Function):
    """softmax(scaling q kᵀ + bias) v, with the probabilities kept."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scaling: float) -> Tensor:
        rows, heads, length, size = q.shape
        scaled = (q * scaling).reshape(rows, k.shape[1], -1, size)
        scores = _product(scaled, k.mT)
        scores.view(rows, heads, length, -1).add_(bias)
        probabilities = scores.softmax(-1)
        ctx.save_for_backward(scaled, k, v, probabilities)
        ctx.scaling = scaling
        return _product(probabilities, v).view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scaled, k, v, probabilities = ctx.saved_tensors
        rows, heads, length, size = gradient.shape
        gradient = gradient.reshape(scaled.shape)
        d_probabilities = _product(gradient, v.mT)
        d_scores = torch._softmax_backward_data(d_probabilities, probabilities, -1, v.dtype)
        dq = _product(d_scores, k).mul_(ctx.scaling).view(rows, heads, length, size)
        return dq, _product(d_scores.mT, scaled), _product(probabilities.mT, gradient), None, None


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right. On one thread NumPy's BLAS is up to twice as fast for stacks of small matrices, and a few percent
    for large ones, unless both are long and thin, as for the gradient of a weight."""
    if torch.get_num_threads() > 1:
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))
