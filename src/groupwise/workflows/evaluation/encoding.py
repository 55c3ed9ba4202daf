"""A design and its requirements as flat arrays, which both compiled tiers read.

What depends on the requirements alone is computed once: a `Catalogue` keeps one row of numbers for each activity and
each way it was ever handled. A design is then its tree in post-order (children before parents, the root last), with
rows in place of activities; where choices of one outcome were unfolded, an activity has several nodes with one row.
Encoding is the hot path of a search over designs, hence the caches.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format)
from __future__ import annotations

import math
import weakref
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

import groupwise.workflows.blocks as blocks
from groupwise.workflows.blocks import (
    PLAIN,
    Activity,
    Choice,
    Finish,
    Instances,
    Loop,
    Parallel,
    PartialOrder,
    Sequence,
    Skip,
)
from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.durations import moments
from groupwise.workflows.evaluation.staffing import Roster, Worker, open_time, shifts_of
from groupwise.workflows.evaluation.unfolding import unfolded
from groupwise.workflows.partial_orders import in_order
from groupwise.workflows.requirements import Requirements

Bodies: TypeAlias = frozenset[frozenset[str]]
NO_BODIES: Bodies = frozenset()


@dataclass(frozen=True)
class Encoded:
    """A design as arrays.

    `nodes` has shape [blocks, 4]: kind, detail, first, count. A node's children are `links[first : first + count]`;
    `weights` at the same places are the probabilities of a choice, of another round of a loop, or of a cancellation.
    The detail is the row of an activity, how often a loop may repeat (0: without a limit), or a place in `links`: for
    instances least, most and enough; for an order the number of edges and the two ends of each, sorted by the later
    end. The weights of a limited loop are that of a loop without a limit that has as many rounds on average, and its
    own.

    `paid` are the servers that have to be paid: a pool that nothing uses may do without any. If it matters who does
    what, `workers` are set, and `able` says which of them may do each activity, by number.
    """

    catalogue: Catalogue
    nodes: Ints
    links: Ints
    weights: Floats
    rows: Floats
    servers: Ints
    paid: Ints
    workers: tuple[Worker, ...] = ()
    able: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.nodes)

    @cached_property
    def staffed(self) -> Floats:
        """The time at work of each pool's servers, in servers: working hours count as a share of the week."""
        if not self.workers:
            return np.asarray(self.servers * self.catalogue.open_shares)
        found = np.zeros(len(self.servers))
        for worker in self.workers:
            found[list(worker.pools)] += worker.hours
        return found

    def staffed_until(self, times: Floats) -> Floats:
        """Seconds that each pool's servers are at work from the beginning of a week until some times, all added up."""
        if not self.workers:
            open_ = [open_time(shifts, times).sum() for shifts in self.catalogue.shifts]
            return np.asarray(self.servers * np.array(open_))
        found = np.zeros(len(self.servers))
        for worker in self.workers:
            found[list(worker.pools)] += open_time(worker.shifts, times).sum()
        return found

    @property
    def wages(self) -> float:
        """Money per second for everybody who is at work; people in several pools are paid by the first."""
        if self.workers:
            return sum(worker.wage * worker.hours for worker in self.workers)
        return float(self.paid @ self.catalogue.staffed_wages)

    def disciplines(self) -> Ints:
        """The discipline of each pool: that of its first activity that asks for another than fifo."""
        found = np.zeros(len(self.servers), np.int64)
        for node in self.nodes:
            if node[0] == ACTIVITY:
                pool, wanted = int(self.rows[node[1], 1]), int(self.rows[node[1], ROW.index("scheduling")])
                if pool >= 0 and wanted and not found[pool]:
                    found[pool] = wanted
        return found


