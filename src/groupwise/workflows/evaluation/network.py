"""The compiled part of the analytic tier: how long blocks take, and how long activities wait for their pools.

Every block is known by the mean and the second moment of its time, the probability that its case goes on after it, and
its mean time where it does. Times are put together bottom up; the last of several at once is E[max] = ∫ 1 − Π F_i over
gamma distributions of the same mean and variance, exact for exponential ones. Then, top down, come visits and the time
at which each activity wants to start, and from them the loads.

A pool of c servers at load ρ keeps an activity waiting for the work of other cases and for that of its own case:

    W_i = V + own_i,    V = C(c, ρ) / (1 − ρ) · ( s (1 + scv) / 2c + mean of own )

C is Erlang's delay probability, s and scv are those of all that the pool does (Allen and Cunneen 1990, Poisson
arrivals). `own_i` is the wait for what the same case wants of the pool at the same time: with c = 1 it is the work in
front, which makes W exact for batches at an M/G/1 queue. As waiting decides who meets whom, this goes round three times.
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
    Floats,
    Ints,
)

POOL, SERVICE, SCV, FAILED, RETRIES = (ROW.index(name) for name in ("pool", "mean", "scv", "failed", "retries"))
PAUSE, GROWTH, DELAY, KNOCK_OUT = (ROW.index(name) for name in ("pause", "growth", "delay", "knock_out"))
COST, CPU, MEMORY = (ROW.index(name) for name in ("cost", "cpu", "memory"))

# The columns of what is known of a block.
MEAN, SECOND, GOES_ON, MEAN_ON, VISITS, BEGINS, SPREAD, WAIT, WAIT_VAR = range(9)
SHARED, PARENT, LOWEST, TRIES, KEPT, AHEAD, ALIKE, AMONG, ROOM = range(9, 18)
"""BEGINS and SPREAD are mean and variance of the time at which it begins, SHARED the covariance of its branches, KEPT
the part of its work that is not broken off, AHEAD how many of its own case are in front of it, ALIKE how many of them
are copies of it, AMONG the wait for those, ROOM how many servers are free for a case on average."""
FIELDS = 18
CYCLE, COMPLETED, WAITING, SPENT, CORES, BYTES = range(6)
RESULTS = 6
ROUNDS = 3
POINTS = 48
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
    return np.minimum(np.column_stack([total, np.ones(SHAPES)]), 1.0)


@inner
def below(table: Floats, shape: float, t: float) -> float:
    """The probability of at most `t` times the mean; `shape` is 1 / scv."""
    if t <= 0:
        return 0.0
    row = (math.log2(shape) - LOWEST_SHAPE) * PER_OCTAVE
    row = min(max(row, 0.0), SHAPES - 1.001)
    place = t / (1 + t) * PLACES
    r, p = int(row), int(place)
    dr, dp = row - r, place - p
    low = table[r, p] + dp * (table[r, p + 1] - table[r, p])
    high = table[r + 1, p] + dp * (table[r + 1, p + 1] - table[r + 1, p])
    return low + dr * (high - low)


@inner
def phi(z: float) -> float:
    return 0.5 * math.erfc(-z * 0.7071067811865476)


@inner
def distribution(table: Floats, mean: float, var: float, x: float) -> float:
    """The probability of at most x, of a gamma distribution or a fixed value."""
    if mean <= 0 or var <= STEADY * mean * mean:
        return 1.0 if x >= mean else 0.0
    return below(table, mean * mean / var, x / mean)


@inner
def latest(table: Floats, means: Floats, variances: Floats, count: int, shared: float) -> tuple[float, float]:
    """Mean and variance of the last of several, which have a part of their variance in common."""
    top, floor, longest = 0.0, 0.0, 0.0
    for i in range(count):
        own = max(variances[i] - shared, 0.0)
        longest = max(longest, means[i])
        if own <= STEADY * means[i] * means[i]:
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
            own = max(variances[i] - shared, 0.0)
            if own > STEADY * means[i] * means[i]:
                product *= below(table, means[i] * means[i] / own, x / means[i])
        weight = (1 if point == 0 or point == POINTS else 4 if point % 2 else 2) * step / 3
        first += weight * (1 - product)
        second += weight * 2 * x * (1 - product)
    first += floor
    second += floor * floor
    return max(first, longest), max(second - first * first, 0.0) + shared


@inner
def earliest(
    table: Floats, mean: float, var: float, goes_on: float, least: int, most: int, enough: int
) -> tuple[float, float, float]:
    """Mean and second moment of the time until `enough` of some copies ended well, or all ended; and how likely."""
    top = mean + 8 * math.sqrt(var)
    step = top / POINTS
    first = second = well = 0.0
    share = 1.0 / (most - least + 1)
    for point in range(POINTS + 1):
        x = point * step
        f = distribution(table, mean, var, x) if point < POINTS else 1.0
        still = 0.0
        for copies in range(least, most + 1):
            at_last = at_least(copies, enough, goes_on)
            still += share * (1 - at_least(copies, enough, goes_on * f) - f**copies * (1 - at_last))
            if point == 0:
                well += share * at_last
        weight = (1 if point == 0 or point == POINTS else 4 if point % 2 else 2) * step / 3
        first += weight * still
        second += weight * 2 * x * still
    return first, second, well


@inner
def at_least(copies: int, enough: int, p: float) -> float:
    """The probability that at least `enough` of `copies` happen, each with probability p."""
    if p >= 1:
        return 1.0
    term = (1 - p) ** copies
    missing = 0.0
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
def activity(row: Floats, block: Floats) -> None:
    """An activity's time with retries, from its wait per try."""
    one = block[WAIT] + row[SERVICE]
    spread = block[WAIT_VAR] + row[SERVICE] ** 2 * row[SCV]
    failed, more = row[FAILED], int(row[RETRIES])
    here, pause, reach = row[DELAY], row[PAUSE], 1.0
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
        pause *= row[GROWTH]
    block[MEAN], block[SECOND], block[TRIES] = mean, second, tries
    block[GOES_ON] = (1 - reach) * (1 - row[KNOCK_OUT])
    block[MEAN_ON] = on * (1 - row[KNOCK_OUT])


