"""Requirements are read from YAML and JSON, and a mistake is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.requirements import Requirements, parse_requirements, read_requirements, schema

LOAN = """
name: loan
activities:
  check: {duration: {mean: 600}, pools: [clerk], knock_out: 0.2}
  score: {duration: {kind: gamma, mean: 60, std: 30}, cpu: 2, memory: 1.0e9}
  decide: {duration: {kind: fixed, mean: 300}, pools: [clerk, manager], cost: 5}
pools:
  clerk: {least: 1, most: 4, wage: 0.01}
  manager: {most: 2, wage: 0.03, calendar: [[9, 17], [33, 41]]}
rules:
  precedes: [[check, decide]]
  separate: [[check, decide]]
demand: {arrivals_per_second: 0.002}
"""


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "loan.yaml").write_text(LOAN)
    loan = read_requirements(tmp_path / "loan.yaml")
    (tmp_path / "loan.json").write_text(loan.model_dump_json())
    assert read_requirements(tmp_path / "loan.json") == loan
    assert loan.activities["score"].duration.scv == 0.25
    assert loan.activities["check"].duration.scv == 1.0
    assert loan.activities["decide"].duration.scv == 0.0


def test_the_schema_names_everything_there_is() -> None:
    found = schema()
    assert set(found["properties"]) == set(Requirements.model_fields)
    assert json.loads(json.dumps(found)) == found


def changed(**parts: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"name": "n", "activities": {"a": {"duration": {"mean": 1}}}}
    return base | parts


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        (changed(speed=3), "speed", "not permitted"),
        (changed(activities={}), "activities", "at least 1"),
        (
            changed(activities={"a": {"duration": {"mean": -1}}}),
            "activities.a.duration.mean",
            "greater than or equal to 0",
        ),
        (changed(activities={"a": {"duration": {"kind": "gamma", "mean": 1}}}), "activities.a.duration", "needs std"),
        (changed(activities={"a": {"duration": {"mean": 1}, "pools": ["x"]}}), "", "'x', which is not in pools"),
        (changed(pools={"p": {"least": 3, "most": 2}}), "pools.p", "which is more than most"),
        (changed(pools={"p": {"calendar": [[5, 200]]}}), "pools.p", "must be hours of a week"),
        (changed(rules={"precedes": [["a", "b"]]}), "", "'b', which is not in activities"),
        (changed(branches=[{"name": "x", "options": {"a": 1.5}}]), "branches.0", "at most 1"),
    ],
)
def test_a_mistake_is_named_with_its_place(value: Any, place: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as found:
        parse_requirements(value)
    assert found.value.field == place


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for name, text in {"a.json": "{", "b.yaml": "a: [", "c.yaml": "3"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=name):
            read_requirements(tmp_path / name)
    with pytest.raises(ConfigError, match="no such file"):
        read_requirements(tmp_path / "nowhere.yaml")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_requirements(tmp_path / "deep.json")
    (tmp_path / "endless.yaml").write_text("name: x\nactivities: {a: {duration: {mean: .inf}}}")
    with pytest.raises(ConfigError, match="activities.a.duration.mean"):
        read_requirements(tmp_path / "endless.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (11 << 20))
    with pytest.raises(ConfigError, match="the file is larger than 2 MiB"):
        read_requirements(tmp_path / "large.yaml")
