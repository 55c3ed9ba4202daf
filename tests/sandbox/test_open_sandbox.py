"""Where no sandbox holds, nothing runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox import SandboxLimits, available, open_sandbox

IMPOSTOR = """#!/bin/sh
[ "$1" = --version ] && echo "bubblewrap VERSION" && exit
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that nobody may read, too."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def told(script: str, path: str | None = None) -> str:
    """What a program with another PATH says."""
    env = {**os.environ, **({} if path is None else {"PATH": path})}
    ran = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=600)
    return ran.stdout + ran.stderr


OPEN = """
from groupwise.errors import GroupwiseError
from groupwise.sandbox import open_sandbox
try:
    open_sandbox("TIER").run("print('it ran')")
    print("opened")
except GroupwiseError as error:
    print(error.code, error)
"""


def test_without_bubblewrap_the_second_tier_is_refused(folder: Path) -> None:
    said = told(OPEN.replace("TIER", "bubblewrap"), str(folder))
    assert said.startswith("resources the second tier of the sandbox needs bubblewrap")
    assert "apt-get install bubblewrap" in said


def test_without_monty_the_first_tier_is_refused() -> None:
    said = told("import sys\nsys.modules['pydantic_monty'] = None\n" + OPEN.replace("TIER", "monty"))
    assert said.startswith("missing_extra the first tier of the sandbox needs pydantic-monty")
    assert "pip install 'groupwise[sandbox]'" in said


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.9.0", "refuses only"), ("0.4.1", "bubblewrap 0.4.1 is too old; at least 0.8 is needed")],
)
def test_a_bubblewrap_that_does_not_hold_is_refused(folder: Path, version: str, words: str) -> None:
    if fault := available()["bubblewrap"]:
        pytest.skip(fault)
    impostor = folder / "bwrap"
    impostor.write_text(IMPOSTOR.replace("VERSION", version))
    impostor.chmod(0o755)
    said = told(OPEN.replace("TIER", "bubblewrap"), f"{folder}:{os.environ['PATH']}")
    assert said.startswith("resources"), said
    assert words in said


@pytest.mark.parametrize("tier", ["monty", "bubblewrap"])
def test_both_tiers_do_the_same_by_one_interface(tier: str) -> None:
    if fault := available()[tier]:
        pytest.skip(fault)
    sandbox = open_sandbox(tier, workers=1)
    try:
        code = "def solve(x):\n    print(x)\n    return [x, (x, {'k': x})]"
        ran = sandbox.run(code, {"x": 1}, limits=SandboxLimits(seconds=5), call="solve")
        assert (ran.outcome, ran.value, ran.stdout) == ("passed", [1, (1, {"k": 1})], "1\n")
    finally:
        sandbox.close()


def test_another_tier_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="there is no sandbox 'docker'"):
        open_sandbox("docker")


def test_the_second_tier_is_there_wherever_bubblewrap_itself_can_start() -> None:
    """Otherwise a fault of ours would look like a machine without it, and every test of the tier would be skipped."""
    wall = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    if shutil.which("bwrap") is None or subprocess.run(wall, capture_output=True).returncode:
        pytest.skip("bubblewrap is not installed, or not allowed to start")
    assert available()["bubblewrap"] == ""
