"""Gamma distributions from a table: the maximum and order statistics of several, and the minimum with a uniform time.

A time known by mean and variance is taken as a gamma distribution of shape k = mean²/variance (exact for k = 1, the
exponential). Its distribution function is interpolated in a table, because the incomplete gamma function is slow.
"""

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import Floats
from groupwise.workflows.evaluation.numba_compiler import inner

# Intervals of Simpson's rule; both are even, as the rule requires.
POINTS, FEWER = 32, 24
# Below this squared coefficient of variation a time counts as constant.
STEADY = 1e-4
# Rows: four shapes per octave from 2^−3; columns: 512 places of y = t/(1 + t), which maps [0, ∞) to [0, 1).
SHAPES, LOWEST_SHAPE, PER_OCTAVE, PLACES = 48, -3.0, 4.0, 512


def gamma_table() -> Floats:
    """The gamma distribution function of mean 1 for shapes 2^−3 to 2^8.75; shape [SHAPES, PLACES + 1].

    By the series P(k, x) = x^k e^−x / Γ(k + 1) · Σ x^n / ((k + 1) … (k + n)), with x = k t for mean 1.
    """
    shape = 2.0 ** (LOWEST_SHAPE + np.arange(SHAPES)[:, None] / PER_OCTAVE)
    y = np.arange(PLACES) / PLACES
    x = y / (1 - y) * shape
    with np.errstate(divide="ignore"):
        gammas = np.array([math.lgamma(k + 1) for k in shape[:, 0]])[:, None]
        term = np.exp(shape * np.log(x) - x - gammas)
    total = term.copy()
    for number in range(1, 900):  # converges for all x below the cut-off of the next statement
        term = term * x / (shape + number)
        total += term
    total[x > shape + 12 * np.sqrt(shape) + 40] = 1.0
    whole: Floats = np.minimum(np.column_stack([total, np.ones(SHAPES)]), 1.0)
    return whole


@inner
def row_of(mean: float, var: float) -> float:
    """The (fractional) row of the gamma distribution with this mean and variance; −1 for a constant."""
    if mean <= 0 or var <= STEADY * mean * mean:
        return -1.0
    row = (math.log2(mean * mean / var) - LOWEST_SHAPE) * PER_OCTAVE
    # Strictly below the last row, because `below` interpolates with row + 1.
    return min(max(row, 0.0), SHAPES - 1.001)


@inner
def below(table: Floats, row: float, t: float) -> float:
    """P(T ≤ t · mean), by bilinear interpolation."""
    place = t / (1 + t) * PLACES
    r, p = int(row), int(place)
    dr, dp = row - r, place - p
    low = table[r, p] + dp * (table[r, p + 1] - table[r, p])
    high = table[r + 1, p] + dp * (table[r + 1, p + 1] - table[r + 1, p])
    return float(low + dr * (high - low))


@inner
def phi(z: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-z * 0.7071067811865476)


@inner
def distribution(table: Floats, mean: float, var: float, x: float) -> float:
    """P(T ≤ x) for a gamma distribution or a constant."""
    row = row_of(mean, var)
    if row < 0:
        return 1.0 if x >= mean else 0.0
    return below(table, row, x / mean) if x > 0 else 0.0


@inner
def simpson(point: int, points: int) -> float:
    """The weight of a point in Simpson's rule, in multiples of the step."""
    if point == 0 or point == points:
        return 1 / 3
    return 4 / 3 if point % 2 else 2 / 3


@inner
def latest(table: Floats, means: Floats, variances: Floats, count: int, shared: float) -> tuple[float, float]:
    """Mean and variance of the maximum of `count` times whose pairwise covariance is `shared`.

    E[max] = ∫ 1 − Π F_i and E[max²] = ∫ 2x (1 − Π F_i), with each F_i of the variance that is its own; the shared
    variance is added at the end. Overwrites `variances` with rows of the table.
    """
    # Below `floor`, the longest constant, the maximum cannot lie; above `top`, seven deviations, it hardly does.
    top, floor, longest = 0.0, 0.0, 0.0
    for i in range(count):
        own = max(variances[i] - shared, 0.0)
        variances[i] = row_of(means[i], own)
        longest = max(longest, means[i])
        if variances[i] < 0:
            floor = max(floor, means[i])
        else:
            top = max(top, means[i] + 7 * math.sqrt(own))
    if top <= floor:
        return longest, shared
    step = (top - floor) / POINTS
    first = second = 0.0
    for point in range(POINTS + 1):
        x = floor + point * step
        product = 1.0
        for i in range(count):
            if variances[i] >= 0:
                product *= below(table, variances[i], x / means[i])
        left = simpson(point, POINTS) * step * (1 - product)
        first += left
        second += 2 * x * left
    first += floor  # the integrals from 0 to floor, where 1 − Π F_i is 1
    second += floor * floor
    return max(first, longest), max(second - first * first, 0.0) + shared


@inner
def earliest(
    table: Floats, mean: float, var: float, goes_on: float, least: int, most: int, enough: int
) -> tuple[float, float, float]:
    """Copies of one activity, `least` to `most` with equal probability, each ending well with probability `goes_on`.

    Returns mean and second moment of the time until `enough` have ended well or all have ended, and the probability
    that enough do. E[T] = ∫ P(T > x), E[T²] = ∫ 2x P(T > x).
    """
    row, top = row_of(mean, var), mean + 8 * math.sqrt(var)
    first = second = well = 0.0
    for copies in range(least, most + 1):
        well += at_least(copies, enough, goes_on) / (most - least + 1)
    if row < 0:
        return mean, mean * mean, well
    step = top / FEWER
    for point in range(FEWER):
        f = below(table, row, point * step / mean)  # the last point, F ≈ 1, contributes nothing and is left out
        still = 0.0
        for copies in range(least, most + 1):
            still += 1 - at_least(copies, enough, goes_on * f)
            if goes_on < 1:  # all ended, but too few of them well: then it is over too
                still -= f**copies * (1 - at_least(copies, enough, goes_on))
        left = simpson(point, FEWER) * step * still / (most - least + 1)
        first += left
        second += 2 * point * step * left
    return first, second, well


@inner
def at_least(copies: int, enough: int, p: float) -> float:
    """P(at least `enough` of `copies` succeed), each with probability p: a binomial tail."""
    if p >= 1:
        return 1.0
    # 1 − Σ_{k < enough} C(n, k) p^k (1 − p)^(n − k), each term from the one before it.
    term, missing = 1.0, 0.0
    for _ in range(copies):
        term *= 1 - p
    for k in range(enough):
        missing += term
        term *= (copies - k) / (k + 1) * p / (1 - p)
    return max(1 - missing, 0.0)


@inner
def cut_short(table: Floats, mean: float, var: float, limit: float) -> tuple[float, float]:
    """Mean and second moment of min(U, T), with U uniform on [0, limit], by the midpoint rule with 16 intervals."""
    step = limit / 16
    first = second = 0.0
    for point in range(16):
        x = (point + 0.5) * step
        still = (1 - x / limit) * (1 - distribution(table, mean, var, x))
        first += still * step
        second += 2 * x * still * step
    return first, second
