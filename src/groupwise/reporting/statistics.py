"""Statistics of a comparison, in plain NumPy: no algorithm is called better than another unless these say so.

Scores are tables [..., seeds, tasks]; leading axes are bootstrap repetitions, so that a statistic is computed for all
of them at once. Interquartile mean, optimality gap, profiles, probability of improvement and the stratified bootstrap
are those of "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv 2108.13264);
`benchmarks/statistics_against_rliable.py` checks them against the authors' library.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Table: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[..., Table]
Strata: TypeAlias = Sequence[int] | None

REPETITIONS = 20_000
# With fewer seeds a result is exploratory.
EXPLORATORY = 5
# Scores resampled at a time: 256 kB of float64, however many repetitions there are.
CHUNK = 2**15


# One number for a table of scores.


def mean(scores: Table) -> Table:
    """The mean over tasks of the mean over seeds."""
    return np.asarray(scores.mean((-2, -1)))


def median(scores: Table) -> Table:
    """The median over tasks of the mean over seeds."""
    return np.asarray(np.median(scores.mean(-2), -1))


def interquartile_mean(scores: Table) -> Table:
    """The mean of the middle half of all scores: robust to outliers like a median, but far less noisy."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), -1)
    # A quarter off each end, rounded down.
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(-1))


def optimality_gap(scores: Table, target: float = 1.0) -> Table:
    """How far scores fall short of the target on average; scores above it do not compensate."""
    return np.asarray(target - np.minimum(scores, target).mean((-2, -1)))


AGGREGATES: dict[str, Statistic] = {
    "iqm": interquartile_mean,
    "mean": mean,
    "median": median,
    "optimality_gap": optimality_gap,
}


def performance_profile(scores: Table, levels: ArrayLike) -> Table:
    """The share of runs that score above each level: [..., levels]."""
    above = scores[..., np.newaxis] > np.asarray(levels, np.float64)
    return np.asarray(above.mean((-3, -2)))


def probability_of_improvement(ours: Table, theirs: Table) -> Table:
    """The probability that a run of ours beats one of theirs on a random task; a tie counts half."""
    difference = ours[..., :, np.newaxis, :] - theirs[..., np.newaxis, :, :]
    return np.asarray((0.5 + 0.5 * np.sign(difference)).mean((-3, -2, -1)))


# How certain a number is.


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95% interval, whose ends are NaN if there is only one seed."""

    value: float
    low: float
    high: float

    @property
    def spans_zero(self) -> bool:
        return not (self.low > 0 or self.high < 0)

    def as_list(self) -> list[float | None]:
        return [None if math.isnan(number) else number for number in (self.value, self.low, self.high)]


def bootstrap(
    statistic: Statistic, *tables: Table, strata: Strata = None, repetitions: int = REPETITIONS, seed: int = 0
) -> Table:
    """The statistic of `repetitions` tables whose seeds are resampled, with replacement, within each stratum.

    Tables are resampled independently. `strata` numbers the columns: tasks of one training run share a number and are
    drawn together, because they are not independent; by default every column is its own stratum.
    """
    rng = np.random.default_rng(seed)
    columns = tables[0].shape[1]
    numbers = np.unique(np.arange(columns) if strata is None else np.asarray(strata), return_inverse=True)[1]
    chunk = max(1, CHUNK // max(table.size for table in tables))
    found = []
    for start in range(0, repetitions, chunk):
        count = min(chunk, repetitions - start)
        found.append(statistic(*(_drawn(table, numbers, count, rng) for table in tables)))
    return np.concatenate(found)


def _drawn(table: Table, strata: NDArray[np.intp], count: int, rng: np.random.Generator) -> Table:
    # One row of seeds per repetition and stratum; columns of a stratum share it.
    rows = rng.integers(0, len(table), (count, len(table), strata.max() + 1), np.int32)
    if table.shape[1] != rows.shape[2]:
        rows = rows[:, :, strata]
    return np.asarray(table[rows, np.arange(table.shape[1])])


def percentile_interval(value: float, samples: Table, level: float = 0.95) -> Interval:
    """The percentile interval: the middle `level` of the bootstrap samples."""
    low, high = np.quantile(samples, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(value), float(low), float(high))


def estimate(
    statistic: Statistic, *tables: Table, strata: Strata = None, repetitions: int = REPETITIONS, seed: int = 0
) -> Interval:
    """A statistic of the tables with its 95% stratified bootstrap interval."""
    value = float(statistic(*tables))
    if min(len(table) for table in tables) < 2:
        return Interval(value, math.nan, math.nan)
    return percentile_interval(value, bootstrap(statistic, *tables, strata=strata, repetitions=repetitions, seed=seed))


# Differences, and when they may be claimed.


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean paired difference of two algorithms, its interval, and the p-value that the interval implies."""

    interval: Interval
    p: float
    seeds: int

    @property
    def exploratory(self) -> bool:
        return self.seeds < EXPLORATORY


