"""Can requirements be met at all? If not: the smallest set of rules that contradict each other, and what is possible.

    contradictions(requirements)     rules that no design can keep together
    best_cycle_time(requirements)    no design is faster: the longest chain, by the fastest pools, without any queue

The set is found by deletion: a rule that can be left out without making the others agree is left out, until none can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from groupwise.errors import ConfigError
from groupwise.workflows.orders import find_ring, in_order
from groupwise.workflows.requirements import Pool, Requirements
from groupwise.workflows.rules import needs

# Up to this many rules every order of deletion is tried, which finds smaller sets; beyond, one.
ALL_ORDERS = 40
MOST_SETS = 10


@dataclass(frozen=True, slots=True)
class Statement:
    """One rule of the requirements."""

    rule: str
    names: tuple[str, ...]
    seconds: float = 0.0

    def __str__(self) -> str:
        quoted = [repr(name) for name in self.names]
        match self.rule:
            case "precedes":
                return f"{quoted[0]} precedes {quoted[1]}"
            case "excludes":
                return f"{quoted[0]} excludes {quoted[1]}"
            case "must_include":
                return f"{quoted[0]} must be included"
            case "separate":
                return f"{quoted[0]} and {quoted[1]} are done by different pools"
            case _:
                return f"a case takes at most {self.seconds:.6g} s"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rules that cannot be kept together, none of which could be left out, and why."""

    statements: tuple[Statement, ...]
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({'; '.join(map(str, self.statements))})" if self.statements else self.words


def statements(requirements: Requirements) -> list[Statement]:
    """Every rule as a statement of its own."""
    rules = requirements.rules
    found = [Statement("precedes", pair) for pair in rules.precedes]
    found += [Statement("excludes", pair) for pair in rules.excludes]
    found += [Statement("must_include", (name,)) for name in rules.must_include]
    found += [Statement("separate", pair) for pair in rules.separate]
    if rules.deadline is not None:
        found.append(Statement("deadline", (), rules.deadline))
    return found


def contradictions(requirements: Requirements) -> list[Contradiction]:
    """The conflicts among the rules, the smallest set of each; and pools that cannot do the work there is."""
    rest, found = statements(requirements), []
    why = _Judge(requirements)
    while why(rest):
        core = _smallest(rest, why)
        found.append(Contradiction(tuple(core), why(core)))
        rest = [statement for statement in rest if statement not in core]
    return [*found, *(Contradiction((), words) for words in overloads(requirements))]


def insist_feasible(requirements: Requirements) -> None:
    """Raise `ConfigError` with every conflict there is."""
    found = contradictions(requirements)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        hint = "Drop or change one of these rules." if found[0].statements else "Raise `most`, or lower the demand."
        raise ConfigError(f"{requirements.name}: {found[0]}{more}", hint=hint, field="rules")


def _smallest(rules: Sequence[Statement], why: Callable[[Iterable[Statement]], str]) -> list[Statement]:
    """An irreducible conflict; with few rules the smallest of those that every order of deletion finds."""
    core = _deleted(list(rules), why)
    if len(rules) > ALL_ORDERS:
        return core
    for last in range(len(rules)):
        other = _deleted([*rules[last + 1 :], *rules[: last + 1]], why)
        core = min(core, other, key=len)
    return [rule for rule in rules if rule in core]


def _deleted(core: list[Statement], why: Callable[[Iterable[Statement]], str]) -> list[Statement]:
    for rule in list(core):
        without = [other for other in core if other is not rule]
        if why(without):
            core = without
    return core


