"""How an activity competes with its own case for the servers of its pool, under every queueing discipline.

Two activities of one case that are in progress at once and share a pool may find each other in its queue. For every
such pair, `meets` estimates how likely one is in front of the other; `meet_siblings` adds this up per activity.
"""

# ruff: noqa: F405  (names in capitals are constants of array_format and network_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.network.gamma_tables import distribution, phi
from groupwise.workflows.evaluation.network.network_fields import *  # noqa: F403
from groupwise.workflows.evaluation.numba_compiler import inner


@inner
def disciplines(nodes: Ints, r: Floats, pools: Floats) -> None:
    """The discipline of each pool: that of its first activity that asks for another than fifo."""
    for number in range(len(nodes)):
        row = nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + SCHEDULING] != 0 and r[row + POOL] >= 0:
            pool = int(r[row + POOL])
            if pools[pool, DISCIPLINE] == 0:
                pools[pool, DISCIPLINE] = r[row + SCHEDULING]


@inner
def by_turns(pools: Floats, pool: int) -> bool:
    """Whether later arrivals may overtake earlier ones; `due` is approximated by fifo."""
    return bool(pools[pool, DISCIPLINE] == BY_PRIORITY or pools[pool, DISCIPLINE] == BY_MEAN)


@inner
def turn_of(r: Floats, row: int, pools: Floats, pool: int) -> float:
    """The rank by which such a pool serves: lowest first, equal ranks first come first served."""
    return float(-r[row + PRIORITY] if pools[pool, DISCIPLINE] == BY_PRIORITY else r[row + SERVICE])


@inner
def next_turn(nodes: Ints, r: Floats, pools: Floats, pool: int, last: float) -> float:
    """The lowest rank above `last` in a pool, or infinity."""
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
    """Whether a pool has activities of at least two ranks; otherwise it is fifo after all."""
    first = next_turn(nodes, r, pools, pool, -math.inf)
    return next_turn(nodes, r, pools, pool, first) < math.inf


@inner
def concurrent(nodes: Ints, links: Ints, b: Floats, one: int, other: int) -> int:
    """The innermost block around two activities if they can be in progress at once, otherwise −1; one > other."""
    # Climb from `one` to the first block that also contains `other`.
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
    """Whether part `late` of an order depends on part `early`; edges are sorted by their later end."""
    after = np.zeros(count, np.bool_)
    after[early] = True
    for edge in range(edges[0]):
        if after[edges[1 + 2 * edge]]:
            after[edges[2 + 2 * edge]] = True
    return bool(after[late])


@inner
def meets(table: Floats, r: Floats, row: int, b: Floats, there: int, lag: float, spread: float, first: bool) -> float:
    """The probability that an activity finds another of its case in front of it, begun `lag` earlier and not done.

    The difference D of their start times is taken as normal with mean `lag` and variance `spread`; the result is
    P(D > 0) · P(T > E[D | D > 0]) for the other's time in the pool T. `first` decides ties: the other came first.
    """
    lasts = b[there + WAIT] + r[row + SERVICE]
    if lasts <= 0:
        return 0.0
    var = b[there + WAIT_VAR] + r[row + SERVICE] ** 2 * r[row + SCV]
    deviation = math.sqrt(max(spread, 0.0))
    if lag < -4 * deviation or lag - 4 * deviation > lasts + 6 * math.sqrt(var):
        # Surely later, or surely over: most pairs end here, which saves the table look-up.
        return 0.0
    if deviation < 1e-6 * lasts:  # the order of starts is certain
        if lag < 0 or (lag == 0 and not first):
            return 0.0
        return 1 - distribution(table, lasts, var, lag)
    z = lag / deviation
    earlier = phi(z)
    if earlier < 1e-6:
        return 0.0
    # E[D | D > 0] of a normal D = lag + deviation · φ(z) / Φ(z); the constant is 1/√2π
    since = lag + deviation * math.exp(-z * z / 2) * 0.3989422804014327 / earlier
    return earlier * (1 - distribution(table, lasts, var, since))


@inner
def still_waits(b: Floats, there: int, all_busy: float, lag: float, spread: float, first: bool) -> float:
    """The probability that an activity finds another of its case, begun `lag` earlier, still waiting.

    A wait is 0 or, with probability `all_busy`, exponential of mean WAIT / all_busy.
    """
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
    """Correct the probabilities that the first is behind the second (q) and the reverse (p) for overtaking.

    The one with the better rank overtakes the other if that is still waiting.
    """
    gain = turn_of(r, its, pools, pool) - turn_of(r, mine, pools, pool)
    if gain > 0:
        passed = min(q, still_waits(b, there, pools[pool, ALL_BUSY], lag, spread, True))
        return q - passed, p + passed
    if gain < 0:
        passed = min(p, still_waits(b, here, pools[pool, ALL_BUSY], -lag, spread, False))
        return q + passed, p - passed
    return q, p


@inner
def meet_siblings(nodes: Ints, links: Ints, r: Floats, table: Floats, pools: Floats, b: Floats, others: Floats) -> None:
    """Per activity, how many of its own case it finds in its pool (AHEAD, ALIKE) and their work; per block, SHARED.

    Waits of one case at one pool are positively correlated, the more the closer in time they are relative to the
    pool's relaxation time; SHARED carries that covariance to the maximum over the branches.
    """
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
            # Both begin after the common block begins, so the variance of that moment cancels in the difference.
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
            # Waits closer together than the pool's relaxation time are nearly the same wait.
            apart = math.sqrt(lag * lag + max(spread, 0.0))
            near = pools[pool, 3] / (pools[pool, 3] + apart) if pools[pool, 3] > 0 else 0.0
            both = min(often_here, 1.0) * min(often_there, 1.0) * near * min(b[here + WAIT_VAR], b[there + WAIT_VAR])
            b[above + SHARED] += both * branch_weight(b, one, around) * branch_weight(b, other, around)
    average_shared(nodes, links, b)


@inner
def average_shared(nodes: Ints, links: Ints, b: Floats) -> None:
    """Turn SHARED, summed over pairs with weights w_i w_j, into the weighted mean: Σ_{i<j} w_i w_j = (S² − Σ w²)/2."""
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
    """The weight of the branch of `around` that an activity lies in: long branches decide which one ends last."""
    while b[inside * FIELDS + PARENT] != around:
        inside = int(b[inside * FIELDS + PARENT])
    return float(b[inside * FIELDS + MEAN] ** 2)


@inner
def copies_around(nodes: Ints, links: Ints, r: Floats, table: Floats, b: Floats, others: Floats, one: int) -> None:
    """Add to ALIKE the copies of an activity that are in progress at once in instances around it."""
    here, mine = one * FIELDS, nodes[one, 1] * COLUMNS
    around = int(b[here + PARENT])
    while around >= 0:
        kind, detail, _, _ = nodes[around]
        if kind == INSTANCES:
            # Of every pair of copies one is in front, so each finds half of the others that it meets.
            done = b[here + KEPT] * (links[detail] + links[detail + 1]) / 2
            spread = 2 * (b[here + SPREAD] - b[around * FIELDS + SPREAD])
            both = meets(table, r, mine, b, here, 0.0, spread, True) + meets(
                table, r, mine, b, here, 0.0, spread, False
            )
            b[here + ALIKE] += both * max(done - 1, 0.0) / 2
            others[one] += both * max(done - 1, 0.0) / 2 * r[mine + SERVICE]
            b[around * FIELDS + SHARED] += b[here + WAIT_VAR]
        around = int(b[around * FIELDS + PARENT])
