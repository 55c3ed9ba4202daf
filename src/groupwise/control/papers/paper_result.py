"""The result of repeating a paper's central experiment on a small scale."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from groupwise.reporting.statistics import Interval, paired_difference

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """A paper's claim, whether the effect appeared, and the numbers, as a table and by name.

    `effects` decide: each is a number with its 95% interval over two or more seeds. `lesson` says what that means for
    users of this package.
    """

    name: str
    title: str
    claim: str
    appeared: bool
    outcome: str
    lesson: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    effects: Mapping[str, Interval]
    seeds: tuple[int, ...]
    raw: Any

    @property
    def sentence(self) -> str:
        """The claim and whether the effect appeared, in one sentence."""
        return f"{self.claim}: {'reproduced' if self.appeared else 'not reproduced'}, {self.outcome}."


Experiment = Callable[[Sequence[int], Progress], PaperFinding]


def gain(ours: ArrayLike, theirs: ArrayLike) -> Interval:
    """Ours minus theirs [seeds], paired by seed: the mean difference with Student's 95% interval."""
    return paired_difference(_column(ours), _column(theirs)).interval


def ratio(ours: ArrayLike, theirs: ArrayLike) -> Interval:
    """Ours over theirs [seeds], paired by seed: the geometric mean, with the interval of its logarithm."""
    # Ratios are symmetric on a log scale: twice and half as many are equally far from 1.
    found = gain(np.log(_column(ours)), np.log(_column(theirs)))
    return Interval(*(math.exp(number) for number in (found.value, found.low, found.high)))


def mean_of(values: Sequence[float]) -> Interval:
    """The mean over seeds with its interval."""
    return gain(values, np.zeros(len(values)))


def with_interval(interval: Interval, digits: int = 2) -> str:
    """A number with its interval, in a sentence."""
    return f"{interval.value:.{digits}f} ({interval.low:.{digits}f} to {interval.high:.{digits}f})"


def cell(values: Sequence[float], digits: int = 2) -> str:
    """A mean over seeds with its interval, in a table."""
    found = mean_of(values)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f}..{found.high:.{digits}f})"


def _column(values: ArrayLike) -> Any:
    return np.asarray(values, np.float64).reshape(-1, 1)
