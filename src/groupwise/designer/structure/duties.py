"""Who can do what with the pools and servers of a plan, so that no case waits for somebody who is not there.

Whoever is free and allowed takes work, without a thought for later duties. A plan is safe if nobody's choice can leave
a later activity without anybody: whoever did the first of two bound activities can do the second, and more people can
do a separated activity than may have done its counterparts before.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from groupwise.workflows.duties import MOST_UNNAMED, members
from groupwise.workflows.requirements import Requirements


class DutyRoster:
    """Sets of people are bit masks. `before` [activities, activities] says which activities come before which."""

    def __init__(self, requirements: Requirements, before: npt.NDArray[np.bool_]) -> None:
        self.before = before
        self.pools = list(requirements.pools.values())
        self.number = {name: n for n, name in enumerate(requirements.activities)}
        people = list(requirements.people)
        # The people of each pool in the order in which they are employed.
        self.staff: list[list[int]] = []
        for name, pool in requirements.pools.items():
            named = members(requirements, name)
            unnamed = [] if named else [f"{name} {n + 1}" for n in range(min(pool.most, MOST_UNNAMED))]
            people += unnamed
            self.staff.append(
                [people.index(who) for who in named] or list(range(len(people) - len(unnamed), len(people)))
            )
        # People without a name have no skills.
        skills = [set(person.skills) for person in requirements.people.values()]
        skills += [set() for _ in range(len(people) - len(skills))]
        asked = [set(one.skills) for one in requirements.activities.values()]
        self.skilled = [sum(1 << n for n, own in enumerate(skills) if some <= own) for some in asked]
        rules = requirements.rules
        self.apart, self.bound = self._partners(rules.different_people), self._partners(rules.same_person)
        self.rounds = [{self.number[name] for name in (*loop.activities, *loop.redo)} for loop in requirements.loops]
        skilled = [activity for activity, some in enumerate(asked) if some]
        # The activities for which it matters who works.
        self.watched = sorted({*self.apart, *self.bound, *skilled})

    def _partners(self, pairs: Sequence[tuple[str, str]]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for one, other in pairs:
            a, b = self.number[one], self.number[other]
            found.setdefault(a, []).append(b)
            found.setdefault(b, []).append(a)
        return found

    def able(self, activity: int, pool: int, working: int = -1) -> int:
        """Who may do an activity in a pool, of those who work."""
        return sum(1 << person for person in self.staff[pool]) & self.skilled[activity] & working

    def first(self, one: int, other: int) -> bool:
        """Whether one activity may be done before the other."""
        again = any(one in around and other in around for around in self.rounds)
        return again or not self.before[other, one]

    def fits(self, one: int, pool: int, other: int, other_pool: int) -> bool:
        """Whether two activities with a duty between them may be done in these pools, at full staffing."""
        safe = True
        if other in self.apart.get(one, ()):
            safe = self._separable(one, pool, other, other_pool) and self._separable(other, other_pool, one, pool)
        if other in self.bound.get(one, ()):
            safe = (
                safe and self._bindable(one, pool, other, other_pool) and self._bindable(other, other_pool, one, pool)
            )
        return safe

    def _separable(self, one: int, pool: int, other: int, other_pool: int, working: int = -1) -> bool:
        able, others = self.able(other, other_pool, working), self.able(one, pool, working)
        return able.bit_count() > 1 or not able & others or not self.first(one, other)

    def _bindable(self, one: int, pool: int, other: int, other_pool: int, working: int = -1) -> bool:
        able, others = self.able(one, pool, working), self.able(other, other_pool, working)
        return not able & ~others or not self.first(one, other)

    def fewest(self, pools: Sequence[int]) -> list[int]:
        """The fewest servers of each pool with which a plan is safe, or all it may have, for the activities' pools."""
        count = [max(1, pool.least) for pool in self.pools]
        while (short := self._short(pools, count)) is not None:
            count[short] += 1
        return count

    # The first pool that is short of people, and could have more.
    def _short(self, pools: Sequence[int], count: Sequence[int]) -> int | None:
        working = sum({1 << person for staff, n in zip(self.staff, count, strict=True) for person in staff[:n]})
        for activity in self.watched:
            pool = pools[activity]
            if pool < 0:
                continue
            able = self.able(activity, pool, working)
            earlier = {
                other for other in self.apart.get(activity, ()) if pools[other] >= 0 and self.first(other, activity)
            }
            before = [other for other in earlier if self.able(other, pools[other], working) & able]
            if able.bit_count() <= len(before) and self._room(pool, count):
                return pool
            for other in self.bound.get(activity, ()):
                kept = pools[other] < 0 or self._bindable(other, pools[other], activity, pool, working)
                if not kept and self._room(pool, count):
                    return pool
        return None

    def _room(self, pool: int, count: Sequence[int]) -> bool:
        return count[pool] < min(self.pools[pool].most, len(self.staff[pool]))
