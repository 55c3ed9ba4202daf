"""The frames of a case, the agenda of what begins or ends, and how a case closes."""

from __future__ import annotations

import numpy as np

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import Floats, Ints
from groupwise.workflows.evaluation.engine.chance import uniform
from groupwise.workflows.evaluation.engine.layout import (
    AFTER,
    AGENDA,
    AGENDA_BASE,
    AGENDA_FIELDS,
    AGENDA_ROOM,
    BEFORE,
    CASE,
    CASE_BASE,
    CASE_FIELDS,
    CASE_START,
    CHILD,
    CLOCK,
    CYCLE,
    FINISHED,
    FREE_CASE,
    FREE_FRAME,
    FULL,
    INDEX,
    KEPT,
    KEY,
    LEFT,
    MARK,
    NEXT,
    NODE,
    NUMBER,
    OUTCOME,
    PARENT,
    SERVER,
    SLOT,
    STAMP,
    STATE,
    STREAM,
    TALLY,
)


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
def kept_case(m: Ints, case: int) -> int:
    """Where the results of a case lie."""
    return int(m[CASE_BASE] + m[case + NUMBER] * KEPT)


@inner
def close_case(m: Ints, x: Floats, case: int, lost: bool) -> None:
    kept = kept_case(m, case)
    x[kept + CYCLE] = x[CLOCK] - x[case + CASE_START]
    m[kept + OUTCOME] = 0 if lost else 1
    m[FINISHED] += 1
    m[case + NEXT] = m[FREE_CASE]
    m[FREE_CASE] = case
