"""The compiled event loop of the simulation.

Everything lies in two arrays of the same length, `m` with whole numbers and `x` with real ones, so that compiled
functions pass two arguments around and not thirty. A record (a block, an activity's row, a pool, a frame, a case) is
known by its address; its fields are `m[record + FIELD]` and `x[record + FIELD]`.

A case is a tree of frames: one for every block that is under way, with its parent, its children and what it waits for.
Whatever begins or ends is put on a stack, the agenda, and worked off before the clock moves on. Breaking a block off
takes its frames away; every frame has a stamp, by which events and places in queues that were meant for a frame that
is gone are known and passed over.

Random numbers are hashes of (seed, case, what is drawn for, how often before): two designs that do the same activity in
the same case see the same duration, whatever else they do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import (
    ACTIVITY,
    CANCELLABLE,
    CHOICE,
    DISTRIBUTIONS,
    INSTANCES,
    ORDER,
    PARALLEL,
    ROW,
    SEQUENCE,
    SKIP,
    WEEK,
    Floats,
    Ints,
)

# The head of the memory: counters and where things are (m), the clock and what is added up (x).
EVENTS, AGENDA, FREE_FRAME, FREE_CASE, SERIAL, ARRIVED, FINISHED, TRACED, FULL = range(9)
EVENT_BASE, EVENT_ROOM, AGENDA_BASE, AGENDA_ROOM, CASE_BASE, CASE_ROOM, TRACE_BASE, TRACE_ROOM, ROOT = range(9, 18)
CLOCK, WINDOW_START, WINDOW_END, CPU_NOW, MEMORY_NOW, CPU_PEAK, MEMORY_PEAK, CPU_TIME, MEMORY_TIME = range(9)
HEAD = 18

# A block: its children's addresses follow the fields, their weights in x. Behind the children of an order are the
# number of edges and their ends.
KIND, DETAIL, COUNT, STREAM, INDEX, LEAST, MOST, ENOUGH = range(8)
NOMINAL_TIME = 0
CHILDREN = 8

# An activity's row: these fields in m, the columns of encoding.ROW in x.
ROW_POOL, ROW_NUMBER, ROW_RETRIES, ROW_DISTRIBUTION = range(4)
MEAN, COST, CPU, MEMORY = (ROW.index(name) for name in ("mean", "cost", "cpu", "memory"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
NOMINAL, STD, FAILURE, TIMEOUT = (ROW.index(name) for name in ("nominal", "std", "failure", "timeout"))
PRIORITY, DUE = ROW.index("priority"), ROW.index("due")
FIXED, EXPONENTIAL, NORMAL, LOGNORMAL, UNIFORM, GAMMA = range(len(DISTRIBUTIONS))

# A pool: its shifts (start and end in x) and its servers (1: busy) follow the fields; its queue lies elsewhere.
FREE, WAITING, DISCIPLINE, OPENING, SHIFTS, QUEUE_BASE, QUEUE_ROOM, SERVER_BASE, POOL_NUMBER = range(9)
BUSY_TIME = 0
POOL_FIELDS = 9

# A frame. LEFT counts children or predecessors to wait for, TALLY tries or successes; MARK remembers that something
# inside ended the case, that a body is to be broken off, or that a try fails.
NODE, PARENT, CASE, CHILD, BEFORE, AFTER, SLOT, STATE, LEFT, TALLY, MARK, SERVER, STAMP = range(13)
READY, START, WORK = range(3)
FRAME_FIELDS = 13
QUEUED, SERVED = 1, 2

# A case while it runs (how often each block drew follows), and what is kept of it.
NUMBER, NEXT, KEY = range(3)
CASE_START = 0
CASE_FIELDS = 3
OUTCOME = 0
CYCLE, WAITED, SPENT = range(3)
KEPT = 3

ARRIVE, ENQUEUE, END, BREAK, OPEN = range(5)
"""What an event is; EVENT_FIELDS: kind, record, stamp, serial number."""
EVENT_FIELDS = 4
BEGIN, DONE, LOST = range(3)
"""What the agenda holds: a frame begins, ends well, or ends the case."""
AGENDA_FIELDS = 3
TRACE_FIELDS = 8


@inner
def mixed(x: Any) -> Any:
    """SplitMix64: neighbouring numbers become unrelated ones."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def uniform(key: Any, stream: Any, count: int, draw: int) -> float:
    """A number in (0, 1)."""
    x = mixed(key ^ mixed(stream + np.uint64(count) * np.uint64(0xD1342543DE82EF95)) + np.uint64(draw))
    return (float(x >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@inner
def gaussian(key: Any, stream: Any, count: int, draw: int) -> float:
    radius = math.sqrt(-2 * math.log(uniform(key, stream, count, draw)))
    return radius * math.cos(2 * math.pi * uniform(key, stream, count, draw + 1))


@inner
def gamma(key: Any, stream: Any, count: int, shape: float) -> float:
    """Marsaglia and Tsang 2000; below shape 1 by a power of another uniform number."""
    boost = 1.0
    if shape < 1:
        boost = uniform(key, stream, count, 9) ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    draw = 10
    while True:
        x = gaussian(key, stream, count, draw)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(key, stream, count, draw + 2)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
        draw += 3


@inner
def duration(kind: int, mean: float, std: float, key: Any, stream: Any, count: int) -> float:
    """How long a try takes if nothing stops it."""
    if kind == EXPONENTIAL:
        return -mean * math.log(uniform(key, stream, count, 0))
    if kind == NORMAL:
        return max(0.0, mean + std * gaussian(key, stream, count, 0))
    if kind == LOGNORMAL:
        spread = math.log1p((std / mean) ** 2)
        return mean * math.exp(math.sqrt(spread) * gaussian(key, stream, count, 0) - spread / 2)
    if kind == UNIFORM:
        return mean + std * math.sqrt(3) * (2 * uniform(key, stream, count, 0) - 1)
    if kind == GAMMA:
        scv = (std / mean) ** 2
        return mean * scv * gamma(key, stream, count, 1 / scv)
    return mean


@inner
def before(m: Ints, x: Floats, one: int, other: int, field: int) -> bool:
    """Whether one entry of a heap comes before another: by its key, then by its serial number."""
    return bool(x[one] < x[other] or (x[one] == x[other] and m[one + field] < m[other + field]))


@inner
def copy(m: Ints, x: Floats, source: int, target: int) -> None:
    """An entry of a heap to another place: four whole numbers and a key."""
    x[target] = x[source]
    for field in range(EVENT_FIELDS):
        m[target + field] = m[source + field]


@inner
def sift_up(m: Ints, x: Floats, base: int, size: int, key: float, kind: int, record: int) -> None:
    """Put an entry into a heap of `size` entries."""
    here = size
    while here > 0:
        above = (here - 1) >> 1
        if x[base + above * EVENT_FIELDS] <= key:
            break
        copy(m, x, base + above * EVENT_FIELDS, base + here * EVENT_FIELDS)
        here = above
    place = base + here * EVENT_FIELDS
    m[SERIAL] += 1
    x[place] = key
    m[place], m[place + 1], m[place + 2], m[place + 3] = kind, record, m[record + STAMP], m[SERIAL]


@inner
def sift_down(m: Ints, x: Floats, base: int, last: int) -> None:
    """Take the first entry of a heap away; `last` is the place of the last."""
    end = base + last * EVENT_FIELDS
    here = 0
    while True:
        below = 2 * here + 1
        if below >= last:
            break
        place = base + below * EVENT_FIELDS
        if below + 1 < last and before(m, x, place + EVENT_FIELDS, place, 3):
            below += 1
            place += EVENT_FIELDS
        if before(m, x, end, place, 3):
            break
        copy(m, x, place, base + here * EVENT_FIELDS)
        here = below
    copy(m, x, end, base + here * EVENT_FIELDS)


@inner
def expect(m: Ints, x: Floats, time: float, kind: int, record: int) -> None:
    """An event is to come."""
    if m[EVENTS] >= m[EVENT_ROOM]:
        m[FULL] = 1
        return
    sift_up(m, x, m[EVENT_BASE], m[EVENTS], time, kind, record)
    m[EVENTS] += 1


@inner
def new_frame(m: Ints, node: int, parent: int, case: int, slot: int) -> int:
    frame = m[FREE_FRAME]
    if m[frame + AFTER] < 0:  # the last one is kept, so that there always is one
        m[FULL] = 1
        return int(frame)
    m[FREE_FRAME] = m[frame + AFTER]
    m[frame + NODE], m[frame + PARENT], m[frame + CASE], m[frame + SLOT] = node, parent, case, slot
    m[frame + CHILD], m[frame + BEFORE], m[frame + AFTER], m[frame + SERVER] = -1, -1, -1, -1
    m[frame + STATE], m[frame + LEFT], m[frame + TALLY], m[frame + MARK] = 0, 0, 0, 0
    if parent >= 0:
        first = m[parent + CHILD]
        m[frame + AFTER] = first
        if first >= 0:
            m[first + BEFORE] = frame
        m[parent + CHILD] = frame
    return int(frame)


@inner
def drop_frame(m: Ints, frame: int) -> None:
    earlier, later, parent = m[frame + BEFORE], m[frame + AFTER], m[frame + PARENT]
    if earlier >= 0:
        m[earlier + AFTER] = later
    elif parent >= 0:
        m[parent + CHILD] = later
    if later >= 0:
        m[later + BEFORE] = earlier
    m[frame + STAMP] += 1
    m[frame + STATE] = 0
    m[frame + AFTER] = m[FREE_FRAME]
    m[FREE_FRAME] = frame


@inner
def put(m: Ints, what: int, frame: int) -> None:
    """Put on the agenda, whose top comes next."""
    if m[AGENDA] >= m[AGENDA_ROOM]:
        m[FULL] = 1
        return
    place = m[AGENDA_BASE] + m[AGENDA] * AGENDA_FIELDS
    m[place], m[place + 1], m[place + 2] = what, frame, m[frame + STAMP]
    m[AGENDA] += 1


@inner
def chance(m: Ints, frame: int, draw: int) -> float:
    """The next random number of a frame's block in its case."""
    node, case = m[frame + NODE], m[frame + CASE]
    count = case + CASE_FIELDS + m[node + INDEX]
    m[count] += 1
    return uniform(np.uint64(m[case + KEY]), np.uint64(m[node + STREAM]), m[count], draw)


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


@inner
def kept_case(m: Ints, case: int) -> int:
    """Where the results of a case lie."""
    return int(m[CASE_BASE] + m[case + NUMBER] * KEPT)


@inner
def enqueue(m: Ints, x: Floats, frame: int) -> None:
    """A try wants to start: at once if it needs nobody, otherwise in the queue of its pool."""
    row = m[m[frame + NODE] + DETAIL]
    x[frame + READY] = x[CLOCK]
    pool = m[row + ROW_POOL]
    if pool < 0:
        serve(m, x, frame)
        return
    discipline = m[pool + DISCIPLINE]
    key = x[CLOCK]
    if discipline == 1:
        key = -x[row + PRIORITY]
    elif discipline == 2:
        key = x[row + MEAN]
    elif discipline == 3:
        key = x[m[frame + CASE] + CASE_START] + x[row + DUE]
    if m[pool + WAITING] >= m[pool + QUEUE_ROOM]:
        m[FULL] = 1
        return
    sift_up(m, x, m[pool + QUEUE_BASE], m[pool + WAITING], key, 0, frame)
    m[pool + WAITING] += 1
    m[frame + STATE] = QUEUED
    dispatch(m, x, pool)


@inner
def dispatch(m: Ints, x: Floats, pool: int) -> None:
    """Free servers of a pool take those waiting, if it is at work; otherwise when it opens."""
    while m[pool + FREE] > 0 and m[pool + WAITING] > 0:
        first = m[pool + QUEUE_BASE]
        frame, stamp = m[first + 1], m[first + 2]
        if m[frame + STAMP] == stamp:
            opens = next_open(m, x, pool, x[CLOCK])
            if opens > x[CLOCK]:
                if not m[pool + OPENING]:
                    m[pool + OPENING] = 1
                    expect(m, x, opens, OPEN, pool)
                return
        m[pool + WAITING] -= 1
        sift_down(m, x, first, m[pool + WAITING])
        if m[frame + STAMP] == stamp:
            m[pool + FREE] -= 1
            server = m[pool + SERVER_BASE]
            while m[server]:
                server += 1
            m[server] = 1
            m[frame + SERVER] = server
            serve(m, x, frame)


@inner
def next_open(m: Ints, x: Floats, pool: int, now: float) -> float:
    """`now` if the pool is at work, otherwise when it next is."""
    if m[pool + SHIFTS] == 0:
        return now
    week = math.floor(now / WEEK) * WEEK
    first = pool + POOL_FIELDS
    for shift in range(first, first + 2 * m[pool + SHIFTS], 2):
        if now - week < x[shift + 1]:
            return float(max(now, week + x[shift]))
    return float(week + WEEK + x[first])


@inner
def worked(m: Ints, x: Floats, pool: int, now: float, work: float) -> float:
    """When `work` seconds begun now are done: what is not done by the end of a shift is gone on with in the next."""
    if pool < 0 or m[pool + SHIFTS] == 0:
        return now + work
    first = pool + POOL_FIELDS
    while True:
        now = next_open(m, x, pool, now)
        week = math.floor(now / WEEK) * WEEK
        shift = first
        while now - week >= x[shift + 1]:
            shift += 2
        left = week + x[shift + 1] - now
        if work <= left:
            return now + work
        work -= left
        now = week + x[shift + 1]


@inner
def serve(m: Ints, x: Floats, frame: int) -> None:
    """A try starts."""
    node, case, now = m[frame + NODE], m[frame + CASE], x[CLOCK]
    row, kept = m[node + DETAIL], kept_case(m, case)
    x[kept + WAITED] += now - x[frame + READY]
    x[kept + SPENT] += x[row + COST]
    count = case + CASE_FIELDS + m[node + INDEX]
    m[count] += 1
    key, stream = np.uint64(m[case + KEY]), np.uint64(m[node + STREAM])
    work = duration(m[row + ROW_DISTRIBUTION], x[row + NOMINAL], x[row + STD], key, stream, m[count])
    failed = x[row + FAILURE] > 0 and uniform(key, stream, m[count], 5) < x[row + FAILURE]
    if work > x[row + TIMEOUT]:
        work, failed = x[row + TIMEOUT], True
    m[frame + MARK] = 1 if failed else 0
    m[frame + STATE] = SERVED
    x[frame + START], x[frame + WORK] = now, work
    x[CPU_NOW] += x[row + CPU]
    x[MEMORY_NOW] += x[row + MEMORY]
    x[CPU_PEAK] = max(x[CPU_PEAK], x[CPU_NOW])
    x[MEMORY_PEAK] = max(x[MEMORY_PEAK], x[MEMORY_NOW])
    expect(m, x, worked(m, x, m[row + ROW_POOL], now, work), END, frame)


@inner
def leave(m: Ints, x: Floats, frame: int, outcome: int) -> None:
    """A try is over (1 well, 0 failed) or broken off (−1): its server is free, and what it took is counted."""
    row = m[m[frame + NODE] + DETAIL]
    now, pool, start = x[CLOCK], m[row + ROW_POOL], x[frame + START]
    shown = min(now, x[WINDOW_END]) - max(start, x[WINDOW_START])
    if shown > 0:
        spent = shown / (now - start) * min(x[frame + WORK], now - start)
        x[CPU_TIME] += x[row + CPU] * spent
        x[MEMORY_TIME] += x[row + MEMORY] * spent
        if pool >= 0:
            x[pool + BUSY_TIME] += spent
    x[CPU_NOW] -= x[row + CPU]
    x[MEMORY_NOW] -= x[row + MEMORY]
    note(m, x, frame, outcome)
    if pool >= 0:
        m[pool + FREE] += 1
        m[m[frame + SERVER]] = 0
        if outcome < 0:  # those waiting are taken when the agenda is done
            expect(m, x, now, OPEN, pool)
    m[frame + SERVER] = -1
    m[frame + STATE] = 0


@inner
def note(m: Ints, x: Floats, frame: int, outcome: int) -> None:
    """Write a try into the trace, while there is room."""
    if m[TRACED] >= m[TRACE_ROOM]:
        return
    row = m[m[frame + NODE] + DETAIL]
    pool = m[row + ROW_POOL]
    line = m[TRACE_BASE] + m[TRACED] * TRACE_FIELDS
    m[TRACED] += 1
    m[line], m[line + 1] = m[m[frame + CASE] + NUMBER], m[row + ROW_NUMBER]
    x[line + 2], x[line + 3], x[line + 4] = x[frame + READY], x[frame + START], x[CLOCK]
    m[line + 5] = m[pool + POOL_NUMBER] if pool >= 0 else -1
    m[line + 6] = m[frame + SERVER] - m[pool + SERVER_BASE] if pool >= 0 else -1
    m[line + 7] = outcome


@inner
def end_try(m: Ints, x: Floats, frame: int) -> None:
    """A try ends: the next one after a pause, or the activity is over, perhaps with its case."""
    row = m[m[frame + NODE] + DETAIL]
    failed, pool, tally = m[frame + MARK] == 1, m[row + ROW_POOL], m[frame + TALLY]
    leave(m, x, frame, 0 if failed else 1)
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


@inner
def work_off(m: Ints, x: Floats) -> None:
    """The agenda until it is empty."""
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
    case = m[FREE_CASE]
    if m[case + NEXT] < 0:
        m[FULL] = 1
        return
    m[FREE_CASE] = m[case + NEXT]
    x[case + CASE_START] = x[CLOCK]
    m[case + NUMBER] = m[ARRIVED]
    m[case + KEY] = np.int64(mixed(seed + mixed(np.uint64(m[ARRIVED]))))
    m[case + CASE_FIELDS : case + CASE_FIELDS + m[m[ROOT] + INDEX] + 1] = 0
    m[ARRIVED] += 1
    put(m, BEGIN, new_frame(m, m[ROOT], -1, case, 0))
    work_off(m, x)


@inner
def close_case(m: Ints, x: Floats, case: int, lost: bool) -> None:
    kept = kept_case(m, case)
    x[kept + CYCLE] = x[CLOCK] - x[case + CASE_START]
    m[kept + OUTCOME] = 0 if lost else 1
    m[FINISHED] += 1
    m[case + NEXT] = m[FREE_CASE]
    m[FREE_CASE] = case


@inner
def handle(m: Ints, x: Floats, kind: int, record: int) -> None:
    """One event that is not an arrival."""
    if kind == END:
        end_try(m, x, record)
    elif kind == ENQUEUE:
        enqueue(m, x, record)
    elif kind == OPEN:
        m[record + OPENING] = 0
        dispatch(m, x, record)
    elif m[record + MARK]:  # the body is still under way, and is broken off
        while m[record + CHILD] >= 0:
            break_off(m, x, m[record + CHILD])
        m[record + MARK] = 0
        handler = m[m[record + NODE] + CHILDREN + 1]
        put(m, BEGIN, new_frame(m, handler, record, m[record + CASE], 1))
    work_off(m, x)


@inner
def step(m: Ints, x: Floats) -> None:
    """The next event, if it is still meant for someone."""
    first = m[EVENT_BASE]
    kind, record, stamp = m[first], m[first + 1], m[first + 2]
    m[EVENTS] -= 1
    meant = kind == OPEN or m[record + STAMP] == stamp
    if meant:
        x[CLOCK] = x[first]
    sift_down(m, x, first, m[EVENTS])
    if meant:
        handle(m, x, kind, record)


@compiled
def run_arrivals(m: Ints, x: Floats, seed: Any, rate: float, first: int, last: int) -> None:
    """Cases arrive until those from `first` to `last`, which are measured, are over, or there is room for no more."""
    key, clock = mixed(seed), 0.0
    left, number = first, 0
    following = -math.log(uniform(key, np.uint64(0xA11), 0, 7)) / rate
    while left <= last and not m[FULL]:
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
    """`runs` cases at once, again when all are over; how long each batch took goes into `made`."""
    x[WINDOW_START] = 0.0
    for batch in range(len(made)):
        if weekly:
            x[CLOCK] = math.ceil(x[CLOCK] / WEEK) * WEEK
        start = x[CLOCK]
        for _ in range(runs):
            open_case(m, x, seed)
        while m[FINISHED] < m[ARRIVED] and m[EVENTS] > 0 and not m[FULL]:
            step(m, x)
        made[batch] = x[CLOCK] - start
        while m[EVENTS] > 0 and not m[FULL]:  # what is meant for nobody any more
            step(m, x)
