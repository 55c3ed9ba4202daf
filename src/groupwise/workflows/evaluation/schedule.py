"""One run of a task graph on machines: which machine does which task when, at mean durations.

`list_schedule` plans nothing ahead: whenever a task is ready, it goes to the machine that can start it first. `heft`
plans: tasks in order of their remaining path, each on the machine and in the gap where it ends first. Handing data
from one machine to another takes time (`TaskGraph.after`); within one machine it takes none.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import groupwise.workflows.blocks as blocks
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Activity, Design, DesignError, Parallel, PartialOrder, Skip, activities
from groupwise.workflows.evaluation.array_format import ROW
from groupwise.workflows.evaluation.encoding import catalogue_of, encode
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.partial_orders import find_ring, in_order
from groupwise.workflows.requirements import Requirements


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks, how long each takes on every machine, and which tasks wait for which.

    `durations[task][machine]` is in seconds (inf: that machine cannot do it). `after` maps (earlier, later) to the
    seconds needed to hand data from one machine to another. Tasks in `alone` need no machine and never delay each
    other; a schedule gives them machine −1.
    """

    names: tuple[str, ...]
    durations: tuple[tuple[float, ...], ...]
    after: Mapping[tuple[int, int], float]
    alone: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.names)
        ring = find_ring(count, frozenset(self.after))
        if ring:
            raise ConfigError(f"tasks wait for each other in a cycle: {' → '.join(self.names[t] for t in ring)}")
        for task, row in enumerate(self.durations):
            if task not in self.alone and not any(math.isfinite(time) for time in row):
                raise ConfigError(f"no machine can do {self.names[task]!r}")


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """When and on which machine a task is done."""

    task: str
    machine: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """All tasks, in the order in which they start."""

    placed: tuple[PlacedTask, ...]

    @property
    def makespan(self) -> float:
        return max((one.end for one in self.placed), default=0.0)


def upward_ranks(graph: TaskGraph) -> list[float]:
    """HEFT's priorities: the mean time from the start of each task to the end of the whole graph.

    rank(t) = mean duration of t + max over its followers f of (transfer to f + rank(f))
    """
    ranks = [0.0] * len(graph.names)
    followers: list[list[tuple[int, float]]] = [[] for _ in graph.names]
    for (earlier, later), hand in graph.after.items():
        followers[earlier].append((later, hand))
    for task in reversed(in_order(len(graph.names), frozenset(graph.after))):
        times = [time for time in graph.durations[task] if math.isfinite(time)]
        mean = graph.alone[task] if task in graph.alone else sum(times) / len(times)
        ranks[task] = mean + max((hand + ranks[later] for later, hand in followers[task]), default=0.0)
    return ranks


def heft(graph: TaskGraph) -> Schedule:
    """Heterogeneous earliest finish time: Topcuoglu, Hariri and Wu, IEEE TPDS 13 (2002), with insertion into gaps."""
    ranks = upward_ranks(graph)
    # Tasks of zero duration can have the rank of their followers: the topological order breaks such ties.
    place = {task: number for number, task in enumerate(in_order(len(graph.names), frozenset(graph.after)))}
    before = _before(graph)
    busy: list[list[tuple[float, float]]] = [[] for _ in graph.durations[0]] if graph.durations else []
    done: dict[int, PlacedTask] = {}
    for task in sorted(range(len(graph.names)), key=lambda t: (-ranks[t], place[t])):
        best = min(_options(graph, before[task], task, busy, done), key=lambda one: one.end)
        if best.machine >= 0:
            busy[best.machine].append((best.start, best.end))
            busy[best.machine].sort()
        done[task] = best
    return _schedule(done)


def _before(graph: TaskGraph) -> list[list[tuple[int, float]]]:
    found: list[list[tuple[int, float]]] = [[] for _ in graph.names]
    for (earlier, later), hand in graph.after.items():
        found[later].append((earlier, hand))
    return found


def _options(
    graph: TaskGraph,
    before: list[tuple[int, float]],
    task: int,
    busy: list[list[tuple[float, float]]],
    done: Mapping[int, PlacedTask],
) -> list[PlacedTask]:
    """The task at its earliest on each machine that can do it."""
    if task in graph.alone:
        start = max((done[earlier].end for earlier, _ in before), default=0.0)
        return [PlacedTask(graph.names[task], -1, start, start + graph.alone[task])]
    found = []
    for machine, time in enumerate(graph.durations[task]):
        if math.isfinite(time):
            ready = _ready(before, done, machine)
            start = _first_gap(busy[machine], ready, time)
            found.append(PlacedTask(graph.names[task], machine, start, start + time))
    return found


