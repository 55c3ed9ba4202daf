"""Soft routing: how much each module of a layer hears of each module of the layer before."""

from __future__ import annotations

from torch import Tensor

from groupwise.core.shapes import check_shape


def soft_route(outputs: Tensor, logits: Tensor) -> Tensor:
    """ "Multi-Task Reinforcement Learning with Soft Modularization" (arXiv 2003.13661), section 4.2.

        g_i = Σ_j p_ij · o_j,    p_ij = exp(z_ij) / Σ_j exp(z_ij)

    Args:
      outputs: o, [..., n, d]: what the n modules of a layer say.
      logits: z, [..., m, n]: how much each of the m modules of the next layer wants of each; computed from state and
        task by a routing network, so that tasks share the modules they can and keep apart the others.

    Returns:
      g, [..., m, d]: what the m modules of the next layer hear. Equal logits give every module the mean.
    """
    check_shape("logits", logits, (*outputs.shape[:-2], logits.shape[-2], outputs.shape[-2]))
    return logits.softmax(-1) @ outputs
