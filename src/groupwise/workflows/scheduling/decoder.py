"""HEFT's way of placing tasks, compiled, for any priorities: the highest of the ready tasks goes where it ends first.

With the upward ranks as priorities this is `evaluation.schedule.heft` to the last bit; with others it still keeps every
order, because only tasks whose predecessors are placed are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import Floats, Ints
from groupwise.workflows.evaluation.schedule import PlacedTask, Schedule, TaskGraph, upward_ranks
from groupwise.workflows.partial_orders import in_order


@dataclass(frozen=True, eq=False)
class Problem:
    """Work as arrays: what the compiled decoder reads.

    `alone` is what a task takes that needs nobody, and NaN of the others. The predecessors of task t are
    `before[first_before[t]:first_before[t + 1]]`, with what each hands on in `hands`; its followers likewise.
    """

    work: TaskGraph
    ranks: Floats
    place: Ints
    durations: Floats
    alone: Floats
    first_before: Ints
    before: Ints
    hands: Floats
    first_after: Ints
    after: Ints

    @property
    def size(self) -> int:
        return len(self.ranks)


def problem_of(work: TaskGraph) -> Problem:
    count = len(work.names)
    place = np.empty(count, np.int64)
    place[in_order(count, frozenset(work.after))] = np.arange(count)
    alone = np.full(count, np.nan)
    for task, time in work.alone.items():
        alone[task] = time
    edges = sorted(work.after, key=lambda edge: (edge[1], edge[0]))
    first_before, before = _rows(count, [(later, earlier) for earlier, later in edges])
    first_after, after = _rows(count, sorted(work.after))
    return Problem(
        work,
        np.array(upward_ranks(work)),
        place,
        np.array(work.durations, np.float64).reshape(count, -1 if count else 0),
        alone,
        first_before,
        before,
        np.array([work.after[edge] for edge in edges], np.float64),
        first_after,
        after,
    )


def _rows(count: int, pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Sorted pairs (row, value) as where each row begins and all values."""
    lengths = np.bincount(np.array([row for row, _ in pairs], np.int64), minlength=count)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.array([v for _, v in pairs], np.int64)


def makespans(problem: Problem, priorities: Floats) -> Floats:
    """How long each of the schedules takes that priorities [B, tasks] stand for."""
    return _makespans(np.ascontiguousarray(priorities, np.float64), *_arrays(problem))


def schedule(problem: Problem, priorities: Floats) -> Schedule:
    """The schedule that priorities [tasks] stand for."""
    machine, start, end = _placement(np.ascontiguousarray(priorities, np.float64), *_arrays(problem))
    placed = [
        PlacedTask(name, int(machine[task]), float(start[task]), float(end[task]))
        for task, name in enumerate(problem.work.names)
    ]
    return Schedule(tuple(sorted(placed, key=lambda one: (one.start, one.end, one.task))))


def _arrays(problem: Problem) -> tuple[Ints, Floats, Floats, Ints, Ints, Floats, Ints, Ints]:
    return (
        problem.place, problem.durations, problem.alone,
        problem.first_before, problem.before, problem.hands, problem.first_after, problem.after,
    )  # fmt: skip


@compiled
def _makespans(
    priorities: Floats, place: Ints, durations: Floats, alone: Floats,
    first_before: Ints, before: Ints, hands: Floats, first_after: Ints, after: Ints,
) -> Floats:  # fmt: skip
    tries, count = priorities.shape
    machines = durations.shape[1]
    machine, start, end = np.empty(count, np.int64), np.empty(count), np.empty(count)
    begins, ends, taken = np.empty((machines, count)), np.empty((machines, count)), np.empty(machines, np.int64)
    ready, waits = np.empty(count, np.int64), np.empty(count, np.int64)
    found = np.zeros(tries)
    for one in range(tries):
        _place_all(
            priorities[one], place, durations, alone, first_before, before, hands, first_after, after,
            machine, start, end, begins, ends, taken, ready, waits,
        )  # fmt: skip
        for task in range(count):
            found[one] = max(found[one], end[task])
    return found


