"""Can requirements be met at all? If not, which smallest set of rules contradicts itself?

    contradictions(requirements)     rules that no design can keep together

Every check names rules that suffice for a contradiction. Then rules are dropped one by one as long as the rest still
contradict each other, until none can be dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TypeAlias

from groupwise.errors import ConfigError
from groupwise.workflows.case_flow import CaseFlow, data_order, precedence
from groupwise.workflows.duties import able, at_work, bound, colourable, impossible, shared
from groupwise.workflows.lower_bounds import busy_times, longest_chain
from groupwise.workflows.partial_orders import find_ring
from groupwise.workflows.requirements import PAIR_RULES, Requirements
from groupwise.workflows.rules import needs
from groupwise.workflows.wording import in_time

# With up to this many rules, several orders of dropping them are tried, which finds smaller sets; with more, only one.
ALL_ORDERS = 12
# With up to this many different sets of pools, all their unions are checked for overload (2^10); with more, each alone.
MOST_SETS = 10


# How a rule, or a fact of the requirements that orders or separates activities, is put into words.
WORDS = {
    "precedes": "{0} precedes {1}",
    "excludes": "{0} excludes {1}",
    "not_coexist": "{0} excludes {1}",
    "must_include": "{0} must be included",
    "separate": "{0} and {1} are done by different pools",
    "coexist": "a case has both {0} and {1} or neither",
    "response": "{1} follows {0}",
    "chain": "{1} comes directly after {0}",
    "different_people": "{0} and {1} are done by different people",
    "same_person": "{0} and {1} are done by the same person",
    "data": "{1} reads {2}, which {0} writes",
    "decided": "{0} decides about {1}",
    "round": "{0} is in every round that ends with {1}",
    "outcome": "{0} has one result per case",
}
# Statements by which the first activity comes before the second.
ORDER = ("precedes", "response", "chain", "data", "decided", "round")


@dataclass(frozen=True, slots=True)
class Statement:
    rule: str
    names: tuple[str, ...]
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.rule == "deadline":
            return f"a case takes at most {in_time(self.seconds, 4)}"
        return WORDS[self.rule].format(*map(repr, self.names))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rules that cannot be kept together, none of which could be dropped, and why."""

    statements: tuple[Statement, ...]
    words: str

    def __str__(self) -> str:
        return f"{self.words} ({'; '.join(map(str, self.statements))})" if self.statements else self.words


def statements(requirements: Requirements) -> list[Statement]:
    """Every rule, and every fact that takes part in contradictions."""
    rules = requirements.rules
    found = [Statement("precedes", pair) for pair in precedence(requirements)]
    found += [Statement(rule, pair) for rule in PAIR_RULES[1:] for pair in getattr(rules, rule)]
    found += [Statement("must_include", (name,)) for name in rules.must_include]
    found += [Statement("data", names) for names in data_order(requirements)]
    for outcome in requirements.outcomes:
        found += [Statement("outcome", (outcome.name,)), *(Statement("decided", pair) for pair in outcome.decisions)]
    for loop in requirements.loops:
        found += [Statement("round", (name, loop.after)) for name in loop.activities if name != loop.after]
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
    return [*found, *(Contradiction((), words) for words in (*impossible(requirements), *overloads(requirements)))]


