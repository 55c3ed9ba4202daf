"""What was compiled is found again, unless something that went into it has changed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.evaluation import array_format
from groupwise.workflows.evaluation.numba_compiler import EVERYWHERE, place

HELPER = """
from groupwise.workflows.evaluation.numba_compiler import inner

@inner
def times(x):
    return {factor} * x
"""
ENTRY = """
from groupwise.workflows.evaluation.numba_compiler import compiled
from compiled_helper import times

@compiled
def answer(x):
    return times(x)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "compiled_helper.py").write_text(HELPER.format(factor=2))
    (tmp_path / "compiled_entry.py").write_text(ENTRY)
    return tmp_path


def answer() -> Any:
    """The compiled function, as a process that starts now would have it."""
    place.cache_clear()
    for name in ("compiled_entry", "compiled_helper"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module("compiled_entry").answer


def test_a_changed_helper_is_compiled_anew(folder: Path) -> None:
    first = answer()
    assert first(21) == 42
    assert sum(first.stats.cache_misses.values()) == 1
    again = answer()
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1
    (folder / "compiled_helper.py").write_text(HELPER.format(factor=100))
    changed = answer()
    assert changed(21) == 2100
    assert sum(changed.stats.cache_misses.values()) == 1


def test_the_place_is_named_after_all_sources(folder: Path) -> None:
    places = [place.__wrapped__(folder)]
    for name in ("compiled_helper.py", "another.py"):
        with (folder / name).open("a") as file:
            file.write("# changed\n")
        places.append(place.__wrapped__(folder))
    assert len(set(places)) == 3
    assert {one.parent for one in places} == {folder / "__pycache__"}
    assert Path(array_format.__file__) in EVERYWHERE


def test_a_place_asked_for_is_taken(folder: Path) -> None:
    assert place.__wrapped__(folder, "/elsewhere").parent == Path("/elsewhere")
