"""The workflow commands on real files: what they answer, and what they refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run
from groupwise.reporting.command_options import patiently
from groupwise.workflows.blocks import Activity, Design, Parallel, Sequence
from groupwise.workflows.document import Document
from groupwise.workflows.evaluation.numba_compiler import compiled
from groupwise.workflows.files import write_workflow
from groupwise.workflows.graph import Flow, Graph, Node

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"
LOAN = str(EXAMPLES / "loan.yaml")
A, B = Activity("a"), Activity("b")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = run([*words, "--json"])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A workflow that says nothing of durations."""
    path = tmp_path / "plain.json"
    write_workflow(Design("plain", Sequence((A, B))), path)
    return path


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """A choice that waits for both of its branches."""
    gates = (Node("split", split="xor"), Node("a"), Node("b"), Node("join", join="and"))
    nodes = (Node("s", kind="start"), *gates, Node("e", kind="end"))
    ways = ["s split", "split a", "split b", "a join", "b join", "join e"]
    path = tmp_path / "stuck.json"
    write_workflow(Document("stuck", (Graph("stuck", nodes, tuple(Flow(*way.split()) for way in ways)),)), path)
    return path


def test_check_says_sound_and_keeps_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(capsys, "check", LOAN)
    assert (status, found["ok"], found["broken"], found["contradictions"]) == (0, True, [], [])
    assert found["metrics"]["loan application"]["cyclomatic"] == 2
    assert run(["check", LOAN]) == 0
    assert "✓ it obeys every rule of 'loan application'" in capsys.readouterr().out


def test_check_shows_the_steps_to_a_deadlock(stuck: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(stuck)]) == 1
    out = capsys.readouterr().out
    assert "✗ stuck is not sound: no way to complete" in out
    assert "  after " in out
    status, found = answer(capsys, "check", str(stuck))
    assert status == 1
    assert found["graphs"]["stuck"]["verdict"] == "unsound"


