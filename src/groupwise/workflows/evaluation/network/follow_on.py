"""What directly follows an activity in its own pool, and how much that finds there."""

from __future__ import annotations

from groupwise.workflows.evaluation.compiled import inner
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
from groupwise.workflows.evaluation.network.fields import (
    AGAIN,
    BURDEN,
    COLUMNS,
    DELAY,
    FIELDS,
    GOES_ON,
    KEPT,
    PARENT,
    POOL,
    SCV,
    SERVICE,
    SINCE,
    TRIES,
    VISITS,
    WAIT,
)


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