def insist_feasible(requirements: Requirements) -> None:
    found = contradictions(requirements)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        hint = "Remove or change one of the rules." if found[0].statements else "Change the pools, people or demand."
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
        self.flow = CaseFlow(requirements.model_copy(update={"rules": bare}))
        self.needs = self.flow.shares

    def __call__(self, rules: Iterable[Statement]) -> Contradiction | None:
        by_rule: dict[str, list[Statement]] = {}
        for rule in rules:
            by_rule.setdefault(rule.rule, []).append(rule)
        # Rules that alone make an activity necessary are part of whatever conflict it causes.
        forced = {rule.names[0]: rule for rule in by_rule.get("must_include", ()) if rule.names[0] not in self.needs}
        needed = {**self.needs, **dict.fromkeys(forced, 1.0)}
        order = [one for rule in ORDER for one in by_rule.get(rule, ()) if not self.flow.never_both(*one.names[:2])]
        apart = [*by_rule.get("excludes", ()), *by_rule.get("not_coexist", ())]
        results = {one.names[0]: one for one in by_rule.get("outcome", ())}
        together = [one for rule in ("coexist", "response", "chain") for one in by_rule.get(rule, ())]
        found = (
            _ring(order, self.flow)
            or _exclusive(apart, needed)
            or self._implied(together, apart, results, needed)
            or self._too_rare(together, needed)
            or self._no_way_out(order, results, needed)
            or _crowded([*by_rule.get("chain", ())], order, needed)
            or self._separate(by_rule.get("separate", []), needed)
            or self._people(by_rule.get("different_people", []), by_rule.get("same_person", []), needed)
            or self._late(by_rule.get("deadline", []), order, needed)
        )
        if found is None:
            return None
        words, names, used = found
        return Contradiction((*used, *(forced[name] for name in names if name in forced)), words)

    def _implied(
        self,
        together: Sequence[Statement],
        apart: Sequence[Statement],
        results: Mapping[str, Statement],
        needed: Mapping[str, float],
    ) -> Found | None:
        """An activity whose rules ask for two others that never happen in one case."""
        follows: dict[str, list[tuple[str, Statement]]] = {}
        for asked in together:
            first, second = asked.names
            follows.setdefault(first, []).append((second, asked))
            if asked.rule == "coexist":
                follows.setdefault(second, []).append((first, asked))
        for start in (name for name in follows if needed.get(name)):
            why = _reached(start, follows)
            for one, other in combinations(why, 2):
                rule = next((rule for rule in apart if set(rule.names) == {one, other}), None)
                split = self.flow.never_both(one, other)
                rule = rule or (results.get(split) if split else None)
                if rule is not None:
                    words = f"{start!r} asks for {one!r} and {other!r}, which never happen in the same case"
                    words = f"{one!r} and {other!r} never happen in the same case" if start in (one, other) else words
                    return words, [start], list(dict.fromkeys([*why[one], *why[other], rule]))
        return None

    def _too_rare(self, together: Sequence[Statement], needed: Mapping[str, float]) -> Found | None:
        """Both or neither, or one after the other, although more cases need the one than come to the other."""
        for rule in together:
            for one, other in (rule.names, rule.names[::-1])[: 2 if rule.rule == "coexist" else 1]:
                inside = other in self.flow.inside or any(other in loop.redo for loop in self.requirements.loops)
                # The cases that a branch ends need not go on to the other.
                there = needed.get(other, 0.0) + self.flow.ended
                if inside and not self.flow.never_both(one, other) and needed.get(one, 0.0) > there + 1e-9:
                    words = (
                        f"{one!r} is done in {needed[one]:.4g} of the cases, but {other!r} only in {needed[other]:.4g}"
                    )
                    return words, [one, other], [rule]
        return None

    def _no_way_out(
        self, order: Sequence[Statement], results: Mapping[str, Statement], needed: Mapping[str, float]
    ) -> Found | None:
        """Work that would have to follow although its case is over by then."""
        flow = self.flow
        for rule in (one for one in order if one.rule in ("response", "chain")):
            first, second = rule.names[:2]
            over = next((place for place in flow.context(first) if flow.branch(place).ends), None)
            if over and over not in flow.context(second) and over[0] in results:
                words = f"{second!r} cannot follow {first!r}, because branch {over[1]!r} of {over[0]!r} ends the case"
                return words, [first], [rule, results[over[0]]]
        for outcome in self.requirements.outcomes:
            if outcome.name in results and all(branch.ends for branch in outcome.branches.values()):
                for name, used in _after(outcome.after, order).items():
                    own = {*flow.context(name)}
                    beside = outcome.name not in dict(own) and own <= {*flow.context(outcome.after)}
                    if needed.get(name) is not None and beside and not self._is_redo(name):
                        words = f"{name!r} is never done, because every branch of {outcome.name!r} ends the case"
                        return words, [name], [*used, results[outcome.name]]
        return None

    def _is_redo(self, name: str) -> bool:
        return any(name in loop.redo for loop in self.requirements.loops)

    def _people(
        self, different: Sequence[Statement], same: Sequence[Statement], needed: Mapping[str, float]
    ) -> Found | None:
        """Different people are a graph colouring too: people are the colours, activities of one person one node."""
        activities = self.requirements.activities
        rules = [rule for rule in (*different, *same) if all(n in needed and activities[n].pools for n in rule.names)]
        names = list(dict.fromkeys(name for rule in rules for name in rule.names))
        groups = bound(names, [rule.names for rule in rules if rule.rule == "same_person"])
        options = shared(self.requirements, groups)
        edges = [tuple(groups[name] for name in rule.names) for rule in rules if rule.rule == "different_people"]
        order = sorted(options, key=lambda group: (len(options[group]), group))
        if all(options.values()) and colourable(order, options, edges):
            return None
        who = sorted({person for name in names for person in able(self.requirements, name)})
        listed = ", ".join(map(repr, sorted(names)))
        allowed = ", ".join(who[:6]) + (" …" if len(who) > 6 else "") or "nobody"
        words = f"nobody can be found for {listed}, which only {allowed} may do"
        return words, names, rules

    def _separate(self, rules: Sequence[Statement], needed: Mapping[str, float]) -> Found | None:
        """Separate pools are a graph colouring: pools are the colours, and each pair needs two different ones."""
        options = {name: self.requirements.activities[name].pools for rule in rules for name in rule.names}
        used = [rule for rule in rules if all(name in needed and options[name] for name in rule.names)]
        names = sorted({name for rule in used for name in rule.names}, key=lambda name: (len(options[name]), name))
        if colourable(names, options, [rule.names for rule in used]):
            return None
        pools = sorted({pool for name in names for pool in options[name]})
        listed = ", ".join(map(repr, sorted(names)))
        words = f"{listed} cannot be done by different pools, because only {', '.join(map(repr, pools))} may do them"
        return words, names, used

    def _late(
        self, deadline: Sequence[Statement], order: Sequence[Statement], needed: Mapping[str, float]
    ) -> Found | None:
        for rule in deadline:
            seconds, chain = longest_chain(self.requirements, [one.names[:2] for one in order], needed)
            if seconds > rule.seconds:
                limit = f"but only {in_time(rule.seconds, 4)} are allowed"
                words = f"every design takes at least {in_time(seconds, 4)}, because of {' → '.join(chain)}, {limit}"
                return words, chain, [*_steps(chain, order), rule]
        return None


