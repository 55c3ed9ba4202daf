"""k-means and the silhouette against their definitions, point by point."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from groupwise.core.grouping import kmeans as module
from groupwise.core.grouping.kmeans import choose_count, kmeans, nearest_centre, silhouette, standardised


def cloud(seed: int, count: int = 9, columns: int = 2) -> Any:
    return np.random.default_rng(seed).normal(size=(count, columns)).round(2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_clusters_are_their_points(seed: int, count: int) -> None:
    """Centres are means, points belong to the nearest, inertia is what is left, and centres ascend."""
    points = cloud(seed)
    found = kmeans(points, count, seed=seed)
    assert found.centres.shape == (count, 2)
    assert sorted(set(found.labels.tolist())) == list(range(count))
    for number in range(count):
        np.testing.assert_allclose(found.centres[number], points[found.labels == number].mean(axis=0))
    distances = [[math.dist(point, centre) for centre in found.centres] for point in points]
    assert found.labels.tolist() == [row.index(min(row)) for row in distances]
    assert nearest_centre(points, found.centres).tolist() == found.labels.tolist()
    assert found.inertia == pytest.approx(sum(min(row) ** 2 for row in distances))
    assert found.centres.tolist() == sorted(found.centres.tolist())


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_several_runs_is_the_best_there_is_for_a_few_points(seed: int) -> None:
    points = cloud(seed, count=7)
    best = math.inf
    for labels in product(range(2), repeat=7):
        parts = [points[np.array(labels) == number] for number in range(2)]
        if all(len(part) for part in parts):
            best = min(best, sum(float(np.square(part - part.mean(axis=0)).sum()) for part in parts))
    assert kmeans(points, 2, restarts=20).inertia == pytest.approx(best)
    assert kmeans(points, 2, restarts=20).inertia <= kmeans(points, 2, restarts=1).inertia


def test_every_run_is_tried_and_the_best_of_them_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[float] = []
    plain = module._lloyd

    def noted(points: Any, centres: Any) -> Any:
        moves = list(plain(points, centres))
        runs.append(moves[-1].inertia)
        return moves

    monkeypatch.setattr(module, "_lloyd", noted)
    points = cloud(3, count=30)
    assert kmeans(points, 6).inertia == min(runs)
    assert len(runs) == 4
    assert min(runs) < max(runs)


def test_the_seed_decides_the_draws_and_nothing_else_does() -> None:
    points = np.random.default_rng(0).uniform(size=(40, 2))
    inertias = [kmeans(points, 8, seed=seed, restarts=1).inertia for seed in range(6)]
    assert len(set(inertias)) > 1
    assert inertias == [kmeans(points, 8, seed=seed, restarts=1).inertia for seed in range(6)]
    assert kmeans(points, 8).inertia == kmeans(points, 8, seed=0).inertia


def test_centres_to_start_from_keep_their_order_and_need_as_many_points() -> None:
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = kmeans(points, 2, start=np.array([[12.0], [-3.0]]))
    assert found.centres.tolist() == [[10.5], [0.5]]
    assert found.labels.tolist() == [1, 1, 0, 0]
    assert found.inertia == pytest.approx(1.0)
    # as many starts as distinct points are obeyed; one more, and they are drawn afresh, in ascending order
    pair = np.array([[5.0], [2.0], [5.0]])
    assert kmeans(pair, 2, start=np.array([[6.0], [1.0]])).labels.tolist() == [0, 1, 0]
    assert kmeans(pair, 3, start=np.array([[6.0], [1.0], [0.0]])).labels.tolist() == [1, 0, 1]


def test_the_points_and_the_centres_given_are_left_as_they_are() -> None:
    points, start = np.array([[3.0], [1.0], [2.0]]), np.array([[2.5], [0.0]])
    kmeans(points, 2, start=start)
    assert points.tolist() == [[3.0], [1.0], [2.0]]
    assert start.tolist() == [[2.5], [0.0]]


@pytest.mark.parametrize(
    ("labels", "own", "count", "expected"),
    [
        ([0, 0, 1], [0.2, 0.3, 0.9], 3, [0, 2, 1]),  # the farthest is alone in its cluster
        ([1, 0, 0], [0.0, 0.0, 0.0], 3, [1, 2, 0]),
        ([0, 0, 1, 1], [9.0, 8.0, 2.0, 1.0], 4, [2, 0, 3, 1]),  # once it gave one away, a pair has none to spare
        ([0, 0, 0], [0.0, 4.0, 2.0], 3, [0, 1, 2]),
        ([0, 2, 0], [1.0, 7.0, 5.0], 3, [0, 2, 1]),
        ([0, 1, 2], [1.0, 7.0, 5.0], 3, [0, 1, 2]),
    ],
)
def test_an_empty_cluster_takes_the_farthest_point_of_a_cluster_that_can_spare_it(
    labels: list[int], own: list[float], count: int, expected: list[int]
) -> None:
    distances = np.full((len(labels), count), 50.0)
    distances[np.arange(len(labels)), labels] = own
    assert module._without_empty(distances, np.array(labels), count).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_standardised_columns_have_mean_zero_and_deviation_one(seed: int) -> None:
    points = cloud(seed, columns=3) * [1, 100, 0.01] + [5, -3, 0]
    expected = (points - points.mean(axis=0)) / points.std(axis=0)
    np.testing.assert_allclose(standardised(points), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("column", "varies"),
    [([0.0, 1e-6], True), ([0.0, 1e-10], False), ([1e6, 1e6 + 0.1], True), ([-1e6, -1e6 - 1e-4], False),
     ([1e-3, 1e-3 + 1e-10], False), ([7.0, 7.0], False)],
)  # fmt: skip
def test_a_spread_that_is_rounding_beside_the_values_is_none(column: list[float], varies: bool) -> None:
    assert bool(standardised(np.array([column]).T).any()) == varies


def plain_silhouette(points: Any, labels: list[int]) -> float:
    scores = []
    for i, own in enumerate(labels):
        away: dict[int, list[float]] = {}
        for j, kind in enumerate(labels):
            if j != i:
                away.setdefault(kind, []).append(math.dist(points[i], points[j]))
        if own not in away:
            scores.append(0.0)
            continue
        a = sum(away[own]) / len(away[own])
        b = min(sum(far) / len(far) for kind, far in away.items() if kind != own)
        scores.append((b - a) / max(a, b) if max(a, b) > 0 else 0.0)
    return sum(scores) / len(scores)


@pytest.mark.parametrize("seed", range(5))
def test_the_silhouette_is_its_definition_point_by_point(seed: int) -> None:
    points = cloud(seed)
    for kinds in (2, 3, 4):
        labels = np.random.default_rng(seed + kinds).integers(kinds, size=9)
        labels[:kinds] = np.arange(kinds)
        names = labels * 5 + 3  # whatever the clusters are called
        assert silhouette(points, names) == pytest.approx(plain_silhouette(points, labels.tolist()))
    assert silhouette(points, np.zeros(9, int)) == 0.0
    assert silhouette(np.zeros((4, 1)), np.array([0, 0, 1, 1])) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_the_count_chosen_has_the_best_silhouette_of_those_allowed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.repeat(np.array([[0.0, 0], [9, 0], [0, 9], [9, 9], [40, 40]]), 6, axis=0) + rng.normal(size=(30, 2))
    for most in (2, 3, 4, 8):
        scores = {k: silhouette(points, kmeans(points, k).labels) for k in range(2, most + 1)}
        assert choose_count(points, most=most) == max(scores, key=lambda k: scores[k])


def test_more_than_eight_clusters_are_never_chosen_unless_allowed() -> None:
    points = np.repeat(np.arange(10.0) * 100, 5)[:, None] + np.tile(np.arange(5.0), 10)[:, None]
    assert choose_count(points) <= 8
    assert choose_count(points, most=10) == 10
    assert choose_count(points[:40]) == 8
    assert choose_count(np.array([[1.0], [1.0], [1.0]])) == 1
    assert choose_count(np.array([[0.0], [0.0], [9.0], [9.0]])) == 2


def test_clusters_that_touch_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best silhouette of these points decides: below 0.25 it is not enough, and equal to the least it is."""
    points = np.random.default_rng(0).normal(size=(40, 6))
    points = points[points[:, 0].argsort()]  # sums in the order in which they are taken inside
    best = max(silhouette(points, kmeans(points, k).labels) for k in range(2, 9))
    assert 0 < best < module.LEAST_SILHOUETTE == 0.25
    assert choose_count(points) == 1
    monkeypatch.setattr(module, "LEAST_SILHOUETTE", best)
    assert choose_count(points) > 1
    monkeypatch.setattr(module, "LEAST_SILHOUETTE", np.nextafter(best, 1))
    assert choose_count(points) == 1


@pytest.mark.parametrize("count", [1, 399, 400, 401, 1000])
def test_at_most_four_hundred_points_decide_evenly_spaced_in_sorted_order(count: int) -> None:
    points = np.random.default_rng(count).permutation(count).astype(float)[:, None]
    chosen = points[module._sample(points)][:, 0]
    assert len(chosen) == min(count, 400)
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    assert np.diff(chosen).max(initial=1) <= math.ceil(count / 400)
    assert (np.diff(chosen) > 0).all()


@pytest.mark.parametrize("count", [400, 401])
def test_the_count_is_chosen_on_that_sample_and_with_that_seed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    plain = module.kmeans

    def noted(points: Any, clusters: int, *, seed: int) -> Any:
        asked.append((len(points), clusters, seed))
        return plain(points, clusters, seed=seed, restarts=1)

    monkeypatch.setattr(module, "kmeans", noted)
    choose_count(np.arange(count, dtype=float)[:, None], seed=11, most=3)
    assert asked == [(400, 2, 11), (400, 3, 11)]


def test_points_are_sorted_by_their_first_column_first() -> None:
    points = np.array([[1.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    assert module._sample(points).tolist() == [2, 1, 0]
    assert kmeans(points, 3).labels.tolist() == [2, 1, 0]
