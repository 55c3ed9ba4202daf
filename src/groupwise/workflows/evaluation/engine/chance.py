"""Random numbers that are hashes of what they are drawn for, and durations made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from groupwise.workflows.evaluation.compiled import inner
from groupwise.workflows.evaluation.engine.layout import EXPONENTIAL, GAMMA, LOGNORMAL, NORMAL, UNIFORM


@inner
def mixed(x: Any) -> Any:
    """SplitMix64: neighbouring numbers become unrelated ones."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def uniform(key: Any, stream: Any, count: int, draw: int) -> float:
    """A number in (0, 1)."""
    x = mixed(key ^ mixed(stream + np.uint64(count) * np.uint64(0xD1342543DE82EF95)) + np.uint64(draw))
    return (float(x >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@inner
def gaussian(key: Any, stream: Any, count: int, draw: int) -> float:
    radius = math.sqrt(-2 * math.log(uniform(key, stream, count, draw)))
    return radius * math.cos(2 * math.pi * uniform(key, stream, count, draw + 1))


@inner
def gamma(key: Any, stream: Any, count: int, shape: float) -> float:
    """Marsaglia and Tsang 2000; below shape 1 by a power of another uniform number."""
    boost = 1.0
    if shape < 1:
        boost = uniform(key, stream, count, 9) ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    draw = 10
    while True:
        x = gaussian(key, stream, count, draw)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(key, stream, count, draw + 2)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v
        draw += 3


@inner
def duration(kind: int, mean: float, std: float, key: Any, stream: Any, count: int) -> float:
    """How long a try takes if nothing stops it."""
    if kind == EXPONENTIAL:
        return -mean * math.log(uniform(key, stream, count, 0))
    if kind == NORMAL:
        return max(0.0, mean + std * gaussian(key, stream, count, 0))
    if kind == LOGNORMAL:
        spread = math.log1p((std / mean) ** 2)
        return mean * math.exp(math.sqrt(spread) * gaussian(key, stream, count, 0) - spread / 2)
    if kind == UNIFORM:
        return mean + std * math.sqrt(3) * (2 * uniform(key, stream, count, 0) - 1)
    if kind == GAMMA:
        scv = (std / mean) ** 2
        return mean * scv * gamma(key, stream, count, 1 / scv)
    return mean
