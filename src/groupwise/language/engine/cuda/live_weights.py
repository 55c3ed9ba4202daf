"""The model's own weights as the GPU reads them: projections of the same input side by side in one matrix.

Nothing is copied: the joined matrix is made once, and the parameters of the modules become views of it. So an optimiser
that steps in place changes what the engine reads, and captured graphs stay valid. Only a module that is not a plain
linear one (LoRA) is merged into a matrix of its own, which `refresh` fills again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupwise.language.engine.weights import active_module, weight_and_bias


class LiveMatrix:
    """One matrix product for linear modules that read the same input: `weight` [out, in]."""

    def __init__(self, modules: Sequence[nn.Module], inputs: int, like: Tensor) -> None:
        self.modules, self.inputs, self.like = tuple(modules), inputs, like
        self.weight: Tensor
        self.bias: Tensor | None = None
        self._copied = False
        self.refresh()

    def refresh(self) -> None:
        """Follow weights that changed or were replaced."""
        # Parameters must not become inference tensors, which could never be trained again.
        with torch.inference_mode(False), torch.no_grad():
            if all(is_plain(module) for module in self.modules):
                self.weight = _side_by_side([module.weight for module in self.modules])
                biases = [module.bias for module in self.modules]
                self.bias = None if biases[0] is None else _side_by_side(biases)
            else:
                self._merge()

    def _merge(self) -> None:
        parts = [weight_and_bias(module, self.inputs, self.like) for module in self.modules]
        outputs = sum(len(weight) for weight, _ in parts)
        if not self._copied:
            self.weight = self.like.new_empty(outputs, self.inputs)
            biased = any(getattr(module, "bias", None) is not None for module in self.modules)
            self.bias = self.like.new_zeros(outputs) if biased else None
            self._copied = True
        at = 0
        for weight, bias in parts:
            self.weight[at : at + len(weight)].copy_(weight)
            if self.bias is not None and bias is not None:
                self.bias[at : at + len(weight)].copy_(bias)
            at += len(weight)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    @property
    def tensors(self) -> list[Tensor]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]


class LiveNorm:
    """The weight of an RMSNorm, and its epsilon."""

    def __init__(self, module: Any) -> None:
        module = active_module(module)
        self.weight: Tensor = module.weight.detach()
        self.eps = float(next(getattr(module, name) for name in ("variance_epsilon", "eps") if hasattr(module, name)))


def is_plain(module: nn.Module) -> bool:
    """Whether a module is nothing but a matrix whose parameters can be moved."""
    if type(module) is not nn.Linear:
        return False
    mine = [p for p in (module.weight, module.bias) if p is not None]
    return all(type(p.data) is Tensor and p.is_contiguous() and not p.is_inference() for p in mine)


def merged_bytes(groups: Sequence[Sequence[nn.Module]]) -> int:
    """How much memory the merged matrices of these groups of modules take."""
    return sum(
        p.numel() * p.element_size()
        for modules in groups
        if not all(is_plain(module) for module in modules)
        for module in modules
        for name, p in module.named_parameters()
        if "lora" not in name
    )


def _side_by_side(parameters: Sequence[Any]) -> Tensor:
    """Parameters one below the other in one tensor, of which each becomes a view."""
    if len(parameters) == 1:
        alone: Tensor = parameters[0].detach()
        return alone
    first = parameters[0]
    rows = sum(len(p) for p in parameters)
    if _adjacent(parameters):
        view: Tensor = first.detach().as_strided((rows, *first.shape[1:]), first.stride())
        return view
    joined = torch.cat([p.data for p in parameters])
    for parameter, part in zip(parameters, joined.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return joined


def _adjacent(parameters: Sequence[Any]) -> bool:
    """Whether each parameter begins where the one before it ends, in the same memory."""
    ends = [p.data_ptr() + p.numel() * p.element_size() for p in parameters]
    same = all(p.untyped_storage().data_ptr() == parameters[0].untyped_storage().data_ptr() for p in parameters)
    return same and all(p.data_ptr() == end for p, end in zip(parameters[1:], ends, strict=False))
