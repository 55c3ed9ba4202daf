"""Which attempts belong together. There are three kinds of group, and they must not be mixed up:

    baseline group   same task, same initial state, fixed before acting: the only one whose mean may be subtracted
    scale group      its root mean square divides: usually the task
    weight group     has a weight in the loss and a row in reports: usually the task

A group formed from the outcome (by return, by length, by clusters of what happened) may scale and weigh. Its mean
must not be subtracted: that would praise the best of the worst quarter and blame the worst of the best quarter for
being in that quarter. Every strategy says whether it depends on the outcome.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from groupwise.core.grouping.kmeans import Floats, Ints, choose_count, kmeans_iterations, nearest_centre, standardised
from groupwise.core.grouping.mixture import DirichletMixture
from groupwise.core.shapes import check_choice
from groupwise.errors import ConfigError
from groupwise.types import Trajectory


@dataclass(frozen=True, slots=True)
class Summaries:
    """What a grouping may look at in N trajectories: features [N, F] and the rest, all [N]. Nothing may be NaN."""

    features: Floats
    tasks: NDArray[np.str_]
    returns: Floats
    lengths: Ints
    seeds: Ints

    def __post_init__(self) -> None:
        count = len(self.features)
        for name in ("tasks", "returns", "lengths", "seeds"):
            if (shape := np.shape(getattr(self, name))) != (count,):
                raise ValueError(f"{name} has shape {shape}; there are {count} rows of features")
        for name in ("features", "returns"):
            values = getattr(self, name)
            if not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                raise ValueError(f"{name} of trajectory {row}: {values[row]}; groups need finite numbers")

    def __len__(self) -> int:
        return len(self.features)


def selected(attempts: Summaries, rows: NDArray[np.bool_]) -> Summaries:
    """The summaries of the selected rows."""
    return Summaries(*(getattr(attempts, name)[rows] for name in Summaries.__slots__))


def summarise(
    members: Sequence[Trajectory],
    tasks: Sequence[str],
    seeds: Sequence[int] | None = None,
    returns: Sequence[float] | None = None,
    *,
    features: bool = True,
) -> Summaries:
    """Summaries of trajectories; without `returns`, the sum of each trajectory's own rewards.

    Features: reward per step, log(1 + length), and the mean and standard deviation of every observed quantity.
    `features=False` leaves them out, for strategies that do not use them.
    """
    totals = [float(np.sum(m.rewards)) for m in members] if returns is None else list(returns)
    lengths, count = [len(m) for m in members], len(members)
    return Summaries(
        features=attempt_features([m.obs for m in members], lengths, totals) if features else np.zeros((count, 0)),
        tasks=np.array(list(tasks), np.str_),
        returns=np.array(totals, np.float64),
        lengths=np.array(lengths, np.int64),
        seeds=np.array(list(seeds or [0] * count), np.int64),
    )


def attempt_features(observations: Sequence[Any], lengths: Sequence[int], totals: Sequence[float]) -> Floats:
    """What clusters are made of [N, 2 + 2W], from each attempt's observations [T, W], length and return.

    Columns: reward per step, log(1 + length), W means, W deviations; narrower observations leave zeros.
    """
    seen = [np.asarray(obs, np.float64).reshape(len(obs), -1) if len(obs) else np.zeros((1, 1)) for obs in observations]
    width = max((obs.shape[1] for obs in seen), default=0)
    features = np.zeros((len(seen), 2 + 2 * width))
    for row, obs, total, length in zip(features, seen, totals, lengths, strict=True):
        row[0], row[1] = total / max(length, 1), np.log1p(length)
        row[2 : 2 + obs.shape[1]] = obs.mean(axis=0)
        row[2 + width : 2 + width + obs.shape[1]] = obs.std(axis=0)
    return features


HISTORY = 1000
# A fresh clustering replaces the one that drifted along if its inertia is below this share of the old one's.
BETTER = 0.8


class Grouping(ABC):
    """A strategy: summaries → integer groups [N]. Strategies that learn keep what they learned in their state."""

    name: ClassVar[str]
    depends_on_outcome: ClassVar[bool]
    uses_features: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, attempts: Summaries) -> Ints: ...

    def levels(self, attempts: Summaries) -> list[Ints]:
        """Nested groups, from coarse to fine; most strategies have one level."""
        return [self(attempts)]

    def iterations(self, attempts: Summaries) -> list[Ints]:
        """The groups after every iteration of the algorithm; the last are what a call returns, and it learns as a call.

        A strategy that decides at once has one iteration. An attempt that has no group yet has −1.
        """
        return [self(attempts)]

    def label(self, group: int) -> str:
        """The name of a group in reports."""
        return f"{self.name}-{group}"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Most strategies have no state."""


class ByTask(Grouping):
    """One group per task, numbered in the order of first appearance; a task keeps its number."""

    name = "task"
    depends_on_outcome = False
    uses_features = False

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, attempts: Summaries) -> Ints:
        found = [self.numbers.setdefault(str(task), len(self.numbers)) for task in attempts.tasks]
        return np.array(found, np.int64)

    def label(self, group: int) -> str:
        return next(name for name, number in self.numbers.items() if number == group)

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": dict(self.numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.numbers = dict(state["numbers"])


