"""Which trajectories belong together, and which groups may be a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config.rules import OUTCOME_STRATEGIES
from groupwise.core.grouping import strategies
from groupwise.core.grouping.kmeans import Clusters, choose_count, kmeans, kmeans_iterations, silhouette, standardised
from groupwise.core.grouping.mixture import DirichletMixture
from groupwise.core.grouping.strategies import (
    STRATEGIES,
    Adaptive,
    Summaries,
    _order_like,
    check_baseline,
    make_grouping,
    selected,
    summarise,
)
from groupwise.errors import ConfigError
from groupwise.types import End, Trajectory

few = settings(max_examples=60, deadline=None)


def summaries(
    returns: Sequence[float],
    tasks: Sequence[str] | None = None,
    features: Any = None,
    lengths: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
) -> Summaries:
    count = len(returns)
    return Summaries(
        features=np.array(returns, float)[:, None] if features is None else np.array(features, float),
        tasks=np.array(tasks or ["t"] * count),
        returns=np.array(returns, float),
        lengths=np.array(lengths or [1] * count),
        seeds=np.array(seeds or [0] * count),
    )


def partition(groups: Any) -> set[frozenset[int]]:
    """Who is together with whom, whatever the groups are called."""
    return {frozenset(np.flatnonzero(groups == name).tolist()) for name in np.unique(groups)}


def numbered(fresh: Any, old: Any) -> Any:
    """The fresh centres as the old ones number them."""
    return fresh[_order_like(fresh, old)]


def blobs(seed: int, count: int, size: int = 12, spread: float = 0.3) -> tuple[Any, Any]:
    """Points around centres that lie well apart, and whose they are."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(count), size)
    centres = np.array([[10.0 * k, -7.0 * k, 3.0 * (k % 2)] for k in range(count)])
    return centres[truth] + spread * rng.normal(size=(len(truth), 3)), truth


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_the_iterations_of_a_strategy_end_where_a_call_ends(strategy: str) -> None:
    points, _ = blobs(3, 3)
    tasks = ["a", "b"] * (len(points) // 2)
    called, iterated = make_grouping(strategy, 3), make_grouping(strategy, 3)
    for shift in (0.0, 0.4):  # the second batch finds what the first has taught
        seen = summaries(points[:, 0].tolist(), tasks, points + shift, seeds=[0, 1, 2] * (len(points) // 3))
        found = iterated.iterations(seen)
        assert found[-1].tolist() == called(seen).tolist()
        assert all(len(groups) == len(points) for groups in found)
    assert iterated.state_dict() == called.state_dict()
    assert make_grouping(strategy).iterations(selected(seen, np.zeros(len(points), np.bool_)))[-1].tolist() == []


def test_an_iteration_of_k_means_never_loses_ground_and_a_mixture_places_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(200, 3))
    moves = kmeans_iterations(points, 5)
    assert len(moves) > 3
    inertia = [move.inertia for move in moves]
    assert inertia == sorted(inertia, reverse=True)
    for move in moves:  # the centres shown with an assignment are the means of its members
        means = [points[move.labels == kind].mean(axis=0) for kind in range(5)]
        assert np.allclose(move.centres, means, atol=1e-12)
    seen = summaries([0.0] * 12, features=points[:12])
    waiting = [(groups < 0).sum() for groups in make_grouping("dirichlet").iterations(seen)]
    assert waiting == [*range(11, -1, -1), 0]


def test_difficulty_by_hand_is_the_plans_quartiles() -> None:
    """np.percentile of 1..8 at 25, 50, 75 is 2.75, 4.5, 6.25; a value equal to an edge belongs below it."""
    groups = make_grouping("difficulty")(summaries([1, 2, 3, 4, 5, 6, 7, 8]))
    assert groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert make_grouping("difficulty", 2)(summaries([1, 2, 3])).tolist() == [0, 0, 1]


def test_length_looks_at_lengths_alone() -> None:
    groups = make_grouping("length", 2)(summaries([9, 8, 7, 6], lengths=[1, 500, 2, 400]))
    assert groups.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("strategy", ["difficulty", "length", "auto", "adaptive"])
def test_equal_trajectories_are_never_put_apart(strategy: str) -> None:
    assert make_grouping(strategy)(summaries([3.0] * 6)).tolist() == [0] * 6


def test_a_task_keeps_its_number_when_others_come_and_go() -> None:
    grouping = make_grouping("task")
    assert grouping(summaries([0, 0, 0], tasks=["b", "a", "b"])).tolist() == [0, 1, 0]
    again = make_grouping("task")
    again.load_state_dict(grouping.state_dict())
    assert again(summaries([0, 0], tasks=["c", "a"])).tolist() == [2, 1]
    assert again.label(1) == "a"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_auto_finds_clusters_and_obeys_the_number_asked_for(count: int) -> None:
    points, truth = blobs(count, count)
    grouping = make_grouping("auto", count)
    assert partition(grouping(summaries([0] * len(points), features=points))) == partition(truth)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_the_number_asked_for_is_obeyed_where_the_points_suggest_another(count: int) -> None:
    points, _ = blobs(0, 3)
    groups = make_grouping("auto", count)(summaries([0] * len(points), features=points))
    assert len(np.unique(groups)) == count


def test_fewer_different_points_than_groups_are_a_group_each() -> None:
    groups = make_grouping("auto", 4)(summaries([1, 1, 5, 5, 5]))
    assert partition(groups) == {frozenset({0, 1}), frozenset({2, 3, 4})}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_without_a_number_the_silhouette_chooses(count: int) -> None:
    points, truth = blobs(3, count, size=15)
    assert partition(make_grouping("auto", None)(summaries([0] * len(points), features=points))) == partition(truth)


def test_one_round_cloud_is_one_group() -> None:
    points = np.random.default_rng(0).normal(size=(80, 6))
    assert choose_count(points) == 1


def test_silhouette_by_hand() -> None:
    """0, 1 | 10: a = 1 and b = 10 or 9 for the pair; the one alone counts 0."""
    found = silhouette(np.array([[0.0], [1.0], [10.0]]), np.array([0, 0, 1]))
    assert found == pytest.approx((9 / 10 + 8 / 9 + 0) / 3)


def test_a_column_that_does_not_vary_does_not_become_noise() -> None:
    points = np.array([[1e9, 0.0], [1e9 + 1e-7, 1.0]])
    assert standardised(points).tolist() == [[0, -1], [0, 1]]


def test_an_empty_cluster_takes_a_point() -> None:
    points = np.array([[0.0], [0.1], [0.2], [10.0]])
    found = kmeans(points, 3, start=np.array([[0.0], [100.0], [200.0]]))
    assert sorted(np.bincount(found.labels).tolist()) == [1, 1, 2]


numbers = st.integers(-50, 50).map(float)
clouds = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)


def test_standardised_points_are_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        points = rng.normal(size=(11, 3))
        order = rng.permutation(11)
        np.testing.assert_array_equal(standardised(points[order]), standardised(points)[order])


@given(clouds, st.integers(1, 5), st.randoms(use_true_random=False))
@few
def test_the_order_of_trajectories_does_not_matter(points: list[tuple[float, float]], count: int, random: Any) -> None:
    order = list(range(len(points)))
    random.shuffle(order)
    for strategy in ("auto", "difficulty", "length"):
        returns, lengths = [p[0] for p in points], [int(p[1]) + 60 for p in points]
        whole = summaries(returns, features=points, lengths=lengths)
        mixed = summaries(
            [returns[i] for i in order], features=[points[i] for i in order], lengths=[lengths[i] for i in order]
        )
        assert make_grouping(strategy, count)(mixed).tolist() == make_grouping(strategy, count)(whole)[order].tolist()


@given(clouds, st.integers(1, 5))
@few
def test_units_do_not_matter_to_clusters(points: list[tuple[float, float]], count: int) -> None:
    """Powers of 2, so that rounding cannot decide a tie differently."""
    before = make_grouping("auto", count)(summaries([0] * len(points), features=points))
    after = make_grouping("auto", count)(summaries([0] * len(points), features=np.array(points) * [0.25, 64]))
    assert partition(before) == partition(after)
    assert len(np.unique(before)) == min(count, len(set(points)))


def test_adaptive_groups_follow_a_drift_and_keep_their_numbers() -> None:
    grouping = make_grouping("adaptive", 3, history_window=100)
    points, truth = blobs(0, 3, size=10)
    first = grouping(summaries([0] * 30, features=points))
    for step in range(1, 60):
        points, _ = blobs(step, 3, size=10)
        assert grouping(summaries([0] * 30, features=points + 0.4 * step)).tolist() == first.tolist()
    assert partition(first) == partition(truth)


def test_a_new_kind_of_trajectory_gets_a_group_without_taking_others_numbers() -> None:
    grouping = Adaptive(None, window=200)
    points, truth = blobs(0, 2, size=20)
    before = grouping.update(points)
    assert partition(before) == partition(truth)
    more, truth = blobs(1, 3, size=20)
    after = grouping.update(more)
    assert partition(after) == partition(truth)
    assert after[:40].tolist() == before.tolist()


def test_a_newcomer_below_all_others_still_comes_last() -> None:
    """By their coordinates its centre would be the first; the numbers of the others are not shifted by it."""
    grouping = Adaptive(None, window=200)
    points, _ = blobs(0, 2, size=20)
    before = grouping.update(points)
    low = blobs(1, 1, size=20)[0] - 12
    assert grouping.update(np.concatenate([points, low])).tolist() == before.tolist() + [2] * 20


@pytest.mark.parametrize("strategy", ["adaptive", "dirichlet", "hierarchical"])
def test_a_grouping_goes_on_where_its_state_was_saved(strategy: str) -> None:
    batches = [summaries([0] * 36, features=blobs(n, 3)[0] + 0.2 * n, tasks=["a", "b"] * 18) for n in range(6)]
    whole, first, second = (make_grouping(strategy, 3, history_window=50) for _ in range(3))
    expected = [whole(batch).tolist() for batch in batches]
    found = [first(batch).tolist() for batch in batches[:3]]
    second.load_state_dict(first.state_dict())
    assert found + [second(batch).tolist() for batch in batches[3:]] == expected


def test_hierarchical_groups_lie_inside_each_other() -> None:
    points, _ = blobs(0, 2, size=8)
    tasks = ["a", "b"] * 8
    seeds = [0, 0, 0, 0, 1, 1, 1, 1] * 2
    grouping = make_grouping("hierarchical", 2)
    attempts = summaries([0] * 16, tasks=tasks, features=points, seeds=seeds)
    by_task, by_cluster, by_start = grouping.levels(attempts)
    assert partition(by_task) == partition(np.array(tasks))
    assert [len(partition(level)) for level in (by_task, by_cluster, by_start)] == [2, 4, 8]
    for coarse, fine in ((by_task, by_cluster), (by_cluster, by_start)):
        assert all(any(inner <= outer for outer in partition(coarse)) for inner in partition(fine))
    assert partition(grouping(attempts)) == partition(by_cluster)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_mixture_finds_how_many_latent_tasks_there_are(seed: int, count: int) -> None:
    """Groups of eight attempts at a latent task, in random turns: nobody says how many tasks there are."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(count, 6))
    grouping = make_grouping("dirichlet")
    for _ in range(4):
        turns = np.concatenate([np.arange(count), rng.integers(count, size=8 - count)])
        truth = np.repeat(rng.permutation(turns), 8)
        points = centres[truth] + 0.5 * rng.normal(size=(len(truth), 6))
        found = grouping(summaries([0] * len(points), features=points))
    assert partition(found) == partition(truth)


def test_the_mixture_follows_a_drift_of_twelve_times_the_width_of_a_task() -> None:
    rng = np.random.default_rng(0)
    grouping = make_grouping("dirichlet", history_window=200)
    names = set()
    for step in range(60):
        truth = np.repeat(rng.permutation([0, 1] * 4), 4)
        centres = np.array([[0.1 * step, 0, 0], [8, 8 - 0.05 * step, 8]])
        found = grouping(summaries([0] * 32, features=centres[truth] + 0.5 * rng.normal(size=(32, 3))))
        names |= {(int(t), int(g)) for t, g in zip(truth, found, strict=True)}
    assert len(names) == 2


def test_the_mixture_names_a_task_that_appears_later_and_forgets_one_that_is_gone() -> None:
    rng = np.random.default_rng(1)
    grouping: Any = make_grouping("dirichlet", history_window=50)

    def batch(place: float) -> set[int]:
        return set(grouping(summaries([0] * 32, features=place + rng.normal(size=(32, 3)))).tolist())

    first = [batch(0.0) for _ in range(4)]
    second = [batch(9.0) for _ in range(20)]
    assert all(names == first[0] and len(names) == 1 for names in first)
    assert all(names == second[0] and len(names) == 1 for names in second)
    assert first[0] != second[0]
    assert len(grouping.mixture) == 1


def test_a_task_that_stays_the_same_is_as_wide_after_a_hundred_batches() -> None:
    rng = np.random.default_rng(2)
    mixture = DirichletMixture(window=50)
    for _ in range(100):
        mixture.assign(rng.normal(size=(16, 2)))
    largest = max(mixture.clusters, key=lambda cluster: cluster.size)
    assert (largest.deviation / largest.size > 0.4).all()
    assert (largest.deviation / largest.size < 2.5).all()


@pytest.mark.parametrize("previous", [0, 1])
def test_the_mixture_sticks_to_the_task_before_when_in_doubt(previous: int) -> None:
    """Two tasks of equal size and width, and a trajectory right between them."""
    mixture = DirichletMixture()
    tasks = [(0, 20.0, [-1.0], [20 * 0.25]), (1, 20.0, [1.0], [20 * 0.25])]
    mixture.load_state_dict({"clusters": tasks, "founded": 2, "previous": previous, "frame": [[0.0], [1.0]]})
    assert mixture.assign(np.array([[0.0]])).tolist() == [previous]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_groups_formed_from_the_outcome_are_refused_as_a_baseline(strategy: str) -> None:
    grouping = make_grouping(strategy)
    assert grouping.depends_on_outcome == (strategy in OUTCOME_STRATEGIES) == (strategy != "task")
    if not grouping.depends_on_outcome:
        check_baseline(grouping)
        return
    with pytest.raises(ConfigError, match="best of the worst") as error:
        check_baseline(grouping)
    assert "allow_outcome_baseline" in error.value.hint
    check_baseline(grouping, allow_outcome=True)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_no_trajectories_are_no_groups_and_one_is_one(strategy: str) -> None:
    nothing = Summaries(np.zeros((0, 3)), np.zeros(0, np.str_), np.zeros(0), np.zeros(0, int), np.zeros(0, int))
    assert make_grouping(strategy)(nothing).tolist() == []
    assert make_grouping(strategy)(summaries([2.0])).tolist() == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused_with_their_row(bad: float) -> None:
    with pytest.raises(ValueError, match="returns of trajectory 1: "):
        summaries([1.0, bad], features=[[0], [0]])
    with pytest.raises(ValueError, match="features of trajectory 1: "):
        summaries([1.0, 1.0], features=[[0], [bad]])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="tasks has shape"):
        Summaries(np.zeros((2, 1)), np.array(["a"]), np.zeros(2), np.zeros(2, int), np.zeros(2, int))
    with pytest.raises(ValueError, match="n_groups is 0"):
        make_grouping("auto", 0)
    with pytest.raises(ValueError, match="'quartile'; it must be one of task, difficulty"):
        make_grouping("quartile")


def test_features_of_a_trajectory_by_hand() -> None:
    obs = np.array([[1.0, 0.0], [3.0, 0.0]])
    ones = np.ones(2)
    member = Trajectory("m", "t", "g", obs, ones, ones > 0, ones, ones, np.array([1.0, 4.0]), End.FINISHED, True)
    found = summarise([member], ["t"])
    assert found.features[0].tolist() == pytest.approx([2.5, np.log(3), 2, 0, 1, 0])
    assert found.returns.tolist() == [5.0]
    assert summarise([member], ["t"], returns=[9.0]).returns.tolist() == [9.0]


def walked(steps: int, width: int, place: float, pay: float = 1.0) -> Trajectory:
    """An attempt that saw `place` and a little more at every step, in each of `width` quantities."""
    obs = place + np.arange(steps * width, dtype=float).reshape(steps, width)
    ones = np.ones(steps)
    return Trajectory("m", "t", "g", obs, ones, ones > 0, ones, ones, pay * ones, End.FINISHED, True)


def test_summaries_of_attempts_of_different_shapes() -> None:
    """Narrower observations leave zeros, a longer attempt is not worth more per step, an empty one is all zeros."""
    members = [walked(2, 2, 0.0), walked(3, 1, 5.0, pay=-2.0), walked(0, 2, 9.0)]
    found = summarise(members, ["a", "b", "a"], seeds=[4, 5, 6])
    expected = [
        [1.0, np.log(3), 1.0, 2.0, 1.0, 1.0],
        [-2.0, np.log(4), 6.0, 0.0, np.sqrt(2 / 3), 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
    np.testing.assert_allclose(found.features, expected)
    assert found.tasks.tolist() == ["a", "b", "a"]
    assert found.returns.tolist() == [2.0, -6.0, 0.0]
    assert found.lengths.tolist() == [2, 3, 0]
    assert found.seeds.tolist() == [4, 5, 6]
    assert len(found) == 3
    given = summarise(members, ["a", "b", "a"], returns=[10.0, 6.0, 3.0])
    assert given.features[:, 0].tolist() == [5.0, 2.0, 3.0]
    assert given.seeds.tolist() == [0, 0, 0]
    bare = summarise(members, ["a", "b", "a"], features=False)
    assert bare.features.shape == (3, 0)
    assert bare.returns.tolist() == [2.0, -6.0, 0.0]
    assert summarise([], []).features.shape == (0, 2)


def test_a_selection_is_of_every_column() -> None:
    whole = summaries([1, 2, 3], tasks=["a", "b", "c"], lengths=[4, 5, 6], seeds=[7, 8, 9])
    part = selected(whole, np.array([True, False, True]))
    assert part.features.tolist() == [[1], [3]]
    assert part.tasks.tolist() == ["a", "c"]
    assert [part.returns.tolist(), part.lengths.tolist(), part.seeds.tolist()] == [[1, 3], [4, 6], [7, 9]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_quantile_groups_are_bounded_by_numpys_percentiles(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 12, size=15).astype(float)
    edges = [np.percentile(values, 100 * k / count) for k in range(1, count)]
    expected = [sum(value > edge for edge in edges) for value in values]
    assert make_grouping("difficulty", count)(summaries(values.tolist())).tolist() == expected
    by_length = summaries([0.0] * 15, lengths=(values + 1).astype(int).tolist())
    assert make_grouping("length", count)(by_length).tolist() == expected


def test_without_a_number_there_are_four_quantiles() -> None:
    values = summaries([1, 2, 3, 4, 5, 6, 7, 8])
    for strategy in ("difficulty", "length"):
        assert make_grouping(strategy, None).count == make_grouping(strategy).count == 4
    assert make_grouping("difficulty", None)(values).tolist() == make_grouping("difficulty", 4)(values).tolist()


def test_what_each_strategy_is_called_and_looks_at() -> None:
    """Only strategies that cluster need features; groups are named after the strategy, tasks by their own names."""
    for name in STRATEGIES:
        grouping = make_grouping(name)
        assert grouping.name == name
        assert grouping.uses_features == (name not in ("task", "difficulty", "length"))
        if name != "task":
            assert grouping.label(3) == f"{name}-3"


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"hierarchical"}))
def test_most_strategies_have_one_level(strategy: str) -> None:
    points, _ = blobs(0, 2)
    attempts = summaries(list(range(24)), features=points, tasks=["a", "b"] * 12)
    (only,) = make_grouping(strategy, 2).levels(attempts)
    assert only.tolist() == make_grouping(strategy, 2)(attempts).tolist()


def test_the_number_of_groups_the_window_and_the_seed_reach_each_strategy() -> None:
    made: dict[str, Any] = {name: make_grouping(name, 3, history_window=77, seed=5) for name in STRATEGIES}
    assert [made[name].count for name in ("difficulty", "length", "auto", "adaptive")] == [3] * 4
    assert made["hierarchical"].clusters.count == 3
    assert made["auto"].seed == made["adaptive"].seed == made["hierarchical"].clusters.seed == 5
    assert made["adaptive"].history.maxlen == 77
    assert made["dirichlet"].mixture.keep == pytest.approx(1 - 1 / 77)
    usual: dict[str, Any] = {name: make_grouping(name) for name in STRATEGIES}
    assert usual["adaptive"].history.maxlen == 1000
    assert usual["dirichlet"].mixture.keep == pytest.approx(1 - 1 / 1000)
    assert (usual["auto"].count, usual["adaptive"].count, usual["auto"].seed) == (4, 4, 0)
    assert make_grouping("auto", 1)(summaries([0.0, 9.0])).tolist() == [0, 0]


@pytest.mark.parametrize("count", [2, None])
@pytest.mark.parametrize("strategy", ["auto", "adaptive", "hierarchical"])
def test_every_clustering_of_a_strategy_has_its_seed(
    strategy: str, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def noted(function: Any) -> Any:
        return lambda *args, seed=0, **kwargs: (seeds.append(seed), function(*args, seed=seed, **kwargs))[1]

    for name in ("kmeans_iterations", "choose_count"):
        monkeypatch.setattr(strategies, name, noted(getattr(strategies, name)))
    grouping, points = make_grouping(strategy, count, seed=11), blobs(0, 2)[0]
    for _ in range(2):
        grouping(summaries([0] * 24, features=points))
    assert set(seeds) == {11}


def test_tasks_inside_a_hierarchy_are_clustered_apart() -> None:
    """Two tasks whose attempts lie in the same two places: clusters of one are never those of the other."""
    features = [[0.0], [0.1], [9.0], [9.1]] * 2
    tasks, seeds = ["x"] * 4 + ["y"] * 4, [1, 2, 1, 1, 1, 1, 2, 2]
    by_task, by_cluster, by_start = make_grouping("hierarchical", 2).levels(
        summaries([0] * 8, tasks=tasks, features=features, seeds=seeds)
    )
    assert by_task.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert partition(by_cluster) == {frozenset(pair) for pair in ((0, 1), (2, 3), (4, 5), (6, 7))}
    assert partition(by_start) == {frozenset(part) for part in ((0,), (1,), (2, 3), (4, 5), (6, 7))}


def test_adaptive_groups_remember_no_more_than_their_window() -> None:
    grouping = Adaptive(2, window=6)
    grouping.update(np.array([[float(n)] for n in range(5)]))
    grouping.update(np.array([[50.0], [51.0], [52.0]]))
    assert np.array(grouping.history)[:, 0].tolist() == [2.0, 3.0, 4.0, 50.0, 51.0, 52.0]
    again = Adaptive(2, window=6)
    again.load_state_dict(grouping.state_dict())
    again.update(np.array([[53.0]]))
    assert np.array(again.history)[:, 0].tolist() == [3.0, 4.0, 50.0, 51.0, 52.0, 53.0]
    assert len(grouping.history) == 6  # the state was a copy


def test_adaptive_centres_are_kept_in_the_units_of_the_features() -> None:
    """Means of the points of each group, in a column of its own scale, and in one that does not vary."""
    grouping = Adaptive(2)
    points = np.array([[0.0, 7.0, 100.0], [2.0, 7.0, 300.0], [10.0, 7.0, 5000.0], [12.0, 7.0, 5200.0]])
    assert grouping.update(points).tolist() == [0, 0, 1, 1]
    assert grouping.centres is not None
    np.testing.assert_allclose(grouping.centres, [[1.0, 7.0, 200.0], [11.0, 7.0, 5100.0]])
    assert grouping.update(np.zeros((0, 3))).tolist() == []
    assert len(grouping.history) == 4


@pytest.mark.parametrize("strategy", ["auto", "adaptive"])
def test_a_column_counts_by_how_it_divides_the_attempts_and_not_by_its_units(strategy: str) -> None:
    """The first column tells two kinds apart; the second is large and even; the others are rounding errors of 1e9."""
    kinds = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    even = np.array([0, 1, 2, 3, 4, 5, 6, 7]) * 1e4
    noise = 1e9 + np.array([0, 0, 0, 0, 1, 1, 1, 1]) * 1.2e-7
    assert noise[0] != noise[-1]
    points = np.stack([kinds * 0.01, even, noise, noise, -noise], axis=1)
    grouping = make_grouping(strategy, 2)
    for _ in range(2):
        assert grouping(summaries([0] * 8, features=points)).tolist() == kinds.tolist()


@pytest.mark.parametrize(("share", "order"), [(0.8, [1, 0]), (0.9, [1, 0]), (0.7, [0, 1])])
def test_drifted_centres_stay_unless_fresh_ones_are_a_fifth_better(
    share: float, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fresh clusters with that share of the inertia of those that drifted; the old ones were numbered downwards."""
    points = np.array([[0.0], [1.0], [9.0], [10.0]])
    fresh = Clusters(np.array([[0.5], [9.5]]), np.array([0, 0, 1, 1]), share * 10.0)
    drifted = Clusters(np.array([[9.5], [0.5]]), np.array([1, 1, 0, 0]), 10.0)
    runs = {True: [fresh], False: [drifted]}
    monkeypatch.setattr(strategies, "kmeans_iterations", lambda *args, start=None, **kwargs: runs[start is None])
    monkeypatch.setattr(strategies, "_order_like", lambda centres, old: [0, 1])
    found = Adaptive(2)._follow(points, np.array([[9.0], [1.0]]))[-1]
    assert found.tolist() == np.array([[0.5], [9.5]])[order].tolist()


def test_fresh_centres_take_the_numbers_of_the_nearest_old_ones_and_newcomers_come_last() -> None:
    old = np.array([[0.0], [10.0], [20.0]])
    assert numbered(np.array([[19.0], [1.0], [9.0]]), old)[:, 0].tolist() == [1.0, 9.0, 19.0]
    assert numbered(np.array([[-50.0], [11.0], [1.0], [21.0]]), old)[:, 0].tolist() == [1.0, 11.0, 21.0, -50.0]
    # fewer than before: those that are left keep their order
    assert numbered(np.array([[21.0], [1.0]]), old)[:, 0].tolist() == [1.0, 21.0]
    # the closest pair of all is matched first, whatever its row
    assert numbered(np.array([[6.0], [10.0]]), np.array([[11.0], [0.0]]))[:, 0].tolist() == [10.0, 6.0]
    # and no centre is matched twice
    assert numbered(np.array([[50.0], [5.0]]), np.array([[4.0], [7.0]]))[:, 0].tolist() == [5.0, 50.0]


@pytest.mark.parametrize("seed", range(20))
def test_fresh_clusters_are_matched_pair_by_pair_and_none_is_lost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fresh, old = rng.normal(size=(1 + seed % 5, 2)), rng.normal(size=(1 + seed // 4, 2))
    # By definition: of the pairs of which neither is matched yet, the nearest comes first.
    pairs = sorted((float(np.square(f - o).sum()), i, j) for i, f in enumerate(fresh) for j, o in enumerate(old))
    place: dict[int, int] = {}
    for _, i, j in pairs:
        if j not in place and i not in place.values():
            place[j] = i
    matched = [place[j] for j in sorted(place)]
    rest = [i for i in range(len(fresh)) if i not in matched]
    assert numbered(fresh, old).tolist() == fresh[matched + rest].tolist()


def test_a_task_is_numbered_in_the_order_of_appearance_and_its_saved_state_is_a_copy() -> None:
    grouping = make_grouping("task")
    grouping(summaries([0, 0], tasks=["z", "a"]))
    state = grouping.state_dict()
    grouping(summaries([0], tasks=["m"]))
    assert state == {"numbers": {"z": 0, "a": 1}}
    assert [grouping.label(number) for number in range(3)] == ["z", "a", "m"]
    other = make_grouping("task")
    other.load_state_dict(state)
    other(summaries([0], tasks=["q"]))
    assert state == {"numbers": {"z": 0, "a": 1}}


def test_every_attempt_of_a_batch_larger_than_the_window_has_a_group() -> None:
    """Only the last four of six are remembered, in whose units all six are placed."""
    grouping = Adaptive(2, window=4)
    points = np.array([[1.0], [9.0], [0.0], [2.0], [8.0], [10.0]])
    assert grouping.update(points).tolist() == [0, 1, 0, 0, 1, 1]
    assert grouping.centres is not None
    np.testing.assert_allclose(grouping.centres, [[1.0], [9.0]])


@pytest.mark.parametrize("strategy", ["adaptive", "dirichlet", "hierarchical", "task"])
def test_a_strategys_saved_state_does_not_change_when_it_goes_on(strategy: str) -> None:
    first, second = make_grouping(strategy, 2), make_grouping(strategy, 2)
    points, _ = blobs(0, 2)
    first(summaries([0] * 24, features=points, tasks=["x", "y"] * 12))
    state = first.state_dict()
    second.load_state_dict(state)
    before = repr(state)
    for used in (first, second):
        used(summaries([0] * 24, features=points + 5, tasks=["y", "z"] * 12))
    assert repr(state) == before
    assert repr(first.state_dict()) == repr(second.state_dict()) != before


def test_two_strategies_do_not_share_what_they_remember() -> None:
    points, _ = blobs(0, 2)
    for strategy in ("adaptive", "dirichlet", "hierarchical", "task"):
        used, fresh = make_grouping(strategy, 2), repr(make_grouping(strategy, 2).state_dict())
        other = make_grouping(strategy, 2)
        used(summaries([0] * 24, features=points, tasks=["x", "y"] * 12))
        assert repr(other.state_dict()) == fresh
