"""Requirements estimated from an event log: durations, branches, precedence, pools and arrivals.

    estimate = requirements_from_log("claims.xes.gz")
    estimate.requirements, estimate.notes

Durations keep their mean and standard deviation; the kind of distribution is chosen by likelihood. An activity precedes
another if it came first in at least `support` of the cases that have both. `notes` list what a log cannot tell, such as
whether an observed order is a rule or just a habit.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import groupwise.workflows.requirements as asked
from groupwise.errors import ConfigError
from groupwise.workflows.event_logs import LogEvent, read_events
from groupwise.workflows.partial_orders import find_ring, reduced

SUPPORT = 0.95
FEWEST_CASES = 5  # fewer observations say nothing about a pair or a distribution
SAME_WORK = 0.8  # cosine similarity from which two resources belong to one team
MOST_FITTED = 5_000  # durations sampled to choose a distribution
ALWAYS = 0.995  # share of cases from which an activity counts as part of every case


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
    """Requirements, the number of cases and events behind them, and what the log could not tell."""

    requirements: asked.Requirements
    cases: int
    events: int
    notes: tuple[str, ...] = ()


def requirements_from_log(
    path: str | Path, *, columns: Mapping[str, str] | None = None, support: float = SUPPORT, name: str | None = None
) -> LogEstimate:
    """Estimate requirements from a CSV or XES file, gzipped or not."""
    events = read_events(path, columns)
    return estimate(events, name=name or Path(path).name.split(".")[0], support=support)


def estimate(events: Sequence[LogEvent], name: str = "log", support: float = SUPPORT) -> LogEstimate:
    """Estimate requirements from events, in any order."""
    if not 0.5 < support <= 1:
        raise ConfigError(f"support is {support} but must be above 0.5 and at most 1", field="support")
    notes: list[str] = []
    work = _with_starts(_paired(events), notes)
    cases: dict[str, list[LoggedWork]] = defaultdict(list)
    for one in work:
        cases[one.case].append(one)
    seen = Counter(activity for case in cases.values() for activity in {one.activity for one in case})
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
    branches, excludes = _branches(shares, cases)
    requirements = asked.Requirements(
        name=name,
        activities=activities,
        pools=pools,
        rules=asked.RequiredRules(precedes=tuple(_precedence(cases, support)), excludes=tuple(excludes)),
        branches=tuple(branches),
        demand=asked.Demand(arrivals_per_second=_arrivals(cases, notes)),
        documentation=f"Estimated from {len(cases)} cases with {len(events)} events.",
    )
    notes += _repeated(cases)
    return LogEstimate(requirements, len(cases), len(events), tuple(notes))


def _paired(events: Sequence[LogEvent]) -> list[LoggedWork]:
    waiting: dict[tuple[str, str], list[float]] = defaultdict(list)
    found = []
    order = {"start": 0, "complete": 1}  # at the same time, a start comes before its completion
    for event in sorted(events, key=lambda event: (event.time, order.get(event.lifecycle, 1))):
        key = (event.case, event.activity)
        if event.lifecycle == "start":
            waiting[key].append(event.time)
        elif event.lifecycle == "complete":
            start = event.start if event.start is not None else waiting[key].pop(0) if waiting[key] else None
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
    if std <= 1e-3 * mean or len(times) < FEWEST_CASES:
        return asked.Duration(kind="fixed", mean=mean) if std <= 1e-3 * mean else asked.Duration(mean=mean)
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


def _branches(
    shares: Mapping[str, float], cases: Mapping[str, Sequence[LoggedWork]]
) -> tuple[list[asked.RequiredBranch], list[tuple[str, str]]]:
    """Activities that not every case has; those that never occur together, against expectation, are one choice."""
    sometimes = sorted((a for a in shares if shares[a] < ALWAYS), key=lambda a: (-shares[a], a))
    seen = [sorted({one.activity for one in case} & set(sometimes)) for case in cases.values()]
    together = Counter(pair for names in seen for pair in combinations(names, 2))
    # How often chance would put two activities into one case: cases · share · share.
    expected = len(cases)
    apart = {
        pair
        for pair in combinations(sorted(sometimes), 2)
        if not together[pair] and expected * shares[pair[0]] * shares[pair[1]] >= FEWEST_CASES
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


def _precedence(cases: Mapping[str, Sequence[LoggedWork]], support: float) -> list[tuple[str, str]]:
    """Pairs in which the first nearly always ends before the second starts, without pairs that follow from others."""
    first, both = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for case in cases.values():
        ends: dict[str, float] = {}
        starts: dict[str, float] = {}
        for one in case:
            start = one.start if one.start is not None else one.end
            starts[one.activity] = min(start, starts.get(one.activity, math.inf))
            ends[one.activity] = min(one.end, ends.get(one.activity, math.inf))
        for a, b in combinations(sorted(ends), 2):
            both[a, b] += 1
            first[a, b] += ends[a] <= starts[b]
            first[b, a] += ends[b] <= starts[a]
    strong = {}
    for (a, b), count in first.items():
        cases_with_both = both[min(a, b), max(a, b)]
        # Activities without duration can each "come first" of the other.
        mutual = first[b, a] >= count
        if cases_with_both >= FEWEST_CASES and count >= support * cases_with_both and not mutual:
            strong[a, b] = count / cases_with_both
    names = sorted({name for pair in strong for name in pair})
    number = {name: place for place, name in enumerate(names)}
    edges = {(number[a], number[b]): share for (a, b), share in strong.items()}
    # With a support below 1, pairs can contradict each other: drop the weakest of every cycle.
    while ring := find_ring(len(names), frozenset(edges)):
        del edges[min(pairwise(ring), key=lambda edge: edges[edge])]
    return sorted((names[a], names[b]) for a, b in reduced(len(names), frozenset(edges)))


def _pools(work: Sequence[LoggedWork], notes: list[str]) -> tuple[dict[str, asked.Pool], dict[str, tuple[str, ...]]]:
    """The pools, and which of them do each activity: roles, or teams of resources that do similar work."""
    if not any(one.resource or one.role for one in work):
        notes.append("the log names no resources, so there are no pools")
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
    sizes = {pool: len(found - {""}) or _peak(work, pool) for pool, found in members.items()}
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


def _peak(work: Sequence[LoggedWork], pool: str) -> int:
    spans = [(one.start, one.end) for one in work if one.role == pool and one.start is not None]
    moments = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    now, most = 0, 1
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def _arrivals(cases: Mapping[str, Sequence[LoggedWork]], notes: list[str]) -> float | None:
    begins = sorted(min(one.end if one.start is None else one.start for one in case) for case in cases.values())
    if len(begins) < 2 or begins[-1] <= begins[0]:
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