class ByQuantile(Grouping):
    """Equal shares from the lowest (group 0) to the highest; equal values are never separated.

    A value equal to a quantile belongs to the group below it.
    """

    depends_on_outcome = True
    uses_features = False

    def __init__(self, count: int | None = 4) -> None:
        self.count = 4 if count is None else count

    def __call__(self, attempts: Summaries) -> Ints:
        values = self.values(attempts)
        if not len(values):
            return np.zeros(0, np.int64)
        # count − 1 inner edges; searchsorted puts a value equal to an edge below it.
        edges = np.quantile(values, np.arange(1, self.count) / self.count)
        groups: Ints = np.searchsorted(edges, values).astype(np.int64)
        return groups

    @abstractmethod
    def values(self, attempts: Summaries) -> Floats: ...


class ByDifficulty(ByQuantile):
    """By return: the lowest quarter was hardest."""

    name = "difficulty"

    def values(self, attempts: Summaries) -> Floats:
        return attempts.returns


class ByLength(ByQuantile):
    """By length, from the shortest to the longest."""

    name = "length"

    def values(self, attempts: Summaries) -> Floats:
        return attempts.lengths.astype(np.float64)


class ByCluster(Grouping):
    """k-means on standardised features, from scratch in every batch; `count` None chooses it by silhouette."""

    name = "auto"
    depends_on_outcome = True

    def __init__(self, count: int | None = 4, seed: int = 0) -> None:
        self.count, self.seed = count, seed

    def __call__(self, attempts: Summaries) -> Ints:
        return self.iterations(attempts)[-1]

    def iterations(self, attempts: Summaries) -> list[Ints]:
        if not len(attempts):
            return [np.zeros(0, np.int64)]
        points = standardised(attempts.features)
        count = self.count or choose_count(points, seed=self.seed)
        return [clusters.labels for clusters in kmeans_iterations(points, count, seed=self.seed)]


class Adaptive(Grouping):
    """k-means that follows drift: the clusters of the last `window` trajectories, which keep their numbers.

    Every batch moves the centres from where they were. If a clustering from scratch fits clearly better, say
    because a new kind of trajectory appeared, it takes over; its clusters get the numbers of the nearest old ones.
    """

    name = "adaptive"
    depends_on_outcome = True

    def __init__(self, count: int | None = 4, window: int = HISTORY, seed: int = 0) -> None:
        self.count, self.seed = count, seed
        self.history: deque[Floats] = deque(maxlen=window)
        self.centres: Floats | None = None

    def __call__(self, attempts: Summaries) -> Ints:
        return self.update(attempts.features)

    def iterations(self, attempts: Summaries) -> list[Ints]:
        return self._updates(attempts.features)

    def update(self, features: Floats) -> Ints:
        """Add these trajectories to the history, update the clusters, and return each trajectory's cluster [N]."""
        return self._updates(features)[-1]

    def _updates(self, features: Floats) -> list[Ints]:
        if not len(features):
            return [np.zeros(0, np.int64)]
        self.history.extend(np.asarray(features, np.float64))
        past = np.array(self.history)
        shift, spread = past.mean(axis=0), past.std(axis=0)
        # A column that does not vary is divided by infinity: it becomes 0 and separates nothing.
        spread = np.where(spread > 1e-9 * np.maximum(1.0, np.abs(past).max(axis=0)), spread, np.inf)
        points = (past - shift) / spread
        # Centres are kept in raw units, because the standardisation moves with the history.
        old = None if self.centres is None else (self.centres - shift) / spread
        moves = self._follow(points, old)
        self.centres = np.where(np.isinf(spread), shift, moves[-1] * np.where(np.isinf(spread), 0.0, spread) + shift)
        return [nearest_centre((features - shift) / spread, centres) for centres in moves]

    def _follow(self, points: Floats, old: Floats | None) -> list[Floats]:
        """The centres after every iteration."""
        count = self.count or choose_count(points, seed=self.seed)
        fresh = kmeans_iterations(points, count, seed=self.seed)
        if old is None:
            return [clusters.centres for clusters in fresh]
        drifted = kmeans_iterations(points, len(old), seed=self.seed, start=old)
        as_many = len(drifted[-1].centres) == len(fresh[-1].centres)
        if as_many and fresh[-1].inertia >= BETTER * drifted[-1].inertia:
            return [clusters.centres for clusters in drifted]
        order = _order_like(fresh[-1].centres, old)
        return [clusters.centres[order] for clusters in fresh]

    def state_dict(self) -> dict[str, Any]:
        centres = None if self.centres is None else self.centres.tolist()
        return {"history": [row.tolist() for row in self.history], "centres": centres}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.history = deque((np.array(row) for row in state["history"]), self.history.maxlen)
        self.centres = None if state["centres"] is None else np.array(state["centres"])


