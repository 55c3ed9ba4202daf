"""A small share of `benchmarks/attack_service.py`, and whether its audit sees what it is there to see."""

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from groupwise.workers import Workers

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attack_service.py"


@pytest.mark.timeout(1800)
def test_requests_of_a_train_key_load_nothing_outside_the_table() -> None:
    words = [sys.executable, str(SCRIPT), "--json", "--requests", "200", "--runs", "8", "--seed", "7"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    claims = json.loads(told.splitlines()[-1])["claims"]
    assert claims["requests"] == 200
    assert 8 <= claims["run"] <= claims["accepted"] < 200
    assert (claims["code_runs"], claims["reads"], claims["connections"]) == (0, 0, 0), told


@pytest.fixture(scope="module")
def attack() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attack_service", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_audit_sees_code_files_and_connections(attack: ModuleType, tmp_path: Path) -> None:
    world = attack.World(tmp_path / "world")
    watch = attack.Watch([world.secret])
    audit = attack.Audit(world, {"run": "own", "own": []})
    audit("exec", (compile("1", str(world.data / "kanary.py"), "exec"),))
    audit("exec", (compile("1", json.__file__, "exec"),))
    audit("subprocess.Popen", ("sh", ["sh", "-c", "true"], None, None))
    audit("compile", (b"import kanary", "<string>"))
    audit("open", (str(world.data / "sums.jsonl"), "r", 0))
    audit("open", (str(world.data / "kanary_link.jsonl"), "r", 0))
    audit("open", (str(world.runs / "victim" / "config.toml"), "r", 0))
    audit("socket.connect", (None, ("127.0.0.1", 80)))
    assert {kind: len(found) for kind, found in audit.found.items()} == {"code_runs": 3, "reads": 2, "connections": 1}
    assert watch.opened() == []
    (world.secret / "kanary.jsonl").read_text()
    assert "kanary.jsonl" in watch.opened()


def test_workers_of_a_job_are_watched_like_the_job(
    attack: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, job = attack.World(tmp_path / "world"), {"run": "own", "own": []}
    for name in ("ATTACK_JOB", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    attack._watch_workers(world, job)
    audit = attack.Audit(world, job)
    monkeypatch.setattr(subprocess, "Popen", _heard(audit, subprocess.Popen))
    with Workers(partial(partial, Path.read_text)) as workers:
        assert "answer" in workers.submit(world.data / "sums.jsonl").result()
        told = world.folder / "own.workers"
        assert not told.exists()
        workers.submit(world.secret / "kanary.jsonl").result()
    assert "kanary_secret/kanary.jsonl" in told.read_text()
    assert audit.found["code_runs"] == []


def _heard(audit: Any, plain: Any) -> Any:
    def started(words: Any, **options: Any) -> Any:
        audit("subprocess.Popen", (words[0], words, None, None))
        return plain(words, **options)

    return started
