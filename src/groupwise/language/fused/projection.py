"""Linear modules that read the same input, side by side as one product, with their biases and LoRA adapters.

    y = x Wᵀ + b + (x Aᵀ) Bᵀ        A: the adapters' first matrices one below the other; B: their second ones,
                                     scaled, in the blocks of their outputs and ranks, 0 elsewhere

Frozen matrices get no gradient, which saves a third of the arithmetic. Products run in the type of x; gradients come
in the type of the weight they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Part:
    """One linear module: its live tensors, and the factor of its adapter."""

    weight: Tensor
    bias: Tensor | None
    down: Tensor | None = None
    up: Tensor | None = None
    scaling: float = 1.0

    @property
    def tensors(self) -> list[Tensor]:
        return [t for t in (self.weight, self.bias, self.down, self.up) if t is not None]


def read_module(module: Any) -> Part | None:
    """A plain linear module, or one with a plain LoRA adapter; None for anything else."""
    if type(module) is nn.Linear:
        return Part(module.weight, module.bias)
    base = getattr(module, "base_layer", None)
    if type(base) is not nn.Linear or not hasattr(module, "lora_A"):
        return None
    if module.disable_adapters or not (module.active_adapters or module.merged):
        return Part(base.weight, base.bias)
    if module.merged or len(module.active_adapters) != 1:
        return None
    name = module.active_adapters[0]
    if name not in module.lora_A:
        return Part(base.weight, base.bias)
    down, up = module.lora_A[name], module.lora_B[name]
    variant = getattr(module, "lora_variant", {}).get(name) is not None or module.fan_in_fan_out
    if variant or down.bias is not None or up.bias is not None:
        return None
    return Part(base.weight, base.bias, down.weight, up.weight, float(module.scaling[name]))


@dataclass(frozen=True, slots=True)
class Matrices:
    """What a projection multiplies by, in the type of its products."""

    weight: Tensor
    bias: Tensor | None
    down: Tensor | None
    up: Tensor | None


class Projection:
    """Linear modules [out_i, in], whose outputs stand side by side."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.tensors = [tensor for part in parts for tensor in part.tensors]
        self.outputs = [len(part.weight) for part in parts]
        self.ranks = [0 if part.down is None else len(part.down) for part in parts]
        self.biased = any(part.bias is not None for part in parts)
        # The adapters as `matrices` last joined them, and the versions of their tensors then.
        self.joined: tuple[Any, Tensor | None, Tensor | None] = (None, None, None)

    def matrices(self, dtype: torch.dtype) -> Matrices:
        """Joined and cast where they have to be; a single matrix of that type is not copied."""
        weights = [part.weight.detach() for part in self.parts]
        biases = (
            [
                weights[0].new_zeros(len(w), dtype=dtype) if part.bias is None else part.bias.detach().to(dtype)
                for w, part in zip(weights, self.parts, strict=True)
            ]
            if self.biased
            else []
        )
        down, up = self._adapters(dtype) if any(self.ranks) else (None, None)
        return Matrices(
            weight=_join([w.to(dtype) for w in weights]),
            bias=_join(biases) if biases else None,
            down=down,
            up=up,
        )

    def _adapters(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The adapters' matrices. They are small: kept until what they were made of changes."""
        there = [t for part in self.parts for t in (part.down, part.up) if t is not None]
        made_of = (dtype, *((t.data_ptr(), t._version) for t in there))
        if self.joined[0] != made_of:
            up = there[0].new_zeros((sum(self.outputs), sum(self.ranks)), dtype=dtype)
            for part, rows, columns in self._blocks():
                if part.up is not None:
                    torch.mul(part.up.detach(), part.scaling, out=up[rows, columns])
            downs = [part.down.detach().to(dtype) for part in self.parts if part.down is not None]
            self.joined = (made_of, _join(downs), up)
        return self.joined[1:]

    def input_gradient(self, gradient: Tensor, m: Matrices) -> Tensor:
        found = gradient @ m.weight
        if m.down is not None and m.up is not None:
            found.addmm_(gradient @ m.up, m.down)
        return found

    def weight_gradients(self, gradient: Tensor, x: Tensor, m: Matrices) -> list[Tensor | None]:
        """Those of `tensors`, in their order; None for the frozen."""
        weights = self._products([p.weight for p in self.parts], gradient, x, self.outputs)
        downs: list[Tensor | None] = [None] * len(self.parts)
        crossed = None
        if m.down is not None and m.up is not None and torch.is_tensor(m.up):
            downs = self._products([p.down for p in self.parts], gradient @ m.up, x, self.ranks)
            crossed = product(gradient.t(), x @ m.down.t(), torch.float32)
        found: list[Tensor | None] = []
        for (part, rows, columns), weight, down in zip(self._blocks(), weights, downs, strict=True):
            found.append(weight)
            if part.bias is not None:
                learns = part.bias.requires_grad
                found.append(gradient[:, rows].sum(0, dtype=torch.float32).to(part.bias.dtype) if learns else None)
            if part.down is not None and part.up is not None and crossed is not None:
                learns = part.up.requires_grad
                up = (crossed[rows, columns] * part.scaling).to(part.up.dtype)
                found += [down, up if learns else None]
        return found

    def _blocks(self) -> list[tuple[Part, slice, slice]]:
        """Each part with its outputs and its ranks."""
        blocks, row, column = [], 0, 0
        for part, outputs, rank in zip(self.parts, self.outputs, self.ranks, strict=True):
            blocks.append((part, slice(row, row + outputs), slice(column, column + rank)))
            row, column = row + outputs, column + rank
        return blocks

    @staticmethod
    def _products(
        weights: Sequence[Tensor | None], gradient: Tensor, x: Tensor, widths: Sequence[int]
    ) -> list[Tensor | None]:
        """gradientᵀ x in the rows of each weight: one product if all learn, else one for each that does."""
        there = [w for w in weights if w is not None]
        pieces = gradient.split(list(widths), 1)
        if all(w.requires_grad for w in there) and len({w.dtype for w in there}) == 1:
            joined = iter(product(gradient.t(), x, there[0].dtype).split([n for n in widths if n]))
            return [None if w is None else next(joined) for w in weights]
        return [
            product(piece.t(), x, w.dtype) if w is not None and w.requires_grad else None
            for w, piece in zip(weights, pieces, strict=True)
        ]


def apply(x: Tensor, m: Matrices) -> Tensor:
    """The outputs side by side, [rows, out]."""
    y = F.linear(x, m.weight, m.bias)
    if m.down is not None and m.up is not None:
        y.addmm_(x @ m.down.t(), m.up.t())
    return y


def product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """left @ right in `dtype`; half-precision factors give a float32 product without rounding in between."""
    if left.dtype == dtype:
        return left @ right
    if left.is_cuda and dtype == torch.float32:
        return torch.mm(left, right, out_dtype=dtype)
    return (left @ right).to(dtype)


def _join(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
