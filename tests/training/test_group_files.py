"""What is kept of every attempt, and what reads it back."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.control.grpo import build
from groupwise.errors import RunError
from groupwise.training.folder import create_run
from groupwise.training.group_files import (
    LARGEST_SEGMENT,
    SEGMENTS,
    SINGLES,
    GroupFolder,
    damaged_groups,
    forget_after,
    kept_steps,
    numbered,
    read_groups,
    read_step,
    rewards_of,
    segments,
    to_drop,
    write_groups,
)
from groupwise.training.run import Run
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


FULL = GroupRecord(
    "g/1", "t/2", "g/1/m0", -1.5, {"a": 1.0, "b": -2.5}, ("x", "y"), 0.25, 3, "truncated", "", 7, "said", "asked",
    ("to", "ken"), (False, True), (0.0, 0.5), (-0.25, -1.5), "thought", lambda: "shown",
)  # fmt: skip


def test_every_column_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "000012.parquet"
    lost = replace(RECORD, total=None, failure="reward/raised: no", parts={})
    write_groups(path, 12, [FULL, lost])
    first, second = read_groups(path)
    expected = {**asdict(FULL), "exhibit": "shown", "step": 12}
    for name, value in expected.items():
        found = dict(first[name]) if name == "parts" else first[name]
        assert found == (list(value) if isinstance(value, tuple) else value), name
    assert first.keys() == expected.keys()
    assert (second["total"], second["failure"], second["step"]) == (None, "reward/raised: no", 12)
    write_groups(path, 3, [])
    assert read_groups(path) == []


@pytest.mark.parametrize("name", ["step", "group_id", "total", "parts", "advantage", "version"])
def test_a_file_without_a_column_it_always_had_is_no_group_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "1.parquet"
    write_groups(path, 1, [FULL])
    pq.write_table(pq.read_table(path).drop_columns([name]), path)
    with pytest.raises(RunError, match=f"1.parquet is not a group file: check the columns {name}"):
        read_groups(path)


def test_a_file_of_other_columns_or_kinds_or_with_holes_is_no_group_file(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    write_groups(path, 1, [FULL])
    table = pq.read_table(path)
    pq.write_table(table.append_column("more", pa.array([1])), path)
    with pytest.raises(RunError, match="check the columns more"):
        read_groups(path)
    pq.write_table(table.set_column(0, "step", pa.array(["one"])), path)
    with pytest.raises(RunError, match="check the columns step"):
        read_groups(path)
    pq.write_table(table.set_column(1, "group_id", pa.array([None], pa.string())), path)
    with pytest.raises(RunError, match="some rows have missing values"):
        read_groups(path)
    for content in (b"", b"PAR1", b"x" * 500):
        path.write_bytes(content)
        with pytest.raises(RunError, match="is not a group file"):
            read_groups(path)


def test_the_rewards_of_a_step_are_those_of_its_metrics(tmp_path: Path) -> None:
    def of(*totals: float | None) -> dict[str, float]:
        write_groups(tmp_path / "000001.parquet", 1, [replace(RECORD, total=total) for total in totals])
        return rewards_of(read_step(tmp_path, 1) or ())

    expected = {"reward/mean": 4.0, "reward/std": 6**0.5, "reward/min": 1.0, "reward/max": 7.0}
    assert of(1.0, None, 4.0, 7.0) == pytest.approx(expected)
    assert of(0.0, 0.0, 1.0)["reward/mean"] == pytest.approx(1 / 3), "a reward of 0 counts"
    assert of(None) == {}


def test_files_are_ordered_by_number_and_those_after_a_step_are_dropped(tmp_path: Path) -> None:
    for name in ("000002", "1000000", "999999", "mine", "000003"):
        write_groups(tmp_path / f"{name}.parquet", 1, [RECORD])
    (tmp_path / ".000009.parquet.7.tmp").write_bytes(b"half")
    (tmp_path / "000008.parquet").mkdir()
    assert [p.stem for p in numbered(tmp_path)] == ["000002", "000003", "999999", "1000000"]
    forget_after(tmp_path, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "000002.parquet", "000003.parquet", "000008.parquet", "mine.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(("look_at", "found"), [(1, []), (2, ["000002"]), (3, ["000001", "000002"])])
def test_only_the_newest_files_are_looked_at_for_damage(tmp_path: Path, look_at: int, found: list[str]) -> None:
    for step in (1, 2, 3):
        write_groups(tmp_path / f"{step:06d}.parquet", step, [RECORD])
    for step in (1, 2):
        os.truncate(tmp_path / f"{step:06d}.parquet", 100)
    assert [p.stem for p in damaged_groups(tmp_path, look_at)] == found


def test_of_many_files_the_newest_twenty_are_looked_at(tmp_path: Path) -> None:
    for step in range(1, 24):
        (tmp_path / f"{step:06d}.parquet").write_bytes(b"x")
    assert [int(p.stem) for p in damaged_groups(tmp_path)] == list(range(4, 24))


def test_a_long_run_keeps_its_history_ever_more_coarsely(tmp_path: Path) -> None:
    cfg = TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "long"})
    run = Run(create_run(cfg))
    for step in range(1, 201):
        run.write_groups(step, [], limit=40)
    kept = kept_steps(run.path / "groups")
    assert len(kept) <= 40
    assert kept[0] == 1
    assert kept[-5:] == [196, 197, 198, 199, 200], "the newest are all there"
    assert max(later - one for one, later in itertools.pairwise(kept)) <= 16
    run.close()


def records(step: int) -> list[GroupRecord]:
    """A step with its own rows; every fifth step has none."""
    return [replace(FULL, trajectory_id=f"g/{step}", total=float(step))] * (step % 5)


def test_older_steps_share_files_and_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder, steps = GroupFolder(tmp_path), range(1, 1 + 3 * SINGLES)
    for step in steps:
        folder.write(step, records(step))
    assert kept_steps(tmp_path) == list(steps), "nothing is dropped without a limit"
    assert len(segments(tmp_path)) == 2
    for step in steps:
        write_groups(tmp_path / "x.parquet", step, records(step))
        assert read_step(tmp_path, step) == read_groups(tmp_path / "x.parquet")
    assert read_step(tmp_path, 1000) is None
    folder.sync()  # what was packed needs no more syncing


def test_a_very_long_run_has_few_files(tmp_path: Path) -> None:
    folder, most = GroupFolder(tmp_path), 0
    for step in range(1, 3001):
        folder.write(step, [], limit=600)
        most = max(most, len(list(tmp_path.iterdir())))
    assert most <= SINGLES + SEGMENTS + 2
    kept = kept_steps(tmp_path)
    assert 400 < len(kept) <= 600
    assert (kept[0], kept[-100:]) == (1, list(range(2901, 3001)))
    assert max(later - one for one, later in itertools.pairwise(kept)) <= 64
    assert LARGEST_SEGMENT > 2 * SINGLES


def test_resuming_cuts_segments_and_drops_what_a_crash_left_twice(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    for step in range(1, SINGLES + 10):
        folder.write(step, records(step))
    (segment,) = segments(tmp_path)
    write_groups(tmp_path / "000007.parquet", 7, records(7))  # the segment was written, its sources not yet deleted
    forget_after(tmp_path, 20)
    assert kept_steps(tmp_path) == list(range(1, 21))
    assert [path.name for path in tmp_path.iterdir()] == [segment.name]
    assert read_step(tmp_path, 7) is not None
    assert GroupFolder(tmp_path)._steps == 20
    forget_after(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_stop_neither_training_nor_reading(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    for step in range(1, SINGLES + 2):
        folder.write(step, records(step))
    (segment,) = segments(tmp_path)
    segment.write_bytes(b"PAR1xPAR1")
    for step in range(SINGLES + 2, 3 * SINGLES):
        folder.write(step, records(step), limit=SINGLES)
    assert kept_steps(tmp_path)[-1] == 3 * SINGLES - 1
    with pytest.raises(RunError, match="is not a group file"):
        read_step(tmp_path, 3)
    assert damaged_groups(tmp_path) == [segment]
    forget_after(tmp_path, 1)
    assert segment.exists(), "what is damaged is set aside, not deleted"


def test_every_second_step_goes_where_they_are_densest() -> None:
    assert to_drop([], 1) == to_drop([1], 1) == set()
    assert to_drop(range(1, 9), 1) == {2, 4, 6}
    assert to_drop([1, 3, 5, 6, 7, 8, 9, 10], 1) == {6, 8}
