"""Several objectives as one: constants worked out by hand, and what holds for all of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from groupwise.core import objectives
from groupwise.core.objectives import COMBINATIONS, WITHIN_GROUP, non_dominated_fronts, pareto

TWO = [[0.8, 0.2], [0.4, 0.6]]
FLOATS = st.floats(0, 1, width=32)
TABLES = st.tuples(st.integers(1, 6), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FLOATS)
)


def weights_for(table):
    return np.arange(1, table.shape[1] + 1, dtype=float)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("weighted_sum", [3 * 0.8 + 0.2, 3 * 0.4 + 0.6]),
        ("weighted_average", [0.65, 0.45]),
        ("geometric_mean", [(0.8**3 * 0.2) ** 0.25, (0.4**3 * 0.6) ** 0.25]),
        # Shortfalls times shares 3/4 and 1/4: (0.15, 0.2) and (0.45, 0.1); the worst there is, 0.75 + 0.05.
        ("chebyshev", [1 - (0.2 + 0.05 * 0.35) / 0.8, 1 - (0.45 + 0.05 * 0.55) / 0.8]),
        # One front of two; columns as shares of their highest: (1, 1/3) and (1/2, 1).
        ("pareto", [0.75 + 0.25 / 3, 0.75 / 2 + 0.25]),
        ("normalize_then_sum", [0.5, -0.5]),
    ],
)
def test_each_combination_gives_the_numbers_worked_out_by_hand(method, expected):
    assert COMBINATIONS[method](TWO, [3.0, 1.0]).tolist() == pytest.approx(expected, abs=1e-12)


PLAINLY = {
    "weighted_sum": lambda s, w: [sum(a * b for a, b in zip(row, w, strict=True)) for row in s],
    "weighted_average": lambda s, w: [sum(a * b for a, b in zip(row, w, strict=True)) / sum(w) for row in s],
    "geometric_mean": lambda s, w: [
        math.prod(max(a, 0.01) ** (b / sum(w)) for a, b in zip(row, w, strict=True)) for row in s
    ],
    "chebyshev": lambda s, w: [
        1 - (max(lack) + 0.05 * sum(lack)) / (max(w) / sum(w) + 0.05)
        for lack in ([b / sum(w) * (1 - a) for a, b in zip(row, w, strict=True)] for row in s)
    ],
    "normalize_then_sum": lambda s, w: (
        sum(
            b * ((column - column.mean()) / column.std() if np.ptp(column) else 0 * column)
            for column, b in zip(np.array(s).T, w, strict=True)
        )
        / sum(w)
    ).tolist(),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", PLAINLY)
def test_each_combination_is_its_formula_row_by_row(method, seed):
    """With weights that do not add up to 1, one of them 0, a column without spread, and scores around the floor."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0, 1, (5, 4)).round(2)
    scores[0], scores[:, 2] = [0.0, 0.01, 0.5, 1.0], 0.5
    scores[1, :2] = 0.005, 0.02
    weights = [2.0, 0.5, 1.0, 0.0] if seed % 2 else [0.3, 4.0, 1.0, 2.0]
    found = COMBINATIONS[method](scores, weights)
    assert found.tolist() == pytest.approx(PLAINLY[method](scores.tolist(), weights), abs=1e-12)


def test_which_combinations_there_are_and_which_compare_the_rows_of_a_group():
    """Those that look at one row at a time score it alike whatever stands beside it."""
    assert set(COMBINATIONS) == {*PLAINLY, "pareto"}
    scores, weights = np.array([[0.2, 0.9], [0.7, 0.4], [0.1, 0.1]]), [1.0, 2.0]
    for method, combine in COMBINATIONS.items():
        alone = [float(combine(scores[[row]], weights)[0]) for row in range(3)]
        assert (combine(scores, weights).tolist() == pytest.approx(alone)) == (method not in WITHIN_GROUP), method


def test_an_objective_near_zero_drags_the_geometric_mean_down_but_not_out_of_sight():
    assert objectives.geometric_mean([[0.0, 0.81], [0.0, 0.49]], [1, 1]).tolist() == pytest.approx([0.09, 0.07])
    assert objectives.geometric_mean([[0.0, 0.9]], [0, 2]).tolist() == pytest.approx([0.9])
    with pytest.raises(ValueError, match="at least 0; the lowest is -0.5"):
        objectives.geometric_mean([[-0.5, 0.9]], [1, 1])