@compiled
def _placement(
    priorities: Floats, place: Ints, durations: Floats, alone: Floats,
    first_before: Ints, before: Ints, hands: Floats, first_after: Ints, after: Ints,
) -> tuple[Ints, Floats, Floats]:  # fmt: skip
    count, machines = durations.shape
    machine, start, end = np.empty(count, np.int64), np.empty(count), np.empty(count)
    begins, ends, taken = np.empty((machines, count)), np.empty((machines, count)), np.empty(machines, np.int64)
    ready, waits = np.empty(count, np.int64), np.empty(count, np.int64)
    _place_all(
        priorities, place, durations, alone, first_before, before, hands, first_after, after,
        machine, start, end, begins, ends, taken, ready, waits,
    )  # fmt: skip
    return machine, start, end


@inner
def _place_all(
    priority: Floats, place: Ints, durations: Floats, alone: Floats,
    first_before: Ints, before: Ints, hands: Floats, first_after: Ints, after: Ints,
    machine: Ints, start: Floats, end: Floats, begins: Floats, ends: Floats, taken: Ints, ready: Ints, waits: Ints,
) -> None:  # fmt: skip
    """Fill in `machine`, `start` and `end` of every task; the other arrays are scratch."""
    count, width = len(place), 0
    taken[:] = 0
    for task in range(count):
        waits[task] = first_before[task + 1] - first_before[task]
        if waits[task] == 0:
            ready[width] = task
            width += 1
    while width > 0:
        slot = _first_of_ready(ready, width, priority, place)
        task = ready[slot]
        width -= 1
        ready[slot] = ready[width]
        _place_one(task, durations, alone, first_before, before, hands, machine, start, end, begins, ends, taken)
        for at in range(first_after[task], first_after[task + 1]):
            later = after[at]
            waits[later] -= 1
            if waits[later] == 0:
                ready[width] = later
                width += 1


@inner
def _first_of_ready(ready: Ints, width: int, priority: Floats, place: Ints) -> int:
    slot = 0
    for other in range(1, width):
        mine, best = priority[ready[other]], priority[ready[slot]]
        if mine > best or (mine == best and place[ready[other]] < place[ready[slot]]):
            slot = other
    return slot


@inner
def _place_one(
    task: int, durations: Floats, alone: Floats, first_before: Ints, before: Ints, hands: Floats,
    machine: Ints, start: Floats, end: Floats, begins: Floats, ends: Floats, taken: Ints,
) -> None:  # fmt: skip
    """The task where it ends first, in the first gap that is long enough."""
    first, last = first_before[task], first_before[task + 1]
    if not np.isnan(alone[task]):
        begin = 0.0
        for at in range(first, last):
            begin = max(begin, end[before[at]])
        machine[task], start[task], end[task] = -1, begin, begin + alone[task]
        return
    best, best_begin, best_end = -1, 0.0, np.inf
    for here in range(durations.shape[1]):
        time = durations[task, here]
        if not np.isfinite(time):
            continue
        begin = 0.0
        for at in range(first, last):
            earlier = before[at]
            begin = max(begin, end[earlier] + (hands[at] if machine[earlier] != here else 0.0))
        for gap in range(taken[here]):
            if begin + time <= begins[here, gap]:
                break
            begin = max(begin, ends[here, gap])
        if best < 0 or begin + time < best_end:
            best, best_begin, best_end = here, begin, begin + time
    machine[task], start[task], end[task] = best, best_begin, best_end
    _occupy(begins[best], ends[best], taken[best], best_begin, best_end)
    taken[best] += 1


@inner
def _occupy(begins: Floats, ends: Floats, count: int, begin: float, finish: float) -> None:
    """Keep what a machine is busy with in order."""
    at = count
    while at > 0 and (begins[at - 1] > begin or (begins[at - 1] == begin and ends[at - 1] > finish)):
        begins[at], ends[at] = begins[at - 1], ends[at - 1]
        at -= 1
    begins[at], ends[at] = begin, finish
