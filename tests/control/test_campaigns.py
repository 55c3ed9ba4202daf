"""Benchmarks of many hours: what is done is kept, wherever they are killed, and what is told of it is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Jobs that take no time, except for the one that waits to be killed until a file appears.
CAMPAIGN = f"""
import argparse, json, pathlib, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import journal

def train(job):
    here = pathlib.Path(sys.argv[2])
    (here / f"began-{{job.seed}}").touch()
    while job.seed == 2 and not (here / "go").exists():
        time.sleep(0.01)
    return {{"score": job.seed * 1.5}}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    journal.add_options(parser, "x")
    options = parser.parse_args(["x", "--journal", sys.argv[1]])
    jobs = [journal.Job("arm", seed, 10, {{"rate": 0.1}}) for seed in range(4)]
    kept = journal.Journal(options.journal)
    print(json.dumps([journal.left_over(kept, jobs, 3600.0), journal.run(kept, jobs, train, options)]))
"""


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return pytest.importorskip("journal")


def test_a_campaign_killed_in_the_middle_goes_on_where_it_was(journal: Any, tmp_path: Path) -> None:
    script, kept = tmp_path / "campaign.py", tmp_path / "kept.jsonl"
    script.write_text(CAMPAIGN)
    command = [sys.executable, str(script), str(kept), str(tmp_path)]
    first = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while not (tmp_path / "began-2").exists():
        assert first.poll() is None
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert [row["seed"] for row in journal.Journal(kept).rows().values()] == [0, 1]
    # As if the kill had cut off a line.
    with kept.open("a") as file:
        file.write('{"arm": "arm", "seed": 2, "ste')
    for name in ("began-0", "began-1"):
        (tmp_path / name).unlink()
    (tmp_path / "go").touch()
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    left, rows = json.loads(again.stdout.splitlines()[-1])
    assert (left["jobs_done"], left["jobs"]) == (2, 4)
    assert [(row["seed"], row["score"]) for row in rows] == [(0, 0.0), (1, 1.5), (2, 3.0), (3, 4.5)]
    assert not (tmp_path / "began-0").exists()
    assert {"commit", "versions", "cpu_seconds", "ended"} <= set(rows[0])


def test_rows_of_other_settings_or_budgets_are_not_mixed_in(journal: Any, tmp_path: Path) -> None:
    kept = journal.Journal(tmp_path / "kept.jsonl")
    job = journal.Job("arm", 1, 10, {"rate": 0.1})
    kept.add(job, {"score": 1.0, "cpu_seconds": 7200.0})
    others = [journal.Job("arm", 1, 10, {"rate": 0.2}), journal.Job("arm", 1, 20, {"rate": 0.1})]
    assert job.key in kept.rows()
    assert not any(other.key in kept.rows() for other in others)
    assert journal.left_over(kept, [job, others[0]], 1.0)["cpu_hours_left"] == 2.0
    assert journal.left_over(kept, [journal.Job("new", 1, 10, {})], 1800.0)["cpu_hours_left"] == 0.5


def test_effects_compare_arms_that_differ_in_one_thing(journal: Any) -> None:
    multitask = pytest.importorskip("multitask")
    for name, pairs in multitask.EFFECTS.items():
        assert pairs, name
        for one, other in pairs:
            assert sum(a != b for a, b in zip(one.split("-"), other.split("-"), strict=True)) == 1
    lengths = {"full": 500.0, "half": 237.5, "none": 0.0}
    rows = [
        {"arm": arm, "seed": seed, "lengths": lengths if "popart" in arm else dict.fromkeys(lengths, 0.0),
         "solved": 1, "taken": 10}
        for arm in multitask.ARMS for seed in (1, 2)
    ]  # fmt: skip
    claims, intervals = multitask.claims_of(rows)
    assert claims["scale_effect"] == pytest.approx(0.5)
    assert intervals["scale_effect"] == [0.5, 0.5]
    assert claims["surgery_effect"] == claims["group_effect"] == 0.0
    # Of a seed that lacks an arm, nothing is claimed.
    assert multitask.claims_of(rows[:-1])[0]["surgery_effect_without_critic_seeds"] == 1
