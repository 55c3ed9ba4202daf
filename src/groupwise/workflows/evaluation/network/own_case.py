"""How an activity competes with its own case for the servers of its pool, under every queueing discipline."""

# ruff: noqa: F405  (names in capitals are columns of network_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import ACTIVITY, INSTANCES, ORDER, PARALLEL, Floats, Ints
from groupwise.workflows.evaluation.network.gamma_tables import distribution, phi
from groupwise.workflows.evaluation.network.network_fields import *  # noqa: F403


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
