"""Can requirements be met at all? If not, which smallest set of rules contradicts itself?

    contradictions(requirements)     rules that no design can keep together
    best_cycle_time(requirements)    a lower bound: the longest chain, done by the fastest pools, without queues

Every check names rules that suffice for a contradiction. Then rules are dropped one by one as long as the rest still
contradict each other, until none can be dropped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TypeAlias

from groupwise.errors import ConfigError
from groupwise.workflows.partial_orders import in_order
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.rules import needs

# With up to this many rules, several orders of dropping them are tried, which finds smaller sets; with more, only one.
ALL_ORDERS = 12
# With up to this many different sets of pools, all their unions are checked for overload (2^10); with more, each alone.
MOST_SETS = 10


@dataclass(frozen=True, slots=True)
class Statement:
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
    """Rules that cannot be kept together, none of which could be dropped, and why."""

    statements: tuple[Statement, ...]
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({'; '.join(map(str, self.statements))})" if self.statements else self.words


def statements(requirements: Requirements) -> list[Statement]:
    rules = requirements.rules
    found = [Statement("precedes", pair) for pair in rules.precedes]
    found += [Statement("excludes", pair) for pair in rules.excludes]
    found += [Statement("must_include", (name,)) for name in rules.must_include]
    found += [Statement("separate", pair) for pair in rules.separate]
    if rules.deadline is not None:
        found.append(Statement("deadline", (), rules.deadline))
    return found


def contradictions(requirements: Requirements) -> list[Contradiction]:
    """Every conflict among the rules, reduced to a smallest set, and every pool that cannot handle the demand."""
    rest, found = statements(requirements), []
    judge = _Judge(requirements)
    # Each conflict is removed before the next is looked for, so that independent ones are all found.
    while conflict := judge(rest):
        conflict = _smallest(conflict, judge)
        found.append(conflict)
        rest = [statement for statement in rest if statement not in conflict.statements]
    return [*found, *(Contradiction((), words) for words in overloads(requirements))]


def insist_feasible(requirements: Requirements) -> None:
    found = contradictions(requirements)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        hint = "Remove or change one of the rules." if found[0].statements else "Increase `most` or lower the demand."
        raise ConfigError(f"{requirements.name}: {found[0]}{more}", hint=hint, field="rules")


def _smallest(conflict: Contradiction, judge: _Judge) -> Contradiction:
    """The conflict without the rules it does not need."""
    rules = list(conflict.statements)
    best = _deleted(conflict, rules, judge)
    for first in range(1, len(rules) if len(rules) <= ALL_ORDERS else 0):
        best = min(best, _deleted(conflict, [*rules[first:], *rules[:first]], judge), key=lambda c: len(c.statements))
    return best


def _deleted(conflict: Contradiction, order: Sequence[Statement], judge: _Judge) -> Contradiction:
    for rule in order:
        if rule in conflict.statements:
            conflict = judge([other for other in conflict.statements if other != rule]) or conflict
    return conflict


class _Judge:
    """Finds a contradiction among some of the rules: why, and which of them suffice; None if they agree."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        # Needs without `must_include`, whose rules can be dropped one by one.
        bare = requirements.rules.model_copy(update={"must_include": ()})
        self.needs = needs(requirements.model_copy(update={"rules": bare}))

    def __call__(self, rules: Iterable[Statement]) -> Contradiction | None:
        by_rule: dict[str, list[Statement]] = {}
        for rule in rules:
            by_rule.setdefault(rule.rule, []).append(rule)
        # Rules that alone make an activity necessary are part of whatever conflict it causes.
        forced = {rule.names[0]: rule for rule in by_rule.get("must_include", ()) if rule.names[0] not in self.needs}
        needed = {**self.needs, **dict.fromkeys(forced, 1.0)}
        precedes = by_rule.get("precedes", [])
        found = (
            _ring(precedes)
            or _exclusive(by_rule.get("excludes", []), needed)
            or self._separate(by_rule.get("separate", []), needed)
            or self._late(by_rule.get("deadline", []), precedes, needed)
        )
        if found is None:
            return None
        words, names, used = found
        return Contradiction((*used, *(forced[name] for name in names if name in forced)), words)

    def _separate(self, rules: Sequence[Statement], needed: Mapping[str, float]) -> Found | None:
        """Separate pools are a graph colouring: pools are the colours, and each pair needs two different ones."""
        options = {name: self.requirements.activities[name].pools for rule in rules for name in rule.names}
        used = [rule for rule in rules if all(name in needed and options[name] for name in rule.names)]
        names = sorted({name for rule in used for name in rule.names}, key=lambda name: (len(options[name]), name))
        if _colourable(names, options, [rule.names for rule in used]):
            return None
        pools = sorted({pool for name in names for pool in options[name]})
        listed = ", ".join(map(repr, sorted(names)))
        words = f"{listed} cannot be done by different pools, because only {', '.join(map(repr, pools))} may do them"
        return words, names, used

    def _late(
        self, deadline: Sequence[Statement], precedes: Sequence[Statement], needed: Mapping[str, float]
    ) -> Found | None:
        for rule in deadline:
            seconds, chain = _longest_chain(self.requirements, [one.names for one in precedes], needed)
            if seconds > rule.seconds:
                limit = f"but only {rule.seconds:.6g} s are allowed"
                words = f"every design takes at least {seconds:.6g} s, because of {' → '.join(chain)}, {limit}"
                steps = set(pairwise(chain))
                return words, chain, [*(one for one in precedes if one.names in steps), rule]
        return None


