"""A large data file is read and checked once; the next start maps what was kept, and finds the same problems."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.data import dataset, kept_problems
from groupwise.agents.data.dataset import DataProblems, find_data
from groupwise.agents.data.kept_problems import KeptProblems
from groupwise.agents.language_product import check_listed
from groupwise.errors import ConfigError
from groupwise.language.tiny import tiny_model


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_problems, "LARGE", 1)
    path = tmp_path / "sums.jsonl"
    write(path, range(40))
    return path


def write(path: Path, numbers: Any) -> None:
    def prompt(n: int) -> Any:
        return f"{n}+1=" if n % 2 else [{"role": "user", "content": f"{n}+1="}]

    path.write_text("".join(json.dumps({"prompt": prompt(n), "answer": n + 1, "é": [n, None]}) + "\n" for n in numbers))


def is_kept(problems: DataProblems) -> bool:
    return isinstance(problems.train, KeptProblems)


def test_the_next_start_finds_the_same_problems_without_reading_the_file(
    sums: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_data(sums, {"check": "number"})
    monkeypatch.setattr(dataset, "read_splits", None)  # would fail
    second = find_data(sums, {"check": "number"})
    assert (is_kept(first), is_kept(second)) == (False, True)
    assert list(first) == list(second)
    assert [first.training(3, n) for n in range(60)] == [second.training(3, n) for n in range(60)]
    assert first.held_out(5, 2) == second.held_out(5, 2)
    assert second.train[-1] == first.train[-1]
    assert second.train[1:3] == first.train[1:3]
    assert list(copy.deepcopy(second.train)) == list(first.train)


def test_other_rows_or_options_are_read_again(sums: Path) -> None:
    find_data(sums, {})
    assert not is_kept(find_data(sums, {"held_out_share": 0.5}))
    write(sums, range(1, 41))
    found = find_data(sums, {})
    assert not is_kept(found)
    assert "40+1=" in {problem.text for problem in found}


def test_what_is_damaged_is_read_again(sums: Path) -> None:
    (folder,) = [find_data(sums, {}).kept]
    assert folder is not None
    os.truncate(folder / "problems.jsonl", 10)
    assert not is_kept(find_data(sums, {}))
    assert is_kept(find_data(sums, {}))


def test_where_nothing_can_be_kept_the_file_is_read_as_ever(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = sums.with_name("occupied")
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert find_data(sums, {}).kept is None
    assert len(list(find_data(sums, {}))) == 40


def test_rows_that_json_would_change_are_not_kept(sums: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = sums.with_suffix(".parquet")
    rows = {"prompt": [f"{n}+1=" for n in range(9)], "answer": [str(n) for n in range(9)], "when": [b"\x00"] * 9}
    parquet.write_table(arrow.table(rows), path)
    assert find_data(path, {}).kept is None


def test_prompts_are_checked_once_for_each_tokenizer_and_limit(sums: Path) -> None:
    _, tokenizer = tiny_model()
    find_data(sums, {})
    problems = find_data(sums, {})
    check_listed(problems, tokenizer, 40)
    assert problems.kept is not None
    assert len(list(problems.kept.glob("passed-*"))) == 1
    with pytest.raises(ConfigError, match="context is 3"):
        check_listed(problems, tokenizer, 3)
    assert len(list(problems.kept.glob("passed-*"))) == 1


def test_only_the_latest_files_are_kept(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_problems, "MOST_KEPT", 2)
    for share in (0.1, 0.2, 0.3):
        last = find_data(sums, {"held_out_share": share}).kept
    assert last is not None
    assert last.is_dir()
    assert len(list(last.parent.iterdir())) == 2
