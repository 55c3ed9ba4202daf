"""What outcomes, loops and data mean for a case: how often activities are done, which exclude each other, what waits.

flow = CaseFlow(requirements)
flow.shares            the share of cases that must do each activity; optional ones are left out
flow.rounds            how often an activity is done in a case that does it: more than once in a loop
flow.never_both        whether two activities are in different branches of one outcome
flow.ended             the share of cases that a branch ends early

data_order(requirements)     (writer, reader, what): the writer comes before the reader
order_of(requirements)       everything that comes before something else, whatever says so
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

from groupwise.workflows.requirements import OutcomeBranch, RequiredLoop, RequiredOutcome, Requirements


class CaseFlow:
    """The branches and loops around each activity of some requirements."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.outcome = {outcome.name: outcome for outcome in requirements.outcomes}
        self.inside = {name: place for outcome in requirements.outcomes for name, place in _branches(outcome)}

    def context(self, name: str) -> tuple[tuple[str, str], ...]:
        """The outcomes around an activity with their branches, the innermost first."""
        found = []
        place = self.inside.get(name)
        while place is not None:
            found.append(place)
            place = self.inside.get(self.outcome[place[0]].after)
        return tuple(found)

    def never_both(self, one: str, other: str) -> str | None:
        """The outcome in whose different branches two activities are, if there is one."""
        branches = dict(self.context(one))
        return next((name for name, branch in self.context(other) if branches.get(name, branch) != branch), None)

    def branch(self, place: tuple[str, str]) -> OutcomeBranch:
        return self.outcome[place[0]].branches[place[1]]

    def share(self, name: str) -> float:
        """The share of cases that come to an activity, from the branches around it alone."""
        share = 1.0
        for place in self.context(name):
            share *= self.branch(place).probability
        return share

    @cached_property
    def ends(self) -> dict[str, float]:
        """The share of cases that are over after each outcome that may end them."""
        found = {}
        for outcome in self.requirements.outcomes:
            gone = sum(branch.probability for branch in outcome.branches.values() if branch.ends)
            if gone:
                often = math.prod(self._decided(outcome, loop) for loop in self.requirements.loops)
                found[outcome.name] = min(1.0, self.share(outcome.after) * often * gone)
        return found

    def _decided(self, outcome: RequiredOutcome, loop: RequiredLoop) -> float:
        """How often a loop decides an outcome: in every round, or between two of them, if all of it is there."""
        inside = {name for branch in outcome.branches.values() for name in branch.activities}
        if inside and {outcome.after, *inside} <= {*loop.activities}:
            return 1 + loop.repetitions
        return loop.repetitions if {outcome.after, *inside} <= {*loop.redo} else 1.0

    def comes_after_loop(self, outcome: RequiredOutcome, name: str) -> bool:
        """Whether an outcome is decided once, after the last round of a loop that an activity belongs to."""
        inside = {activity for branch in outcome.branches.values() for activity in branch.activities}
        for loop in self.requirements.loops:
            around = {*loop.activities, *loop.redo}
            if {outcome.after, name} <= around and not (inside and inside <= around):
                return True
        return False

    @property
    def ended(self) -> float:
        return sum(self.ends.values())

    def _going_on(self, name: str) -> float:
        """The share of cases that no outcome ends before an activity could be done, whatever the design."""
        gone = sum(gone for outcome, gone in self.ends.items() if name not in self._before[outcome])
        return max(0.0, 1 - gone)

    @cached_property
    def _before(self) -> dict[str, set[str]]:
        """For every outcome that may end a case: the activities that are done by then, because it waits for them."""
        return {name: self._earlier([self.outcome[name].after]) for name in self.ends}

    @cached_property
    def before_end(self) -> dict[str, set[str]]:
        """The same for the branches that end cases: what their activities wait for is done although the case ends."""
        return {
            name: self._earlier([a for b in self.outcome[name].branches.values() if b.ends for a in b.activities])
            for name in self.ends
        }

    def _earlier(self, names: list[str]) -> set[str]:
        seen, stack = set[str](), list(names)
        while stack:
            here = stack.pop()
            if here not in seen:
                seen.add(here)
                stack += self._waits.get(here, [])
        return seen

    @cached_property
    def _waits(self) -> dict[str, list[str]]:
        """What each activity waits for."""
        found: dict[str, list[str]] = {}
        for first, second in _stated_order(self.requirements):
            found.setdefault(second, []).append(first)
        return found

    def _least(self, name: str) -> float:
        """The share of cases that come to an activity of a branch, if all that may end earlier do."""
        around = self.context(name)
        earlier = {
            o: gone
            for o, gone in self.ends.items()
            if o not in dict(around)
            and name not in self._before[o]
            and not self.never_both(name, self.outcome[o].after)
        }
        # In the branch of an outcome that is in the same branch, or for any case.
        near = {o for o in earlier if set(around) & set(self.context(self.outcome[o].after))}
        passed = 1 - sum(gone for o, gone in earlier.items() if o not in near)
        return max(0.0, self.share(name) * max(0.0, passed) - sum(earlier[o] for o in near))

    @cached_property
    def shares(self) -> dict[str, float]:
        required = self.requirements
        always = [name for name, activity in required.activities.items() if not activity.optional]
        found = {name: self._going_on(name) for name in (*always, *required.rules.must_include)}
        for branch in required.branches:
            found |= branch.options
        found |= {name: self._least(name) for name in self.inside}
        for loop in required.loops:
            left = loop.again * math.prod(1 - gone for gone in self._ending_rounds(loop))
            found |= {n: self._least(n if n in self.inside else loop.after) * left for n in loop.redo}
        return found

    def _ending_rounds(self, loop: RequiredLoop) -> Iterator[float]:
        """The share of cases that each outcome inside a loop ends in a round, at most."""
        for outcome in self.requirements.outcomes:
            if self._decided(outcome, loop) > 1:
                yield sum(branch.probability for branch in outcome.branches.values() if branch.ends)

    @cached_property
    def rounds(self) -> dict[str, float]:
        found = dict.fromkeys(self.requirements.activities, 1.0)
        for loop in self.requirements.loops:
            for name in loop.activities:
                found[name] *= 1 + loop.repetitions
            for name in loop.redo:
                # Of the cases that do it at all, which are the share `again`.
                found[name] *= loop.repetitions / loop.again
        return found


