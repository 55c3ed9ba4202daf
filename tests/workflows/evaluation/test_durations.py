"""Distribution functions and cut-off moments against SciPy's."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import integrate, stats

from groupwise.workflows.evaluation.durations import cdf, gamma_cdf, moments
from groupwise.workflows.requirements import Duration

MEAN = 10.0


def peer(kind: str, scv: float) -> Any:
    """SciPy's distribution with this mean and squared coefficient of variation."""
    std = MEAN * math.sqrt(scv)
    half, spread = math.sqrt(3) * std, math.log1p(scv)
    return {
        "exponential": lambda: stats.expon(scale=MEAN),
        "normal": lambda: stats.norm(MEAN, std),
        "uniform": lambda: stats.uniform(MEAN - half, 2 * half),
        "lognormal": lambda: stats.lognorm(math.sqrt(spread), scale=MEAN * math.exp(-spread / 2)),
        "gamma": lambda: stats.gamma(1 / scv, scale=MEAN * scv),
    }[kind]()


KINDS = [
    ("exponential", 1.0),
    *((kind, scv) for kind in ("normal", "uniform", "lognormal", "gamma") for scv in (0.04, 0.3)),
]


@pytest.mark.parametrize(("kind", "scv"), [*KINDS, ("gamma", 1.7), ("lognormal", 2.5)])
def test_distribution_functions_are_scipys(kind: str, scv: float) -> None:
    for x in (0.01, 1.0, 5.0, 9.9, 10.0, 10.1, 13.0, 25.0, 90.0, 5_000.0):
        assert cdf(kind, MEAN, scv, x) == pytest.approx(peer(kind, scv).cdf(x), abs=1e-9), x


def test_a_fixed_duration_is_there_at_its_moment_and_not_before() -> None:
    assert [cdf("fixed", 10.0, 0.0, x) for x in (9.99, 10.0, 10.01)] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("shape", [0.2, 1.0, 3.5, 40.0, 900.0, 9_999.0, 20_000.0, 1e7])
def test_the_incomplete_gamma_function_is_scipys(shape: float) -> None:
    for ratio in (0.01, 0.5, 0.97, 0.999, 1.0, 1.001, 1.1, 2.0, 30.0):
        exact = stats.gamma(shape).cdf(shape * ratio)
        assert gamma_cdf(shape, shape * ratio) == pytest.approx(exact, abs=1e-9 if shape < 10_000 else 1e-5), ratio


@pytest.mark.parametrize(("kind", "scv"), KINDS)
@pytest.mark.parametrize(("speed", "timeout"), [(1.0, 4.0), (2.0, 4.0), (0.5, 30.0), (1.0, 200.0)])
def test_moments_up_to_a_timeout_are_integrals_of_what_is_left(
    kind: Any, scv: float, speed: float, timeout: float
) -> None:
    """E[min(X, τ)] = ∫ P(X > x) and E[min(X, τ)²] = ∫ 2x P(X > x); a duration below 0 takes no time."""
    known = peer(kind, scv)
    first = integrate.quad(lambda x: known.sf(x * speed), 0, timeout, limit=200)[0]
    second = integrate.quad(lambda x: 2 * x * known.sf(x * speed), 0, timeout, limit=200)[0]
    duration = Duration(kind=kind, mean=MEAN, std=MEAN * math.sqrt(scv))
    mean, found, late = moments(duration, speed, timeout)
    assert mean == pytest.approx(first, rel=1e-3)
    assert found == pytest.approx(max(second / first**2 - 1, 0), rel=5e-3, abs=5e-4)
    assert late == pytest.approx(known.sf(timeout * speed), abs=1e-9)


@pytest.mark.parametrize("scv", [0.04, 0.3, 4.0])
def test_a_normal_duration_is_cut_off_at_nothing(scv: float) -> None:
    known = peer("normal", scv)
    first = integrate.quad(lambda x: known.sf(x), 0, 200)[0]
    second = integrate.quad(lambda x: 2 * x * known.sf(x), 0, 200)[0]
    found = moments(Duration(kind="normal", mean=MEAN, std=MEAN * math.sqrt(scv)))
    assert found == pytest.approx((first, second / first**2 - 1, 0.0), rel=1e-6)


def test_without_a_timeout_nothing_is_late_and_a_pool_only_scales() -> None:
    for kind, scv in KINDS:
        if kind != "normal":
            duration = Duration(kind=kind, mean=MEAN, std=MEAN * math.sqrt(scv))  # type: ignore[arg-type]
            assert moments(duration, 4.0) == pytest.approx((2.5, scv, 0.0))


@pytest.mark.parametrize(
    ("timeout", "wanted"), [(4.99, (4.99, 0, 1)), (5.0, (5, 0, 0)), (5.01, (5, 0, 0)), (math.inf, (5, 0, 0))]
)
def test_fixed_durations_are_late_only_beyond_the_timeout(timeout: float, wanted: tuple[float, float, float]) -> None:
    assert moments(Duration(kind="fixed", mean=MEAN), 2.0, timeout) == wanted


def test_nothing_to_do_takes_no_time_and_is_never_late() -> None:
    assert moments(Duration(mean=0.0), 2.0, 1e-9) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("std", [0.5, 0.3, 0.1, 0.001])
def test_work_that_hardly_varies_is_in_time_if_it_may_take_twice_as_long(std: float) -> None:
    mean, _, late = moments(Duration(kind="gamma", mean=MEAN, std=std), timeout=2 * MEAN)
    assert (mean, late) == (pytest.approx(MEAN, rel=1e-3), pytest.approx(0, abs=1e-9))