@inner
def repeat(block: Floats, body: Floats, redo: Floats, again: float) -> None:
    """A loop: X = body, and if it goes on, with probability `again` redo and X once more."""
    back = body[GOES_ON] * again * redo[GOES_ON]
    mean = (body[MEAN] + body[GOES_ON] * again * redo[MEAN]) / (1 - back)
    rest = redo[MEAN] + redo[GOES_ON] * mean
    twice = body[GOES_ON] * again * (redo[SECOND] + 2 * redo[MEAN_ON] * mean)
    block[MEAN] = mean
    block[SECOND] = (body[SECOND] + 2 * again * body[MEAN_ON] * rest + twice) / (1 - back)
    on = body[GOES_ON] * (1 - again) / (1 - back)
    block[GOES_ON] = on
    through = body[MEAN_ON] * redo[GOES_ON] + body[GOES_ON] * redo[MEAN_ON]
    block[MEAN_ON] = (body[MEAN_ON] * (1 - again) + again * through * on) / (1 - back)


@inner
def order(table: Floats, blocks: Floats, number: int, inside: Ints, edges: Ints) -> None:
    """A partial order: every part begins with the last of those before it; what they share is followed by covariances.

    Clark, "The greatest of a finite set of random variables" (1961), for the covariance of a maximum.
    """
    count, block = len(inside), blocks[number]
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
                both = max(min(along[before] + block[SHARED], min(var, pair_var[1])), 0.0)
                apart = math.sqrt(max(var + pair_var[1] - 2 * both, 1e-300))
                first = phi((mean - ends[before]) / apart)
                mean, var = latest(table, pair, pair_var, 2, both)
                for other in range(count):
                    along[other] = first * along[other] + (1 - first) * shared[before, other]
            else:
                mean, var, found = ends[before], shared[before, before], True
                along[:] = shared[before]
        if part == count:
            block[MEAN], block[SECOND] = mean, var + mean * mean
            break
        here = blocks[inside[part]]
        reach = 1.0
        for other in range(count):
            if alive[part, other]:
                reach *= blocks[inside[other], GOES_ON]
        goes_on *= here[GOES_ON]
        here[BEGINS], here[SPREAD], here[VISITS] = mean, var, reach
        ends[part] = mean + reach * here[MEAN]
        var += reach * here[SECOND] - (reach * here[MEAN]) ** 2
        shared[part] = along
        shared[:, part] = along
        shared[part, part] = var
    block[GOES_ON] = goes_on
    block[MEAN_ON] = goes_on * block[MEAN]


