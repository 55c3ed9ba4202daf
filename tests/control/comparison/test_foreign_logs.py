"""What other tools logged becomes courses, and what cannot be read is refused in a sentence."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from groupwise.cli import run
from groupwise.control.comparison.event_files import masked_crc
from groupwise.control.comparison.foreign_logs import ForeignLog, parse_log, read_log, thinned
from groupwise.errors import ConfigError

HEAD = '#{"t_start": %s, "env_id": "CartPole-v1"}\nr,l,t\n'


def monitor(path: Path, rows: str, begun: float = 1000.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD % begun + rows)
    return path


def table(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_monitor_is_a_run_over_the_steps_of_its_episodes(tmp_path: Path) -> None:
    (found,) = read_log(monitor(tmp_path / "monitor.csv", "9.0,9,0.5\n21.0,21,1.5\n4.5,5,2.0\n"))
    assert found.points == [(9, 9.0), (30, 21.0), (35, 4.5)]
    assert (found.environment, found.seconds) == ("CartPole-v1", 1.5)


def test_the_monitors_of_several_copies_are_one_run_in_the_order_of_time(tmp_path: Path) -> None:
    monitor(tmp_path / "0.monitor.csv", "1,10,1.0\n3,10,3.0\n")
    monitor(tmp_path / "1.monitor.csv", "2,20,1.0\n", begun=1001.0)
    (found,) = read_log(tmp_path)
    assert found.points == [(10, 1.0), (30, 2.0), (40, 3.0)]


def test_a_folder_of_runs_is_numbered_in_natural_order_from_the_first_seed(tmp_path: Path) -> None:
    for seed in (10, 9, 1):
        monitor(tmp_path / f"seed_{seed}" / "monitor.csv", f"{seed},10,1\n")
    courses, notes = ForeignLog("sb3", tmp_path).courses(first=100)
    assert [(course.seed, course.final) for course in courses] == [(100, 1.0), (101, 9.0), (102, 10.0)]
    assert {(course.algorithm, course.environment, course.task) for course in courses} == {
        ("sb3",) + ("CartPole-v1",) * 2
    }
    assert notes == []


def test_tensorboard_files_are_read_as_tensorboard_reads_them(tmp_path: Path) -> None:
    writers = pytest.importorskip("torch.utils.tensorboard.writer")
    folder = tmp_path / "CartPole-v1__ppo__1__1700000000"
    with writers.SummaryWriter(str(folder)) as writer:
        for step in range(300):
            writer.add_scalar("charts/episodic_return", step / 3, 10 * step, walltime=1e9 + step)
            writer.add_scalar("losses/value_loss", 1.0, 10 * step)
        writer.add_text("hyperparameters", "x" * 1000)
        writer.add_histogram("weights", np.arange(10), 5)
    (found,) = read_log(tmp_path)
    assert [step for step, _ in found.points] == list(range(0, 3000, 10))
    assert [value for _, value in found.points] == pytest.approx([step / 3 for step in range(300)])
    assert (found.environment, found.seconds) == ("CartPole-v1", 299.0)
    (other,) = read_log(tmp_path, {"score": "losses/value_loss"})
    assert {value for _, value in other.points} == {1.0}
    with pytest.raises(ConfigError, match=r"there is no scalar 'reward'; there are .*charts/episodic_return"):
        read_log(tmp_path, {"score": "reward"})
    # A run that is still being written ends in half a record.
    path = next(folder.iterdir())
    path.write_bytes(path.read_bytes()[:-7])
    assert len(read_log(tmp_path)[0].points) >= 299


def test_the_checksum_is_that_of_record_files() -> None:
    crc = masked_crc(b"123456789")
    unmasked = (crc - 0xA282EAD8) & 0xFFFFFFFF
    assert (unmasked >> 17 | unmasked << 15) & 0xFFFFFFFF == 0xE3069283  # the check value of CRC-32C


def test_a_table_with_seeds_and_tasks(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", "seed;step;score;task\n10;100;5;a\n2;100;3;a\n2;200;nan;a\n2;100;7;b\n")
    courses, notes = ForeignLog("mine", path).courses(environment="suite")
    assert [(c.task, c.seed, c.steps, c.scores) for c in courses] == [
        ("a", 0, (100,), (3.0,)), ("a", 1, (100,), (5.0,)), ("b", 0, (100,), (7.0,)),
    ]  # fmt: skip
    assert notes == ["mine: 1 scores of its logs are not finite numbers and are left out."]


def test_columns_by_any_name_and_gaps(tmp_path: Path) -> None:
    """SB3's progress.csv leaves the evaluation's cell empty in most rows."""
    path = table(
        tmp_path / "progress.csv", "time/total_timesteps,eval/mean_reward,x\n100,,9\n200,5.5,9\n300,,9\n400,7,9\n5"
    )
    assert read_log(path)[0].points == [(200, 5.5), (400, 7.0)]
    assert read_log(path, {"score": "x"})[0].points[0] == (100, 9.0)


@pytest.mark.parametrize(
    ("name", "content", "columns", "words"),
    [
        ("a.csv", "step,loss\n1,2\n", [], r"no column any of eval/mean_reward, .*; there are step, loss"),
        (
            "a.csv",
            "epoch,score\n1,2\n",
            [],
            r"no column any of step, .*; there are epoch, score\nName one of them: --column step=",
        ),
        ("a.csv", "step,score\n1,2\n", ["score=return"], r"no column 'return'; there are step, score"),
        ("a.csv", "step,score\n1,2\n", ["seed=run"], r"no column 'run'; there are step, score"),
        (
            "a.csv",
            "step,score\n1,nan\n2,inf\n",
            [],
            r"'score' has no scores that are numbers: all 2 are NaN or infinite",
        ),
        ("a.csv", "", [], "it is empty"),
        ("a.csv", "," * 15_000_000, [], "it has 15,000,001 columns; the limit is 100,000"),
        ("a.csv", "step,score\n" + "," * 5_000_000, [], "line 2 has 5,000,000 characters; the limit is 4,000,000"),
        ("monitor.csv", '#{"t_start": 1}\nr,t\n1,2\n', [], r"no column 'l'; there are r, t"),
        ("monitor.csv", "#{oops\nr,l,t\n", [], "line 1 is not the JSON"),
        ("monitor.csv", '#{"t_start": 1}\nr,l,t\n', [], "'r' has no scores"),
        ("events.out.tfevents.1", "hello, this is text", [], "not a TensorBoard event file"),
        ("log.txt", "step,score\n", [], "'log.txt' is not a log that we can read"),
        ("a.csv", "step,score\n1,2\n", ["reward=score"], "--column 'reward=score' must be ROLE=NAME"),
        ("a.csv", "step,score\n1,2\n", [], "does not say in which environment it was made\n--log x@CartPole-v1="),
    ],
)
def test_what_is_wrong_with_a_log_is_one_sentence(
    tmp_path: Path, name: str, content: str, columns: list[str], words: str
) -> None:
    path = table(tmp_path / name, content)
    with pytest.raises(ConfigError, match=words):
        parse_log(f"x={path}", columns).courses()


def test_single_episodes_are_averaged_and_evaluations_are_not() -> None:
    steps, scores = thinned([(step, float(step)) for step in range(1000)])
    assert len(steps) == 100
    assert scores[0] == pytest.approx(4.5, abs=0.6)
    assert steps[-1] == 999
    assert thinned([(2, 4.0), (1, 3.0), (2, 6.0)]) == ((1, 2), (3.0, 5.0))
    assert all(math.isfinite(score) for score in thinned([(1, 1.7e308)] * 3)[1])


def test_two_logs_are_compared_with_a_threshold_and_nothing_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(6):
        rows = "".join(f"{min(500, 5 * n + seed)},50,{n}\n" for n in range(150))
        monitor(tmp_path / "sb3" / f"run_{seed}" / "monitor.csv", rows)
    lines = [f"{1000 * n},{20 + n + seed},{seed}\n" for seed in range(6) for n in range(1, 9)]
    table(tmp_path / "other.csv", "global_step,charts/episodic_return,seed\n" + "".join(lines))
    words = ["compare", "--log", f"sb3={tmp_path / 'sb3'}", "--log", f"other={tmp_path / 'other.csv'}"]
    words += [
        "--environment",
        "CartPole-v1",
        "--threshold",
        "CartPole-v1=450",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"] == "sb3 ends above other."
    solved = {row["algorithm"]: (row["solved"], row["runs"]) for row in found["solved"]}
    assert solved == {"sb3": (6, 6), "other": (0, 6)}
    assert any("read from logs" in caution for caution in found["cautions"])
    with (tmp_path / "out" / "courses.csv").open(newline="") as file:
        assert {row["algorithm"] for row in csv.DictReader(file)} == {"sb3", "other"}


def test_seeds_of_a_table_may_be_any_text(tmp_path: Path) -> None:
    seeds = ["10", "9", "²", "9" * 5000, "٣", "007", "a/b"]
    file = tmp_path / "log.csv"
    file.write_text("step,score,seed\n" + "".join(f"1,{place},{seed}\n" for place, seed in enumerate(seeds)), "utf8")
    scores = [run.points[0][1] for run in read_log(file)]
    assert sorted(scores) == list(range(len(seeds)))
    assert [score for score in scores if score in (5, 1, 0, 3)] == [5, 1, 0, 3]  # 7, 9, 10 and a number of 5,000 digits
