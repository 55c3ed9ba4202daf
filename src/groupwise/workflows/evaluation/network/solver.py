"""Waiting times at pools, and the rounds of times, visits and waits that `solve` goes through. Open `solve` first."""

# ruff: noqa: F405  (names in capitals are constants of array_format and network_fields)
from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation.array_format import *  # noqa: F403
from groupwise.workflows.evaluation.network.block_times import kept_work, put_together, spread_out
from groupwise.workflows.evaluation.network.network_fields import *  # noqa: F403
from groupwise.workflows.evaluation.network.sibling_contention import (
    by_turns,
    disciplines,
    meet_siblings,
    next_turn,
    turn_of,
    turns_differ,
)
from groupwise.workflows.evaluation.numba_compiler import compiled, inner


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
    """Find activities that directly follow another one in the same pool; they do not arrive at a random time.

    Those in front of the first activity have moved on too, and are in front again if what follows them is in the same
    pool; so are those who arrived from elsewhere in the meantime. Columns of a pool: 4 the work with which those in
    it come back, 5 the work per case that comes back.
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
    """Put the blocks that may come right after an activity on the stack, with probabilities; returns how many."""
    top, child, flow = 0, one, b[one * FIELDS + GOES_ON]
    around = int(b[one * FIELDS + PARENT])
    # Climb from the activity; `flow` is the probability that the case gets past the blocks climbed so far.
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
        elif kind in (PARALLEL, ORDER, INSTANCES):  # what follows also waits for other branches
            return top
        child, around = around, int(b[around * FIELDS + PARENT])
    return top


@inner
def burden(nodes: Ints, r: Floats, b: Floats, rate: float, pools: Floats, pool: int) -> float:
    """Set BURDEN: the work an activity finds in its pool, relative to the average; returns its mean over the work."""
    # The mean work in the pool at a random time: Σ λ_i (E[S_i] W_i + E[S_i²] / 2).
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
                b[block + BURDEN] = 1 + share * (min(found / inside, 3.0) - 1)  # at most threefold
            total += often * r[row + SERVICE] * b[block + BURDEN]
    return float(total / pools[pool, 0])


@inner
def queue(servers: int, load: float, line: Floats) -> None:
    """line[k] = P(at least k servers busy) in M/M/c at an offered load < `servers`; line[servers] is Erlang's C."""
    # Unnormalised probabilities a^k / k! of k busy servers; the last one sums the geometric tail a^c / c! / (1 − ρ).
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
    """The wait of every activity: W_i = V · BURDEN_i + own_i, with V as in the map of this package."""
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
        # Waits behind the same case, weighted by work: their mean enters V.
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
        # Tries that arrive together find all servers busy more often, at most as often as a single server would be.
        together = 2 * ahead / load
        chance = line[count] + (share - line[count]) * together / (together + count)
        mean = load / arrivals
        # The relaxation time of M/M/c: s / c / (1 − √ρ)².
        pools[pool, 3] = mean / count / (1 - math.sqrt(share)) ** 2
        pools[pool, ALL_BUSY] = chance
        if by_turns(pools, pool) and turns_differ(nodes, r, pools, pool):
            wait_by_turns(nodes, r, rate / count, count, pools, b, others, pool)
            continue
        heavy = burden(nodes, r, b, rate, pools, pool) if turn > 0 else 1.0
        # BURDEN takes the place of 1 in 1 − ρ · BURDEN, but lengthens the wait at most 1 / 0.3 times.
        left = max(1 - share * heavy, 0.3 * (1 - share))
        virtual = chance / left * (second / load / (2 * count) + weighted / load)
        for number in range(len(nodes)):
            if nodes[number, 0] == ACTIVITY and r[nodes[number, 1] * COLUMNS + POOL] == pool:
                block = number * FIELDS
                if turn == 0:
                    b[block + BURDEN] = 1.0
                b[block + WAIT] = virtual * b[block + BURDEN] + others[number]
                # A wait that is 0 or, with probability p, exponential of mean V/p has variance V² (2/p − 1).
                b[block + WAIT_VAR] = virtual * virtual * (2 / max(chance, 1e-9) - 1) + others[number] * mean / count