def _ready(before: list[tuple[int, float]], done: Mapping[int, PlacedTask], machine: int) -> float:
    ends = (done[earlier].end + (hand if done[earlier].machine != machine else 0.0) for earlier, hand in before)
    return max(ends, default=0.0)


def _first_gap(busy: Sequence[tuple[float, float]], ready: float, time: float) -> float:
    for start, end in busy:
        if ready + time <= start:
            return ready
        ready = max(ready, end)
    return ready


def list_schedule(graph: TaskGraph) -> Schedule:
    """The task that is ready first (ties: listed first) gets the machine that can start it first."""
    before = _before(graph)
    left = [len(earlier) for earlier in before]
    free = [0.0] * (len(graph.durations[0]) if graph.durations else 0)
    waiting = [(0.0, task) for task in range(len(graph.names)) if not left[task]]
    done: dict[int, PlacedTask] = {}
    followers: list[list[int]] = [[] for _ in graph.names]
    for earlier, later in sorted(graph.after):
        followers[earlier].append(later)
    hands = any(graph.after.values())
    while waiting:
        begin, task = heapq.heappop(waiting)
        if task in graph.alone:
            done[task] = _options(graph, before[task], task, [], done)[0]
        else:
            able = [m for m, time in enumerate(graph.durations[task]) if time < math.inf]
            # Without hand-overs a task is ready at the same time for every machine.
            starts = {m: max(_ready(before[task], done, m) if hands else begin, free[m]) for m in able}
            machine = min(able, key=lambda m: (starts[m], m))
            start = starts[machine]
            done[task] = PlacedTask(graph.names[task], machine, start, start + graph.durations[task][machine])
            free[machine] = done[task].end
        for later in followers[task]:
            left[later] -= 1
            if not left[later]:
                heapq.heappush(waiting, (max(done[earlier].end for earlier, _ in before[later]), later))
    return _schedule(done)


def _schedule(done: Mapping[int, PlacedTask]) -> Schedule:
    return Schedule(tuple(sorted(done.values(), key=lambda one: (one.start, one.end, one.task))))


def is_one_run(design: Design, requirements: Requirements) -> bool:
    """Whether a design is one run of a plain task graph: no choices, loops, failures, knock-outs or calendars."""
    demand = requirements.demand
    if demand.arrivals_per_second is not None or demand.runs != 1:
        return False
    certain = Activity | Skip | blocks.Sequence | Parallel | PartialOrder
    if not all(isinstance(block, certain) for block in blocks.walk(design.root)):
        return False
    known = requirements.activities
    asked = [known[activity.name] for activity in activities(design.root) if activity.name in known]
    sure = all(one.failure == 0 and one.knock_out == 0 for one in asked)
    handlings = [activity.handling for activity in activities(design.root)]
    plain = all(h.timeout is None and h.scheduling == "fifo" and h.delay == 0 for h in handlings)
    return sure and plain and not any(pool.calendar for pool in requirements.pools.values())


def task_graph_of(
    design: Design, requirements: Requirements, any_pool: bool = False
) -> tuple[TaskGraph, tuple[str, ...]]:
    """One run of a design as a task graph, and the pool that each machine belongs to.

    Each server of a pool is a machine. A task goes to the pool that the design assigns it to; with `any_pool`, `heft`
    may choose any pool that is allowed to do it.
    """
    catalogue, servers = catalogue_of(requirements), encode(design, requirements).servers
    machines = tuple(name for name, count in zip(catalogue.pool_names, servers, strict=True) for _ in range(count))
    tasks = list(activities(design.root))
    number = {task.name: index for index, task in enumerate(tasks)}
    durations, alone = [], {}
    for index, task in enumerate(tasks):
        row = catalogue.rows[catalogue.row(task)]
        asked = requirements.activities[task.name]
        if row[1] < 0:  # no pool
            alone[index] = float(row[ROW.index("mean")])
        given = {catalogue.pool_names[int(row[1])]} if row[1] >= 0 else set()
        may = set(asked.pools) if any_pool and task.handling.pool is None else given
        speeds = [requirements.pools[pool].speed if pool in may else 0.0 for pool in machines]
        durations.append(tuple(asked.duration.mean / speed if speed else math.inf for speed in speeds))
    after: dict[tuple[int, int], float] = {}
    _follow(design.root, frozenset(), number, after)
    return TaskGraph(tuple(task.name for task in tasks), tuple(durations), after, alone), machines


