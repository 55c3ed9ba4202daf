"""The precision a policy is asked in: the same for the learner and for the reference it is measured against."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.config import TrainingConfig


def autocast(cfg: TrainingConfig) -> torch.autocast:
    """The context in which every pass through a policy runs while learning: `optim.bf16`, `optim.fp16` or neither."""
    optim = cfg.optim
    dtype = torch.bfloat16 if optim.bf16 else torch.float16
    return torch.autocast(torch.device(cfg.policy.device).type, dtype=dtype, enabled=optim.bf16 or optim.fp16)


def at_least_single(tensor: Tensor) -> Tensor:
    """Losses are never computed in half precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
