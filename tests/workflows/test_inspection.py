"""Workflow files of any format are opened with the right requirements, and checked without being run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.block_form import NotBlocks
from groupwise.workflows.blocks import Activity, Design, Sequence
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import write_workflow
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.inspection import Inspection, Opened, inspect_workflow, is_requirements, open_workflow
from groupwise.workflows.requirements import Requirements, parse_requirements

LINE = Design("line", Sequence((Activity("a"), Activity("b"))))


def asked(name: str = "own", **more: Any) -> dict[str, Any]:
    return {"name": name, "activities": {one: {"duration": {"mean": 1}} for one in "ab"}, **more}


def known(**more: Any) -> Requirements:
    return parse_requirements(asked(**more))


def written(folder: Path, name: str, value: Any) -> Path:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder / name


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.yaml", "name: x\nactivities:\n  a: 1\n", True),
        ("a.YML", "'activities' : {}\n", True),
        ("a.yaml", 'x: 1\n"activities": {}\n', True),
        ("a.yaml", "x:\n  activities: {}\n", False),
        ("a.yaml", "my_activities: {}\n", False),
        ("a.yaml", "activities_of: {}\n", False),
        ("a.json", '{"activities": {}}', True),
        ("a.json", '{"activities": []}', False),
        ("a.json", '{"nodes": {"activities": {}}}', False),
        ("a.json", "[]", False),
        ("a.json", "{", False),
        ("a.txt", "activities: {}\n", False),
    ],
)
def test_only_requirements_have_activities(tmp_path: Path, name: str, text: str, found: bool) -> None:
    assert is_requirements(written(tmp_path, name, text)) is found


def test_given_requirements_replace_those_of_the_file_and_a_start_is_beside_its_requirements(tmp_path: Path) -> None:
    write_workflow(document_of(LINE), tmp_path / "line.bpmn")
    plain = open_workflow(tmp_path / "line.bpmn")
    assert plain.requirements is None
    with pytest.raises(ConfigError) as error:
        plain.insist_on_requirements("a score")
    assert error.value.message == f"{tmp_path / 'line.bpmn'} has no durations, pools or demand, which a score needs"
    other = written(tmp_path, "other.json", asked("other"))
    own = written(tmp_path, "own.json", asked(start="line.bpmn"))
    for given, name in ((None, "own"), (other, "other"), (str(other), "other"), (known(name="mine"), "mine")):
        opened = open_workflow(own, given)
        assert opened.insist_on_requirements("a score").name == name
        assert opened.design().root == LINE.root
        if given is not None:
            assert open_workflow(tmp_path / "line.bpmn", given).insist_on_requirements("a score").name == name
    with pytest.raises(ConfigError, match="contains requirements but names no workflow to start from"):
        open_workflow(other)


def crossed() -> Graph:
    """Sound, and without a block form: an or-split with its or-join."""
    nodes = (
        Node("i", kind="start"), Node("s", split="or"), Node("a"), Node("b"), Node("j", join="or"),
        Node("o", kind="end"),
    )  # fmt: skip
    pairs = ["i s", "s a", "s b", "a j", "b j", "j o"]
    return Graph("crossed", nodes, tuple(Flow(*pair.split()) for pair in pairs))


def inspected(document: Document, requirements: Requirements | None = None) -> Inspection:
    return inspect_workflow(Opened(Path("file.bpmn"), document, requirements))


def test_a_workflow_is_fine_if_it_is_sound_keeps_the_rules_and_the_rules_agree() -> None:
    line = document_of(LINE)
    assert inspected(line).fine
    assert inspected(line, known()).fine
    broken = inspected(line, known(rules={"precedes": [["b", "a"]]}))
    assert (broken.fine, [one.rule for one in broken.broken], broken.conflicts) == (False, ["precedes"], ())
    torn = inspected(line, known(rules={"precedes": [["b", "a"], ["a", "b"]]}))
    assert torn.as_dict()["contradictions"] == [
        {
            "words": "'b' would have to come before itself: b → a → b",
            "rules": ["'b' precedes 'a'", "'a' precedes 'b'"],
        }
    ]
    stuck = Graph(
        "stuck",
        (Node("i", kind="start"), Node("s", split="xor"), Node("j", join="and"), Node("o", kind="end")),
        tuple(Flow(*pair.split()) for pair in ("i s", "s j", "s j", "j o")),
    )
    # One graph of several is enough.
    for graphs in ((stuck,), (line.root, stuck), (stuck, line.root)):
        unsound = inspected(Document("d", graphs))
        assert (unsound.fine, unsound.verdicts["stuck"].rule) == (False, "no way to complete")


def test_without_a_block_form_soundness_and_rules_are_judged_all_the_same() -> None:
    document = Document("d", (crossed(),), notes=("a note",))
    found = inspected(document, known())
    assert found.fine
    told = found.as_dict()
    why = "crossed: 's' is an or-join or or-split, which blocks do not have"
    assert (told["ok"], told["blocks"], told["notes"]) == (True, False, ["a note", why])
    assert told["graphs"]["crossed"]["verdict"] == "sound"
    assert told["metrics"]["crossed"]["nodes"] == 6
    assert not inspected(document, known(rules={"precedes": [["b", "a"], ["a", "b"]]})).fine
    with pytest.raises(
        NotBlocks, match=r"^file.bpmn cannot be evaluated, because it has no block form: crossed: 's' is"
    ):
        found.opened.design()
