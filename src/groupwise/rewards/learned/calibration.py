"""From a model's r to a score in (0, 1) that can be believed: capped, lowered by doubt, and calibrated.

    lower = min(r, cap) − spread · doubt − deviation
    score = σ(slope · (lower − centre))

The cap is the 95th percentile of r over known replies, since nothing is known beyond them; the spread is the distance
from the 5th to the 95th, so a reply that is certainly fake scores no more than the worst known ones; the deviation is
that of the network's heads. The slope (one over the temperature) makes P(a is better than b) = σ(logit score(a) −
logit score(b)) as likely as it turns out on held-out pairs. The centre is the mean of known replies, which score 0.5.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

SLOPES = np.geomspace(1 / 32, 32, 121)  # times one over the typical margin
PRIOR = 2.0  # standard deviation of the logarithm of the slope, in the same unit


@dataclass
class ScoreScale:
    """The numbers above; without any evidence, score = σ(r)."""

    cap: float = float("inf")
    spread: float = 1.0
    centre: float = 0.0
    slope: float = 1.0

    def fit_range(self, known: Floats) -> None:
        """Set cap, spread and centre from r of known replies."""
        low, high = np.quantile(known, [0.05, 0.95])
        self.cap, self.spread = float(high), float(max(high - low, 1e-6))
        self.centre = float(np.minimum(known, high).mean())

    def lower(self, rewards: Floats, doubts: Floats, deviations: Floats) -> Floats:
        return np.asarray(np.minimum(rewards, self.cap) - self.spread * doubts - deviations, np.float64)

    def fit_slope(self, margins: Floats) -> None:
        """Set the slope by maximum likelihood from `lower(better) − lower(worse)` of held-out pairs."""
        typical = float(np.abs(margins).mean()) if len(margins) else 0.0
        if typical <= 0:
            return
        losses = np.logaddexp(0, -SLOPES[:, None] * margins / typical).sum(1) + np.square(np.log(SLOPES) / PRIOR) / 2
        self.slope = float(SLOPES[losses.argmin()] / typical)

    def scores(self, lower: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-np.clip(self.slope * (lower - self.centre), -30, 30))), np.float64)

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, float(value))


def calibration_error(chances: Floats, bins: int = 10) -> float:
    """The expected calibration error of the chances that the better reply was given over the worse one.

    Each pair counts once, as the larger chance and whether it was right: |mean chance − share right| over bins of as
    many pairs each, weighted by their size (Naeini et al. 2015, with bins of equal mass).
    """
    sure, right = np.maximum(chances, 1 - chances), chances > 0.5
    order = np.argsort(sure, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    return float(sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in parts) / len(order))
