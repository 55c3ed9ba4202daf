"""Which group of attempts a report shows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.reporting.example_group import LOOK_BACK, SHOWN_ROWS, evenly, group_picture, last_group
from groupwise.training.group_files import write_groups
from groupwise.types import GroupRecord

MakeRun = Callable[..., Path]
Records = Callable[..., list[GroupRecord]]


def test_of_the_newest_readable_groups_the_widest_is_shown(tmp_path: Path, make_run: MakeRun, records: Records) -> None:
    folder = make_run(tmp_path / "run") / "groups"
    rows = [
        *records([5.0, 5.0], "same"),
        *records([1.0, None, 9.0], "wide"),
        *records([None, None], "failed"),
    ]
    write_groups(folder / "000061.parquet", 61, rows)
    (folder / "000062.parquet").write_bytes(b"PAR1 torn")
    shown = last_group(folder.parent)
    assert [(row["group_id"], row["total"]) for row in shown] == [
        ("wide", 9.0),
        ("wide", 1.0),
        ("wide", None),
    ]


def test_a_solved_run_shows_the_last_step_that_taught_it_something(
    tmp_path: Path, make_run: MakeRun, records: Records
) -> None:
    run = make_run(tmp_path / "run")
    for step in range(61, 70):
        write_groups(run / "groups" / f"{step:06d}.parquet", step, records([500.0] * 4))
    shown = last_group(run)
    assert [row["total"] for row in shown] == [500.0, 300.0, 100.0, None]
    assert group_picture(shown).caption.startswith(
        "Task task at step 60, the last logged step with a group whose attempts differ"
    )


def test_where_no_group_ever_differed_the_newest_is_shown(tmp_path: Path, make_run: MakeRun, records: Records) -> None:
    run = make_run(tmp_path / "run", steps=0)
    for step in (9, 10, 1_000_001, 999_999):
        write_groups(run / "groups" / f"{step:06d}.parquet", step, records([7.0] * 4))
    (run / "groups" / "9999999.parquet").write_bytes(b"PAR1 torn")
    shown = last_group(run)
    assert [(row["step"], row["total"]) for row in shown] == [(1_000_001, 7.0)] * 4
    assert "at step 1000001: every attempt scored the same" in group_picture(shown).caption


def test_it_looks_back_only_so_far(tmp_path: Path, make_run: MakeRun, records: Records) -> None:
    run = make_run(tmp_path / "run")
    for step in range(61, 61 + LOOK_BACK):
        write_groups(run / "groups" / f"{step:06d}.parquet", step, records([500.0] * 4))
    assert {row["step"] for row in last_group(run)} == {60 + LOOK_BACK}


def test_failures_are_not_hidden_by_an_older_group_with_spread(
    tmp_path: Path, make_run: MakeRun, records: Records
) -> None:
    run = make_run(tmp_path / "run")
    rows = [*records([500.0] * 3, "same"), *records([500.0, None, None], "failing")]
    write_groups(run / "groups" / "000061.parquet", 61, rows)
    shown = last_group(run)
    assert [(row["group_id"], row["failure"]) for row in shown[1:]] == [("failing", "timeout")] * 2
    assert "this group has the most failed attempts" in group_picture(shown).caption


def test_a_run_without_groups_shows_none(tmp_path: Path) -> None:
    assert last_group(tmp_path) == []


@pytest.mark.parametrize(
    ("count", "places"), [(0, []), (1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 3, 4]), (10, [0, 3, 6, 9])]
)
def test_rows_are_left_out_evenly_between_the_first_and_the_last(count: int, places: list[int]) -> None:
    rows = [{"place": place} for place in range(count)]
    assert [row["place"] for row in evenly(rows, 4)] == places
    assert len(evenly([{}] * 30)) == SHOWN_ROWS == 24


def test_of_groups_of_equal_spread_the_one_with_more_failures_is_shown(
    tmp_path: Path, make_run: MakeRun, records: Records
) -> None:
    run = make_run(tmp_path / "run")
    rows = [
        *records([1.0, 3.0, None], "one"), *records([1.0, 3.0, None, None], "two"), *records([1.0, 3.0], "none"),
        *records([1.0, 2.9, None, None, None], "narrow"),
    ]  # fmt: skip
    write_groups(run / "groups" / "000061.parquet", 61, rows)
    assert {row["group_id"] for row in last_group(run)} == {"two"}
    picture = group_picture(last_group(run))
    assert picture.alt == "2 scored attempts from 1 to 3; 2 failed"
    assert "attempts are shown" not in picture.caption
