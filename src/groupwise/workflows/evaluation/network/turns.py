"""Pools that take those waiting by turns: by priority, or the shortest first."""

from __future__ import annotations

import math

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import ACTIVITY, Floats, Ints
from groupwise.workflows.evaluation.network.fields import (
    ALL_BUSY,
    BY_MEAN,
    BY_PRIORITY,
    COLUMNS,
    DISCIPLINE,
    FIELDS,
    KEPT,
    POOL,
    PRIORITY,
    SCHEDULING,
    SERVICE,
    TRIES,
    VISITS,
    WAIT,
    WAIT_VAR,
)


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
