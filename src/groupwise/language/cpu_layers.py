"""The layers of a plain decoder, rewritten for training on a CPU: fewer passes over memory than the model's own.

- All tokens of a micro-batch, shared prompts and the rests of rows, are one matrix [tokens, width].
- A norm's weight is multiplied into the matrices behind it, and gets its gradient from theirs.
- The two dimensions that rotary embedding turns together stand side by side, so that turning is one complex product.
  Scores do not change: queries and keys are reordered alike.
- In the last layer, prompts need keys and values only.
- Short rows attend by plain products and keep their probabilities, which is faster than a fused kernel that computes
  them twice.

Adapters and biases are called as the modules they are. Whether the hidden states equal the model's own is tried
before use, not assumed (`batch_layout.reads_rightly`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from groupwise.language.batch_layout import SharedPrompts, reads_rightly
from groupwise.language.engine.families import Architecture, DecoderLayer, describe

# Rows up to this many times a head's dimension attend by plain products.
SHORT = 4


class SharedAttention:
    """Who attends to whom: prompts to themselves, the rest of a row to its prompt and itself.

    All tokens of prompts [G, P] and rests [B, R] are one axis, G·P of prompts first, then B·R of rests.
    """

    def __init__(self, rows: SharedPrompts, head_dim: int, dtype: torch.dtype) -> None:
        self.shapes = rows.prompts.shape, rows.rests.shape
        self.sizes = [rows.prompts.numel(), rows.rests.numel()]
        self.head_dim = head_dim
        # [B, G], 1 where the row continues the prompt.
        self.members = F.one_hot(rows.group, len(rows.prompts)).to(dtype)
        place, following = rows.place(), torch.arange(rows.rests.shape[1], device=rows.rests.device)
        behind = rows.start[:, None] + following
        self.positions = torch.cat((place.clamp(min=0).reshape(-1), behind.reshape(-1)))
        there, own = place >= 0, following <= following[:, None]
        # Without padding, one mask serves all rows.
        if bool(there.all()):
            there, group = there[:1], rows.group[:1] * 0
        else:
            group = rows.group
        column = torch.arange(place.shape[1], device=place.device)
        # Padding attends to itself: a query without any key would give NaN.
        among = (column <= column[:, None]) & (there[:, None] | (column == column[:, None]))
        across = there[group][:, None].expand(-1, len(own), -1)
        self.bias_of_prompts = _bias(among, dtype)
        self.bias = _bias(torch.cat((across, own.expand(len(across), -1, -1)), 2), dtype)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The attention of all tokens, or of the rests only if q has no others. Scores are not scaled: q comes scaled.

        From [tokens, heads, head_dim] to [tokens, heads · head_dim]; several heads of q may share one of k and v.
        """
        if self.bias.shape[3] <= SHORT * self.head_dim:
            mixed: Tensor = _ShortAttention.apply(q, k, v, self)  # type: ignore[no-untyped-call]
            return mixed
        parts = [
            F.scaled_dot_product_attention(*qkv, bias, scale=1.0, enable_gqa=q.shape[1] != k.shape[1])
            for qkv, bias in self.parts(q, k, v)
        ]
        return torch.cat([part.transpose(1, 2).reshape(-1, q.shape[1] * self.head_dim) for part in parts])

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], Tensor]]:
        """Queries, keys and values [rows, heads, length, head_dim] that attend together, and their bias.

        First the prompts, then the rests with their prompts' keys and values in front of their own.
        """
        (kp, kr), (vp, vr) = self.cut(k), self.cut(v)
        *qp, qr = self.cut(q)
        if qp:
            yield (qp[0], kp, vp), self.bias_of_prompts
        yield (qr, torch.cat((self._hand_out(kp), kr), 2), torch.cat((self._hand_out(vp), vr), 2)), self.bias

    def cut(self, t: Tensor) -> list[Tensor]:
        """Prompts (if `t` has them) and rests separately, [rows, heads, length, head_dim] each; views, not copies."""
        first = 0 if len(t) > self.sizes[1] else 1
        parts = zip(t.split(self.sizes[first:]), self.shapes[first:], strict=True)
        return [part.view(*shape, -1, self.head_dim).transpose(1, 2) for part, shape in parts]

    def _hand_out(self, of_prompts: Tensor) -> Tensor:
        """[G, …] → [B, …]: each row gets its prompt's. A matrix product, because the gradient of indexing is slow."""
        return (self.members @ of_prompts.flatten(1)).view(-1, *of_prompts.shape[1:])

    def collect(self, of_rows: Tensor) -> Tensor:
        """[B, …] → [G, …]: the sum over the rows of each prompt, the gradient of `_hand_out`."""
        return (self.members.t() @ of_rows.flatten(1)).view(-1, *of_rows.shape[1:])


