"""What the benchmark of the designer rests on: its statistics, its requirements, and what counts as an evaluation."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise.designer.heuristics import Heuristic, heuristic_keys
from groupwise.designer.tasks import random_requirements
from groupwise.workflows import contradictions, read_workflow
from groupwise.workflows.blocks import activities
from groupwise.workflows.requirements import Requirements
from tests.workflows.files.samples import SHARED, needs_data

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import design_rivals as rivals
import design_sets as sets
import design_statistics as statistics
import workflow_design as benchmark


def test_the_hypervolume_of_one_point_is_its_box_and_a_dominated_one_adds_nothing() -> None:
    ideal, reference = [0.0, 0.0, 0.0], [2.0, 4.0, 10.0]
    one = np.array([[1.0, 1.0, 5.0]])
    assert statistics.hypervolume(one, ideal, reference) == pytest.approx(0.5 * 0.75 * 0.5)
    more = np.array([[1.0, 1.0, 5.0], [1.5, 1.0, 5.0], [1.0, 2.0, 6.0], [math.inf, 0, 0], [3.0, 0.0, 0.0]])
    assert statistics.hypervolume(more, ideal, reference) == pytest.approx(0.5 * 0.75 * 0.5)


def test_the_hypervolume_is_what_counting_random_points_says() -> None:
    rng = np.random.default_rng(3)
    points = rng.uniform(0, 1.2, (40, 3))
    points[:, 2] = np.round(4 * points[:, 2]) / 4
    thrown = rng.random((20_000, 3))
    covered = (points[None] <= thrown[:, None]).all(2).any(1).mean()
    assert statistics.hypervolume(points, [0, 0, 0], [1, 1, 1]) == pytest.approx(covered, abs=0.01)


def test_evaluations_needed_are_read_between_budgets_on_a_log_scale() -> None:
    course = np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    needed = [float(statistics.evaluations_needed(course, np.array(target))) for target in (0.5, 0.6, 0.35, 0.2, 0.0)]
    assert needed == pytest.approx([1, 1, 8, 64, 1024])
    assert math.isinf(float(statistics.evaluations_needed(course, np.array(-0.1))))
    flat = np.full(6, 0.2)
    assert float(statistics.evaluations_needed(flat, np.array(0.2))) == 1


def test_fewer_evaluations_are_held_against_the_best_rival() -> None:
    rng = np.random.default_rng(0)
    ours = np.linspace(0.5, 0.0, 6) + rng.normal(0, 1e-3, (5, 4, 1))
    good = np.linspace(0.9, 0.2, 6) + rng.normal(0, 1e-3, (5, 4, 1))
    bad = np.full((5, 4, 6), 0.45)
    best, found = statistics.fewer_evaluations(ours, {"bad": bad, "good": good}, repetitions=200)
    assert best == "good"
    assert found.value == pytest.approx(1024 / 64, rel=0.05)
    assert found.low <= found.value <= found.high < 20
    _, never = statistics.fewer_evaluations(good, {"ours": ours}, repetitions=50)
    assert never.value == never.high == 0


def test_bands_draw_seeds_within_requirements_and_whole_courses() -> None:
    table = np.zeros((3, 2, 6))
    table[:, 0], table[:, 1] = 0.1, 0.3
    found = statistics.band(table, repetitions=100)
    assert [one.value for one in found] == pytest.approx([0.2] * 6)
    assert [one.high - one.low for one in found] == pytest.approx([0.0] * 6)
    table[0, 0] = 0.9
    wide = statistics.band(table, repetitions=100)
    assert wide[0].high > wide[0].low
    assert [one.as_list() for one in wide] == [wide[0].as_list()] * 6


def test_gaps_are_relative_to_the_best_known_of_each_requirement() -> None:
    scores = np.array([[[0.4, 0.8], [0.3, 0.6]]])
    assert statistics.relative_gap(scores, np.array([0.8, 0.6])).tolist() == [[[0.5, 0.0], [0.5, 0.0]]]


def test_training_is_paid_back_by_what_each_requirement_saves() -> None:
    assert statistics.break_even(96_000, 16.0) == pytest.approx(100)
    assert math.isinf(statistics.break_even(1, 1.0))
    assert math.isinf(statistics.break_even(1, 0.0))


def test_drawn_sets_can_be_met_and_repeat_and_shifted_demand_lies_outside_what_was_trained() -> None:
    found = sets.named_sets([10, 30], 2, kinds=["in", "shifted"])
    assert [one.size for one in found["in"]] == [10, 10, 30, 30]
    assert not any(contradictions(one.requirements) for kind in found.values() for one in kind)
    assert found["in"] == sets.named_sets([10, 30], 2, kinds=["in"])["in"]
    hot, quiet = (random_requirements(1, 10, load=load) for load in sets.SHIFTED_LOADS)
    rates = [one.demand.arrivals_per_second or 0.0 for one in (hot, quiet)]
    assert rates[0] / rates[1] == pytest.approx(sets.SHIFTED_LOADS[0] / sets.SHIFTED_LOADS[1])


@needs_data
def test_requirements_are_derived_from_every_file_that_has_enough_tasks() -> None:
    assert SHARED is not None
    found = {one.name: one.requirements for one in sets.derived_set(SHARED)}
    assert len(found) >= 20
    assert not any(contradictions(one) for one in found.values())
    assert all(sets.SMALLEST <= len(one.activities) <= 70 for one in found.values())
    assert all(sets.full_load(one) == pytest.approx(sets.DERIVED_LOAD) for one in found.values())
    genome = found["1000genome-chameleon-2ch-100k-001"]
    assert len(genome.activities) == 52
    assert len(genome.rules.precedes) == 76
    condensed = found["bwa-chameleon-small-001"]
    told = json.loads((SHARED / "wfcommons/instances/bwa-chameleon-small-001.json").read_text())["workflow"][
        "execution"
    ]
    assert len(condensed.activities) == 60 < len(told["tasks"])
    seconds = sum(one.duration.mean for one in condensed.activities.values())
    assert seconds == pytest.approx(sum(run["runtimeInSeconds"] for run in told["tasks"]))


@needs_data
def test_a_net_keeps_its_order_its_choices_and_the_nets_it_calls() -> None:
    assert SHARED is not None
    document = read_workflow(SHARED / "yawl/verification_cases/makeTrip2.xml")
    steps = sets.steps_of(document, document.root)
    assert {"register", "register for leg", "Book flight", "Book hotel", "Book car", "pay"} < set(steps.shares)
    assert "do_itinerary_segment" not in steps.shares
    assert steps.shares["Book flight"] == 0.5
    assert ("register", "register for leg") in steps.order
    assert ("register for leg", "Book car") in steps.order
    assert ("register", "Book car") not in steps.order


def small() -> Requirements:
    return random_requirements(7, 8)


def test_an_evaluation_is_a_design_that_was_not_scored_before() -> None:
    meter = rivals.Meter(small(), 10)
    rows = np.random.default_rng(0).random((6, meter.construction.genes))
    first = meter.of_keys(rows)
    count = len(meter.seen)
    assert count <= 6
    assert meter.of_keys(rows) == first
    assert len(meter.seen) == count
    meter.of_keys(np.random.default_rng(1).random((40, meter.construction.genes)))
    assert len(meter.seen) == 10
    assert meter.spent


def test_a_search_that_scores_otherwise_than_everybody_is_refused() -> None:
    meter = rivals.Meter(small(), 4)
    design = meter.construction.decode(np.zeros((1, meter.construction.genes)))[0]
    right = meter.scorer(design)
    meter.of_scored([(design, right), (design, right)])
    assert len(meter.seen) == 1
    wrong = replace(right, total=right.total + 0.1)
    with pytest.raises(ValueError, match="it is worth"):
        rivals.Meter(small(), 4).of_scored([(design, wrong)])


@pytest.mark.parametrize("arm", ["random", "sampler", "heuristics"])
def test_rivals_keep_to_their_budget_and_every_design_keeps_the_rules(arm: str) -> None:
    meter = rivals.Meter(small(), 40)
    rivals.ARMS[arm](meter, 3, **rivals.SETTINGS[arm])
    assert 20 <= len(meter.seen) <= 40
    assert min(one.score for one in meter.seen) > 0


@pytest.mark.parametrize("arm", list(rivals.NEEDS))
def test_evolution_goes_on_until_the_budget_is_spent_and_repeats_with_its_seed(arm: str) -> None:
    pytest.importorskip(rivals.NEEDS[arm])
    found = []
    for seed in (1, 1, 2):
        meter = rivals.Meter(small(), 80)
        rivals.ARMS[arm](meter, seed, **rivals.SETTINGS[arm])
        assert len(meter.seen) == 80
        found.append([one.score for one in meter.seen])
    assert found[0] == found[1] != found[2]


def row(name: str, kind: str, arm: str, seed: int, scores: list[float]) -> dict[str, object]:
    given = {"requirement": name, "kind": kind, "size": 10, "arm": arm, "seed": seed, "scores": scores}
    return {**given, "volumes": scores, "wall": 1.0, "cpu": 1.0, "evaluations": 1024, "proposed": 1024}


def test_claims_come_from_rows_and_training_counts() -> None:
    ours, theirs = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    rows = [row(f"{kind}-1", kind, "policy", seed, ours) for kind in ("in", "derived") for seed in (0, 1)]
    rows += [row(f"{kind}-1", kind, "ga", seed, theirs) for kind in ("in", "derived") for seed in (0, 1)]
    campaign = benchmark.Campaign(rows, [0, 1])
    claims, intervals = benchmark.claims_of(campaign, "10200")
    assert claims["fewer_evaluations"] == claims["fewer_evaluations_derived"] == pytest.approx(256)
    assert claims["fewer_evaluations_best_rival"] == "ga"
    assert intervals["fewer_evaluations"] == pytest.approx([256, 256])
    assert claims["break_even_requirements"] == pytest.approx(10)
    assert "fewer_evaluations_shifted" not in claims
    assert campaign.curves("in")["ga"]["gap"][0][0] == pytest.approx(0.9)


def test_a_heuristic_puts_knock_outs_first_and_takes_the_pool_it_likes() -> None:
    requirements = Requirements.model_validate(
        {
            "name": "two checks",
            "activities": {
                "work": {"duration": {"mean": 100}, "pools": ["dear", "cheap"]},
                "long check": {"duration": {"mean": 50}, "pools": ["cheap"], "knock_out": 0.2},
                "short check": {"duration": {"mean": 10}, "pools": ["cheap"], "knock_out": 0.2},
            },
            "pools": {"dear": {"most": 9, "wage": 3, "speed": 2}, "cheap": {"most": 9, "wage": 1}},
            "demand": {"arrivals_per_second": 0.01},
        }
    )
    construction = rivals.KeyDecoder(requirements)
    order = {}
    for pool in ("cheap", "fast"):
        rules = Heuristic("knock-outs", "sequence", pool, 0.0, 0, False)
        (design,) = construction.decode(heuristic_keys(construction.problem, rules)[None])
        tasks = list(activities(design.root))
        order[pool] = [task.name for task in tasks], tasks[-1].handling.pool
    assert order["cheap"] == (["short check", "long check", "work"], "cheap")
    assert order["fast"] == (["short check", "long check", "work"], "dear")
