"""`groupwise solve` and `groupwise search`: what they show, write, keep and refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run
from groupwise.programs.language.parser import Program, parse

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "code" / "own_problem.yaml")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = run([*words, "--json"])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_solve_shows_the_tree_and_the_winning_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program, picture = tmp_path / "program.py", tmp_path / "deep" / "tree.svg"
    words = ["solve", "transformations", "--difficulty", "1", "-o", str(program), "--picture", str(picture)]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "solved after" in said
    assert "✓" in said
    assert "def solve(" in said
    assert isinstance(parse(program.read_text()), Program)
    assert picture.read_text().startswith("<svg")


def test_solve_in_json_tells_every_program_with_its_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answer(capsys, "solve", "tables", "--difficulty", "3", "--budget", "9")
    assert status == (0 if told["solved"] else 1)
    assert told["evaluations"] == len(told["programs"]) <= 9
    first = told["programs"][0]
    assert first["log_prob"] == pytest.approx(sum(first["line_log_probs"]))
    assert len(first["line_log_probs"]) == len(first["line_log_priors"]) == first["program"].strip().count("\n")


def test_a_tree_that_is_kept_is_grown_further(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["solve", "word_problems", "--difficulty", "3", "--seed", "1"]
    tree = str(tmp_path / "tree.json")
    answer(capsys, *words, "--budget", "5", "--tree", tree)
    _, grown = answer(capsys, *words, "--budget", "12", "--tree", tree)
    _, whole = answer(capsys, *words, "--budget", "12")
    assert grown["programs"] == whole["programs"]
    status, told = answer(capsys, "solve", "word_problems", "--seed", "2", "--tree", tree)
    assert status == 2
    assert "word_problems/test/3/1" in told["error"]["message"]


def test_a_problem_of_ones_own_and_a_question_are_solved(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answer(capsys, "solve", EXAMPLE)
    assert (status, told["solved"]) == (0, True)
    status, told = answer(capsys, "solve", "Ann has 12 apples and buys 30 more. How many?", "--answer", "42")
    assert (status, told["solved"]) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve", "tablets"], "is not a family, a problem file or a question"),
        (["solve", "How many apples?"], "no answer to check programs against"),
        (["solve", "How many apples?", "--answer", "3"], "mentions 0 numbers"),
        (["solve", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["solve", "tables", "--difficulty", "9"], "difficulty = 9"),
        (["search", "tablets"], "'tablets' is not a family"),
        (["search", "tables", "--difficulty", "9"], "no problems have difficulty 9"),
        (["solve", "tables", "--policy", "no-such-run"], "no-such-run"),
    ],
)
def test_what_cannot_be_done_is_said(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    status, told = answer(capsys, *words)
    assert status in (1, 2)
    assert said in told["error"]["message"]


def test_search_tells_the_shares_and_keeps_every_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["search", "tables", "--budget", "6", "--problems", "2", "--out", str(tmp_path / "out")]
    status, told = answer(capsys, *words)
    assert (status, told["complete"], len(told["problems"])) == (0, True, 6)
    assert told["shares"]["tables"]["6"] == sum(one["solved"] for one in told["problems"]) / 6
    programs = list((tmp_path / "out").rglob("programs/*.py"))
    assert len(programs) == sum(one["evaluations"] for one in told["problems"])
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "solved within" in said
    assert "tables/test/1/0" in said


def test_ctrl_c_ends_a_search_in_order_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ["search", "word_problems", "--difficulty", "3", "--problems", "100000", "--budget", "60", "--json"]
    command = [sys.executable, "-m", "groupwise.cli", *words]
    process = subprocess.Popen([*command, "--out", "out"], cwd=tmp_path, stdout=subprocess.PIPE, env=os.environ.copy())
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/*/programs")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=600)
    told = json.loads(said)
    assert process.returncode == 130
    assert told["complete"] is False
    assert 1 <= len(told["problems"]) < 100_000
    for one in told["problems"]:
        assert len(list((tmp_path / one["folder"] / "programs").glob("*.py"))) == one["evaluations"]
