"""When to stop: a target, no more improvement, or a person pressing Ctrl-C."""

import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from groupwise.config import TrainingConfig


class EarlyStopping:
    """Stops at `target_reward`, or after `patience` evaluations without improvement.

    An improvement is more than `threshold` times the size of the best score, and at least `threshold`.
    """

    def __init__(self, cfg: TrainingConfig) -> None:
        self.cfg = cfg.training
        self.best: float | None = None
        self.best_step = 0
        self.waited = 0

    def reason(self, step: int, score: float) -> str | None:
        """Why to stop after an evaluation of `score`, or None to continue. A score that is not finite is ignored."""
        if not math.isfinite(score):
            return None
        margin = self.cfg.early_stopping_threshold * max(1.0, abs(self.best or 0.0))
        if self.best is None or score > self.best + margin:
            self.best, self.best_step, self.waited = score, step, 0
        else:
            self.waited += 1
        if self.cfg.target_reward is not None and score >= self.cfg.target_reward:
            return "target_reached"
        if self.cfg.early_stopping and self.waited >= self.cfg.early_stopping_patience:
            return "early_stopping"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_step, self.waited = state["best"], state["best_step"], state["waited"]


class StopFlag:
    """Set by a signal; the loop looks at it between steps."""

    def __init__(self) -> None:
        self.raised = False


@contextmanager
def graceful_stop() -> Iterator[StopFlag]:
    """The first Ctrl-C (or SIGTERM) stops after the current step; the second stops at once."""
    flag = StopFlag()
    # Python allows signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if flag.raised:
            raise KeyboardInterrupt
        flag.raised = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
