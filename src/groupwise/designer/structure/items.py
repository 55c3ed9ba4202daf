"""What is inside what: the activities, chains, branches, outcomes and loops of requirements, nested in each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from groupwise.workflows.case_flow import CaseFlow
from groupwise.workflows.feasibility import WORDS
from groupwise.workflows.partial_orders import Edges, find_ring
from groupwise.workflows.requirements import Requirements

Kind: TypeAlias = Literal["task", "chain", "fork", "option", "choice", "loop"]
# A branch of an outcome, the body of a loop, or the work between two rounds: with the names of both.
Container: TypeAlias = tuple[Literal["branch", "body", "redo"], str, str]
WHOLE: Container = ("branch", "", "")


@dataclass(frozen=True, slots=True)
class Branch:
    """`ends` says that the case is over after it, by itself or because all branches of an outcome inside are."""

    share: float
    ends: bool
    items: tuple[Item, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """A unit before it has a place; `mask` has a bit for every activity inside, `outcome` names that of a choice."""

    kind: Kind
    activities: tuple[int, ...]
    mask: int
    branches: tuple[Branch, ...] = ()
    after: int = -1
    fork: int = -1
    outcome: str = ""

    @property
    def may_end(self) -> bool:
        return any(branch.ends or any(item.may_end for item in branch.items) for branch in self.branches)

    @property
    def ended(self) -> float:
        """The share of its cases that are over after it; of a loop, after as many rounds as it may have."""
        gone = [1.0 if branch.ends else min(1.0, sum(item.ended for item in branch.items)) for branch in self.branches]
        if self.kind == "choice":
            return sum(branch.share * over for branch, over in zip(self.branches, gone, strict=True))
        if self.kind != "loop" or not any(gone):
            return 0.0
        (here, between), again = gone, self.branches[1].share
        on = (1 - here) * again * (1 - between)
        return min(1.0, (here + (1 - here) * again * between) / (1 - on))


def _all_end(items: Sequence[Item]) -> bool:
    """Whether an outcome among the items ends the case whatever it is."""
    return any(item.kind == "choice" and all(branch.ends for branch in item.branches) for item in items)


def without_rings(count: int, edges: Edges) -> Edges:
    """The order without what makes it circular: rules that no design can keep are reported with its score."""
    while ring := find_ring(count, edges):
        edges -= {(ring[0], ring[1])}
    return edges


class _Containers:
    """What is inside each branch and loop, and the smallest one around anything."""

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.content: dict[Container, set[str]] = {WHOLE: set(requirements.activities)}
        for outcome in requirements.outcomes:
            for name, branch in outcome.branches.items():
                self.content["branch", outcome.name, name] = set(branch.activities)
        for loop in requirements.loops:
            self.content["body", loop.name, ""] = set(loop.activities)
            self.content["redo", loop.name, ""] = set(loop.redo)
        while any([self._grow(container) for container in self.content if container != WHOLE]):
            pass

    def _grow(self, container: Container) -> bool:
        kind, own, _ = container
        content, before = self.content[container], len(self.content[container])
        decided = next((one.after for one in self.requirements.outcomes if kind == "branch" and one.name == own), "")
        for loop in self.requirements.loops:
            # A loop in which an outcome is decided is around all of the outcome.
            around = (kind != "branch" and loop.name == own) or decided in (*loop.activities, *loop.redo)
            inside = set(loop.activities) <= content if kind == "body" else loop.after in content
            if inside and not around:
                content |= {*loop.activities, *loop.redo}
        for outcome in self.requirements.outcomes:
            # The body of a loop has exactly its activities; an outcome that is not among them comes after the loop.
            if kind != "body" and outcome.after in content and not (kind == "branch" and outcome.name == own):
                for name in outcome.branches:
                    content |= self.content["branch", outcome.name, name]
        return len(content) > before

    def around(self, names: set[str], own: str = "", bodies: bool = True) -> Container:
        """The smallest container with all of the names that is not a part of `own`."""
        found = [
            container
            for container, content in self.content.items()
            if names <= content and (container[1] != own or container == WHOLE) and (bodies or container[0] != "body")
        ]
        # A loop that is a whole branch is inside the branch.
        return min(found, key=lambda one: (len(self.content[one]), one[0] == "branch"))


class ItemTree:
    """The items of every container, nested in each other."""

    def __init__(self, requirements: Requirements, forks: Sequence[Sequence[int]]) -> None:
        self.requirements, self.containers = requirements, _Containers(requirements)
        self.number = {name: number for number, name in enumerate(requirements.activities)}
        self.names = list(requirements.activities)
        self.place: dict[Container, list[tuple[Kind, int]]] = {container: [] for container in self.containers.content}
        forked = {option: fork for fork, options in enumerate(forks) for option in options}
        self.forks = forks
        self.home = [self.containers.around({name}) for name in self.names]
        for number in range(len(self.names)):
            if number not in forked:
                self.place[self.home[number]].append(("task", number))
        for fork, options in enumerate(forks):
            # Options in different places cannot be one choice.
            if len({self.home[option] for option in options}) == 1:
                self.place[self.home[options[0]]].append(("fork", fork))
            else:
                for option in options:
                    self.place[self.home[option]].append(("option", option))
        self.fork_of = forked
        for n, outcome in enumerate(requirements.outcomes):
            inside = {name for branch in outcome.branches for name in self._content("branch", outcome.name, branch)}
            home = self.containers.around({outcome.after, *inside}, outcome.name, bodies=bool(inside))
            if inside or any(branch.ends for branch in outcome.branches.values()):
                self.place[home].append(("choice", n))
        for n, loop in enumerate(requirements.loops):
            home = self.containers.around(
                self._content("body", loop.name) | self._content("redo", loop.name), loop.name
            )
            self.place[home].append(("loop", n))

    def _content(self, kind: Literal["branch", "body", "redo"], own: str, branch: str = "") -> set[str]:
        return self.containers.content[kind, own, branch]

    def of(self, container: Container) -> tuple[Item, ...]:
        found = [self._item(kind, number) for kind, number in self.place[container]]
        return tuple(self._chained(found))

    def _item(self, kind: Kind, number: int) -> Item:
        if kind == "task":
            return Item("task", (number,), 1 << number)
        if kind == "option":
            return Item("option", (number,), 1 << number, fork=self.fork_of[number])
        if kind == "fork":
            options = tuple(self.forks[number])
            return Item("fork", options, mask_of(options), fork=number)
        if kind == "choice":
            outcome = self.requirements.outcomes[number]
            total = sum(branch.probability for branch in outcome.branches.values())
            inside = {name: self.of(("branch", outcome.name, name)) for name in outcome.branches}
            branches = tuple(
                Branch(
                    branch.probability / total,
                    branch.ends or _all_end(inside[name]),
                    inside[name],
                    name,
                )
                for name, branch in outcome.branches.items()
            )
            return replace(composed("choice", branches, self.number[outcome.after]), outcome=outcome.name)
        loop = self.requirements.loops[number]
        body, redo = (self.of((part, loop.name, "")) for part in ("body", "redo"))
        parts = (Branch(1.0, False, body), Branch(loop.again, False, redo))
        return replace(composed("loop", parts), after=self.number[loop.after])

    def torn_loops(self) -> Iterator[str]:
        """Loops of which a part is in a branch, although the outcome is decided outside of the loop."""
        branch = {
            name: (outcome.name, way)
            for outcome in self.requirements.outcomes
            for way, one in outcome.branches.items()
            for name in one.activities
        }
        after = {outcome.name: outcome.after for outcome in self.requirements.outcomes}
        for loop in self.requirements.loops:
            inside = {branch.get(name, ("", "")) for name in loop.activities}
            torn = [at for at in inside if at[0] and after[at[0]] not in loop.activities]
            if torn and len(inside) > 1:
                outcome, way = torn[0]
                yield (
                    f"the loop {loop.name!r} is partly in branch {way!r} of {outcome!r} and partly outside: "
                    "a loop is inside one branch, or around the whole outcome"
                )
            round_ = {*loop.activities, *loop.redo}
            for one in self.requirements.outcomes:
                own = {name for way in one.branches.values() for name in way.activities}
                around = branch.get(one.after)
                if one.after in round_ and own - round_ and around is not None and after[around[0]] in round_:
                    yield (
                        f"{one.name!r} is decided in branch {around[1]!r} of {around[0]!r}, inside the loop "
                        f"{loop.name!r}, but {min(own - round_)!r} comes after the loop, whatever that branch was"
                    )

    def torn_pairs(self) -> Iterator[str]:
        """Activities that belong together, although a case may need one of them without the other."""
        rules = self.requirements.rules
        for rule in ("coexist", "response", "chain"):
            for names in getattr(rules, rule):
                here, there = (self._conditions(name, loops=rule == "chain") for name in names)
                if rule == "response":
                    # Where all other branches end the case, whoever goes on comes to the second.
                    torn = {one for one in there - here if not self._is_only_way(one)}
                else:
                    torn = here ^ there
                if torn and not all(self._may_leave_out(name) for name in names[: 2 if rule == "coexist" else 1]):
                    yield (
                        f"no design can promise that {WORDS[rule].format(*map(repr, names))}, because a case may need "
                        f"one of them without the other: list both in one branch of an outcome"
                        + (", or in one loop" if rule == "chain" else "")
                    )
        flow, options = (
            CaseFlow(self.requirements),
            {name for one in self.requirements.branches for name in one.options},
        )
        for names in (*rules.excludes, *rules.not_coexist):
            # Options that exclude each other become one choice.
            apart = flow.never_both(*names) or options >= {*names} or any(map(self._may_leave_out, names))
            if not apart:
                yield (
                    f"no design can promise that {WORDS['excludes'].format(*map(repr, names))}, because a case may "
                    "need both: list them in different branches of one outcome"
                )

    def _conditions(self, name: str, *, loops: bool) -> set[Container]:
        """What must be so that a case needs an activity: the branches and repetitions around it, or a choice alone."""
        found = {
            container
            for container, content in self.containers.content.items()
            if name in content and container != WHOLE and (loops or container[0] != "body")
        }
        for branch in self.requirements.branches:
            if branch.options.get(name, 1.0) < 1 - 1e-9:
                found.add(("branch", branch.name, name))
        return found

    def _is_only_way(self, container: Container) -> bool:
        """Whether every other branch of an outcome ends the case."""
        kind, own, way = container
        outcome = next((one for one in self.requirements.outcomes if kind == "branch" and one.name == own), None)
        if outcome is None:
            return False
        others = [(name, branch) for name, branch in outcome.branches.items() if name != way]
        return all(branch.ends or _all_end(self.of(("branch", own, name))) for name, branch in others)

    def _may_leave_out(self, name: str) -> bool:
        return self.requirements.activities[name].optional and name not in self.requirements.rules.must_include

    def _chained(self, items: list[Item]) -> Iterator[Item]:
        # Activities that follow each other directly are one item.
        tasks = {item.activities[0]: item for item in items if item.kind == "task"}
        pairs = [(self.number[a], self.number[b]) for a, b in self.requirements.rules.chain]
        follows = {a: b for a, b in reversed(pairs) if a in tasks and b in tasks and a != b}
        first = {b: a for a, b in follows.items()}
        follows = {a: b for b, a in first.items()}
        for item in items:
            start = item.activities[0] if item.activities else -1
            if item.kind != "task" or (start not in follows and start not in first):
                yield item
            elif start not in first:
                chain = [start]
                while (after := follows.get(chain[-1])) is not None and after not in chain:
                    chain.append(after)
                yield Item("chain", tuple(chain), mask_of(chain))


def composed(kind: Kind, branches: tuple[Branch, ...], after: int = -1) -> Item:
    mask = 0
    for branch in branches:
        for item in branch.items:
            mask |= item.mask
    return Item(kind, bits_of(mask), mask, branches, after)


def mask_of(activities: Iterable[int]) -> int:
    return sum(1 << activity for activity in activities)


def bits_of(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
