"""Workflows over HTTP: designed, checked, simulated, and in every format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from groupwise.service import designs
from groupwise.service.designs import Designs
from groupwise.service.settings import ServiceSettings
from groupwise.workflows.files.formats import formats

SMALL = {
    "name": "tea",
    "activities": {
        "boil water": {"duration": {"kind": "fixed", "mean": 120}, "pools": ["cook"]},
        "warm the pot": {"duration": {"kind": "fixed", "mean": 60}, "pools": ["cook"]},
        "pour": {"duration": {"kind": "fixed", "mean": 10}, "pools": ["cook"]},
    },
    "pools": {"cook": {"least": 1, "most": 3}},
    "rules": {"precedes": [["boil water", "pour"], ["warm the pot", "pour"]]},
    "demand": {"runs": 1},
}


@pytest.fixture(scope="module")
def made(service: Any) -> dict[str, Any]:
    answer = service.post("/api/workflows/design", {"requirements": SMALL, "evaluations": 8}, timeout=600)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_design_is_sound_scored_and_drawn(made: dict[str, Any]) -> None:
    assert made["sound"]
    assert made["name"] == "tea"
    assert 0 < made["score"] <= 1
    assert made["explanation"]["share"] == made["score"]
    assert {part["name"] for part in made["explanation"]["parts"]} >= {"performance", "structure"}
    assert made["svg"].startswith("<svg")
    assert "boil water" in made["svg"]
    assert not made["broken"]


def test_a_design_is_had_in_every_format(service: Any, made: dict[str, Any]) -> None:
    assert {one["format"] for one in made["downloads"]} == {n for n, one in formats().items() if one.write is not None}
    for one in made["downloads"]:
        answer = service.get(one["url"], timeout=600)
        if one["cannot"]:
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "cannot_express")
            continue
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"] == f'attachment; filename="tea{one["suffix"]}"'
        assert b"boil" in answer.content or one["format"] == "png"


def test_a_download_is_checked_simulated_and_converted(service: Any, made: dict[str, Any]) -> None:
    bpmn = service.get(f"/api/workflows/{made['id']}/download/bpmn").text
    verdict = service.post("/api/workflows/check", {"workflow": bpmn, "requirements": SMALL}).json()
    assert (verdict["ok"], [graph["verdict"] for graph in verdict["graphs"].values()]) == (True, ["sound"])
    asked = {"workflow": bpmn, "requirements": json.dumps(SMALL), "tier": "schedule"}
    found = service.post("/api/workflows/simulate", asked, timeout=600).json()
    assert 130 <= found["cycle_time"] <= 190
    yawl = service.post("/api/workflows/convert", {"workflow": bpmn, "to": "yawl"})
    assert yawl.headers["content-type"] == "application/xml"
    assert "specificationSet" in yawl.text


def test_a_design_that_breaks_a_rule_is_not_simulated(service: Any, made: dict[str, Any]) -> None:
    bpmn = service.get(f"/api/workflows/{made['id']}/download/bpmn").text
    requirements = {**SMALL, "rules": {"precedes": [["pour", "boil water"]]}}
    found = service.post("/api/workflows/simulate", {"workflow": bpmn, "requirements": requirements}).json()
    assert (found["ok"], found["cycle_time"], found["broken"][0]["rule"]) == (False, None, "precedes")


@pytest.mark.parametrize(("path", "body", "words"), [
    ("design", {"requirements": "name: [", "evaluations": 1}, ""),
    ("design", {"requirements": {"name": "x"}}, "activities"),
    ("design", {"requirements": {**SMALL, "start": "/etc/passwd"}}, "names a file"),
    ("design", {"requirements": SMALL, "evaluations": 0}, "evaluations"),
    ("check", {"workflow": "hello"}, "format"),
    ("check", {"workflow": "<bpmn", "format": "bpmn"}, ""),
    ("check", {"workflow": "x", "format": "word"}, "word"),
    ("check", {"workflow": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>', "format": "bpmn"}, ""),
    ("simulate", {"workflow": "flowchart LR", "format": "mermaid"}, "not read"),
    ("convert", {"workflow": "x", "to": "../up"}, ""),
])  # fmt: skip
def test_what_cannot_be_worked_on_says_why(service: Any, path: str, body: dict[str, Any], words: str) -> None:
    answer = service.post(f"/api/workflows/{path}", body, timeout=600)
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert words in json.dumps(error)
    assert "/tmp" not in answer.text
    assert "root:" not in answer.text


def test_work_that_takes_too_long_is_ended(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.parts.designs, "seconds", 0.05)
    answer = service.post("/api/workflows/design", {"requirements": SMALL, "evaluations": 4096})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "took_too_long")


def test_designs_that_are_not_there_and_examples_that_are(service: Any) -> None:
    assert service.get(f"/api/workflows/{'0' * 16}/download/bpmn").json()["error"]["code"] == "design_not_found"
    examples = {one["name"]: one for one in service.get("/api/workflows/examples").json()["examples"]}
    assert "start: loan.bpmn" in examples["loan"]["requirements"]
    assert "<bpmn:definitions" in examples["loan"]["workflow"]


def test_a_workflow_that_is_only_opened_is_as_before_and_drawn_with_its_pools(service: Any) -> None:
    examples = {one["name"]: one for one in service.get("/api/workflows/examples").json()["examples"]}
    asked = {name: examples["loan"][name] for name in ("workflow", "requirements")}
    opened = service.post("/api/workflows/edit", asked, timeout=600).json()
    assert opened["before"]["performance"] == opened["performance"]
    assert opened["before"]["score"] == opened["score"]
    checked = service.post("/api/workflows/check", asked, timeout=600).json()
    assert "loan officer (3)" in checked["svg"]


def test_a_workflow_is_edited_scored_and_kept(service: Any, made: dict[str, Any]) -> None:
    drawn = service.get(f"/api/workflows/{made['id']}/download/json").text
    asked = {"workflow": drawn, "requirements": SMALL}
    opened = service.post("/api/workflows/edit", asked, timeout=600).json()
    assert opened["ok"]
    assert opened["edits"] == []
    assert opened["score"] == opened["before"]["score"] > 0
    assert opened["pools"]["cook"] == {"count": opened["pools"]["cook"]["count"], "least": 1, "most": 3}
    assert opened["chances"]["pour fails"] == 0
    edits = [{"do": "staff", "pool": "cook", "count": 1}, {"do": "chance", "of": "pour fails", "value": 0.5}]
    found = service.post("/api/workflows/edit", {**asked, "edits": edits}).json()
    assert (found["ok"], found["edits"]) == (True, ["1 of cook", "pour fails: 0.5"])
    assert found["requirements"]["activities"]["pour"]["failure"] == 0.5
    assert b"boil" in service.get(next(one["url"] for one in found["downloads"] if one["format"] == "bpmn")).content
    back = {"do": "move", "activity": "pour", "place": "before", "other": "boil water"}
    broken = service.post("/api/workflows/edit", {**asked, "edits": [back]}).json()
    assert (broken["ok"], broken["score"]) == (False, 0)
    assert broken["broken"]
    refused = service.post("/api/workflows/edit", {**asked, "edits": [{"do": "staff", "pool": "cok", "count": 1}]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "config")
    assert "did you mean 'cook'" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("designs_kept", "bytes_kept", "left"),
    [(10, 1000, list("abcde")), (3, 1000, list("de")), (10, 35, list("cde")), (10, 5, [])],
)
def test_of_many_designs_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, designs_kept: int, bytes_kept: int, left: list[str]
) -> None:
    monkeypatch.setattr(designs, "MOST_DESIGNS", designs_kept)
    monkeypatch.setattr(designs, "MOST_BYTES", bytes_kept)
    holder = Designs(ServiceSettings(runs_dir=tmp_path))
    holder.folder.mkdir(parents=True)
    for age, name in enumerate("abcde"):
        file = holder.folder / f"{name}.json"
        file.write_text("x" * 10)
        os.utime(file, (1000 + age, 1000 + age))
    holder._make_room(5)
    assert sorted(file.stem for file in holder.folder.iterdir()) == left
