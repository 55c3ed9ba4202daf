"""What training frees it can take again without asking the system."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version

import pytest

from groupwise.training.machine import bench_result, describe_machine

FREE_AND_TAKE = """
import random, resource, torch
from groupwise.training.machine import keep_freed_memory
keep_freed_memory()
draw = random.Random(0)
def faults(rounds):
    for _ in range(rounds):
        [torch.ones(draw.randrange(1 << 16, 1 << 20)) for _ in range(10)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(-faults(30) + faults(30))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_memory_taken_again_is_not_cleared_again() -> None:
    found = subprocess.run([sys.executable, "-c", FREE_AND_TAKE], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 2000  # of 150,000 pages


def test_a_result_says_what_was_measured_on_what_and_leaves_nothing_undefined() -> None:
    bare = bench_result("name", "python x.py", {"ratio": 2.0})
    assert (bare["v"], bare["name"], bare["command"], bare["claims"]) == (1, "name", "python x.py", {"ratio": 2.0})
    assert (bare["seeds"], bare["intervals"], bare["peers"], bare["raw"], bare["not_run"]) == ([], {}, {}, None, {})
    told = bench_result(
        "n", "c", {}, seeds=range(3), intervals={"ratio": (1.0, 3.0)}, peers={"trl": "1.0"}, raw=[1],
        not_run={"a": "why"},
    )  # fmt: skip
    assert (told["seeds"], told["intervals"], told["peers"]) == ([0, 1, 2], {"ratio": (1.0, 3.0)}, {"trl": "1.0"})
    assert (told["raw"], told["not_run"]) == ([1], {"a": "why"})
    assert told["machine"]["cpus"] == os.cpu_count()
    json.dumps(told)


def test_a_machine_is_described_by_what_a_run_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/long/way/groupwise", "train", "x.toml"])
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = describe_machine()
    assert (found["command"], found["threads"], found["cpus"]) == ("groupwise train x.toml", "3", os.cpu_count())
    assert found["python"] == platform.python_version()
    assert found["packages"]["torch"] == version("torch")
    assert "nonsense" not in found["packages"]
