"""Block times, bottom up (mean, second moment, probability that the case continues); visits and starts, top down.

Nodes are in post-order, so one loop over them sees children before parents, and the reverse loop parents first.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format and network_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.network.gamma_tables import cut_short, earliest, latest, phi
from groupwise.workflows.evaluation.network.network_fields import *  # noqa: F403
from groupwise.workflows.evaluation.numba_compiler import inner


@inner
def spread_out(nodes: Ints, links: Ints, weights: Floats, b: Floats) -> None:
    """How often every block is visited per case, and mean and variance of when it begins, top down."""
    root = (len(nodes) - 1) * FIELDS
    b[root + VISITS], b[root + BEGINS], b[root + SPREAD] = 1.0, 0.0, 0.0
    for number in range(len(nodes) - 1, -1, -1):
        kind, detail, first, count = nodes[number]
        block = number * FIELDS
        visits, begins, spread = b[block + VISITS], b[block + BEGINS], b[block + SPREAD]
        for place in range(first, first + count):
            part = links[place] * FIELDS
            if kind == ORDER:  # `order` has already set these three relative to the block
                b[part + VISITS] *= b[block + VISITS]
                b[part + BEGINS] += b[block + BEGINS]
                b[part + SPREAD] += b[block + SPREAD]
                continue
            after = b[part + BEGINS]  # for a handler, `cancellable` left here when the body is cancelled
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
            body, redo = links[first] * FIELDS, links[first + 1] * FIELDS
            go_round(b, block, body, redo, another(b, body, redo, weights[first + 1], detail))


@inner
def another(b: Floats, body: int, redo: int, again: float, most: int) -> float:
    """The chance of another round of a loop without a limit that has as many rounds on average.

    With `back` the probability to come back, a loop of at most `most` repetitions has S = 1 + back + … + back^most
    rounds, and one without a limit 1 / (1 − back). Visits, mean time and the probability to pass are then the same.
    """
    through = b[body + GOES_ON] * b[redo + GOES_ON]
    back = again * through
    if most == 0 or back == 0:
        return again
    return float((1 - (1 - back) / (1 - back ** (most + 1))) / through)


@inner
def go_round(b: Floats, block: int, body: int, redo: int, again: float) -> None:
    """Visits inside a loop, and when they begin on average over all rounds.

    The number of rounds is geometric: with probability `back` there is another, so there are 1 / (1 − back).
    """
    back = b[body + GOES_ON] * again * b[redo + GOES_ON]
    b[body + VISITS] = b[block + VISITS] / (1 - back)
    b[redo + VISITS] = b[body + VISITS] * b[body + GOES_ON] * again
    # A visit is in round n with probability (1 − back) back^n: mean back / (1 − back), variance back / (1 − back)².
    once = b[body + MEAN] + b[redo + MEAN]
    rounds = back / (1 - back)
    b[body + BEGINS] += rounds * once
    b[redo + BEGINS] = b[body + BEGINS] + b[body + MEAN]
    b[body + SPREAD] += rounds / (1 - back) * once * once
    b[redo + SPREAD] = b[body + SPREAD] + max(b[body + SECOND] - b[body + MEAN] ** 2, 0.0)


@inner
def kept_work(nodes: Ints, links: Ints, weights: Floats, r: Floats, table: Floats, nominal: Floats, b: Floats) -> None:
    """KEPT: the share of an activity's work that is done although bodies or copies around it may be cancelled."""
    for number in range(len(nodes)):
        if nodes[number, 0] != ACTIVITY:
            continue
        block = number * FIELDS
        b[block + KEPT] = 1.0
        child, around = number, int(b[block + PARENT])
        while around >= 0:
            kind, detail, first, _ = nodes[around]
            if kind == CANCELLABLE and links[first] == child:
                # With probability `weights[first]` the body is cancelled, at a time uniform on its nominal duration.
                row = nodes[number, 1] * COLUMNS
                start = b[block + BEGINS] - b[around * FIELDS + BEGINS] + b[block + WAIT] + r[row + DELAY]
                done = done_by(start, start + r[row + SERVICE], nominal[child])
                b[block + KEPT] *= 1 - weights[first] * (1 - done)
            elif kind == INSTANCES:
                copies, enough = (links[detail] + links[detail + 1]) / 2, links[detail + 2]
                # AT_ONCE is the same for every activity inside, so the first one computes it (0: not yet).
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
    """The mean share of [start, end] that lies before a moment drawn uniformly from [0, limit]."""
    if limit <= start:
        return 0.0
    if end <= start:  # work of no duration: done if its moment comes before the cut
        return 1 - start / limit
    if limit >= end:
        return (limit - end + (end - start) / 2) / limit
    return (limit - start) ** 2 / 2 / (end - start) / limit


