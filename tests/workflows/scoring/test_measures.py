"""Scales at their ends and in between, references by hand, and metrics of graphs against brute force."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Choice, Design, Handling, Parallel, Sequence
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.performance import Performance
from groupwise.workflows.requirements import RequiredActivity, Requirements, Weights, parse_requirements
from groupwise.workflows.scoring import anatomy, measures, score, score_batch
from groupwise.workflows.scoring.measures import MEASURES
from groupwise.workflows.scoring.metrics import cut_vertices, measure
from groupwise.workflows.scoring.score import DesignScorer, references_of
from tests.workflows.designs import FLAT, random_block
from tests.workflows.evaluation.worlds import random_world


def asked(activities: dict[str, Any], pools: dict[str, Any] | None = None, **parts: Any) -> Requirements:
    stated = {name: {"duration": {"mean": 10}, **more} for name, more in activities.items()}
    return parse_requirements({"name": "test", "activities": stated, "pools": pools or {}, **parts})


@pytest.mark.parametrize(
    ("value", "share"), [(0.0, 1.0), (5.0, 1.0), (10.0, 1.0), (20.0, 0.5), (40.0, 0.25), (math.inf, 0.0)]
)
def test_a_lower_bound_scores_one_and_twice_of_it_a_half(value: float, share: float) -> None:
    assert measures.at_least(10.0, value) == share


@pytest.mark.parametrize(("value", "share"), [(-1.0, 1.0), (1.0, 1.0), (10.0, 0.5), (19.0, 0.2), (28.0, 0.1)])
def test_a_share_is_halved_at_its_limit(value: float, share: float) -> None:
    assert measures.halved(value, 1, 10) == pytest.approx(share)


def test_servers_are_busy_enough_at_one_point_and_worse_on_both_sides() -> None:
    best = measures.BUSY_ENOUGH
    assert measures.busy(best) == 1
    assert [measures.busy(value) for value in (-0.01, 0.0, 1.0, 1.5, math.nan, math.inf)] == [0] * 6
    below, above = ([measures.busy(best + step * n / 10) for n in range(1, 10)] for step in (-best, 1 - best))
    assert below == pytest.approx([1 - n / 10 for n in range(1, 10)])
    assert above == pytest.approx([1 - n / 10 for n in range(1, 10)])


def test_a_share_is_clipped() -> None:
    values = (-1.0, 0.0, 0.25, 1.0, 2.0, math.nan, math.inf, -math.inf)
    assert [measures.share_of(value) for value in values] == [0, 0, 0.25, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", False),
        ("checks it", False),
        ("looks at every page", True),
        ("at the pay desk", False),  # two words of three letters or more that are not in the name
        ("pay claim, pay claim, pay claim", False),
        ("lorem ipsum dolor todo", False),
        ("x y z", False),
        ("每个案件都由专家审查", True),
        ("支付支付", False),
    ],
)
def test_three_words_of_its_own_say_something(words: str, says: bool) -> None:
    assert measures.says_something(words, "pay claim") is says


def test_the_same_words_everywhere_describe_nothing() -> None:
    words = {"a": "looks at every page", "b": "Looks at  every page", "c": "compares names and dates", "d": ""}
    activities = {
        name: RequiredActivity.model_validate({"duration": {"mean": 1}, "documentation": text})
        for name, text in words.items()
    }
    assert measures.described(activities) == {"c"}


def test_more_documentation_and_fewer_paths_never_score_less() -> None:
    shares = [0.0, 0.25, 0.5, 1.0]
    for whole in (False, True):
        found = [measures.documentation(share, whole) for share in shares]
        assert found == sorted(found)
        assert len(set(found)) == 4
    assert (measures.documentation(0, False), measures.documentation(1, True)) == (0, pytest.approx(1))
    assert measures.documentation(0.5, True) > measures.documentation(0.5, False)
    line = anatomy(Design("d", Sequence((Activity("a"), Activity("b"))))).metrics
    split = anatomy(Design("d", Choice((Activity("a"), Activity("b")), (0.5, 0.5)))).metrics
    assert measures.testability(line, 1.0, 1) == 1
    assert measures.testability(split, 1.0, 1) < 1
    assert measures.testability(split, 1.0, 2) == 1, "what the requirements demand costs nothing"
    found = [measures.testability(line, rarest, 1) for rarest in (0.0, 0.001, 0.1, 0.5, 1.0)]
    assert found == sorted(found)
    assert (found[0], found[2]) == (0.5, pytest.approx(0.75)), "half of one half at one in ten"


@pytest.mark.parametrize("kind", [Sequence, Parallel])
@pytest.mark.parametrize(("count", "wide"), [(6, 0), (7, 0), (8, 1)])
def test_blocks_of_more_than_seven_parts_are_wide(kind: Any, count: int, wide: int) -> None:
    found = anatomy(Design("d", kind(tuple(Activity(f"a{n}") for n in range(count)))))
    assert (found.blocks, found.wide) == (1, wide)
    assert measures.modularity(found) == pytest.approx(0.1 * found.metrics.separability + 0.9 * (1 - wide))


def test_readability_is_the_mean_of_five_guidelines() -> None:
    line = anatomy(Design("d", Sequence((Activity("a"), Activity("b"))))).metrics
    assert measures.readability(line, 1.0) - measures.readability(line, 0.0) == pytest.approx(1 / 5)
    assert measures.readability(line, 1.0) == pytest.approx((1 / (1 + 0.08**2) + 4) / 5)
    wide = anatomy(Design("d", Parallel(tuple(Activity(f"a{n}") for n in range(6))))).metrics
    # Gateways of degree 7, one deep, ten nodes, structured.
    assert measures.readability(wide, 1.0) == pytest.approx((1 / 1.04 + 1 + 1 / 1.64 + 1 / 1.04 + 1) / 5)


@pytest.mark.parametrize("seed", range(60))
def test_cut_vertices_and_cycles_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 8)
    # A path from start to end, so that everything hangs together, and more edges anywhere.
    edges = [(n, n + 1) for n in range(count - 1)]
    edges += [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 4))]

    def reached(here: int, without: int, directed: bool) -> set[int]:
        seen, stack = set(), [here]
        while stack:
            top = stack.pop()
            near = {b for a, b in edges if a == top} | ({a for a, b in edges if b == top} if not directed else set())
            new = near - seen - {without}
            seen |= new
            stack += new
        return seen

    cuts = {n for n in range(count) if len(reached((n + 1) % count, n, False) | {(n + 1) % count}) < count - 1}
    assert cut_vertices(count, edges, 0) == cuts
    found = measure(edges, ["xor"] * count, ["xor"] * count, (0, count - 1), count).metrics
    assert found.cyclic == sum(n in reached(n, -1, True) for n in range(count))
    assert found.cuts == len(cuts - {0, count - 1})
    into, out = ([sum(edge[side] == n for edge in edges) for n in range(count)] for side in (1, 0))
    assert (found.widest_in, found.widest_out) == (max(into), max(out))
    assert found.interface == sum((a * b) ** 2 for a, b in zip(into, out, strict=True))
    assert found.connectors == sum(a > 1 or b > 1 for a, b in zip(into, out, strict=True))
    assert found.degrees == sum(a + b for a, b in zip(into, out, strict=True) if a > 1 or b > 1)
    assert found.xors == sum(a > 1 for a in into) + sum(b > 1 for b in out)
    assert found.control_flow == sum(b for b in out if b > 1)
    assert found.decisions == found.paths - 1 == sum(b - 1 for b in out if b > 1)


def test_references_are_bounds_worked_by_hand() -> None:
    """a is done first by the fast pool; b by either; c by nobody. a ends half of the cases."""
    pools = {"slow": {"wage": 1.0}, "fast": {"speed": 2.0, "wage": 4.0}}
    activities = {
        "a": {"pools": ["fast"], "knock_out": 0.5, "cost": 3.0, "memory": 8.0},
        "b": {"pools": ["slow", "fast"], "cost": 5.0, "memory": 2.0},
        "c": {"cost": 7.0},
    }
    found = references_of(
        asked(activities, pools, rules={"precedes": [["a", "b"]]}, demand={"arrivals_per_second": 0.25})
    )
    # a takes 5 s for every case; b 5 s and c 10 s for the half that passes, b at the slow pool's wage per unit of work.
    assert found.cycle_time == pytest.approx(5 + 2.5)
    assert found.cost == pytest.approx((5 * 4 + 3) + (2.5 * 2 + 0.5 * 5) + 0.5 * 7)
    assert found.memory == pytest.approx(5 * 8 + 2.5 * 2)
    assert found.throughput == 0.25
    assert found.work == pytest.approx(5 + 2.5)
    runs = references_of(asked(activities, pools, rules={"precedes": [["a", "b"]]}, demand={"runs": 3}))
    assert runs.throughput == pytest.approx(3 / 7.5)
    free = references_of(asked({"a": {"duration": {"mean": 0}, "cost": 2.0}}))
    assert (free.throughput, free.cost) == (0.0, 2.0)


@pytest.mark.parametrize(
    ("options", "ways"),
    [
        ([0.5, 0.5], 2), ([0.5, 0.4], 3), ([0.5], 2), ([1.0], 1),
        # Sums of 0.9999999999999999 and 1.0000000000000002: nothing is left over.
        ([0.7, 0.2, 0.1], 3), ([0.1] * 10, 10), ([0.6, 0.3, 0.1], 3), ([0.1, 0.7, 0.2], 3), ([0.7, 0.2, 0.099], 4),
    ],
)  # fmt: skip
def test_every_way_that_a_case_may_take_is_one_that_a_design_needs(options: list[float], ways: int) -> None:
    shares = {f"a{number}": share for number, share in enumerate(options)}
    work = {name: {"optional": True} for name in shares} | {"ask": {}, "offer": {}, "refuse": {}, "mend": {}}
    branch = {"name": "branch", "options": shares}
    outcome = {
        "name": "decision",
        "after": "ask",
        "branches": {
            "yes": {"probability": 0.5, "activities": ["offer"]},
            "no": {"probability": 0.3, "activities": ["refuse"]},
            "none": {"probability": 0.2},
        },
    }
    loop = {"name": "again", "activities": ["ask"], "after": "ask", "again": 0.5, "redo": ["mend"]}
    parts: list[tuple[dict[str, Any], int, int]] = [
        ({"branches": [branch]}, ways, ways),
        ({"outcomes": [outcome]}, 3, 3),
        ({"loops": [loop]}, 2, 2),
        ({"branches": [branch], "outcomes": [outcome], "loops": [loop]}, ways + 2 + 1, ways + 3 + 2),
        ({}, 1, 0),
    ]
    for stated, paths, states in parts:
        found = references_of(asked(work, **stated))
        assert (found.cyclomatic, found.control_flow) == (paths, states)


@pytest.mark.parametrize("seed", range(20))
def test_no_design_beats_the_references(seed: int) -> None:
    rng = random.Random(f"references/{seed}")
    block = random_block(rng, rng.randint(2, 9), ("sequence", "parallel", "order"))
    design, requirements = random_world(rng, block, 0.5, plain=True)
    found, best = evaluate(design, requirements, "analytic"), references_of(requirements)
    work = sum(found.utilisation[pool] * count for pool, count in design.servers) / found.throughput
    assert best.cycle_time <= found.cycle_time * (1 + 1e-6)
    # Without knock-outs every design does the same work; normal durations are cut off at 0, which adds a little.
    assert best.work == pytest.approx(work, rel=2e-3)
    assert best.cost <= best.staffed <= found.cost * (1 + 1e-6)


A, B = Activity("check claim"), Activity("pay claim")
LINE = Design("line", Sequence((A, B)), (("desk", 2),))
MEASURED = Performance(
    "analytic", 60.0, (60.0, 60.0), waiting=30.0, throughput=0.05, cost=7.0, utilisation={"desk": 0.5}, cpu=3.0,
    memory=150.0, completed=1.0, capacity=0.1,
)  # fmt: skip


def claims(**more: Any) -> Requirements:
    activities = {one.name: {"pools": ["desk"], "cost": 1.0} for one in (A, B)}
    return asked(activities, {"desk": {"most": 4}}, demand={"arrivals_per_second": 0.05}, **more)


def share(name: str, requirements: Requirements, performance: Performance = MEASURED, design: Design = LINE) -> float:
    found = score(design, requirements, performance)
    return dict(zip((measure.name for measure in MEASURES), found.measured, strict=True))[name][1]


def test_a_score_is_that_of_the_requirements_and_weights_it_is_asked_for() -> None:
    """One set of requirements is kept prepared: the next one, or other weights, must not be scored with it."""
    cheap, dear = claims(), asked({one.name: {"pools": ["desk"], "cost": 3.0} for one in (A, B)}, {"desk": {"most": 4}},
                                  demand={"arrivals_per_second": 0.05})  # fmt: skip
    first = score(LINE, cheap, MEASURED)
    assert score(LINE, dear, MEASURED) != first
    assert score(LINE, cheap, MEASURED) == first
    structure, time = (
        Weights(performance=0, structure=1, maintainability=0, resources=0),
        Weights(performance=1, structure=0, maintainability=0, resources=0),
    )
    assert score(LINE, cheap, MEASURED, structure).total == pytest.approx(first.groups[1])
    assert score(LINE, cheap, MEASURED, time).total == pytest.approx(first.groups[0])
    assert score(LINE, cheap, MEASURED) == first
    assert DesignScorer(cheap)(LINE, MEASURED) == first
    resources = Weights(performance=0, structure=0, maintainability=0, resources=2)
    assert score(LINE, cheap, MEASURED, resources).total == pytest.approx(first.groups[3])
    maintained = Weights(performance=0, structure=0, maintainability=5, resources=0)
    assert score(LINE, cheap, MEASURED, maintained).total == pytest.approx(first.groups[2])


@pytest.mark.parametrize(("capacity", "kept_up"), [(0.0499, False), (0.05, False), (0.0501, True)])
def test_pools_keep_up_below_their_capacity(capacity: float, kept_up: bool) -> None:
    found = score(LINE, claims(), replace(MEASURED, capacity=capacity))
    assert [one.rule for one in found.broken] == ([] if kept_up else ["overload"])


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        ("cycle time", {"cycle_time": 90.0}),
        ("throughput", {"throughput": 0.04}),
        ("cost", {"cost": 9.0}),
        ("contention", {"waiting": 60.0}),
        ("scalability", {"utilisation": {"desk": 0.9}}),
        ("cost", {"completed": 0.5}),
        ("cost efficiency", {"cost": 9.0}),
        ("cycle time", {"completed": 0.5}),
    ],
)
def test_whatever_is_worse_scores_less(name: str, worse: dict[str, Any]) -> None:
    assert share(name, claims(), replace(MEASURED, **worse)) < share(name, claims())


def test_contention_is_waiting_beside_work() -> None:
    assert share("contention", claims(), replace(MEASURED, waiting=0.0)) == 1
    assert share("contention", claims(), replace(MEASURED, waiting=20.0)) == pytest.approx(0.5), "one waits, one works"
    assert share("contention", claims(), replace(MEASURED, waiting=math.inf)) == 0
    assert share("scalability", claims()) == pytest.approx(1 - 0.5)


def test_a_batch_is_scored_as_its_designs_are() -> None:
    designs = [LINE, Design("other", Parallel((A, B)), (("desk", 4),))]
    measured = [MEASURED, replace(MEASURED, cycle_time=30.0)]
    alone = [score(design, claims(), one) for design, one in zip(designs, measured, strict=True)]
    assert [one.total for one in score_batch(designs, claims(), measured)] == [one.total for one in alone]
    unmeasured = score_batch(designs, claims())
    assert [one.performance for one in unmeasured] == [evaluate(design, claims()) for design in designs]


def test_documented_labelled_and_covered_are_shares_of_the_activities() -> None:
    activities = {"check claim": {"documentation": "looks at every page"}, "claim": {}, "pay it": {"optional": True}}
    requirements = asked({name: {"pools": ["desk"], **one} for name, one in activities.items()}, {"desk": {"most": 4}},
                         demand={"arrivals_per_second": 0.05})  # fmt: skip
    both = Design("d", Sequence((Activity("check claim"), Activity("claim"))), (("desk", 2),))
    described = replace(both, documentation="pays every claim at once")
    place = {measure.name: number for number, measure in enumerate(MEASURES)}
    found, more = (score(design, requirements, MEASURED).measured for design in (both, described))
    assert found[place["documentation"]][0] == pytest.approx(measures.documentation(0.5, False))
    assert more[place["documentation"]][0] == pytest.approx(measures.documentation(0.5, True))
    assert found[place["readability"]][0] == pytest.approx(measures.readability(anatomy(both).metrics, 0.5))
    assert found[place["path coverage"]][0] == 1
    handled = Design("d", Sequence((Activity("check claim", Handling(priority=1)), Activity("claim"))), (("desk", 2),))
    assert score(handled, requirements, MEASURED).measured == found


@pytest.mark.parametrize("seed", range(10))
def test_shares_lie_between_nothing_and_one(seed: int) -> None:
    rng = random.Random(seed)
    design, requirements = random_world(rng, random_block(rng, rng.randint(1, 8), FLAT), 0.5)
    relaxed = requirements.model_copy(
        update={
            "activities": {n: one.model_copy(update={"optional": True}) for n, one in requirements.activities.items()}
        }
    )
    found = score(design, relaxed, evaluate(design, relaxed, "analytic"))
    assert not found.broken
    assert all(0 <= part <= 1 for _, part, _ in found.measured)
    assert 0 <= found.total <= 1


def test_doing_more_than_cases_need_covers_no_more() -> None:
    half = claims(branches=[{"name": "paid", "options": {B.name: 0.5}}])
    assert share("path coverage", half) == 1


@pytest.mark.parametrize(
    ("desk", "demand", "cost", "staffed"),
    [
        # 10 s at 0.1 are 1, and the activity itself costs 2; staff that is paid all of the time costs more.
        ({}, {"arrivals_per_second": 0.05}, 3.0, 0.1 / 0.05 + 2),
        ({}, {"arrivals_per_second": 0.0999}, 3.0, 0.1 / 0.0999 + 2),
        ({}, {"arrivals_per_second": 0.1}, 3.0, 0.2 / 0.1 + 2),
        # Runs are over after 10 s at best; four of them share what one server costs until then.
        ({}, {"runs": 4}, 3.0, 3.0),
        ({"least": 3}, {"runs": 2}, 3.0, 0.3 * 10 / 2 + 2),
        ({"least": 3}, {"runs": 1}, 3.0, 0.3 * 10 + 2),
    ],
)
def test_the_cost_that_no_design_beats_pays_work_and_staff(
    desk: dict[str, Any], demand: dict[str, Any], cost: float, staffed: float
) -> None:
    pools = {"desk": {"most": 4, "wage": 0.1, **desk}}
    found = references_of(asked({"a": {"pools": ["desk"], "cost": 2.0}}, pools, demand=demand))
    assert (found.cost, found.staffed) == (pytest.approx(cost), pytest.approx(staffed))


def test_what_a_loop_repeats_is_paid_once_at_least() -> None:
    loop = {"name": "l", "activities": ["a"], "after": "a", "again": 0.5, "redo": ["b"]}
    work = {"a": {"pools": ["desk"], "cost": 2.0, "memory": 8.0}, "b": {"cost": 1.0, "memory": 4.0}}
    found = references_of(asked(work, {"desk": {"wage": 0.1}}, loops=[loop], demand={"runs": 1}))
    assert found.cost == pytest.approx(10 * 0.1 + 2 + 0.5 * 1)
    assert found.memory == pytest.approx(10 * 8 + 0.5 * 10 * 4)
    assert found.cycle_time == pytest.approx(20)