def _branches(outcome: RequiredOutcome) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, branch in outcome.branches.items():
        yield from ((activity, (outcome.name, name)) for activity in branch.activities)


def _next_round(requirements: Requirements) -> set[tuple[str, str]]:
    # What is done between two rounds, and what is done in the next one.
    return {(redo, name) for loop in requirements.loops for redo in loop.redo for name in loop.activities}


def precedence(requirements: Requirements) -> list[tuple[str, str]]:
    """The pairs of `precedes`, without those that speak of the next round of a loop, which always hold."""
    back = _next_round(requirements)
    return [pair for pair in requirements.rules.precedes if pair not in back]


def responses(requirements: Requirements) -> list[tuple[str, str]]:
    """The pairs of `response`, without those that the next round of a loop keeps."""
    back = _next_round(requirements)
    return [pair for pair in requirements.rules.response if pair not in back]


def data_order(requirements: Requirements) -> Iterator[tuple[str, str, str]]:
    """Who writes data before who reads it.

    Two activities that both read and write something take turns in any order. What is written between two rounds of a
    loop is read in the next round.
    """
    readers: dict[str, list[str]] = {}
    for name, activity in requirements.activities.items():
        for item in activity.reads:
            readers.setdefault(item, []).append(name)
    back = _next_round(requirements)
    for writer, activity in requirements.activities.items():
        for item in activity.writes:
            for reader in readers.get(item, ()):
                turns = item in activity.reads and item in requirements.activities[reader].writes
                if reader != writer and not turns and (writer, reader) not in back:
                    yield writer, reader, item


def order_of(requirements: Requirements) -> Iterator[tuple[str, str]]:
    """Every pair of which the first comes before the second, if both happen in a case."""
    flow = CaseFlow(requirements)
    yield from ((one, other) for one, other in _stated_order(requirements) if not flow.never_both(one, other))


def _stated_order(requirements: Requirements) -> list[tuple[str, str]]:
    rules = requirements.rules
    pairs = [*precedence(requirements), *responses(requirements), *rules.chain]
    pairs += [found[:2] for found in data_order(requirements)]
    return [*pairs, *(pair for outcome in requirements.outcomes for pair in outcome.decisions)]
