"""A recorded step: what its attempts were like, what is left out, and how other groupings divide them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise import core
from groupwise.cli import run as command
from groupwise.config import TrainingConfig
from groupwise.core.grouping.strategies import STRATEGIES
from groupwise.errors import RunError
from groupwise.reporting.recorded_step import newest_step, read_step, regroup, sampled
from groupwise.training.folder import create_run
from groupwise.training.group_files import write_groups
from groupwise.types import GroupRecord

RECORD = GroupRecord(
    group_id="g0", task_id="cart/7", trajectory_id="g0/m0", total=1.0, parts={}, flags=(), advantage=0.25, length=3,
    end="finished", failure="", version=1,
)  # fmt: skip


def played(rng: Any, length: int, **more: Any) -> dict[str, Any]:
    rewards = rng.random(length).round(4)
    told = {
        "kind": "episode", "at": list(range(length)), "states": rng.normal(size=(length, 2)).round(4).tolist(),
        "actions": [0] * length, "rewards": rewards.tolist(), "sums": np.cumsum(rewards).tolist(), **more,
    }  # fmt: skip
    return {"total": float(rewards.sum()), "length": length, "exhibit": lambda: json.dumps(told)}


def record(number: int, group: int = 0, task: str = "cart", **more: Any) -> GroupRecord:
    ids = {"group_id": f"g{group}", "trajectory_id": f"g{group}/m{number}", "task_id": f"{task}/{group}"}
    return replace(RECORD, **ids, **more)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three steps of two tasks with two groups of three each."""
    path = create_run(TrainingConfig.from_dict({"output_dir": str(tmp_path), "run_name": "r", "product": "control"}))
    rng = np.random.default_rng(0)
    (path / "groups").mkdir(exist_ok=True)
    for step in (1, 2, 5):
        rows = [
            record(n, group, "ab"[group % 2], **played(rng, int(rng.integers(3, 12))))
            for group in range(4)
            for n in range(3)
        ]
        write_groups(path / "groups" / f"{step:06d}.parquet", step, rows)
    return path


def test_a_step_is_what_was_recorded(run: Path) -> None:
    step = read_step(run, 5)
    assert (len(step), step.recorded, step.unscored, step.not_finite) == (12, 12, 0, 0)
    assert step.tasks == ("a",) * 3 + ("b",) * 3 + ("a",) * 3 + ("b",) * 3
    assert step.group.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert step.features.shape == (12, 6)
    assert np.allclose(step.features[:, 0], step.totals / step.lengths)
    assert np.allclose([row.sum() for row in step.rewards], step.totals)
    assert step.feature_names[:3] == ("reward per step", "log(1 + length)", "mean of observation 1")
    assert newest_step(run) == 5
    json.dumps(step.as_dict(), allow_nan=False)


def test_the_critic_is_the_least_squares_fit_and_expects_nothing_after_an_end(run: Path) -> None:
    step = read_step(run, 1)
    left = [row - value for row, value in zip(_returns(step), step.values, strict=True)]
    # A constant is among its features, so that its errors add up to nearly nothing.
    assert abs(np.concatenate(left).mean()) < 1e-3
    assert step.explained_variance is not None
    assert 0 < step.explained_variance < 1
    assert not step.last_values.any()
    assert step.terminated.all()


def _returns(step: Any) -> list[Any]:
    rows = [torch.from_numpy(row)[None] for row in step.rewards]
    return [core.discounted_returns(row, torch.ones_like(row).bool(), step.gamma)[0].numpy() for row in rows]