def _order_like(fresh: Floats, old: Floats) -> list[int]:
    """The order that puts fresh centres beside their nearest old ones, matched greedily pair by pair; new ones last."""
    # [fresh, old]; a matched row and column become infinite, so that neither is matched again.
    distance = np.square(fresh[:, np.newaxis] - old[np.newaxis]).sum(axis=2)
    places: dict[int, int] = {}
    for _ in range(min(len(fresh), len(old))):
        one, other = np.unravel_index(int(distance.argmin()), distance.shape)
        places[int(other)] = int(one)
        distance[one, :] = distance[:, other] = np.inf
    paired = [places[place] for place in sorted(places)]
    return paired + [number for number in range(len(fresh)) if number not in paired]


class Hierarchical(Grouping):
    """Tasks, clusters within each task, starts within each cluster. Its plain groups are the clusters."""

    name = "hierarchical"
    depends_on_outcome = True

    def __init__(self, count: int | None = 4, seed: int = 0) -> None:
        self.clusters = ByCluster(count, seed)
        self.tasks = ByTask()

    def __call__(self, attempts: Summaries) -> Ints:
        return self.levels(attempts)[1]

    def levels(self, attempts: Summaries) -> list[Ints]:
        cluster = self.iterations(attempts)[-1]
        return [self.tasks(attempts), cluster, _numbered(cluster, attempts.seeds)]

    def iterations(self, attempts: Summaries) -> list[Ints]:
        task = self.tasks(attempts)
        rows = [task == number for number in np.unique(task)]
        inside = [self.clusters.iterations(selected(attempts, chosen)) for chosen in rows]
        found = []
        # All tasks at once; one that is done waits for the others.
        for at in range(max(map(len, inside), default=1)):
            # Numbered from 0 in every task; `_numbered` makes the pairs distinct.
            numbers = np.zeros_like(task)
            for chosen, moves in zip(rows, inside, strict=True):
                numbers[chosen] = moves[min(at, len(moves) - 1)]
            found.append(_numbered(task, numbers))
        return found

    def state_dict(self) -> dict[str, Any]:
        return self.tasks.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tasks.load_state_dict(state)


class LatentTasks(Grouping):
    """A sticky Dirichlet-process mixture over features: it finds the number of tasks itself, and follows them."""

    name = "dirichlet"
    depends_on_outcome = True

    def __init__(self, window: int = HISTORY) -> None:
        self.mixture = DirichletMixture(window=window)

    def __call__(self, attempts: Summaries) -> Ints:
        return self.mixture.assign(attempts.features)

    def iterations(self, attempts: Summaries) -> list[Ints]:
        return self.mixture.assign_one_by_one(attempts.features)

    def state_dict(self) -> dict[str, Any]:
        return self.mixture.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mixture.load_state_dict(state)


def _numbered(outer: Ints, inner: Ints) -> Ints:
    """One number for every pair that occurs."""
    pairs = np.stack([outer, inner], axis=1)
    numbers: Ints = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


Maker = Callable[[int | None, int, int], Grouping]
STRATEGIES: Mapping[str, Maker] = {
    "task": lambda count, window, seed: ByTask(),
    "difficulty": lambda count, window, seed: ByDifficulty(count),
    "length": lambda count, window, seed: ByLength(count),
    "auto": lambda count, window, seed: ByCluster(count, seed),
    "adaptive": lambda count, window, seed: Adaptive(count, window, seed),
    "hierarchical": lambda count, window, seed: Hierarchical(count, seed),
    "dirichlet": lambda count, window, seed: LatentTasks(window),
}


def make_grouping(strategy: str, n_groups: int | None = 4, *, history_window: int = HISTORY, seed: int = 0) -> Grouping:
    """The strategy of that name.

    Args:
      strategy: "task", "difficulty" (quantiles of the return), "length", "auto" (k-means), "adaptive" (k-means
        that follows drift), "hierarchical" (task, cluster, start) or "dirichlet" (finds the number itself).
      n_groups: the number of groups; None means 4 quantiles, or as many clusters as the silhouette suggests.
      history_window: how many trajectories "adaptive" and "dirichlet" remember.
      seed: of k-means.
    """
    check_choice("group_strategy", strategy, STRATEGIES)
    if n_groups is not None and n_groups < 1:
        raise ValueError(f"n_groups is {n_groups}; it must be at least 1, or None for automatic")
    return STRATEGIES[strategy](n_groups, history_window, seed)


def check_baseline(grouping: Grouping, *, allow_outcome: bool = False) -> None:
    """Refuse a baseline from groups that were formed from the outcome."""
    if grouping.depends_on_outcome and not allow_outcome:
        harm = "subtracting their mean would reward the best of the worst attempts and punish the worst of the best"
        use = "Use them to scale and weigh (grouping.group_strategy), and leave grouping.baseline_group = 'start'"
        ablation = "grouping.allow_outcome_baseline = true permits it, for the ablation that shows the harm."
        message = f"groups by {grouping.name!r} are formed from how attempts ended; {harm}"
        raise ConfigError(message, hint=f"{use}; {ablation}", field="grouping.baseline_group")
