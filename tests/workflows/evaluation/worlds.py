"""Random requirements for random designs, busy to a given degree."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from groupwise.workflows.blocks import Activity, Block, Design, Handling, Retry, activities, rewritten
from groupwise.workflows.evaluation.analytic import loads
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.requirements import Requirements, parse_requirements

DURATIONS = ("exponential", "exponential", "gamma", "lognormal", "uniform", "fixed", "normal")


def random_world(rng: random.Random, block: Block, busiest: float, plain: bool = False) -> tuple[Design, Requirements]:
    """The block staffed, and requirements under which its busiest pool has the load `busiest`.

    `plain`: no failures, knock-outs, delays or timeouts.
    """
    if not plain:
        block = rewritten(block, lambda inner: _handled(rng, inner))
    pools = [f"pool{number}" for number in range(rng.randint(2, 5))]
    staff = tuple((pool, rng.randint(1, 4)) for pool in pools)
    wanted: dict[str, Any] = {
        "name": "random",
        "activities": {activity.name: _activity(rng, pools, plain) for activity in activities(block)},
        "pools": {pool: {"least": 1, "most": 9, "wage": rng.uniform(0.001, 0.02)} for pool in pools},
        "demand": {"arrivals_per_second": 1e-9},
    }
    design = Design("random", block, staff)
    highest = max(loads(encode(design, parse_requirements(wanted))).values()) / 1e-9
    wanted["demand"] = {"arrivals_per_second": busiest / highest if highest else 0.01}
    return design, parse_requirements(wanted)


def taken_by(scheduling: Any, design: Design, priority: Callable[[], int]) -> Design:
    """The design with pools that take those waiting so, and a priority for every activity."""

    def change(block: Block) -> Block:
        if not isinstance(block, Activity):
            return block
        return Activity(block.name, replace(block.handling, scheduling=scheduling, priority=priority()))

    return Design(design.name, rewritten(design.root, change), design.servers)


def _handled(rng: random.Random, block: Block) -> Block:
    if not isinstance(block, Activity) or rng.random() < 0.6:
        return block
    retry = Retry(rng.randint(0, 3), rng.uniform(0, 50))
    delay = rng.uniform(0, 100) if rng.random() < 0.3 else 0.0
    timeout = rng.uniform(100, 400) if rng.random() < 0.3 else None
    return Activity(block.name, Handling(retry=retry, delay=delay, timeout=timeout))


def _activity(rng: random.Random, pools: list[str], plain: bool) -> dict[str, Any]:
    kind = rng.choice(DURATIONS)
    mean = rng.uniform(20, 200)
    spread = {"std": mean * (rng.uniform(0.1, 0.5) if kind in ("uniform", "normal") else rng.uniform(0.3, 1.5))}
    return {
        "duration": {"kind": kind, "mean": mean, **({} if kind in ("fixed", "exponential") else spread)},
        "pools": [rng.choice(pools)] if rng.random() < 0.9 else [],
        "cost": rng.uniform(0, 5),
        "cpu": rng.uniform(0, 2),
        "failure": rng.uniform(0.02, 0.2) if not plain and rng.random() < 0.2 else 0.0,
        "knock_out": rng.uniform(0.02, 0.15) if not plain and rng.random() < 0.15 else 0.0,
    }
