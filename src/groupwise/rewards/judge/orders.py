"""The orders in which a judge sees the attempts of a group, and the effect that a place has on its marks.

Several orders of one group are balanced: every attempt has the same mean place, or nearly, so a judge whose marks rise
or fall along the page favours nobody. What balance cannot remove (a bonus for the first place goes to three of eight
attempts) is estimated over the groups so far and taken off:

    mark = quality of the attempt + b · x(place) + noise,    x = (first, last, slope from +½ to −½)

The estimate is Bayesian, b ~ N(0, 0.15²), and is used only if it is large and certain: a judge without such an effect
is left alone.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = list[int]
"""The place at which each attempt is shown, from 0."""


def balanced_orders(attempts: int, count: int, rng: random.Random) -> list[Places]:
    """`count` orders, each random by itself, in which all attempts have the same mean place if that is possible.

    Two orders are a random one and its reverse. Three are the rows of a magic rectangle in random columns: the three
    places of an attempt add up to 3(n − 1)/2, or to the whole numbers beside it if that is a fraction. More orders are
    made of these.
    """
    orders: list[Places] = []
    while len(orders) < count:
        left = count - len(orders)
        rows = _one(attempts) if left == 1 else _three(attempts) if left % 2 else _two(attempts)
        columns = rng.sample(range(attempts), attempts)
        drawn = [[row[column] for column in columns] for row in rows]
        rng.shuffle(drawn)
        orders += drawn
    return orders


def _one(n: int) -> list[Places]:
    return [list(range(n))]


def _two(n: int) -> list[Places]:
    return [list(range(n)), list(range(n))[::-1]]


def _three(n: int) -> list[Places]:
    first = list(range(n))
    # The sums first + second are distinct, and consecutive if n is odd, so a third row can level them.
    low, high = (n - 1) // 2, n - 1
    second = [(high if place % 2 else low) - place // 2 for place in first]
    by_sum = sorted(first, key=lambda i: -(first[i] + second[i]))
    third = [0] * n
    for place, i in enumerate(by_sum):
        third[i] = place
    return [first, second, third]


EFFECTS = ("first", "last", "slope")
PRIOR = 0.15  # standard deviation of an effect before anything was seen
LEAST_EFFECT, LEAST_CERTAINTY = 0.05, 5.0  # on the scale of marks, and in standard errors
TYPICAL = 8  # attempts for which the size of an effect is stated


def place_features(n: int) -> Floats:
    """x of every place, [n, 3], each column with mean 0 so that removing an effect leaves the mean mark as it is."""
    x = np.zeros((n, 3))
    x[0, 0] = x[-1, 1] = 1.0
    x[:, 2] = 0.5 - np.arange(n) / max(n - 1, 1)
    return np.asarray(x - x.mean(0), np.float64)


class OrderEffect(NamedTuple):
    """The largest difference that a place makes to a group of eight: its size, and that over its standard error."""

    size: float
    certainty: float
    best: int
    worst: int

    @property
    def proven(self) -> bool:
        return self.size >= LEAST_EFFECT and self.certainty >= LEAST_CERTAINTY


class _Evidence:
    """Sums over groups: XᵀX [3, 3], Xᵀy [3, K], yᵀy [K], and the degrees of freedom."""

    def __init__(self, criteria: int) -> None:
        self.xx, self.xy, self.yy = np.zeros((3, 3)), np.zeros((3, criteria)), np.zeros(criteria)
        self.freedom = 0.0

    def add(self, x: Floats, y: Floats, freedom: int) -> None:
        self.xx += x.T @ x
        self.xy += x.T @ y
        self.yy += np.square(y).sum(0)
        self.freedom += freedom

    def noise(self, criterion: int, effect: Floats) -> float:
        """The variance that the effect leaves, with one observation of 0.2² added so that it is never 0."""
        left = self.yy[criterion] - 2 * effect @ self.xy[:, criterion] + effect @ self.xx @ effect
        return float((max(left, 0.0) + 0.04) / (self.freedom + 1))

    def packed(self) -> dict[str, Any]:
        return {"xx": self.xx.tolist(), "xy": self.xy.tolist(), "yy": self.yy.tolist(), "freedom": self.freedom}

    def unpack(self, state: Mapping[str, Any]) -> None:
        self.xx, self.xy, self.yy = (np.array(state[name]) for name in ("xx", "xy", "yy"))
        self.freedom = float(state["freedom"])


class PlaceEffects:
    """What places do to the marks of each criterion, learned from every group.

    A group in several orders shows it directly, as differences between marks of the same attempt. A group in one order
    shows it only against the differences between attempts, so about ten times as many are needed.
    """

    def __init__(self, criteria: int) -> None:
        self.criteria = criteria
        self.within, self.between = _Evidence(criteria), _Evidence(criteria)
        self._solved: list[tuple[Floats, Floats]] | None = None

    def learn(self, places: Sequence[Places], marks: Floats) -> None:
        """Take in a group: `places` of each order, and `marks` [orders, attempts, criteria]."""
        orders, n, _ = marks.shape
        if n < 2:
            return
        x, y = place_features(n)[np.array(places)], marks - marks.mean(1, keepdims=True)
        if orders > 1:
            x, y = x - x.mean(0), y - y.mean(0)
        evidence = self.within if orders > 1 else self.between
        evidence.add(x.reshape(-1, 3), y.reshape(-1, self.criteria), (n - 1) * max(orders - 1, 1))
        self._solved = None

    def removed(self, places: Sequence[Places], marks: Floats) -> Floats:
        """The marks without the effect of their places, in [0, 1]; unchanged unless the effect is proven."""
        if marks.shape[1] < 2 or not self.largest().proven:
            return marks
        effects = np.stack([effect for effect, _ in self._effects()], 1)
        return np.asarray((marks - place_features(marks.shape[1])[np.array(places)] @ effects).clip(0, 1), np.float64)

    def largest(self) -> OrderEffect:
        """The effect on the mean of the criteria, for a group of eight."""
        solved = self._effects()
        x = place_features(TYPICAL)
        along = x @ np.mean([effect for effect, _ in solved], 0)
        best, worst = int(along.argmax()), int(along.argmin())
        apart = x[best] - x[worst]
        # Criteria of one answer err together, so their mean is taken to be no more certain than one of them.
        error = math.sqrt(np.mean([apart @ covariance @ apart for _, covariance in solved]))
        size = float(along[best] - along[worst])
        return OrderEffect(size, size / max(error, 1e-12), best, worst)

    def _effects(self) -> list[tuple[Floats, Floats]]:
        """The effect [3] on each criterion, and its covariance [3, 3]."""
        if self._solved is None:
            self._solved = [self._solve(criterion) for criterion in range(self.criteria)]
        return self._solved

    def _solve(self, criterion: int) -> tuple[Floats, Floats]:
        effect, covariance = np.zeros(3), np.eye(3) * PRIOR**2
        # The noise depends on the effect, and the effect on the noise: three rounds settle it.
        for _ in range(3):
            precision, pull = np.eye(3) / PRIOR**2, np.zeros(3)
            for evidence in (self.within, self.between):
                noise = evidence.noise(criterion, effect)
                precision = precision + evidence.xx / noise
                pull = pull + evidence.xy[:, criterion] / noise
            covariance = np.asarray(np.linalg.inv(precision), np.float64)
            effect = covariance @ pull
        return effect, covariance

    def state_dict(self) -> dict[str, Any]:
        return {"within": self.within.packed(), "between": self.between.packed()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.within.unpack(state["within"])
        self.between.unpack(state["between"])
        self._solved = None
