"""The list of runs: kept current from thousands of folders, searched, sorted, labelled and changed in bulk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import TrainingConfig
from groupwise.errors import RunNotFound
from groupwise.service.jobs import Jobs
from groupwise.service.keys import OPERATOR, Keys, Who
from groupwise.service.run_comparison import compared
from groupwise.service.run_index import SHARE, RunIndex, change_labels, read_labels
from groupwise.service.run_list import ListChanges, RunListing, Wanted, counted
from groupwise.service.runs import MetricNotFound, Runs
from groupwise.service.schemas import LabelChange
from groupwise.service.tables import Tables
from groupwise.training.events import EventLog
from groupwise.training.folder import write_config
from groupwise.types import Event

ANN = Who("a", "ann", "train", "a")


def write_run(base: Path, name: str, state: str = "finished", reward: float = 1.0, **settings: Any) -> Path:
    path = base / name
    path.mkdir(parents=True)
    write_config(path, TrainingConfig.from_dict({"run_name": name, "output_dir": str(base), **settings}))
    status = {
        "state": state,
        "step": 5,
        "total": 9,
        "attempt": 1,
        "updated": 10.0 * reward,
        "metrics": {"reward/mean": reward},
    }
    (path / "status.json").write_text(json.dumps(status))
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "runs")


@pytest.fixture
def listed(runs: Runs, tmp_path: Path) -> RunListing:
    tables = Tables(f"sqlite:///{tmp_path / 'service.sqlite'}")
    return RunListing(runs.index, Jobs(tables, str(tmp_path / "runs")), Keys(tables))


def names(listed: RunListing, who: Who = OPERATOR, **wanted: Any) -> list[str]:
    asked = Wanted(**wanted)
    return [view.id for view in asked.sorted([view for view in listed.views(who) if asked.fits(view)])]


def test_runs_are_found_by_words_filters_and_order(listed: RunListing, runs: Runs) -> None:
    write_run(runs.folder, "pole", reward=1.0)
    write_run(runs.folder, "sums", reward=3.0, product="language", environment="addition")
    write_run(runs.folder, "old", "failed", reward=2.0)
    assert names(listed) == ["sums", "old", "pole"], "the newest first"
    assert names(listed, order="reward") == ["pole", "old", "sums"]
    assert names(listed, order="reward", backwards=True) == ["sums", "old", "pole"]
    assert names(listed, order="name") == ["old", "pole", "sums"]
    assert names(listed, product="language") == names(listed, environment="addition") == ["sums"]
    assert names(listed, state="failed") == ["old"]
    assert names(listed, text="OL") == ["old", "pole"]
    assert names(listed, text="no such") == []
    assert counted(listed.views(OPERATOR))["state"] == {"finished": 2, "failed": 1}


def test_runs_without_a_number_come_last_in_either_direction(listed: RunListing, runs: Runs) -> None:
    write_run(runs.folder, "pole")
    path = write_run(runs.folder, "none")
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps({**status, "metrics": {}}))
    assert names(listed, order="reward") == names(listed, order="reward", backwards=True) == ["pole", "none"]


def test_labels_are_kept_in_the_run_and_searched(listed: RunListing, runs: Runs) -> None:
    path = write_run(runs.folder, "pole")
    change_labels(path, LabelChange(tags=["first", "first", "seed 1"], notes="a long story", title="The pole"))
    change_labels(path, LabelChange(notes="a short story"))
    labels = read_labels(path)
    assert (labels.title, labels.tags, labels.notes, labels.archived) == (
        "The pole", ("first", "seed 1"), "a short story", False,
    )  # fmt: skip
    assert names(listed, tag="first") == names(listed, text="short story") == names(listed, text="the pole") == ["pole"]
    change_labels(path, LabelChange(archived=True))
    assert names(listed) == []
    assert names(listed, archived=True) == names(listed, archived=None) == ["pole"]
    (path / "labels.json").write_text("{")
    assert names(listed) == ["pole"], "damaged labels are none"


def test_a_key_sees_its_own_runs_and_jobs_that_wait(listed: RunListing, runs: Runs) -> None:
    write_run(runs.folder, "operators")
    write_run(runs.folder, "anns")
    listed.jobs.add("anns", "control", {}, ANN)
    listed.jobs.add("waits", "control", {}, ANN)
    assert set(names(listed, ANN)) == {"anns", "waits"}
    assert set(names(listed)) == {"operators", "anns", "waits"}
    assert (listed.view("waits").state, listed.view("waits").job_state) == ("queued", "queued")
    with pytest.raises(RunNotFound):
        listed.view("nothing")


def test_only_what_changed_is_told(listed: RunListing, runs: Runs) -> None:
    changes = ListChanges()
    path = write_run(runs.folder, "pole")
    write_run(runs.folder, "gone")
    assert changes.since(listed.views(OPERATOR)) is None, "at first there is nothing to compare with"
    assert changes.since(listed.views(OPERATOR)) is None
    change_labels(path, LabelChange(title="Told"))
    shutil.rmtree(runs.folder / "gone")
    told = changes.since(listed.views(OPERATOR))
    assert told is not None
    assert ([run["title"] for run in told["changed"]], told["removed"], told["more"]) == (["Told"], ["gone"], False)


def test_a_partial_look_finds_new_and_running_runs_at_once_and_the_others_in_turn(tmp_path: Path) -> None:
    looked: list[str] = []
    index = RunIndex(tmp_path, lambda path: looked.append(path.name) or {})  # type: ignore[func-returns-value]
    for number in range(20):
        write_run(tmp_path, f"run-{number:02d}")
    index.refresh(whole=False)
    assert len(index.cards) == 20
    change_labels(tmp_path / "run-07", LabelChange(title="Changed"))
    for _ in range(10):
        index.refresh(whole=False)
    assert index.cards["run-07"].labels.title == "Changed"
    write_run(tmp_path, "new")
    index.refresh(whole=False)
    assert "new" in index.cards
    assert looked == [], "no log was read"


def test_full_looks_at_thousands_of_runs_have_pauses_in_which_changes_are_still_found(tmp_path: Path) -> None:
    index = RunIndex(tmp_path, lambda path: {})
    for number in range(20):
        write_run(tmp_path, f"run-{number:02d}")
    index.refresh()
    index._took = index._ended = 1e9  # as if the full look had taken very long, just now
    change_labels(tmp_path / "run-07", LabelChange(title="Changed"))
    index.refresh()
    write_run(tmp_path, "new")
    for _ in range(SHARE):
        index.refresh()
    assert {"new", "run-07"} <= index.cards.keys()
    assert index.cards["run-07"].labels.title == "Changed"
    index._took = index._ended = 0.0
    change_labels(tmp_path / "run-07", LabelChange(title="Again"))
    index.refresh()
    assert index.cards["run-07"].labels.title == "Again", "small numbers of runs are looked at every time"


def write_log(path: Path, values: list[dict[str, float]], kind: str = "step") -> None:
    log = EventLog(path / "events.jsonl")
    for step, metrics in enumerate(values, 1):
        data = {"metrics": metrics, "timing": {"total": 2.0, "processor": 1.5}, "totals": {"samples": 100 * step}}
        log.append(Event(path.name, log.count, 1, 1000.0 + 3 * step, step, kind, data))
    log.close()


def test_curves_stand_on_the_axis_that_was_asked_for(runs: Runs) -> None:
    path = write_run(runs.folder, "pole")
    write_log(path, [{"reward/mean": 1.0}, {"reward/mean": 2.0}, {"reward/mean": 3.0}])
    found = {axis: runs.series("pole", ["reward/mean"], 100, axis=axis)["series"]["reward/mean"]
             for axis in ("step", "samples", "time", "processor")}  # fmt: skip
    assert "at" not in found["step"]
    assert found["samples"]["at"] == [100, 200, 300]
    assert found["time"]["at"] == [0, 3, 6]
    assert found["processor"]["at"] == [1.5, 3.0, 4.5]
    assert runs.series("pole", ["reward/mean"], 100, since=2, until=2)["series"]["reward/mean"]["values"] == [2.0]
    assert runs.series("pole", ["timing/total"], 100)["series"]["timing/total"]["values"] == [2.0, 2.0, 2.0]
    with pytest.raises(MetricNotFound, match="run pole has no metric 'reward/mean,timing/total'") as error:
        runs.series("pole", ["reward/mean,timing/total"], 100)
    assert "names=a&names=b" in error.value.hint


def test_a_warm_start_of_an_earlier_version_has_no_reward(runs: Runs) -> None:
    path = write_run(runs.folder, "warm", product="warm-start", environment="addition")
    write_log(path, [{"reward/mean": 0.2, "loss/total": -1.0, "loss/supervised": 2.0}] * 2)
    runs.index.refresh()
    assert {"reward/mean", "loss/total"}.isdisjoint(metric["name"] for metric in runs.known("warm"))
    assert runs.known("warm")[0]["name"] == "loss/supervised"


def test_runs_that_differ_in_their_seed_are_one_arm(runs: Runs) -> None:
    for rate in (0.1, 0.2):
        for seed in range(2):
            path = write_run(runs.folder, f"r{rate}-{seed}", learning_rate=rate, seed=seed)
            write_log(path, [{"eval/reward_mean": rate * step + seed / 100} for step in range(4)], "eval")
    everyone = [f"r{rate}-{seed}" for rate in (0.1, 0.2) for seed in range(2)]
    found = compared(runs, everyone)
    assert [arm["runs"] for arm in found["arms"]] == [["r0.1-0", "r0.1-1"], ["r0.2-0", "r0.2-1"]]
    assert found["settings"].keys() == {"optim.learning_rate"}
    assert len(found["verdicts"]) == 1
    assert "differ in nothing but their seed" in compared(runs, everyone[:2])["headline"]
    assert compared(runs, everyone, "none")["headline"] == "None of these runs has measured none."


def test_of_many_arms_the_one_that_ends_highest_is_named(runs: Runs) -> None:
    for rate in (0.1, 0.2, 0.3):
        for seed in range(3):
            path = write_run(runs.folder, f"r{rate}-{seed}", learning_rate=rate, seed=seed)
            write_log(path, [{"eval/reward_mean": rate * step + seed / 1000} for step in range(4)], "eval")
    found = compared(runs, [f"r{rate}-{seed}" for rate in (0.1, 0.2, 0.3) for seed in range(3)])
    assert found["headline"].startswith("learning_rate 0.3 ends ")
    assert len(found["verdicts"]) == 3
    path = write_run(runs.folder, "flat", learning_rate=0.4, seed=0)
    write_log(path, [{"eval/reward_mean": 0.0} for _ in range(4)], "eval")
    assert compared(runs, ["r0.1-0", "r0.2-0", "flat"])["headline"] == (
        "learning_rate 0.2 ends highest, at 0.6, but not distinguishably above any."
    )
