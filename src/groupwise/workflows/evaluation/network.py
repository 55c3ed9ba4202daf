"""The compiled part of the analytic tier: how long blocks take, and how long activities wait for their pools.

Every block is known by the mean and the second moment of its time, the probability that its case goes on after it, and
its mean time where it does. Times are put together bottom up; the last of several at once is E[max] = ∫ 1 − Π F_i over
gamma distributions of the same mean and variance, exact for exponential ones. Then, top down, come visits and the time
at which each activity wants to start, and from them the loads.

A pool of c servers at load ρ keeps an activity waiting for the work of other cases and for that of its own case:

    W_i = V + own_i,    V = C(c, ρ) / (1 − ρ) · ( s (1 + scv) / 2c + mean of own )

C is Erlang's delay probability, s and scv are those of all that the pool does (Allen and Cunneen 1990, Poisson
arrivals). `own_i` is the wait for what the same case wants of the pool at the same time: with c = 1 it is the work in
front, which makes W exact for batches at an M/G/1 queue. As waiting decides who meets whom, this goes round twice.

A pool that takes those waiting by `priority` or `shortest` goes by turns, k = 1 first, and does not put work aside:

    V_k = T_k / (1 − ρ_1 − … − ρ_(k−1)),    T_k = T_(k−1) + ρ_k W_k,    T_0 = C(c, ρ) s (1 + scv) / 2c

T_k is the work of these turns that one finds; the divisor, what comes meanwhile and goes first. With one server it is
Cobham's formula (1954), with more that of Bondi and Buzen (1984): fifo times one server's ratio, exact for equal means.
"""

from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import (
    ACTIVITY,
    CANCELLABLE,
    CHOICE,
    INSTANCES,
    LOOP,
    ORDER,
    PARALLEL,
    ROW,
    SEQUENCE,
    SKIP,
    Floats,
    Ints,
)
from groupwise.workflows.evaluation.encoding import SCHEDULING as DISCIPLINES