class _Judge:
    """Tells why some of the rules cannot be kept together; the empty string if they can."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        bare = requirements.rules.model_copy(update={"must_include": ()})
        self.needs = needs(requirements.model_copy(update={"rules": bare}))

    def __call__(self, rules: Iterable[Statement]) -> str:
        by_rule: dict[str, list[Statement]] = {}
        for rule in rules:
            by_rule.setdefault(rule.rule, []).append(rule)
        needed = dict(self.needs)
        for rule in by_rule.get("must_include", ()):
            needed.setdefault(rule.names[0], 1.0)
        precedes = [rule.names for rule in by_rule.get("precedes", ())]
        return (
            self._ring(precedes)
            or _exclusive([rule.names for rule in by_rule.get("excludes", ())], needed)
            or self._separate([rule.names for rule in by_rule.get("separate", ())], needed)
            or self._late(by_rule.get("deadline", []), precedes, needed)
        )

    def _ring(self, precedes: Sequence[tuple[str, ...]]) -> str:
        ring = _ring_of(precedes)
        return f"{ring[0]!r} would have to come before itself: {' → '.join(ring)}" if ring else ""

    def _separate(self, pairs: Sequence[tuple[str, ...]], needed: Mapping[str, float]) -> str:
        """Whether pools can be given so that no pair shares one: a colouring, by trying."""
        options = {name: self.requirements.activities[name].pools for pair in pairs for name in pair}
        edges = [pair for pair in pairs if all(name in needed and options[name] for name in pair)]
        names = sorted({name for pair in edges for name in pair}, key=lambda name: (len(options[name]), name))
        if _colourable(names, options, edges):
            return ""
        pools = sorted({pool for name in names for pool in options[name]})
        listed = ", ".join(map(repr, sorted(names)))
        return f"{listed} cannot be kept apart, because only {', '.join(map(repr, pools))} may do them"

    def _late(
        self, deadline: Sequence[Statement], precedes: Sequence[tuple[str, ...]], needed: Mapping[str, float]
    ) -> str:
        for rule in deadline:
            seconds, chain = _longest_chain(self.requirements, precedes, needed)
            if seconds > rule.seconds:
                way = " → ".join(chain)
                limit = f"and {rule.seconds:.6g} are allowed"
                return f"no design takes less than {seconds:.6g} s, because of {way}, {limit}"
        return ""


def _ring_of(pairs: Sequence[tuple[str, ...]]) -> list[str]:
    names = sorted({name for pair in pairs for name in pair})
    number = {name: place for place, name in enumerate(names)}
    return [names[place] for place in find_ring(len(names), frozenset((number[a], number[b]) for a, b in pairs))]


def _exclusive(pairs: Sequence[tuple[str, ...]], needed: Mapping[str, float]) -> str:
    """Activities that all exclude each other cannot be needed more than once per case together."""
    apart = {frozenset(pair) for pair in pairs if all(needed.get(name) for name in pair)}
    names = sorted({name for pair in apart for name in pair})
    clique = _heaviest([], names, apart, needed)
    total = sum(needed[name] for name in clique)
    if total <= 1 + 1e-9:
        return ""
    often = ", ".join(f"{name!r} in {needed[name]:.4g}" for name in clique)
    return f"a case does at most one of these, and they are needed more often: {often} of the cases"


def _heaviest(
    chosen: list[str], rest: Sequence[str], apart: set[frozenset[str]], needed: Mapping[str, float]
) -> list[str]:
    """The first activities found that exclude each other and are needed more than once together, or what comes near."""
    best = chosen
    for place, name in enumerate(rest):
        following = [other for other in rest[place + 1 :] if frozenset((name, other)) in apart]
        found = _heaviest([*chosen, name], following, apart, needed)
        if sum(needed[n] for n in found) > sum(needed[n] for n in best):
            best = found
        if sum(needed[n] for n in best) > 1 + 1e-9:
            break
    return best


def _colourable(
    names: Sequence[str], options: Mapping[str, Sequence[str]], edges: Sequence[tuple[str, ...]], most: int = 20_000
) -> bool:
    """Whether everybody gets a pool that no neighbour has; taken for granted after `most` tries."""
    if any(a == b for a, b in edges):
        return False
    near = {name: {other for edge in edges if name in edge for other in edge} - {name} for name in names}
    stack: list[dict[str, str]] = [{}]
    while stack and most:
        given = stack.pop()
        most -= 1
        if len(given) == len(names):
            return True
        name = names[len(given)]
        taken = {given[other] for other in near[name] if other in given}
        stack += [{**given, name: pool} for pool in options[name] if pool not in taken]
    return not names or most == 0


def best_cycle_time(requirements: Requirements) -> tuple[float, list[str]]:
    """A mean cycle time that no design goes below, and the chain of activities behind it.

    The longest chain that `precedes` asks for, every activity as often as it is needed and by its fastest pool, with
    nobody waiting. Where activities may end a case early, by a knock-out or a failure, each is counted only for the cases
    that all others let pass. Only time limits, which give up on work, can make a case shorter.
    """
    precedes = () if _ring_of(requirements.rules.precedes) else requirements.rules.precedes
    return _longest_chain(requirements, precedes, needs(requirements))


def _longest_chain(
    requirements: Requirements, precedes: Sequence[tuple[str, ...]], needed: Mapping[str, float]
) -> tuple[float, list[str]]:
    names = list(needed)
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[a], number[b]) for a, b in precedes if a in number and b in number)
    length: dict[int, tuple[float, list[str]]] = {}
    before: dict[int, list[int]] = {}
    for a, b in edges:
        before.setdefault(b, []).append(a)
    for here in in_order(len(names), edges):
        seconds, chain = max((length[a] for a in before.get(here, ()) if a in length), default=(0.0, []))
        length[here] = (seconds + shortest_time(requirements, names[here], needed), [*chain, names[here]])
    return max(length.values(), default=(0.0, []))


def shortest_time(requirements: Requirements, name: str, needed: Mapping[str, float]) -> float:
    """The least that an activity adds to a case on average."""
    activity = requirements.activities[name]
    fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=1.0)
    others = [requirements.activities[other] for other in needed if other != name]
    let_pass = math.prod((1 - other.knock_out) * (1 - other.failure) for other in others)
    return needed[name] * let_pass * activity.duration.mean / fastest


def overloads(requirements: Requirements) -> list[str]:
    """Pools that could not do what only they may do, however many servers they are given."""
    rate = requirements.demand.arrivals_per_second
    if rate is None:
        return []
    needed, activities, pools = needs(requirements), requirements.activities, requirements.pools
    sets = list(dict.fromkeys(frozenset(activities[name].pools) for name in needed if activities[name].pools))
    sizes = range(1, (len(sets) if len(sets) <= MOST_SETS else 1) + 1)
    unions = dict.fromkeys(frozenset().union(*some) for size in sizes for some in combinations(sets, size))
    found: list[tuple[frozenset[str], str]] = []
    for union in sorted(unions, key=lambda one: (len(one), sorted(one))):
        work = [name for name in needed if activities[name].pools and union >= set(activities[name].pools)]
        asked = rate * sum(shortest_time(requirements, name, needed) for name in work)
        there = sum(pools[pool].most * _at_work(pools[pool]) for pool in union)
        if asked > there and not any(smaller < union for smaller, _ in found):
            named = ", ".join(map(repr, sorted(union)))
            limit = f"{there:.4g} at work on average with all that `most` allows"
            found.append((union, f"the demand keeps {asked:.4g} servers of {named} busy, and there are {limit}"))
    return [words for _, words in found]


def _at_work(pool: Pool) -> float:
    return sum(end - start for start, end in pool.calendar) / 168 if pool.calendar else 1.0
