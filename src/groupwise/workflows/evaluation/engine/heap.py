"""Events to come and queues: heaps whose first entry comes next."""

from __future__ import annotations

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import Floats, Ints
from groupwise.workflows.evaluation.engine.layout import (
    EVENT_BASE,
    EVENT_FIELDS,
    EVENT_ROOM,
    EVENTS,
    FULL,
    SERIAL,
    STAMP,
)


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
