"""Gradient surgery: what one task asks for is rid of what would undo another."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.core.shapes import check_shape


def project_conflicts(gradients: Tensor, orders: Tensor | None = None) -> Tensor:
    """PCGrad, "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782), algorithm 1.

    A gradient that points against another task's loses the part that does:

        g_i ← g_i − (g_i · g_j) / |g_j|² · g_j     where g_i · g_j < 0, for every j ≠ i in turn

    Each g_j is as it was given, not as projected. The sum over tasks replaces the usual one. Tasks that agree are left
    alone, and so is every length: a task with large rewards still has the larger gradient (for that, see
    `advantages.group_advantages` and `weighting`).

    Args:
      gradients: g, [..., K, P]: of K tasks in the same P weights. Leading dimensions are independent.
      orders: [K, K]; row i lists tasks in the order in which task i meets them, itself among them and skipped. The
        paper draws them anew at every step (`random_orders`); without, they are met by number.

    Returns:
      The projected gradients [..., K, P]. A gradient of zeros changes nothing.
    """
    if gradients.dim() < 2:
        raise ValueError(f"gradients have shape {tuple(gradients.shape)}; they need [..., tasks, weights]")
    count = gradients.shape[-2]
    check_shape("orders", orders, (count, count))
    squared = gradients.square().sum(-1, keepdim=True)
    meets = torch.arange(count).expand(count, count) if orders is None else orders
    return torch.stack([_projected(gradients, squared, task, meets[task].tolist()) for task in range(count)], -2)


def _projected(gradients: Tensor, squared: Tensor, task: int, others: list[int]) -> Tensor:
    ours = gradients[..., task, :]
    for other in others:
        if other != task:
            theirs = gradients[..., other, :]
            overlap = (ours * theirs).sum(-1, keepdim=True).clamp(max=0)
            ours = ours - overlap / squared[..., other, :].clamp(min=torch.finfo(ours.dtype).tiny) * theirs
    return ours


def random_orders(count: int, generator: torch.Generator | None = None) -> Tensor:
    """Orders [K, K] for `project_conflicts`, each row a permutation of its own."""
    return torch.stack([torch.randperm(count, generator=generator) for _ in range(count)])
