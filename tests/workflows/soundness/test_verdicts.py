"""The verdicts on the specifications of the YAWL engine are those of the documentation, and brute force agrees."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.workflows.files.samples import SHARED, needs_data

ROOT = Path(__file__).parents[3]


@needs_data
def test_the_table_of_the_documentation_is_what_the_checker_says() -> None:
    spec = importlib.util.spec_from_file_location("workflow_verdicts", ROOT / "benchmarks/workflow_verdicts.py")
    assert spec is not None
    assert spec.loader is not None
    verdicts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(verdicts)
    assert SHARED is not None
    found = verdicts.table([SHARED / "yawl/verification_cases", SHARED / "yawl/specs"])
    assert found in verdicts.PAGE.read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[2:]]
    assert len(rows) > 35
    for _file, _net, verdict, rule, _words, _steps, opinion in rows:
        assert verdict in ("sound", "unsound")
        assert opinion == "—" if rule == "structure" else (opinion == "sound") == (verdict == "sound")
