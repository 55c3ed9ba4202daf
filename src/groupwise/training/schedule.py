"""Schedules as pure functions of progress, so that there is no state to save."""

from __future__ import annotations

import math


def schedule_factor(step: int, total: int, *, kind: str, warmup_ratio: float = 0.0) -> float:
    """What the learning rate, or the clip, is multiplied by at `step` of `total` (counted from 0).

    Linear warm-up over the first `warmup_ratio` of the steps, then `constant`, `linear` to 0 or half a
    `cosine` to 0. The first step after warm-up runs at the full rate and no step at exactly 0.
    """
    warmup = math.ceil(warmup_ratio * total)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total - warmup)
    progress = min(progress, 1.0)
    if kind == "linear":
        return 1.0 - progress
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0
