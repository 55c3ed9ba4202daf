"""Held-out requirements: drawn like those of training, with shifted demand, and derived from files of real workflows.

    named_sets(sizes, count)     {"in": …, "shifted": …, "derived": …}, each a list of `Held`

`in` are drawn by the generator of training from seeds it never uses. `shifted` are drawn alike but for their demand,
which loads the pools more or less than training ever did (`SHIFTED_LOADS` in turn, training has 0.15 to 0.75).
`derived` come from WfCommons and YAWL files; what those do not say is drawn by a seeded rule that the functions below
state. All are feasible: `contradictions` finds none.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.workflows import contradictions, read_workflow
from groupwise.workflows.document import Document
from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.partial_orders import in_order, reduced
from groupwise.workflows.requirements import (
    Demand,
    Duration,
    Pool,
    RequiredActivity,
    RequiredBranch,
    RequiredRules,
    Requirements,
)
from groupwise.workflows.rules import needs

DATA = next(
    (p for parent in Path(__file__).resolve().parents if (p := parent / "shared/data").is_dir()), Path("absent")
)
SIZES = (10, 30, 60)
FIRST_SEED = 900_000  # training draws from seeds below 500,000
KINDS = ("in", "shifted", "derived")
SHIFTED_LOADS = (0.85, 0.07)
LARGEST, SMALLEST = 60, 5
DERIVED_LOAD = 0.5
RULED = 0.7


@dataclass(frozen=True, slots=True)
class Held:
    """Requirements that nobody was trained or tuned on, and which set they belong to."""

    name: str
    kind: str
    size: int
    requirements: Requirements


def named_sets(
    sizes: Sequence[int] = SIZES, count: int = 6, first: int = FIRST_SEED, kinds: Sequence[str] = KINDS
) -> dict[str, list[Held]]:
    """Sets by their name; `first` is the first seed of those that are drawn."""
    found = {
        "in": lambda: [one for size in sizes for one in _drawn("in", size, count, first, [None])],
        "shifted": lambda: [
            one for size in sizes for one in _drawn("shifted", size, count, first + 500, SHIFTED_LOADS)
        ],
        "derived": derived_set,
    }
    return {kind: found[kind]() for kind in kinds}


def _drawn(kind: str, size: int, count: int, first: int, loads: Sequence[float | None]) -> list[Held]:
    """The first `count` from seed `first` on that can be met, the loads in turn."""
    from groupwise.designer.tasks import random_requirements

    found: list[Held] = []
    for seed in itertools.count(first + 1000 * size):
        if len(found) == count:
            break
        requirements = random_requirements(seed, size, load=loads[len(found) % len(loads)])
        if not contradictions(requirements):
            found.append(Held(f"{kind}-{size}-{len(found)}", kind, size, requirements))
    return found


# Demand.


def pool_loads(requirements: Requirements) -> dict[str, float]:
    """How busy pools are with all the servers they may have, an activity spread over its pools by what they can do."""
    rate, needed = requirements.demand.arrivals_per_second or 0.0, needs(requirements)
    loads = dict.fromkeys(requirements.pools, 0.0)
    for name, share in needed.items():
        activity = requirements.activities[name]
        able = sum(requirements.pools[pool].most * requirements.pools[pool].speed for pool in activity.pools)
        for pool in activity.pools:
            loads[pool] += rate * share * activity.duration.mean / able
    return loads


def full_load(requirements: Requirements) -> float:
    return max(pool_loads(requirements).values(), default=0.0)


def _with_demand(requirements: Requirements, load: float = DERIVED_LOAD) -> Requirements:
    """Arrivals at which the busiest pool, with all the servers it may have, works the share `load` of its time."""
    unit = requirements.model_copy(update={"demand": Demand(arrivals_per_second=1.0)})
    rate = load / full_load(unit)
    return unit.model_copy(update={"demand": Demand(arrivals_per_second=rate)})


# Derived.


def derived_set(data: Path = DATA) -> list[Held]:
    """Everything in `data` that can be derived; nothing where the files are not there."""
    found = [from_wfcommons(path) for path in sorted((data / "wfcommons" / "instances").glob("*.json"))]
    yawl = sorted(path for folder in ("specs", "verification_cases") for path in (data / "yawl" / folder).glob("*.*"))
    seen: set[frozenset[str]] = set()
    for path in yawl:
        for requirements in from_yawl(path):
            names = frozenset(requirements.activities)
            if names not in seen:
                seen.add(names)
                found.append(requirements)
    return [Held(one.name, "derived", len(one.activities), one) for one in found if not contradictions(one)]


def _chance(*words: object) -> np.random.Generator:
    """Numbers that depend on what they are for and on nothing else."""
    return np.random.default_rng(zlib.crc32(" ".join(map(str, words)).encode()))


def from_wfcommons(path: Path) -> Requirements:
    """One requirement for an instance, which becomes a service that is asked for again and again.

    Tasks are activities with their measured runtime (exponential), memory and cores; parents precede children. More
    than 60 are condensed to about as many: tasks of one category and one depth are put into batches, evenly, and a
    batch takes as long as its tasks together. Machines are three pools that the file does not tell apart: `standard`
    (speed 1, up to 8 servers), `fast` (speed 1.6 at 2.2 times the wage, up to 4) and `spot` (speed 0.8 at 0.4 times
    the wage, up to 6). A category may use `standard` and, each with even chances, the others; nothing that takes
    longer than the mean runs on spot machines. One try in fifty fails. Demand is half of what the pools can do.
    """
    instance = json.loads(path.read_text())["workflow"]
    tasks = {task["id"]: task for task in instance["specification"]["tasks"]}
    runs = {run["id"]: run for run in instance["execution"]["tasks"]}
    batches = _batches(tasks)
    of = {task: batch for batch, members in batches.items() for task in members}
    pairs = {(of[parent], of[task]) for task in tasks for parent in tasks[task]["parents"]}
    seconds = {
        batch: max(sum(runs[t]["runtimeInSeconds"] for t in members), 0.01) for batch, members in batches.items()
    }
    mean = sum(seconds.values()) / len(seconds)
    name = path.stem
    activities = {
        batch: RequiredActivity(
            duration=Duration(kind="exponential", mean=seconds[batch]),
            pools=_machines(name, _category(tasks[members[0]]), seconds[batch] <= mean),
            cpu=max(float(runs[task].get("coreCount") or 1) for task in members),
            memory=max(float(runs[task].get("memoryInBytes") or 0) for task in members),
            failure=0.02,
            documentation=f"Run the program {_category(tasks[members[0]])}.",
        )
        for batch, members in batches.items()
    }
    pools = {
        "standard": Pool(least=1, most=8, kind="machine", wage=0.0001),
        "fast": Pool(least=1, most=4, kind="machine", wage=0.00022, speed=1.6),
        "spot": Pool(least=1, most=6, kind="machine", wage=0.00004, speed=0.8),
    }
    used = {pool for activity in activities.values() for pool in activity.pools}
    return _with_demand(
        Requirements(
            name=name,
            activities=activities,
            pools={pool: pools[pool] for pool in pools if pool in used},
            rules=RequiredRules(precedes=_fewest(list(activities), pairs)),
        )
    )


def _machines(name: str, category: str, short: bool) -> tuple[str, ...]:
    fast, spot = _chance(name, category).random(2) < 0.5
    return ("standard", *(["fast"] if fast else []), *(["spot"] if spot and short else []))


def _category(task: Mapping[str, Any]) -> str:
    """The program of a task: its name without what counts it."""
    return re.sub(r"[_-]?(ID)?\d+$", "", str(task["name"]))


def _batches(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Tasks by the batch they go into; as many batches as tasks where there are not too many."""
    names = list(tasks)
    number = {name: place for place, name in enumerate(names)}
    edges = frozenset((number[parent], number[name]) for name in names for parent in tasks[name]["parents"])
    depth = [0] * len(names)
    for place in in_order(len(names), edges):
        depth[place] = max((depth[number[p]] + 1 for p in tasks[names[place]]["parents"]), default=0)
    stages: dict[tuple[int, str], list[str]] = {}
    for name in names:
        stages.setdefault((depth[number[name]], _category(tasks[name])), []).append(name)
    room = 1.0 if len(names) <= LARGEST else max(LARGEST - len(stages), 0) / max(len(names) - len(stages), 1)
    found: dict[str, list[str]] = {}
    for (level, category), members in stages.items():
        count = 1 + int((len(members) - 1) * room)
        for batch in range(count):
            found[f"run {category} {level}.{batch + 1}"] = members[batch::count]
    return found


