"""How long activities wait for the servers of their pools."""

from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.encoding import ACTIVITY, Floats, Ints
from groupwise.workflows.evaluation.network.fields import (
    AHEAD,
    ALIKE,
    ALL_BUSY,
    AMONG,
    BURDEN,
    COLUMNS,
    FIELDS,
    KEPT,
    POOL,
    ROOM,
    SCV,
    SERVICE,
    TRIES,
    VISITS,
    WAIT,
    WAIT_VAR,
)
from groupwise.workflows.evaluation.network.follow_on import burden
from groupwise.workflows.evaluation.network.turns import by_turns, turns_differ, wait_by_turns


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