@inner
def work_at_once(table: Floats, mean: float, var: float, least: int, most: int, enough: int) -> float:
    """The work of all copies when none has to wait, in works of one: each copy works until `enough` have ended.

    With order statistics S_(1) ≤ S_(2) ≤ …: Σ E[S_(j)] for the first `enough`, and E[S_(enough)] for each other.
    """
    total = sooner = 0.0
    for number in range(1, enough + 1):
        sooner = earliest(table, mean, var, 1.0, least, most, number)[0] / mean
        total += sooner
    return total + ((least + most) / 2 - enough) * sooner


@inner
def done_of_copies(at_once: float, room: float, copies: float, enough: int) -> float:
    """The share of the copies' work that is done until enough have ended.

    One after the other, that is `enough` works; all at once, `at_once` works; in between, interpolate by `abreast`.
    """
    if copies <= 1 or enough == copies:
        return 1.0
    return min((enough + abreast(room, copies) * (at_once - enough)) / copies, 1.0)


@inner
def abreast(room: float, copies: float) -> float:
    """How far `room` free servers let copies run side by side: 0 one after the other, 1 all at once."""
    return min(max((room - 1) / (copies - 1), 0.0), 1.0) if copies > 1 else 0.0


@inner
def activity(r: Floats, row: int, b: Floats, block: int) -> None:
    """An activity's time with retries, from its wait per try.

    `here` is the mean time until try number n has ended, `reach` the probability that try n is made.
    """
    one = b[block + WAIT] + r[row + SERVICE]
    spread = b[block + WAIT_VAR] + r[row + SERVICE] ** 2 * r[row + SCV]
    failed, more = r[row + FAILED], int(r[row + RETRIES])
    here, pause, reach = r[row + DELAY], r[row + PAUSE], 1.0
    mean = second = on = tries = 0.0
    for number in range(more + 1):
        here += one
        # The activity ends with this try if it succeeds, or if it is the last one allowed.
        stops = reach * (1 - failed) if number < more else reach
        tries += reach
        mean += stops * here
        second += stops * (here * here + (number + 1) * spread)
        # The case continues only after a try that succeeds.
        on += reach * (1 - failed) * here
        reach *= failed
        here += pause
        pause *= r[row + GROWTH]
    b[block + MEAN], b[block + SECOND], b[block + TRIES] = mean, second, tries
    b[block + GOES_ON] = (1 - reach) * (1 - r[row + KNOCK_OUT])
    b[block + MEAN_ON] = on * (1 - r[row + KNOCK_OUT])


@inner
def repeat(b: Floats, block: int, body: int, redo: int, again: float) -> None:
    """A loop, from X = B + [continues and again] · (R + [continues] · X), for body B and redo R.

    Taking expectations on both sides and solving for E[X], E[X²] and E[X; continues] gives the lines below.
    """
    # `back` is the probability of another round; `rest` is E[R + [continues] X], what follows a body that repeats.
    back = b[body + GOES_ON] * again * b[redo + GOES_ON]
    mean = (b[body + MEAN] + b[body + GOES_ON] * again * b[redo + MEAN]) / (1 - back)
    rest = b[redo + MEAN] + b[redo + GOES_ON] * mean
    twice = b[body + GOES_ON] * again * (b[redo + SECOND] + 2 * b[redo + MEAN_ON] * mean)
    b[block + MEAN] = mean
    b[block + SECOND] = (b[body + SECOND] + 2 * again * b[body + MEAN_ON] * rest + twice) / (1 - back)
    on = b[body + GOES_ON] * (1 - again) / (1 - back)
    b[block + GOES_ON] = on
    through = b[body + MEAN_ON] * b[redo + GOES_ON] + b[body + GOES_ON] * b[redo + MEAN_ON]
    b[block + MEAN_ON] = (b[body + MEAN_ON] * (1 - again) + again * through * on) / (1 - back)


