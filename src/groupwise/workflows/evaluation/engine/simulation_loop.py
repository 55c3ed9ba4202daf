"""The event loop: what happens when a block begins, ends or is cancelled, and when a try, a case or a batch does.

An event moves the clock and puts what follows from it on the agenda; the agenda is emptied before the next event.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format and engine_fields)
from __future__ import annotations

import math
from typing import Any

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.engine.engine_fields import *  # noqa: F403
from groupwise.workflows.evaluation.engine.memory import (
    chance,
    close_case,
    drop_frame,
    expect,
    kept_case,
    mixed,
    new_frame,
    put,
    sift_down,
    uniform,
)
from groupwise.workflows.evaluation.engine.pools import dispatch, enqueue, leave, serve_others
from groupwise.workflows.evaluation.numba_compiler import compiled, inner


@inner
def begin(m: Ints, x: Floats, frame: int) -> None:
    """A block begins: an activity joins its queue, anything else starts one or more of its children."""
    node, case, now = m[frame + NODE], m[frame + CASE], x[CLOCK]
    kind, count, first = m[node + KIND], m[node + COUNT], node + CHILDREN
    if kind == ACTIVITY:
        delay = x[m[node + DETAIL] + DELAY]
        if delay > 0:
            expect(m, x, now + delay, ENQUEUE, frame)
        else:
            enqueue(m, x, frame)
    elif kind == SKIP:
        put(m, DONE, frame)
    elif kind == CASE_END:
        end_case(m, x, frame)
    elif kind == PARALLEL:
        begin_all(m, frame, count, False)
    elif kind == ORDER:
        begin_order(m, frame)
    elif kind == CHOICE:
        # Inversion over the probabilities; the last branch takes what rounding leaves over.
        u = chance(m, frame, 0)
        slot = 0
        while slot < count - 1 and u >= x[first + slot]:
            u -= x[first + slot]
            slot += 1
        put(m, BEGIN, new_frame(m, m[first + slot], frame, case, slot))
    elif kind == INSTANCES:
        extra = m[node + MOST] - m[node + LEAST]  # the number of copies is uniform on LEAST … MOST
        copies = m[node + LEAST] + (int(chance(m, frame, 0) * (extra + 1)) if extra > 0 else 0)
        begin_all(m, frame, copies, True)
    else:  # a sequence, a loop or a cancellable body starts with its first child
        if kind == CANCELLABLE and chance(m, frame, 0) < x[first]:
            m[frame + MARK] = 1
            expect(m, x, now + chance(m, frame, 1) * x[m[first] + NOMINAL_TIME], BREAK, frame)
        put(m, BEGIN, new_frame(m, m[first], frame, case, 0))


@inner
def end_case(m: Ints, x: Floats, frame: int) -> None:
    """The case is over, and ended well, however deep the block lies."""
    while m[frame + PARENT] >= 0:
        frame = m[frame + PARENT]
    while m[frame + CHILD] >= 0:
        break_off(m, x, m[frame + CHILD])
    put(m, DONE, frame)


@inner
def begin_all(m: Ints, frame: int, count: int, copies: bool) -> None:
    """Start all children at once: different blocks, or `copies` of one."""
    first = m[frame + NODE] + CHILDREN
    m[frame + LEFT] = count
    # The agenda is a stack: pushing from the last to the first makes the children begin in order.
    for slot in range(count - 1, -1, -1):
        put(m, BEGIN, new_frame(m, m[first if copies else first + slot], frame, m[frame + CASE], slot))


@inner
def begin_order(m: Ints, frame: int) -> None:
    """Give every part of a partial order a frame, with LEFT = its predecessors; parts without any begin."""
    node = m[frame + NODE]
    count, first = m[node + COUNT], node + CHILDREN
    edges = first + count
    m[frame + LEFT] = count
    for slot in range(count - 1, -1, -1):
        part = new_frame(m, m[first + slot], frame, m[frame + CASE], slot)
        for edge in range(m[edges]):
            if m[edges + 2 + 2 * edge] == slot:
                m[part + LEFT] += 1
        if m[part + LEFT] == 0:
            put(m, BEGIN, part)


@inner
def over(m: Ints, x: Floats, frame: int, lost: bool) -> None:
    """A block ended, well or (`lost`) with its case knocked out or failed; continue with its parent."""
    parent, slot, case = m[frame + PARENT], m[frame + SLOT], m[frame + CASE]
    if parent < 0:
        drop_frame(m, frame)
        close_case(m, x, case, lost)
        return
    node = m[parent + NODE]
    kind, first = m[node + KIND], node + CHILDREN
    if kind == ORDER:
        release(m, frame, lost)
    drop_frame(m, frame)
    if kind in (PARALLEL, ORDER):  # the other branches are finished even if this one ended the case
        m[parent + LEFT] -= 1
        if lost:
            m[parent + MARK] = 1
        if m[parent + LEFT] == 0:
            put(m, LOST if m[parent + MARK] else DONE, parent)
    elif kind == INSTANCES:
        count_instance(m, x, parent, lost)
    elif kind == CANCELLABLE and slot == 0 and m[parent + MARK]:  # the body ended before its cancellation was due
        m[parent + MARK] = 0
        put(m, BEGIN, new_frame(m, m[first + 1], parent, case, 1))
    elif lost or kind in (CHOICE, CANCELLABLE):
        put(m, LOST if lost else DONE, parent)
    elif kind == SEQUENCE:
        if slot + 1 < m[node + COUNT]:
            put(m, BEGIN, new_frame(m, m[first + slot + 1], parent, case, slot + 1))
        else:
            put(m, DONE, parent)
    elif slot == 1 or repeats(m, x, parent):  # a loop: body after redo, perhaps redo after body
        put(m, BEGIN, new_frame(m, m[first + 1 - slot], parent, case, 1 - slot))
    else:
        put(m, DONE, parent)


@inner
def repeats(m: Ints, x: Floats, frame: int) -> bool:
    """Whether a loop repeats; TALLY counts how often it did. The last weight is the chance of each repetition."""
    node = m[frame + NODE]
    if 0 < m[node + MOST] <= m[frame + TALLY] or chance(m, frame, 0) >= x[node + CHILDREN + 1]:
        return False
    m[frame + TALLY] += 1
    return True


@inner
def count_instance(m: Ints, x: Floats, parent: int, lost: bool) -> None:
    """One of several copies ended; once enough ended well, the others are cancelled."""
    m[parent + LEFT] -= 1
    m[parent + TALLY] += 0 if lost else 1
    if m[parent + TALLY] == m[m[parent + NODE] + ENOUGH]:
        while m[parent + CHILD] >= 0:
            break_off(m, x, m[parent + CHILD])
        put(m, DONE, parent)
    elif m[parent + LEFT] == 0:
        put(m, LOST, parent)


@inner
def release(m: Ints, frame: int, lost: bool) -> None:
    """A part of an order ended: parts that waited only for it begin, or are skipped if it ended the case."""
    parent, slot = m[frame + PARENT], m[frame + SLOT]
    node = m[parent + NODE]
    edges = node + CHILDREN + m[node + COUNT]
    for edge in range(m[edges]):
        if m[edges + 1 + 2 * edge] == slot:
            later = m[parent + CHILD]
            while m[later + SLOT] != m[edges + 2 + 2 * edge]:
                later = m[later + AFTER]
            m[later + LEFT] -= 1
            if lost:
                m[later + MARK] = 1
            if m[later + LEFT] == 0:
                put(m, LOST if m[later + MARK] else BEGIN, later)


@inner
def break_off(m: Ints, x: Floats, frame: int) -> None:
    """Cancel a block with everything inside it; servers working on it are free at once."""
    here = frame
    while True:  # depth first without recursion: drop the first leaf, then go back to its parent
        while m[here + CHILD] >= 0:
            here = m[here + CHILD]
        parent = m[here + PARENT]
        if m[here + STATE] == SERVED:
            leave(m, x, here, -1)
        elif m[here + STATE] == QUEUED:
            x[kept_case(m, m[here + CASE]) + WAITED] += x[CLOCK] - x[here + READY]
        drop_frame(m, here)
        if here == frame:
            return
        here = parent


@inner
def end_try(m: Ints, x: Floats, frame: int) -> None:
    """A try ends: retry after a pause, or end the activity, and its case if it failed or knocked out."""
    row = m[m[frame + NODE] + DETAIL]
    failed, pool, tally, server = m[frame + MARK] == 1, m[row + ROW_POOL], m[frame + TALLY], m[frame + SERVER]
    leave(m, x, frame, 0 if failed else 1)
    # The queue is served after the agenda: what follows in this case may join it at this very moment.
    if failed and tally < m[row + ROW_RETRIES]:
        m[frame + TALLY] = tally + 1
        expect(m, x, x[CLOCK] + x[row + PAUSE] * x[row + GROWTH] ** tally, ENQUEUE, frame)
    elif failed or (x[row + KNOCK_OUT] > 0 and chance(m, frame, 6) < x[row + KNOCK_OUT]):
        put(m, LOST, frame)
    else:
        put(m, DONE, frame)
    work_off(m, x)
    if pool >= 0:
        dispatch(m, x, pool)
        serve_others(m, x, server, pool)


@inner
def work_off(m: Ints, x: Floats) -> None:
    """Empty the agenda."""
    while m[AGENDA] > 0 and not m[FULL]:
        m[AGENDA] -= 1
        place = m[AGENDA_BASE] + m[AGENDA] * AGENDA_FIELDS
        what, frame = m[place], m[place + 1]
        if m[frame + STAMP] != m[place + 2]:
            continue
        if what == BEGIN:
            begin(m, x, frame)
        else:
            over(m, x, frame, what == LOST)


@inner
def open_case(m: Ints, x: Floats, seed: Any) -> None:
    """A case arrives: give it a record and a key for its random numbers, and begin the root block."""
    case = m[FREE_CASE]
    if m[case + NEXT] < 0:
        m[FULL] = TOO_SMALL
        return
    m[FREE_CASE] = m[case + NEXT]
    x[case + CASE_START] = x[CLOCK]
    m[case + NUMBER] = m[ARRIVED]
    m[case + KEY] = np.int64(mixed(seed + mixed(np.uint64(m[ARRIVED]))))
    m[case + CASE_FIELDS : case + CASE_FIELDS + m[COUNTERS]] = 0
    m[ARRIVED] += 1
    put(m, BEGIN, new_frame(m, m[ROOT], -1, case, 0))
    work_off(m, x)


@inner
def handle(m: Ints, x: Floats, kind: int, record: int) -> None:
    """Handle one event that is not an arrival; what is left is BREAK, a cancellation that is due."""
    if kind == END:
        end_try(m, x, record)
    elif kind == ENQUEUE:
        enqueue(m, x, record)
    elif kind == OPEN:
        m[record + OPENING] = 0
        dispatch(m, x, record)
    elif m[record + MARK]:  # the body is still running: cancel it and begin the handler
        while m[record + CHILD] >= 0:
            break_off(m, x, m[record + CHILD])
        m[record + MARK] = 0
        handler = m[m[record + NODE] + CHILDREN + 1]
        put(m, BEGIN, new_frame(m, handler, record, m[record + CASE], 1))
    work_off(m, x)


@inner
def step(m: Ints, x: Floats) -> None:
    """Take the next event; one whose frame was freed in the meantime (another stamp) is ignored."""
    first = m[EVENT_BASE]
    kind, record, stamp = m[first], m[first + 1], m[first + 2]
    m[EVENTS] -= 1
    # The record of OPEN is a pool, which has no stamp.
    meant = kind == OPEN or m[record + STAMP] == stamp
    if meant:
        x[CLOCK] = x[first]
    sift_down(m, x, first, m[EVENTS])
    if meant:
        handle(m, x, kind, record)


@compiled
def run_arrivals(m: Ints, x: Floats, seed: Any, rate: float, first: int, last: int) -> None:
    """Poisson arrivals until cases `first` to `last`, which are measured, have ended or no more cases may arrive."""
    key, clock = mixed(seed), 0.0
    # `left` is the first measured case that may still be running; exponential gaps by inversion of a uniform number.
    left, number = first, 0
    following = -math.log(uniform(key, np.uint64(0xA11), 0, 7)) / rate
    while left <= last and not m[FULL]:
        # Arrivals are not in the heap: the next one is compared with the heap's first event.
        if number < m[CASE_ROOM] and (m[EVENTS] == 0 or following <= x[m[EVENT_BASE]]):
            clock = x[CLOCK] = following
            if number == first:
                x[WINDOW_START] = clock
            if number == last:
                x[WINDOW_END] = clock
            open_case(m, x, seed)
            number += 1
            following = clock - math.log(uniform(key, np.uint64(0xA11), number, 7)) / rate
        elif m[EVENTS] > 0:
            step(m, x)
        else:
            return
        while left <= last and left < number and m[m[CASE_BASE] + left * KEPT + OUTCOME] >= 0:
            left += 1


@compiled
def run_batches(m: Ints, x: Floats, seed: Any, runs: int, weekly: bool, made: Floats) -> None:
    """Start `runs` cases at once, and again when all have ended; `made` receives the makespan of each batch."""
    x[WINDOW_START] = 0.0
    for batch in range(len(made)):
        if weekly:  # with calendars every batch starts at the beginning of a week, so that batches are alike
            x[CLOCK] = math.ceil(x[CLOCK] / WEEK) * WEEK
        start = x[CLOCK]
        for _ in range(runs):
            open_case(m, x, seed)
        while m[FINISHED] < m[ARRIVED] and m[EVENTS] > 0 and not m[FULL]:
            step(m, x)
        made[batch] = x[CLOCK] - start
        while m[EVENTS] > 0 and not m[FULL]:  # discard events of frames that are gone
            step(m, x)
