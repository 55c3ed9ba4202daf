"""Tries of activities at the servers of their pools: waiting, being served, leaving.

A "try" is one attempt at an activity by one frame; an activity with retries makes several.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format and engine_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.engine.engine_fields import *  # noqa: F403
from groupwise.workflows.evaluation.engine.memory import duration, expect, kept_case, sift_down, sift_up, uniform
from groupwise.workflows.evaluation.numba_compiler import inner


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
        m[FULL] = 1
        return
    sift_up(m, x, m[pool + QUEUE_BASE], m[pool + WAITING], key, 0, frame)
    m[pool + WAITING] += 1
    m[frame + STATE] = QUEUED
    dispatch(m, x, pool)


@inner
def dispatch(m: Ints, x: Floats, pool: int) -> None:
    """Free servers take tries from the queue; outside its hours the pool asks to be woken when its shift starts."""
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
def next_open(m: Ints, x: Floats, pool: int, now: float) -> float:
    """`now` if the pool is working, otherwise the start of its next shift. Shifts are seconds into the week."""
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
    expect(m, x, worked(m, x, m[row + ROW_POOL], now, work), END, frame)


@inner
def leave(m: Ints, x: Floats, frame: int, outcome: int) -> None:
    """A try ends (outcome 1: done, 0: failed) or is cancelled (−1): free its server and add up what it used."""
    row = m[m[frame + NODE] + DETAIL]
    now, pool, start = x[CLOCK], m[row + ROW_POOL], x[frame + START]
    # Only the part inside the measured window counts.
    shown = min(now, x[WINDOW_END]) - max(start, x[WINDOW_START])
    if shown > 0:
        # With shifts, the time since the start includes rests: spread the work evenly over it.
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
    m[line + 6] = m[frame + SERVER] - m[pool + SERVER_BASE] if pool >= 0 else -1
    m[line + 7] = outcome
