"""The short form of benchmarks/judge_checks.py: bad tests, right programs and redefined helpers of real tasks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.agents.program_tasks import program_task
from groupwise.sandbox import Bubblewrap, available
from groupwise.types import Task

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import judge_checks

DATA = next((p for parent in Path(__file__).parents if (p := parent / "shared/data").is_dir()), None)
if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)


@pytest.mark.skipif(DATA is None, reason="shared/data is not here")
def test_no_vacuous_tests_no_right_program_refused_no_helper_redefined(tmp_path: Path) -> None:
    assert DATA is not None
    found = judge_checks.rows(DATA)
    chosen = [*(f"HumanEval/{n}" for n in (2, 10, 32, 38, 50)), *(f"MBPP/{n}" for n in range(11, 18))]
    plain = {name: program_task(Task(name, found[name])) for name in chosen}
    styles = dict(list(judge_checks.rewritten(found).items())[:8])
    helped = judge_checks.helped({name: found[name] for name in chosen})
    with Bubblewrap(workers=2) as sandbox:
        claims, raw = judge_checks.measured(plain | styles, helped, sandbox, tmp_path / "tests.sqlite")
    assert (claims["vacuous_accepted"], claims["right_refused"], claims["helper_passes"]) == (0, 0, 0), raw
    assert claims["tasks"] == 20
    assert claims["vacuous_planted"] == 40
    assert claims["helper_attempts"] > 250
