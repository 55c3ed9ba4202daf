"""The hard rules of requirements: which of them a design breaks. Nothing is simulated; only the deadline needs that."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import groupwise.workflows.blocks as blocks
from groupwise.workflows.case_flow import CaseFlow
from groupwise.workflows.case_rules import CaseRules
from groupwise.workflows.pair_rules import PairRules
from groupwise.workflows.places import ActivityPlace, limits_of, places_of
from groupwise.workflows.requirements import Requirements
from groupwise.workflows.wording import ROUNDING, Violation, in_time


def needs(requirements: Requirements) -> dict[str, float]:
    """The share of cases that must do each activity: all, or its branch's probability. Optional ones are left out."""
    return CaseFlow(requirements).shares


Runs: TypeAlias = Iterable[tuple[blocks.Activity, float, float]]


class RuleBook:
    """The rules of requirements, prepared for many designs. Most designs keep them all, which a fast path confirms."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.limits = limits_of(requirements)
        self.needs = needs(requirements)
        self.pairs = PairRules(requirements)
        self.cases = CaseRules(requirements)
        self.first = {name: next(iter(one.pools), None) for name, one in requirements.activities.items()}
        # Per activity: the share of cases it needs (−1 if optional), whether it must be there, and its pools.
        self.known = {
            name: (self.needs.get(name, -1.0) - ROUNDING, name in self.needs, activity.pools)
            for name, activity in requirements.activities.items()
        }

    def broken(self, design: blocks.Design, runs: Runs | None = None) -> list[Violation]:
        """Every broken rule except the deadline; `runs` has activities and shares if the tree was walked already."""
        # Almost every design of a search is legal: confirm that first, and explain only failures.
        if runs is not None and self._kept(design, runs):
            return []
        places = {place.activity.name: place for place in places_of(design.root, self.limits)}
        found = [*self._presence(places), *self._people(design, places), *self.pairs.broken(design.root, places)]
        return [*found, *self.cases.broken(design, places)]

    def _kept(self, design: blocks.Design, runs: Runs) -> bool:
        """Whether every rule is kept: the fast path, which does not say what is broken."""
        rules = self.requirements.rules
        present = 0
        for activity, share, *_ in runs:
            known = self.known.get(activity.name)
            if known is None or share < known[0]:
                return False
            pool = activity.handling.pool
            if pool is not None and pool not in known[2]:
                return False
            present += known[1]
        if present < len(self.needs) or (rules.separate and not self._separated(runs)):
            return False
        pools = self.requirements.pools
        if not all(pool in pools and pools[pool].least <= count <= pools[pool].most for pool, count in design.servers):
            return False
        if self.pairs and not self.pairs.kept(design.root):
            return False
        return not self.cases or self.cases.kept(design)

    def _separated(self, runs: Runs) -> bool:
        pools = {activity.name: activity.handling.pool or self.first[activity.name] for activity, *_ in runs}
        pairs = ((pools.get(one), pools.get(other)) for one, other in self.requirements.rules.separate)
        return all(one is None or one != other for one, other in pairs)

    def late(self, cycle_time: float) -> Violation | None:
        deadline = self.requirements.rules.deadline
        if deadline is None or cycle_time <= deadline:
            return None
        return Violation(
            "deadline", f"a case takes {in_time(cycle_time, 4)} on average, but only {in_time(deadline, 4)} are allowed"
        )

    def _presence(self, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        for name in places:
            if name not in self.requirements.activities:
                yield Violation("unknown activity", f"{name!r} is not in the requirements", (name,))
        for name, needed in self.needs.items():
            place = places.get(name)
            if place is None:
                yield Violation("must include", f"{name!r} is missing", (name,))
            elif place.share < needed - ROUNDING:
                words = f"{name!r} is done in {place.share:.4g} of the cases, but must be done in {needed:.4g}"
                yield Violation("every case", words, (name,))

    def _people(self, design: blocks.Design, places: Mapping[str, ActivityPlace]) -> Iterator[Violation]:
        pools, activities = self.requirements.pools, self.requirements.activities
        for name, place in places.items():
            pool, wanted = place.activity.handling.pool, activities.get(name)
            if pool is not None and wanted is not None and pool not in wanted.pools:
                allowed = ", ".join(wanted.pools) or "nobody"
                yield Violation("pool", f"{name!r} is done by {pool!r}, but only {allowed} may do it", (name, pool))
        for pool, count in design.servers:
            known = pools.get(pool)
            if known is None:
                yield Violation("staffing", f"there is no pool {pool!r}", (pool,))
            elif not known.least <= count <= known.most:
                words = f"pool {pool!r} has {count} servers, but {known.least} to {known.most} are allowed"
                yield Violation("staffing", words, (pool,))
        for one, other in self.requirements.rules.separate:
            pool = self._pool(places.get(one))
            if pool is not None and pool == self._pool(places.get(other)):
                yield Violation("separate", f"{one!r} and {other!r} are both done by {pool!r}", (one, other))

    def _pool(self, place: ActivityPlace | None) -> str | None:
        return None if place is None else place.activity.handling.pool or self.first.get(place.activity.name)


def broken_rules(design: blocks.Design, requirements: Requirements, cycle_time: float | None = None) -> list[Violation]:
    """Every rule that the design breaks; the deadline is checked if `cycle_time` is given."""
    book = RuleBook(requirements)
    late = book.late(cycle_time) if cycle_time is not None else None
    return [*book.broken(design), *([late] if late else [])]