@inner
def wait_by_turns(
    nodes: Ints, r: Floats, per_server: float, servers: int, pools: Floats, b: Floats, others: Floats, pool: int
) -> None:
    """The wait of every activity of a pool with priorities, best rank first: V_k of the package's map.

    `found` is T_k, the work of better or equal ranks that an arrival finds; `taken` is ρ_1 + … + ρ_(k−1), the load of
    better ranks, which keep overtaking.
    """
    load, chance = pools[pool, 0], pools[pool, ALL_BUSY]
    found, taken = chance * pools[pool, 2] / load / (2 * servers), 0.0
    more = chance / (per_server * load) if per_server > 0 else 0.0  # for waits behind its own case, as in fifo
    turn = next_turn(nodes, r, pools, pool, -math.inf)
    while turn < math.inf:
        share = own = 0.0
        for number in range(len(nodes)):
            block, row = number * FIELDS, nodes[number, 1] * COLUMNS
            if nodes[number, 0] == ACTIVITY and r[row + POOL] == pool and turn_of(r, row, pools, pool) == turn:
                # Better ranks that arrive meanwhile also overtake while it waits behind its own case.
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
    """The wait behind `ahead` activities of the same case with `work` seconds of work in all.

    The k-th of them delays only if other cases keep at least servers − k servers busy.
    """
    if ahead <= 0:
        return 0.0
    total = 0.0
    # `ahead` is a mean and may be fractional: the last one counts in part.
    whole = int(ahead)
    for k in range(1, whole + 2):
        part = 1.0 if k <= whole else ahead - whole
        total += part * line[max(servers - k, 0)]
    return total * work / ahead / servers


@inner
def add_up(nodes: Ints, r: Floats, pools: Floats, b: Floats) -> None:
    """What one case brings each pool: columns 0 work, 1 tries and 2 Σ E[S²]."""
    pools[:, :3] = 0.0
    for number in range(len(nodes)):
        row = nodes[number, 1] * COLUMNS
        if nodes[number, 0] == ACTIVITY and r[row + POOL] >= 0:
            pool, block = int(r[row + POOL]), number * FIELDS
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            pools[pool, 0] += often * r[row + SERVICE]
            pools[pool, 1] += often
            pools[pool, 2] += often * r[row + SERVICE] ** 2 * (1 + r[row + SCV])


# Rounds of waiting: waits decide who meets whom in a queue, and that decides the waits.
ROUNDS = 2


@compiled
def plain_times(nodes: Ints, links: Ints, weights: Floats, rows: Floats) -> Floats:
    """How long each block takes at mean durations without waiting; a body is cancelled within this time."""
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
            times[number] = body + again / (1 - again) * (body + redo)  # again / (1 − again) further rounds
        elif kind == ORDER:
            times[number] = longest_way(times, links[first : first + count], links[detail:])
        elif count > 0:
            times[number] = times[links[first]]
    return times


@inner
def longest_way(times: Floats, parts: Ints, edges: Ints) -> float:
    """The length of an order's critical path; edges[0] is their number, then pairs sorted by their later end."""
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
    """Returns the results of a design [RESULTS] and the columns of its pools [pools, 8]; see `network_fields`.

    If a pool is overloaded, times are without waiting.
    """
    b, pools, others = np.zeros(len(nodes) * FIELDS), np.zeros((len(servers), 8)), np.zeros(len(nodes))
    stack, flows = np.zeros(2 * len(nodes), np.int64), np.zeros(2 * len(nodes))
    nominal, r = plain_times(nodes, links, weights, rows), rows.reshape(-1)
    b[(len(nodes) - 1) * FIELDS + PARENT] = -1
    for number in range(len(nodes)):
        first, count = nodes[number, 2], nodes[number, 3]
        # In post-order the first child starts where the block starts. Without a pool there is always room.
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
        # The last round only recomputes times; with an overloaded pool there is no steady state to wait for.
        if turn == ROUNDS or busiest >= 1:
            break
        meet_siblings(nodes, links, r, table, pools, b, others)
        if turn > 0:
            follow_on(nodes, links, weights, r, b, rate, pools, stack, flows)
        wait(nodes, r, servers, rate, pools, b, others, turn)
    return results(nodes, r, rate, b), pools


@inner
def results(nodes: Ints, r: Floats, rate: float, b: Floats) -> Floats:
    """The root's time, and sums over activities; cores and bytes in use by Little's law (rate · time · demand)."""
    found = np.zeros(RESULTS)
    root = (len(nodes) - 1) * FIELDS
    found[CYCLE], found[COMPLETED] = b[root + MEAN], b[root + GOES_ON]
    for number in range(len(nodes)):
        if nodes[number, 0] == CASE_END:
            found[COMPLETED] += b[number * FIELDS + VISITS]
        if nodes[number, 0] == ACTIVITY:
            row, block = nodes[number, 1] * COLUMNS, number * FIELDS
            often = b[block + VISITS] * b[block + TRIES] * b[block + KEPT]
            found[WAITING] += often * b[block + WAIT]
            found[SPENT] += often * r[row + COST]
            found[CORES] += rate * often * r[row + SERVICE] * r[row + CPU]
            found[BYTES] += rate * often * r[row + SERVICE] * r[row + MEMORY]
    return found
