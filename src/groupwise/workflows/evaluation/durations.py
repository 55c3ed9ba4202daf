"""Moments of a duration at a pool's speed: cut off below at 0 (normal distributions) and above by a timeout.

"scv" is the squared coefficient of variation, variance / mean².
"""

import math

from groupwise.workflows.requirements import Duration

STEPS = 400  # intervals of the midpoint rule up to a timeout
LARGE_SHAPE = 10_000.0  # above it the series of the incomplete gamma function would need thousands of terms


def moments(duration: Duration, speed: float = 1.0, timeout: float = math.inf) -> tuple[float, float, float]:
    """Mean and scv of one try, and the probability that it runs into the timeout."""
    mean, scv = duration.mean / speed, duration.scv
    if mean == 0:
        return 0.0, 0.0, 0.0
    if scv == 0:
        return min(mean, timeout), 0.0, float(mean > timeout)
    if math.isinf(timeout):
        return (*_above_zero(mean, scv), 0.0) if duration.kind == "normal" else (mean, scv, 0.0)
    first, second = _cut_off(duration.kind, mean, scv, timeout)
    return first, max(second / first**2 - 1, 0.0), 1 - cdf(duration.kind, mean, scv, timeout)


def _above_zero(mean: float, scv: float) -> tuple[float, float]:
    # Mean and scv of max(0, X) for a normal X: a duration that would be negative takes no time.
    # With r = μ/σ: E[max(0, X)] = μ Φ(r) + σ φ(r) and E[max(0, X)²] = (μ² + σ²) Φ(r) + μ σ φ(r).
    std = mean * math.sqrt(scv)
    ratio = mean / std
    density = math.exp(-ratio * ratio / 2) / math.sqrt(2 * math.pi)
    first = mean * _phi(ratio) + std * density
    second = (mean * mean + std * std) * _phi(ratio) + mean * std * density
    return first, second / first**2 - 1


def _cut_off(kind: str, mean: float, scv: float, timeout: float) -> tuple[float, float]:
    """E[min(X, τ)] = ∫ 1 − F and E[min(X, τ)²] = ∫ 2x (1 − F), both from 0 to τ, by the midpoint rule."""
    step = timeout / STEPS
    first = second = 0.0
    for number in range(STEPS):
        x = (number + 0.5) * step
        left = 1 - cdf(kind, mean, scv, x)
        first += left * step
        second += 2 * x * left * step
    return first, second


def cdf(kind: str, mean: float, scv: float, x: float) -> float:
    """P(X ≤ x) for x > 0, by the name of the distribution."""
    std = mean * math.sqrt(scv)
    match kind:
        case "exponential":
            return 1 - math.exp(-x / mean)
        case "normal":
            return _phi((x - mean) / std)
        case "uniform":  # a standard deviation is the width over 2√3
            return min(max((x - mean) / (2 * math.sqrt(3) * std) + 0.5, 0.0), 1.0)
        case "lognormal":
            spread = math.log1p(scv)  # variance of the logarithm, whose mean is ln(mean) − spread / 2
            return _phi((math.log(x / mean) + spread / 2) / math.sqrt(spread))
        case "gamma":  # shape 1 / scv, scale mean · scv
            return gamma_cdf(1 / scv, x / (mean * scv))
        case _:
            return float(x >= mean)


def gamma_cdf(shape: float, x: float) -> float:
    """The regularised lower incomplete gamma function P(shape, x), by its power series."""
    if x > shape + 12 * math.sqrt(shape) + 40:  # more than twelve deviations above the mean
        return 1.0
    if shape > LARGE_SHAPE:  # Wilson and Hilferty (1931): the cube root is nearly normal
        return _phi(3 * math.sqrt(shape) * ((x / shape) ** (1 / 3) - 1 + 1 / (9 * shape)))
    term = total = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1))
    number = 1
    # Terms grow as long as shape + number < x, and then fall.
    while term >= 1e-12 * total > 0:
        term *= x / (shape + number)
        total += term
        number += 1
    return min(total, 1.0)


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
