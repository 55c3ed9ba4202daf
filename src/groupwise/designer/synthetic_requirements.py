"""Synthetic requirements for training: seeded, feasible, and as varied as real ones.

    random_requirements(seed, size)      the same seed and size always give the same requirements

`load` is the share of the pools' full capacity that the work needs, retries included; training covers `LOADS`.
"""

from __future__ import annotations

import random
from typing import Any

from groupwise.workflows.requirements import Requirements, parse_requirements

VERBS = (
    "check", "approve", "collect", "prepare", "verify", "send", "review", "register", "assess", "pack", "plan", "test",
)  # fmt: skip
OBJECTS = (
    "order", "claim", "invoice", "credit", "report", "sample", "contract", "address", "payment", "stock", "file",
    "risk", "offer", "permit", "image", "record",
)  # fmt: skip
# Share of full capacity that the work needs.
LOADS = (0.15, 0.75)
# Activities; drawn uniformly in the logarithm.
SIZES = (5, 40)


def training_requirements(seed: int) -> Requirements:
    """Requirements for training: as `random_requirements`, and a fifth of them with a deadline."""
    found = random_requirements(seed)
    rng = random.Random(f"deadline/{seed}")
    if rng.random() > 0.2:
        return found
    work = sum(activity.duration.mean for activity in found.activities.values())
    rules = found.rules.model_copy(update={"deadline": work * rng.uniform(0.3, 3)})
    return found.model_copy(update={"rules": rules})


def random_requirements(seed: int, size: int | None = None, load: float | None = None) -> Requirements:
    """Requirements with `size` activities (drawn from `SIZES` if not given)."""
    rng = random.Random(f"world/{seed}/{size}")
    count = size if size is not None else round(SIZES[0] * (SIZES[1] / SIZES[0]) ** rng.random())
    names = _names(rng, count)
    pools = _pools(rng, count)
    activities = {name: _activity(rng, list(pools)) for name in names}
    branches = _branches(rng, names)
    forked = {name for branch in branches for name in branch["options"]}
    rules = _rules(rng, names, forked, activities)
    for name in names:
        constrained = name in forked or any(name in pair for pair in rules["separate"])
        if not constrained and rng.random() < 0.04:
            activities[name]["optional"] = True
    if not any("optional" not in activity for activity in activities.values()):
        del activities[names[0]]["optional"]
    share = load if load is not None else rng.uniform(*LOADS)
    value = {
        "name": f"world {seed}",
        "activities": activities,
        "pools": pools,
        "rules": rules,
        "branches": branches,
        "demand": {"arrivals_per_second": share * _capacity(activities, pools, branches)},
        "objective": _objective(rng),
    }
    return parse_requirements(value)


