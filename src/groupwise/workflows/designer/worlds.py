"""Requirements made up for training: seeded, feasible, and as different from each other as real ones are.

    random_requirements(seed, size)      work of people and machines, in chains, layers or hardly any order
    pipeline_requirements(seed, size)    stages of like programs on machines that differ in speed and price
    procedure_requirements(seed, size)   work of roles, one thing after the other, much of it not for every case

The same seed and size give the same requirements for ever. `load` is the share of the pools' full capacity that the
work needs at its leanest; trained is what `LOADS` spans.
"""

from __future__ import annotations

import random
from typing import Any

from groupwise.workflows.requirements import Requirements, parse_requirements

VERBS = (
    "check",
    "approve",
    "collect",
    "prepare",
    "verify",
    "send",
    "review",
    "register",
    "assess",
    "pack",
    "plan",
    "test",
)
OBJECTS = (
    "order", "claim", "invoice", "credit", "report", "sample", "contract", "address", "payment", "stock", "file",
    "risk", "offer", "permit", "image", "record",
)  # fmt: skip
LOADS = (0.15, 0.75)
SIZES = (5, 40)


def training_requirements(seed: int) -> Requirements:
    """Requirements to train on: half of them of any kind; a fifth have a deadline, which others are drawn without."""
    kinds = (random_requirements, random_requirements, pipeline_requirements, procedure_requirements)
    found = random.Random(f"kind/{seed}").choice(kinds)(seed)
    rng = random.Random(f"deadline/{seed}")
    if rng.random() > 0.2:
        return found
    work = sum(activity.duration.mean for activity in found.activities.values())
    rules = found.rules.model_copy(update={"deadline": work * rng.uniform(0.3, 3)})
    return found.model_copy(update={"rules": rules})


def random_requirements(seed: int, size: int | None = None, load: float | None = None) -> Requirements:
    """Requirements of `size` activities (drawn from `SIZES` if not given)."""
    rng = random.Random(f"world/{seed}/{size}")
    count = size or _size(rng)
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


def pipeline_requirements(seed: int, size: int | None = None, load: float | None = None) -> Requirements:
    """Requirements of `size` activities as computations have them: no checks, no branches, wide stages, any machine."""
    rng = random.Random(f"pipeline/{seed}/{size}")
    count = size or _size(rng)
    pools = _machines(rng)
    stages = [
        [f"run {rng.choice(OBJECTS)} {level}.{n + 1}" for n in range(width)] for level, width in _widths(rng, count)
    ]
    failure = rng.choice((0.0, rng.uniform(0.0, 0.1)))
    described = rng.random() < 0.7
    activities: dict[str, Any] = {}
    for stage in stages:
        programs = [_program(rng, list(pools)) for _ in range(rng.choice((1, 1, 2, 3)))]
        for name in stage:
            activities[name] = _task(rng, rng.choice(programs), failure, described)
    share = load if load is not None else rng.uniform(*LOADS)
    value = {
        "name": f"pipeline {seed}",
        "activities": activities,
        "pools": {name: pool for name, pool in pools.items() if any(name in a["pools"] for a in activities.values())},
        "rules": {"precedes": sorted(_links(rng, stages))},
        "demand": {"arrivals_per_second": share * _capacity(activities, pools, [])},
        "objective": _objective(rng),
    }
    return parse_requirements(value)


def procedure_requirements(seed: int, size: int | None = None, load: float | None = None) -> Requirements:
    """Requirements of `size` activities as offices have them: done by roles, and not all for every case."""
    rng = random.Random(f"procedure/{seed}/{size}")
    names = _names(rng, size or _size(rng))
    pools = _roles(rng, len(names))
    activities = {name: _duty(rng, list(pools)) for name in names}
    branches = _cases(rng, names)
    kept, near = rng.uniform(0.4, 1.0), rng.choice((1, 1, 2, 3))
    pairs = {
        (names[rng.randint(max(0, place - near), place - 1)], name)
        for place, name in enumerate(names)
        if place and rng.random() < kept
    }
    share = load if load is not None else rng.uniform(*LOADS)
    value = {
        "name": f"procedure {seed}",
        "activities": activities,
        "pools": {name: pool for name, pool in pools.items() if any(name in a["pools"] for a in activities.values())},
        "rules": {"precedes": sorted(pairs)},
        "branches": branches,
        "demand": {"arrivals_per_second": share * _capacity(activities, pools, branches)},
        "objective": _objective(rng),
    }
    return parse_requirements(value)


def _size(rng: random.Random) -> int:
    size: int = round(SIZES[0] * (SIZES[1] / SIZES[0]) ** rng.random())
    return size


