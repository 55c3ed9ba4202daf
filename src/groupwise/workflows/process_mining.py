"""Requirements estimated from an event log: durations, branches, precedence, pools and arrivals.

    estimate = requirements_from_log("claims.xes.gz")
    estimate.requirements, estimate.notes

Durations keep their mean and standard deviation; the kind of distribution is chosen by likelihood. An activity precedes
another if it came first in at least `support` of the cases that have both. `notes` list what a log cannot tell, such as
whether an observed order is a rule or just a habit.
"""

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise
from pathlib import Path

import numpy as np

import groupwise.workflows.requirements as asked
from groupwise.errors import ConfigError
from groupwise.workflows.event_logs import LogEvent, read_events
from groupwise.workflows.partial_orders import find_ring, reduced

FEWEST_CASES = 5  # fewer observations say nothing about a pair or a distribution
SAME_WORK = 0.8  # cosine similarity from which two resources belong to one team
MOST_FITTED = 5_000  # durations sampled to choose a distribution
ALWAYS = 0.995  # share of cases from which an activity counts as part of every case
MOST_ACTIVITIES = 500  # pairs of activities are compared
MOST_RESOURCES = 1000  # and pairs of resources, if the log has no roles
MOST_LOOKS = 1_000_000  # edges looked at while contradictions between pairs are removed
SHORTEST = 1e-6  # seconds: means and spans below are zero