class Catalogue:
    """What the tiers need from the requirements: pools as arrays, and rows of activities, added as they come up.

    `open_shares` is the share of the week that each pool works, `staffed_wages` its wages times that share.
    """

    def __init__(self, requirements: Requirements) -> None:
        # Keep no reference to the requirements themselves: `catalogue_of` forgets this when they are gone.
        self.name, self.activities, self.pools = requirements.name, requirements.activities, requirements.pools
        self.arrivals, self.runs = requirements.demand.arrivals_per_second, requirements.demand.runs
        self.numbers = {name: number for number, name in enumerate(self.activities)}
        self.pool_names = tuple(self.pools)
        self.pool_numbers = {name: number for number, name in enumerate(self.pools)}
        pools = list(self.pools.values())
        self.least = np.array([pool.least for pool in pools], np.int64)
        self.most = np.array([pool.most for pool in pools], np.int64)
        self.wages = np.array([pool.wage for pool in pools], np.float64)
        self.shifts = tuple(shifts_of(pool.calendar) for pool in pools)
        own = any(person.calendar for person in requirements.people.values())
        self.with_shifts = own or any(map(len, self.shifts))
        open_ = [float((s[:, 1] - s[:, 0]).sum()) / WEEK if len(s) else 1.0 for s in self.shifts]
        self.open_shares = np.array(open_)
        self.staffed_wages = self.wages * self.open_shares
        self.limits = {frozenset(loop.activities): loop.most for loop in requirements.loops}
        self.roster = Roster(requirements)
        self.only_fifo = True
        self.rows: Floats = np.zeros((64, len(ROW)))
        self.plain: dict[str, int] = {}
        self.handled: dict[Activity, int] = {}
        # Rows by the id of an activity; the activity is kept alive, so that its id is not reused.
        self.seen: dict[int, tuple[Activity, int]] = {}
        self.staffed: dict[tuple[tuple[str, int], ...], Ints] = {}

    def row(self, activity: Activity) -> int:
        """The row of an activity as it is handled in this design."""
        if activity.handling is PLAIN:
            found = self.plain.get(activity.name)
            return self._new_row(activity, self.plain, activity.name) if found is None else found
        # An Activity's hash walks all its fields; its id is much cheaper to look up.
        known = self.seen.get(id(activity))
        if known is not None:
            return known[1]
        row = self.handled.get(activity)
        if row is None:
            row = self._new_row(activity, self.handled, activity)
        if len(self.seen) > 10_000:
            self.seen.clear()
        self.seen[id(activity)] = (activity, row)
        return row

    def _new_row(self, activity: Activity, known: dict[Any, int], key: Any) -> int:
        values = self._values(activity)
        self.only_fifo = self.only_fifo and activity.handling.scheduling == "fifo"
        number = len(self.plain) + len(self.handled)
        if number == len(self.rows):
            # Designs encoded earlier keep the smaller array, which has all of their rows.
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        self.rows[number] = values
        known[key] = number
        return number

    def _values(self, activity: Activity) -> list[float]:
        name, handling = activity.name, activity.handling
        asked = self.activities.get(name)
        if asked is None:
            known = ", ".join(list(self.activities)[:8])
            raise blocks.DesignError(f"{name!r} is not an activity of {self.name!r}, which has {known}")
        pool = handling.pool if handling.pool is not None else next(iter(asked.pools), None)
        if pool is not None and pool not in asked.pools:
            may = f"only {', '.join(asked.pools)} may do it" if asked.pools else "it does not need a pool"
            raise blocks.DesignError(f"{name!r} is assigned to the pool {pool!r}, but {may}")
        speed = 1.0 if pool is None else self.pools[pool].speed
        timeout = math.inf if handling.timeout is None else handling.timeout
        mean, scv, late = moments(asked.duration, speed, timeout)
        duration, retry = asked.duration, handling.retry
        return [
            self.numbers[name],
            -1 if pool is None else self.pool_numbers[pool],
            mean,
            scv,
            1 - (1 - asked.failure) * (1 - late),
            retry.most,
            retry.pause,
            retry.growth,
            handling.delay,
            asked.knock_out,
            asked.cost,
            asked.cpu,
            asked.memory,
            DISTRIBUTIONS.index(duration.kind if duration.scv > 0 else "fixed"),
            duration.mean / speed,
            duration.mean / speed * math.sqrt(duration.scv),
            asked.failure,
            timeout,
            DISCIPLINES.index(handling.scheduling),
            handling.priority,
            math.inf if handling.due is None else handling.due,
        ]

    def servers(self, staff: tuple[tuple[str, int], ...]) -> Ints:
        """How many servers each pool has: as the design says, otherwise the fewest allowed, but at least 1."""
        found = self.staffed.get(staff)
        if found is not None:
            return found
        servers = np.maximum(self.least, 1)
        for pool, count in staff:
            if pool not in self.pool_numbers:
                known = ", ".join(self.pool_names) or "none"
                raise blocks.DesignError(f"the design staffs {pool!r}, but the pools of {self.name!r} are {known}")
            number = self.pool_numbers[pool]
            least, most = int(self.least[number]), int(self.most[number])
            if not least <= count <= most:
                raise blocks.DesignError(f"pool {pool!r} has {count} servers in the design; allowed: {least} to {most}")
            servers[number] = count
        if len(self.staffed) > 1_000:
            self.staffed.clear()
        self.staffed[staff] = servers
        return servers

    def paid(self, staff: tuple[tuple[str, int], ...], servers: Ints, nodes: Ints) -> Ints:
        """The servers without those of pools that may be empty, that nothing uses and that the design does not name."""
        if (self.least > 0).all():
            return servers
        used = self.rows[nodes[nodes[:, 0] == ACTIVITY, 1], 1].astype(np.int64)
        needed = self.least > 0
        needed[used[used >= 0]] = True
        needed[[self.pool_numbers[pool] for pool, _ in staff]] = True
        return np.where(needed, servers, 0)

    def able(self, workers: tuple[Worker, ...], nodes: Ints) -> dict[int, frozenset[int]]:
        """Which workers may do each activity; a design with one that nobody can do is refused."""
        rows = self.rows[nodes[nodes[:, 0] == ACTIVITY, 1], :2].astype(np.int64).tolist()
        found = self.roster.able(workers, {activity: pool for activity, pool in rows if pool >= 0})
        for activity, pool in rows:
            if pool >= 0 and not found[activity]:
                needed = " and ".join(map(repr, sorted(self.roster.skills[activity])))
                bound = [self.roster.names[other] for other in self.roster.bound[activity]]
                also = f", and may also do {', '.join(map(repr, bound))}" if bound else ""
                said = f"nobody at work in {self.pool_names[pool]!r} has the skills for {self.roster.names[activity]!r}"
                said += f": {needed}" if needed else ""
                raise blocks.DesignError(said + also, hint="Add servers, or give somebody the skills.")
        return found

    def rounds(self, loop: Loop, whole: Bodies = NO_BODIES) -> tuple[int, float]:
        """How often a loop may repeat, and the chance of repeating of a loop without limit that does so as often.

        `whole` are the activities of the loops before they were unfolded, if they were.
        """
        if not self.limits:
            return 0, loop.again
        body = frozenset(one.name for one in blocks.activities(loop.body))
        if body not in whole:
            # An unfolded loop lacks what other results of an outcome would do: the smallest one around it is meant.
            body = min((names for names in whole if body < names), key=len, default=body)
        most = self.limits.get(body)
        if most is None:
            return 0, loop.again
        # 1 + again + again² + … + again^most rounds on average, where a loop without limit has 1 / (1 − again).
        return most, 1 - (1 - loop.again) / (1 - loop.again ** (most + 1))