# The explanation, the activities involved, and rules that suffice, except "must include" rules.
Found: TypeAlias = tuple[str, Sequence[str], Sequence[Statement]]


def _ring(order: Sequence[Statement], flow: CaseFlow) -> Found | None:
    """The shortest cycle of activities of one case that wait for each other, by a breadth-first search from each."""
    after: dict[str, list[str]] = {}
    for rule in order:
        after.setdefault(rule.names[0], []).append(rule.names[1])
    number = {name: place for place, name in enumerate(dict.fromkeys(n for rule in order for n in rule.names[:2]))}
    # Most orders have no cycle, which a single walk finds out.
    if not find_ring(len(number), frozenset((number[rule.names[0]], number[rule.names[1]]) for rule in order)):
        return None
    rings = [ring for start in after if (ring := _way_back(start, after)) and not _split(ring, flow)]
    if not rings:
        return None
    ring = min(rings, key=len)
    words = f"{ring[0]!r} would have to come before itself: {' → '.join(ring)}"
    return words, ring, _steps(ring, order)


def _steps(way: Sequence[str], order: Sequence[Statement]) -> list[Statement]:
    """One statement for each step of a way, the first there is."""
    first: dict[tuple[str, ...], Statement] = {}
    for rule in order:
        first.setdefault(rule.names[:2], rule)
    return [first[step] for step in pairwise(way)]