POOL, SERVICE, SCV, FAILED, RETRIES = (ROW.index(name) for name in ("pool", "mean", "scv", "failed", "retries"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
COST, CPU, MEMORY = (ROW.index(name) for name in ("cost", "cpu", "memory"))
SCHEDULING, PRIORITY = (ROW.index(name) for name in ("scheduling", "priority"))
BY_PRIORITY, BY_MEAN, BY_DUE = (DISCIPLINES.index(name) for name in ("priority", "shortest", "due"))

# The columns of what is known of a block.
MEAN, SECOND, GOES_ON, MEAN_ON, VISITS, BEGINS, SPREAD, WAIT, WAIT_VAR = range(9)
SHARED, PARENT, LOWEST, TRIES, KEPT, AHEAD, ALIKE, AMONG, ROOM, AT_ONCE, AGAIN, SINCE, BURDEN = range(9, 22)
"""BEGINS and SPREAD are mean and variance of the time at which it begins, SHARED the covariance of its branches, KEPT
the part of its work that is not broken off, AHEAD how many of its own case are in front of it, ALIKE how many of them
are copies of it, AMONG the wait for those, ROOM how many servers are free for a case on average; AT_ONCE is the work of
copies that all have room. AGAIN is how often it directly follows an activity of its own pool, SINCE how long that took,
BURDEN how much its wait is of what it would be if it came at any time."""
FIELDS = 22
COLUMNS = len(ROW)
CYCLE, COMPLETED, WAITING, SPENT, CORES, BYTES = range(6)
RESULTS = 6
DISCIPLINE, ALL_BUSY = 6, 7
"""Columns of a pool: how it takes those waiting, and the probability that one who comes finds no server free."""
ROUNDS = 2
POINTS, FEWER = 32, 24
STEADY = 1e-4
SHAPES, LOWEST_SHAPE, PER_OCTAVE, PLACES = 48, -3.0, 4.0, 512


def gamma_table() -> Floats:
    """The gamma distribution function of mean 1 for shapes 2^−3 to 2^8.75, at t/(1 + t) evenly from 0 to 1."""
    shape = 2.0 ** (LOWEST_SHAPE + np.arange(SHAPES)[:, None] / PER_OCTAVE)
    y = np.arange(PLACES) / PLACES
    x = y / (1 - y) * shape
    with np.errstate(divide="ignore"):
        gammas = np.array([math.lgamma(k + 1) for k in shape[:, 0]])[:, None]
        term = np.exp(shape * np.log(x) - x - gammas)
    total = term.copy()
    for number in range(1, 900):
        term = term * x / (shape + number)
        total += term
    total[x > shape + 12 * np.sqrt(shape) + 40] = 1.0
    whole: Floats = np.minimum(np.column_stack([total, np.ones(SHAPES)]), 1.0)
    return whole


@inner
def row_of(mean: float, var: float) -> float:
    """Where in the table the gamma distribution of this mean and variance is; −1 for a fixed value."""
    if mean <= 0 or var <= STEADY * mean * mean:
        return -1.0
    row = (math.log2(mean * mean / var) - LOWEST_SHAPE) * PER_OCTAVE
    return min(max(row, 0.0), SHAPES - 1.001)


@inner
def below(table: Floats, row: float, t: float) -> float:
    """The probability of at most `t` times the mean."""
    place = t / (1 + t) * PLACES
    r, p = int(row), int(place)
    dr, dp = row - r, place - p
    low = table[r, p] + dp * (table[r, p + 1] - table[r, p])
    high = table[r + 1, p] + dp * (table[r + 1, p + 1] - table[r + 1, p])
    return float(low + dr * (high - low))


@inner
def phi(z: float) -> float:
    return 0.5 * math.erfc(-z * 0.7071067811865476)


@inner
def distribution(table: Floats, mean: float, var: float, x: float) -> float:
    """The probability of at most x, of a gamma distribution or a fixed value."""
    row = row_of(mean, var)
    if row < 0:
        return 1.0 if x >= mean else 0.0
    return below(table, row, x / mean) if x > 0 else 0.0


@inner
def simpson(point: int, points: int) -> float:
    """The weight of a point in Simpson's rule, in steps."""
    if point == 0 or point == points:
        return 1 / 3
    return 4 / 3 if point % 2 else 2 / 3


@inner
def latest(table: Floats, means: Floats, variances: Floats, count: int, shared: float) -> tuple[float, float]:
    """Mean and variance of the last of several, which have a part of their variance in common.

    What is in `variances` is lost.
    """
    top, floor, longest = 0.0, 0.0, 0.0
    for i in range(count):
        own = max(variances[i] - shared, 0.0)
        variances[i] = row_of(means[i], own)
        longest = max(longest, means[i])
        if variances[i] < 0:
            floor = max(floor, means[i])
        else:
            top = max(top, means[i] + 7 * math.sqrt(own))
    if top <= floor:
        return longest, shared
    step = (top - floor) / POINTS
    first = second = 0.0
    for point in range(POINTS + 1):
        x = floor + point * step
        product = 1.0
        for i in range(count):
            if variances[i] >= 0:
                product *= below(table, variances[i], x / means[i])
        left = simpson(point, POINTS) * step * (1 - product)
        first += left
        second += 2 * x * left
    first += floor
    second += floor * floor
    return max(first, longest), max(second - first * first, 0.0) + shared


@inner
def earliest(
    table: Floats, mean: float, var: float, goes_on: float, least: int, most: int, enough: int
) -> tuple[float, float, float]:
    """Mean and second moment of the time until `enough` of some copies ended well, or all ended; and how likely."""
    row, top = row_of(mean, var), mean + 8 * math.sqrt(var)
    first = second = well = 0.0
    for copies in range(least, most + 1):
        well += at_least(copies, enough, goes_on) / (most - least + 1)
    if row < 0:
        return mean, mean * mean, well
    step = top / FEWER
    for point in range(FEWER):
        f = below(table, row, point * step / mean)
        still = 0.0
        for copies in range(least, most + 1):
            still += 1 - at_least(copies, enough, goes_on * f)
            if goes_on < 1:
                still -= f**copies * (1 - at_least(copies, enough, goes_on))
        left = simpson(point, FEWER) * step * still / (most - least + 1)
        first += left
        second += 2 * point * step * left
    return first, second, well


@inner
def at_least(copies: int, enough: int, p: float) -> float:
    """The probability that at least `enough` of `copies` happen, each with probability p."""
    if p >= 1:
        return 1.0
    term, missing = 1.0, 0.0
    for _ in range(copies):
        term *= 1 - p
    for k in range(enough):
        missing += term
        term *= (copies - k) / (k + 1) * p / (1 - p)
    return max(1 - missing, 0.0)


@inner
def cut_short(table: Floats, mean: float, var: float, limit: float) -> tuple[float, float]:
    """Mean and second moment of min(U, T), U evenly between 0 and `limit`."""
    step = limit / 16
    first = second = 0.0
    for point in range(16):
        x = (point + 0.5) * step
        still = (1 - x / limit) * (1 - distribution(table, mean, var, x))
        first += still * step
        second += 2 * x * still * step
    return first, second


@inner
def activity(r: Floats, row: int, b: Floats, block: int) -> None:
    """An activity's time with retries, from its wait per try."""
    one = b[block + WAIT] + r[row + SERVICE]
    spread = b[block + WAIT_VAR] + r[row + SERVICE] ** 2 * r[row + SCV]
    failed, more = r[row + FAILED], int(r[row + RETRIES])
    here, pause, reach = r[row + DELAY], r[row + PAUSE], 1.0
    mean = second = on = tries = 0.0
    for number in range(more + 1):
        here += one
        stops = reach * (1 - failed) if number < more else reach
        tries += reach
        mean += stops * here
        second += stops * (here * here + (number + 1) * spread)
        on += reach * (1 - failed) * here
        reach *= failed
        here += pause
        pause *= r[row + GROWTH]
    b[block + MEAN], b[block + SECOND], b[block + TRIES] = mean, second, tries
    b[block + GOES_ON] = (1 - reach) * (1 - r[row + KNOCK_OUT])
    b[block + MEAN_ON] = on * (1 - r[row + KNOCK_OUT])


@inner
def repeat(b: Floats, block: int, body: int, redo: int, again: float) -> None:
    """A loop: X = body, and if it goes on, with probability `again` redo and X once more."""
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
    """A partial order: every part begins with the last of those before it; what they share is followed by covariances.

    Clark, "The greatest of a finite set of random variables" (1961), for the covariance of a maximum.
    """
    count, block = len(inside), number * FIELDS
    ends, shared = np.zeros(count), np.zeros((count, count))
    pair, pair_var, along = np.zeros(2), np.zeros(2), np.zeros(count)
    alive = np.zeros((count, count), np.bool_)
    leads_on = np.zeros(count, np.bool_)
    goes_on = 1.0
    edge = 1
    for part in range(count + 1):  # after the last comes the end, which waits for all that lead no further
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
    """The times of all blocks, bottom up."""
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
            repeat(b, block, links[first] * FIELDS, links[first + 1] * FIELDS, weights[first])
        elif kind == ORDER:
            order(table, b, number, links[first : first + count], links[detail:])
        elif kind == CANCELLABLE:
            body = links[first]
            cancellable(table, b, block, body * FIELDS, links[first + 1] * FIELDS, weights[first], nominal[body])
        elif kind == INSTANCES:
            copies(table, b, block, links[first] * FIELDS, links[detail], links[detail + 1], links[detail + 2])
        else:
            b[block + MEAN], b[block + SECOND], b[block + GOES_ON], b[block + MEAN_ON] = 0.0, 0.0, 1.0, 0.0


@inner
def cancellable(table: Floats, b: Floats, block: int, body: int, handler: int, chance: float, limit: float) -> None:
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
    """Instances: copies that all have room end independently, those that have not one after the other."""
    alone = max(b[body + MEAN] - b[body + AMONG], 0.0)
    var = max(b[body + SECOND] - b[body + MEAN] ** 2 - b[block + SHARED] - b[body + AMONG] ** 2, 0.0)
    mean, second, well = earliest(table, alone, var, b[body + GOES_ON], least, most, enough)
    wide = abreast(b[body + ROOM], (least + most) / 2) if b[body + TRIES] > 0 else 1.0
    queued = (1 - wide) * (alone - b[body + WAIT] + b[body + AMONG])  # what one takes apart from waiting
    more = max(alone + queued * (enough - 1) / (1 - wide) - mean, 0.0) * (1 - wide) if wide < 1 else 0.0
    b[block + MEAN] = mean + more
    b[block + SECOND] = second + b[block + SHARED] + 2 * mean * more + more * more
    b[block + GOES_ON], b[block + MEAN_ON] = well, well * (mean + more)


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


@inner
def concurrent(nodes: Ints, links: Ints, b: Floats, one: int, other: int) -> int:
    """The block in which two activities (the first with the higher number) are under way at once, or −1."""
    child, around = one, int(b[one * FIELDS + PARENT])
    while b[around * FIELDS + LOWEST] > other:
        child, around = around, int(b[around * FIELDS + PARENT])
    kind, detail, first, count = nodes[around]
    if kind == PARALLEL:
        return around
    if kind != ORDER:
        return -1
    late = early = 0
    for slot in range(count):
        inside = links[first + slot]
        if inside == child:
            late = slot
        if b[inside * FIELDS + LOWEST] <= other <= inside:
            early = slot
    return -1 if follows(links[detail:], count, early, late) else around


@inner
def follows(edges: Ints, count: int, early: int, late: int) -> bool:
    """Whether a part of an order comes after another; edges are sorted by their later end."""
    after = np.zeros(count, np.bool_)
    after[early] = True
    for edge in range(edges[0]):
        if after[edges[1 + 2 * edge]]:
            after[edges[2 + 2 * edge]] = True
    return bool(after[late])


@inner
def meets(table: Floats, r: Floats, row: int, b: Floats, there: int, lag: float, spread: float, first: bool) -> float:
    """The probability that one finds another of its case before it: begun `lag` earlier on average, and not done."""
    lasts = b[there + WAIT] + r[row + SERVICE]
    if lasts <= 0:
        return 0.0
    var = b[there + WAIT_VAR] + r[row + SERVICE] ** 2 * r[row + SCV]
    deviation = math.sqrt(max(spread, 0.0))
    if lag < -4 * deviation or lag - 4 * deviation > lasts + 6 * math.sqrt(var):
        return 0.0
    if deviation < 1e-6 * lasts:
        if lag < 0 or (lag == 0 and not first):
            return 0.0
        return 1 - distribution(table, lasts, var, lag)
    z = lag / deviation
    earlier = phi(z)
    if earlier < 1e-6:
        return 0.0
    since = lag + deviation * math.exp(-z * z / 2) * 0.3989422804014327 / earlier
    return earlier * (1 - distribution(table, lasts, var, since))


@inner
def still_waits(b: Floats, there: int, all_busy: float, lag: float, spread: float, first: bool) -> float:
    """The probability that one finds another of its case, begun `lag` earlier on average, still waiting."""
    waits, deviation = b[there + WAIT], math.sqrt(max(spread, 0.0))
    if waits <= 0 or lag < -4 * deviation:
        return 0.0
    earlier, since = 1.0 if lag > 0 or (lag == 0 and first) else 0.0, lag
    if deviation >= 1e-6 * waits:
        z = lag / deviation
        earlier = phi(z)
        since += deviation * math.exp(-z * z / 2) * 0.3989422804014327 / earlier
    return earlier * all_busy * math.exp(-all_busy * since / waits)


@inner
def overtake(
    r: Floats,
    mine: int,
    its: int,
    pools: Floats,
    pool: int,
    b: Floats,
    here: int,
    there: int,
    lag: float,
    spread: float,
    q: float,
    p: float,
) -> tuple[float, float]:
    """How likely each of two is behind the other, if the one that goes first overtakes the other where that waits."""
    gain = turn_of(r, its, pools, pool) - turn_of(r, mine, pools, pool)
    if gain > 0:
        passed = min(q, still_waits(b, there, pools[pool, ALL_BUSY], lag, spread, True))
        return q - passed, p + passed
    if gain < 0:
        passed = min(p, still_waits(b, here, pools[pool, ALL_BUSY], -lag, spread, False))
        return q + passed, p - passed
    return q, p


@inner
def own_case(nodes: Ints, links: Ints, r: Floats, table: Floats, pools: Floats, b: Floats, others: Floats) -> None:
    """How many of its own case each activity finds in its pool, and what waits have in common."""
    for number in range(len(nodes)):
        block = number * FIELDS
        b[block + AHEAD] = b[block + ALIKE] = b[block + SHARED] = others[number] = 0.0
    for one in range(len(nodes)):
        if nodes[one, 0] != ACTIVITY or r[nodes[one, 1] * COLUMNS + POOL] < 0:
            continue
        here, mine = one * FIELDS, nodes[one, 1] * COLUMNS
        pool = int(r[mine + POOL])
        copies_around(nodes, links, r, table, b, others, one)
        for other in range(one):
            if nodes[other, 0] != ACTIVITY or r[nodes[other, 1] * COLUMNS + POOL] != pool:
                continue
            around = concurrent(nodes, links, b, one, other)
            if around < 0:
                continue
            there, its = other * FIELDS, nodes[other, 1] * COLUMNS
            above = around * FIELDS
            if b[above + VISITS] <= 0:
                continue
            lag = b[here + BEGINS] - b[there + BEGINS]
            spread = b[here + SPREAD] + b[there + SPREAD] - 2 * b[above + SPREAD]
            often_here = b[here + VISITS] * b[here + TRIES] / b[above + VISITS]
            often_there = b[there + VISITS] * b[there + TRIES] / b[above + VISITS]
            q = meets(table, r, its, b, there, lag, spread, True)
            p = meets(table, r, mine, b, here, -lag, spread, False)
            if by_turns(pools, pool):
                q, p = overtake(r, mine, its, pools, pool, b, here, there, lag, spread, q, p)
            q *= min(often_there, 1.0)
            b[here + AHEAD] += q
            others[one] += q * r[its + SERVICE]
            p *= min(often_here, 1.0)
            b[there + AHEAD] += p
            others[other] += p * r[mine + SERVICE]
            apart = math.sqrt(lag * lag + max(spread, 0.0))
            near = pools[pool, 3] / (pools[pool, 3] + apart) if pools[pool, 3] > 0 else 0.0
            both = min(often_here, 1.0) * min(often_there, 1.0) * near * min(b[here + WAIT_VAR], b[there + WAIT_VAR])
            b[above + SHARED] += both * branch_weight(b, one, around) * branch_weight(b, other, around)
    average_shared(nodes, links, b)


@inner
def average_shared(nodes: Ints, links: Ints, b: Floats) -> None:
    """What branches have in common, which was added up by their weights, as a mean over the pairs."""
    for number in range(len(nodes)):
        if nodes[number, 0] == PARALLEL or nodes[number, 0] == ORDER:
            total = squares = 0.0
            for child in links[nodes[number, 2] : nodes[number, 2] + nodes[number, 3]]:
                weight = b[child * FIELDS + MEAN] ** 2
                total += weight
                squares += weight * weight
            if total * total > squares:
                b[number * FIELDS + SHARED] /= (total * total - squares) / 2


@inner
def branch_weight(b: Floats, inside: int, around: int) -> float:
    """How much the branch of `around` that an activity is in counts: long ones decide which is the last."""
    while b[inside * FIELDS + PARENT] != around:
        inside = int(b[inside * FIELDS + PARENT])
    return float(b[inside * FIELDS + MEAN] ** 2)


@inner
def copies_around(nodes: Ints, links: Ints, r: Floats, table: Floats, b: Floats, others: Floats, one: int) -> None:
    """The copies of an activity that are under way at once in instances around it."""
    here, mine = one * FIELDS, nodes[one, 1] * COLUMNS
    around = int(b[here + PARENT])
    while around >= 0:
        kind, detail, _, _ = nodes[around]
        if kind == INSTANCES:
            done = b[here + KEPT] * (links[detail] + links[detail + 1]) / 2
            spread = 2 * (b[here + SPREAD] - b[around * FIELDS + SPREAD])
            both = meets(table, r, mine, b, here, 0.0, spread, True) + meets(
                table, r, mine, b, here, 0.0, spread, False
            )
            b[here + ALIKE] += both * max(done - 1, 0.0) / 2
            others[one] += both * max(done - 1, 0.0) / 2 * r[mine + SERVICE]
            b[around * FIELDS + SHARED] += b[here + WAIT_VAR]
        around = int(b[around * FIELDS + PARENT])


@inner
def follow_on(
    nodes: Ints,
    links: Ints,
    weights: Floats,
    r: Floats,
    b: Floats,
    rate: float,
    pools: Floats,
    stack: Ints,
    flows: Floats,
) -> None:
    """Find what directly follows an activity in its own pool, and what that finds there.

    Whoever was in front of it then has moved on too, and is in front again if what follows is in the same pool; whoever
    came since from elsewhere is in front as well. A pool's columns: 4 the work that those in it come back with, 5 the
    work that comes back per case.
    """
    pools[:, 4:6] = 0.0
    for number in range(len(nodes)):
        b[number * FIELDS + AGAIN] = b[number * FIELDS + SINCE] = 0.0
    for one in range(len(nodes)):
        if nodes[one, 0] != ACTIVITY or r[nodes[one, 1] * COLUMNS + POOL] < 0:
            continue
        here, mine = one * FIELDS, nodes[one, 1] * COLUMNS
        pool, lasts = int(r[mine + POOL]), b[here + WAIT] + r[mine + SERVICE]
        top = followers(nodes, links, weights, b, one, stack, flows)
        while top > 0:
            top -= 1
            node, flow = stack[top], flows[top]
            kind, detail, first, count = nodes[node]
            if kind == ACTIVITY:
                its = detail * COLUMNS
                if r[its + POOL] == pool and r[its + DELAY] == 0:
                    often = b[here + VISITS] * flow
                    b[node * FIELDS + AGAIN] += often
                    b[node * FIELDS + SINCE] += often * lasts
                    pools[pool, 4] += rate * often * lasts * r[its + SERVICE]
                    pools[pool, 5] += often * r[its + SERVICE]
            elif kind in (CHOICE, PARALLEL):
                for place in range(first, first + count):
                    stack[top] = links[place]
                    flows[top] = flow * weights[place] if kind == CHOICE else flow
                    top += 1
            elif count > 0 and kind != ORDER:
                stack[top], flows[top] = links[first], flow
                top += 1


@inner
def followers(nodes: Ints, links: Ints, weights: Floats, b: Floats, one: int, stack: Ints, flows: Floats) -> int:
    """What comes after an activity, on the stack with probabilities; how much that is."""
    top, child, flow = 0, one, b[one * FIELDS + GOES_ON]
    around = int(b[one * FIELDS + PARENT])
    while around >= 0 and flow > 0:
        kind, _, first, count = nodes[around]
        if kind == SEQUENCE and links[first + count - 1] != child:
            slot = first
            while links[slot] != child:
                slot += 1
            stack[top], flows[top] = links[slot + 1], flow
            return top + 1
        if kind == LOOP:
            body = links[first] == child
            target = links[first + 1] if body and nodes[links[first + 1], 0] != SKIP else links[first]
            stack[top], flows[top] = target, flow * weights[first] if body else flow
            top += 1
            flow *= 1 - weights[first] if body else 0.0
        elif kind in (PARALLEL, ORDER, INSTANCES):
            return top
        child, around = around, int(b[around * FIELDS + PARENT])
    return top


@inner
def burden(nodes: Ints, r: Floats, b: Floats, rate: float, pools: Floats, pool: int) -> float:
    """How much activities that directly follow another of the pool wait beside others; the mean over the work."""
    inside = 0.0
    for number in range(len(nodes)):
        block, row = number * FIELDS, nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool:
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            service = r[row + SERVICE]
            inside += rate * often * (service * b[block + WAIT] + service * service * (1 + r[row + SCV]) / 2)
    total = 0.0
    for number in range(len(nodes)):
        block, row = number * FIELDS, nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool:
            b[block + BURDEN] = 1.0
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            if b[block + AGAIN] > 0 and inside > 0 and often > 0:
                since = b[block + SINCE] / b[block + AGAIN]
                found = pools[pool, 4] + since * rate * max(pools[pool, 0] - pools[pool, 5], 0.0)
                share = min(b[block + AGAIN] / often, 1.0)
                b[block + BURDEN] = 1 + share * (min(found / inside, 3.0) - 1)
            total += often * r[row + SERVICE] * b[block + BURDEN]
    return float(total / pools[pool, 0])


@inner
def queue(servers: int, load: float, line: Floats) -> None:
    """P(at least k servers busy) for k up to `servers`, at an offered load below `servers` (Erlang)."""
    term, total = 1.0, 1.0
    line[0] = 1.0
    for k in range(1, servers):
        term *= load / k
        line[k] = term
        total += term
    term *= load / servers
    line[servers] = term / (1 - load / servers)
    total += line[servers]
    line[servers] /= total
    for k in range(servers - 1, -1, -1):
        line[k] = line[k] / total + line[k + 1]


@inner
def wait(
    nodes: Ints, r: Floats, servers: Ints, rate: float, pools: Floats, b: Floats, others: Floats, turn: int
) -> None:
    """The wait of every activity. `pools` has load per case, arrivals and second moment per case, and a time scale."""
    most = 1
    for pool in range(len(servers)):
        most = max(most, servers[pool])
    line = np.zeros(most + 1)
    for pool in range(len(servers)):
        count = servers[pool]
        load, arrivals, second = pools[pool, 0], pools[pool, 1], pools[pool, 2]
        if load <= 0:
            continue
        queue(count, rate * load, line)
        share = rate * load / count
        weighted = ahead = 0.0
        for number in range(len(nodes)):
            if nodes[number, 0] == ACTIVITY and r[nodes[number, 1] * COLUMNS + POOL] == pool:
                block, row = number * FIELDS, nodes[number, 1] * COLUMNS
                ahead_of_it = b[block + AHEAD] + b[block + ALIKE]
                own = behind_own(line, count, ahead_of_it, others[number])
                b[block + AMONG] = own * b[block + ALIKE] / ahead_of_it if ahead_of_it > 0 else 0.0
                b[block + ROOM] = count * (1 - share) + share * (count + 1) / 2
                others[number] = own
                work = b[block + VISITS] * b[block + TRIES] * b[block + KEPT] * r[row + SERVICE]
                weighted += work * own
                ahead += work * ahead_of_it
        # those that come together find all servers busy more often, at most as often as one server would be
        together = 2 * ahead / load
        chance = line[count] + (share - line[count]) * together / (together + count)
        mean = load / arrivals
        pools[pool, 3] = mean / count / (1 - math.sqrt(share)) ** 2
        pools[pool, ALL_BUSY] = chance
        if by_turns(pools, pool) and turns_differ(nodes, r, pools, pool):
            wait_by_turns(nodes, r, rate / count, count, pools, b, others, pool)
            continue
        heavy = burden(nodes, r, b, rate, pools, pool) if turn > 0 else 1.0
        left = max(1 - share * heavy, 0.3 * (1 - share))
        virtual = chance / left * (second / load / (2 * count) + weighted / load)
        for number in range(len(nodes)):
            if nodes[number, 0] == ACTIVITY and r[nodes[number, 1] * COLUMNS + POOL] == pool:
                block = number * FIELDS
                if turn == 0:
                    b[block + BURDEN] = 1.0
                b[block + WAIT] = virtual * b[block + BURDEN] + others[number]
                b[block + WAIT_VAR] = virtual * virtual * (2 / max(chance, 1e-9) - 1) + others[number] * mean / count


@inner
def disciplines(nodes: Ints, r: Floats, pools: Floats) -> None:
    """How each pool takes those waiting: as its first activity that is not fifo asks for."""
    for number in range(len(nodes)):
        row = nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + SCHEDULING] != 0 and r[row + POOL] >= 0:
            pool = int(r[row + POOL])
            if pools[pool, DISCIPLINE] == 0:
                pools[pool, DISCIPLINE] = r[row + SCHEDULING]


@inner
def by_turns(pools: Floats, pool: int) -> bool:
    """Whether some go before others that came earlier; `due` is taken for fifo."""
    return bool(pools[pool, DISCIPLINE] == BY_PRIORITY or pools[pool, DISCIPLINE] == BY_MEAN)


@inner
def turn_of(r: Floats, row: int, pools: Floats, pool: int) -> float:
    """What such a pool chooses by: the lowest first, and of equals the one that came first."""
    return float(-r[row + PRIORITY] if pools[pool, DISCIPLINE] == BY_PRIORITY else r[row + SERVICE])


@inner
def next_turn(nodes: Ints, r: Floats, pools: Floats, pool: int, last: float) -> float:
    """The turn after `last`, or infinity."""
    found = math.inf
    for number in range(len(nodes)):
        row = nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool:
            turn = turn_of(r, row, pools, pool)
            if last < turn < found:
                found = turn
    return found


@inner
def turns_differ(nodes: Ints, r: Floats, pools: Floats, pool: int) -> bool:
    first = next_turn(nodes, r, pools, pool, -math.inf)
    return next_turn(nodes, r, pools, pool, first) < math.inf


@inner
def wait_by_turns(
    nodes: Ints, r: Floats, per_server: float, servers: int, pools: Floats, b: Floats, others: Floats, pool: int
) -> None:
    """The wait of every activity of a pool that goes by turns, the first turn first."""
    load, chance = pools[pool, 0], pools[pool, ALL_BUSY]
    found, taken = chance * pools[pool, 2] / load / (2 * servers), 0.0
    more = chance / (per_server * load) if per_server > 0 else 0.0  # of one's own case, as in fifo
    turn = next_turn(nodes, r, pools, pool, -math.inf)
    while turn < math.inf:
        share = own = 0.0
        for number in range(len(nodes)):
            block, row = number * FIELDS, nodes[number, 1] * COLUMNS
            if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool and turn_of(r, row, pools, pool) == turn:
                others[number] /= 1 - taken
                work = per_server * b[block + VISITS] * b[block + TRIES] * b[block + KEPT] * r[row + SERVICE]
                share += work
                own += more * work * others[number]
        virtual = (found + own) / (1 - taken - share)
        for number in range(len(nodes)):
            block, row = number * FIELDS, nodes[number, 1] * COLUMNS
            if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool and turn_of(r, row, pools, pool) == turn:
                b[block + WAIT] = virtual + others[number]
                within = others[number] * load / pools[pool, 1] / servers
                b[block + WAIT_VAR] = virtual * virtual * (2 / max(chance, 1e-9) - 1) + within
        found += share * virtual + own
        taken += share
        turn = next_turn(nodes, r, pools, pool, turn)


@inner
def behind_own(line: Floats, servers: int, ahead: float, work: float) -> float:
    """The wait for `ahead` of one's own case with so much work: each counts if the others leave it no server."""
    if ahead <= 0:
        return 0.0
    total = 0.0
    whole = int(ahead)
    for k in range(1, whole + 2):
        part = 1.0 if k <= whole else ahead - whole
        total += part * line[max(servers - k, 0)]
    return total * work / ahead / servers


@inner
def add_up(nodes: Ints, r: Floats, pools: Floats, b: Floats) -> None:
    """What the pools have to do for one case."""
    pools[:, :3] = 0.0
    for number in range(len(nodes)):
        row = nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + POOL] >= 0:
            pool, block = int(r[row + POOL]), number * FIELDS
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            pools[pool, 0] += often * r[row + SERVICE]
            pools[pool, 1] += often
            pools[pool, 2] += often * r[row + SERVICE] ** 2 * (1 + r[row + SCV])


