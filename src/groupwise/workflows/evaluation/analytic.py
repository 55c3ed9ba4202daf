"""The analytic tier: queueing formulas instead of chance, in microseconds.

It is made for steady arrivals at pools that keep up with them, are always at work and take those waiting in the order
they came. `network` has the mathematics; `simulation` says what blocks mean.
"""

from __future__ import annotations

import math

import numpy as np

from groupwise.workflows.evaluation import network
from groupwise.workflows.evaluation.encoding import Encoded, Floats
from groupwise.workflows.evaluation.performance import Performance

_table: list[Floats] = []


def _solve(encoded: Encoded, rate: float) -> tuple[Floats, Floats]:
    if not _table:
        _table.append(network.gamma_table())
    return network.solve(
        encoded.nodes, encoded.links, encoded.weights, encoded.rows, encoded.servers, rate, _table[0]
    )


def loads(encoded: Encoded) -> dict[str, float]:
    """The share of its servers' time that each pool needs: from 1 on, it does not keep up."""
    rate = encoded.catalogue.arrivals or 0.0
    _, pools = _solve(encoded, rate)
    shares = rate * pools[:, 0] / encoded.servers
    names = encoded.catalogue.pool_names
    return {name: float(share) / encoded.catalogue.open_share(i) for i, (name, share) in enumerate(zip(names, shares, strict=True))}


def analyse(encoded: Encoded) -> Performance:
    """How the design performs in the long run."""
    catalogue = encoded.catalogue
    rate = catalogue.arrivals or 0.0
    found, pools = _solve(encoded, rate)
    cycle = float(found[network.CYCLE])
    return Performance("analytic", cycle, (cycle, cycle), float(found[network.WAITING]), rate, float(found[network.SPENT]), {}, float(found[network.CORES]), float(found[network.BYTES]), float(found[network.COMPLETED]))
