"""k-means, seeded and independent of the order of its points, and the number of clusters by silhouette.

NumPy only: clustering a few hundred trajectories with a dozen features takes a millisecond or two, less than importing
a library for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

RESTARTS = 4
ITERATIONS = 100
MOST_CLUSTERS = 8
# The silhouette needs all pairwise distances.
LARGEST_SAMPLE = 400
# Below this mean silhouette, clusters touch: "no substantial structure" in Kaufman and Rousseeuw, 1990.
LEAST_SILHOUETTE = 0.25


@dataclass(frozen=True, slots=True)
class Clusters:
    """`centres` [K, F] in ascending order of their coordinates, `labels` [N], and the sum of squared distances."""

    centres: Floats
    labels: Ints
    inertia: float


def standardised(points: Floats) -> Floats:
    """Every column with mean 0 and standard deviation 1; a column that does not vary becomes 0.

    Columns are summed in ascending order, so that the order of the points does not change a single bit.
    """
    ascending = np.sort(points, axis=0)
    centred = points - ascending.mean(axis=0)
    spread = ascending.std(axis=0)
    real = spread > 1e-9 * np.maximum(1.0, np.abs(points).max(axis=0, initial=0.0))
    result: Floats = np.where(real, centred / np.where(real, spread, 1.0), 0.0)
    return result


def kmeans(
    points: Floats, count: int, *, seed: int = 0, start: Floats | None = None, restarts: int = RESTARTS
) -> Clusters:
    """The best of several runs of Lloyd's algorithm, each seeded by k-means++ (Arthur and Vassilvitskii, 2007).

    Args:
      points: [N, F], N at least 1.
      count: K. If there are fewer distinct points than that, each is a cluster.
      seed: of the k-means++ draws. Points are sorted first, so that their given order has no effect.
      start: [K, F], centres to start from instead of k-means++; their order is kept.
      restarts: the number of runs without `start`.

    Returns:
      `Clusters`, none of them empty.
    """
    return kmeans_iterations(points, count, seed=seed, start=start, restarts=restarts)[-1]


def kmeans_iterations(
    points: Floats, count: int, *, seed: int = 0, start: Floats | None = None, restarts: int = RESTARTS
) -> list[Clusters]:
    """What every iteration of the best run assigned, from the first, to the starting centres, to the last: `kmeans`."""
    # lexsort's last key is its first: sort by column 0, then 1, and so on.
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    distinct = np.unique(ordered, axis=0)
    if start is not None and len(start) <= len(distinct):
        best = list(_lloyd(ordered, start))
    else:
        rng = np.random.default_rng(seed)
        few = min(count, len(distinct))
        runs = [list(_lloyd(ordered, _plus_plus(distinct, few, rng))) for _ in range(restarts)]
        best = min(runs, key=lambda run: run[-1].inertia)
        rank = np.lexsort(best[-1].centres.T[::-1])
        best = [Clusters(one.centres[rank], np.argsort(rank)[one.labels], one.inertia) for one in best]
    # Back to the given order of the points.
    place = np.argsort(order)
    return [Clusters(one.centres, one.labels[place], one.inertia) for one in best]


def choose_count(points: Floats, *, seed: int = 0, most: int = MOST_CLUSTERS) -> int:
    """The number of clusters from 2 to `most` with the highest mean silhouette; 1 if even that is below 0.25.

    Beyond 400 points, 400 evenly spaced ones decide.
    """
    points = points[_sample(points)]
    counts = range(2, min(most, len(np.unique(points, axis=0))) + 1)
    scores = {count: silhouette(points, kmeans(points, count, seed=seed).labels) for count in counts}
    best = max(scores, key=lambda count: scores[count], default=1)
    return best if scores.get(best, 0.0) >= LEAST_SILHOUETTE else 1


def silhouette(points: Floats, labels: Ints) -> float:
    """The mean of (b − a) / max(a, b): a is the mean distance to the point's own cluster, b to the nearest other.

    Rousseeuw, 1987; a point alone in its cluster counts as 0.
    """
    kinds, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(kinds) < 2:
        return 0.0
    distances = np.sqrt(_squared_distances(points, points))
    # totals [N, K]: the sum of distances from each point to each cluster.
    totals = np.stack([distances[:, index == kind].sum(axis=1) for kind in range(len(kinds))], axis=1)
    rows = np.arange(len(points))
    # Without the point itself, at distance 0.
    own = totals[rows, index] / np.maximum(sizes[index] - 1, 1)
    others = totals / sizes
    others[rows, index] = np.inf
    nearest = others.min(axis=1)
    larger = np.maximum(np.maximum(own, nearest), 1e-300)
    return float(np.where(sizes[index] > 1, (nearest - own) / larger, 0.0).mean())


def nearest_centre(points: Floats, centres: Floats) -> Ints:
    """The number of each point's nearest centre, [N]."""
    nearest: Ints = _squared_distances(points, centres).argmin(axis=1)
    return nearest


def _sample(points: Floats) -> Ints:
    """At most 400 rows, evenly spaced in the sorted order of the points, not in that of their rows."""
    order: Ints = np.lexsort(points.T[::-1])
    if len(points) <= LARGEST_SAMPLE:
        return order
    return order[np.linspace(0, len(points) - 1, LARGEST_SAMPLE).astype(np.intp)]


def _squared_distances(points: Floats, centres: Floats) -> Floats:
    distances: Floats = np.square(points[:, np.newaxis, :] - centres[np.newaxis, :, :]).sum(axis=2)
    return distances


def _plus_plus(distinct: Floats, count: int, rng: np.random.Generator) -> Floats:
    # Each next centre is drawn with probability proportional to the squared distance to the nearest centre so far.
    centres = [distinct[rng.integers(len(distinct))]]
    distance = _squared_distances(distinct, np.array(centres))[:, 0]
    while len(centres) < count:
        centres.append(distinct[rng.choice(len(distinct), p=distance / distance.sum())])
        distance = np.minimum(distance, _squared_distances(distinct, centres[-1][np.newaxis])[:, 0])
    return np.array(centres)


def _lloyd(points: Floats, centres: Floats) -> Iterator[Clusters]:
    labels = np.full(len(points), -1, np.int64)
    centres = centres.copy()
    for _ in range(ITERATIONS):
        distances = _squared_distances(points, centres)
        previous, labels = labels, distances.argmin(axis=1)
        labels = _without_empty(distances, labels, len(centres))
        if np.array_equal(labels, previous):
            return
        centres = np.stack([points[labels == kind].mean(axis=0) for kind in range(len(centres))])
        yield Clusters(centres, labels, float(np.square(points - centres[labels]).sum()))


def _without_empty(distances: Floats, labels: Ints, count: int) -> Ints:
    """An empty cluster takes the point farthest from its own centre, from a cluster that has others left."""
    sizes = np.bincount(labels, minlength=count)
    for kind in np.flatnonzero(sizes == 0):
        own = distances[np.arange(len(labels)), labels]
        farthest = int(np.where(sizes[labels] > 1, own, -1.0).argmax())
        sizes[labels[farthest]] -= 1
        labels[farthest] = kind
        sizes[kind] = 1
        distances[farthest, kind] = 0.0
    return labels
