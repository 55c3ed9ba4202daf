"""Who can do what with the pools and servers of a plan, so that no case waits for somebody who is not there.

Work is given to people who leave somebody for the duties that follow, so a plan is safe if there is one way to share
out everything that duties link.
"""

from collections.abc import Iterator, Mapping, Sequence

from groupwise.workflows.duties import MOST_UNNAMED, members
from groupwise.workflows.requirements import Requirements

# So many ways to share out work are tried before one is taken to exist.
MOST_TRIED = 2_000


class DutyRoster:
    """Sets of people are bit masks."""

    def __init__(self, requirements: Requirements) -> None:
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
        skilled = [activity for activity, some in enumerate(asked) if some]
        # The activities for which it matters who works.
        self.watched = sorted({*self.apart, *self.bound, *skilled})
        self.linked = list(self._linked())

    # Activities that duties link, directly or through others.
    def _linked(self) -> Iterator[list[int]]:
        seen = set[int]()
        for start in self.watched:
            group = [] if start in seen else [start]
            for one in group:
                near = (*self.apart.get(one, ()), *self.bound.get(one, ()))
                group += [other for other in dict.fromkeys(near) if other not in group]
            seen.update(group)
            if group:
                yield group

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

    def fits(self, one: int, pool: int, other: int, other_pool: int) -> bool:
        """Whether two activities with a duty between them may be done in these pools, at full staffing."""
        return self._shared_out({one: self.able(one, pool), other: self.able(other, other_pool)})

    def fewest(self, pools: Sequence[int]) -> list[int]:
        """The fewest servers of each pool with which a plan is safe, or all it may have, for the activities' pools."""
        count = [max(1, pool.least) for pool in self.pools]
        while (short := self._short(pools, count)) is not None:
            count[short] += 1
        return count

    # A pool that is short of people, and could have more: the one with the fewest for what it has to share out.
    def _short(self, pools: Sequence[int], count: Sequence[int]) -> int | None:
        working = sum({1 << person for staff, n in zip(self.staff, count, strict=True) for person in staff[:n]})
        for group in self.linked:
            able = {one: self.able(one, pools[one], working) for one in group if pools[one] >= 0}
            if not self._shared_out(able):
                room = [one for one in able if self._room(pools[one], count)]
                if room:
                    return pools[min(room, key=lambda one: able[one].bit_count())]
        return None

    def _shared_out(self, able: Mapping[int, int]) -> bool:
        """Whether there is somebody for each of some activities, by who may do them; assumed after many attempts."""
        order = sorted(able, key=lambda one: able[one].bit_count())
        stack: list[tuple[int, ...]] = [()]
        for _ in range(MOST_TRIED):
            if not stack:
                return False
            given = stack.pop()
            if len(given) == len(order):
                return True
            one = order[len(given)]
            left = able[one]
            for other, person in zip(order, given, strict=False):
                left &= ~person if other in self.apart.get(one, ()) else -1
                left &= person if other in self.bound.get(one, ()) else -1
            while left:
                stack.append((*given, left & -left))
                left &= left - 1
        return True

    def _room(self, pool: int, count: Sequence[int]) -> bool:
        return count[pool] < min(self.pools[pool].most, len(self.staff[pool]))
