"""What the policy sees of requirements: a graph with a node for each activity and pool and one for the whole process.

`SCHEMA` names every feature in order. Its hash is stored with trained weights: weights that were trained on other
features are refused.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from groupwise.designer.problem import (
    CANDIDATES,
    DISCIPLINES,
    DUES,
    EXTRA_SERVERS,
    HEADS,
    TIMEOUTS,
    DesignProblem,
    Floats,
    Ints,
)
from groupwise.workflows.requirements import Weights

ACTIVITY = (
    "duration", "variation", "failure", "knock-out", "knock-out by time", "share", "optional", "pools", "nobody needed",
    "cost", "cpu", "memory", "before it", "after it", "way to it", "way from it", "in a branch", "wages", "work",
    "separated", "described", "well named",
)  # fmt: skip
POOL = ("least", "most", "wage", "speed", "machine", "hours", "load", "able", "only able", "wages at least")
WHOLE = (
    "performance", "structure", "maintainability", "resources", "activities", "pools", "order", "knock-outs",
    "deadline", "room to the deadline", "load", "one run", "failures", "cases in progress", "wages beside costs",
    "branches", "depth",
)  # fmt: skip
RELATIONS = ("before", "after", "beside", "same branch", "does", "done by", "separate", "shares a pool", "same")
# The names are part of the hash: changing one word here makes all trained weights and memories unusable.
SCHEMA = repr(
    (ACTIVITY, POOL, WHOLE, RELATIONS, HEADS, CANDIDATES, TIMEOUTS, DUES, DISCIPLINES, EXTRA_SERVERS, "units 2")
)
SCHEMA_HASH = hashlib.sha256(SCHEMA.encode()).hexdigest()[:16]
# All kinds of node share one width; unused columns stay 0.
NUMBERS = max(len(ACTIVITY), len(POOL), len(WHOLE))
ACTIVITY_NODE, POOL_NODE, WHOLE_NODE = range(3)


@dataclass(frozen=True, slots=True)
class Features:
    """`nodes` [nodes, NUMBERS], `kinds` [nodes] and `relations` [nodes, nodes], one bit for each of `RELATIONS`.

    Activities come first, then pools, then the node of the whole process.
    """

    nodes: Floats
    kinds: Ints
    relations: Ints


@lru_cache(maxsize=16)
def features_of(problem: DesignProblem) -> Features:
    """The features of a problem, cached for the latest few problems."""
    acts, pools = len(problem.names), len(problem.pool_names)
    nodes = np.zeros((acts + pools + 1, NUMBERS), np.float32)
    nodes[:acts, : len(ACTIVITY)] = _activities(problem).T
    nodes[acts : acts + pools, : len(POOL)] = _pools(problem).T
    nodes[-1, : len(WHOLE)] = whole_of(problem)
    kinds = np.array([ACTIVITY_NODE] * acts + [POOL_NODE] * pools + [WHOLE_NODE])
    # The network was trained on features within ±5; more extreme requirements look like the extremes it knows.
    return Features(np.clip(nodes, -5, 5), kinds, _relations(problem))


def _log_ratio(values: Floats, reference: float) -> Floats:
    return np.log(np.maximum(values, 1e-12) / max(reference, 1e-12)) * (values > 0)


def _middle(values: Floats) -> float:
    positive = values[values > 0]
    return float(np.exp(np.log(positive).mean())) if len(positive) else 1.0


def _ways(problem: DesignProblem) -> tuple[Floats, Floats]:
    # The longest chain of work before and after each activity, as shares of the longest chain of all.
    time = problem.mean * problem.share
    order = np.argsort(problem.before.sum(0), kind="stable")
    # `before` is transitive, so sorting by the number of predecessors is a topological order.
    to, after = np.zeros(len(time)), np.zeros(len(time))
    for a in order:
        before = problem.before[:, a]
        to[a] = (to + time)[before].max() if before.any() else 0.0
    for a in order[::-1]:
        later = problem.before[a]
        after[a] = (after + time)[later].max() if later.any() else 0.0
    longest = max(float((to + time + after).max()), 1e-12)
    return to / longest, after / longest


def _activities(problem: DesignProblem) -> Floats:
    count = len(problem.names)
    to, after = _ways(problem)
    wages = np.array([problem.wage[list(able)].mean() if able else 0.0 for able in problem.eligible])
    servers = np.array([problem.most[list(able)].sum() if able else 1.0 for able in problem.eligible])
    forked = np.zeros(count)
    for fork in problem.forks:
        forked[list(fork.options)] = 1
    # Knock-outs by probability over relative duration: the order in which they should come (van der Aalst 2001).
    pressure = np.log(np.maximum(problem.knock_out, 1e-4) / np.maximum(problem.mean / _middle(problem.mean), 1e-4)) / 4
    # In the order of ACTIVITY, scaled to about ±1; ratios to a geometric mean make units irrelevant.
    return np.stack([
        _log_ratio(problem.mean, _middle(problem.mean)) / 2,
        np.minimum(problem.scv, 6) / 3,
        problem.failure * 4,
        problem.knock_out * 3,
        np.where(problem.knock_out > 0, pressure + 1, 0),
        problem.share,
        problem.free,
        np.array([len(able) for able in problem.eligible]) / 3,
        np.array([not able for able in problem.eligible]),
        _log_ratio(problem.cost, _middle(problem.cost)) / 2 + (problem.cost > 0),
        problem.cpu / 4,
        _log_ratio(problem.memory, _middle(problem.memory)) / 4 + (problem.memory > 0),
        problem.before.sum(0) / count,
        problem.before.sum(1) / count,
        to,
        after,
        forked,
        _log_ratio(wages, _middle(problem.wage)) / 2,
        np.minimum(problem.rate * problem.mean * problem.share / servers, 2),
        np.array([len(others) for others in problem.apart_from]) / 2,
        problem.described,
        problem.well_named,
    ])  # fmt: skip


def _pools(problem: DesignProblem) -> Floats:
    if not problem.pool_names:
        return np.zeros((len(POOL), 0))
    able = problem.may.sum(1, keepdims=True)
    work = (problem.rate * problem.mean * problem.share)[:, None] * problem.may
    # As if every activity were shared equally among its pools.
    load = (work / np.maximum(able, 1)).sum(0) / (problem.most * problem.speed * problem.open)
    wages = problem.wage * problem.open * problem.least
    # In the order of POOL.
    return np.stack([
        np.log(problem.least) / 2,
        np.log(problem.most) / 2,
        _log_ratio(problem.wage, _middle(problem.wage)) / 2,
        problem.speed - 1,
        problem.machine,
        problem.open,
        np.minimum(load, 3),
        problem.may.mean(0),
        (problem.may & (able == 1)).mean(0),
        wages / max(float(wages.sum()), 1e-12),
    ])  # fmt: skip


def whole_of(problem: DesignProblem) -> list[float]:
    requirements = problem.requirements
    objective = requirements.objective if isinstance(requirements.objective, Weights) else Weights()
    weights = np.array([
        objective.performance, objective.structure, objective.maintainability, objective.resources
    ])  # fmt: skip
    count = len(problem.names)
    deadline = requirements.rules.deadline
    work = problem.rate * problem.mean * problem.share
    capacity = float((problem.most * problem.speed * problem.open).sum())
    spent = problem.rate * float((problem.cost * problem.share).sum())
    paid = float((problem.wage * problem.open * problem.least).sum())
    longest = float((problem.mean * problem.share).sum())  # the cycle time of a plain sequence
    # In the order of WHOLE.
    return [
        *(weights / max(float(weights.sum()), 1e-12) * 2).tolist(),
        np.log(count / 15) / 2,
        np.log((len(problem.pool_names) + 1) / 4) / 2,
        float(problem.before.sum()) / max(count * (count - 1) / 2, 1),
        float((problem.knock_out > 0).mean()),
        float(deadline is not None),
        min(deadline / max(problem.best_time, 1e-9) / 4, 3) if deadline else 0.0,
        min(float(work[[bool(able) for able in problem.eligible]].sum()) / max(capacity, 1e-12), 3),
        float(requirements.demand.arrivals_per_second is None),
        float(problem.failure.mean()) * 4,
        float(np.log1p(problem.rate * longest)) / 4,
        spent / max(spent + paid, 1e-12),
        len(problem.forks) / count * 4,
        problem.best_time / max(longest, 1e-12),
    ]


def _relations(problem: DesignProblem) -> Ints:
    acts, pools = len(problem.names), len(problem.pool_names)
    found = np.zeros((acts + pools + 1, acts + pools + 1), np.int64)

    def say(name: str, table: np.ndarray, rows: slice, columns: slice) -> None:
        found[rows, columns] |= np.where(table, 1 << RELATIONS.index(name), 0)

    own, able = slice(0, acts), slice(acts, acts + pools)
    before = problem.before
    say("before", before, own, own)
    say("after", before.T, own, own)
    say("beside", ~(before | before.T | np.eye(acts, dtype=bool)), own, own)
    same = np.zeros((acts, acts), bool)
    for fork in problem.forks:
        same[np.ix_(fork.options, fork.options)] = True
    say("same branch", same, own, own)
    say("done by", problem.may, own, able)
    say("does", problem.may.T, able, own)
    apart = problem.excludes.copy()
    for activity, others in enumerate(problem.apart_from):
        apart[activity, others] = True
    say("separate", apart, own, own)
    say("shares a pool", (problem.may.astype(int) @ problem.may.T.astype(int)) > 0, own, own)
    say("same", np.eye(acts + pools + 1, dtype=bool), slice(None), slice(None))
    return found


def situation(seen: Features) -> Floats:
    """Requirements as one vector for memory: global features, means over activities and over pools, and a 1."""
    whole = seen.nodes[-1, : len(WHOLE)]
    activities = seen.nodes[seen.kinds == 0, : len(ACTIVITY)].mean(0)
    pools = seen.nodes[seen.kinds == 1, : len(POOL)]
    return np.concatenate([whole, activities, pools.mean(0) if len(pools) else np.zeros(len(POOL)), [1.0]])
