"""`groupwise design` on real files: what it writes and tells, what it refuses, and what it keeps."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from groupwise.cli import run
from groupwise.designer.design_call import DesignOptions, design_for
from groupwise.designer.policy import GraphPolicy, load_policy, save_policy
from groupwise.designer.results.outcome import STAGES, Generation
from groupwise.training.stop_conditions import graceful_stop
from groupwise.workflows.block_form import lift
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import read_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_document

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"
LOAN = EXAMPLES / "loan.yaml"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that has learned nothing."""
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("policy") / "untrained.safetensors"
    save_policy(GraphPolicy(), path)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, Any]:
    status = run([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


def tiny(path: Path, **more: Any) -> Path:
    activities = {
        name: {"duration": {"mean": 10}, "pools": ["clerk"]} for name in ("take order", "pack box", "send box")
    }
    pools = {"clerk": {"least": 1, "most": 4, "wage": 0.01}}
    value = {"name": "tiny", "activities": activities, "pools": pools, "demand": {"arrivals_per_second": 0.02}}
    path.write_text(yaml.safe_dump({**value, **more}), encoding="utf8")
    return path


def test_it_writes_every_format_and_tells_what_it_did(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    files = [tmp_path / f"out.{suffix}" for suffix in ("yawl", "bpmn", "svg", "json")]
    wanted = [word for path in files for word in ("-o", str(path))]
    assert run(["design", str(LOAN), *wanted, "--evaluations", "40", "--policy", weights]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.replace("\n" + str(tmp_path), "\n").splitlines())) <= 80
    for words in (
        "loan application: Score 0.",
        "Pareto-optimal designs",
        "Changes from loan.bpmn",
        "Staff: front office ",
        "40 evaluations",
        *STAGES,
    ):
        assert words in out, words
    assert all(f"Wrote{path}" in "".join(out.split()) for path in files)
    for path in files[:2] + files[3:]:
        document = read_workflow(path)
        assert all(verdict.sound for verdict in check_document(document).values())
        assert not broken_rules(lift(document), read_requirements(LOAN))


def test_the_account_adds_up_and_the_same_seed_gives_the_same(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("design", LOAN, "--evaluations", "40", "--policy", weights, "--seed", "3")
    status, found = answer(capsys, *words)
    again = answer(capsys, *words)[1]
    assert status == 0
    timed = {"stages": 0, "simulation": 0}
    assert {**found, **timed} == {**again, **timed}
    assert found["evaluations"] == sum(generation["judged"] for generation in found["generations"]) == 40
    assert sum(row["chosen"] for row in found["pareto"]) == 1
    assert found["pareto"][0]["chosen"]
    effect = sum(reason["effect"] for reason in found["rose"] + found["fell"])
    assert effect == pytest.approx(found["score"] - found["start_score"], abs=0.005)
    assert answer(capsys, *words[:-1], "4")[1]["design"] is not None


def test_an_outcome_is_designed_as_a_choice_with_its_branches(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    branches = {"paid": {"probability": 0.9, "activities": ["send box"]}, "not paid": {"probability": 0.1}}
    outcome = {"name": "payment", "after": "take order", "branches": branches}
    path, out = tiny(tmp_path / "r.yaml", outcomes=[outcome]), tmp_path / "o.bpmn"
    status, said = answer(capsys, "design", path, "-o", out, "--policy", weights)
    assert status == 0
    assert "[– 10% | send box 90%]" in said["design"]
    assert run(["score", str(out), "-r", str(path)]) == 0


def test_requirements_that_contradict_themselves_are_explained_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a policy is even looked for."""
    path = tiny(tmp_path / "ring.yaml", rules={"precedes": [["take order", "pack box"], ["pack box", "take order"]]})
    assert run(["design", str(path), "--policy", str(tmp_path / "nowhere")]) == 2
    assert "would have to come before itself" in capsys.readouterr().err
    path = tiny(tmp_path / "busy.yaml", demand={"arrivals_per_second": 5.0})
    assert run(["design", str(path)]) == 2
    assert "clerk" in capsys.readouterr().err


def test_what_cannot_be_used_is_refused_in_a_sentence(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny(tmp_path / "tiny.yaml")
    assert run(["design", str(path), "-o", str(tmp_path / "out.docx")]) == 2
    assert "no supported format has the suffix '.docx'" in capsys.readouterr().err
    assert run(["design", str(path), "--policy", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a policy" in capsys.readouterr().err
    assert run(["design", str(path), "--evaluations", "0", "--policy", weights]) == 2
    assert run(["design", str(tmp_path / "missing.yaml")]) == 2


def test_without_a_start_it_is_compared_with_one_line(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {"precedes": [["pack box", "send box"], ["take order", "pack box"]]}
    found = answer(capsys, "design", tiny(tmp_path / "tiny.yaml", rules=rules), "--policy", weights)[1]
    assert found["start"] == "a plain sequence with minimal staffing"
    assert found["design"] == "take order → pack box → send box"
    assert found["score"] >= found["start_score"] > 0


def test_a_start_that_breaks_a_rule_has_no_score(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tiny(tmp_path / "first.yaml", rules={"precedes": [["take order", "pack box"], ["pack box", "send box"]]})
    assert run(["design", str(first), "--policy", weights, "-o", str(tmp_path / "start.json")]) == 0
    other = tiny(tmp_path / "other.yaml", start="start.json", rules={"precedes": [["send box", "take order"]]})
    status, found = answer(capsys, "design", other, "--policy", weights)
    assert (status, found["start_score"], found["rose"]) == (0, 0.0, [])
    assert "precedes" in found["start_broken"][0]
    assert run(["design", str(other), "--policy", weights]) == 0
    assert "no score, because it breaks rules" in capsys.readouterr().out


def test_a_deadline_that_no_design_kept_is_a_failure(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 s are possible with nobody waiting, and somebody always waits."""
    rules = {"precedes": [["take order", "pack box"], ["pack box", "send box"]], "deadline": 30.001}
    path = tiny(tmp_path / "late.yaml", rules=rules)
    good = tmp_path / "late.bpmn"
    good.write_text("an earlier design")
    assert run(["design", str(path), "--policy", weights, "-o", str(good)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "No design was found that obeys every rule" in out
    assert "not written, because the closest design breaks a rule" in out
    assert good.read_text() == "an earlier design"
    closest = tmp_path / "closest-late.bpmn"
    status, found = answer(capsys, "score", closest, "-r", path)
    assert (status, found["broken"][0]["rule"]) == (1, "deadline")


def test_a_single_run_is_designed_by_its_schedule(weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer(
        capsys, "design", EXAMPLES / "scientific_dag.yaml", "--policy", weights, "--evaluations", "16"
    )
    assert status == 0
    assert any("a single run" in note for note in found["notes"])
    assert len(found["generations"]) > 1  # small generations, for search to go on from
    assert found["score"] > 0


def test_an_interrupt_keeps_the_best_so_far(weights: str) -> None:
    seen: list[Generation] = []

    def watch(generation: Generation) -> None:
        seen.append(generation)
        signal.raise_signal(signal.SIGINT)

    with graceful_stop() as flag:
        found = design_for(DesignOptions(LOAN, 10_000, policy=Path(weights)), watch, lambda: flag.raised)
    assert len(seen) == 1
    assert found.outcome.evaluations == seen[0].judged == 32
    assert "Interrupted: this is the best of 32 designs." in found.notes
    assert found.chosen.generation == 0
    assert not found.score.broken


def test_what_is_learned_lies_beside_the_memory_and_is_gone_on_from(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, learned = tmp_path / "shop.sqlite", tmp_path / "shop.safetensors"
    path = tiny(tmp_path / "tiny.yaml")
    before = Path(weights).read_bytes()
    words = ("design", path, "--learn", "--memory", memory, "--evaluations", "64")
    found = answer(capsys, *words, "--policy", weights)[1]
    assert found["learned"] == str(learned)
    assert memory.exists()
    assert Path(weights).read_bytes() == before
    first = load_policy(learned).state_dict()
    assert not torch.equal(first["out"], load_policy(weights).state_dict()["out"])
    answer(capsys, *words)
    assert not torch.equal(load_policy(learned).state_dict()["out"], first["out"])


def test_the_page_holds_everything_and_asks_for_nothing(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    path = tiny(tmp_path / "tiny.yaml", name="<b>tiny</b>")
    assert run(["design", str(path), "--policy", weights, "--report", str(page), "--check"]) == 0
    text = page.read_text(encoding="utf8")
    for title in ("The design", "What changed", "Pareto front", "Parts of the score", "The search", "Convergence"):
        assert f"<h2>{title}" in text, title
    assert "Prediction and simulation" in text
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "<b>tiny" not in text
    assert "src=" not in text


def test_a_designer_trains_and_its_report_shows_designs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = EXAMPLES.parent / "workflows.toml"
    small = ("training.num_episodes=1", "rollout.tasks_per_step=1", "rollout.num_generations=4", "run.eval_episodes=3")
    changes = [word for one in (*small, f"run.output_dir={tmp_path}", "run.eval_steps=1") for word in ("--set", one)]
    assert run(["train", str(settings), *changes, "--json"]) == 0
    capsys.readouterr()
    text = next(tmp_path.glob("*/report.html")).read_text(encoding="utf8")
    for title in (
        "Designs before and after training",
        "A search with the trained policy",
        "Pareto front",
        "Convergence",
    ):
        assert f"<h2>{title}" in text, title