def _split(names: Iterable[str], flow: CaseFlow) -> bool:
    """Whether no case has all of the activities, because two are in different branches."""
    return any(flow.never_both(one, other) for one, other in combinations([n for n in names if n in flow.inside], 2))


def _reached(start: str, follows: Mapping[str, Sequence[tuple[str, Statement]]]) -> dict[str, list[Statement]]:
    """Everything that some statements lead to from `start`, each with the statements on a shortest way."""
    found: dict[str, list[Statement]] = {start: []}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for nearby, rule in follows.get(here, ()):
            if nearby not in found:
                found[nearby] = [*found[here], rule]
                queue.append(nearby)
    return found


def _after(start: str, order: Sequence[Statement]) -> dict[str, list[Statement]]:
    follows: dict[str, list[tuple[str, Statement]]] = {}
    for rule in order:
        follows.setdefault(rule.names[0], []).append((rule.names[1], rule))
    found = _reached(start, follows)
    del found[start]
    return found


def _crowded(chains: Sequence[Statement], order: Sequence[Statement], needed: Mapping[str, float]) -> Found | None:
    """Two activities for one place: right after or before the same one, or something in between."""
    for one, other in combinations(chains, 2):
        pairs = list(zip(one.names, other.names, strict=True))
        # They share exactly one end: both come directly after, or directly before, the same activity.
        if [a == b for a, b in pairs].count(True) == 1 and all(needed.get(name) for pair in pairs for name in pair):
            where = "after" if pairs[0][0] == pairs[0][1] else "before"
            same, (a, b) = (pairs[0][0], pairs[1]) if where == "after" else (pairs[1][0], pairs[0])
            return (
                f"{a!r} and {b!r} cannot both come directly {where} {same!r}",
                [*one.names, *other.names],
                [one, other],
            )
    for chain in chains:
        first, second = chain.names
        between = {rule.names[1]: rule for rule in order if rule.names[0] == first and rule.names[1] != second}
        for rule in order:
            if rule.names[1] == second and rule.names[0] in between and needed.get(rule.names[0]):
                words = f"{rule.names[0]!r} would have to come between {first!r} and {second!r}"
                return words, [first, second, rule.names[0]], [chain, between[rule.names[0]], rule]
    return None


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


def overloads(requirements: Requirements) -> list[str]:
    """Pools that cannot do the work that only they may do, even with all the servers they may have."""
    rate = requirements.demand.arrivals_per_second
    if rate is None:
        return []
    activities, needed = requirements.activities, busy_times(requirements, needs(requirements))
    sets = list(dict.fromkeys(frozenset(activities[name].pools) for name in needed if activities[name].pools))
    sizes = range(1, (len(sets) if len(sets) <= MOST_SETS else 1) + 1)
    unions = dict.fromkeys(frozenset().union(*some) for size in sizes for some in combinations(sets, size))
    found: list[tuple[frozenset[str], str]] = []
    # Work that only these pools may do must fit into these pools (Hall's condition).
    for union in sorted(unions, key=lambda one: (len(one), sorted(one))):
        work = [name for name in needed if activities[name].pools and union >= set(activities[name].pools)]
        asked = rate * sum(needed[name] for name in work)
        there = at_work(requirements, union)
        if asked > there and not any(smaller < union for smaller, _ in found):
            named = ", ".join(map(repr, sorted(union)))
            limit = f"at most {there:.4g} are at work on average, even with `most` servers"
            found.append((union, f"the demand keeps {asked:.4g} servers of {named} busy, but {limit}"))
    return [words for _, words in found]
