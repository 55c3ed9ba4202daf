"""The live weights of a model, joined where one matrix product is cheaper than several.

Side-by-side projections (queries, keys, values; gate and up) are copied into one matrix, and a module that is linear
but not plain (LoRA, a quantised layer) becomes one by feeding it the identity. Copies go stale when an optimiser steps,
so `Fingerprint` notices every in-place change of a parameter. If copies would take too much memory, plain weights are
read in place and other modules are called.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

version_of: Callable[[Tensor], int] = attrgetter("_version")


@contextmanager
def at_rest(modules: Sequence[nn.Module]) -> Iterator[None]:
    """No dropout inside: modules in training mode leave it, and are put back exactly as they were."""
    training = [part for module in modules if module.training for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


class Joined:
    """One matrix product for one or more linear modules that read the same input.

    `matrix` is [in, out]. With `copy` it is stored that way, which is a quarter faster on a CPU for few rows; without,
    it is a view of the one module's live weight.
    """

    def __init__(self, modules: Sequence[nn.Module], inputs: int, like: Tensor, *, copy: bool) -> None:
        parts = [weight_and_bias(module, inputs, like) for module in modules]
        # Hugging Face stores weights as [out, in]: side by side means one below the other here.
        weight = parts[0][0] if len(parts) == 1 else torch.cat([weight for weight, _ in parts])
        self.matrix = weight.t().contiguous() if copy else weight.t()
        self.bias = _join_biases(parts)

    @property
    def outputs(self) -> int:
        return self.matrix.shape[1]

    def reorder(self, order: Tensor) -> None:
        """Put the outputs into another order."""
        self.matrix = self.matrix[:, order]
        self.bias = None if self.bias is None else self.bias[order]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.matrix) if self.bias is None else torch.addmm(self.bias, x, self.matrix)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + this(x), in one operation if there is no bias."""
        if self.bias is not None:
            residual = residual + self.bias
        return torch.addmm(residual, x, self.matrix)


class Called:
    """The modules themselves, one call each, for models too large to copy."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = tuple(modules)

    def __call__(self, x: Tensor) -> Tensor:
        with at_rest(self.modules):
            outputs: list[Tensor] = [module(x) for module in self.modules]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


def projection(modules: Sequence[nn.Module], inputs: int, like: Tensor, *, copy: bool) -> Joined | Called:
    """The cheapest faithful way to apply these modules; without `copy`, only plain weights are read directly."""
    plain = len(modules) == 1 and (type(modules[0]) is nn.Linear or _is_conv1d(modules[0]))
    return Joined(modules, inputs, like, copy=copy) if copy or plain else Called(modules)


def _is_conv1d(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils"


def weight_and_bias(module: Any, inputs: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """`(weight [out, in], bias)` of a linear module: views of the live parameters if it is plain."""
    if type(module) is nn.Linear:
        return module.weight.detach(), None if module.bias is None else module.bias.detach()
    if _is_conv1d(module):
        return module.weight.detach().t(), module.bias.detach()
    return _probe(module, inputs, like)


@torch.no_grad()
def _probe(module: nn.Module, inputs: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The weight and bias of any linear module, found by feeding it the identity and zero (without dropout)."""
    with at_rest([module]):
        bias = module(torch.zeros(1, inputs, dtype=like.dtype, device=like.device))[0]
        rows = module(torch.eye(inputs, dtype=like.dtype, device=like.device))
    return (rows - bias).t().contiguous(), bias


def _join_biases(parts: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor | None:
    if all(bias is None for _, bias in parts):
        return None
    if len(parts) == 1:
        return parts[0][1]
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in parts])


def active_module(module: Any) -> Any:
    """The module that acts: PEFT wraps those it trains as a whole (`modules_to_save`)."""
    if not hasattr(module, "original_module") or not hasattr(module, "modules_to_save"):
        return module
    active = [name for name in module.active_adapters if name in module.modules_to_save]
    return module.original_module if module.disable_adapters or not active else module.modules_to_save[active[0]]


class Norm:
    """RMSNorm or LayerNorm. Gemma's RMSNorm scales by 1 + weight.

    On a CPU, PyTorch's RMSNorm is seven small operations. With hypot(|x|, sqrt(d·eps)) = sqrt(d · (mean(x²) + eps))
    it is four, or three once the weight is folded into the matrix behind it, and takes half the time.
    """

    def __init__(self, module: Any, order: Tensor | None = None) -> None:
        module = active_module(module)
        self.layer = isinstance(module, nn.LayerNorm)
        self.eps = float(next(getattr(module, n) for n in ("variance_epsilon", "eps") if hasattr(module, n)))
        weight: Tensor = module.weight.detach()
        # Gemma's modules store the weight minus 1.
        self.weight = weight + 1 if "Gemma" in type(module).__name__ else weight
        self.bias = module.bias.detach() if self.layer and module.bias is not None else None
        if order is not None:
            self.weight = self.weight[order]
            self.bias = None if self.bias is None else self.bias[order]
        self.shape = tuple(weight.shape)
        self.folded = False
        self.short = not self.layer and weight.dtype == torch.float32 and weight.device.type == "cpu"
        if self.short:
            # √d of the formula above moves into the weight; `floor` is √(d·eps).
            self.weight = self.weight * len(weight) ** 0.5
            self.floor = torch.tensor((len(weight) * self.eps) ** 0.5)

    def fold_into(self, following: Joined) -> None:
        """Leave the scaling to the matrix that reads the result; that matrix must be a copy."""
        if self.short:
            # (x · w) M = x (diag(w) M): rows of M scaled once instead of x at every step.
            following.matrix = following.matrix * self.weight[:, None]
            self.folded = True

    def __call__(self, x: Tensor) -> Tensor:
        if self.short:
            size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            size = torch.hypot(size, self.floor)
            return x / size if self.folded else (x * self.weight).div_(size)
        if self.layer:
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        return F.rms_norm(x, self.shape, self.weight, self.eps)


def _merged(adapter: Any) -> tuple[str, ...]:
    return tuple(getattr(adapter, "merged_adapters", ()))


class Fingerprint:
    """Whether a module's weights have changed since this was taken.

    PyTorch counts the in-place changes of a tensor, which optimisers and `load_state_dict` make. Only a write through
    `parameter.data` escapes the count; `Engine.load` covers that, as it always rebuilds everything.
    """

    def __init__(self, model: nn.Module) -> None:
        # The dictionaries themselves, so that a parameter that was replaced by another is noticed too.
        self.tables = [module._parameters for module in model.modules() if module._parameters]
        self.adapters: list[Any] = [
            m for m in model.modules() if isinstance(getattr(m, "disable_adapters", None), bool)
        ]
        # Tensors made in inference mode have no version counter.
        self.parameters = [p for p in model.parameters() if not p.is_inference()]
        self.taken = self._full()
        self.count = self._count()

    def is_current(self) -> bool:
        """The thorough check: changed in place, replaced, or an adapter switched on, off or merged."""
        return self._full() == self.taken

    def looks_current(self) -> bool:
        """A check cheap enough for every step: changed in place."""
        return self._count() == self.count

    def _count(self) -> int:
        return sum(map(version_of, self.parameters))

    def _full(self) -> tuple[Any, ...]:
        weights = tuple(
            (p.data_ptr(), 0 if p.is_inference() else p._version)
            for table in self.tables
            for p in table.values()
            if p is not None
        )
        return (*weights, *((m.disable_adapters, _merged(m), tuple(m.active_adapters)) for m in self.adapters))
