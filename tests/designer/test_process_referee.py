"""The referee of designs: closed forms, our own simulation, and what only the referee knows (people, limits)."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows import evaluate, parse_requirements, write_workflow
from groupwise.workflows.blocks import Activity, Block, Choice, Design, Handling, Loop, Parallel, Retry, Sequence, Skip
from groupwise.workflows.document import document_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import process_referee as referee


def judged(
    root: Block,
    stated: dict[str, Any],
    path: Path,
    cases: int = 4000,
    staff: dict[str, int] | None = None,
    *,
    drawn: bool = False,
) -> referee.Judged:
    """`drawn`: the file has the ways in which cases end early as paths."""
    known = parse_requirements(stated) if drawn else None
    write_workflow(document_of(Design("d", root, tuple((staff or {}).items())), known), path)
    return referee.simulate(referee.read_net(path), stated, cases, seed=11)


def stated(seconds: dict[str, float], pools: dict[str, Any], rate: float, **rest: Any) -> dict[str, Any]:
    activities = {name: {"duration": {"mean": mean}, "pools": ["desk"]} for name, mean in seconds.items()}
    return {"name": "t", "activities": activities, "pools": pools, "demand": {"arrivals_per_second": rate}, **rest}


def test_a_queue_is_that_of_the_closed_form(tmp_path: Path) -> None:
    asked = stated({"serve": 60.0}, {"desk": {"most": 2, "wage": 0.01}}, 1 / 50)
    found = judged(Activity("serve"), asked, tmp_path / "q.bpmn", 20_000, {"desk": 2})
    # M/M/2 with load 0.6: W = s / (1 − ρ²).
    assert found.cycle_time == pytest.approx(60 / (1 - 0.6**2), rel=0.05)
    assert found.cost == pytest.approx(2 * 0.01 * 50)
    assert found.utilisation == pytest.approx(0.6, rel=0.05)


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("suffix", ["bpmn", "yawl"])
def test_it_agrees_with_our_simulation_where_both_know_everything(tmp_path: Path, suffix: str, drawn: bool) -> None:
    office = [[24.0 * day + 8, 24.0 * day + 18] for day in range(7)]
    asked = stated({name: 600.0 for name in "abcdef"}, {"desk": {"most": 9, "wage": 0.01, "calendar": office}}, 1 / 900)
    for name, chance in (("a", 0.2), ("b", 0.3), ("c", 0.1), ("e", 0.1)):
        asked["activities"][name]["knock_out"] = chance
    asked["activities"]["d"]["failure"] = 0.2
    asked["activities"]["f"] |= {"failure": 0.3, "cost": 2.0}
    asked["activities"]["c"]["pools"] = []
    root = Sequence((
        Activity("a"),
        Parallel((Activity("b"), Sequence((Activity("c"), Choice((Activity("d"), Skip()), (0.4, 0.6)))))),
        Loop(Activity("e"), 0.3),
        Activity("f", Handling(retry=Retry(1, 60))),
    ))  # fmt: skip
    found = judged(root, asked, tmp_path / f"p.{suffix}", 4000, {"desk": 9}, drawn=drawn)
    ours = evaluate(Design("d", root, (("desk", 9),)), parse_requirements(asked), "simulation", seed=1, cases=20_000)
    assert found.cycle_time == pytest.approx(ours.cycle_time, rel=0.05)
    assert found.cost == pytest.approx(ours.cost, rel=0.02)
    assert found.completed == pytest.approx(ours.completed, abs=0.02)


def test_a_loop_stops_at_its_limit(tmp_path: Path) -> None:
    loop = {"name": "l", "activities": ["a"], "after": "a", "again": 0.9, "most": 2, "redo": ["b"]}
    asked = stated({"a": 100.0, "b": 10.0}, {}, 0.001, loops=[loop])
    for one in asked["activities"].values():
        one |= {"pools": [], "duration": {"kind": "fixed", "mean": one["duration"]["mean"]}}
    found = judged(Loop(Activity("a"), 0.9, Activity("b")), asked, tmp_path / "l.yawl", 2000)
    assert found.cycle_time == pytest.approx(100 + (0.9 + 0.81) * 110, rel=0.02)


def test_different_people_wait_for_each_other_and_the_same_person_does_both(tmp_path: Path) -> None:
    people = {"Anna": {"pools": ["desk"]}, "Bert": {"pools": ["desk"], "calendar": [[0, 1]]}}
    asked = stated({"a": 60.0, "b": 60.0}, {"desk": {"most": 2}}, 1 / 86400, people=people)
    both = Sequence((Activity("a"), Activity("b")))
    free = judged(both, asked, tmp_path / "f.bpmn", 200, {"desk": 2})
    assert free.cycle_time < 200
    asked["rules"] = {"same_person": [["a", "b"]]}
    bound = judged(both, asked, tmp_path / "s.bpmn", 200, {"desk": 2})
    assert bound.cycle_time < 3600
    # Bert works one hour a week, and one of the two activities is his.
    asked["rules"] = {"different_people": [["a", "b"]]}
    apart = judged(both, asked, tmp_path / "d.bpmn", 200, {"desk": 2})
    assert apart.cycle_time > 0.3 * referee.WEEK


def test_work_rests_between_shifts() -> None:
    server = referee.Server("Anna", ("desk",), set(), [(8 * 3600.0, 16 * 3600.0), (32 * 3600.0, 40 * 3600.0)])
    assert server.opens(0) == 8 * 3600
    assert server.finishes(15 * 3600.0, 2 * 3600.0) == pytest.approx(33 * 3600.0)
    assert server.opens(41 * 3600.0) == referee.WEEK + 8 * 3600
    assert server.hours == pytest.approx(16 / 168)
    assert referee._shifts([[6, 10]], [[8, 12], [12, 14]]) == [(8 * 3600.0, 10 * 3600.0)]
    assert referee._shifts(None, None) == []


def test_a_way_that_waits_for_nobody_is_told(tmp_path: Path) -> None:
    people = {"Anna": {"pools": ["desk"]}}
    asked = stated({"a": 60.0, "b": 60.0}, {"desk": {"most": 1}}, 1 / 600, people=people)
    asked["rules"] = {"different_people": [["a", "b"]]}
    with pytest.raises(ValueError, match="100 of 100 cases never ended"):
        judged(Sequence((Activity("a"), Activity("b"))), asked, tmp_path / "n.bpmn", 100, {"desk": 1})
    assert math.isnan(referee.Case(0.0).took)


ASKED_TWICE = """<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL"><process id="p">
<startEvent id="s"/><task id="a" name="a"/><exclusiveGateway id="x" default="f2"/><task id="b" name="b"/>
<exclusiveGateway id="j"/><exclusiveGateway id="y" default="f4"/><task id="c" name="c"/>
<endEvent id="e1"/><endEvent id="e2"/>
<sequenceFlow id="f0" sourceRef="s" targetRef="a"/><sequenceFlow id="f00" sourceRef="a" targetRef="x"/>
<sequenceFlow id="f1" sourceRef="x" targetRef="b"><conditionExpression>kind == 'x'</conditionExpression></sequenceFlow>
<sequenceFlow id="f2" sourceRef="x" targetRef="j"/><sequenceFlow id="f3" sourceRef="b" targetRef="j"/>
<sequenceFlow id="f5" sourceRef="j" targetRef="y"/>
<sequenceFlow id="f6" sourceRef="y" targetRef="c"><conditionExpression>kind == 'x'</conditionExpression></sequenceFlow>
<sequenceFlow id="f4" sourceRef="y" targetRef="e1"/><sequenceFlow id="f7" sourceRef="c" targetRef="e2"/>
</process></definitions>"""


def test_gateways_that_name_one_variable_decide_alike(tmp_path: Path) -> None:
    (tmp_path / "p.bpmn").write_text(ASKED_TWICE)
    durations = {"a": 1.0, "b": 10.0, "c": 100.0}
    stated = {
        "activities": {name: {"duration": {"kind": "fixed", "mean": mean}} for name, mean in durations.items()},
        "demand": {"arrivals_per_second": 1.0},
    }
    office = referee.Referee(referee.read_net(tmp_path / "p.bpmn"), stated, 1)
    taken = []
    for _ in range(200):
        case = referee.Case(office.world.now)
        office.world.run(office.world.process(office.walk(case, office.net.start)))
        taken.append(round(case.took))
    assert {*taken} == {1, 111}
    assert 60 < taken.count(111) < 140
