"""The checks at the top of every function in core: ranks, shapes and names, before any arithmetic."""

from collections.abc import Iterable

import torch
from torch import Tensor


def check_rank(name: str, tensor: Tensor, *ranks: int) -> None:
    """`tensor` has one of the given numbers of dimensions."""
    if tensor.dim() not in ranks:
        wanted = " or ".join(str(rank) for rank in ranks)
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must have {wanted} dimension(s)")


def check_shape(name: str, tensor: Tensor | None, *shapes: tuple[int, ...]) -> None:
    """`tensor`, unless it is None, has one of the given shapes."""
    if tensor is not None and tuple(tensor.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must have {wanted}")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """`value` is one of the named choices."""
    known = tuple(choices)
    if value not in known:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def check_positive(name: str, value: float | Tensor) -> None:
    """A number is above 0. A tensor is not checked: reading it would wait for its device."""
    if not isinstance(value, Tensor) and not value > 0:
        raise ValueError(f"{name} is {value}; it must be above 0")


def as_columns(values: Tensor) -> Tensor:
    """[B] becomes [B, 1], so that one value per row meets every token; [B, T] stays."""
    return values.unsqueeze(1) if values.dim() == 1 else values


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision is widened: differences of log-probabilities are smaller than its last digit."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
