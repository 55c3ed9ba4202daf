"""Heuristics: the designs they lead to, and how a search continues from the best of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from groupwise.designer.familiarity import training_distance
from groupwise.designer.generations import RULED, Generations
from groupwise.designer.heuristics import (
    ALWAYS,
    FIRST,
    HEURISTICS,
    PORTFOLIO,
    HeuristicQueue,
    genes_of,
    heuristic_keys,
    neighbours,
    plans_of,
)
from groupwise.designer.policy import GraphPolicy, load_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import PreparedRequirements, random_requirements, score_design
from groupwise.workflows.requirements import Demand


def test_the_portfolio_comes_first_and_then_what_resembles_the_best() -> None:
    queue = HeuristicQueue()
    first = [*ALWAYS, *(HEURISTICS[number] for number in PORTFOLIO[:FIRST])]
    assert queue.next(len(first)) == first
    assert queue.next(2) == [], "nothing is known of any of them yet"
    best = HEURISTICS[PORTFOLIO[1]]
    queue.learn(HEURISTICS[PORTFOLIO[0]], 0.4)
    queue.learn(best, 0.5)
    around = set(neighbours(best))
    asked = [rule for _ in range(20) for rule in queue.next(2)]
    assert set(asked) <= around, "one thing at a time"
    assert len(asked) == len(set(asked)), "no rule twice"
    assert len(asked) == len(around - set(first))


def test_neighbours_differ_in_one_respect() -> None:
    rule = HEURISTICS[0]
    for other in neighbours(rule):
        assert sum(getattr(rule, name) != getattr(other, name) for name in rule.__slots__) == 1
        assert other in HEURISTICS


def test_every_rule_decodes_to_a_design_of_its_own_keys() -> None:
    problem = DesignProblem(random_requirements(3, 8))
    keys = np.array([heuristic_keys(problem, rule) for rule in HEURISTICS[::37]])
    assert keys.shape[1] == genes_of(problem)
    assert len(plans_of(problem, keys)) == len(keys)


def test_rules_are_left_to_requirements_unlike_training() -> None:
    near, far = random_requirements(11, 12), random_requirements(11, 12)
    far = far.model_copy(update={"demand": Demand(arrivals_per_second=None)})
    assert not training_distance(DesignProblem(near)).unfamiliar
    assert training_distance(DesignProblem(far)).unfamiliar
    origins = [
        {one.origin for one in Generations(load_policy(), PreparedRequirements.of(one), seed=1).propose(8)}
        for one in (near, far)
    ]
    assert [one - {"edit"} for one in origins] == [{"likeliest", "sample", "rule"}, {"likeliest", "sample", "rule"}]


def test_rules_go_on_only_while_they_beat_what_the_policy_draws() -> None:
    """An untrained policy loses to rules of thumb, so they go on; where a sample is better, they stop."""
    requirements = random_requirements(11, 12).model_copy(update={"demand": Demand(arrivals_per_second=None)})
    prepared = PreparedRequirements.of(requirements)

    def origins(policy: GraphPolicy, drawn: float) -> list[str]:
        generations = Generations(policy, prepared, seed=1)
        first = generations.propose(8)
        assert [one.origin for one in first].count("rule") == RULED
        assert [one.logp for one in first if one.origin == "rule"] == [0.0] * RULED, "no log-probability is claimed"
        generations.absorb([replace(one, score=score_design(prepared, one.design)) for one in first])
        generations.drawn = drawn
        return [one.origin for one in generations.propose(8)]

    policy = load_policy()
    assert "rule" in origins(policy, float("-inf"))
    assert "rule" not in origins(policy, float("inf"))
