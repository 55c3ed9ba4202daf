"""The Dirichlet-process mixture against SciPy's Student t, and its clusters against the points they stand for."""

from __future__ import annotations

import math
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from groupwise.core.grouping.mixture import Cluster, DirichletMixture


def points_of(seed: int, count: int, columns: int = 2) -> Any:
    return np.random.default_rng(seed).normal(1.0, 2.0, size=(count, columns))


def cluster_of(points: Any, name: int = 0) -> Cluster:
    empty = Cluster(name, 0.0, np.zeros(points.shape[1]), np.zeros(points.shape[1]))
    return reduce(Cluster.joined_by, points, empty)


def assert_stands_for(cluster: Cluster, points: Any) -> None:
    assert cluster.size == pytest.approx(len(points))
    np.testing.assert_allclose(cluster.mean, points.mean(axis=0))
    np.testing.assert_allclose(cluster.deviation, len(points) * points.var(axis=0), atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_cluster_stands_for_the_points_that_joined_it(count: int) -> None:
    points = points_of(count, count)
    assert_stands_for(cluster_of(points, 4), points)
    assert cluster_of(points, 4).name == 4


@pytest.mark.parametrize(("few", "many"), [(1, 1), (1, 5), (6, 2)])
def test_two_clusters_together_stand_for_all_points_under_the_older_name(few: int, many: int) -> None:
    one, other = points_of(1, few), points_of(2, many) + 3
    both = np.concatenate([one, other])
    assert_stands_for(cluster_of(one, 3).merged_with(cluster_of(other, 8)), both)
    assert_stands_for(cluster_of(other, 8).merged_with(cluster_of(one, 3)), both)
    assert cluster_of(one, 3).merged_with(cluster_of(other, 8)).name == 3
    assert cluster_of(other, 8).merged_with(cluster_of(one, 3)).name == 3


def test_a_faded_cluster_is_as_wide_and_in_the_same_place() -> None:
    before = cluster_of(points_of(0, 6), 5)
    after = before.faded(0.25)
    assert (after.name, after.size) == (5, 1.5)
    assert after.mean.tolist() == before.mean.tolist()
    np.testing.assert_allclose(after.deviation / after.size, before.deviation / before.size)


def predictive(point: Any, points: Any, spread: float) -> float:
    """log t: the prior is κ₀ = 0.05, a₀ = 2, m₀ = 0, b₀ = 2 · spread²; Murphy 2007, equations 86 to 89 and 100."""
    count = len(points)
    mean = points.mean(axis=0) if count else np.zeros(len(point))
    squares = count * points.var(axis=0) if count else np.zeros(len(point))
    strength, shape = 0.05 + count, 2 + count / 2
    rate = 2 * spread**2 + squares / 2 + 0.05 * count * mean**2 / (2 * strength)
    scale = np.sqrt(rate * (strength + 1) / (shape * strength))
    return float(stats.t.logpdf(point, 2 * shape, loc=count * mean / strength, scale=scale).sum())


@pytest.mark.parametrize("spread", [0.25, 1.5])
@pytest.mark.parametrize("count", [0, 1, 4, 20])
def test_the_density_of_a_point_is_a_student_t(count: int, spread: float) -> None:
    points, mixture = points_of(3, count), DirichletMixture(spread=spread)
    for point in (np.zeros(2), np.array([1.0, -4.0])):
        assert mixture._density(point, cluster_of(points)) == pytest.approx(predictive(point, points, spread))


@pytest.mark.parametrize("concentration", [1.0, 0.2])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_evidence_of_a_cluster_is_that_of_its_points_one_after_another(count: int, concentration: float) -> None:
    points = points_of(4, count, columns=3)
    mixture = DirichletMixture(concentration=concentration, spread=0.4)
    chain = sum(predictive(points[n], points[:n], 0.4) for n in range(count))
    expected = chain + math.log(concentration) + math.lgamma(count)
    assert mixture._evidence(cluster_of(points)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("concentration", "stickiness"), [(1.0, 1.0), (0.05, 0.0), (5.0, 4.0)])
def test_a_point_joins_the_likeliest_cluster_or_starts_its_own(
    seed: int, concentration: float, stickiness: float
) -> None:
    """A stream placed by the formula at the top of the module, with all points kept."""
    rng = np.random.default_rng(seed)
    stream = rng.normal(size=(24, 2)) * 0.6 + 2.0 * rng.integers(2, size=(24, 1))
    mixture = DirichletMixture(concentration=concentration, stickiness=stickiness)
    kept: list[list[Any]] = []
    previous = -1
    for point in stream:
        weights = [len(own) + stickiness * (name == previous) for name, own in enumerate(kept)]
        fits = [math.log(w) + predictive(point, np.array(own), 0.25) for w, own in zip(weights, kept, strict=True)]
        alone = math.log(concentration) + predictive(point, np.zeros((0, 2)), 0.25)
        previous = len(kept) if not fits or alone > max(fits) else int(np.argmax(fits))
        if previous == len(kept):
            kept.append([])
        kept[previous].append(point)
        assert mixture._place(point) == previous
    assert len(mixture) == mixture.founded == len(kept) > 1
    for cluster, own in zip(mixture.clusters, kept, strict=True):
        assert_stands_for(cluster, np.array(own))


def with_clusters(mixture: DirichletMixture, *parts: Any, names: tuple[int, ...] | None = None) -> DirichletMixture:
    mixture.clusters = [cluster_of(part, name) for part, name in zip(parts, names or range(len(parts)), strict=True)]
    mixture.founded = max(cluster.name for cluster in mixture.clusters) + 1
    mixture.frame = np.zeros(parts[0].shape[1]), np.ones(parts[0].shape[1])
    return mixture


def test_clusters_merge_pair_by_pair_while_it_gains_and_keep_the_older_names() -> None:
    """Two tasks, each in two halves: the halves merge with each other, the tasks do not."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(-6, 0.3, size=(20, 2)), rng.normal(6, 0.3, size=(20, 2))
    mixture = with_clusters(DirichletMixture(), left[:10], right[:10], left[10:], right[10:], names=(7, 3, 2, 5))
    assert mixture._merge() == {7: 2, 5: 3}
    assert sorted(cluster.name for cluster in mixture.clusters) == [2, 3]
    by_name = {cluster.name: cluster for cluster in mixture.clusters}
    assert_stands_for(by_name[2], left)
    assert_stands_for(by_name[3], right)
    assert mixture._merge() == {}


def test_many_thin_slices_of_one_task_become_one_and_old_names_lead_there() -> None:
    points = np.random.default_rng(1).normal(0, 0.3, size=(12, 2))
    mixture = with_clusters(DirichletMixture(), *points[:, None], names=tuple(range(4, 16)))
    renamed = mixture._merge()
    assert [cluster.name for cluster in mixture.clusters] == [4]
    assert {renamed.get(name, name) for name in range(4, 16)} == {4}
    assert_stands_for(mixture.clusters[0], points)


def test_clusters_in_a_row_become_one_if_that_gains_although_no_pair_does() -> None:
    mixture = DirichletMixture()
    row = [Cluster(name, 14.0, np.array([1.303 * name - 6.77]), np.array([1.495])) for name in range(4, 8)]
    apart = [mixture._evidence(cluster) for cluster in row]
    for i, j in combinations(range(4), 2):
        assert mixture._evidence(row[i].merged_with(row[j])) < apart[i] + apart[j]
    whole = reduce(Cluster.merged_with, row)
    assert mixture._evidence(whole) > sum(apart)
    mixture.clusters = list(row)
    assert mixture._merge() == dict.fromkeys(range(4, 8), 4)
    assert [cluster.name for cluster in mixture.clusters] == [4]
    assert mixture.clusters[0].size == 56.0
    # three of them gain nothing together, and stay apart
    mixture.clusters = row[:3]
    assert mixture._evidence(reduce(Cluster.merged_with, row[:3])) < sum(apart[:3])
    assert mixture._merge() == {}


def test_a_name_that_was_merged_away_leads_to_the_name_that_is_left() -> None:
    """Three slices in a chain: what was renamed once is renamed again with its cluster."""
    rng = np.random.default_rng(2)
    left, right = rng.normal(-6, 0.3, size=(18, 1)), rng.normal(6, 0.3, size=(6, 1))
    mixture = with_clusters(DirichletMixture(), left[12:], left[6:12], left[:6], right, names=(9, 5, 1, 2))
    renamed = mixture._merge()
    assert {name: renamed.get(name, name) for name in (9, 5, 1, 2)} == {9: 1, 5: 1, 1: 1, 2: 2}


def test_a_batch_is_read_in_units_of_the_first_one_for_good() -> None:
    first = np.array([[0.0, 5.0, 7.0], [2.0, 9.0, 7.0]])
    mixture = DirichletMixture()
    assert mixture._framed(first).tolist() == [[-1.0, -1.0, 0.0], [1.0, 1.0, 0.0]]
    assert mixture._framed(np.array([[3.0, 7.0, 9.5]])).tolist() == [[2.0, 0.0, 2.5]]


@pytest.mark.parametrize("window", [1, 2, 50])
def test_after_each_batch_weights_fade_by_its_length(window: int) -> None:
    """A window below 2 counts as 2: otherwise nothing would be left."""
    mixture = DirichletMixture(window=window)
    keep = 1 - 1 / max(window, 2)
    mixture.assign(np.zeros((3, 1)))
    assert mixture.clusters[0].size == pytest.approx(3 * keep**3)
    mixture.assign(np.zeros((2, 1)))
    assert mixture.clusters[0].size == pytest.approx((3 * keep**3 + 2) * keep**2)


@pytest.mark.parametrize(("size", "left"), [(0.52, [0, 1]), (0.5, [1])])
def test_a_cluster_lighter_than_half_a_trajectory_is_forgotten_unless_it_was_the_last(
    size: float, left: list[int]
) -> None:
    mixture = DirichletMixture(window=100)
    tasks = [(0, size, [-9.0], [0.0]), (1, 0.1, [9.0], [0.0])]
    mixture.load_state_dict({"clusters": tasks, "founded": 2, "previous": 1, "frame": [[0.0], [1.0]]})
    assert mixture.assign(np.array([[9.0]])).tolist() == [1]
    assert [cluster.name for cluster in mixture.clusters] == left
    # exactly half a trajectory is kept
    mixture.load_state_dict(
        {"clusters": [(0, 1.0, [-9.0], [0.0])], "founded": 1, "previous": 0, "frame": [[0.0], [1.0]]}
    )
    mixture.keep = 0.5
    assert mixture.assign(np.array([[90.0]])).tolist() == [1]
    assert [cluster.size for cluster in mixture.clusters] == [0.5, 0.5]
    # a light cluster stays while it is the one before
    mixture.load_state_dict(
        {"clusters": [(4, 1e-6, [0.0], [0.0])], "founded": 5, "previous": 4, "frame": [[0.0], [1.0]]}
    )
    mixture.concentration = 1e-9
    mixture.keep = 0.1
    assert mixture.assign(np.array([[0.0]])).tolist() == [4]
    assert [cluster.name for cluster in mixture.clusters] == [4]


def test_a_name_is_never_given_twice_even_after_its_cluster_was_forgotten() -> None:
    mixture = DirichletMixture()
    mixture.load_state_dict({"clusters": [], "founded": 3, "previous": 2, "frame": [[0.0], [1.0]]})
    assert mixture.assign(np.array([[0.0], [50.0], [0.0]])).tolist() == [3, 4, 3]
    assert mixture.founded == 5


def test_the_cluster_before_is_that_of_the_last_point_under_its_new_name() -> None:
    mixture = DirichletMixture()
    left, right = np.full((1, 1), -5.0), np.full((1, 1), 5.0)
    mixture.load_state_dict({"clusters": [], "founded": 0, "previous": -1, "frame": [[0.0], [1.0]]})
    found = mixture.assign(np.concatenate([left, right, left]))
    assert found.tolist() == [0, 1, 0]
    assert mixture.previous == 0
    assert mixture.assign(right).tolist() == [1]
    assert mixture.previous == 1
    assert mixture.assign(np.zeros((0, 1))).tolist() == []
    assert mixture.previous == 1
    mixture.assign(np.concatenate([right, left]))
    assert mixture.previous == 0
    # a point that joins 1 is called 0 if the two turn out to be one task
    halves = [(0, 9.0, [-0.1], [0.3]), (1, 9.0, [0.1], [0.3])]
    mixture.load_state_dict({"clusters": halves, "founded": 2, "previous": 1, "frame": [[0.0], [1.0]]})
    assert mixture.assign(np.array([[0.2]])).tolist() == [0]
    assert (mixture.previous, len(mixture)) == (0, 1)


def test_a_saved_state_is_a_copy_that_json_can_carry() -> None:
    mixture = DirichletMixture()
    assert mixture.state_dict()["frame"] is None
    mixture.assign(points_of(0, 5))
    state = mixture.state_dict()
    assert state["frame"][0] == pytest.approx(points_of(0, 5).mean(axis=0).tolist())
    other = DirichletMixture()
    other.load_state_dict(state)
    before = [(c.name, c.size, c.mean.tolist(), c.deviation.tolist()) for c in other.clusters]
    mixture.assign(points_of(1, 5))
    assert [(c.name, c.size, c.mean.tolist(), c.deviation.tolist()) for c in other.clusters] == before
    assert (other.founded, other.previous) == (state["founded"], state["previous"])


def test_a_mixture_is_gentle_unless_told() -> None:
    plain = DirichletMixture()
    assert (plain.concentration, plain.stickiness, plain.spread, plain.keep) == (1.0, 1.0, 0.25, 1 - 1 / 1000)
    told = DirichletMixture(concentration=2.0, stickiness=3.0, spread=0.5, window=10)
    assert (told.concentration, told.stickiness, told.spread, told.keep) == (2.0, 3.0, 0.5, 0.9)
