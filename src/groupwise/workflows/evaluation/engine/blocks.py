"""What happens when a block begins, is over or is broken off."""

from __future__ import annotations

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import (
    ACTIVITY,
    CANCELLABLE,
    CHOICE,
    INSTANCES,
    ORDER,
    PARALLEL,
    SEQUENCE,
    SKIP,
    Floats,
    Ints,
)
from groupwise.workflows.evaluation.engine.frames import chance, close_case, drop_frame, kept_case, new_frame, put
from groupwise.workflows.evaluation.engine.heap import expect
from groupwise.workflows.evaluation.engine.layout import (
    AFTER,
    BEGIN,
    BREAK,
    CASE,
    CHILD,
    CHILDREN,
    CLOCK,
    COUNT,
    DELAY,
    DETAIL,
    DONE,
    ENOUGH,
    ENQUEUE,
    KIND,
    LEAST,
    LEFT,
    LOST,
    MARK,
    MOST,
    NODE,
    NOMINAL_TIME,
    PARENT,
    QUEUED,
    READY,
    SERVED,
    SLOT,
    STATE,
    TALLY,
    WAITED,
)
from groupwise.workflows.evaluation.engine.pools import enqueue, leave


@inner
def begin(m: Ints, x: Floats, frame: int) -> None:
    """A block begins."""
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
    elif kind == PARALLEL:
        begin_all(m, frame, count, False)
    elif kind == ORDER:
        begin_order(m, frame)
    elif kind == CHOICE:
        u = chance(m, frame, 0)
        slot = 0
        while slot < count - 1 and u >= x[first + slot]:
            u -= x[first + slot]
            slot += 1
        put(m, BEGIN, new_frame(m, m[first + slot], frame, case, slot))
    elif kind == INSTANCES:
        extra = m[node + MOST] - m[node + LEAST]
        copies = m[node + LEAST] + (int(chance(m, frame, 0) * (extra + 1)) if extra > 0 else 0)
        begin_all(m, frame, copies, True)
    else:
        if kind == CANCELLABLE and chance(m, frame, 0) < x[first]:
            m[frame + MARK] = 1
            expect(m, x, now + chance(m, frame, 1) * x[m[first] + NOMINAL_TIME], BREAK, frame)
        put(m, BEGIN, new_frame(m, m[first], frame, case, 0))


@inner
def begin_all(m: Ints, frame: int, count: int, copies: bool) -> None:
    """All children at once, in their order: each another block, or copies of one."""
    first = m[frame + NODE] + CHILDREN
    m[frame + LEFT] = count
    for slot in range(count - 1, -1, -1):
        put(m, BEGIN, new_frame(m, m[first if copies else first + slot], frame, m[frame + CASE], slot))


@inner
def begin_order(m: Ints, frame: int) -> None:
    """All parts of an order get a frame; those that wait for none begin."""
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
    """A block is over: well, or (`lost`) as the end of its case. Its parent goes on."""
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
    if kind in (PARALLEL, ORDER):
        m[parent + LEFT] -= 1
        if lost:
            m[parent + MARK] = 1
        if m[parent + LEFT] == 0:
            put(m, LOST if m[parent + MARK] else DONE, parent)
    elif kind == INSTANCES:
        count_instance(m, x, parent, lost)
    elif kind == CANCELLABLE and slot == 0 and m[parent + MARK]:
        m[parent + MARK] = 0
        put(m, BEGIN, new_frame(m, m[first + 1], parent, case, 1))
    elif lost or kind in (CHOICE, CANCELLABLE):
        put(m, LOST if lost else DONE, parent)
    elif kind == SEQUENCE:
        if slot + 1 < m[node + COUNT]:
            put(m, BEGIN, new_frame(m, m[first + slot + 1], parent, case, slot + 1))
        else:
            put(m, DONE, parent)
    elif slot == 1 or chance(m, parent, 0) < x[first]:  # a loop goes on
        put(m, BEGIN, new_frame(m, m[first + 1 - slot], parent, case, 1 - slot))
    else:
        put(m, DONE, parent)


@inner
def count_instance(m: Ints, x: Floats, parent: int, lost: bool) -> None:
    """One of several copies is over; when enough are, the others are broken off."""
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
    """A part of an order is over: those that waited for it begin, or are left out if the case ended here."""
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
    """Clear a block away with everything in it; servers at work on it are free at once."""
    here = frame
    while True:
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
