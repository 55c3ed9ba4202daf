"""Courses in worker processes: finished ones are kept, broken ones told, interrupted ones gone on with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from groupwise.config import TrainingConfig
from groupwise.control.comparison.campaign import Entry, available, gather, job_of, run_campaign, settle, share_done
from groupwise.control.comparison.worker import carry_out, courses_of
from groupwise.control.grpo import build
from groupwise.errors import ConfigError, RunLocked, StorageError
from groupwise.reporting.advantage_figures import Moment
from groupwise.reporting.comparison import FailedCourse, read_courses
from groupwise.reporting.history import History
from groupwise.training.folder import create_run, lock_run
from groupwise.training.session import execute

SMALL = {
    "environment": "CartPole-v1",
    "estimator": "group_rtg",
    "advantage_scale": "batch_std",
    "num_generations": 4,
    "tasks_per_step": 1,
    "num_episodes": 4,
    "per_device_train_batch_size": 256,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-3,
    "hidden_sizes": [8],
    "eval_steps": 1,
    "eval_episodes": 5,
    "save_steps": 1,
    "threads": 1,
}


@pytest.fixture
def entry() -> Entry:
    return Entry("small", TrainingConfig(**SMALL))


def test_a_course_tells_its_evaluations_by_samples(tmp_path: Path, entry: Entry) -> None:
    job = job_of(tmp_path, entry, 3, snapshot=False)
    carry_out(job)
    (course,) = read_courses(job.result)
    history = History.read(tmp_path / "runs" / job.name)
    assert (course.algorithm, course.task, course.seed) == ("small", "CartPole-v1", 3)
    assert course.steps == (0, *map(int, history.series("totals/samples")[1]))
    assert list(course.scores) == history.series("eval/reward_mean")[1]
    assert course.cpu_seconds > 0
    assert course.wall_seconds == pytest.approx(sum(history.series("timing/total")[1]))


def test_an_interrupted_course_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path, entry: Entry) -> None:
    whole, torn = (job_of(tmp_path / name, entry, 1, snapshot=False) for name in ("whole", "torn"))
    carry_out(whole)
    events = execute(create_run(torn.cfg), build, torn.cfg)
    while next(events).step < 3:
        pass
    events.close()
    assert 0 < share_done(torn) < 1
    carry_out(torn)
    resumed, straight = read_courses(torn.result)[0], read_courses(whole.result)[0]
    assert (resumed.steps, resumed.scores) == (straight.steps, straight.scores)


def test_a_snapshot_is_taken_and_changes_nothing(tmp_path: Path, entry: Entry) -> None:
    plain, watched = (job_of(tmp_path / str(snap), entry, 1, snapshot=snap) for snap in (False, True))
    carry_out(plain)
    carry_out(watched)
    assert read_courses(plain.result)[0].scores == read_courses(watched.result)[0].scores
    moment = Moment.read(tmp_path / "True" / "snapshots" / f"{watched.name}.npz")
    assert moment.step == 1
    assert moment.labels == ("start 1", "start 2", "start 3", "start 4")
    assert moment.cosines.diagonal() == pytest.approx([1.0] * 4)
    assert (moment.returns[:, 0] > 0).all()
    assert len(moment.widest_group()) == 4


def test_a_multi_task_run_makes_a_course_for_each_task() -> None:
    history = History()
    history.config = {"task": {"environment": "suite"}, "run": {"seed": 2}}
    history.steps = {1: {"totals": {"samples": 50.0}, "timing": {"total": 1.0}}}
    for step, score in ((0, 1.0), (1, 2.0)):
        metrics = {"eval/reward_mean": 9.0, "eval/pole-a/reward_mean": score, "eval/pole-b/reward_mean": -score}
        history.evals[step] = {"metrics": metrics}
    first, second = courses_of(history, "x", 1.0)
    assert (first.environment, first.task, first.steps, first.scores) == ("suite", "pole-a", (0, 50), (1.0, 2.0))
    assert (second.task, second.scores) == ("pole-b", (-1.0, -2.0))


def test_courses_of_other_settings_are_not_mixed_in(tmp_path: Path, entry: Entry) -> None:
    settle(job_of(tmp_path, entry, 0, snapshot=True))
    settle(job_of(tmp_path, entry, 0, snapshot=True))
    other = Entry("small", entry.cfg.replace(learning_rate=1e-4))
    with pytest.raises(ConfigError, match="learning_rate: 0.001 → 0.0001"):
        settle(job_of(tmp_path, other, 0, snapshot=True))


@pytest.mark.parametrize("content", ["{", "[]", '{"name": 3}', '{"name": NaN}'])
def test_damaged_records_are_refused_by_name(tmp_path: Path, entry: Entry, content: str) -> None:
    job = job_of(tmp_path, entry, 0, snapshot=False)
    settle(job)
    job.record.write_text(content)
    with pytest.raises(StorageError, match=re.escape(str(job.record))):
        settle(job)
    job.record.unlink()
    settle(job)
    job.failure.parent.mkdir()
    job.failure.write_text(content)
    with pytest.raises(StorageError, match=re.escape(str(job.failure))):
        gather([job])


def test_two_comparisons_do_not_share_a_folder(tmp_path: Path, entry: Entry) -> None:
    lock = lock_run(tmp_path)
    with pytest.raises(RunLocked):
        run_campaign(tmp_path, [entry], [0])
    lock.release()


def test_names_that_no_file_may_have_stay_apart(tmp_path: Path, entry: Entry) -> None:
    names = [
        job_of(tmp_path, Entry(name, entry.cfg), 0, snapshot=False).name for name in ("a b", "a/b", "../a-b", "a-b")
    ]
    assert len(set(names)) == 4
    assert not any("/" in name or " " in name for name in names)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([Entry("a", TrainingConfig(**SMALL))] * 2, "'a' is given twice"),
        ([Entry("a", TrainingConfig(**{**SMALL, "eval_steps": 0}))], "never evaluated"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    tmp_path: Path, entries: list[Entry], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run_campaign(tmp_path, entries, [0])
    assert not (tmp_path / "runs").exists()


def test_whether_a_product_is_there() -> None:
    assert available("groupwise.control.grpo")
    assert not available("groupwise.control.nothing_like_it")
    assert not available("nowhere.at.all")


def test_a_broken_or_killed_course_is_told_and_the_others_go_on(
    tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker: the course after a killed process gets a new one. The second call makes only what is missing."""
    (tmp_path / "deadly.py").write_text("import os, signal\ndef build(cfg): os.kill(os.getpid(), signal.SIGKILL)\n")
    (tmp_path / "broken.py").write_text("def build(cfg): raise RuntimeError('no such luck')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "out"
    entries = [Entry("broken", entry.cfg, "broken"), Entry("deadly", entry.cfg, "deadly"), entry]
    told: list[tuple[float, int, int]] = []
    outcome = run_campaign(folder, entries, [0], jobs=1, progress=lambda *counts: told.append(counts))
    assert [course.algorithm for course in outcome.courses] == ["small"]
    failures = {failure.algorithm: failure.message for failure in outcome.failures}
    assert failures == {"broken": "RuntimeError: no such luck", "deadly": "its process was killed by signal 9"}
    assert told[-1] == (3.0, 3, 3)
    kept = next((folder / "courses").iterdir()).stat().st_mtime_ns
    again = run_campaign(folder, [entry], [0], jobs=1)
    assert again.courses == outcome.courses
    assert next((folder / "courses").iterdir()).stat().st_mtime_ns == kept


def test_a_failure_is_forgotten_once_the_course_is_there(tmp_path: Path, entry: Entry) -> None:
    job = job_of(tmp_path, entry, 0, snapshot=False)
    job.failure.parent.mkdir(parents=True)
    job.failure.write_text(
        json.dumps({"algorithm": "small", "environment": "e", "seed": 0, "message": "m", "hint": ""})
    )
    assert gather([job]).failures == (FailedCourse("small", "e", 0, "m"),)
    carry_out(job)
    assert gather([job]).failures == ()
    assert len(gather([job]).courses) == 1
