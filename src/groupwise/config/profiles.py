"""Named starting points. What is set explicitly wins over a profile."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class TrainingProfile(StrEnum):
    """How bold training is."""

    CONSERVATIVE = "conservative"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


_NAMES = (
    "learning_rate",
    "num_generations",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "warmup_ratio",
    "eval_steps",
    "early_stopping",
    "early_stopping_patience",
)

PROFILES: Mapping[TrainingProfile, Mapping[str, Any]] = {
    TrainingProfile.CONSERVATIVE: dict(zip(_NAMES, (1e-6, 32, 8, 0.5, 0.2, 25, True, 30), strict=True)),
    TrainingProfile.BALANCED: dict(zip(_NAMES, (5e-6, 16, 4, 1.0, 0.1, 50, False, 50), strict=True)),
    TrainingProfile.AGGRESSIVE: dict(zip(_NAMES, (1e-5, 8, 2, 2.0, 0.05, 100, False, 100), strict=True)),
}
