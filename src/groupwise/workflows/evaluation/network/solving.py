"""The whole: times, visits and waits, in turns."""

from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.compiled import compiled, inner
from groupwise.workflows.evaluation.encoding import ACTIVITY, CHOICE, LOOP, ORDER, PARALLEL, SEQUENCE, Floats, Ints
from groupwise.workflows.evaluation.network.blocks import put_together
from groupwise.workflows.evaluation.network.fields import (
    BYTES,
    COLUMNS,
    COMPLETED,
    CORES,
    COST,
    CPU,
    CYCLE,
    DELAY,
    FIELDS,
    GOES_ON,
    KEPT,
    LOWEST,
    MEAN,
    MEMORY,
    PARENT,
    POOL,
    RESULTS,
    ROOM,
    SERVICE,
    SPENT,
    TRIES,
    VISITS,
    WAIT,
    WAITING,
)
from groupwise.workflows.evaluation.network.follow_on import follow_on
from groupwise.workflows.evaluation.network.own_case import own_case
from groupwise.workflows.evaluation.network.turns import disciplines
from groupwise.workflows.evaluation.network.visits import kept_work, spread_out
from groupwise.workflows.evaluation.network.waiting import add_up, wait

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
