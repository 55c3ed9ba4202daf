"""The numbers that matter, and how a run ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.reporting.history import History
from groupwise.training.numbers import number, percent

ROUNDING = 1e-6  # a KL below this is the rounding of float32
NUMBERS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("reward", "reward/mean", number),
    ("evaluation", "eval/reward_mean", number),
    ("no spread", "groups/zero_spread_share", percent),
    ("failed", "groups/failed_share", percent),
    ("entropy", "policy/entropy", number),
    ("KL", "policy/kl", lambda kl: number(kl) if abs(kl) >= ROUNDING else "0"),
    ("clipped low", "policy/clip_low", percent),
    ("clipped high", "policy/clip_high", percent),
    ("gradient", "optim/grad_norm", number),
    ("samples/s", "timing/samples_per_second", number),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """How a watched run ended. `error` has the one error shape, or is None."""

    run: str
    reason: str
    steps: int
    seconds: float
    reward: float | None
    evaluation: float | None
    hints: int
    error: Mapping[str, Any] | None


def summarise(history: History) -> Summary:
    end = history.end or {}
    return Summary(
        run=history.run,
        reason=str(end.get("reason") or "interrupted"),
        steps=history.step,
        seconds=history.seconds,
        reward=history.last("reward/mean"),
        evaluation=history.last("eval/reward_mean"),
        hints=len(history.hints),
        error=history.errors[-1] if history.errors else None,
    )