@inner
def put_together(
    nodes: Ints, links: Ints, weights: Floats, rows: Floats, table: Floats, nominal: Floats, blocks: Floats
) -> None:
    """The times of all blocks, bottom up."""
    means, variances = np.zeros(len(nodes)), np.zeros(len(nodes))
    for number in range(len(nodes)):
        kind, detail, first, count = nodes[number]
        block = blocks[number]
        if kind == ACTIVITY:
            activity(rows[detail], block)
        elif kind == SEQUENCE:
            mean = second = on = 0.0
            goes_on = 1.0
            for child in links[first : first + count]:
                part = blocks[child]
                second += 2 * on * part[MEAN] + goes_on * part[SECOND]
                mean += goes_on * part[MEAN]
                on = on * part[GOES_ON] + goes_on * part[MEAN_ON]
                goes_on *= part[GOES_ON]
            block[MEAN], block[SECOND], block[MEAN_ON], block[GOES_ON] = mean, second, on, goes_on
        elif kind == PARALLEL:
            goes_on = 1.0
            for slot in range(count):
                part = blocks[links[first + slot]]
                means[slot] = part[MEAN]
                variances[slot] = part[SECOND] - part[MEAN] ** 2
                goes_on *= part[GOES_ON]
            mean, var = latest(table, means, variances, count, block[SHARED])
            block[MEAN], block[SECOND] = mean, var + mean * mean
            block[MEAN_ON], block[GOES_ON] = mean * goes_on, goes_on
        elif kind == CHOICE:
            block[MEAN], block[SECOND], block[GOES_ON], block[MEAN_ON] = 0.0, 0.0, 0.0, 0.0
            for place in range(first, first + count):
                part = blocks[links[place]]
                for field in (MEAN, SECOND, GOES_ON, MEAN_ON):
                    block[field] += weights[place] * part[field]
        elif kind == LOOP:
            repeat(block, blocks[links[first]], blocks[links[first + 1]], weights[first])
        elif kind == ORDER:
            order(table, blocks, number, links[first : first + count], links[detail:])
        elif kind == CANCELLABLE:
            body = links[first]
            cancellable(table, block, blocks[body], blocks[links[first + 1]], weights[first], nominal[body])
        elif kind == INSTANCES:
            copies(table, block, blocks[links[first]], links[detail], links[detail + 1], links[detail + 2])
        else:
            block[MEAN], block[SECOND], block[GOES_ON], block[MEAN_ON] = 0.0, 0.0, 1.0, 0.0


@inner
def cancellable(table: Floats, block: Floats, body: Floats, handler: Floats, chance: float, limit: float) -> None:
    mean = second = 0.0
    if limit > 0:
        mean, second = cut_short(table, body[MEAN], body[SECOND] - body[MEAN] ** 2, limit)
    block[MEAN] = (1 - chance) * body[MEAN] + chance * (mean + handler[MEAN])
    block[SECOND] = (1 - chance) * body[SECOND] + chance * (second + 2 * mean * handler[MEAN] + handler[SECOND])
    block[GOES_ON] = (1 - chance) * body[GOES_ON] + chance * handler[GOES_ON]
    broken = handler[MEAN_ON] + mean * handler[GOES_ON]
    block[MEAN_ON] = (1 - chance) * body[MEAN_ON] + chance * broken
    handler[BEGINS] = mean


