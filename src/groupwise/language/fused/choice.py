"""Whether a model learns by fused layers; where it cannot, a warning says why, and it learns by its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from groupwise.language.adapters import adapter_dropout
from groupwise.language.batch_layout import BatchLayout, gives_own_states
from groupwise.language.engine.families import describe
from groupwise.language.fused.packing import LEAST_SHARED, pack
from groupwise.language.triton_support import why_no_triton

if TYPE_CHECKING:
    from groupwise.language.fused.layers import FusedLayers

logger = logging.getLogger(__name__)


def find_fused_layers(model: Any, decoder: nn.Module, device: torch.device) -> FusedLayers | None:
    """The fused layers of a model on a GPU, or None."""
    if device.type != "cuda":
        return None
    found = why_no_triton(device) or _checked(model, decoder, device)
    if not isinstance(found, str):
        return found
    words = "%s learns by its own layers, which is slower than the fused ones, because %s"
    logger.warning(words, type(decoder).__name__, found)
    return None


def _checked(model: Any, decoder: nn.Module, device: torch.device) -> FusedLayers | str:
    # Needs Triton even to be imported.
    from groupwise.language.fused.layers import fuse

    if adapter_dropout(model):
        return "its adapter has dropout"
    a = describe(model)
    made = "its family is not known to them" if a is None else fuse(a)
    if isinstance(made, str):
        return made

    def hidden(layout: BatchLayout) -> torch.Tensor:
        return made.hidden(pack(layout.on(torch.device("cpu")), device))

    try:
        # The prompt must be long enough to be shared.
        right = gives_own_states(decoder, hidden, 2 * LEAST_SHARED)
    except Exception as error:  # the boundary to a compiler, which raises what it likes
        return (
            f"their kernels do not run here: {type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]:.200}"
        )
    return made if right else "they do not give its hidden states"
