"""Who works in a design: so many servers of each pool, or workers one by one where it matters who does what.

It matters if people have skills, hours of their own or several pools, or if duties must be separated or bound. A pool
of n servers then has its first n people, or n without a name; whoever works in one of their pools works in all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from groupwise.workflows.duties import able
from groupwise.workflows.evaluation.array_format import WEEK, Floats, Ints
from groupwise.workflows.requirements import Hours, Requirements, merged_hours

# Groups of people for which every combination is tried when the busiest is looked for.
MOST_GROUPS = 12


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker: the numbers of the pools, the shifts in seconds of the week, the wage per second, and the skills."""

    name: str
    pools: tuple[int, ...]
    shifts: Floats
    wage: float
    skills: frozenset[str]

    @property
    def hours(self) -> float:
        """The share of the week at work."""
        return float((self.shifts[:, 1] - self.shifts[:, 0]).sum()) / WEEK if len(self.shifts) else 1.0


class Roster:
    """The workers of some requirements, and the duties of every activity: skills, and the rules about people."""

    def __init__(self, requirements: Requirements) -> None:
        self.pools, self.people = requirements.pools, requirements.people
        self.number = {pool: number for number, pool in enumerate(requirements.pools)}
        self.names = list(requirements.activities)
        self.skills = [frozenset(one.skills) for one in requirements.activities.values()]
        rules = requirements.rules
        shared = [pair for pair in rules.different_people if _share(requirements, pair)]
        self.apart, self.bound = self._partners(shared), self._partners(rules.same_person)
        own = any(person.calendar or len(person.pools) > 1 for person in self.people.values())
        self.by_name = bool(own or shared or rules.same_person or any(self.skills))

    def _partners(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.names]
        for one, other in pairs:
            a, b = self.names.index(one), self.names.index(other)
            found[a].append(b)
            found[b].append(a)
        return found

    def workers(self, servers: Ints) -> tuple[Worker, ...]:
        """Everybody who works if the pools have that many servers: people in the order of the file, then others."""
        return tuple(self._workers(dict(zip(self.pools, servers.tolist(), strict=True))))

    def _workers(self, count: dict[str, int]) -> Iterator[Worker]:
        members = {pool: [who for who, one in self.people.items() if pool in one.pools] for pool in self.pools}
        working = {who for pool, named in members.items() for who in named[: count[pool]]}
        for who, person in self.people.items():
            if who in working:
                first = self.pools[person.pools[0]]
                pools = tuple(self.number[pool] for pool in person.pools)
                shifts = common_shifts(person.calendar, first.calendar)
                if shifts is not None:
                    yield Worker(who, pools, shifts, first.wage, frozenset(person.skills))
        for pool, told in self.pools.items():
            for number in range(0 if members[pool] else count[pool]):
                yield Worker(
                    f"{pool} {number + 1}", (self.number[pool],), shifts_of(told.calendar), told.wage, frozenset()
                )

    def able(self, workers: tuple[Worker, ...], pool_of: dict[int, int]) -> dict[int, frozenset[int]]:
        """Who may do each activity of a design, by number; whoever begins what one person must do can do all of it.

        Work that only one person can do is left to that person, where somebody else must do something before or after.
        """
        found = {
            activity: frozenset(
                number
                for number, worker in enumerate(workers)
                if pool in worker.pools and self.skills[activity] <= worker.skills
            )
            for activity, pool in pool_of.items()
        }
        for activity in found:
            for partner in self._bound_to(activity, found):
                found[activity] &= found[partner]
        for activity, only in found.items():
            for other in self.apart[activity] if len(only) == 1 else ():
                if other in found and found[other] - only:
                    found[other] -= only
        return found

    def linked(self, activity: int, some: Container[int]) -> list[int]:
        """The activities among some that separate or bound duties link with this one, directly or through others."""
        return sorted(self._reached(activity, some, self.apart, self.bound) - {activity})

    def _bound_to(self, activity: int, some: Container[int]) -> set[int]:
        """The activities that the same person does, directly or through others."""
        return self._reached(activity, some, self.bound)

    def _reached(self, activity: int, some: Container[int], *links: list[list[int]]) -> set[int]:
        seen, stack = set[int](), [activity]
        while stack:
            here = stack.pop()
            if here not in seen:
                seen.add(here)
                stack += [other for near in links for other in near[here] if other in some]
        return seen


def _share(requirements: Requirements, pair: tuple[str, str]) -> bool:
    # Whether somebody could do both activities.
    return bool(set(able(requirements, pair[0])) & set(able(requirements, pair[1])))


def shifts_of(calendar: Hours) -> Floats:
    """Hours of the week as seconds, sorted, with touching shifts merged; shape [shifts, 2]."""
    return np.array(merged_hours(calendar), np.float64).reshape(-1, 2) * 3600


def open_time(shifts: Floats, until: Floats) -> Floats:
    """Seconds of work in shifts from the beginning of a week until some times; without shifts, all of the time."""
    if not len(shifts):
        return until
    weeks, late = np.divmod(until[:, None], WEEK)
    starts, ends = shifts[:, 0], shifts[:, 1]
    return np.asarray((weeks * (ends - starts) + np.clip(late, starts, ends) - starts).sum(1))


def common_shifts(own: Hours, shared: Hours) -> Floats | None:
    """The hours of a person while the pool works; no hours stand for the whole week, None for a person never there."""
    if not own or not shared:
        return shifts_of(own or shared)
    both = ((max(a, c), min(b, d)) for a, b in own for c, d in shared)
    common = tuple((start, end) for start, end in both if start < end)
    return shifts_of(common) if common else None


def busiest(groups: Sequence[tuple[frozenset[int], float]], hours: Sequence[float]) -> tuple[float, tuple[int, ...]]:
    """The highest load of any set of workers, and the groups of work that only they can do.

    A group is work (in seconds of working time per second) that may be divided among some workers. If the work that
    only a set of workers can do exceeds their time, they cannot keep up, and otherwise there is a way to divide it
    (Hall 1935), so the worst set decides.
    """
    merged: dict[frozenset[int], list[Any]] = {}
    for number, (who, work) in enumerate(groups):
        known = merged.setdefault(who, [0.0, []])
        known[0] += work
        known[1].append(number)
    kinds = [(who, work, members) for who, (work, members) in merged.items() if work > 0]
    most = len(kinds) if len(kinds) <= MOST_GROUPS else 1
    sizes = [*range(1, most + 1), *([len(kinds)] if most == 1 and len(kinds) > 1 else [])]
    worst: tuple[float, tuple[int, ...]] = (0.0, ())
    for some in (some for size in sizes for some in combinations(kinds, size)):
        there = sum(hours[who] for who in frozenset.union(*(who for who, _, _ in some)))
        load = sum(work for _, work, _ in some) / there if there > 0 else np.inf
        if load > worst[0]:
            worst = (float(load), tuple(number for _, _, members in some for number in members))
    return worst