@compiled
def plain_times(nodes: Ints, links: Ints, weights: Floats, rows: Floats) -> Floats:
    """How long each block takes at mean durations with nobody waiting: when bodies are broken off goes by it."""
    r, times = rows.reshape(-1), np.zeros(len(nodes))
    for number in range(len(nodes)):
        kind, detail, first, count = nodes[number]
        if kind == ACTIVITY:
            times[number] = r[detail * COLUMNS + SERVICE] + r[detail * COLUMNS + DELAY]
        elif kind == SEQUENCE:
            for child in links[first : first + count]:
                times[number] += times[child]
        elif kind == PARALLEL:
            for child in links[first : first + count]:
                times[number] = max(times[number], times[child])
        elif kind == CHOICE:
            for place in range(first, first + count):
                times[number] += weights[place] * times[links[place]]
        elif kind == LOOP:
            again, body, redo = weights[first], times[links[first]], times[links[first + 1]]
            times[number] = body + again / (1 - again) * (body + redo)
        elif kind == ORDER:
            times[number] = longest_way(times, links[first : first + count], links[detail:])
        elif count > 0:
            times[number] = times[links[first]]
    return times


@inner
def longest_way(times: Floats, parts: Ints, edges: Ints) -> float:
    begins, longest = np.zeros(len(parts)), 0.0
    edge = 1
    for part in range(len(parts)):
        while edge < 2 * edges[0] + 1 and edges[edge + 1] == part:
            begins[part] = max(begins[part], begins[edges[edge]] + times[parts[edges[edge]]])
            edge += 2
        longest = max(longest, begins[part] + times[parts[part]])
    return longest