@inner
def copies(table: Floats, block: Floats, body: Floats, least: int, most: int, enough: int) -> None:
    """Instances: copies that all have room end independently, those that have not one after the other."""
    alone = max(body[MEAN] - body[AMONG], 0.0)
    var = max(body[SECOND] - body[MEAN] ** 2 - block[SHARED] - body[AMONG] ** 2, 0.0)
    mean, second, well = earliest(table, alone, var, body[GOES_ON], least, most, enough)
    wide = abreast(body[ROOM], (least + most) / 2) if body[TRIES] > 0 else 1.0
    queued = (1 - wide) * (alone - body[WAIT] + body[AMONG])  # what one takes apart from waiting
    more = max(alone + queued * (enough - 1) / (1 - wide) - mean, 0.0) * (1 - wide) if wide < 1 else 0.0
    block[MEAN] = mean + more
    block[SECOND] = second + block[SHARED] + 2 * mean * more + more * more
    block[GOES_ON], block[MEAN_ON] = well, well * (mean + more)


@inner
def spread_out(nodes: Ints, links: Ints, weights: Floats, blocks: Floats) -> None:
    """How often every block is visited in a case, and when it begins, top down."""
    root = blocks[len(nodes) - 1]
    root[VISITS], root[BEGINS], root[SPREAD] = 1.0, 0.0, 0.0
    for number in range(len(nodes) - 1, -1, -1):
        kind, detail, first, count = nodes[number]
        block = blocks[number]
        visits, begins, spread = block[VISITS], block[BEGINS], block[SPREAD]
        for place in range(first, first + count):
            part = blocks[links[place]]
            if kind == ORDER:
                part[VISITS] *= block[VISITS]
                part[BEGINS] += block[BEGINS]
                part[SPREAD] += block[SPREAD]
                continue
            after = part[BEGINS]  # of a handler: when the body is broken off
            part[VISITS], part[BEGINS], part[SPREAD] = visits, begins, spread
            if kind == SEQUENCE:
                lasts = part[MEAN_ON] / part[GOES_ON] if part[GOES_ON] > 0 else part[MEAN]
                begins += lasts
                spread += max(part[SECOND] - part[MEAN] ** 2, 0.0)
                visits *= part[GOES_ON]
            elif kind == CHOICE:
                part[VISITS] = visits * weights[place]
            elif kind == CANCELLABLE and place > first:
                part[VISITS] = visits * weights[first]
                part[BEGINS] = begins + after
            elif kind == INSTANCES:
                part[VISITS] = visits * (links[detail] + links[detail + 1]) / 2
        if kind == LOOP:
            go_round(block, blocks[links[first]], blocks[links[first + 1]], weights[first])


@inner
def go_round(block: Floats, body: Floats, redo: Floats, again: float) -> None:
    """Visits inside a loop, and when they begin on average over all rounds."""
    back = body[GOES_ON] * again * redo[GOES_ON]
    body[VISITS] = block[VISITS] / (1 - back)
    redo[VISITS] = body[VISITS] * body[GOES_ON] * again
    once = body[MEAN] + redo[MEAN]
    rounds = back / (1 - back)
    body[BEGINS] += rounds * once
    redo[BEGINS] = body[BEGINS] + body[MEAN]
    body[SPREAD] += rounds / (1 - back) * once * once
    redo[SPREAD] = body[SPREAD] + max(body[SECOND] - body[MEAN] ** 2, 0.0)