# By id, because requirements are not hashable; `weakref.finalize` removes an entry before its id can be reused.
_catalogues: dict[int, Catalogue] = {}


def catalogue_of(requirements: Requirements) -> Catalogue:
    """The catalogue of these requirements, made once and kept as long as they live."""
    key = id(requirements)
    found = _catalogues.get(key)
    if found is None:
        found = _catalogues[key] = Catalogue(requirements)
        weakref.finalize(requirements, _catalogues.pop, key, None)
    return found


def encode(design: blocks.Design, requirements: Requirements) -> Encoded:
    """A design as arrays."""
    catalogue = catalogue_of(requirements)
    nodes: list[int] = []
    links: list[int] = []
    weights: list[float] = []
    try:
        _add(design.root, catalogue, nodes, links, weights)
    except _Folded:
        # Found on the way: looking for outcomes first would cost every design as much as encoding it.
        nodes, links, weights = [], [], []
        loops = [one for one in blocks.walk(design.root) if isinstance(one, Loop)]
        whole = frozenset(frozenset(one.name for one in blocks.activities(loop.body)) for loop in loops)
        _add(unfolded(design.root), catalogue, nodes, links, weights, whole)
    tree = np.frombuffer(array("q", nodes), np.int64).reshape(-1, 4)
    servers = catalogue.servers(design.servers)
    workers = catalogue.roster.workers(servers) if catalogue.roster.by_name else ()
    return Encoded(
        catalogue,
        tree,
        np.frombuffer(array("q", links or [0]), np.int64),
        np.frombuffer(array("d", weights or [0.0])),
        catalogue.rows,
        servers,
        catalogue.paid(design.servers, servers, tree),
        workers,
        catalogue.able(workers, tree) if workers else {},
    )


