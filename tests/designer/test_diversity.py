"""How diverse generations are, how they react where they are not, and the actions that edits consist of."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from groupwise.config.sections import TrainingSettings
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.diversity import Diversity, DiversityControl, EditStatistics, most_distinct, signature
from groupwise.designer.generations import Generations
from groupwise.designer.pipeline import Designer, DesignSession
from groupwise.designer.policy import GraphPolicy, load_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.workflows.blocks import Activity, Design, Handling, Parallel, Retry, Sequence

ENDLESS = TrainingSettings(early_stopping=False)


def task(name: str, **handling: object) -> Activity:
    return Activity(name, Handling(**handling))  # type: ignore[arg-type]


def test_a_signature_sees_what_belongs_to_its_family_and_nothing_else() -> None:
    problem = DesignProblem(random_requirements(3, 8))
    a, b, c = (task(name, pool="pool 1") for name in "abc")
    plain = signature(Design("x", Sequence((a, b, c)), (("pool 1", 2),)), problem)

    def changed(*tasks: Activity, servers: int = 2, parallel: bool = False) -> set[str]:
        root = Sequence((tasks[0], Parallel(tasks[1:]))) if parallel else Sequence(tasks)
        other = signature(Design("x", root, (("pool 1", servers),)), problem)
        return {family for family in plain if plain[family] != other[family]}

    assert changed(a, b, c) == set()
    assert changed(b, a, c) == {"structural"}
    assert changed(a, b, c, parallel=True) == {"structural", "temporal"}
    assert changed(a, b, task("c", pool="pool 1", retry=Retry(2))) == {"temporal"}
    assert changed(a, b, task("c", pool="pool 1", scheduling="shortest")) == {"resource"}
    assert changed(a, b, c, servers=3) == {"resource"}
    lanes = [signature(Design("x", Parallel(parts)), problem) for parts in ((a, b), (b, a))]
    assert lanes[0] == lanes[1], "the order in which lanes are listed is not a difference"


def test_a_missed_target_raises_the_pressure_on_its_family_and_the_share_that_explores() -> None:
    control = DiversityControl(GenerationSettings())
    before = dict(control.pressure)
    control.react(Diversity({"structural": 0.2, "temporal": 0.9, "resource": None}, {}), 1.0)
    assert control.pressure["structural"] > before["structural"]
    assert control.pressure["temporal"] < before["temporal"]
    assert control.pressure["resource"] == before["resource"], "nothing was measured"
    assert control.exploration > 0
    for _ in range(3):
        control.react(Diversity({"structural": 0.9, "temporal": 0.9, "resource": 0.9}, {}), 1.0)
    assert control.exploration == 0
    control.react(Diversity({"structural": 0.9, "temporal": 0.9, "resource": 0.9}, {}), 0.1)
    assert control.exploration > 0, "too few new designs"


def test_designs_are_chosen_for_what_they_add() -> None:
    def signs(*rows: str) -> list[dict[str, str]]:
        return [{"structural": row[0], "temporal": row[1]} for row in rows]

    wanted = {"structural": 3, "temporal": 2}
    assert most_distinct(signs("ax"), signs("ax", "ax", "bx", "ay", "cx"), 3, wanted) == [2, 3, 4]
    assert most_distinct(signs("ax"), signs("ax", "bx"), 2, {"structural": 1}) == [0, 1]


def session(settings: GenerationSettings, generations: int, seed: int = 3) -> DesignSession:
    found = Designer(load_policy(), settings=settings, stopping=ENDLESS).begin(random_requirements(seed, 12))
    for _ in found.run(10_000, generations):
        pass
    return found


def test_targets_hold_where_nothing_else_would_make_them() -> None:
    off = GenerationSettings(structural_diversity=0.0, temporal_diversity=0.0, resource_diversity=0.0)
    reached = [one.diversity.distinct for one in session(off, 6, seed=4).history]
    history = session(GenerationSettings(), 6, seed=4).history
    assert np.mean([all(one.met.values()) for one in history]) >= 0.8
    names = ("structural", "temporal", "resource")
    without = [
        all((one[name] or 1) >= target for name, target in zip(names, (0.6, 0.5, 0.4), strict=True)) for one in reached
    ]
    assert np.mean(without) < 0.8, "the targets would hold anyway, so this test shows nothing"


def test_a_third_of_the_candidates_explores_and_the_result_counts_them() -> None:
    for share in (0.3, 0.6):
        calm = {"structural_diversity": 0.0, "temporal_diversity": 0.0, "resource_diversity": 0.0, "novelty": 0.0}
        history = session(GenerationSettings(exploration_share=share, **calm), 3).history
        modes = Counter[str]()
        for one in history:
            assert sum(one.modes.values()) == one.judged == sum(one.origins.values())
            modes.update(one.modes)
        assert modes["exploring"] / modes.total() == pytest.approx(share, abs=0.1)


def test_edits_by_rates_contain_each_group_of_actions_at_its_rate() -> None:
    problem = PreparedRequirements.of(random_requirements(3, 20)).problem
    rates = {"branch": 0.3, "synchronization": 0.4, "timing": 0.2, "resource": 0.1}
    edits = EditStatistics(problem, GenerationSettings(action_sampler="rates"))
    free = np.ones((4000, len(problem.heads)), np.bool_)
    none = dict.fromkeys(("structural", "temporal", "resource"), 0.0)
    again = edits.decisions(free, none, np.random.default_rng(0))
    counts = Counter(action for row in again for action in edits.actions(row))
    assert {name: counts[name] / 4000 for name in rates} == pytest.approx(rates, abs=0.025)


def test_the_sampler_by_rates_begins_with_the_default_design_and_counts_actions() -> None:
    torch.manual_seed(0)
    settings = GenerationSettings(action_sampler="rates", resource_rate=1.0, branch_rate=0.0, timing_rate=0.0)
    made = Generations(GraphPolicy(), PreparedRequirements.of(random_requirements(3, 12)), settings)
    origins = Counter(one.origin for one in made.propose())
    assert origins["edit"] >= 28
    assert origins["sample"] == 0
    one = session(settings, 1).history[0]
    assert one.actions["resource"] >= one.origins["edit"] - 8
    assert one.actions["resource"] > one.actions["branch"]
