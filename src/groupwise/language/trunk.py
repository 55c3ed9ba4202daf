"""The layers of a plain decoder as a CPU learns them: fewer passes over memory than the model's own modules make.

- All tokens of a micro-batch, shared prompts and the rests of rows, are one matrix [tokens, width].
- A norm's weight is multiplied into the matrices behind it, and gets its gradient from theirs.
- Dimensions that are turned together stand side by side, so that turning is one complex product. Scores do not change:
  queries and keys are reordered alike.
- Of the last layer, prompts need keys and values only.

Adapters and biases are called as the modules they are. Whether hidden states are the model's own is tried, not
believed (`sharing.reads_rightly`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from groupwise.language.engine.families import Architecture, Layer, describe
from groupwise.language.mixing import Mixing, product
from groupwise.language.sharing import SharedPrompts, reads_rightly


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
        mixing = Mixing(rows, a.head_dim, x.dtype)
        cos, sin = (table[0, :, None, : a.head_dim // 2] for table in a.rotary(x, mixing.positions[None]))
        angles = torch.complex(cos.contiguous(), sin.contiguous())
        for layer in a.layers:
            assert layer.mlp_norm is not None
            wanted = x if layer is not a.layers[-1] else x[rows.prompts.numel() :]
            q, k, v = _qkv(x, wanted, layer, a.head_dim)
            mixed = mixing(_turn(q, angles[-len(q) :] * layer.scaling), _turn(k, angles), v)
            x = _add(wanted, mixed, layer.attention_out)
            gate, up = _project(x, layer.mlp_norm, layer.mlp_in)
            x = _add(x, layer.activation(gate) * up, layer.mlp_out)
        states: Tensor = a.final_norm(x)
        return states.view(*rows.rests.shape, -1)


def _qkv(x: Tensor, wanted: Tensor, layer: Layer, head_dim: int) -> Sequence[Tensor]:
    """Queries of what is wanted, keys and values of all, [tokens, heads, head_dim] each; the first two in pairs."""
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
    """Rows [..., heads · head_dim, n] such that the two halves of a head alternate."""
    halves: Tensor = x.unflatten(-2, (-1, 2, head_dim // 2))
    return halves.transpose(-3, -2).reshape(x.shape)


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of [tokens, heads, head_dim] in pairs."""
    turned: Tensor = _Turn.apply(x, angles)  # type: ignore[no-untyped-call]
    return turned


def _project(x: Tensor, norm: Any, modules: Sequence[Any]) -> Sequence[Tensor]:
    """What linear modules, or matrices, make of the normalised x."""
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
    """Each pair of neighbours as a complex number, times that of its place."""

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