def test_chebyshev_reaches_the_hollow_of_a_trade_off_that_no_weighted_sum_prefers():
    scores, equal = [[1.0, 0.0], [0.45, 0.45], [0.0, 1.0]], [1.0, 1.0]
    assert int(objectives.chebyshev(scores, equal).argmax()) == 1
    for share in np.linspace(0.01, 0.99, 99):
        assert int(objectives.weighted_sum(scores, [share, 1 - share]).argmax()) != 1


def test_fronts_are_peeled_one_after_another():
    scores = [[1, 0], [0, 1], [0.5, 0.5], [0.4, 0.5], [0.3, 0.3], [0.5, 0.5]]
    assert non_dominated_fronts(scores).tolist() == [0, 0, 0, 1, 2, 0]


def test_pareto_does_not_punish_what_a_group_agrees_on():
    """Seven are good in everything; one gains a hundredth in the first objective for most of the second."""
    *seven, odd = pareto([[0.9, 0.9]] * 7 + [[0.91, 0.1]], [1, 1]).tolist()
    assert seven == [pytest.approx((0.9 / 0.91 + 1) / 2)] * 7
    assert odd == pytest.approx((1 + 0.1 / 0.9) / 2)


def test_pareto_ranks_a_front_by_the_weights():
    front = [[0.9, 0.1], [0.1, 0.9]]
    first, second = pareto(front, [9, 1]).tolist()
    assert (first, second) == (pytest.approx(0.9 + 0.1 / 9), pytest.approx(0.1 + 0.9 / 9))
    assert pareto(front, [1, 9]).tolist() == pytest.approx([second, first])


def test_a_front_below_scores_less_and_equal_attempts_score_the_same():
    best, twin, below = pareto([[1, 1], [1, 1], [0, 0]], [1, 1]).tolist()
    assert (best, twin, below) == (1.0, 1.0, 0.0)
    assert pareto([[0.3, 0.7]] * 4, [1, 1]).tolist() == [1.0] * 4
    assert pareto([[-0.3], [-0.1]], [1]).tolist() == pytest.approx([0.0, (1 + 2 / 3) / 2])


