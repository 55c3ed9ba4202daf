"""How often blocks are visited and when they begin, top down; and what part of their work is done."""

from __future__ import annotations

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import (
    ACTIVITY,
    CANCELLABLE,
    CHOICE,
    INSTANCES,
    LOOP,
    ORDER,
    SEQUENCE,
    Floats,
    Ints,
)
from groupwise.workflows.evaluation.network.fields import (
    AT_ONCE,
    BEGINS,
    COLUMNS,
    DELAY,
    FIELDS,
    GOES_ON,
    KEPT,
    MEAN,
    MEAN_ON,
    PARENT,
    ROOM,
    SCV,
    SECOND,
    SERVICE,
    SPREAD,
    VISITS,
    WAIT,
)
from groupwise.workflows.evaluation.network.gamma import earliest


@inner
def spread_out(nodes: Ints, links: Ints, weights: Floats, b: Floats) -> None:
    """How often every block is visited in a case, and when it begins, top down."""
    root = (len(nodes) - 1) * FIELDS
    b[root + VISITS], b[root + BEGINS], b[root + SPREAD] = 1.0, 0.0, 0.0
    for number in range(len(nodes) - 1, -1, -1):
        kind, detail, first, count = nodes[number]
        block = number * FIELDS
        visits, begins, spread = b[block + VISITS], b[block + BEGINS], b[block + SPREAD]
        for place in range(first, first + count):
            part = links[place] * FIELDS
            if kind == ORDER:
                b[part + VISITS] *= b[block + VISITS]
                b[part + BEGINS] += b[block + BEGINS]
                b[part + SPREAD] += b[block + SPREAD]
                continue
            after = b[part + BEGINS]  # of a handler: when the body is broken off
            b[part + VISITS], b[part + BEGINS], b[part + SPREAD] = visits, begins, spread
            if kind == SEQUENCE:
                lasts = b[part + MEAN_ON] / b[part + GOES_ON] if b[part + GOES_ON] > 0 else b[part + MEAN]
                begins += lasts
                spread += max(b[part + SECOND] - b[part + MEAN] ** 2, 0.0)
                visits *= b[part + GOES_ON]
            elif kind == CHOICE:
                b[part + VISITS] = visits * weights[place]
            elif kind == CANCELLABLE and place > first:
                b[part + VISITS] = visits * weights[first]
                b[part + BEGINS] = begins + after
            elif kind == INSTANCES:
                b[part + VISITS] = visits * (links[detail] + links[detail + 1]) / 2
        if kind == LOOP:
            go_round(b, block, links[first] * FIELDS, links[first + 1] * FIELDS, weights[first])


@inner
def go_round(b: Floats, block: int, body: int, redo: int, again: float) -> None:
    """Visits inside a loop, and when they begin on average over all rounds."""
    back = b[body + GOES_ON] * again * b[redo + GOES_ON]
    b[body + VISITS] = b[block + VISITS] / (1 - back)
    b[redo + VISITS] = b[body + VISITS] * b[body + GOES_ON] * again
    once = b[body + MEAN] + b[redo + MEAN]
    rounds = back / (1 - back)
    b[body + BEGINS] += rounds * once
    b[redo + BEGINS] = b[body + BEGINS] + b[body + MEAN]
    b[body + SPREAD] += rounds / (1 - back) * once * once
    b[redo + SPREAD] = b[body + SPREAD] + max(b[body + SECOND] - b[body + MEAN] ** 2, 0.0)


@inner
def kept_work(nodes: Ints, links: Ints, weights: Floats, r: Floats, table: Floats, nominal: Floats, b: Floats) -> None:
    """What part of an activity's work is done where bodies and copies around it are broken off."""
    for number in range(len(nodes)):
        if nodes[number, 0] != ACTIVITY:
            continue
        block = number * FIELDS
        b[block + KEPT] = 1.0
        child, around = number, int(b[block + PARENT])
        while around >= 0:
            kind, detail, first, _ = nodes[around]
            if kind == CANCELLABLE and links[first] == child:
                row = nodes[number, 1] * COLUMNS
                start = b[block + BEGINS] - b[around * FIELDS + BEGINS] + b[block + WAIT] + r[row + DELAY]
                done = done_by(start, start + r[row + SERVICE], nominal[child])
                b[block + KEPT] *= 1 - weights[first] * (1 - done)
            elif kind == INSTANCES:
                copies, enough = (links[detail] + links[detail + 1]) / 2, links[detail + 2]
                if b[around * FIELDS + AT_ONCE] == 0 and copies > enough:
                    row = nodes[number, 1] * COLUMNS
                    mean, var = r[row + SERVICE], r[row + SERVICE] ** 2 * r[row + SCV]
                    if child != number:
                        mean = b[child * FIELDS + MEAN]
                        var = b[child * FIELDS + SECOND] - mean * mean
                    b[around * FIELDS + AT_ONCE] = 1.0
                    if mean > 0:
                        b[around * FIELDS + AT_ONCE] = work_at_once(
                            table, mean, var, links[detail], links[detail + 1], enough
                        )
                b[block + KEPT] *= done_of_copies(b[around * FIELDS + AT_ONCE], b[block + ROOM], copies, enough)
            child, around = around, int(b[around * FIELDS + PARENT])


@inner
def done_by(start: float, end: float, limit: float) -> float:
    """The mean part of [start, end] that lies before a moment drawn evenly from [0, limit]."""
    if limit <= start:
        return 0.0
    if end <= start:
        return 1 - start / limit
    if limit >= end:
        return (limit - end + (end - start) / 2) / limit
    return (limit - start) ** 2 / 2 / (end - start) / limit


@inner
def work_at_once(table: Floats, mean: float, var: float, least: int, most: int, enough: int) -> float:
    """The work of copies that all have room, in works of one: every copy works until the last of the `enough`.

    Σ E[S_(j)] for those, and E[S_(enough)] for each of the others.
    """
    total = sooner = 0.0
    for number in range(1, enough + 1):
        sooner = earliest(table, mean, var, 1.0, least, most, number)[0] / mean
        total += sooner
    return total + ((least + most) / 2 - enough) * sooner


@inner
def done_of_copies(at_once: float, room: float, copies: float, enough: int) -> float:
    """The part of the copies' work that is done until enough are: one after the other, it is the work of those."""
    if copies <= 1 or enough == copies:
        return 1.0
    return min((enough + abreast(room, copies) * (at_once - enough)) / copies, 1.0)


@inner
def abreast(room: float, copies: float) -> float:
    """From 0, one after the other, to 1, all copies at once."""
    return min(max((room - 1) / (copies - 1), 0.0), 1.0) if copies > 1 else 0.0
