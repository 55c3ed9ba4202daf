"""The tutorials run from top to bottom in an empty folder, as they stand except that training is cut short."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise import cli

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SHORT = ["--set", "training.num_episodes=2", "--set", "run.eval_steps=2", "--set", "run.eval_episodes=4"]
CUT = {
    "sft": SHORT,
    "train": SHORT,
    "design": ["--evaluations", "2"],
    "eval": ["--episodes", "4"],
    "rollout": ["--tasks", "2"],
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def carry_out(line: str) -> None:
    command, *words = shlex.split(line)
    if command == "groupwise":
        # What comes last counts, so that the short form wins.
        kept = [word for word in words if word not in ("--episodes", "--tasks", "100", "200", "4")]
        assert cli.run([*(kept if words[0] in ("eval", "rollout") else words), *CUT.get(words[0], ())]) in (
            0, words[0] == "diff",
        ), line  # fmt: skip
    elif command == "cp":
        shutil.copy(*words)
    else:
        assert command == "python", line
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


RUN = [page if page.stem == "my_environment" else pytest.param(page, marks=pytest.mark.long) for page in TUTORIALS]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT / "src")})
    for language, text in BLOCK.findall(page.read_text("utf8")):
        if language == "python":
            named, _, code = text.partition("\n")
            Path(named.removeprefix("# ")).write_text(code)
        elif text.startswith(("cp ", "groupwise ", "python ")):
            for line in text.splitlines():
                carry_out(line)
        else:
            assert text.splitlines()[0] in Path("claims.csv").read_text().splitlines(), "what a file is said to contain"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_short_has_a_picture_and_is_linked(page: Path) -> None:
    text = page.read_text("utf8")
    assert len(text.split()) < 800
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert (page.parent / picture).stat().st_size > 5_000
    assert f"(docs/tutorials/{page.name})" in (ROOT / "README.md").read_text("utf8")[:3_500]
