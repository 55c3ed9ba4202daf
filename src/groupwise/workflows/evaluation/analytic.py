"""The analytic tier: queueing formulas instead of simulation, in microseconds.

It covers steady arrivals at pools that keep up with them, always work, and serve by fifo, priority or shortest; and
several instances only as copies of one activity that are all waited for. Elsewhere `valid` is False and `reason` says
why. `network` has the mathematics; `simulation` says what blocks mean.
"""

import math
from functools import cache

import numpy as np

from groupwise.workflows.evaluation.array_format import ACTIVITY, INSTANCES, Floats
from groupwise.workflows.evaluation.encoding import Encoded
from groupwise.workflows.evaluation.network import network_fields as fields
from groupwise.workflows.evaluation.network.gamma_tables import gamma_table
from groupwise.workflows.evaluation.network.solver import solve
from groupwise.workflows.evaluation.performance import Performance

_table = cache(gamma_table)


def _solve(encoded: Encoded, rate: float) -> tuple[Floats, Floats]:
    return solve(encoded.nodes, encoded.links, encoded.weights, encoded.rows, encoded.servers, rate, _table())


def analyse(encoded: Encoded) -> Performance:
    """How the design performs in the long run (without arrivals: with no load, as if runs came one at a time)."""
    catalogue = encoded.catalogue
    rate = catalogue.arrivals or 0.0
    found, pools = _solve(encoded, rate)
    # Work per case in seconds of staffed time: a pool that is open a third of the week needs three times as long.
    work = pools[:, 0] / catalogue.open_shares
    shares = (rate * work / encoded.servers).tolist()
    busiest = max(shares, default=0.0)
    capacity = rate / busiest if busiest > 0 else _capacity(encoded, work)
    throughput = min(rate, capacity) if rate else capacity
    reason = _outside(encoded, pools, shares)
    overloaded = rate > 0 and busiest >= 1
    cycle = math.inf if overloaded else float(found[fields.CYCLE])
    wages = float(encoded.servers @ catalogue.staffed_wages)
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
    catalogue = encoded.catalogue
    rate = catalogue.arrivals or 0.0
    _, pools = _solve(encoded, rate)
    shares = rate * pools[:, 0] / catalogue.open_shares / encoded.servers
    return dict(zip(catalogue.pool_names, shares.tolist(), strict=True))


def overload(encoded: Encoded) -> str:
    """Which pool does not keep up and how many servers it would need; empty if all keep up."""
    for number, (name, share) in enumerate(loads(encoded).items()):
        if share >= 1:
            return _too_few(name, share, int(encoded.servers[number]))
    return ""


def capacity_of(encoded: Encoded) -> float:
    """How many cases per second the pools could handle."""
    _, pools = _solve(encoded, 0.0)
    return _capacity(encoded, pools[:, 0] / encoded.catalogue.open_shares)


def _capacity(encoded: Encoded, work: Floats) -> float:
    used = work > 0
    return float(np.min(encoded.servers[used] / work[used])) if used.any() else math.inf


def _too_few(name: str, share: float, servers: int) -> str:
    # A load of exactly 1 does not keep up either, so the count is strictly above share · servers, rounding aside.
    needed = math.floor(share * servers * (1 + 1e-12)) + 1
    plural = "server" if servers == 1 else "servers"
    return f"pool {name!r} has a load of {share:.2f} with {servers} {plural}; it needs at least {needed} to keep up"


def _outside(encoded: Encoded, pools: Floats, shares: list[float]) -> str:
    """Why the formulas do not cover this design; empty if they do."""
    catalogue = encoded.catalogue
    if catalogue.arrivals is None:
        return "runs start at once instead of arriving, so waiting is left out"
    for number, share in enumerate(shares):
        if share >= 1:
            return _too_few(catalogue.pool_names[number], share, int(encoded.servers[number]))
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