def _fewest(names: Sequence[str], pairs: set[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The pairs without those that follow from others."""
    number = {name: place for place, name in enumerate(names)}
    edges = reduced(len(names), frozenset((number[a], number[b]) for a, b in pairs))
    return tuple((names[a], names[b]) for a, b in sorted(edges))


@dataclass(slots=True)
class Steps:
    """What a net comes to without its ways back: the work, how often a case needs it, and which directly follows which.

    `alternatives` are the groups of which a case does at most one. `first` and `last` have nothing before or behind.
    """

    shares: dict[str, float] = field(default_factory=dict)
    pools: dict[str, str | None] = field(default_factory=dict)
    order: set[tuple[str, str]] = field(default_factory=set)
    alternatives: list[list[str]] = field(default_factory=list)

    @property
    def first(self) -> list[str]:
        return [name for name in self.shares if all(b != name for _, b in self.order)]

    @property
    def last(self) -> list[str]:
        return [name for name in self.shares if all(a != name for a, _ in self.order)]


def from_yawl(path: Path) -> Iterator[Requirements]:
    """Requirements for the whole specification and for each of its nets, where there are at least five tasks.

    A task that calls a net is the tasks of that net; copies count once; ways back are left out (depth first from the
    start). An xor split goes each way equally often, an or split with one half. What only some cases come to is a
    branch, and tasks right behind one xor split are options of one. An order in the file may be a rule or a habit:
    each pair of direct neighbours is kept as a rule with probability 0.7. Tasks of a role are done by its pool; those
    of none are dealt to three pools, and every second task may be done by one further pool. A pool has up to 2 to 6
    servers, a speed of 0.8 to 1.5 and a wage of 15 to 60 an hour times its speed. A task takes 2 to 60 minutes
    (log-uniform mean; gamma, the standard deviation half of it); one in five is a check that ends 5 to 25% of the
    cases; a try fails in up to 4%. All of that is drawn by the names of the file and the task. Demand is half of what
    the pools can do.
    """
    document = read_workflow(path)
    for number, graph in enumerate(document.graphs):
        steps = steps_of(document, graph)
        if len(steps.shares) >= SMALLEST:
            yield _requirements(path.stem if number == 0 else f"{path.stem} {graph.name}", steps)


def steps_of(document: Document, graph: Graph) -> Steps:
    """The steps of a graph and of those it calls."""
    ways, order = _forward(graph)
    share, found, inside = _visits(graph, ways, order), Steps(), {}
    for node in graph.nodes:
        if node.kind == "task" and not node.silent and share.get(node.id, 0.0) > 0:
            inside[node.id] = _enter(document, node, share[node.id], found)
    for name, steps in inside.items():
        for after in _next(name, ways, inside):
            found.order |= {(a, b) for a in steps.last for b in inside[after].first}
    for node in graph.nodes:
        if _rule(node) == "xor" and len(ways.get(node.id, ())) > 1:
            options = [inside[t] for t in ways[node.id] if t in inside and len(graph.into(t)) == 1]
            alone = [next(iter(steps.shares)) for steps in options if len(steps.shares) == 1]
            found.alternatives += [alone] if len(alone) > 1 else []
    return found


def _enter(document: Document, node: Node, share: float, found: Steps) -> Steps:
    """The steps of one task, put into `found` under names that are free there."""
    graph = next((graph for graph in document.graphs if graph.name == node.calls), None)
    own = steps_of(document, graph) if graph else Steps({node.label: 1.0}, {node.label: node.handling.pool})
    free = {name: _free(name, found.shares) for name in own.shares}
    renamed = Steps(
        {free[name]: share * often for name, often in own.shares.items()},
        {free[name]: pool for name, pool in own.pools.items()},
        {(free[a], free[b]) for a, b in own.order},
        [[free[name] for name in group] for group in own.alternatives],
    )
    found.shares |= renamed.shares
    found.pools |= renamed.pools
    found.order |= renamed.order
    found.alternatives += renamed.alternatives
    return renamed


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name} {number}"
    return found


def _rule(node: Node) -> str:
    return node.split if node.kind == "task" else "xor"


def _forward(graph: Graph) -> tuple[dict[str, list[str]], list[str]]:
    """Where each node leads without the ways back, and the nodes in an order in which all ways go forward."""
    ways: dict[str, list[str]] = {graph.start.id: []}
    state, done = {graph.start.id: "open"}, []
    stack = [(graph.start.id, iter(graph.out_of(graph.start.id)))]
    while stack:
        here, flows = stack[-1]
        flow = next(flows, None)
        if flow is None:
            state[here] = "done"
            done.append(here)
            stack.pop()
        elif state.get(flow.target) != "open":
            ways[here].append(flow.target)
            if flow.target not in state:
                state[flow.target] = "open"
                ways[flow.target] = []
                stack.append((flow.target, iter(graph.out_of(flow.target))))
    return ways, done[::-1]


def _visits(graph: Graph, ways: Mapping[str, Sequence[str]], order: Sequence[str]) -> dict[str, float]:
    """The share of cases that come to each node."""
    arriving: dict[str, list[float]] = {graph.start.id: [1.0]}
    share: dict[str, float] = {}
    for here in order:
        node = graph.by_id[here]
        came = arriving.get(here, [0.0])
        share[here] = max(came) if node.kind == "task" and node.join == "and" else min(1.0, sum(came))
        several = len(ways[here]) > 1
        part = {"xor": 1 / max(len(ways[here]), 1), "or": 0.5, "and": 1.0}[_rule(node)] if several else 1.0
        for target in ways[here]:
            arriving.setdefault(target, []).append(share[here] * part)
    return share


def _next(name: str, ways: Mapping[str, Sequence[str]], inside: Mapping[str, Steps]) -> set[str]:
    """The tasks with work that a task leads to, past conditions and silent tasks."""
    found: set[str] = set()
    seen: set[str] = set()
    stack = list(ways[name])
    while stack:
        here = stack.pop()
        if here in inside:
            found.add(here)
        elif here not in seen:
            seen.add(here)
            stack += ways.get(here, [])
    return found


def _requirements(name: str, steps: Steps) -> Requirements:
    """What the file does not say is drawn here; `from_yawl` says how."""
    roles = [f"role {n + 1}" for n in range(len({pool for pool in steps.pools.values() if pool}))] or ["a", "b", "c"]
    if any(pool is None for pool in steps.pools.values()):
        roles = list(dict.fromkeys([*roles, "a", "b", "c"]))
    known = {pool: f"role {n + 1}" for n, pool in enumerate(dict.fromkeys(p for p in steps.pools.values() if p))}
    activities = {}
    for task, pool in steps.pools.items():
        draw = _chance(name, task)
        own = known[pool] if pool else "abc"[int(draw.integers(3))]
        other = roles[int(draw.integers(len(roles)))]
        mean = 60 * float(np.exp(draw.uniform(np.log(2), np.log(60))))
        check, rejects, fails, helped = draw.random(4)
        activities[task] = RequiredActivity(
            duration=Duration(kind="gamma", mean=mean, std=mean / 2),
            pools=tuple(dict.fromkeys([own, *([other] if helped < 0.5 else [])])),
            failure=0.04 * float(fails),
            knock_out=0.05 + 0.2 * float(rejects) if check < 0.2 and steps.shares[task] == 1.0 else 0.0,
            documentation=f"A task of the net {name}.",
        )
    used = dict.fromkeys(pool for activity in activities.values() for pool in activity.pools)
    kept = {pair for pair in steps.order if _chance(name, *pair).random() < RULED}
    return _with_demand(
        Requirements(
            name=name,
            activities=activities,
            pools={pool: _pool(name, pool) for pool in used},
            rules=RequiredRules(precedes=_fewest(list(activities), kept)),
            branches=tuple(_branches(steps)),
        )
    )


def _pool(name: str, pool: str) -> Pool:
    draw = _chance(name, pool)
    speed = float(draw.uniform(0.8, 1.5))
    wage = float(draw.uniform(15, 60)) / 3600 * speed
    return Pool(least=1, most=int(draw.integers(2, 7)), wage=wage, speed=speed)


def _branches(steps: Steps) -> Iterator[RequiredBranch]:
    grouped = {name for group in steps.alternatives for name in group}
    for group in steps.alternatives:
        yield RequiredBranch(name=f"which of {', '.join(group)}", options={name: steps.shares[name] for name in group})
    for name, share in steps.shares.items():
        if share < 1 and name not in grouped:
            yield RequiredBranch(name=f"whether {name}", options={name: share})