def _names(rng: random.Random, count: int) -> list[str]:
    pairs = [f"{verb} {thing}" for verb in VERBS for thing in OBJECTS]
    if count > len(pairs):
        pairs += [f"{pair} {n}" for n in range(2, 3 + count // len(pairs)) for pair in pairs]
    return rng.sample(pairs, count)


def _pools(rng: random.Random, count: int) -> dict[str, Any]:
    wanted = rng.randint(1, max(2, min(8, 1 + count // 5)))
    scale = 10 ** rng.uniform(-3, -1)
    return {
        f"pool {number + 1}": {
            "least": rng.choice((1, 1, 1, 2)),
            "most": rng.randint(3, 16),
            "kind": "machine" if rng.random() < 0.35 else "person",
            "wage": scale * rng.uniform(0.3, 3),
            "speed": rng.choice((1.0, 1.0, rng.uniform(0.6, 2.0))),
        }
        for number in range(wanted)
    }


def _activity(rng: random.Random, pools: list[str]) -> dict[str, Any]:
    mean = 10 ** rng.uniform(1, 3.5)
    kind = rng.choice(("fixed", "exponential", "exponential", "normal", "lognormal", "gamma", "uniform"))
    spread = {"normal": 0.3, "uniform": 0.4, "lognormal": rng.uniform(0.5, 2.5), "gamma": rng.uniform(0.3, 1.5)}
    duration: dict[str, Any] = {"kind": kind, "mean": mean}
    if kind in spread:
        duration["std"] = mean * spread[kind]
    found: dict[str, Any] = {"duration": duration}
    if rng.random() < 0.92:
        found["pools"] = rng.sample(pools, min(len(pools), rng.choice((1, 1, 2, 2, 3))))
    if rng.random() < 0.4:
        found["cost"] = 10 ** rng.uniform(-1, 1.5)
    if rng.random() < 0.25:
        found["knock_out"] = rng.uniform(0.02, 0.4)
    if rng.random() < 0.3:
        found["failure"] = rng.uniform(0.01, 0.25)
    if rng.random() < 0.3:
        found["cpu"] = float(rng.choice((1, 1, 2, 4)))
        found["memory"] = 10 ** rng.uniform(7, 10)
    if rng.random() < 0.5:
        found["documentation"] = "Does what its name says."
    return found


def _branches(rng: random.Random, names: list[str]) -> list[dict[str, Any]]:
    """Branches: up to a seventh of the activities are needed by only some of the cases."""
    rest = rng.sample(names, len(names))
    found: list[dict[str, Any]] = []
    while rest and rng.random() < 0.6 and len(found) < len(names) // 7:
        options = [rest.pop() for _ in range(min(len(rest), rng.choice((1, 1, 2, 2, 3))))]
        weights = [rng.uniform(0.2, 1) for _ in options]
        whole = rng.choice((1.0, rng.uniform(0.3, 0.95))) if len(options) > 1 else rng.uniform(0.1, 0.9)
        total = sum(weights)
        found.append(
            {
                "name": f"branch {len(found) + 1}",
                "options": {n: w / total * whole for n, w in zip(options, weights, strict=True)},
            }
        )
    return found


def _rules(rng: random.Random, names: list[str], forked: set[str], activities: dict[str, Any]) -> dict[str, Any]:
    """Precedence along a hidden order (chains, layers or scattered pairs), and some separation of duties."""
    # Every pair points forward along one order, so the rules cannot contradict each other.
    line = rng.sample(names, len(names))
    density = rng.choice((0.0, 0.5, 1.0, 1.0, 1.5, 2.0))
    near = rng.choice((2, 4, len(names)))
    pairs: set[tuple[str, str]] = set()
    for place, name in enumerate(line[1:], 1):
        for _ in range(int(density) + (rng.random() < density % 1)):
            pairs.add((line[rng.randint(max(0, place - near), place - 1)], name))
    separate = []
    shared = [n for n in names if len(activities[n].get("pools", ())) > 1 and n not in forked]
    while len(shared) > 1 and rng.random() < 0.3:
        separate.append((shared.pop(), shared.pop()))
    return {"precedes": sorted(pairs), "separate": separate}


def _capacity(activities: dict[str, Any], pools: dict[str, Any], branches: list[dict[str, Any]]) -> float:
    """Roughly how many cases per second all servers can handle; the busiest pool decides."""
    needed = {name: share for branch in branches for name, share in branch["options"].items()}
    able = {name: pool["most"] * pool["speed"] for name, pool in pools.items()}
    work = dict.fromkeys(pools, 0.0)
    for name, activity in activities.items():
        mine = activity.get("pools", ())
        total = sum(able[pool] for pool in mine)
        for pool in mine:
            tries = 1 / (1 - activity.get("failure", 0.0))
            work[pool] += activity["duration"]["mean"] * tries * needed.get(name, 1.0) * able[pool] / total
    busiest = max((work[pool] / able[pool] for pool in pools), default=0.0)
    return 1 / busiest if busiest > 0 else 1e-3


def _objective(rng: random.Random) -> dict[str, float]:
    """The default weights in four cases of ten, otherwise random ones around them."""
    names, usual = ("performance", "structure", "maintainability", "resources"), (0.4, 0.25, 0.2, 0.15)
    if rng.random() < 0.4:
        return dict(zip(names, usual, strict=True))
    drawn = [rng.gammavariate(4 * weight * 2, 1) + 0.01 for weight in usual]
    return {name: weight / sum(drawn) for name, weight in zip(names, drawn, strict=True)}
