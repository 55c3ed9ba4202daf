"""What hints are based on: the last values of a few metrics, and some facts about the run so far.

Plain values throughout, so that a checkpoint can store them.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any, TypeAlias

from groupwise.training.formatting import finite, trend

# Steps that count as recent, and values of each metric that are kept.
RECENT = 5
KEEP = 20
WATCHED = (
    "groups/zero_spread_share", "groups/close_share", "groups/failed_share", "advantage/std", "attempt/truncated_share",
    "attempt/length_mean", "policy/entropy", "policy/kl", "policy/clip_low", "policy/clip_high",
    "optim/epochs", "optim/steps", "optim/grad_norm", "loss/supervised",
    "answers/sameness", "answers/repetition", "answers/parroting", "answers/words",
)  # fmt: skip
ANSWERS = tuple(name for name in WATCHED if name.startswith("answers/"))

RawMetrics: TypeAlias = Mapping[str, float | None]


@dataclass
class Evidence:
    """What the rules look at: the last values of the watched metrics, and a few facts about the run so far."""

    config: Mapping[str, Any]
    total_steps: int
    seen: int = 0
    recent: dict[str, list[float | None]] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    first_rewards: list[float] = field(default_factory=list)
    first_entropies: list[float] = field(default_factory=list)
    first_answers: dict[str, list[float]] = field(default_factory=dict)
    evaluations: list[float] = field(default_factory=list)
    checks: list[float] = field(default_factory=list)
    # Of every evaluation with a check: the check, its standard error, and the training reward then.
    course: list[tuple[float, float, float | None]] = field(default_factory=list)
    lowest: float = math.inf
    highest: float = -math.inf
    best: float = -math.inf
    broken: dict[str, int] = field(default_factory=dict)

    def add_step(self, metrics: RawMetrics) -> None:
        self.seen += 1
        self._add_broken(metrics)
        for name in WATCHED:
            values = self.recent.setdefault(name, [])
            values.append(finite(metrics.get(name)))
            del values[:-KEEP]
        if (entropy := finite(metrics.get("policy/entropy"))) is not None and len(self.first_entropies) < 3:
            self.first_entropies.append(entropy)
        for name in ANSWERS:
            first = self.first_answers.setdefault(name, [])
            if len(first) < RECENT and (value := finite(metrics.get(name))) is not None:
                first.append(value)
        if (reward := finite(metrics.get("reward/mean"))) is not None:
            self._add_reward(reward, metrics)

    def _add_reward(self, reward: float, metrics: RawMetrics) -> None:
        low, high = finite(metrics.get("reward/min")), finite(metrics.get("reward/max"))
        self.lowest = min(self.lowest, reward if low is None else low)
        self.highest = max(self.highest, reward if high is None else high)
        if len(self.first_rewards) < RECENT:
            self.first_rewards.append(reward)
        self.rewards.append(reward)
        # `reward_flat` looks at three times the patience in a run that has learned.
        del self.rewards[: -3 * self.patience]
        if len(self.rewards) >= RECENT:
            self.best = max(self.best, self.reward)

    def _add_broken(self, metrics: RawMetrics) -> None:
        """Count how many times in a row a metric was not a finite number. None means not measured, which is fine."""
        for name, value in metrics.items():
            if value is None or finite(value) is not None:
                self.broken.pop(name, None)
            else:
                self.broken[name] = self.broken.get(name, 0) + 1

    def add_evaluation(self, metrics: RawMetrics) -> None:
        self._add_broken(metrics)
        if (reward := finite(metrics.get("eval/reward_mean"))) is not None:
            self.evaluations.append(reward)
        # The task's own check, where there is one, cannot be won by pleasing the reward.
        checks = (finite(metrics.get(name)) for name in ("eval/check_mean", "eval/accuracy"))
        if (check := next((value for value in checks if value is not None), None)) is not None:
            self.checks.append(check)
            self._add_to_course(check, metrics)

    def _add_to_course(self, check: float, metrics: RawMetrics) -> None:
        """Note where check and reward stand, if it is known how far chance moves the check."""
        attempts, spread = finite(metrics.get("eval/attempts")), finite(metrics.get("eval/check_std"))
        if finite(metrics.get("eval/check_mean")) is None and 0 <= check <= 1:
            spread = math.sqrt(check * (1 - check))
        if spread is not None and attempts:
            checked = attempts * (1 - (finite(metrics.get("eval/check_failed_share")) or 0.0))
            self.course.append((check, spread / math.sqrt(max(checked, 1.0)), finite(self.reward)))

    def last(self, name: str, count: int) -> list[float]:
        """The last `count` values of a metric, or none if any of them is missing."""
        values = [v for v in self.recent.get(name, ())[-count:] if v is not None]
        return values if len(values) == count else []

    def mean(self, name: str, count: int = RECENT) -> float | None:
        values = self.last(name, count)
        return fmean(values) if values else None

    def setting(self, path: str) -> Any:
        """A value of the configuration by its dotted name, or None."""
        value: Any = self.config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def numeric(self, path: str) -> float | None:
        """A number of the configuration, or None if it is null or missing."""
        return finite(self.setting(path))

    @property
    def clip_of_totals(self) -> float | None:
        """The clip of total rewards. Only `outcome` has one; other estimators clip the reward of each step."""
        return self.numeric("advantage.reward_clip") if self.setting("advantage.estimator") == "outcome" else None

    @property
    def patience(self) -> int:
        """How many steps without a trend are too many: a fifth of the run, at least 40, at most 200."""
        return min(max(self.total_steps // 5, 40), 200)

    @property
    def reward(self) -> float:
        """The recent reward, averaged over a few steps."""
        return fmean(self.rewards[-RECENT:]) if self.rewards else math.nan

    @property
    def start(self) -> float:
        return fmean(self.first_rewards) if self.first_rewards else math.nan

    @property
    def span(self) -> float:
        """The distance between the worst and the best attempt of the run so far."""
        return max(self.highest - self.lowest, 0.0)

    @property
    def standing(self) -> float:
        """Where the recent reward lies between the worst (0) and the best (1) attempt of the run so far."""
        return (self.reward - self.lowest) / self.span if self.span else 0.5

    @property
    def learned(self) -> bool:
        # By a quarter of the range between the worst and the best attempt.
        return self.span > 0 and self.reward - self.start > 0.25 * self.span

    @property
    def solved(self) -> bool:
        return self.learned and self.standing >= 0.8

    @property
    def spread_is_missing(self) -> bool:
        shares = self.last("groups/zero_spread_share", RECENT)
        return bool(shares) and min(shares) >= 0.6

    def moved(self, name: str) -> tuple[float, float] | None:
        """The mean of a metric of the answers at the start and now; None if there is too little of either."""
        first, now = self.first_answers.get(name, []), self.mean(name, 2 * RECENT)
        return (fmean(first), now) if len(first) == RECENT and now is not None else None

    @property
    def checks_rise(self) -> bool | None:
        """Whether the held-out checks (or else the held-out rewards) are above their start; None if nobody knows."""
        held_out = self.checks or self.evaluations
        if len(held_out) < 2:
            return None
        return max(held_out[-2:]) > held_out[0] + 0.02 * max(1.0, abs(held_out[0]))

    @property
    def check_fell(self) -> tuple[float, float, float] | None:
        """The check before and now, and the reward before, if the check fell by more than chance since it was measured.

        Now is the mean of the last two evaluations. Before is the first (2 standard errors of the difference), or the
        best mean of two neighbours (3, because the best of several is high by chance).
        """
        if len(self.course) < 3 or self.checks == self.evaluations:  # a check that is the reward cannot be betrayed
            return None
        means = [
            ((a + b) / 2, math.hypot(doubt, other) / 2, now) for (a, doubt, _), (b, other, now) in pairwise(self.course)
        ]
        *earlier, (now, error, _) = means
        first, best = self.course[0], max(earlier[:-1], default=None)
        for sure, before in ((2.0, first), (3.0, best)):
            if before is not None and before[0] - now > sure * math.hypot(before[1], error):
                return before[0], now, self.start if before[2] is None else before[2]
        return None

    def rising(self, count: int) -> bool:
        # Two standard errors: about 2.5% false alarms on one side.
        slope, error = trend(self.rewards[-count:])
        return slope > 2 * error

    def state_dict(self) -> dict[str, Any]:
        # JSON and strict readers have no infinity; the three fields that start infinite are stored as None.
        state = asdict(self)
        del state["config"], state["total_steps"]
        return {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        infinite = {"lowest": math.inf, "highest": -math.inf, "best": -math.inf}
        for name, value in state.items():
            setattr(self, name, infinite[name] if value is None else copy.deepcopy(value))
        self.course = [(check, error, reward) for check, error, reward in self.course]
