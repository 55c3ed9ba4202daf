"""The analytic tier: queueing formulas instead of simulation, in microseconds.

It covers steady arrivals at pools that keep up with them, always work, and serve by fifo, priority or shortest; and
several instances only as copies of one activity that are all waited for. Elsewhere `valid` is False and `reason` says
why. `network` has the mathematics; `simulation` says what blocks mean.
"""

import math
from functools import cache

import numpy as np

from groupwise.workflows.evaluation.array_format import ACTIVITY, CHOICE, INSTANCES, LOOP, Floats
from groupwise.workflows.evaluation.encoding import Encoded
from groupwise.workflows.evaluation.network import network_fields as fields
from groupwise.workflows.evaluation.network.gamma_tables import gamma_table
from groupwise.workflows.evaluation.network.solver import solve
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.evaluation.staffing import busiest

_table = cache(gamma_table)


def _solve(encoded: Encoded, rate: float) -> tuple[Floats, Floats]:
    return solve(encoded.nodes, encoded.links, encoded.weights, encoded.rows, encoded.servers, rate, _table())


def analyse(encoded: Encoded) -> Performance:
    """How the design performs in the long run (without arrivals: with no load, as if runs came one at a time)."""
    catalogue = encoded.catalogue
    rate = catalogue.arrivals or 0.0
    found, pools = _solve(encoded, rate)
    shares = (rate * pools[:, 0] / encoded.staffed).tolist()
    capacity = _capacity(encoded, pools[:, 0])
    throughput = min(rate, capacity) if rate else capacity
    reason = _outside(encoded, pools)
    overloaded = rate > 0 and capacity <= rate
    cycle = math.inf if overloaded else float(found[fields.CYCLE])
    wages = encoded.wages
    return Performance(
        "analytic",
        cycle,
        (cycle, cycle),
        math.inf if overloaded else float(found[fields.WAITING]),
        throughput,
        (wages / throughput if wages else 0.0) + float(found[fields.SPENT]),
        dict(zip(catalogue.pool_names, [min(share, 1.0) for share in shares], strict=True)),
        float(found[fields.CORES]),
        float(found[fields.BYTES]),
        float(found[fields.COMPLETED]),
        capacity,
        valid=not reason,
        reason=reason,
    )


def loads(encoded: Encoded) -> dict[str, float]:
    """The load of each pool, as a share of its servers' working time; at 1 or more it does not keep up."""
    rate = encoded.catalogue.arrivals or 0.0
    shares = rate * _solve(encoded, rate)[1][:, 0] / encoded.staffed
    return dict(zip(encoded.catalogue.pool_names, shares.tolist(), strict=True))


def overload(encoded: Encoded) -> str:
    """Who does not keep up with the cases that arrive, and how many servers it would take; empty if all keep up."""
    rate = encoded.catalogue.arrivals
    return "" if rate is None else _overload(encoded, _solve(encoded, rate)[1][:, 0], rate)


def _overload(encoded: Encoded, work: Floats, rate: float) -> str:
    catalogue = encoded.catalogue
    for number, share in enumerate((rate * work / encoded.staffed).tolist()):
        if share >= 1:
            return _too_few(catalogue.pool_names[number], share, int(encoded.servers[number]))
    if encoded.workers:
        load, names, who = _busiest(encoded, work)
        if rate * load >= 1:
            work_, people = ", ".join(map(repr, names)), ", ".join(map(repr, who))
            return f"only {people} can do {work_}, which would keep them busy {rate * load:.2f} times over"
    return ""


def capacity_of(encoded: Encoded) -> float:
    """How many cases per second the pools could handle."""
    return _capacity(encoded, _solve(encoded, 0.0)[1][:, 0])


def _capacity(encoded: Encoded, work: Floats) -> float:
    # `work` is what one case needs of each pool, in seconds of working time.
    used = work > 0
    most = float(np.min(encoded.staffed[used] / work[used])) if used.any() else math.inf
    if encoded.workers:
        load, _, _ = _busiest(encoded, work)
        most = min(most, 1 / load) if load > 0 else most
    return most


def _busiest(encoded: Encoded, work: Floats) -> tuple[float, list[str], list[str]]:
    """The busiest workers, per case: their load, the activities that only they can do, and their names."""
    workers, roster = encoded.workers, encoded.catalogue.roster
    done = _visited(encoded)
    totals = np.zeros(len(work))
    for (_, pool), seconds in done.items():
        totals[pool] += seconds
    groups = []
    for (activity, pool), seconds in done.items():
        groups.append((encoded.able[activity], float(seconds * work[pool] / totals[pool]) if totals[pool] > 0 else 0.0))
    load, chosen = busiest(groups, [worker.hours for worker in workers])
    names = [roster.names[number] for number in sorted({list(done)[number][0] for number in chosen})]
    people = sorted({who for number in chosen for who in groups[number][0]})
    return load, names, [workers[who].name for who in people]


def _visited(encoded: Encoded) -> dict[tuple[int, int], float]:
    """Seconds per case for every activity and its pool, as if no case ended early."""
    visits = np.zeros(encoded.size)
    visits[-1] = 1.0
    found: dict[tuple[int, int], float] = {}
    # The tree is in post-order: backwards, every block comes before its children.
    for number in range(encoded.size - 1, -1, -1):
        kind, detail, first, count = encoded.nodes[number].tolist()
        often = visits[number]
        if kind == ACTIVITY:
            row = encoded.rows[detail]
            if row[1] >= 0:
                key = int(row[0]), int(row[1])
                found[key] = found.get(key, 0.0) + often * float(row[2])
        again = encoded.weights[first] if kind == LOOP else 0.0
        for slot in range(count):
            share = encoded.weights[first + slot] if kind == CHOICE else 1.0
            rounds = (again if slot else 1.0) / (1 - again) if kind == LOOP else 1.0
            visits[encoded.links[first + slot]] += often * share * rounds
    return found


def _too_few(name: str, share: float, servers: int) -> str:
    # A load of exactly 1 does not keep up either, so the count is strictly above share · servers, rounding aside.
    needed = math.floor(share * servers * (1 + 1e-12)) + 1
    plural = "server" if servers == 1 else "servers"
    return f"pool {name!r} has a load of {share:.2f} with {servers} {plural}; it needs at least {needed} to keep up"


def _outside(encoded: Encoded, pools: Floats) -> str:
    """Why the formulas do not cover this design; empty if they do."""
    catalogue = encoded.catalogue
    if catalogue.arrivals is None:
        return "runs start at once instead of arriving, so waiting is left out"
    if reason := _overload(encoded, pools[:, 0], catalogue.arrivals):
        return reason
    if encoded.workers:
        return "people differ in skills or hours, or must not do everything"
    for number, name in enumerate(catalogue.pool_names if catalogue.with_shifts else ()):
        if pools[number, 0] > 0 and len(catalogue.shifts[number]):
            return f"pool {name!r} has working hours"
    for _, detail, first, _ in encoded.nodes[encoded.nodes[:, 0] == INSTANCES].tolist():
        _, most, enough = encoded.links[detail : detail + 3].tolist()
        if enough < most:
            return f"of {most} instances some are cancelled once {enough} are done"
        if encoded.nodes[encoded.links[first], 0] != ACTIVITY:
            return "its multiple instances contain more than one activity"
    if not catalogue.only_fifo:
        for number, name in enumerate(catalogue.pool_names):
            if pools[number, fields.DISCIPLINE] == fields.BY_DUE:
                return f"pool {name!r} serves its queue by due time"
    return ""
