"""The simulation's memory at work: random numbers, heaps of events and queue entries, and the frames of cases."""

# ruff: noqa: F405  (names in capitals are offsets of engine_fields)
import math
from typing import Any

import numpy as np

from groupwise.workflows.evaluation.array_format import Floats, Ints
from groupwise.workflows.evaluation.engine.engine_fields import *  # noqa: F403
from groupwise.workflows.evaluation.numba_compiler import inner


@inner
def mixed(x: Any) -> Any:
    """SplitMix64's output function: a bijection that turns neighbouring numbers into unrelated ones."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def uniform(key: Any, stream: Any, count: int, draw: int) -> float:
    """A number in (0, 1) that depends only on the case (`key`), what it is for (`stream`), and which draw it is."""
    # The odd factor spreads successive counts over all 64 bits before they are mixed.
    x = mixed(key ^ mixed(stream + np.uint64(count) * np.uint64(0xD1342543DE82EF95)) + np.uint64(draw))
    # 53 bits, as many as a float has; the half keeps 0 and 1 out.
    return (float(x >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@inner
def gaussian(key: Any, stream: Any, count: int, draw: int) -> float:
    """A standard normal number (Box and Muller 1958); uses up two draws."""
    radius = math.sqrt(-2 * math.log(uniform(key, stream, count, draw)))
    return radius * math.cos(2 * math.pi * uniform(key, stream, count, draw + 1))


@inner
def gamma(key: Any, stream: Any, count: int, shape: float) -> float:
    """A gamma number of scale 1 (Marsaglia and Tsang 2000); for shapes below 1 they scale by U^(1/shape)."""
    boost = 1.0
    if shape < 1:
        boost = uniform(key, stream, count, 9) ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    # Draws below 10 have other uses: 0 and 1 other distributions, 5 whether a try fails, 6 a knock-out, 9 the boost.
    draw = 10
    while True:
        x = gaussian(key, stream, count, draw)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(key, stream, count, draw + 2)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
        draw += 3


@inner
def duration(kind: int, mean: float, std: float, key: Any, stream: Any, count: int) -> float:
    """How long a try takes if no timeout cuts it short."""
    if kind == EXPONENTIAL:
        return -mean * math.log(uniform(key, stream, count, 0))
    if kind == NORMAL:
        return max(0.0, mean + std * gaussian(key, stream, count, 0))
    if kind == LOGNORMAL:
        spread = math.log1p((std / mean) ** 2)  # variance of the logarithm
        return mean * math.exp(math.sqrt(spread) * gaussian(key, stream, count, 0) - spread / 2)
    if kind == UNIFORM:  # half its width is √3 standard deviations
        return mean + std * math.sqrt(3) * (2 * uniform(key, stream, count, 0) - 1)
    if kind == GAMMA:
        scv = (std / mean) ** 2
        return mean * scv * gamma(key, stream, count, 1 / scv)
    return mean


@inner
def before(m: Ints, x: Floats, one: int, other: int, field: int) -> bool:
    """Whether one heap entry comes before another: by key, and among equals by serial number (first in, first out)."""
    return bool(x[one] < x[other] or (x[one] == x[other] and m[one + field] < m[other + field]))


@inner
def copy(m: Ints, x: Floats, source: int, target: int) -> None:
    """Copy a heap entry: its key and four integers."""
    x[target] = x[source]
    for field in range(EVENT_FIELDS):
        m[target + field] = m[source + field]


@inner
def sift_up(m: Ints, x: Floats, base: int, size: int, key: float, kind: int, record: int) -> None:
    """Add an entry to a binary heap of `size` entries (children of i: 2i + 1 and 2i + 2)."""
    # A new entry has the highest serial number, so among equal keys it stays below (`<=`).
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
def put_back(m: Ints, x: Floats, base: int, size: int, entry: int) -> None:
    """Add an entry that was taken out earlier, which keeps its serial number and so its place in the queue."""
    here = size
    while here > 0:
        above = base + ((here - 1) >> 1) * EVENT_FIELDS
        if not before(m, x, entry, above, 3):
            break
        copy(m, x, above, base + here * EVENT_FIELDS)
        here = (here - 1) >> 1
    copy(m, x, entry, base + here * EVENT_FIELDS)


@inner
def sift_down(m: Ints, x: Floats, base: int, last: int) -> None:
    """Remove the first entry of a heap whose last entry is number `last`."""
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
    """Add an event to the heap of future events."""
    if m[EVENTS] >= m[EVENT_ROOM]:
        m[FULL] = TOO_SMALL
        return
    sift_up(m, x, m[EVENT_BASE], m[EVENTS], time, kind, record)
    m[EVENTS] += 1


@inner
def new_frame(m: Ints, node: int, parent: int, case: int, slot: int) -> int:
    """Take a free frame for a block, as the first child of `parent` (−1: the root of its case)."""
    frame = m[FREE_FRAME]
    # The last free frame is never handed out: callers can use what they get, and go on until they see FULL.
    if m[frame + AFTER] < 0:
        m[FULL] = TOO_SMALL
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
    """Unlink a frame from its siblings and free it."""
    earlier, later, parent = m[frame + BEFORE], m[frame + AFTER], m[frame + PARENT]
    if earlier >= 0:
        m[earlier + AFTER] = later
    elif parent >= 0:
        m[parent + CHILD] = later
    if later >= 0:
        m[later + BEFORE] = earlier
    # From now on events and queue entries with the old stamp are void.
    m[frame + STAMP] += 1
    m[frame + STATE] = 0
    m[frame + AFTER] = m[FREE_FRAME]
    m[FREE_FRAME] = frame


@inner
def put(m: Ints, what: int, frame: int) -> None:
    """Push onto the agenda, a stack."""
    if m[AGENDA] >= m[AGENDA_ROOM]:
        m[FULL] = TOO_SMALL
        return
    place = m[AGENDA_BASE] + m[AGENDA] * AGENDA_FIELDS
    m[place], m[place + 1], m[place + 2] = what, frame, m[frame + STAMP]
    m[AGENDA] += 1


@inner
def chance(m: Ints, frame: int, draw: int) -> float:
    """The next random number of a frame's block in its case; the counter makes repetitions (loops) independent."""
    node, case = m[frame + NODE], m[frame + CASE]
    count = case + CASE_FIELDS + m[node + INDEX]
    m[count] += 1
    return uniform(np.uint64(m[case + KEY]), np.uint64(m[node + STREAM]), m[count], draw)


@inner
def kept_case(m: Ints, case: int) -> int:
    """The address of a case's results."""
    return int(m[CASE_BASE] + m[case + NUMBER] * KEPT)


@inner
def close_case(m: Ints, x: Floats, case: int, lost: bool) -> None:
    """Record the cycle time and outcome of a case, and free its record."""
    kept = kept_case(m, case)
    x[kept + CYCLE] = x[CLOCK] - x[case + CASE_START]
    m[kept + OUTCOME] = 0 if lost else 1
    m[FINISHED] += 1
    m[case + NEXT] = m[FREE_CASE]
    m[FREE_CASE] = case
