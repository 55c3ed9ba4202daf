"""Run folders as the API shows them, without a server: curves, events, groups and attempts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import RunNotFound
from groupwise.service.runs import SHOWN, GroupNotFound, Runs, TrajectoryNotFound, _turns
from groupwise.training.events import EventLog
from groupwise.training.folder import create_run
from groupwise.training.group_files import write_groups
from groupwise.types import Event, GroupRecord

RECORD = GroupRecord(
    group_id="g", task_id="t", trajectory_id="g/0", total=1.0, parts={"a": 0.5}, flags=("f",), advantage=0.25, length=3,
    end="terminated", failure="", version=7, text="said", prompt="asked",
)  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """One run whose log has a start, ten steps, an evaluation at 0, 5 and 10, hints, checkpoints and an end."""
    path = create_run(TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "r"}))
    log = EventLog(path / "events.jsonl")

    def add(kind: str, step: int, data: dict[str, Any]) -> None:
        log.append(Event("r", log.count, 1, float(log.count), step, kind, data))

    add("start", 0, {"total_steps": 10})
    for step in range(11):
        if step:
            add("step", step, {"metrics": {"reward/mean": float(step % 4), "both": 1.0}})
        if step % 5 == 0:
            add("eval", step, {"metrics": {"eval/reward_mean": float(step), "both": 2.0}})
            add("checkpoint", step, {})
    add("hint", 10, {})
    add("end", 10, {})
    log.close()
    return Runs(tmp_path)


def kinds(lines: list[bytes]) -> str:
    return "".join(json.loads(line)["type"][0] for line in lines)


def test_curves_are_drawn_from_a_step_on_and_held_out_values_come_before_others(runs: Runs) -> None:
    found = runs.series("r", [], 1000)
    assert found["names"] == ["both", "eval/reward_mean", "reward/mean"]
    assert found["series"]["reward/mean"]["values"] == [float(step % 4) for step in range(1, 11)]
    assert found["series"]["eval/reward_mean"] == {"steps": [0, 5, 10], "values": [0.0, 5.0, 10.0]}
    assert found["series"]["both"] == {"steps": [0, 5, 10], "values": [2.0, 2.0, 2.0]}
    assert (found["run"], found["next"]) == ("r", 19)
    some = runs.series("r", ["reward/mean"], 1000, since=5)
    assert some["names"] == found["names"]
    assert some["series"] == {"reward/mean": {"steps": [5, 6, 7, 8, 9, 10], "values": [1, 2, 3, 0, 1, 2]}}
    assert len(runs.series("r", ["reward/mean"], 4)["series"]["reward/mean"]["steps"]) == 4
    assert runs.series("r", ["reward/mean"], 4, since=11)["series"]["reward/mean"] == {"steps": [], "values": []}


def test_events_are_had_page_by_page_or_all_thinned(runs: Runs) -> None:
    log, lines = runs.events("r", 3, 4)
    assert [json.loads(line)["seq"] for line in lines] == [3, 4, 5, 6]
    assert len(log) == 19
    log, lines = runs.thinned_events("r", 0, 2)
    # The start, the first and last evaluation (1 and 15) and step (3 and 14), the hint and the end; no checkpoint.
    assert [json.loads(line)["seq"] for line in lines] == [0, 1, 3, 14, 15, 17, 18]
    _, late = runs.thinned_events("r", 10, 1000)
    assert min(json.loads(line)["seq"] for line in late) >= 10
    assert kinds(late) == kinds(runs.log("r").lines(10, 99)).replace("c", "")


def test_thinning_keeps_the_highest_and_the_lowest_reward(runs: Runs) -> None:
    _, lines = runs.thinned_events("r", 0, 4)
    steps = [json.loads(line) for line in lines if json.loads(line)["type"] == "step"]
    rewards = [one["data"]["metrics"]["reward/mean"] for one in steps]
    assert len(steps) == 4
    assert (min(rewards), max(rewards)) == (0.0, 3.0)
    assert (steps[0]["step"], steps[-1]["step"]) == (1, 10)


def test_a_run_is_a_folder_with_settings_or_a_log(runs: Runs, tmp_path: Path) -> None:
    assert runs.path("r") == tmp_path / "r"
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "events.jsonl").touch()
    assert runs.path("log") == tmp_path / "log"
    for name in ("none", "", "log/events.jsonl"):
        with pytest.raises(RunNotFound, match="there is no run"):
            runs.path(name)
    create_run(TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "new"}))
    runs.index.refresh()
    assert runs.index.cards.keys() == {"new", "r"}
    (tmp_path / "new").rename(tmp_path / "not a run")
    runs.index.refresh()
    assert runs.index.cards.keys() == {"r"}
    found = runs.index.cards["r"]
    assert (found.state, found.step, found.total, found.attempt) == ("finished", 10, 10, 1)
    assert found.metrics == {"reward/mean": 2.0, "both": 2.0, "eval/reward_mean": 10.0}


@pytest.mark.parametrize(("totals", "mean", "std", "zero"), [
    ([1.0, 3.0], 2.0, 1.0, False), ([2.0, 2.0, 2.0], 2.0, 0.0, True), ([5.0], 5.0, 0.0, True),
    ([1.0, None], 1.0, 0.0, True), ([None, None], None, None, True), ([0.0, 0.0, 3.0, None], 1.0, math.sqrt(2), False),
])  # fmt: skip
def test_a_group_is_summed_up_by_those_attempts_that_have_a_score(
    tmp_path: Path, totals: list[float | None], mean: float | None, std: float | None, zero: bool
) -> None:
    folder = tmp_path / "r" / "groups"
    folder.mkdir(parents=True)
    (folder.parent / "events.jsonl").touch()
    records = [replace(RECORD, total=total, trajectory_id=f"g/{n}") for n, total in enumerate(totals)]
    other = replace(RECORD, group_id="f", trajectory_id="f/0")
    write_groups(folder / "000003.parquet", 3, [*records[:1], other, *records[1:]])
    found = {group["id"]: group for group in Runs(tmp_path).groups("r", 3)["groups"]}
    assert list(found) == sorted(found)
    assert len(found["f"]["attempts"]) == 1
    group = found["g"]
    assert group["size"] == len(totals)
    assert (group["mean"], group["zero_signal"]) == (pytest.approx(mean), zero)
    assert group["std"] == pytest.approx(std)
    assert (group["task_id"], group["prompt"]) == ("t", "asked")


def test_an_attempt_is_found_in_the_newest_step_that_has_it_and_shown_whole(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "r" / "groups"
    folder.mkdir()
    long = "x" * (SHOWN + 1)
    for step in (1, 2, 10):
        record = replace(RECORD, text=long, reasoning="y" * SHOWN, total=float(step))
        write_groups(folder / f"{step:06d}.parquet", step, [record, replace(RECORD, trajectory_id=f"only/{step}")])
    assert runs.steps_with_groups("r") == [1, 2, 10]
    whole = runs.trajectory("r", "g/0", None)
    assert (whole["step"], whole["total"], whole["text"], whole["group_id"]) == (10, 10.0, long, "g")
    assert (whole["parts"], whole["flags"], whole["version"], whole["turns"]) == ({"a": 0.5}, ["f"], 7, [])
    assert runs.trajectory("r", "g/0", 1)["step"] == 1
    assert runs.trajectory("r", "only/1", None)["step"] == 1
    (shown, _) = runs.groups("r", 2)["groups"][0]["attempts"]
    assert (shown["text"], shown["reasoning"]) == ("x" * SHOWN + "…", "y" * SHOWN)
    with pytest.raises(TrajectoryNotFound, match="no attempt 'only/1' in step 2"):
        runs.trajectory("r", "only/1", 2)
    with pytest.raises(TrajectoryNotFound, match="in its last 100 steps"):
        runs.trajectory("r", "none", None)
    with pytest.raises(GroupNotFound, match="run r has no saved groups for step 3"):
        runs.groups("r", 3)


def test_only_so_many_steps_are_searched_for_an_attempt(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.service.runs.SEARCHED", 2)
    (tmp_path / "r" / "groups").mkdir()
    for step in (1, 2, 3):
        record = replace(RECORD, trajectory_id=f"only/{step}")
        write_groups(tmp_path / "r" / "groups" / f"{step:06d}.parquet", step, [record])
    assert runs.trajectory("r", "only/2", None)["step"] == 2
    with pytest.raises(TrajectoryNotFound):
        runs.trajectory("r", "only/1", None)
    assert runs.trajectory("r", "only/1", 1)["step"] == 1


def test_tokens_are_shown_turn_by_turn_and_only_the_models_own_have_numbers() -> None:
    row = {
        "tokens": ["a", "b", "c", "d"], "acted": [False, True, True, False],
        "token_advantages": [0.0, 0.5, math.nan, 9.0], "token_logps": [0.0, -1.0, -2.0, 9.0],
    }  # fmt: skip
    none = {"advantage": None, "logp": None}
    assert _turns(row) == [
        {"role": "context", "tokens": [{"text": "a", **none}]},
        {"role": "policy", "tokens": [
            {"text": "b", "advantage": 0.5, "logp": -1.0}, {"text": "c", "advantage": None, "logp": -2.0},
        ]},
        {"role": "context", "tokens": [{"text": "d", **none}]},
    ]  # fmt: skip
    assert _turns({}) == _turns({"tokens": None}) == []


def test_steps_are_thinned_by_their_reward_and_evaluations_by_theirs(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    log = EventLog(tmp_path / "r" / "events.jsonl")
    for number in range(20):
        # The extremes of steps and evaluations, and of their other metrics, lie at different places.
        for kind, name, other in (("step", "reward/mean", "eval/reward_mean"), ("eval", "eval/reward_mean", "loss")):
            peak, low = (5, 8) if kind == "step" else (11, 13)
            value = 9.0 if number == peak else -9.0 if number == low else 0.0
            metrics = {name: None if number == 16 else value, other: -99.0 if number == 17 else 99.0 * (number == 2)}
            log.append(Event("r", log.count, 1, 1.0, number, kind, {"metrics": metrics}))
    log.close()
    _, lines = Runs(tmp_path).thinned_events("r", 0, 4)
    shown = [(one["type"], one["step"]) for one in map(json.loads, lines)]
    assert [step for kind, step in shown if kind == "step"] == [0, 5, 8, 19]
    assert [step for kind, step in shown if kind == "eval"] == [0, 11, 13, 19]
    assert [json.loads(line)["seq"] for line in lines] == sorted(json.loads(line)["seq"] for line in lines)
    _, late = Runs(tmp_path).thinned_events("r", 12, 4)  # from step 6 on
    assert [one["step"] for one in map(json.loads, late) if one["type"] == "step"] == [6, 8, 19]


def test_events_without_a_reward_are_thinned_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    log = EventLog(tmp_path / "r" / "events.jsonl")
    for number in range(9):
        log.append(Event("r", number, 1, 1.0, number, "step", {"metrics": {"loss": 1.0}}))
    log.close()
    _, lines = Runs(tmp_path).thinned_events("r", 3, 4)
    numbers = [json.loads(line)["seq"] for line in lines]
    assert (numbers[0], numbers[-1]) == (3, 8)
    assert len(numbers) <= 4


def test_a_run_whose_files_cannot_be_read_is_damaged(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "r" / "lock").symlink_to("lock")  # which leads to itself
    status = {"state": "running", "step": 5, "total": 9, "attempt": 2, "updated": 1.0, "metrics": {"a": 1.0}}
    (tmp_path / "r" / "status.json").write_text(json.dumps(status))
    runs.index.refresh()
    found = runs.index.cards["r"]
    assert (found.id, found.state, found.metrics) == ("r", "damaged", {})
    assert (found.step, found.total, found.attempt) == (0, 0, 0)
    assert found.updated == (tmp_path / "r").stat().st_mtime