def _bias(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query sees a key and −inf elsewhere, [rows, 1, queries, keys]."""
    zeros = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return zeros.masked_fill_(~seen, float("-inf")).unsqueeze(1)


class _ShortAttention(torch.autograd.Function):
    """softmax(q kᵀ + bias) v of prompts and rests; the probabilities are kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mixing: SharedAttention) -> Tensor:
        mixed, kept = torch.empty_like(q, memory_format=torch.contiguous_format), list[Tensor]()
        for (qkv, bias), out in zip(mixing.parts(q, k, v), mixing.cut(mixed), strict=True):
            found, *more = _attend(*qkv, bias)
            out.copy_(found)
            kept += more
        ctx.save_for_backward(*kept)
        ctx.mixing = mixing
        return mixed.view(len(q), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        mixing: SharedAttention = ctx.mixing
        # Four tensors were saved for each part: queries, keys, values, probabilities; prompts only if q had them.
        *of_prompts, of_rests = [ctx.saved_tensors[i : i + 4] for i in range(0, len(ctx.saved_tensors), 4)]
        heads = of_rests[1].shape[1]
        dq = gradient.new_empty(len(gradient), gradient.shape[1] // mixing.head_dim, mixing.head_dim)
        dk, dv = (gradient.new_empty(sum(mixing.sizes), heads, mixing.head_dim) for _ in range(2))
        *g_prompts, g_rests = mixing.cut(gradient.view(dq.shape))
        *dq_prompts, dq_rests = mixing.cut(dq)
        # Keys and values of a prompt get a gradient from every row behind it, and from the prompt's own queries.
        length = mixing.shapes[0][1]
        dq_rests[...], *both = _attend_backward(g_rests, *of_rests)
        for whole, found in zip((dk, dv), both, strict=True):
            prompts, rests = mixing.cut(whole)
            prompts[...] = mixing.collect(found[:, :, :length])
            rests[...] = found[:, :, length:]
        if of_prompts:
            dq_prompts[0][...], *both = _attend_backward(g_prompts[0], *of_prompts[0])
            for whole, found in zip((dk, dv), both, strict=True):
                mixing.cut(whole)[0].add_(found)
        return dq, dk, dv, None


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """softmax(q kᵀ + bias) v of [rows, heads, length, head_dim], and what its gradient needs."""
    # Heads of q that share one head of k stand in its length: [rows, kv_heads, heads / kv_heads · length, head_dim].
    rows, heads, length, size = q.shape
    grouped = q.reshape(rows, k.shape[1], -1, size)
    scores = product(grouped, k.mT)
    scores.view(rows, heads, length, -1).add_(bias)
    probabilities = scores.softmax(-1)
    return product(probabilities, v).view(q.shape), grouped, k, v, probabilities


def _attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    shape = gradient.shape
    gradient = gradient.reshape(q.shape)
    d_scores = torch._softmax_backward_data(product(gradient, v.mT), probabilities, -1, v.dtype)
    return product(d_scores, k).view(shape), product(d_scores.mT, q), product(probabilities.mT, gradient)


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right. On one thread, NumPy's BLAS is up to twice as fast for stacks of small matrices and a few percent
    faster for large ones, unless both are long and thin, as in the gradient of a weight."""
    if torch.get_num_threads() > 1:
        return left @ right
    return torch.from_numpy(np.matmul(left.detach().numpy(), right.detach().numpy()))


def find_cpu_layers(model: nn.Module, decoder: nn.Module) -> CpuLayers | None:
    """The layers of a model in full precision on a CPU; None if anything in them is not known here."""
    a, like = describe(model), next(model.parameters())
    if a is None or a.rotary is None or like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return None
    trunk = CpuLayers(a) if all(_is_plain(layer) for layer in a.layers) else None
    return trunk if trunk is not None and reads_rightly(decoder, trunk.hidden) else None


def _is_plain(layer: DecoderLayer) -> bool:
    """Whether a layer is like Llama's or Qwen's: an RMSNorm before each half, full attention, a gated MLP."""
    norms = all(hasattr(norm, "variance_epsilon") for norm in (layer.attention_norm, layer.mlp_norm))
    odd = (layer.window, layer.softcap, layer.after_attention, layer.after_mlp)
    halves = layer.gated and (len(layer.qkv), len(layer.mlp_in)) == (3, 2)
    return norms and halves and not layer.rope and all(part is None for part in odd)


@dataclass(frozen=True, slots=True)
class CpuLayers:
    """Embedding, layers and last norm of an architecture, over the model's live parameters."""

    architecture: Architecture

    def hidden(self, rows: SharedPrompts) -> Tensor:
        """The hidden states of the rests, [B, R, H]."""
        a = self.architecture
        assert a.rotary is not None
        x: Tensor = a.embedding(torch.cat((rows.prompts.reshape(-1), rows.rests.reshape(-1))))
        mixing = SharedAttention(rows, a.head_dim, x.dtype)
        # The model's own rotary module repeats each angle in both halves of a head: one half is enough.
        cos, sin = (table[0, :, None, : a.head_dim // 2] for table in a.rotary(x, mixing.positions[None]))
        angles = torch.complex(cos.contiguous(), sin.contiguous())
        for layer in a.layers:
            assert layer.mlp_norm is not None
            # Of the last layer only the rests' outputs are wanted; prompts still give keys and values.
            wanted = x if layer is not a.layers[-1] else x[rows.prompts.numel() :]
            q, k, v = _qkv(x, wanted, layer, a.head_dim)
            mixed = mixing(_turn(q, angles[-len(q) :] * layer.scaling), _turn(k, angles), v)
            x = _add(wanted, mixed, layer.attention_out)
            gate, up = _project(x, layer.mlp_norm, layer.mlp_in)
            x = _add(x, layer.activation(gate) * up, layer.mlp_out)
        states: Tensor = a.final_norm(x)
        return states.view(*rows.rests.shape, -1)


def _qkv(x: Tensor, wanted: Tensor, layer: DecoderLayer, head_dim: int) -> Sequence[Tensor]:
    """Queries of `wanted`, keys and values of `x`, [tokens, heads, head_dim] each; queries and keys in pairs."""
    # Plain matrices are reordered before the product, which costs less than reordering its result.
    norm, modules = layer.attention_norm, list[Any](layer.qkv)
    plain = layer.q_norm is None and all(map(_is_matrix, modules))
    parts = [*(_paired(m.weight, head_dim) for m in modules[:2]), modules[2].weight] if plain else modules
    if wanted is x:
        made = _project(x, norm, parts)
    else:
        made = *_project(wanted, norm, parts[:1]), *_project(x, norm, parts[1:])
    q, k, v = (t.view(len(t), -1, head_dim) for t in made)
    if plain:
        return q, k, v
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    return _paired(q.mT, head_dim).mT, _paired(k.mT, head_dim).mT, v


def _paired(x: Tensor, head_dim: int) -> Tensor:
    """[..., heads · head_dim, n] with the two halves of each head interleaved: (0, d/2), (1, d/2 + 1), and so on."""
    halves: Tensor = x.unflatten(-2, (-1, 2, head_dim // 2))
    return halves.transpose(-3, -2).reshape(x.shape)


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of [tokens, heads, head_dim] whose pairs are neighbours."""
    turned: Tensor = _Turn.apply(x, angles)  # type: ignore[no-untyped-call]
    return turned


def _project(x: Tensor, norm: Any, modules: Sequence[Any]) -> Sequence[Tensor]:
    """The outputs of linear modules, or matrices, for the normalised x."""
    matrices = [m if isinstance(m, Tensor) else m.weight for m in modules if isinstance(m, Tensor) or _is_matrix(m)]
    if len(matrices) == len(modules):
        made: Sequence[Tensor] = _NormedProducts.apply(  # type: ignore[no-untyped-call]
            x, norm.weight, norm.variance_epsilon, *matrices
        )
        return made
    normalised = norm(x)
    return [module(normalised) for module in modules]


def _add(x: Tensor, change: Tensor, module: Any) -> Tensor:
    if _is_matrix(module):
        added: Tensor = _AddedProduct.apply(x, change, module.weight)  # type: ignore[no-untyped-call]
        return added
    more: Tensor = module(change)
    return x + more


def _is_matrix(module: nn.Module) -> bool:
    return type(module) is nn.Linear and module.bias is None


class _NormedProducts(torch.autograd.Function):
    """x̂ (W · w)ᵀ for several matrices W, with x̂ = x / rms(x) and w the norm's weight.

    With g the gradient of the products, ∂x = (∂x̂ − x̂ mean(∂x̂ · x̂)) / rms(x), ∂W = (gᵀ x̂) · w and ∂w = Σ (gᵀ x̂) · W.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, *matrices: Tensor) -> tuple[Tensor, ...]:
        width = x.shape[-1]
        # rms(x) = √(|x|² / width + eps) = hypot(|x|, √(width · eps)) / √width
        size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        size = torch.hypot(size, size.new_tensor((width * eps) ** 0.5)).mul_(width**-0.5)
        normalised = x / size
        ctx.save_for_backward(normalised, size, weight, *matrices)
        return tuple(product(normalised, (matrix * weight).t()) for matrix in matrices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        normalised, size, weight, *matrices = ctx.saved_tensors
        dx, d_weight = product(gradients[0], matrices[0] * weight), torch.zeros_like(weight)
        d_matrices: list[Tensor | None] = [None] * len(matrices)
        for place, (gradient, matrix) in enumerate(zip(gradients, matrices, strict=True)):
            if place:
                dx += product(gradient, matrix * weight)
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
        return product(change, matrix.t()).add_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        change, matrix = ctx.saved_tensors
        d_matrix = gradient.t() @ change if ctx.needs_input_grad[2] else None
        return gradient, product(gradient, matrix), d_matrix


class _Turn(torch.autograd.Function):
    """Each pair of neighbours as a complex number, times e^(i·angle) of its position; the gradient turns back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angles: Tensor) -> Tensor:
        ctx.angles = angles
        return _multiplied(x, angles)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _multiplied(gradient, ctx.angles.conj()), None


def _multiplied(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * angles).flatten(-2)
