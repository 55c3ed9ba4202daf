"""Gradient surgery: what one task's gradient loses to another's; `training.micro_batches.TaskGradients` applies it."""

import torch
from torch import Tensor

from groupwise.core.shapes import check_shape


def project_conflicts(gradients: Tensor, orders: Tensor | None = None) -> Tensor:
    """PCGrad, "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782), algorithm 1.

    A gradient that points against another task's loses the opposing part:

        g_i ← g_i − (g_i · g_j) / |g_j|² · g_j     where g_i · g_j < 0, for every j ≠ i in turn

    Each g_j is the given gradient, not the projected one. Use the sum over tasks in place of the usual gradient. Tasks
    that agree are left alone, and lengths are not normalised: a task with large rewards still has the larger gradient
    (for that, see `advantages.group_advantages` and `grouping.weighting`).

    Args:
      gradients: g, [..., K, P], of K tasks with respect to the same P weights. Leading dimensions are independent.
      orders: [K, K]; row i lists the tasks in the order in which g_i is projected, including i, which is skipped. The
        paper draws a new order at every step (`random_orders`); None goes by number.

    Returns:
      The projected gradients [..., K, P]. A gradient of zeros changes nothing.
    """
    if gradients.dim() < 2:
        raise ValueError(f"gradients have shape {tuple(gradients.shape)}, but must have [..., tasks, weights]")
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
            # Only a negative product is a conflict; the clamp makes the projection a no-op otherwise.
            overlap = (ours * theirs).sum(-1, keepdim=True).clamp(max=0)
            ours = ours - overlap / squared[..., other, :].clamp(min=torch.finfo(ours.dtype).tiny) * theirs
    return ours


def random_orders(count: int, generator: torch.Generator | None = None) -> Tensor:
    """Orders [K, K] for `project_conflicts`, each row a permutation of its own."""
    return torch.stack([torch.randperm(count, generator=generator) for _ in range(count)])


def conflict_share(gradients: Tensor) -> Tensor:
    """The share of pairs of gradients [K, P] that point against each other; 0 for a single one."""
    count = gradients.shape[0]
    pairs = torch.triu_indices(count, count, 1, device=gradients.device)
    products = (gradients @ gradients.T)[pairs[0], pairs[1]]
    return (products < 0).sum() / max(1, products.numel())
