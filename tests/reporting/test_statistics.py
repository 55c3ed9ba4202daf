"""Statistics by hand-computed cases, and by simulation where only the long run can tell."""

from __future__ import annotations

import math

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