def _follow(
    block: blocks.Block, before: frozenset[int], number: Mapping[str, int], after: dict[tuple[int, int], float]
) -> frozenset[int]:
    """Record what each activity waits for; returns the activities that the next block has to wait for."""
    match block:
        case Activity(name):
            after.update({(earlier, number[name]): 0.0 for earlier in before})
            return frozenset({number[name]})
        case Skip():
            return before
        case blocks.Sequence(parts):
            for part in parts:
                before = _follow(part, before, number, after)
            return before
        case Parallel(parts):
            return frozenset().union(*(_follow(part, before, number, after) for part in parts))
        case PartialOrder(parts, edges):
            ends: dict[int, frozenset[int]] = {}
            sources: list[list[int]] = [[] for _ in parts]
            for a, b in edges:
                sources[b].append(a)
            for place in in_order(len(parts), edges):
                earlier = [ends[a] for a in sources[place]]
                ends[place] = _follow(parts[place], frozenset().union(*earlier) if earlier else before, number, after)
            return frozenset().union(*ends.values())
        case _:
            raise DesignError(f"a {type(block).__name__.lower()} cannot be scheduled ahead; simulate it")


def schedule_design(design: Design, requirements: Requirements) -> tuple[Schedule, Performance]:
    """One run of a design at mean durations: its schedule and its performance."""
    graph, machines = task_graph_of(design, requirements)
    found = list_schedule(graph)
    return found, _performance(design, requirements, graph, found, machines)


def _performance(
    design: Design, requirements: Requirements, graph: TaskGraph, found: Schedule, machines: tuple[str, ...]
) -> Performance:
    catalogue, span = catalogue_of(requirements), found.makespan
    asked = {one.task: requirements.activities[one.task] for one in found.placed}
    staffed = {name: machines.count(name) for name in catalogue.pool_names}
    busy = dict.fromkeys(catalogue.pool_names, 0.0)
    for one in found.placed:
        if one.machine >= 0:
            busy[machines[one.machine]] += one.end - one.start
    wages = sum(staffed[name] * pool.wage for name, pool in requirements.pools.items())
    per_second = 1 / span if span > 0 else 0.0
    valid = is_one_run(design, requirements)
    most = max((staffed[name] and busy[name] / staffed[name] for name in staffed), default=0.0)
    return Performance(
        "schedule",
        span,
        (span, span),
        _waiting(graph, found),
        per_second if span > 0 else math.inf,
        wages * span + sum(activity.cost for activity in asked.values()),
        {name: busy[name] / staffed[name] * per_second for name in staffed},
        sum(asked[one.task].cpu * (one.end - one.start) for one in found.placed) * per_second,
        sum(asked[one.task].memory * (one.end - one.start) for one in found.placed) * per_second,
        1.0,
        1 / most if most > 0 else math.inf,
        _peak(found, {name: activity.cpu for name, activity in asked.items()}),
        _peak(found, {name: activity.memory for name, activity in asked.items()}),
        valid=valid,
        reason="" if valid else "a schedule needs a single run, no chance events, no calendars and FIFO queues",
    )


def _waiting(graph: TaskGraph, found: Schedule) -> float:
    end = {one.task: one.end for one in found.placed}
    start = {one.task: one.start for one in found.placed}
    ready = dict.fromkeys(graph.names, 0.0)
    for earlier, later in graph.after:
        ready[graph.names[later]] = max(ready[graph.names[later]], end[graph.names[earlier]])
    return sum(start[name] - ready[name] for name in graph.names)


def _peak(found: Schedule, demand: Mapping[str, float]) -> float:
    # At equal times ends (0) sort before starts (1), so back-to-back tasks do not add up.
    begins_ends = [((one.start, 1, one.task), (one.end, 0, one.task)) for one in found.placed]
    steps = sorted(step for both in begins_ends for step in both)
    now = most = 0.0
    for _, begins, task in steps:
        now += demand[task] if begins else -demand[task]
        most = max(most, now)
    return most