class _Folded(Exception):
    """A choice of an outcome, which others may share."""


def _add(
    block: Any,
    catalogue: Catalogue,
    nodes: list[int],
    links: list[int],
    weights: list[float],
    whole: Bodies = NO_BODIES,
) -> int:
    """Append the block after everything inside it; returns its number."""
    kind = type(block)
    if kind is Activity or kind is Skip or kind is Finish:
        return _add_parts((block,), catalogue, nodes, links, weights, whole)[0]
    if kind is Sequence or kind is Parallel:
        inside = _add_parts(block.parts, catalogue, nodes, links, weights, whole)
        nodes += (SEQUENCE if kind is Sequence else PARALLEL, 0, len(links), len(inside))
        links += inside
        weights += (0.0,) * len(inside)
    elif kind is Choice:
        if block.outcome:
            raise _Folded
        inside = _add_parts(block.parts, catalogue, nodes, links, weights, whole)
        nodes += (CHOICE, 0, len(links), len(inside))
        links += inside
        weights += block.probabilities
    elif kind is PartialOrder:
        _add_order(block, catalogue, nodes, links, weights, whole)
    elif kind is Instances:
        links += (_add(block.body, catalogue, nodes, links, weights, whole), block.least, block.most, block.enough)
        nodes += (INSTANCES, len(links) - 3, len(links) - 4, 1)
        weights += (0.0, 0.0, 0.0, 0.0)
    else:
        loop = kind is Loop
        links += _add_parts(
            (block.body, block.redo if loop else block.handler), catalogue, nodes, links, weights, whole
        )
        most, alike = catalogue.rounds(block, whole) if loop else (0, block.chance)
        nodes += (LOOP if loop else CANCELLABLE, most, len(links) - 2, 2)
        weights += (alike, block.again if loop else 0.0)
    return len(nodes) // 4 - 1


def _add_parts(
    parts: tuple[Any, ...],
    catalogue: Catalogue,
    nodes: list[int],
    links: list[int],
    weights: list[float],
    whole: Bodies,
) -> list[int]:
    """The same for each part; most are activities, which are added inline, because this is the hottest loop."""
    plain, inside = catalogue.plain, []
    for part in parts:
        kind = type(part)
        if kind is Activity:
            row = plain.get(part.name) if part.handling is PLAIN else None
            nodes += (ACTIVITY, catalogue.row(part) if row is None else row, 0, 0)
        elif kind is Skip or kind is Finish:
            nodes += (SKIP if kind is Skip else CASE_END, 0, 0, 0)
        else:
            _add(part, catalogue, nodes, links, weights, whole)
        inside.append(len(nodes) // 4 - 1)
    return inside


def _add_order(
    block: PartialOrder,
    catalogue: Catalogue,
    nodes: list[int],
    links: list[int],
    weights: list[float],
    whole: Bodies,
) -> None:
    """The parts sorted so that every edge leads to a later one, then the number of edges and their ends."""
    parts, edges = block.parts, block.edges
    if any(a > b for a, b in edges):
        order = in_order(len(parts), edges)
        place = {part: new for new, part in enumerate(order)}
        parts, edges = tuple(parts[part] for part in order), frozenset((place[a], place[b]) for a, b in edges)
    inside = _add_parts(parts, catalogue, nodes, links, weights, whole)
    nodes += (ORDER, len(links) + len(inside), len(links), len(inside))
    links += inside
    links.append(len(edges))
    # Sorted by the later end: the compiled tiers walk along the edges part by part.
    for _, (earlier, later) in sorted((edge[1], edge) for edge in edges):
        links += (earlier, later)
    weights += (0.0,) * (len(inside) + 1 + 2 * len(edges))
