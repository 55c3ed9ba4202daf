"""Statistics by hand-computed cases, and by simulation where only the long run can tell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest

from groupwise.reporting import statistics as st

TABLE = np.array([[0.0, 8.0], [2.0, 4.0], [1.0, 100.0], [3.0, 6.0]])


def test_aggregates_of_a_table_worked_out_by_hand() -> None:
    assert st.mean(TABLE) == 15.5
    assert st.median(TABLE) == (1.5 + 29.5) / 2
    assert st.interquartile_mean(TABLE) == (2 + 3 + 4 + 6) / 4
    assert st.optimality_gap(TABLE, 4.0) == 4 - (0 + 2 + 1 + 3 + 4 * 4) / 8


def test_an_outlier_moves_the_mean_and_not_the_interquartile_mean() -> None:
    wild = TABLE.copy()
    wild[2, 1] = 1e9
    assert st.interquartile_mean(wild) == st.interquartile_mean(TABLE)


@pytest.mark.parametrize("statistic", [*st.AGGREGATES.values(), *st.FAIRNESS.values(), st.seed_spread])
def test_a_stack_of_tables_is_treated_table_by_table(statistic: st.Statistic) -> None:
    stack = np.random.default_rng(0).normal(size=(3, 6, 4))
    np.testing.assert_allclose(statistic(stack), [statistic(table) for table in stack])


def test_performance_profile_counts_runs_above_each_level() -> None:
    np.testing.assert_allclose(st.performance_profile(TABLE, [-1.0, 0.0, 3.0, 8.0]), [1, 7 / 8, 4 / 8, 1 / 8])


def test_probability_of_improvement_counts_ties_half() -> None:
    ours, theirs = np.array([[1.0], [2.0]]), np.array([[1.0], [0.0]])
    assert st.probability_of_improvement(ours, theirs) == (0.5 + 1 + 1 + 1) / 4
    assert st.probability_of_improvement(theirs, ours) == 1 - 3.5 / 4


def test_the_bootstrap_repeats_with_its_seed_and_only_then() -> None:
    first, again = (st.bootstrap(st.mean, TABLE, repetitions=50, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, st.bootstrap(st.mean, TABLE, repetitions=50, seed=2))
    usual = st.bootstrap(st.mean, TABLE)
    np.testing.assert_array_equal(usual, st.bootstrap(st.mean, TABLE, repetitions=20_000, seed=0))


def test_chunks_add_up_to_the_repetitions() -> None:
    assert len(st.bootstrap(st.mean, np.zeros((100, 50)), repetitions=37)) == 37


def test_columns_of_one_run_are_drawn_together() -> None:
    """Two tasks whose scores cancel: their mean varies only if they are drawn apart."""
    table = np.array([[k, -k] for k in range(8)], np.float64)
    together = st.bootstrap(st.mean, table, strata=[0, 0], repetitions=200)
    apart = st.bootstrap(st.mean, table, repetitions=200)
    assert np.ptp(together) == 0
    assert np.ptp(apart) > 1


def test_the_interval_of_many_seeds_covers_the_truth_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(300):
        found = st.estimate(st.mean, rng.exponential(1.0, (40, 3)), repetitions=1000, seed=trial)
        hits += found.low <= 1.0 <= found.high
    assert 0.90 <= hits / 300 <= 0.98


@pytest.mark.parametrize("strata", [[0], [0, 0], [0, 1, 1]])
def test_differences_that_are_not_there_are_seldom_claimed_even_of_five_seeds(strata: list[int]) -> None:
    rng = np.random.default_rng(1)
    trials, claims = 600, 0
    for _ in range(trials):
        runs = rng.normal(size=(5, max(strata) + 1)) * rng.uniform(0.1, 5, max(strata) + 1)
        found = st.paired_difference(runs[:, strata], np.zeros((5, len(strata))), strata=strata)
        claims += not found.interval.spans_zero
    assert 0.02 <= claims / trials <= 0.075


def test_the_usual_interval_of_five_seeds_is_too_narrow_to_claim_a_difference_by() -> None:
    rng = np.random.default_rng(1)
    claims = [not st.estimate(st.mean, rng.normal(size=(5, 1)), repetitions=500).spans_zero for _ in range(300)]
    assert np.mean(claims) > 0.1


def test_tasks_of_one_run_are_one_observation() -> None:
    """The same numbers in two columns are no more evidence than in one."""
    column = np.random.default_rng(2).normal(0.5, 1, (6, 1))
    twice = np.repeat(column, 2, 1)
    alone = st.paired_difference(column, np.zeros((6, 1)))
    assert st.paired_difference(twice, 0 * twice, strata=[0, 0]).p == pytest.approx(alone.p)
    assert st.paired_difference(twice, 0 * twice).p < alone.p


def test_the_paired_interval_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, standard error 1/√3, t of two degrees of freedom 4.30265."""
    found = st.paired_difference(np.array([[1.0], [2.0], [3.0]]), np.zeros((3, 1)))
    assert found.interval.low == pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-4)
    assert found.p == pytest.approx(0.0742, abs=1e-4)


