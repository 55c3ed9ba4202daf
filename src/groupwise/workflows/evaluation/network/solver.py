"""Waiting times at pools, and the fixed point of times, visits and waits."""

# ruff: noqa: F405  (names in capitals are columns of network_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import (
    ACTIVITY,
    CHOICE,
    INSTANCES,
    LOOP,
    ORDER,
    PARALLEL,
    SEQUENCE,
    SKIP,
    Floats,
    Ints,
)
from groupwise.workflows.evaluation.network.block_times import kept_work, put_together, spread_out
from groupwise.workflows.evaluation.network.network_fields import *  # noqa: F403
from groupwise.workflows.evaluation.network.own_case import by_turns, disciplines, own_case, turns_differ, wait_by_turns


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


ROUNDS = 2


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