@inner
def kept_work(
    nodes: Ints, links: Ints, weights: Floats, rows: Floats, table: Floats, nominal: Floats, blocks: Floats
) -> None:
    """What part of an activity's work is done where bodies and copies around it are broken off."""
    for number in range(len(nodes)):
        if nodes[number, 0] != ACTIVITY:
            continue
        block = blocks[number]
        block[KEPT] = 1.0
        child, around = number, int(block[PARENT])
        while around >= 0:
            kind, detail, first, _ = nodes[around]
            if kind == CANCELLABLE and links[first] == child:
                start = block[BEGINS] - blocks[around, BEGINS] + block[WAIT] + rows[nodes[number, 1], DELAY]
                done = done_by(start, start + rows[nodes[number, 1], SERVICE], nominal[child])
                block[KEPT] *= 1 - weights[first] * (1 - done)
            elif kind == INSTANCES:
                row = rows[nodes[number, 1]]
                mean, var = row[SERVICE], row[SERVICE] ** 2 * row[SCV]
                if child != number:
                    mean, var = blocks[child, MEAN], blocks[child, SECOND] - blocks[child, MEAN] ** 2
                block[KEPT] *= done_of_copies(
                    table, mean, var, block[ROOM], links[detail], links[detail + 1], links[detail + 2]
                )
            child, around = around, int(blocks[around, PARENT])


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
def done_of_copies(table: Floats, mean: float, var: float, room: float, least: int, most: int, enough: int) -> float:
    """The part of the copies' work that is done until enough of them are.

    One after the other it is theirs alone. All at once every copy works until the last of them: Σ E[S_(j)] for those,
    and E[S_(enough)] for each of the others. In between it goes by how many have room at once.
    """
    copies = (least + most) / 2
    if copies <= 1 or mean <= 0 or enough == copies:
        return 1.0
    at_once = sooner = 0.0
    for number in range(1, enough + 1):
        sooner = earliest(table, mean, var, 1.0, least, most, number)[0] / mean
        at_once += sooner
    at_once += (copies - enough) * sooner
    width = abreast(room, copies)
    return min((enough + width * (at_once - enough)) / copies, 1.0)


@inner
def abreast(room: float, copies: float) -> float:
    """From 0, one after the other, to 1, all copies at once."""
    return min(max((room - 1) / (copies - 1), 0.0), 1.0) if copies > 1 else 0.0


@inner
def concurrent(nodes: Ints, links: Ints, blocks: Floats, one: int, other: int) -> int:
    """The block in which two activities (the first with the higher number) are under way at once, or −1."""
    child, around = one, int(blocks[one, PARENT])
    while blocks[around, LOWEST] > other:
        child, around = around, int(blocks[around, PARENT])
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
        if blocks[inside, LOWEST] <= other <= inside:
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
def meets(table: Floats, row: Floats, there: Floats, lag: float, spread: float, first: bool) -> float:
    """The probability that one finds another of its case before it: begun `lag` earlier on average, and not done."""
    lasts = there[WAIT] + row[SERVICE]
    if lasts <= 0:
        return 0.0
    var = there[WAIT_VAR] + row[SERVICE] ** 2 * row[SCV]
    deviation = math.sqrt(max(spread, 0.0))
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
def own_case(
    nodes: Ints, links: Ints, rows: Floats, table: Floats, pools: Floats, blocks: Floats, others: Floats
) -> None:
    """How many of its own case each activity finds in its pool, and what waits have in common."""
    blocks[:, AHEAD] = 0.0
    blocks[:, ALIKE] = 0.0
    blocks[:, SHARED] = 0.0
    others[:] = 0.0
    for one in range(len(nodes)):
        if nodes[one, 0] != ACTIVITY or rows[nodes[one, 1], POOL] < 0:
            continue
        here, mine = blocks[one], rows[nodes[one, 1]]
        pool = int(mine[POOL])
        copies_around(nodes, links, rows, table, blocks, others, one)
        for other in range(one):
            if nodes[other, 0] != ACTIVITY or rows[nodes[other, 1], POOL] != pool:
                continue
            around = concurrent(nodes, links, blocks, one, other)
            if around < 0:
                continue
            there, its = blocks[other], rows[nodes[other, 1]]
            above = blocks[around]
            if above[VISITS] <= 0:
                continue
            lag = here[BEGINS] - there[BEGINS]
            spread = here[SPREAD] + there[SPREAD] - 2 * above[SPREAD]
            often_here = here[VISITS] * here[TRIES] / above[VISITS]
            often_there = there[VISITS] * there[TRIES] / above[VISITS]
            q = min(often_there, 1.0) * meets(table, its, there, lag, spread, True)
            here[AHEAD] += q
            others[one] += q * its[SERVICE]
            p = min(often_here, 1.0) * meets(table, mine, here, -lag, spread, False)
            there[AHEAD] += p
            others[other] += p * mine[SERVICE]
            apart = math.sqrt(lag * lag + max(spread, 0.0))
            near = pools[pool, 3] / (pools[pool, 3] + apart) if pools[pool, 3] > 0 else 0.0
            both = min(often_here, 1.0) * min(often_there, 1.0) * near * min(here[WAIT_VAR], there[WAIT_VAR])
            above[SHARED] += both * branch_weight(blocks, one, around) * branch_weight(blocks, other, around)
    for number in range(len(nodes)):
        if nodes[number, 0] == PARALLEL or nodes[number, 0] == ORDER:
            total = squares = 0.0
            for child in links[nodes[number, 2] : nodes[number, 2] + nodes[number, 3]]:
                weight = blocks[child, MEAN] ** 2
                total += weight
                squares += weight * weight
            if total * total > squares:
                blocks[number, SHARED] /= (total * total - squares) / 2