def test_two_seeds_have_an_interval_and_a_wide_one() -> None:
    """Differences 1 and 2: mean 1.5, standard error 1/2, t of one degree of freedom 12.7062."""
    found = st.paired_difference(np.array([[1.0], [2.0]]), np.zeros((2, 1)))
    assert found.interval.as_list() == pytest.approx([1.5, 1.5 - 6.3531, 1.5 + 6.3531], abs=1e-4)
    assert found.p == pytest.approx(1 - 2 / math.pi * math.atan(3))


def test_a_true_difference_is_found_and_pairing_helps_to_find_it() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 10, (10, 1))
    ours, theirs = luck + 1 + rng.normal(0, 0.5, (10, 1)), luck + rng.normal(0, 0.5, (10, 1))
    assert not st.paired_difference(ours, theirs).interval.spans_zero
    assert st.paired_difference(ours, theirs).p < 0.01
    assert st.paired_difference(ours, theirs[::-1]).interval.spans_zero


def test_the_p_value_agrees_with_the_interval() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        table = rng.normal(0.6, 1, (10, 2))
        found = st.paired_difference(table, np.zeros_like(table))
        assert (found.p < 0.05) is not found.interval.spans_zero


def test_equal_scores_are_no_difference() -> None:
    found = st.paired_difference(TABLE, TABLE)
    assert found.interval == st.Interval(0.0, 0.0, 0.0)
    assert found.p == 1.0
    assert found.interval.spans_zero
    assert found.exploratory


def test_one_seed_says_nothing() -> None:
    found = st.paired_difference(np.array([[5.0]]), np.array([[1.0]]))
    assert found.interval.spans_zero
    assert found.p == 1.0
    assert found.interval.as_list() == [4.0, None, None]
    assert st.estimate(st.mean, np.array([[5.0]])).as_list() == [5.0, None, None]


def test_holm_by_hand() -> None:
    assert st.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert st.holm([0.5, 0.9]) == [1.0, 1.0]
    assert st.holm([]) == []


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (40, 2.02108)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert st.student_quantile(0.975, freedom) == pytest.approx(t, abs=1e-4)
    assert st.student_cdf(-t, freedom) == pytest.approx(0.025, abs=1e-6)


def test_kaplan_meier_by_hand() -> None:
    """Solved at 10, 20, 20 and 40; one given up at 15 and one at 50."""
    found = st.kaplan_meier([10, 15, 20, 20, 40, 50], [True, False, True, True, True, False])
    assert found.times == (0, 10, 20, 40)
    assert found.shares == pytest.approx((1, 5 / 6, 5 / 6 * 2 / 4, 5 / 6 * 2 / 4 / 2))
    assert found.median == 20
    assert (found.solved, found.runs) == (4, 6)


def test_the_median_time_is_unknown_where_half_never_solve() -> None:
    assert st.kaplan_meier([10, 30, 30], [True, False, False]).median is None
    assert st.kaplan_meier([30, 30], [False, False]).shares == (1.0,)


def test_drawdown_and_collapse() -> None:
    assert st.max_drawdown([0, 5, 3, 6, 1, 2]) == 5
    assert st.max_drawdown([1, 2, 3]) == 0
    assert st.collapsed([0.1, 0.9, 0.4])
    assert not st.collapsed([0.1, 0.9, 0.5])
    assert not st.collapsed([0.1, 0.4, 0.0]), "what was never learned cannot collapse"


def test_seed_spread_is_the_distance_of_the_quartiles() -> None:
    assert st.seed_spread(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])) == 2.0


