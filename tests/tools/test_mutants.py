"""The bugs that `tools/mutants.py` plants still have a place in the source, and the likeliest tests run first."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_text_that_each_mutant_replaces_occurs_exactly_once(tool: ModuleType) -> None:
    mutants = tool.read_mutants()
    assert set(Counter(mutant.set for mutant in mutants).values()) == {40}
    assert tool.misplaced(mutants) == []


def test_the_tests_that_caught_mutants_exist(tool: ModuleType) -> None:
    for mutant in filter(lambda mutant: mutant.caught_by, tool.read_mutants()):
        file, test = mutant.caught_by.partition("[")[0].split("::")
        assert f"def {test}(" in (ROOT / file).read_text(), mutant.caught_by


def test_a_mutant_whose_text_has_moved_or_that_changes_nothing_is_named(tool: ModuleType) -> None:
    first, second = tool.read_mutants()[:2]
    gone = tool.Mutant(1, first.file, "", "", "text that is nowhere", "")
    idle = tool.Mutant(2, second.file, "", "", second.before, second.before)
    assert [fault.partition(":")[0] for fault in tool.misplaced([gone, idle])] == ["mutant 1", "mutant 2"]


def test_the_likeliest_tests_run_first_and_all_are_run(tool: ModuleType) -> None:
    mutant = tool.Mutant(1, "language/engine/sampling.py", "", "", "def sample(", "")
    batches = list(tool.likeliest_first(mutant, ROOT))
    assert batches[0] == ["tests/language/engine/test_sampling.py"]
    assert all(name.startswith("tests/language/engine/") for name in batches[1])
    every = [name for batch in batches for name in batch]
    here = Path(__file__)
    assert sorted(every) == sorted(
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py") if path != here
    )