@inner
def branch_weight(blocks: Floats, inside: int, around: int) -> float:
    """How much the branch of `around` that an activity is in counts: long ones decide which is the last."""
    while blocks[inside, PARENT] != around:
        inside = int(blocks[inside, PARENT])
    return float(blocks[inside, MEAN] ** 2)


@inner
def copies_around(
    nodes: Ints, links: Ints, rows: Floats, table: Floats, blocks: Floats, others: Floats, one: int
) -> None:
    """The copies of an activity that are under way at once in instances around it."""
    here, mine = blocks[one], rows[nodes[one, 1]]
    around = int(here[PARENT])
    while around >= 0:
        kind, detail, _, _ = nodes[around]
        if kind == INSTANCES:
            done = here[KEPT] * (links[detail] + links[detail + 1]) / 2
            spread = 2 * (here[SPREAD] - blocks[around, SPREAD])
            both = meets(table, mine, here, 0.0, spread, True) + meets(table, mine, here, 0.0, spread, False)
            here[ALIKE] += both * max(done - 1, 0.0) / 2
            others[one] += both * max(done - 1, 0.0) / 2 * mine[SERVICE]
            blocks[around, SHARED] += here[WAIT_VAR]
        around = int(blocks[around, PARENT])


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
def wait(nodes: Ints, rows: Floats, servers: Ints, rate: float, pools: Floats, blocks: Floats, others: Floats) -> None:
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
            if nodes[number, 0] == ACTIVITY and rows[nodes[number, 1], POOL] == pool:
                block, row = blocks[number], rows[nodes[number, 1]]
                ahead_of_it = block[AHEAD] + block[ALIKE]
                own = behind_own(line, count, ahead_of_it, others[number])
                block[AMONG] = own * block[ALIKE] / ahead_of_it if ahead_of_it > 0 else 0.0
                block[ROOM] = max(count * (1 - share), 1.0)
                others[number] = own
                work = block[VISITS] * block[TRIES] * block[KEPT] * row[SERVICE]
                weighted += work * own
                ahead += work * ahead_of_it
        # those that come together find all servers busy more often, at most as often as one server would be
        together = 2 * ahead / load
        chance = line[count] + (share - line[count]) * together / (together + count)
        virtual = chance / (1 - share) * (second / load / (2 * count) + weighted / load)
        mean = load / arrivals
        pools[pool, 3] = mean / count / (1 - math.sqrt(share)) ** 2
        for number in range(len(nodes)):
            if nodes[number, 0] == ACTIVITY and rows[nodes[number, 1], POOL] == pool:
                block = blocks[number]
                block[WAIT] = virtual + others[number]
                block[WAIT_VAR] = virtual * virtual * (2 / max(chance, 1e-9) - 1) + others[number] * mean / count


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
def add_up(nodes: Ints, rows: Floats, pools: Floats, blocks: Floats) -> None:
    """What the pools have to do for one case."""
    pools[:, :3] = 0.0
    for number in range(len(nodes)):
        row = rows[nodes[number, 1]]
        if nodes[number, 0] == ACTIVITY and row[POOL] >= 0:
            pool, often = int(row[POOL]), blocks[number, VISITS] * blocks[number, TRIES] * blocks[number, KEPT]
            pools[pool, 0] += often * row[SERVICE]
            pools[pool, 1] += often
            pools[pool, 2] += often * row[SERVICE] ** 2 * (1 + row[SCV])


