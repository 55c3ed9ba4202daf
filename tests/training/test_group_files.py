"""What is kept of every attempt, and what reads it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups, write_groups
from groupwise.training.session import execute
from groupwise.training.step_groups import LONGEST_TEXT, words
from groupwise.types import GroupRecord

RECORD = GroupRecord("g", "t", "g/m0", 1.0, {"correct": 1.0}, (), 0.5, 3, "finished", "", 4)
ANSWERS = {
    "product": "language", "environment": "addition", "model_name": "tiny", "max_new_tokens": 5, "num_generations": 2,
    "tasks_per_step": 2, "num_episodes": 1, "eval_steps": 0, "estimator": "outcome",
}  # fmt: skip


def test_a_language_run_keeps_what_was_asked_and_what_was_said(small_config: Callable[..., TrainingConfig]) -> None:
    path = create_run(small_config(**ANSWERS))
    list(execute(path, product.build))
    rows = read_groups(path / "groups" / "000001.parquet")
    assert len(rows) == 4
    assert all(any(character.isdigit() for character in row["prompt"]) for row in rows)
    assert rows[0]["prompt"] == rows[1]["prompt"] != rows[2]["prompt"]
    assert any(row["text"] for row in rows)


def test_a_language_run_keeps_every_token_with_what_it_was_worth(small_config: Callable[..., TrainingConfig]) -> None:
    path = create_run(small_config(**ANSWERS))
    list(execute(path, product.build))
    for row in read_groups(path / "groups" / "000001.parquet"):
        own = [place for place, acted in enumerate(row["acted"]) if acted]
        assert len(own) == row["length"]
        assert "".join(row["tokens"][place] for place in own).removesuffix("<|end|>") == row["text"]
        assert row["prompt"] in "".join(row["tokens"][: own[0]])
        assert all(abs(row["token_advantages"][place] - row["advantage"]) < 1e-5 for place in own)
        assert {row["token_advantages"][place] for place in range(own[0])} == {0.0}
        assert all(row["token_logps"][place] < 0 for place in own)


def test_a_control_run_has_no_words(small_config: Callable[..., TrainingConfig]) -> None:
    path = create_run(small_config(num_episodes=1))
    list(execute(path, build))
    assert {(row["text"], row["prompt"]) for row in read_groups(path / "groups" / "000001.parquet")} == {("", "")}


def test_files_from_before_there_were_words_are_read(tmp_path: Path) -> None:
    path = tmp_path / "000001.parquet"
    write_groups(path, 1, [replace(RECORD, text="7", prompt="3 + 4 = ?")])
    table = pq.read_table(path)
    assert (read_groups(path)[0]["text"], read_groups(path)[0]["prompt"]) == ("7", "3 + 4 = ?")
    pq.write_table(table.drop_columns(["text", "prompt", "tokens", "acted"]), path)
    (row,) = read_groups(path)
    assert (row["text"], row["prompt"], row["tokens"], row["acted"], row["total"]) == ("", "", [], [], 1.0)


@pytest.mark.parametrize(("value", "expected"), [
    ("plain", "plain"), (17, "17"), ("half a pair \ud800", "half a pair ?"), ("x" * LONGEST_TEXT, "x" * LONGEST_TEXT),
])  # fmt: skip
def test_words_can_be_stored_anywhere(tmp_path: Path, value: Any, expected: str) -> None:
    assert words(value) == expected
    write_groups(tmp_path / "1.parquet", 1, [replace(RECORD, text=words(value))])
    assert read_groups(tmp_path / "1.parquet")[0]["text"] == expected


def test_endless_words_keep_their_beginning_and_their_end_and_say_how_long_they_were() -> None:
    text = words("begin" + 50_000 * "x" + "end")
    assert len(text) <= LONGEST_TEXT
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "50,008 characters" in text
