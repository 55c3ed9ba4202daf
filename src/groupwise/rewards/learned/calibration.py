"""From a model's r to a score in (0, 1) that can be believed: capped, lowered by doubt, and calibrated.

    lower = min(r, cap) − spread · doubt − deviation
    score = σ(s · (lower − centre)),    s = slope, but at most 4 / spread
    P(a is better than b) = wrong + (1 − 2 · wrong) · σ(slope · (lower(a) − lower(b)))

The cap is the 90th percentile of r over known replies, since little is known beyond them; the spread is the distance
from the 5th to the 95th, so a reply that is certainly fake scores no more than the worst known ones; the deviation is
that of the network's heads. The slope (one over the temperature) and the share of wrong labels make P as likely as it
turns out on pairs that were not learned from. The centre is the mean of known replies, which score 0.5. A few pairs,
all predicted right, make a steep slope; the limit keeps scores of doubted replies apart all the same.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

SLOPES = np.geomspace(1 / 32, 32, 121)  # times one over the typical margin
WRONG = np.linspace(0.0, 0.3, 16)  # shares of wrong labels
STEEPEST = 4.0  # known replies then score from about 0.1 to 0.9
PRIOR = 2.0  # standard deviation of the logarithm of the slope, in the same unit


@dataclass
class ScoreScale:
    """The numbers above; without any evidence, score = σ(r)."""

    cap: float = float("inf")
    spread: float = 1.0
    centre: float = 0.0
    slope: float = 1.0
    wrong: float = 0.0

    def fit_range(self, known: Floats) -> None:
        """Set cap, spread and centre from r of known replies."""
        low, cap, high = np.quantile(known, [0.05, 0.9, 0.95])
        self.cap, self.spread = float(cap), float(max(high - low, 1e-6))
        self.centre = float(np.minimum(known, cap).mean())

    def lower(self, rewards: Floats, doubts: Floats, deviations: Floats) -> Floats:
        return np.asarray(np.minimum(rewards, self.cap) - self.spread * doubts - deviations, np.float64)

    def fit_chances(self, margins: Floats) -> float:
        """Set slope and wrong by maximum likelihood from `lower(better) − lower(worse)` of pairs not learned from.

        Returns the loss, −log likelihood, which is comparable between models whatever the scale of their r.
        """
        typical = float(np.abs(margins).mean()) if len(margins) else 0.0
        if typical <= 0:
            return len(margins) * float(np.log(2))
        likely = 1 / (1 + np.exp(-SLOPES[:, None] * margins / typical))  # [slopes, pairs]
        chances = WRONG[:, None, None] + (1 - 2 * WRONG[:, None, None]) * likely
        losses = -np.log(np.maximum(chances, 1e-12)).sum(2) + np.square(np.log(SLOPES) / PRIOR) / 2
        wrong, slope = np.unravel_index(losses.argmin(), losses.shape)
        self.wrong, self.slope = float(WRONG[wrong]), float(SLOPES[slope] / typical)
        return float(losses.min())

    def chances(self, margins: Floats) -> Floats:
        """P that the first of two replies is the better one, given the difference of their lower bounds."""
        likely = 1 / (1 + np.exp(-np.clip(self.slope * margins, -30, 30)))
        return np.asarray(self.wrong + (1 - 2 * self.wrong) * likely, np.float64)

    def scores(self, lower: Floats) -> Floats:
        slope = min(self.slope, STEEPEST / self.spread)
        return np.asarray(1 / (1 + np.exp(-np.clip(slope * (lower - self.centre), -30, 30))), np.float64)

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