@compiled
def solve(
    nodes: Ints, links: Ints, weights: Floats, rows: Floats, servers: Ints, rate: float, table: Floats
) -> tuple[Floats, Floats]:
    """The results of the design, and per pool: load, arrivals and second moment of one case, a time scale, and more.

    With a pool overloaded, times are without waiting.
    """
    b, pools, others = np.zeros(len(nodes) * FIELDS), np.zeros((len(servers), 8)), np.zeros(len(nodes))
    stack, flows = np.zeros(2 * len(nodes), np.int64), np.zeros(2 * len(nodes))
    nominal, r = plain_times(nodes, links, weights, rows), rows.reshape(-1)
    b[(len(nodes) - 1) * FIELDS + PARENT] = -1
    for number in range(len(nodes)):
        first, count = nodes[number, 2], nodes[number, 3]
        b[number * FIELDS + LOWEST] = b[links[first] * FIELDS + LOWEST] if count > 0 else number
        b[number * FIELDS + ROOM] = math.inf
        if nodes[number, 0] == ACTIVITY and r[nodes[number, 1] * COLUMNS + POOL] >= 0:
            b[number * FIELDS + ROOM] = servers[int(r[nodes[number, 1] * COLUMNS + POOL])]
        for child in links[first : first + count]:
            b[child * FIELDS + PARENT] = number
    disciplines(nodes, r, pools)
    for turn in range(ROUNDS + 1):
        put_together(nodes, links, weights, r, table, nominal, b)
        spread_out(nodes, links, weights, b)
        kept_work(nodes, links, weights, r, table, nominal, b)
        add_up(nodes, r, pools, b)
        busiest = 0.0
        for pool in range(len(servers)):
            busiest = max(busiest, rate * pools[pool, 0] / servers[pool])
        if turn == ROUNDS or busiest >= 1:
            break
        own_case(nodes, links, r, table, pools, b, others)
        if turn > 0:
            follow_on(nodes, links, weights, r, b, rate, pools, stack, flows)
        wait(nodes, r, servers, rate, pools, b, others, turn)
    return results(nodes, r, rate, b), pools


@inner
def results(nodes: Ints, r: Floats, rate: float, b: Floats) -> Floats:
    found = np.zeros(RESULTS)
    root = (len(nodes) - 1) * FIELDS
    found[CYCLE], found[COMPLETED] = b[root + MEAN], b[root + GOES_ON]
    for number in range(len(nodes)):
        if nodes[number, 0] == ACTIVITY:
            row, block = nodes[number, 1] * COLUMNS, number * FIELDS
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            found[WAITING] += often * b[block + WAIT]
            found[SPENT] += often * r[row + COST]
            found[CORES] += rate * often * r[row + SERVICE] * r[row + CPU]
            found[BYTES] += rate * often * r[row + SERVICE] * r[row + MEMORY]
    return found
