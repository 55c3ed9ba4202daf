"""The overhead per task makes a schedule as long as the record says; the record is shown beside the simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run
from groupwise.workflows.blocks import Activity, Design, Parallel, Sequence
from groupwise.workflows.evaluation.recorded_runs import overhead_per_task, with_overhead
from groupwise.workflows.evaluation.schedule import schedule_design
from groupwise.workflows.files.wfcommons import recorded_makespan
from groupwise.workflows.inspection import open_workflow
from groupwise.workflows.requirements import parse_requirements

# Two tasks at once, then one: 10 s + 5 s on a machine with two cores, 15 s + 5 s with one.
TASKS: dict[str, tuple[float, list[str]]] = {"a": (10.0, []), "b": (5.0, []), "c": (5.0, ["a", "b"])}


def recorded(folder: Path, makespan: float | None, cores: int = 2) -> Path:
    names = list(TASKS)
    tasks: list[dict[str, Any]] = [
        {"name": name, "id": name, "parents": TASKS[name][1], "children": [n for n in names if name in TASKS[n][1]]}
        for name in names
    ]
    runs = [{"id": name, "runtimeInSeconds": TASKS[name][0], "machines": ["m"]} for name in names]
    execution: dict[str, Any] = {"tasks": runs, "machines": [{"nodeName": "m", "cpu": {"coreCount": cores}}]}
    if makespan is not None:
        execution["makespanInSeconds"] = makespan
    workflow = {"specification": {"tasks": tasks}, "execution": execution}
    path = folder / "run.json"
    path.write_text(json.dumps({"name": "run", "schemaVersion": "1.5", "workflow": workflow}), encoding="utf8")
    return path


@pytest.mark.parametrize(
    ("makespan", "cores", "overhead"), [(35.0, 2, 10.0), (15.0, 2, 0.0), (9.0, 2, 0.0), (50, 1, 10)]
)
def test_the_overhead_makes_up_for_what_the_record_took_longer(
    makespan: float, cores: int, overhead: float, tmp_path: Path
) -> None:
    opened = open_workflow(recorded(tmp_path, makespan, cores))
    design, requirements = opened.design(), opened.insist_on_requirements("this test")
    found = overhead_per_task(design, requirements, makespan)
    assert found == pytest.approx(overhead, abs=0.05)
    made = schedule_design(design, with_overhead(requirements, found))[0].makespan
    assert made == pytest.approx(max(makespan, 15.0 if cores == 2 else 20.0), rel=1e-3)


def test_simulate_shows_the_record_beside_its_own_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(recorded(tmp_path, 35.0))
    assert run(["simulate", path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the recorded run took 35 s; the simulated one differs by -57%. 10 s more per task" in said
    assert run(["simulate", path, "--json", "--overhead", "10"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"] == {"makespan": 35.0, "overhead_per_task": pytest.approx(10.0)}
    assert found["cycle_time"] == pytest.approx(35.0)
    assert recorded_makespan(recorded(tmp_path, None)) is None
    assert run(["simulate", path]) == 0
    assert "recorded" not in capsys.readouterr().out


def test_a_file_that_is_not_a_record_has_no_makespan(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"workflow": {"execution": {"makespanInSeconds": 5}}}', encoding="utf8")
    assert recorded_makespan(tmp_path / "other.json") is None
    assert recorded_makespan(tmp_path / "missing.bpmn") is None


@pytest.mark.parametrize(
    ("makespan", "overhead"), [(20.0, 0.0), (22.0, 2.0), (23.75, 3.75), (30.0, 5.0), (50.0, 9.0), (505.0, 100.0)]
)
@pytest.mark.parametrize("pools", [{}, {"p": {"least": 2, "most": 2}}])
def test_the_overhead_is_found_also_where_another_path_becomes_the_longest(
    makespan: float, overhead: float, pools: dict[str, Any]
) -> None:
    """One task of 20 s beside five of 1 s in a row: with more than 3.75 s each, the five take longer."""
    names = [f"t{number}" for number in range(5)]
    tasks = {name: {"duration": {"kind": "fixed", "mean": 1}, "pools": list(pools)} for name in names}
    tasks["long"] = {"duration": {"kind": "fixed", "mean": 20}, "pools": list(pools)}
    requirements = parse_requirements({"name": "r", "activities": tasks, "pools": pools})
    row = Sequence(tuple(map(Activity, names)))
    design = Design("d", Parallel((Activity("long"), row)))
    found = overhead_per_task(design, requirements, makespan)
    assert found == pytest.approx(overhead, rel=2e-3, abs=0.02)
    assert schedule_design(design, with_overhead(requirements, found))[0].makespan == pytest.approx(makespan, rel=1e-3)