def test_fairness_by_hand() -> None:
    even, uneven = np.full((2, 4), 0.5), np.array([[0.0, 0.0, 0.0, 1.0]])
    assert [float(measure(even)) for measure in st.FAIRNESS.values()] == [0.5, 0.5, 0.0, 1.0, 0.0]
    assert [float(measure(uneven)) for measure in st.FAIRNESS.values()] == [0.0, 0.0, 0.75, 0.0, 1.0]
    assert float(st.gini(np.array([[1.0, 3.0]]))) == 0.25
    assert not math.isnan(float(st.gini(-even)))
    assert float(st.worst_mean(np.array([[1.0, 2.0, 9.0]]), 2)) == 1.5


# Against plain loops: the definitions, written out for one table at a time.


def random_tables() -> list[np.ndarray]:
    """Tables of every small shape, with ties, zeros and scores below zero."""
    rng = np.random.default_rng(7)
    return [np.round(rng.normal(0.4, 1, (seeds, tasks)), 1) for seeds in range(1, 5) for tasks in range(1, 6)]


def task_means(table: np.ndarray) -> list[float]:
    return [fmean(column) for column in table.T.tolist()]


def middle_half(table: np.ndarray) -> float:
    ordered = sorted(table.ravel().tolist())
    for _ in range(table.size // 4):
        ordered = ordered[1:-1]
    return fmean(ordered)


def unevenness(table: np.ndarray) -> float:
    """Gini's coefficient as the mean difference of two tasks over twice their mean."""
    shares = [max(value, 0.0) for value in task_means(table)]
    differences = [abs(a - b) for a, b in itertools.product(shares, repeat=2)]
    return fmean(differences) / (2 * fmean(shares)) if any(shares) else 0.0


def worst_over_mean(table: np.ndarray) -> float:
    shares = [max(value, 0.0) for value in task_means(table)]
    return min(shares) / fmean(shares) if any(shares) else 0.0


@pytest.mark.parametrize(
    ("statistic", "by_definition"),
    [
        (st.AGGREGATES["mean"], lambda table: fmean(table.ravel().tolist())),
        (st.AGGREGATES["median"], lambda table: median(task_means(table))),
        (st.AGGREGATES["iqm"], middle_half),
        (st.AGGREGATES["optimality_gap"], lambda table: fmean(max(1.0 - x, 0.0) for x in table.ravel().tolist())),
        (st.FAIRNESS["worst_task"], lambda table: min(task_means(table))),
        (st.FAIRNESS["worst_two"], lambda table: fmean(sorted(task_means(table))[:2])),
        (st.FAIRNESS["spread"], lambda table: max(task_means(table)) - min(task_means(table))),
        (st.FAIRNESS["gini"], unevenness),
        (st.FAIRNESS["least_to_mean"], worst_over_mean),
        (st.seed_spread, lambda table: fmean(np.subtract(*np.percentile(c, [75, 25])) for c in table.T)),
    ],
)
def test_every_statistic_is_what_its_definition_says(
    statistic: st.Statistic, by_definition: Callable[[np.ndarray], float]
) -> None:
    for table in [*random_tables(), np.zeros((2, 3)), np.full((3, 2), -1.0)]:
        assert float(statistic(table)) == pytest.approx(by_definition(table)), table


def test_profiles_and_improvement_of_two_tables_are_counts_of_runs() -> None:
    tables = random_tables()
    for ours in tables:
        levels = [-1.0, 0.0, *ours[0], 0.5]
        counted = [fmean(score > level for score in ours.ravel().tolist()) for level in levels]
        np.testing.assert_allclose(st.performance_profile(np.stack([ours, ours + 1]), levels)[0], counted)
    for ours, theirs in itertools.product(tables, tables):
        if ours.shape[1] == theirs.shape[1]:
            counted = [fmean((a > b) + (a == b) / 2) for a, b in itertools.product(ours, theirs)]
            assert float(st.probability_of_improvement(ours, theirs)) == pytest.approx(fmean(counted))
            stacked = st.probability_of_improvement(np.stack([ours - 9, ours]), np.stack([theirs, theirs]))
            np.testing.assert_allclose(stacked, [0, fmean(counted)])


@pytest.mark.parametrize(
    ("low", "high", "spans"),
    [(-1, 1, True), (0, 1, True), (-1, 0, True), (0, 0, True), (1e-9, 1, False), (-1, -1e-9, False),
     (math.nan, math.nan, True)],
)  # fmt: skip
def test_an_interval_that_touches_zero_spans_it(low: float, high: float, spans: bool) -> None:
    assert st.Interval(0.5, low, high).spans_zero is spans


def drawn_tables(*tables: np.ndarray, **how: Any) -> list[np.ndarray]:
    """What a bootstrap made of the tables: one stack of all its repetitions for each."""
    seen: list[tuple[np.ndarray, ...]] = []

    def keep(*drawn: np.ndarray) -> np.ndarray:
        seen.append(drawn)
        return np.zeros(len(drawn[0]))

    st.bootstrap(keep, *tables, **how)
    return [np.concatenate(stacks) for stacks in zip(*seen, strict=True)]


def test_a_bootstrap_draws_seeds_of_the_same_task_with_replacement() -> None:
    # Every score names its seed (units) and its task (tens).
    table = np.arange(5)[:, np.newaxis] + 10.0 * np.arange(3)
    (drawn,) = drawn_tables(table, repetitions=4000)
    assert drawn.shape == (4000, 5, 3)
    assert (drawn // 10 == np.arange(3)).all(), "a task's scores stay in its column"
    seeds = drawn % 10
    np.testing.assert_allclose([(seeds == seed).mean() for seed in range(5)], 0.2, atol=0.01)
    assert any(len(set(repetition)) < 5 for repetition in seeds[:, :, 0]), "a seed may be drawn twice"
    assert (seeds[:, :, 0] != seeds[:, :, 1]).any()


@pytest.mark.parametrize("numbers", [[0, 1, 0], [7, -3, 7], [2, 1, 2]])
def test_strata_are_told_apart_by_their_numbers_whatever_those_are(numbers: list[int]) -> None:
    table = np.arange(6)[:, np.newaxis] * np.ones(3)
    (drawn,) = drawn_tables(table, strata=numbers, repetitions=50)
    assert (drawn[..., 0] == drawn[..., 2]).all()
    assert (drawn[..., 0] != drawn[..., 1]).any(1).all()


def test_two_tables_are_drawn_apart_and_may_have_different_numbers_of_seeds() -> None:
    ours, theirs = drawn_tables(np.arange(6.0)[:, np.newaxis], np.arange(4.0)[:, np.newaxis], repetitions=300)
    assert (ours.shape, theirs.shape) == ((300, 6, 1), (300, 4, 1))
    assert (set(np.unique(ours)), set(np.unique(theirs))) == (set(range(6)), set(range(4)))
    assert abs(np.corrcoef(ours[:, 0, 0], theirs[:, 0, 0])[0, 1]) < 0.2


@pytest.mark.parametrize(("shape", "largest"), [((2, 3), st.CHUNK // 6), ((400, 100), 1)])
def test_a_bootstrap_holds_a_bounded_number_of_scores_at_a_time(shape: tuple[int, int], largest: int) -> None:
    counts: list[int] = []

    def keep(drawn: np.ndarray, smaller: np.ndarray) -> np.ndarray:
        assert len(drawn) == len(smaller)
        counts.append(len(drawn))
        return np.zeros(len(drawn))

    repetitions = 2 * largest + 1
    st.bootstrap(keep, np.zeros(shape), np.zeros((1, shape[1])), repetitions=repetitions)
    assert counts == [largest, largest, 1]
    assert st.CHUNK == 32_768


def test_a_percentile_interval_is_the_middle_of_the_samples() -> None:
    samples = np.random.default_rng(0).permutation(np.arange(1001.0))
    assert st.percentile_interval(7.0, samples).as_list() == pytest.approx([7, 25, 975])
    assert st.percentile_interval(7.0, samples, 0.5).as_list() == pytest.approx([7, 250, 750])


@pytest.mark.parametrize("strata", [None, [0, 0]])
def test_an_estimate_is_the_statistic_with_the_interval_of_its_bootstrap(strata: list[int] | None) -> None:
    how: Any = {"strata": strata, "repetitions": 300, "seed": 5}
    found = st.estimate(st.interquartile_mean, TABLE, **how)
    assert found == st.percentile_interval(3.75, st.bootstrap(st.interquartile_mean, TABLE, **how))
    usual = st.estimate(st.mean, TABLE)
    assert usual == st.percentile_interval(15.5, st.bootstrap(st.mean, TABLE, repetitions=20_000, seed=0))


def test_an_interval_needs_two_seeds_of_every_table() -> None:
    one, two = TABLE[:1], TABLE[:2]
    better = st.probability_of_improvement
    assert math.isnan(st.estimate(better, one, two, repetitions=50).low)
    assert math.isnan(st.estimate(better, two, one, repetitions=50).high)
    assert not math.isnan(st.estimate(better, two, two, repetitions=50).low)


def test_strata_of_unequal_spread_share_welchs_degrees_of_freedom() -> None:
    """Columns 1, 2, 3 and 0, 4, 8 count half each: mean 3, v = 1/12 + 4/3, freedom 2 v² / Σ vᵢ² = 2.249, so 2."""
    ours = np.array([[11.0, 0.0], [12.0, 4.0], [13.0, 8.0]])
    found = st.paired_difference(ours, np.array([[10.0, 0.0]] * 3))
    error = math.sqrt(1 / 12 + 4 / 3)
    t = 3 / error
    assert found.interval.value == pytest.approx(3)
    assert found.interval.low == pytest.approx(3 - 4.302653 * error, abs=1e-5)
    assert found.interval.high == pytest.approx(3 + 4.302653 * error, abs=1e-5)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t)), "Student's distribution of two degrees of freedom"
    assert found.seeds == 3
    swapped = st.paired_difference(np.array([[10.0, 0.0]] * 3), ours)
    assert swapped.interval.value == pytest.approx(-3)
    assert swapped.p == pytest.approx(found.p)


def test_strata_of_equal_spread_have_all_their_degrees_of_freedom() -> None:
    """Two strata of three seeds: four degrees of freedom, whose t is 2.776445."""
    table = np.array([[0.0, 5.0], [1.0, 6.0], [2.0, 7.0]])
    found = st.paired_difference(table, np.zeros_like(table))
    assert found.interval.high - found.interval.value == pytest.approx(2.776445 * math.sqrt(2 * 0.25 / 3), abs=1e-6)


def test_tasks_of_a_run_are_averaged_before_their_spread_is_measured() -> None:
    """Strata 5 and 2 of sizes 2 and 1: shares (1+3, 2+2, 0+5)/3 and (6, 0, 3)/3."""
    table = np.array([[1.0, 6.0, 3.0], [2.0, 0.0, 2.0], [0.0, 3.0, 5.0]])
    found = st.paired_difference(table, np.zeros_like(table), strata=[5, 2, 5])
    variances = [np.var([4, 4, 5], ddof=1) / 27, np.var([6, 0, 3], ddof=1) / 27]
    t = (22 / 9) / math.sqrt(sum(variances))
    assert found.interval.value == pytest.approx(22 / 9)
    # Freedom 2 v² / Σ vᵢ² = 2.15, so 2.
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))


@pytest.mark.parametrize(
    ("amount", "noise", "certain"), [(0.5, 0, True), (-2.0, 0, True), (-1e6, 1e-8, True), (1e-6, 1e-7, False)]
)
def test_seeds_that_all_differ_alike_are_certain_and_only_they(amount: float, noise: float, certain: bool) -> None:
    table = amount + noise * np.array([[1.0], [-1.0], [0.0]])
    found = st.paired_difference(table, np.zeros_like(table))
    assert (found.interval.low == found.interval.high) is certain
    assert not found.interval.spans_zero
    assert (found.p == 0.0) is certain


def test_fewer_than_five_seeds_are_exploratory() -> None:
    assert [st.paired_difference(TABLE[:n], 0 * TABLE[:n]).exploratory for n in (1, 4)] == [True, True]
    assert not st.paired_difference(np.eye(5), np.zeros((5, 5))).exploratory
    assert st.paired_difference(TABLE[:1], 0 * TABLE[:1]).seeds == 1


def test_holm_multiplies_each_p_value_by_the_hypotheses_that_remain() -> None:
    rng = np.random.default_rng(0)
    for count in range(1, 7):
        for _ in range(20):
            given = np.round(rng.random(count) ** 2, 1).tolist()
            ordered = sorted(given)
            steps = [(count - k) * p for k, p in enumerate(ordered)]
            expected = [min(1.0, max(steps[: max(k for k in range(count) if ordered[k] == p) + 1])) for p in given]
            assert st.holm(given) == pytest.approx(expected), given


def density(t: float, freedom: int) -> float:
    """Student's density."""
    half = (freedom + 1) / 2
    height = math.exp(math.lgamma(half) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    return float(height * (1 + t * t / freedom) ** -half)


@pytest.mark.parametrize("freedom", [*range(1, 9), 15, 30])
def test_students_distribution_is_the_integral_of_its_density(freedom: int) -> None:
    grid = np.linspace(0, 3.0, 3001)
    heights = np.array([density(t, freedom) for t in grid])
    areas = np.concatenate([[0.0], np.cumsum((heights[1:] + heights[:-1]) / 2 * (grid[1] - grid[0]))])
    for place in (0, 500, 1000, 2500, 3000):
        assert st.student_cdf(grid[place], freedom) == pytest.approx(0.5 + areas[place], abs=1e-6)
        assert st.student_cdf(-grid[place], freedom) == pytest.approx(0.5 - areas[place], abs=1e-6)
    for share in (0.001, 0.025, 0.3, 0.5, 0.9, 0.999):
        assert st.student_cdf(st.student_quantile(share, freedom), freedom) == pytest.approx(share, abs=1e-9)


def test_kaplan_meier_follows_the_runs_one_time_at_a_time() -> None:
    rng = np.random.default_rng(3)
    for runs in (1, 2, 5, 9):
        for _ in range(20):
            times, reached = rng.integers(1, 6, runs).tolist(), (rng.random(runs) < 0.6).tolist()
            share, steps = 1.0, {0.0: 1.0}
            for now in sorted({t for t, solved in zip(times, reached, strict=True) if solved}):
                # A run given up at this very time was still running at it.
                running = sum(t >= now for t in times)
                share *= 1 - sum(t == now and solved for t, solved in zip(times, reached, strict=True)) / running
                steps[now] = share
            found = st.kaplan_meier(times, reached)
            assert dict(zip(found.times, found.shares, strict=True)) == pytest.approx(steps)
            assert (found.solved, found.runs) == (sum(reached), runs)


def test_the_median_is_the_first_time_at_which_exactly_half_are_solved() -> None:
    assert st.kaplan_meier([10, 20], [True, False]).median == 10
    assert st.kaplan_meier([10, 20, 30], [True, True, True]).median == 20
    assert st.kaplan_meier([0, 0], [True, True]).median == 0


@pytest.mark.parametrize(
    ("scores", "fell"),
    [((0.5, 0.24), True), ((0.5, 0.25), False), ((0.49, 0.0), False), ((0.8, 0.1, 0.5), False), ((0.6,), False),
     ((0.3, 0.4, 0.9, 0.44), True), ((-1.0, -5.0), False)],
)  # fmt: skip
def test_a_collapse_loses_more_than_half_of_what_was_learned_by_the_end(scores: tuple[float, ...], fell: bool) -> None:
    assert st.collapsed(scores) is fell


def test_a_drawdown_is_measured_from_the_best_before_and_not_the_best_after() -> None:
    assert st.max_drawdown([5, 1, 9, 8]) == 4
    assert st.max_drawdown([-1, -4, 100]) == 3
    assert st.max_drawdown([2.0]) == 0


@pytest.mark.parametrize(
    ("last", "freedom", "t"),
    [
        (0.2, 2.04, 4.302653),
        (3.0, 3.485, 3.182446),
        (3.5, 3.18, 3.182446),
        (4.0, 2.941, 4.302653),
        (2.0, 4.0, 2.776445),
    ],
)
def test_degrees_of_freedom_are_rounded_down(last: float, freedom: float, t: float) -> None:
    """Columns 1, 2, 3 and 0, last / 2, last: the fewer degrees of freedom, the wider and the more careful."""
    table = np.array([[1.0, 0.0], [2.0, last / 2], [3.0, last]])
    variances = np.array([1.0, last**2 / 4]) / 4 / 3
    assert 2 * variances.sum() ** 2 / np.square(variances).sum() == pytest.approx(freedom, abs=1e-3)
    found = st.paired_difference(table, np.zeros_like(table))
    assert found.interval.high - found.interval.value == pytest.approx(t * math.sqrt(variances.sum()), abs=1e-6)