def test_check_names_broken_and_contradictory_rules(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    activities = "activities: {a: {duration: {mean: 1}}, b: {duration: {mean: 1}}}\n"
    rules.write_text(f"name: r\n{activities}rules: {{precedes: [[b, a]]}}\n", encoding="utf8")
    status, found = answer(capsys, "check", str(plain), "--requirements", str(rules))
    assert (status, [one["rule"] for one in found["broken"]]) == (1, ["precedes"])
    rules.write_text(f"name: r\n{activities}rules: {{precedes: [[b, a], [a, b]]}}\n", encoding="utf8")
    status, found = answer(capsys, "check", str(plain), "-r", str(rules))
    assert found["contradictions"][0]["rules"] == ["'b' precedes 'a'", "'a' precedes 'b'"]


def test_score_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(capsys, "score", LOAN)
    assert status == 0
    assert 0 < found["score"] < 1
    assert [part["name"] for part in found["explanation"]["parts"]] == list(found["groups"])
    assert run(["score", LOAN, "--weight", "structure=0"]) == 0
    assert "cycle time" in capsys.readouterr().out


def test_simulate_tells_how_it_performs(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(capsys, "simulate", LOAN, "--cases", "2000", "--seed", "1")
    assert (status, found["tier"], found["broken"]) == (0, "simulation", [])
    low, high = found["interval"]
    assert low < found["cycle_time"] < high
    assert run(["simulate", LOAN, "--cases", "500"]) == 0
    assert "busy: loan officer" in capsys.readouterr().out


def test_simulate_reports_a_broken_rule_without_simulating(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # One person cannot keep a rule about two, so no case would ever end.
    plain, rules = tmp_path / "plain.json", tmp_path / "rules.yaml"
    write_workflow(Design("plain", Sequence((A, B)), (("desk", 1),)), plain)
    work = "{duration: {mean: 10}, pools: [desk]}"
    rules.write_text(
        f"name: r\nactivities: {{a: {work}, b: {work}}}\npools: {{desk: {{most: 2}}}}\n"
        "rules: {different_people: [[a, b]]}\ndemand: {arrivals_per_second: 0.01}\n",
        encoding="utf8",
    )
    status, found = answer(capsys, "simulate", str(plain), "-r", str(rules))
    assert (status, found["cycle_time"], [one["rule"] for one in found["broken"]]) == (1, None, ["people"])
    assert run(["simulate", str(plain), "-r", str(rules)]) == 1
    assert "Not simulated, because the design breaks a rule" in capsys.readouterr().out


def test_simulate_draws_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = answer(capsys, "simulate", LOAN, "--cases", "500", "-o", str(tmp_path / "figures"))
    names = {Path(path).name for path in found["figures"]}
    assert names == {"workflow.svg", "gantt.svg", "queues.svg", "utilisation.svg", "tokens.svg", "tokens.gif"}
    assert all(Path(path).stat().st_size > 500 for path in found["figures"])


@pytest.mark.parametrize(("command", "what"), [("score", "a score"), ("simulate", "a simulation")])
def test_without_requirements_it_says_what_is_missing(
    command: str, what: str, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, str(plain)]) == 2
    error = capsys.readouterr().err
    assert f"has no durations, pools or demand, which {what} needs" in error
    assert "--requirements FILE" in error


def test_an_unsound_workflow_has_no_score(stuck: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(capsys, "score", str(stuck), "-r", LOAN)
    assert status == 2
    assert "only sound workflows have a score" in found["error"]["message"]


def test_convert_and_diff(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "made" / "plain.bpmn"
    assert answer(capsys, "convert", str(plain), str(target))[0] == 0
    status, found = answer(capsys, "diff", str(plain), str(target))
    assert (status, found["same"]) == (0, True)
    other = tmp_path / "other.json"
    write_workflow(Design("plain", Parallel((A, B))), other)
    assert run(["diff", str(target), str(other)]) == 1
    assert capsys.readouterr().out == "↕ 'b' is now in parallel with 'a' (it was after)\n"


def test_a_format_that_cannot_say_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", LOAN, str(tmp_path / "loan.dax.unknown")]) == 2
    assert "no supported format has the suffix '.unknown'" in capsys.readouterr().err


def test_requirements_from_a_log_and_what_is_possible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    rows = [
        f"{case},{name},{case * 100 + at},{case * 100 + at + 10}"
        for case in range(9)
        for name, at in (("a", 0), ("b", 20))
    ]
    log.write_text("case,activity,start,end\n" + "\n".join(rows), encoding="utf8")
    made = tmp_path / "made.yaml"
    status, found = answer(capsys, "requirements", str(log), "-o", str(made))
    assert (status, found["best_cycle_time"], found["chain"]) == (0, 20.0, ["a", "b"])
    status, found = answer(capsys, "requirements", str(made))
    assert found["requirements"]["rules"]["precedes"] == [["a", "b"]]
    assert run(["requirements", str(tmp_path / "log.pdf")]) == 2


def test_requirements_that_no_design_meets_have_no_best_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "asked.yaml"
    activities = "name: r\nactivities: {a: {duration: {mean: 60}}, b: {duration: {mean: 60}}}\n"
    file.write_text(f"{activities}rules: {{precedes: [[a, b]], deadline: 100}}\n", encoding="utf8")
    status, found = answer(capsys, "requirements", str(file))
    assert (status, found["best_cycle_time"], found["chain"], len(found["contradictions"])) == (1, None, [], 1)
    assert run(["requirements", str(file)]) == 1
    assert "faster than" not in capsys.readouterr().out


def test_requirements_that_start_from_a_missing_file_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text("name: r\nactivities: {a: {duration: {mean: 60}}}\nstart: today.bpmn\n", encoding="utf8")
    assert run(["requirements", str(file)]) == 2
    error = capsys.readouterr().err
    assert "start: " in error
    assert "today.bpmn: no such file" in error
    write_workflow(Design("today", A), tmp_path / "today.bpmn")
    assert run(["requirements", str(file)]) == 0


def test_a_text_needs_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GROUPWISE_MODEL", raising=False)
    (tmp_path / "process.txt").write_text("First a, then b.", encoding="utf8")
    assert run(["requirements", str(tmp_path / "process.txt")]) == 2
    assert "none is configured" in capsys.readouterr().err


def compile_something(name: str, folder: Path) -> None:
    """Compile a function that is in no cache yet, for long enough to be noticed."""
    source = folder / f"{name}.py"
    lines = [f"    total += x ** {power} if x > {power} else x / {power + 1}" for power in range(15)]
    source.write_text("\n".join([f"def {name}(x):", "    total = 0.0", *lines, "    return total"]), encoding="utf8")
    names: dict[str, Any] = {}
    exec(compile(source.read_text(encoding="utf8"), str(source), "exec"), names)  # noqa: S102
    compiled(names[name])(1.5)


def test_compiling_is_explained_once_and_no_other_wait_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with patiently(False, seconds=0.0):
        compile_something("first", tmp_path)
    assert capsys.readouterr().err.count("compiling the evaluation") == 1
    with patiently(False, seconds=0.0):
        time.sleep(0.4)
    with patiently(True, seconds=0.0):
        compile_something("second", tmp_path)
    with patiently(False, seconds=1000.0):
        compile_something("third", tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["check", "score", "simulate"])
def test_a_missing_file_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, str(tmp_path / "nothing.bpmn")]) == 2
    assert "nothing.bpmn: no such file" in capsys.readouterr().err


def test_edit_compares_with_before_and_writes_the_result(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "edited.json"
    words = ["edit", LOAN, "--staff", "approver=1", "--chance", "verify income ends the case=0.2", "-o", str(out)]
    status, found = answer(capsys, *words)
    assert (status, found["ok"], found["edits"]) == (0, True, ["1 of approver", "verify income ends the case: 0.2"])
    assert 0 < found["score"] != found["before"] > 0
    assert found["requirements"]["activities"]["verify income"]["knock_out"] == 0.2
    status, again = answer(capsys, "edit", str(out), "-r", LOAN, "--move", "sign contract after pay out loan")
    assert (status, again["score"]) == (1, 0.0)
    assert any("pay out loan" in one["words"] for one in again["broken"])
    for option, text in (("--move", "a to b"), ("--staff", "approver=0"), ("--chance", "x"), ("--rule", "deadline: x")):
        status, refused = answer(capsys, "edit", LOAN, option, text)
        assert (status, refused["error"]["code"]) == (2, "config")