def test_attempts_without_a_finite_score_or_observation_are_left_out_and_counted(run: Path) -> None:
    rng = np.random.default_rng(1)
    bad = played(rng, 4, states=[[1.0, None]] * 4)
    rows = [
        record(0, total=None, failure="x"), record(1, total=math.nan), record(2, total=math.inf),
        record(3, **bad), record(4, **played(rng, 5)), record(5, **played(rng, 6)),
    ]  # fmt: skip
    write_groups(run / "groups" / "000009.parquet", 9, rows)
    step = read_step(run, 9)
    assert (step.recorded, step.unscored, step.not_finite, len(step)) == (6, 3, 1, 2)
    json.dumps(step.as_dict(), allow_nan=False)
    write_groups(run / "groups" / "000010.parquet", 10, rows[:3])
    empty = read_step(run, 10)
    assert (len(empty), empty.unscored) == (0, 3)
    for strategy in STRATEGIES:
        assert regroup(run, 10, strategy, 3).iterations[-1].tolist() == []


ODD = ["", "no json", "[1]", '{"kind": "design"}', '{"kind": "episode"}', '{"kind": "episode", "at": [0], "states": 3}']


@pytest.mark.parametrize("exhibit", ODD)
def test_an_attempt_in_words_has_its_score_at_its_end(run: Path, exhibit: str) -> None:
    rows = [record(n, total=float(n), length=200, exhibit=lambda: exhibit) for n in range(4)]
    write_groups(run / "groups" / "000009.parquet", 9, rows)
    step = read_step(run, 9)
    assert [row.sum() for row in step.rewards] == [0.0, 1.0, 2.0, 3.0]
    assert [len(row) for row in step.rewards] == [120] * 4
    assert step.moments[0][-1] == 199
    assert step.features.shape == (4, 2)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_a_regrouping_is_the_strategy_s_own(run: Path, strategy: str) -> None:
    found = regroup(run, 5, strategy, 2)
    grouping = core.make_grouping(strategy, 2)
    if strategy in ("adaptive", "dirichlet"):
        assert found.earlier_steps == (1, 2)
        for before in (1, 2):
            grouping(read_step(run, before).summaries())
    assert found.iterations[-1].tolist() == grouping(read_step(run, 5).summaries()).tolist()
    assert set(found.names) >= set(found.iterations[-1].tolist())
    if strategy == "task":
        assert found.names == {0: "a", 1: "b"}


def test_whole_groups_are_sampled_evenly_from_a_step_that_is_too_large() -> None:
    rows = [{"group_id": f"g{n // 8}", "n": n} for n in range(100_000)]
    found = sampled(rows, 400)
    assert len(found) == 400
    counts = {row["group_id"]: 0 for row in found}
    for row in found:
        counts[row["group_id"]] += 1
    assert set(counts.values()) == {8}
    assert (found[0]["n"], found[-1]["n"]) == (0, 99_999)
    alone = sampled([{"group_id": "g", "n": n} for n in range(1000)], 400)
    assert len(alone) == 400
    assert sampled(rows[:400], 400) == rows[:400]


def test_a_step_without_groups_and_a_count_out_of_range_are_refused_in_a_sentence(run: Path) -> None:
    with pytest.raises(RunError, match="no saved groups for step 4") as found:
        read_step(run, 4)
    assert found.value.hint == "The newest step with groups is 5."
    with pytest.raises(RunError, match="n_groups is 9; it must be from 1 to 8"):
        regroup(run, 5, "auto", 9)
    with pytest.raises(RunError, match="group_strategy is 'best'; it must be one of task"):
        regroup(run, 5, "best")
    with pytest.raises(RunError, match="has no saved groups"):
        newest_step(run.parent)


def test_the_command_divides_a_step_by_any_strategy(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--runs-dir", str(run.parent)]
    assert not command(["groups", "r", "--strategy", "length", "--n-groups", "2", "--json", *where])
    told = json.loads(capsys.readouterr().out)
    assert told["attempts"]["step"] == 5
    assert told["grouping"]["iterations"][-1] == regroup(run, 5, "length", 2).iterations[-1].tolist()
    assert not command(["groups", "r", "--step", "1", *where])
    assert "step 1: 12 of 12 attempts, by task" in capsys.readouterr().out