@inner
def order(table: Floats, b: Floats, number: int, inside: Ints, edges: Ints) -> None:  # noqa: C901  (one pass, one place)
    """A partial order: each part begins when the last of its predecessors ends.

    Ends of parts are correlated through common predecessors. `shared[i, j]` is the covariance of the ends of parts i
    and j, and `along[j]` that of the maximum so far with the end of part j. For a maximum of X and Y,
    Cov(max(X, Y), Z) = Φ(α) Cov(X, Z) + (1 − Φ(α)) Cov(Y, Z) with α = (E X − E Y) / √Var(X − Y): Clark, "The greatest
    of a finite set of random variables" (1961). Edges are sorted by their later end; `edge` walks along them.
    """
    count, block = len(inside), number * FIELDS
    ends, shared = np.zeros(count), np.zeros((count, count))
    pair, pair_var, along = np.zeros(2), np.zeros(2), np.zeros(count)
    alive = np.zeros((count, count), np.bool_)
    leads_on = np.zeros(count, np.bool_)
    goes_on = 1.0
    edge = 1
    for part in range(count + 1):  # part number `count` is the end, which waits for all parts without a successor
        mean = var = 0.0
        found = False
        along[:] = 0.0
        before = 0
        while True:
            if part < count:
                if edge > 2 * edges[0] or edges[edge + 1] != part:
                    break
                before = edges[edge]
                edge += 2
                leads_on[before] = True
                alive[part, before] = True
                for other in range(count):
                    alive[part, other] |= alive[before, other]
            else:
                while before < count and leads_on[before]:
                    before += 1
                if before == count:
                    break
                leads_on[before] = True
            if found:
                pair[0], pair[1], pair_var[0], pair_var[1] = mean, ends[before], var, shared[before, before]
                both = max(min(along[before] + b[block + SHARED], min(var, pair_var[1])), 0.0)
                apart = math.sqrt(max(var + pair_var[1] - 2 * both, 1e-300))
                first = phi((mean - ends[before]) / apart)
                mean, var = latest(table, pair, pair_var, 2, both)
                for other in range(count):
                    along[other] = first * along[other] + (1 - first) * shared[before, other]
            else:
                mean, var, found = ends[before], shared[before, before], True
                along[:] = shared[before]
        if part == count:
            b[block + MEAN], b[block + SECOND] = mean, var + mean * mean
            break
        here = inside[part] * FIELDS
        # `reach` is the probability that all predecessors let the case continue; otherwise the part is skipped.
        reach = 1.0
        for other in range(count):
            if alive[part, other]:
                reach *= b[inside[other] * FIELDS + GOES_ON]
        goes_on *= b[here + GOES_ON]
        b[here + BEGINS], b[here + SPREAD], b[here + VISITS] = mean, var, reach
        ends[part] = mean + reach * b[here + MEAN]
        var += reach * b[here + SECOND] - (reach * b[here + MEAN]) ** 2
        shared[part] = along
        shared[:, part] = along
        shared[part, part] = var
    b[block + GOES_ON] = goes_on
    b[block + MEAN_ON] = goes_on * b[block + MEAN]