# The explanation, the activities involved, and rules that suffice, except "must include" rules.
Found: TypeAlias = tuple[str, Sequence[str], Sequence[Statement]]


def _ring(precedes: Sequence[Statement]) -> Found | None:
    """The shortest cycle of precedence, found by a breadth-first search from every activity."""
    after: dict[str, list[str]] = {}
    for rule in precedes:
        after.setdefault(rule.names[0], []).append(rule.names[1])
    rings = [ring for start in after if (ring := _way_back(start, after))]
    if not rings:
        return None
    ring = min(rings, key=len)
    steps = set(pairwise(ring))
    words = f"{ring[0]!r} would have to come before itself: {' → '.join(ring)}"
    return words, ring, [rule for rule in precedes if rule.names in steps]


def _way_back(start: str, after: Mapping[str, Sequence[str]]) -> list[str]:
    # Breadth first, so the first way back is a shortest one.
    came: dict[str, str] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for nearby in after.get(here, ()):
            if nearby == start:
                way = [start, here]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            if nearby not in came:
                came[nearby] = here
                queue.append(nearby)
    return []


def _exclusive(rules: Sequence[Statement], needed: Mapping[str, float]) -> Found | None:
    """If activities all exclude each other, the shares of cases that need them cannot add up to more than 1."""
    apart = {frozenset(rule.names) for rule in rules if all(needed.get(name) for name in rule.names)}
    names = sorted({name for pair in apart for name in pair})
    clique = _heaviest([], names, apart, needed)
    if sum(needed[name] for name in clique) <= 1 + 1e-9:
        return None
    often = ", ".join(f"{name!r} in {needed[name]:.4g}" for name in clique)
    words = f"a case can do only one of these, but together they are needed more often: {often} of the cases"
    return words, clique, [rule for rule in rules if set(rule.names) <= set(clique)]


def _heaviest(
    chosen: list[str], rest: Sequence[str], apart: set[frozenset[str]], needed: Mapping[str, float]
) -> list[str]:
    """Mutually exclusive activities (a clique) with the largest total share; stops at the first total above 1."""
    best = chosen
    for place, name in enumerate(rest):
        # A clique grows only by activities that exclude everything in it.
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
    """Whether every activity can get a pool that none of its neighbours has; assumed after `most` attempts."""
    if any(a == b for a, b in edges):
        return False
    near = {name: {other for edge in edges if name in edge for other in edge} - {name} for name in names}
    # Depth first over partial assignments, activities with the fewest pools first.
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
    """A lower bound on the mean cycle time of any design, and the chain of activities behind it.

    The longest chain that `precedes` demands, with each activity as often as it is needed, done by its fastest pool,
    without waiting. If activities may end a case early, by a knock-out or a failure, each counts only for the cases
    that all others let pass. Only timeouts, which give up on work, can make a case shorter.
    """
    return _longest_chain(requirements, requirements.rules.precedes, needs(requirements))


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
    """The least time that an activity adds to a case on average."""
    activity = requirements.activities[name]
    fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=1.0)
    others = [requirements.activities[other] for other in needed if other != name]
    # The share of cases that no other activity has ended before this one, at best.
    let_pass = math.prod((1 - other.knock_out) * (1 - other.failure) for other in others)
    return needed[name] * let_pass * activity.duration.mean / fastest


def least_work(requirements: Requirements) -> float:
    """A lower bound on the mean seconds of server time per case: fastest pools, one attempt, best order."""
    needed, found, left = needs(requirements), 0.0, 1.0
    tests = []
    for name, share in needed.items():
        activity = requirements.activities[name]
        fastest = max((requirements.pools[pool].speed for pool in activity.pools), default=math.inf)
        tests.append((share * activity.duration.mean / fastest, share * activity.knock_out))
    # Tests that end the most cases per second come first: that order minimises the expected work.
    for seconds, ends in sorted(tests, key=lambda test: -test[1] / test[0] if test[0] else -math.inf):
        found += left * seconds
        left *= 1 - ends
    return found


def overloads(requirements: Requirements) -> list[str]:
    """Pools that cannot do the work that only they may do, even with all the servers they may have."""
    rate = requirements.demand.arrivals_per_second
    if rate is None:
        return []
    needed, activities, pools = needs(requirements), requirements.activities, requirements.pools
    sets = list(dict.fromkeys(frozenset(activities[name].pools) for name in needed if activities[name].pools))
    sizes = range(1, (len(sets) if len(sets) <= MOST_SETS else 1) + 1)
    unions = dict.fromkeys(frozenset().union(*some) for size in sizes for some in combinations(sets, size))
    found: list[tuple[frozenset[str], str]] = []
    # Work that only these pools may do must fit into these pools (Hall's condition).
    for union in sorted(unions, key=lambda one: (len(one), sorted(one))):
        work = [name for name in needed if activities[name].pools and union >= set(activities[name].pools)]
        asked = rate * sum(shortest_time(requirements, name, needed) for name in work)
        there = sum(pools[pool].most * pools[pool].open_share for pool in union)
        if asked > there and not any(smaller < union for smaller, _ in found):
            named = ", ".join(map(repr, sorted(union)))
            limit = f"at most {there:.4g} are at work on average, even with `most` servers"
            found.append((union, f"the demand keeps {asked:.4g} servers of {named} busy, but {limit}"))
    return [words for _, words in found]
