"""The page on workflow code: its Python runs and prints what it says, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise.programs.language.faults import FaultCode
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.problems import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "workflow_code.md").read_text("utf8")


def test_its_python_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pydantic_monty")
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "workflow_code.md", "exec"), {"__name__": "page"})  # noqa: S102
        said = "".join(re.findall(r"(?:print\(.*\)  |^)# (.*\n)", block, re.MULTILINE))
        assert capsys.readouterr().out == said


def test_its_tables_name_every_operator_fault_and_family() -> None:
    for operator in PURE.values():
        assert f"| `{operator.heading}` | {operator.doc} |" in PAGE
    for name in (*FaultCode, *FAMILIES):
        assert f"| `{name}` |" in PAGE