@inner
def put_together(  # noqa: C901  (one branch per kind of block)
    nodes: Ints, links: Ints, weights: Floats, r: Floats, table: Floats, nominal: Floats, b: Floats
) -> None:
    """The times of all blocks, bottom up: MEAN, SECOND, GOES_ON and MEAN_ON of each."""
    means, variances = np.zeros(len(nodes)), np.zeros(len(nodes))
    for number in range(len(nodes)):
        kind, detail, first, count = nodes[number]
        block = number * FIELDS
        if kind == ACTIVITY:
            activity(r, detail * COLUMNS, b, block)
        elif kind == SEQUENCE:
            mean = second = on = 0.0
            goes_on = 1.0
            for child in links[first : first + count]:
                part = child * FIELDS
                # E[(S + T)²] = E[S²] + 2 E[S; continues] E[T] + P(continues) E[T²], S being the parts so far
                second += 2 * on * b[part + MEAN] + goes_on * b[part + SECOND]
                mean += goes_on * b[part + MEAN]
                on = on * b[part + GOES_ON] + goes_on * b[part + MEAN_ON]
                goes_on *= b[part + GOES_ON]
            b[block + MEAN], b[block + SECOND], b[block + MEAN_ON], b[block + GOES_ON] = mean, second, on, goes_on
        elif kind == PARALLEL:
            goes_on = 1.0
            for slot in range(count):
                part = links[first + slot] * FIELDS
                means[slot] = b[part + MEAN]
                variances[slot] = b[part + SECOND] - b[part + MEAN] ** 2
                goes_on *= b[part + GOES_ON]
            mean, var = latest(table, means, variances, count, b[block + SHARED])
            b[block + MEAN], b[block + SECOND] = mean, var + mean * mean
            b[block + MEAN_ON], b[block + GOES_ON] = mean * goes_on, goes_on
        elif kind == CHOICE:
            b[block + MEAN], b[block + SECOND], b[block + GOES_ON], b[block + MEAN_ON] = 0.0, 0.0, 0.0, 0.0
            for place in range(first, first + count):
                part = links[place] * FIELDS
                for field in (MEAN, SECOND, GOES_ON, MEAN_ON):
                    b[block + field] += weights[place] * b[part + field]
        elif kind == LOOP:
            body, redo = links[first] * FIELDS, links[first + 1] * FIELDS
            repeat(b, block, body, redo, another(b, body, redo, weights[first + 1], detail))
        elif kind == ORDER:
            order(table, b, number, links[first : first + count], links[detail:])
        elif kind == CANCELLABLE:
            inside = links[first]
            cancellable(table, b, block, inside * FIELDS, links[first + 1] * FIELDS, weights[first], nominal[inside])
        elif kind == INSTANCES:
            copies(table, b, block, links[first] * FIELDS, links[detail], links[detail + 1], links[detail + 2])
        else:
            b[block + MEAN], b[block + SECOND], b[block + MEAN_ON] = 0.0, 0.0, 0.0
            b[block + GOES_ON] = 0.0 if kind == CASE_END else 1.0


@inner
def cancellable(table: Floats, b: Floats, block: int, body: int, handler: int, chance: float, limit: float) -> None:
    """A body that is cancelled with probability `chance`, at a time uniform on [0, limit], followed by its handler."""
    mean = second = 0.0
    if limit > 0:
        mean, second = cut_short(table, b[body + MEAN], b[body + SECOND] - b[body + MEAN] ** 2, limit)
    b[block + MEAN] = (1 - chance) * b[body + MEAN] + chance * (mean + b[handler + MEAN])
    twice = second + 2 * mean * b[handler + MEAN] + b[handler + SECOND]
    b[block + SECOND] = (1 - chance) * b[body + SECOND] + chance * twice
    b[block + GOES_ON] = (1 - chance) * b[body + GOES_ON] + chance * b[handler + GOES_ON]
    broken = b[handler + MEAN_ON] + mean * b[handler + GOES_ON]
    b[block + MEAN_ON] = (1 - chance) * b[body + MEAN_ON] + chance * broken
    b[handler + BEGINS] = mean


@inner
def copies(table: Floats, b: Floats, block: int, body: int, least: int, most: int, enough: int) -> None:
    """Several instances: copies with a free server each end independently, others one after the other."""
    # The time of a copy without the wait for its fellows, and its variance without what all copies share.
    alone = max(b[body + MEAN] - b[body + AMONG], 0.0)
    var = max(b[body + SECOND] - b[body + MEAN] ** 2 - b[block + SHARED] - b[body + AMONG] ** 2, 0.0)
    mean, second, well = earliest(table, alone, var, b[body + GOES_ON], least, most, enough)
    wide = abreast(b[body + ROOM], (least + most) / 2) if b[body + TRIES] > 0 else 1.0
    # `queued` is the time of one copy without its wait, as far as copies cannot run side by side; with `enough` of them
    # one after the other, the block takes `more` than it would with room for all.
    queued = (1 - wide) * (alone - b[body + WAIT] + b[body + AMONG])
    more = max(alone + queued * (enough - 1) / (1 - wide) - mean, 0.0) * (1 - wide) if wide < 1 else 0.0
    b[block + MEAN] = mean + more
    b[block + SECOND] = second + b[block + SHARED] + 2 * mean * more + more * more
    b[block + GOES_ON], b[block + MEAN_ON] = well, well * (mean + more)
