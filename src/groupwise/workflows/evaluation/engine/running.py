"""The event loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import WEEK, Floats, Ints
from groupwise.workflows.evaluation.engine.blocks import begin, break_off, over
from groupwise.workflows.evaluation.engine.chance import mixed, uniform
from groupwise.workflows.evaluation.engine.frames import chance, new_frame, put
from groupwise.workflows.evaluation.engine.heap import expect, sift_down
from groupwise.workflows.evaluation.engine.layout import (
    AGENDA,
    AGENDA_BASE,
    AGENDA_FIELDS,
    ARRIVED,
    BEGIN,
    CASE,
    CASE_BASE,
    CASE_FIELDS,
    CASE_ROOM,
    CASE_START,
    CHILD,
    CHILDREN,
    CLOCK,
    DETAIL,
    DONE,
    END,
    ENQUEUE,
    EVENT_BASE,
    EVENTS,
    FINISHED,
    FREE_CASE,
    FULL,
    GROWTH,
    INDEX,
    KEPT,
    KEY,
    KNOCK_OUT,
    LOST,
    MARK,
    NEXT,
    NODE,
    NUMBER,
    OPEN,
    OPENING,
    OUTCOME,
    PAUSE,
    ROOT,
    ROW_POOL,
    ROW_RETRIES,
    STAMP,
    TALLY,
    WINDOW_END,
    WINDOW_START,
)
from groupwise.workflows.evaluation.engine.pools import dispatch, enqueue, leave


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