@compiled
def plain_times(nodes: Ints, links: Ints, weights: Floats, rows: Floats) -> Floats:
    """How long each block takes at mean durations with nobody waiting: when bodies are broken off goes by it."""
    times = np.zeros(len(nodes))
    for number in range(len(nodes)):
        kind, detail, first, count = nodes[number]
        if kind == ACTIVITY:
            times[number] = rows[detail, SERVICE] + rows[detail, DELAY]
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
    """The results of the design, and per pool: load, arrivals and second moment of one case, and a time scale.

    With a pool overloaded, times are without waiting.
    """
    blocks, pools, others = np.zeros((len(nodes), FIELDS)), np.zeros((len(servers), 4)), np.zeros(len(nodes))
    nominal = plain_times(nodes, links, weights, rows)
    blocks[len(nodes) - 1, PARENT] = -1
    for number in range(len(nodes)):
        first, count = nodes[number, 2], nodes[number, 3]
        blocks[number, LOWEST] = blocks[links[first], LOWEST] if count > 0 else number
        blocks[number, ROOM] = math.inf
        if nodes[number, 0] == ACTIVITY and rows[nodes[number, 1], POOL] >= 0:
            blocks[number, ROOM] = servers[int(rows[nodes[number, 1], POOL])]
        for child in links[first : first + count]:
            blocks[child, PARENT] = number
    for turn in range(ROUNDS + 1):
        put_together(nodes, links, weights, rows, table, nominal, blocks)
        spread_out(nodes, links, weights, blocks)
        kept_work(nodes, links, weights, rows, table, nominal, blocks)
        add_up(nodes, rows, pools, blocks)
        busiest = 0.0
        for pool in range(len(servers)):
            busiest = max(busiest, rate * pools[pool, 0] / servers[pool])
        if turn == ROUNDS or busiest >= 1:
            break
        own_case(nodes, links, rows, table, pools, blocks, others)
        wait(nodes, rows, servers, rate, pools, blocks, others)
    return results(nodes, rows, rate, blocks), pools


@inner
def results(nodes: Ints, rows: Floats, rate: float, blocks: Floats) -> Floats:
    found = np.zeros(RESULTS)
    root = blocks[len(nodes) - 1]
    found[CYCLE], found[COMPLETED] = root[MEAN], root[GOES_ON]
    for number in range(len(nodes)):
        if nodes[number, 0] == ACTIVITY:
            row, block = rows[nodes[number, 1]], blocks[number]
            often = block[VISITS] * block[TRIES] * block[KEPT]
            found[WAITING] += often * block[WAIT]
            found[SPENT] += often * row[COST]
            found[CORES] += rate * often * row[SERVICE] * row[CPU]
            found[BYTES] += rate * often * row[SERVICE] * row[MEMORY]
    return found
