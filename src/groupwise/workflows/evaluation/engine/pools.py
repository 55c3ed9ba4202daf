"""Tries of activities at the servers of their pools: waiting, being served, leaving.

A "try" is one attempt at an activity by one frame; an activity with retries makes several.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format and engine_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.engine.engine_fields import *  # noqa: F403
from groupwise.workflows.evaluation.engine.memory import (
    copy,
    duration,
    expect,
    kept_case,
    put_back,
    sift_down,
    sift_up,
    uniform,
)
from groupwise.workflows.evaluation.numba_compiler import inner

# So many tries that nobody may ever do show that the design cannot work; each would be looked at again and again.
MOST_HOPELESS = 1_000
# What `first_able` finds instead of a worker: somebody else may do it, or nobody.
LATER, NEVER = -1, -2
# So many assignments of later duties are tried before one is taken to exist.
MOST_TRIED = 500


@inner
def enqueue(m: Ints, x: Floats, frame: int) -> None:
    """A try is ready: it starts at once if it needs nobody, and otherwise joins the queue of its pool."""
    row = m[m[frame + NODE] + DETAIL]
    x[frame + READY] = x[CLOCK]
    pool = m[row + ROW_POOL]
    if pool < 0:
        serve(m, x, frame)
        return
    discipline = m[pool + DISCIPLINE]  # an index of DISCIPLINES; the lowest key is served first
    key = x[CLOCK]
    if discipline == 1:
        key = -x[row + PRIORITY]
    elif discipline == 2:
        key = x[row + MEAN]
    elif discipline == 3:
        key = x[m[frame + CASE] + CASE_START] + x[row + DUE]
    if m[pool + WAITING] >= m[pool + QUEUE_ROOM]:
        m[FULL] = TOO_SMALL
        return
    sift_up(m, x, m[pool + QUEUE_BASE], m[pool + WAITING], key, 0, frame)
    m[pool + WAITING] += 1
    m[frame + STATE] = QUEUED
    dispatch(m, x, pool)


@inner
def dispatch(m: Ints, x: Floats, pool: int) -> None:
    """Free servers take tries from the queue; outside its hours the pool asks to be woken when its shift starts."""
    if m[BY_NAME]:
        hand_out(m, x, pool)
        return
    while m[pool + FREE] > 0 and m[pool + WAITING] > 0:
        first = m[pool + QUEUE_BASE]
        frame, stamp = m[first + 1], m[first + 2]
        if m[frame + STAMP] == stamp:  # otherwise the try was cancelled while it waited: drop the entry
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
            # The first free server; FREE > 0 guarantees that there is one.
            server = m[pool + SERVER_BASE]
            while m[server]:
                server += 1
            m[server] = 1
            m[frame + SERVER] = server
            serve(m, x, frame)


@inner
def hand_out(m: Ints, x: Floats, pool: int) -> None:
    """Workers who are free and present take tries from the queue, each the first that they may do."""
    base, aside, present, hopeless = m[pool + QUEUE_BASE], m[ASIDE_BASE], 0, 0
    opens = math.inf
    for member in range(m[pool + SERVER_BASE], m[pool + SERVER_BASE] + m[pool + SERVERS]):
        worker = m[member]
        if m[worker + FREE]:
            start = next_open(m, x, worker, x[CLOCK])
            present += start <= x[CLOCK]
            opens = min(opens, start) if start > x[CLOCK] else opens
    while present > 0 and m[pool + WAITING] > 0:
        frame, stamp, worker = m[base + 1], m[base + 2], -1
        if m[frame + STAMP] == stamp:  # otherwise the try was cancelled while it waited: drop the entry
            worker = first_able(m, x, pool, frame)
            if worker < 0:
                hopeless += worker == NEVER
                copy(m, x, base, aside)
                aside += EVENT_FIELDS
        m[pool + WAITING] -= 1
        sift_down(m, x, base, m[pool + WAITING])
        if worker >= 0:
            present -= 1
            m[worker + FREE] = 0
            m[frame + SERVER] = worker
            m[m[frame + CASE] + m[DONE_BY] + m[m[m[frame + NODE] + DETAIL] + ROW_NUMBER]] = worker
            serve(m, x, frame)
    while aside > m[ASIDE_BASE]:
        aside -= EVENT_FIELDS
        put_back(m, x, base, m[pool + WAITING], aside)
        m[pool + WAITING] += 1
    if hopeless >= MOST_HOPELESS:
        m[FULL] = NOBODY_ABLE
    if opens < math.inf and (not m[pool + OPENING] or opens < x[pool + WAKE]) and is_hopeful(m, x, pool):
        m[pool + OPENING] = 1
        x[pool + WAKE] = opens
        expect(m, x, opens, OPEN, pool)


@inner
def first_able(m: Ints, x: Floats, pool: int, frame: int) -> int:
    """The first worker of the pool who is free and present and may do it; LATER or NEVER if there is none.

    Those who would leave a later duty of the case without anybody come last: only if all of them would.
    """
    found, last = NEVER, 0
    duty, by = m[m[m[frame + NODE] + DETAIL] + ROW_DUTY], m[frame + CASE] + m[DONE_BY]
    for member in range(m[pool + SERVER_BASE], m[pool + SERVER_BASE] + m[pool + SERVERS]):
        worker = m[member]
        if may_do(m, duty, by, worker):
            here = m[worker + FREE] and next_open(m, x, worker, x[CLOCK]) <= x[CLOCK]
            if leaves_somebody(m, duty, by, worker):
                found = LATER
                if here:
                    return int(worker)
            elif not last or (here and last < 0):
                last = worker if here else LATER
    return found if found == LATER or not last else int(last)


@inner
def is_hopeful(m: Ints, x: Floats, pool: int) -> bool:
    """Whether anything that somebody may do waits: nobody needs to be woken for the rest."""
    base = m[pool + QUEUE_BASE]
    for entry in range(base, base + m[pool + WAITING] * EVENT_FIELDS, EVENT_FIELDS):
        frame = m[entry + 1]
        if m[frame + STAMP] == m[entry + 2] and first_able(m, x, pool, frame) != NEVER:
            return True
    return False


@inner
def may_do(m: Ints, duty: int, by: int, worker: int) -> bool:
    """Whether a worker has the skills, and duties are separated and bound as they must be; `by` says who did what."""
    first = duty + DUTY_FIELDS
    bound, skills = first + m[duty + APART], first + m[duty + APART] + m[duty + BOUND]
    if not m[skills + m[worker + POOL_NUMBER]]:
        return False
    for other in range(first, bound):
        if abs(m[by + m[other]]) == worker:
            return False
    for other in range(bound, skills):  # noqa: SIM110  (Numba has no all() over a generator)
        if abs(m[by + m[other]]) not in (0, worker):
            return False
    return True


@inner
def leaves_somebody(m: Ints, duty: int, by: int, worker: int) -> bool:
    """Whether everything that duties link with this and nobody has done yet can still be done, if this worker does it.

    A depth-first search over the linked activities; who would do them is kept in `by` as a negative address meanwhile.
    """
    count = m[duty + LINKED]
    if not count:
        return True
    first = duty + DUTY_FIELDS + m[duty + APART] + m[duty + BOUND] + m[STAFF]
    own = by + m[duty + OF]
    before, m[own] = m[own], worker
    place, step, tried = 0, 1, 0
    while 0 <= place < count and tried < MOST_TRIED:
        other = m[first + place]
        there = by + m[other + OF]
        if m[there] > 0:  # done already
            place += step
            continue
        tried += 1
        number = m[-m[there] + POOL_NUMBER] + 1 if m[there] else 0
        m[there] = 0
        while number < m[STAFF] and not may_do(m, other, by, m[m[WORKERS] + number]):
            number += 1
        step = 1 if number < m[STAFF] else -1
        m[there] = -m[m[WORKERS] + number] if step > 0 else 0
        place += step
    for place_ in range(first, first + count):
        if m[by + m[m[place_] + OF]] < 0:
            m[by + m[m[place_] + OF]] = 0
    m[own] = before
    return place != -1


@inner
def serve_others(m: Ints, x: Floats, server: int, pool: int) -> None:
    """A worker became free: the other pools that may need this worker look at their queues."""
    if m[BY_NAME] and server >= 0:
        for place in range(m[server + SERVER_BASE], m[server + SERVER_BASE] + m[server + SERVERS]):
            if m[place] != pool:
                dispatch(m, x, m[place])


@inner
def next_open(m: Ints, x: Floats, pool: int, now: float) -> float:
    """`now` if the pool (or worker) is working, otherwise the start of the next shift, in seconds of the week."""
    if m[pool + SHIFTS] == 0:
        return now
    week = math.floor(now / WEEK) * WEEK
    first = pool + POOL_FIELDS
    for shift in range(first, first + 2 * m[pool + SHIFTS], 2):
        if now - week < x[shift + 1]:
            return float(max(now, week + x[shift]))
    return float(week + WEEK + x[first])


@inner
def opened(m: Ints, x: Floats, pool: int, now: float) -> float:
    """For how long a pool (or worker) has been working since time 0."""
    if pool < 0 or m[pool + SHIFTS] == 0:
        return now
    weeks, first, found = math.floor(now / WEEK), pool + POOL_FIELDS, 0.0
    for shift in range(first, first + 2 * m[pool + SHIFTS], 2):
        now_of_week = min(max(now - weeks * WEEK, x[shift]), x[shift + 1])
        found += weeks * (x[shift + 1] - x[shift]) + now_of_week - x[shift]
    return float(found)


@inner
def worked(m: Ints, x: Floats, pool: int, now: float, work: float) -> float:
    """When `work` seconds of work started now are done: work left at the end of a shift continues in the next."""
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
    """A try starts: draw its duration and whether it fails, and schedule its end."""
    node, case, now = m[frame + NODE], m[frame + CASE], x[CLOCK]
    row, kept = m[node + DETAIL], kept_case(m, case)
    x[kept + WAITED] += now - x[frame + READY]
    x[kept + SPENT] += x[row + COST]
    count = case + CASE_FIELDS + m[node + INDEX]
    m[count] += 1
    key, stream = np.uint64(m[case + KEY]), np.uint64(m[node + STREAM])
    work = duration(m[row + ROW_DISTRIBUTION], x[row + NOMINAL], x[row + STD], key, stream, m[count])
    # Draw 5 of the same count: independent of the duration, and the same in every design (common random numbers).
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
    # By name, it is the worker whose shifts count.
    rests = m[frame + SERVER] if m[BY_NAME] and m[row + ROW_POOL] >= 0 else m[row + ROW_POOL]
    expect(m, x, worked(m, x, rests, now, work), END, frame)


@inner
def leave(m: Ints, x: Floats, frame: int, outcome: int) -> None:
    """A try ends (outcome 1: done, 0: failed) or is cancelled (−1): free its server and add up what it used."""
    row = m[m[frame + NODE] + DETAIL]
    now, pool, start = x[CLOCK], m[row + ROW_POOL], x[frame + START]
    # Only the part inside the measured window counts, without rests.
    first, last = max(start, x[WINDOW_START]), min(now, x[WINDOW_END])
    if last > first:
        rests = m[frame + SERVER] if m[BY_NAME] and pool >= 0 else pool
        spent = opened(m, x, rests, last) - opened(m, x, rests, first)
        x[CPU_TIME] += x[row + CPU] * spent
        x[MEMORY_TIME] += x[row + MEMORY] * spent
        if pool >= 0:
            x[pool + BUSY_TIME] += spent
    x[CPU_NOW] -= x[row + CPU]
    x[MEMORY_NOW] -= x[row + MEMORY]
    note(m, x, frame, outcome)
    if pool >= 0 and m[BY_NAME]:
        worker = m[frame + SERVER]
        m[worker + FREE] = 1
        for place in range(m[worker + SERVER_BASE], m[worker + SERVER_BASE] + m[worker + SERVERS]):
            if outcome < 0:
                expect(m, x, now, OPEN, m[place])
    elif pool >= 0:
        m[pool + FREE] += 1
        m[m[frame + SERVER]] = 0
        if outcome < 0:  # the caller is in the middle of the agenda: serve the queue in an event of its own
            expect(m, x, now, OPEN, pool)
    m[frame + SERVER] = -1
    m[frame + STATE] = 0


@inner
def note(m: Ints, x: Floats, frame: int, outcome: int) -> None:
    """Add a try to the trace, if there is room."""
    if m[TRACED] >= m[TRACE_ROOM]:
        return
    row = m[m[frame + NODE] + DETAIL]
    pool = m[row + ROW_POOL]
    line = m[TRACE_BASE] + m[TRACED] * TRACE_FIELDS
    m[TRACED] += 1
    m[line], m[line + 1] = m[m[frame + CASE] + NUMBER], m[row + ROW_NUMBER]
    x[line + 2], x[line + 3], x[line + 4] = x[frame + READY], x[frame + START], x[CLOCK]
    m[line + 5] = m[pool + POOL_NUMBER] if pool >= 0 else -1
    m[line + 6] = -1
    if pool >= 0:
        server = m[frame + SERVER]
        m[line + 6] = m[server + POOL_NUMBER] if m[BY_NAME] else server - m[pool + SERVER_BASE]
    m[line + 7] = outcome