@dataclass(frozen=True, slots=True)
class LoggedWork:
    """One execution of an activity; `start` is None if the log does not say."""

    case: str
    activity: str
    start: float | None
    end: float
    resource: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """Requirements, the number of cases and events behind them, and what the log could not tell.

    `order` are the pairs of activities of which the first is usually over when the second begins, and `cycle_time` is
    the mean number of seconds from the first event of a case to its last.
    """

    requirements: asked.Requirements
    cases: int
    events: int
    notes: tuple[str, ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    cycle_time: float = 0.0


def requirements_from_log(
    path: str | Path, *, columns: Mapping[str, str] | None = None, support: float = 0.95, name: str | None = None
) -> LogEstimate:
    """Estimate requirements from a CSV or XES file, gzipped or not."""
    events = read_events(path, columns)
    return estimate(events, name=name or Path(path).name.split(".")[0], support=support)


def estimate(events: Sequence[LogEvent], name: str = "log", support: float = 0.95) -> LogEstimate:
    """Estimate requirements from events, in any order."""
    if not 0.5 < support <= 1:
        raise ConfigError(f"support is {support} but must be above 0.5 and at most 1", field="support")
    notes: list[str] = []
    work = _with_starts(_paired(events), notes)
    cases: dict[str, list[LoggedWork]] = defaultdict(list)
    for one in work:
        cases[one.case].append(one)
    seen = Counter(activity for case in cases.values() for activity in {one.activity for one in case})
    if len(seen) > MOST_ACTIVITIES:
        raise ConfigError(
            f"the log has {len(seen):,} different activities; at most {MOST_ACTIVITIES} are supported",
            hint="Is this the right column? Otherwise leave rare activities out, or give similar ones the same name.",
        )
    pools, eligible = _pools(work, notes)
    times: dict[str, list[float]] = {activity: [] for activity in seen}
    for one in work:
        if one.start is not None:
            times[one.activity].append(one.end - one.start)
    activities = {
        activity: asked.RequiredActivity(duration=_duration(activity, found, notes), pools=eligible.get(activity, ()))
        for activity, found in times.items()
    }
    shares = {activity: count / len(cases) for activity, count in seen.items()}
    pairs = _Pairs(cases, sorted(seen))
    branches, excludes = _branches(shares, len(cases), pairs)
    requirements = asked.Requirements(
        name=name,
        activities=activities,
        pools=pools,
        rules=asked.RequiredRules(precedes=tuple(_precedence(pairs, support)), excludes=tuple(excludes)),
        branches=tuple(branches),
        demand=asked.Demand(arrivals_per_second=_arrivals(cases, notes)),
        documentation=f"Estimated from {len(cases)} cases with {len(events)} events.",
    )
    notes += _repeated(cases)
    order, cycle_time = _as_it_went(cases.values())
    return LogEstimate(requirements, len(cases), len(events), tuple(notes), order, cycle_time)


def _as_it_went(cases: Collection[Sequence[LoggedWork]]) -> tuple[tuple[tuple[str, str], ...], float]:
    """The usual order of the activities, and the mean time of a case."""
    places: dict[str, list[float]] = defaultdict(list)
    over: Counter[tuple[str, str]] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    spans = []
    for case in cases:
        first = {one.activity: one for one in sorted(case, key=_begin, reverse=True)}
        done = sorted(first.values(), key=lambda one: (_begin(one), one.end))
        spans.append(max(one.end for one in case) - min(map(_begin, case)))
        for place, one in enumerate(done):
            places[one.activity].append(place / max(len(done) - 1, 1))
            for later in done[place + 1 :]:
                both[one.activity, later.activity] += 1
                both[later.activity, one.activity] += 1
                over[one.activity, later.activity] += one.end <= _begin(later)
    # Pairs point forwards along the mean place in a case, so that they never make a circle.
    order = sorted(places, key=lambda activity: (statistics.fmean(places[activity]), activity))
    pairs = tuple(pair for pair in combinations(order, 2) if 2 * over[pair] > both[pair])
    return pairs, statistics.fmean(spans)


def _begin(work: LoggedWork) -> float:
    return work.end if work.start is None else work.start


def _paired(events: Sequence[LogEvent]) -> list[LoggedWork]:
    waiting: dict[tuple[str, str], deque[float]] = defaultdict(deque)
    found = []
    order = {"start": 0, "complete": 1}  # at the same time, a start comes before its completion
    for event in sorted(events, key=lambda event: (event.time, order.get(event.lifecycle, 1))):
        key = (event.case, event.activity)
        if event.lifecycle == "start":
            waiting[key].append(event.time)
        elif event.lifecycle == "complete":
            start = event.start if event.start is not None else waiting[key].popleft() if waiting[key] else None
            found.append(LoggedWork(event.case, event.activity, start, event.time, event.resource, event.role))
    if not found:
        raise ConfigError("no activity is completed", hint="Events that end an activity have the lifecycle 'complete'.")
    return found


def _with_starts(work: list[LoggedWork], notes: list[str]) -> list[LoggedWork]:
    # Estimate missing starts: work starts once the previous activity of its case and of its resource has ended. As in
    # Chapela-Campa and Dumas, "Enhancing business process simulation models with extraneous activity delays" (2023).
    # The first activity of a case gets no start.
    if all(one.start is not None for one in work):
        return work
    notes.append("missing start times were estimated: work starts once its case and its resource are free")
    case_free: dict[str, float] = {}
    resource_free: dict[str, float] = {}
    found = []
    for one in sorted(work, key=lambda one: one.end):
        start = one.start
        if start is None and one.case in case_free:
            start = max(case_free[one.case], resource_free.get(one.resource, -math.inf) if one.resource else -math.inf)
        case_free[one.case] = one.end
        resource_free[one.resource] = one.end
        found.append(replace(one, start=start))
    return found


def _duration(activity: str, times: list[float], notes: list[str]) -> asked.Duration:
    if any(time < 0 for time in times):
        notes.append(f"{activity!r} sometimes ends before it starts; those times were ignored")
        times = [time for time in times if time >= 0]
    if not times:
        notes.append(f"the log does not say how long {activity!r} takes; 0 was assumed")
        return asked.Duration(kind="fixed", mean=0.0)
    return fit(times)


def fit(times: Sequence[float]) -> asked.Duration:
    """The duration with the mean and standard deviation of these times, and the most likely kind of distribution."""
    mean = statistics.fmean(times)
    std = statistics.pstdev(times)
    steady = std <= 1e-3 * mean or mean < SHORTEST
    if steady or len(times) < FEWEST_CASES:
        return asked.Duration(kind="fixed", mean=mean) if steady else asked.Duration(mean=mean)
    some = times[:: max(1, len(times) // MOST_FITTED)]
    fits = _likelihoods(some, mean, std)
    # The others have one parameter more, which costs one unit of log-likelihood (Akaike's criterion).
    kind = max(fits, key=lambda kind: fits[kind] - (0 if kind == "exponential" else 1))
    if kind == "exponential":
        return asked.Duration(mean=mean)
    if kind == "uniform":
        std = min(std, mean / math.sqrt(3))  # a larger one includes negative times
    return asked.Duration.model_validate({"kind": kind, "mean": mean, "std": std})


def _likelihoods(times: Sequence[float], mean: float, std: float) -> dict[str, float]:
    """The log-likelihood of each kind with this mean and standard deviation (uniform: over the observed range)."""
    count, variance = len(times), std * std
    low, high = min(times), max(times)
    squares = sum((time - mean) ** 2 for time in times)
    found = {
        "exponential": -count * math.log(mean) - sum(times) / mean,
        "normal": -count / 2 * math.log(2 * math.pi * variance) - squares / (2 * variance),
        "uniform": -count * math.log(high - low),
    }
    if low > 0:
        logs = [math.log(time) for time in times]
        sigma2 = math.log1p(variance / mean**2)
        mu = math.log(mean) - sigma2 / 2
        apart = sum((value - mu) ** 2 for value in logs)
        found["lognormal"] = -sum(logs) - count / 2 * math.log(2 * math.pi * sigma2) - apart / (2 * sigma2)
        shape, scale = mean**2 / variance, variance / mean
        constant = math.lgamma(shape) + shape * math.log(scale)
        found["gamma"] = (shape - 1) * sum(logs) - sum(times) / scale - count * constant
    return found


class _Pairs:
    """For every two activities: in how many cases both occur, and in how many the first ends before the second starts.

    Row and column n are the nth of `names`.
    """

    def __init__(self, cases: Mapping[str, Sequence[LoggedWork]], names: Sequence[str]) -> None:
        self.names = names
        self.number = {name: place for place, name in enumerate(names)}
        self.both, self.first = (np.zeros((len(names), len(names)), np.int64) for _ in range(2))
        for case in cases.values():
            self._count(case)

    def _count(self, case: Sequence[LoggedWork]) -> None:
        starts: dict[int, float] = {}
        ends: dict[int, float] = {}
        for one in case:
            number = self.number[one.activity]
            start = one.start if one.start is not None else one.end
            starts[number] = min(start, starts.get(number, math.inf))
            ends[number] = min(one.end, ends.get(number, math.inf))
        here = np.fromiter(ends, np.int64, len(ends))
        began, ended = (np.fromiter(times.values(), np.float64, len(here)) for times in (starts, ends))
        square = np.ix_(here, here)
        self.both[square] += 1
        self.first[square] += ended[:, None] <= began[None, :]

    def together(self, one: str, other: str) -> int:
        return int(self.both[self.number[one], self.number[other]])


def _branches(
    shares: Mapping[str, float], cases: int, pairs: _Pairs
) -> tuple[list[asked.RequiredBranch], list[tuple[str, str]]]:
    """Activities that not every case has; those that never occur together, against expectation, are one choice."""
    sometimes = sorted((a for a in shares if shares[a] < ALWAYS), key=lambda a: (-shares[a], a))
    # How often chance would put two activities into one case: cases · share · share.
    apart = {
        (one, other)
        for one, other in combinations(sorted(sometimes), 2)
        if not pairs.together(one, other) and cases * shares[one] * shares[other] >= FEWEST_CASES
    }
    groups: list[list[str]] = []
    for activity in sometimes:
        # Greedy: an activity joins the first group it excludes completely, if their shares still fit into 1.
        for group in groups:
            fits = all(tuple(sorted((activity, other))) in apart for other in group)
            if fits and sum(shares[other] for other in group) + shares[activity] <= 1 + 1e-9:
                group.append(activity)
                break
        else:
            groups.append([activity])
    branches = [
        asked.RequiredBranch(name=" or ".join(group), options={a: shares[a] for a in group}) for group in groups
    ]
    excludes = [pair for group in groups for pair in combinations(group, 2)]
    return branches, excludes


def _precedence(pairs: _Pairs, support: float) -> list[tuple[str, str]]:
    """Pairs in which the first nearly always ends before the second starts, without pairs that follow from others."""
    names, first, both = pairs.names, pairs.first, pairs.both
    # Activities without duration can each "come first" of the other.
    strong = (both >= FEWEST_CASES) & (first >= support * both) & (first > first.T)
    np.fill_diagonal(strong, False)
    edges = {(int(a), int(b)): float(first[a, b] / both[a, b]) for a, b in zip(*np.nonzero(strong), strict=True)}
    # With a support below 1, pairs can contradict each other: drop the weakest of every cycle.
    looks = 0
    while ring := find_ring(len(names), frozenset(edges)):
        del edges[min(pairwise(ring), key=lambda edge: edges[edge])]
        looks += len(edges)
        if looks > MOST_LOOKS:
            raise ConfigError(
                "the log contradicts itself too often: many activities come before one another in a circle",
                hint="Raise the support, or use only the cases of one process.",
            )
    return sorted((names[a], names[b]) for a, b in reduced(len(names), frozenset(edges)))


def _pools(work: Sequence[LoggedWork], notes: list[str]) -> tuple[dict[str, asked.Pool], dict[str, tuple[str, ...]]]:
    """The pools, and which of them do each activity: roles, or teams of resources that do similar work."""
    if not any(one.resource or one.role for one in work):
        notes.append("the log names no resources, so there are no pools")
        notes.append("a column of resources with another name: `groupwise requirements LOG --column resource=NAME`")
        return {}, {}
    resources = len({one.resource for one in work})
    if resources > MOST_RESOURCES and not any(one.role for one in work):
        notes.append(f"the log has no roles, and {resources:,} resources are too many for teams: there are no pools")
        return {}, {}
    # Roles in the log are better than guessed teams.
    team = {} if any(one.role for one in work) else _teams(work)
    members: dict[str, set[str]] = defaultdict(set)
    doing: dict[str, Counter[str]] = defaultdict(Counter)
    for one in work:
        pool = one.role or team.get(one.resource, "")
        if pool:
            members[pool].add(one.resource)
            doing[one.activity][pool] += 1
    peaks = _peaks(work)
    sizes = {pool: len(found - {""}) or peaks[pool] for pool, found in members.items()}
    eligible = {activity: tuple(pool for pool, _ in counts.most_common()) for activity, counts in doing.items()}
    notes.append("a log has no working hours or wages: pools are assumed to be always at work, and free of charge")
    return {pool: asked.Pool(least=1, most=size) for pool, size in sorted(sizes.items())}, eligible


def _teams(work: Sequence[LoggedWork]) -> dict[str, str]:
    """Teams of resources with similar work (Song and van der Aalst 2008, joint activities), named after the busiest."""
    profile: dict[str, Counter[str]] = defaultdict(Counter)
    for one in work:
        if one.resource:
            profile[one.resource][one.activity] += 1
    leaders: list[str] = []
    team = {}
    for resource in sorted(profile, key=lambda resource: (-profile[resource].total(), resource)):
        leader = next((other for other in leaders if _alike(profile[resource], profile[other]) >= SAME_WORK), resource)
        if leader == resource:
            leaders.append(resource)
        team[resource] = f"team of {leader}"
    return team


def _alike(one: Counter[str], other: Counter[str]) -> float:
    dot = sum(one[name] * other[name] for name in one)
    return dot / math.sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))


def _peaks(work: Sequence[LoggedWork]) -> dict[str, int]:
    """How much work each role had under way at once, at least 1."""
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in work:
        moments[one.role] += [] if one.start is None else [(one.start, 1), (one.end, -1)]
    return {
        role: max(1, *accumulate((change for _, change in sorted(found)), initial=0)) for role, found in moments.items()
    }


def _arrivals(cases: Mapping[str, Sequence[LoggedWork]], notes: list[str]) -> float | None:
    begins = sorted(min(one.end if one.start is None else one.start for one in case) for case in cases.values())
    if len(begins) < 2 or begins[-1] - begins[0] < SHORTEST:
        notes.append("all cases start at once, so there is no arrival rate")
        return None
    return (len(begins) - 1) / (begins[-1] - begins[0])


def _repeated(cases: Mapping[str, Sequence[LoggedWork]]) -> list[str]:
    counts = [Counter(one.activity for one in case) for case in cases.values()]
    often = Counter(activity for one in counts for activity, count in one.items() if count > 1)
    return [
        f"{activity!r} is repeated in {count / len(cases):.1%} of the cases; a design can express this as a loop"
        for activity, count in sorted(often.items())
    ]