def _roles(rng: random.Random, count: int) -> dict[str, Any]:
    scale = 10 ** rng.uniform(-3, -1)
    return {
        f"role {number + 1}": {
            "least": 1,
            "most": rng.randint(2, 8),
            "kind": "machine" if rng.random() < 0.1 else "person",
            "wage": scale * rng.uniform(0.3, 2),
            "speed": rng.uniform(0.7, 1.6),
        }
        for number in range(rng.randint(1, max(2, min(8, count // 3))))
    }


def _duty(rng: random.Random, roles: list[str]) -> dict[str, Any]:
    mean = 10 ** rng.uniform(2, 3.6)
    kind, spread = rng.choice((("gamma", 0.5), ("gamma", 1.2), ("exponential", None), ("lognormal", 1.0)))
    found: dict[str, Any] = {
        "duration": {"kind": kind, "mean": mean} | ({} if spread is None else {"std": mean * spread}),
        "pools": rng.sample(roles, min(len(roles), rng.choice((1, 1, 2)))),
        "failure": rng.uniform(0.0, 0.06),
    }
    if rng.random() < 0.2:
        found["knock_out"] = rng.uniform(0.03, 0.3)
    if rng.random() < 0.5:
        found["documentation"] = "Does what its name says."
    return found


def _cases(rng: random.Random, names: list[str]) -> list[dict[str, Any]]:
    """Up to nine in ten activities are for some cases only: alone, or one of two or three ways."""
    rest = rng.sample(names, round(len(names) * rng.uniform(0.0, 0.9)))
    found: list[dict[str, Any]] = []
    while rest:
        options = [rest.pop() for _ in range(min(len(rest), rng.choice((1, 1, 1, 2, 3))))]
        whole = rng.choice((1.0, 0.5, 0.25, rng.uniform(0.05, 0.95)))
        if len(options) > 1 or whole < 1:
            shares = dict.fromkeys(options, whole / len(options))
            found.append({"name": f"case {len(found) + 1}", "options": shares})
    return found


def _widths(rng: random.Random, count: int) -> list[tuple[int, int]]:
    """Stages with their number, and how wide each is: some of one task, some of many."""
    stages = rng.randint(1, min(8, count))
    weights = [rng.choice((0.1, 1.0, 3.0, 10.0)) for _ in range(stages)]
    spare, total = count - stages, sum(weights)
    widths = [1 + int(spare * weight / total) for weight in weights]
    widths[rng.randrange(stages)] += count - sum(widths)
    return list(enumerate(widths))


def _links(rng: random.Random, stages: list[list[str]]) -> set[tuple[str, str]]:
    """A stage comes after all of the one before, task by task, or after any of those before."""
    pairs: set[tuple[str, str]] = set()
    for level, stage in enumerate(stages[1:], 1):
        before, way = stages[level - 1], rng.choice(("all", "each", "any"))
        earlier = [name for one in stages[:level] for name in one] if rng.random() < 0.3 else before
        for number, name in enumerate(stage):
            if way == "all":
                pairs |= {(parent, name) for parent in before}
            elif way == "each":
                pairs.add((before[number % len(before)], name))
            else:
                pairs |= {(rng.choice(earlier), name) for _ in range(rng.randint(0, 3))}
    return pairs


def _machines(rng: random.Random) -> dict[str, Any]:
    scale = 10 ** rng.uniform(-5, -2)
    return {
        f"pool {number + 1}": {
            "least": 1,
            "most": rng.randint(2, 12),
            "kind": "machine" if rng.random() < 0.9 else "person",
            "wage": scale * 10 ** rng.uniform(-0.5, 0.5),
            "speed": 1.0 if number == 0 else rng.uniform(0.5, 2.5),
        }
        for number in range(rng.randint(1, 4))
    }


def _program(rng: random.Random, pools: list[str]) -> dict[str, Any]:
    """What the tasks of one program have in common: about how long they take, and where they may run."""
    return {
        "mean": 10 ** rng.uniform(-1, 3.5),
        "spread": rng.choice((0.0, 0.2, 1.0)),
        "kind": rng.choice(("fixed", "exponential", "exponential", "exponential")),
        "pools": [pools[0], *(pool for pool in pools[1:] if rng.random() < 0.5)],
    }


def _task(rng: random.Random, program: dict[str, Any], failure: float, described: bool) -> dict[str, Any]:
    mean = program["mean"] * rng.lognormvariate(0, program["spread"])
    found: dict[str, Any] = {
        "duration": {"kind": program["kind"], "mean": mean},
        "pools": program["pools"],
        "failure": failure,
        "cpu": float(rng.choice((1, 1, 1, 2, 4))),
        "memory": 10 ** rng.uniform(6, 10),
    }
    return {**found, "documentation": "Does what its name says."} if described else found


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
    """About a seventh of the activities are needed by some of the cases only."""
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
    """An order along a hidden line: chains, layers or scattered pairs; some duties that must be separated."""
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
    """About how many cases a second all servers together could do, by the pool that each activity has the least of."""
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
    """The usual weights, or any."""
    names, usual = ("performance", "structure", "maintainability", "resources"), (0.4, 0.25, 0.2, 0.15)
    if rng.random() < 0.4:
        return dict(zip(names, usual, strict=True))
    drawn = [rng.gammavariate(4 * weight * 2, 1) + 0.01 for weight in usual]
    return {name: weight / sum(drawn) for name, weight in zip(names, drawn, strict=True)}
