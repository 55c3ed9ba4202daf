"""Who may do what, person by person: skills, working hours, separation and binding of duties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from groupwise.workflows.requirements import Hours, Person, Requirements, merged_hours

# More people than activities are never needed to tell duties apart, so unnamed ones are counted up to this many.
MOST_UNNAMED = 20
WEEK: Hours = ((0.0, 168.0),)
Options: TypeAlias = Mapping[str, Sequence[str]]


def members(requirements: Requirements, pool: str) -> dict[str, Person]:
    """The named people of a pool; empty if it has none."""
    return {name: person for name, person in requirements.people.items() if pool in person.pools}


def hours(requirements: Requirements, pool: str, person: Person | None = None) -> float:
    """Hours of the week in which a pool works, or one of its people in it."""
    own = merged_hours(person.calendar) if person is not None and person.calendar else WEEK
    shared = merged_hours(requirements.pools[pool].calendar) or WEEK
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in own for b in shared)


def shift_notes(requirements: Requirements) -> list[str]:
    """Where pools relieve each other: an activity stays with the one pool that a design chooses, and waits for it."""
    found: dict[tuple[str, ...], str] = {}
    for name, activity in requirements.activities.items():
        calendars = [requirements.pools[pool].calendar or WEEK for pool in activity.pools]
        together = sum(end - start for start, end in merged_hours(tuple(one for some in calendars for one in some)))
        if calendars and together > max(hours(requirements, pool) for pool in activity.pools):
            found.setdefault(activity.pools, name)
    return [
        f"{name!r} is done by one of {', '.join(map(repr, pools))}, which the design chooses, and waits while that one "
        "is closed. If they are shifts of one team, state one pool whose people have hours of their own."
        for pools, name in found.items()
    ]


def is_human(requirements: Requirements, name: str, pool: str | None) -> bool:
    """Whether people do an activity in a pool, or somebody outside is waited for."""
    kind = requirements.activities[name].kind
    return kind in ("human", "decision", "receive") or (pool is not None and requirements.pools[pool].kind == "person")


def able(requirements: Requirements, name: str) -> tuple[str, ...]:
    """Everybody who may do an activity; people without a name are "desk 1", "desk 2" … of their pool."""
    activity, found = requirements.activities[name], []
    for pool in activity.pools:
        named = members(requirements, pool)
        if named:
            found += [who for who, person in named.items() if set(activity.skills) <= set(person.skills)]
        else:
            count = min(requirements.pools[pool].most, MOST_UNNAMED)
            found += [f"{pool} {number + 1}" for number in range(count)]
    return tuple(dict.fromkeys(found))


def on_duty(requirements: Requirements, servers: Mapping[str, int]) -> dict[str, list[str]]:
    """Who works in each pool of a design, by name; people without a name are "desk 1", "desk 2" … of their pool.

    A pool has its first people, and whoever works in one of their pools works in all of them.
    """
    count = {pool: servers.get(pool, max(told.least, 1)) for pool, told in requirements.pools.items()}
    named = {pool: list(members(requirements, pool)) for pool in requirements.pools}
    working = {who for pool, people in named.items() for who in people[: count[pool]]}
    return {
        pool: [who for who in people if who in working]
        if people
        else [f"{pool} {number + 1}" for number in range(min(count[pool], MOST_UNNAMED))]
        for pool, people in named.items()
    }


def able_of(requirements: Requirements, name: str, pool: str, working: Mapping[str, Sequence[str]]) -> list[str]:
    """Those of a pool who are at work and have the skills for an activity."""
    needed, people = set(requirements.activities[name].skills), requirements.people
    return [who for who in working[pool] if not needed or (who in people and needed <= set(people[who].skills))]


def colourable(
    names: Sequence[str], options: Mapping[str, Sequence[str]], edges: Sequence[tuple[str, ...]], most: int = 20_000
) -> bool:
    """Whether each can get an option that none of its neighbours has; assumed after `most` attempts."""
    if any(a == b for a, b in edges):
        return False
    near = {name: {other for edge in edges if name in edge for other in edge} - {name} for name in names}
    # Depth first over partial assignments, those with the fewest options first.
    stack: list[dict[str, str]] = [{}]
    while stack and most:
        given = stack.pop()
        most -= 1
        if len(given) == len(names):
            return True
        name = names[len(given)]
        taken = {given[other] for other in near[name] if other in given}
        stack += [{**given, name: option} for option in options[name] if option not in taken]
    return not names or most == 0


def at_work(requirements: Requirements, pools: Iterable[str]) -> float:
    """How many servers of some pools are at work on average, at full staffing; a person in two pools counts once."""
    unnamed, people = 0.0, dict[str, float]()
    for pool in pools:
        named = members(requirements, pool)
        for who, person in named.items():
            people[who] = max(people.get(who, 0.0), hours(requirements, pool, person) / 168)
        if not named:
            unnamed += requirements.pools[pool].most * requirements.pools[pool].open_share
    return unnamed + sum(people.values())


def impossible(requirements: Requirements) -> list[str]:
    """Pools in which nobody ever works, activities that nobody can do, and people who can do nothing."""
    found = []
    for pool in requirements.pools:
        named = members(requirements, pool)
        if named and not any(hours(requirements, pool, person) for person in named.values()):
            who = ", ".join(map(repr, named))
            found.append(f"nobody works in {pool!r}: no hours of {who} are hours of the pool")
    for name, activity in requirements.activities.items():
        if activity.skills and not able(requirements, name):
            skills, pools = " and ".join(map(repr, activity.skills)), ", ".join(map(repr, activity.pools))
            found.append(f"nobody in {pools} has the skills for {name!r}: {skills}")
    for who, person in requirements.people.items():
        work = [name for name, one in requirements.activities.items() if set(one.pools) & set(person.pools)]
        if work and not any(who in able(requirements, name) for name in work):
            asked = ", ".join(map(repr, work))
            found.append(f"{who!r} can do nothing: every activity of the pools needs skills {who!r} lacks ({asked})")
    return found


def bound(names: Iterable[str], same: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """For every activity, one that stands for all that the same person does."""
    first = {name: name for name in names}

    def root(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    for one, other in same:
        first[root(other)] = root(one)
    return {name: root(name) for name in first}


def shared(requirements: Requirements, groups: Mapping[str, str]) -> dict[str, list[str]]:
    """For every group of activities, the people who may do all of them."""
    found: dict[str, list[str]] = {}
    for name, group in groups.items():
        who = able(requirements, name)
        found[group] = [one for one in found.get(group, who) if one in who]
    return found