@pytest.mark.parametrize("seed", range(4))
def test_pareto_is_the_front_and_then_the_weighted_share_of_each_columns_range(seed):
    """Fronts by peeling, columns of different units, one of them negative in part and one flat."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, (7, 3)) * [1.0, 100.0, 0.0] + [0, -150.0, 3.0]
    front, left = {}, set(range(7))
    while left:
        best = {
            i for i in left
            if not any((scores[j] >= scores[i]).all() and (scores[j] > scores[i]).any() for j in left)
        }  # fmt: skip
        front |= dict.fromkeys(best, len(set(front.values())))
        left -= best
    assert non_dominated_fronts(scores).tolist() == [front[i] for i in range(7)]
    count, expected = len(set(front.values())), []
    for i, row in enumerate(scores):
        shares = []
        for value, column in zip(row, scores.T, strict=True):
            low, high = min(0.0, *column), max(0.0, *column)
            shares.append((value - low) / (high - low) if high > low else 0.0)
        expected.append((count - 1 - front[i] + (shares[0] + 2 * shares[1] + 3 * shares[2]) / 6) / count)
    assert pareto(scores, [1, 2, 3]).tolist() == pytest.approx(expected, abs=1e-9)


def test_chebyshev_refuses_another_scale_and_says_what_it_saw():
    with pytest.raises(ValueError, match="from 0 to 1; these range from 0.2 to 1000"):
        objectives.chebyshev([[0.2, 1000.0], [0.4, 3.0]], [1, 1])
    assert objectives.chebyshev([[1.0 + 1e-12, 1.0]], [1, 1]).tolist() == pytest.approx([1.0])


@pytest.mark.parametrize("method", ["weighted_sum", "weighted_average", "geometric_mean", "chebyshev"])
@given(table=TABLES, row=st.integers(0, 5), column=st.integers(0, 3), gain=st.floats(0, 1, width=32))
@settings(max_examples=40)
def test_doing_better_in_one_objective_never_lowers_the_total(method, table, row, column, gain):
    row, column = row % table.shape[0], column % table.shape[1]
    better = table.copy()
    better[row, column] = min(1.0, better[row, column] + gain)
    combine, weights = COMBINATIONS[method], weights_for(table)
    before, after = combine(table, weights), combine(better, weights)
    assert after[row] >= before[row] - 1e-12
    assert np.delete(after, row).tolist() == np.delete(before, row).tolist()


@pytest.mark.parametrize("method", ["weighted_average", "geometric_mean", "chebyshev", "pareto"])
@given(table=TABLES)
@settings(max_examples=40)
def test_totals_of_scores_between_0_and_1_lie_there_too(method, table):
    totals = COMBINATIONS[method](table, weights_for(table))
    assert (totals >= -1e-12).all()
    assert (totals <= 1 + 1e-12).all()


@pytest.mark.parametrize("method", COMBINATIONS)
@given(table=TABLES, order=st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_a_group_does_not_matter(method, table, order):
    rows = list(range(len(table)))
    order.shuffle(rows)
    combine, weights = COMBINATIONS[method], weights_for(table)
    assert combine(table[rows], weights) == pytest.approx(combine(table, weights)[rows], abs=1e-9)


@pytest.mark.parametrize("method", COMBINATIONS)
def test_an_objective_without_weight_does_not_matter(method):
    scores, weights = np.array([[1.0, 0.2], [0.1, 0.4], [0.5, 0.3]]), [1.0, 2.0]
    alone = COMBINATIONS[method](scores, weights)
    for idle in ([0.0, 1.0, 0.9], [1.0, 0.0, 0.0]):
        assert COMBINATIONS[method](np.column_stack([scores, idle]), [*weights, 0.0]) == pytest.approx(alone)


@given(table=TABLES)
@settings(max_examples=60)
def test_whoever_dominates_scores_more_under_pareto(table):
    totals = pareto(table, weights_for(table))
    for a, b in itertools.permutations(range(len(table)), 2):
        if (table[a] >= table[b]).all() and (table[a] > table[b]).any():
            assert totals[a] > totals[b]


@given(table=TABLES, shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
@settings(max_examples=40)
def test_normalised_objectives_forget_their_units(table, shift, scale):
    combine, weights = COMBINATIONS["normalize_then_sum"], weights_for(table)
    flat = np.ptp(table, axis=0) < 1e-4  # what is nearly flat may count as flat in other units
    table = np.where(flat, 0.5, table)
    assert combine(table * scale + shift, weights) == pytest.approx(combine(table, weights), abs=1e-6)


@pytest.mark.parametrize("method", ["normalize_then_sum", "pareto"])
def test_every_objective_has_units_of_its_own_where_attempts_are_compared(method):
    table = np.array([[0.1, 0.9, 0.5], [0.4, 0.2, 0.8], [0.9, 0.3, 0.1], [0.2, 0.1, 0.2]])
    weights, combine = weights_for(table), COMBINATIONS[method]
    for column, power in itertools.product(range(3), [-3, 3, 9, 12, 15]):
        units = np.ones(3)
        units[column] = 10.0**power
        assert combine(table * units, weights) == pytest.approx(combine(table, weights), rel=1e-9, abs=1e-9)


def test_an_objective_without_spread_counts_nothing_once_normalised():
    assert COMBINATIONS["normalize_then_sum"]([[0.3, 1.0], [0.3, 0.0]], [1, 1]).tolist() == [0.5, -0.5]
    assert COMBINATIONS["normalize_then_sum"]([[0.3], [0.3]], [1]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("method", COMBINATIONS)
@pytest.mark.parametrize(
    ("scores", "weights"),
    [([[0.5]], [-1]), ([[0.5]], [0]), ([[0.5]], [math.nan]), ([[0.5]], [1, 2]), ([[math.nan]], [1]), ([], []),
     ([[0.5, 0.5]], [2, -1]), ([[0.5]], [math.inf]), ([[math.inf]], [1]), ([0.5], [1]), ([[0.5]], [[1]])],
)  # fmt: skip
def test_weights_and_scores_that_mean_nothing_are_refused(method, scores, weights):
    with pytest.raises(ValueError, match=r"^weights are|^scores (have shape|must be finite)"):
        COMBINATIONS[method](scores, weights)