def paired_difference(ours: Table, theirs: Table, *, strata: Strata = None) -> Difference:
    """Ours minus theirs [seeds, tasks], paired by seed: the mean, its 95% interval and a p-value.

    Claims depend on this, so it is Student's paired interval and not a bootstrap: with five seeds the percentile
    interval misses the true mean once in six, not once in twenty. Tasks of one stratum come from one run and are
    averaged first; the variances of the strata add up, with Welch's degrees of freedom, rounded down.
    """
    table = ours - theirs
    count, columns = table.shape
    if count < 2:
        return Difference(Interval(float(mean(table)), math.nan, math.nan), 1.0, count)
    numbers = np.arange(columns) if strata is None else np.asarray(strata)
    shares = [table[:, numbers == stratum].sum(1) / columns for stratum in np.unique(numbers)]
    value = float(sum(share.mean() for share in shares))
    variances = np.array([share.var(ddof=1) / count for share in shares])
    error = math.sqrt(variances.sum())
    # Seeds that all differ by the same amount: the difference is certain.
    if error <= 1e-12 * max(1.0, abs(value)):
        return Difference(Interval(value, value, value), float(value == 0), count)
    # Welch–Satterthwaite: (Σ v)² / Σ v² · (n − 1).
    freedom = int((count - 1) * variances.sum() ** 2 / np.square(variances).sum() + 1e-9)
    reach = error * student_quantile(0.975, freedom)
    p = 2 * (1 - student_cdf(abs(value) / error, freedom))
    return Difference(Interval(value, value - reach, value + reach), p, count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that can all be compared with one level, however many there are."""
    order = np.argsort(p_values, kind="stable")
    # The k-th smallest of m is multiplied by m − k + 1, and never falls below the one before it.
    raised = np.asarray(p_values, np.float64)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return [float(p) for p in corrected]


def student_cdf(t: float, freedom: int) -> float:
    """Student's distribution for integer degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    if odd:
        total = 2 / math.pi * (angle + math.sin(angle) * (total if freedom > 1 else 0.0))
    else:
        total *= math.sin(angle)
    return 0.5 + total / 2


def student_quantile(share: float, freedom: int) -> float:
    """The t below which `share` of Student's distribution lies, by bisection."""
    low, high = -1e6, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < share else (low, middle)
    return (low + high) / 2


# Time until a threshold is reached, if some runs never reach it.


@dataclass(frozen=True, slots=True)
class Survival:
    """The share of unsolved runs as a step function: `shares[i]` from `times[i]` on (Kaplan–Meier)."""

    times: tuple[float, ...]
    shares: tuple[float, ...]
    solved: int
    runs: int

    @property
    def median(self) -> float | None:
        """The time by which half of the runs are solved, or None."""
        return next((t for t, share in zip(self.times, self.shares, strict=True) if share <= 0.5), None)


def kaplan_meier(times: Sequence[float], reached: Sequence[bool]) -> Survival:
    """When runs reach a threshold. A run that has not by its last time is censored there: it counts until then.

    Leaving such runs out, as a mean over solved runs does, would reward an algorithm for its failures.
    """
    when, solved = np.asarray(times, np.float64), np.asarray(reached, np.bool_)
    events = np.unique(when[solved])
    # S(t) = Π (1 − solved at tᵢ / still running at tᵢ) over tᵢ ≤ t.
    at_risk = (when[:, np.newaxis] >= events).sum(0)
    ended = ((when[:, np.newaxis] == events) & solved[:, np.newaxis]).sum(0)
    shares = np.cumprod(1 - ended / np.maximum(at_risk, 1))
    return Survival((0.0, *events.tolist()), (1.0, *shares.tolist()), int(solved.sum()), len(when))


# Stability of a run, and of an algorithm over seeds.


def seed_spread(scores: Table) -> Table:
    """The interquartile range over seeds, averaged over tasks."""
    low, high = np.quantile(scores, [0.25, 0.75], axis=-2)
    return np.asarray((high - low).mean(-1))


def max_drawdown(scores: ArrayLike) -> float:
    """The deepest fall from a best score so far."""
    values = np.asarray(scores, np.float64)
    return float(np.max(np.maximum.accumulate(values) - values))


def collapsed(scores: ArrayLike, learned: float = 0.5) -> bool:
    """Whether normalised scores once reached `learned` and ended below half of their best."""
    values = np.asarray(scores, np.float64)
    best = float(values.max())
    return best >= learned and float(values[-1]) < best / 2


# Fairness over tasks: do all of them contribute to the average? Each counts by its mean over seeds.


def worst_task(scores: Table) -> Table:
    return np.asarray(scores.mean(-2).min(-1))


def worst_mean(scores: Table, count: int = 2) -> Table:
    """The mean of the `count` worst tasks."""
    return np.asarray(np.sort(scores.mean(-2), -1)[..., :count].mean(-1))


def task_spread(scores: Table) -> Table:
    """Best task minus worst."""
    return np.asarray(np.ptp(scores.mean(-2), -1))


def gini(scores: Table) -> Table:
    """0 if all tasks score the same, near 1 if one has everything; scores below 0 count as 0."""
    values = np.sort(np.maximum(scores.mean(-2), 0.0), -1)
    count = values.shape[-1]
    total = values.sum(-1)
    ranked = (values * (2 * np.arange(1, count + 1) - count - 1)).sum(-1)
    return np.asarray(np.divide(ranked, count * total, out=np.zeros_like(total), where=total > 0))


def least_to_mean(scores: Table) -> Table:
    """The worst task over the mean of all: 1 is even, 0 means a task learned nothing. Scores below 0 count as 0."""
    values = np.maximum(scores.mean(-2), 0.0)
    average = values.mean(-1)
    return np.asarray(np.divide(values.min(-1), average, out=np.zeros_like(average), where=average > 0))


FAIRNESS: dict[str, Statistic] = {
    "worst_task": worst_task,
    "worst_two": worst_mean,
    "gini": gini,
    "least_to_mean": least_to_mean,
    "spread": task_spread,
}
