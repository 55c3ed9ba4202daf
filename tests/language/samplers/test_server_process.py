"""Servers as processes: started in an environment of their own, found again, stopped. Their program is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from groupwise.cli import run
from groupwise.errors import ConfigError, GroupwiseError, MissingExtra
from groupwise.language.samplers.server_process import (
    ServerOptions,
    find_vllm,
    known_servers,
    start_server,
    stop_server,
)

PROGRAM = """#!{python}
import http.server, json, os, sys
if "--fail" in sys.argv:
    sys.exit("ValueError: no such model")
kept = {{name: os.environ.get(name) for name in ("PYTHONPATH", "VLLM_SERVER_DEV_MODE", "VLLM_CPU_KVCACHE_SPACE")}}
open("told.txt", "w").write(json.dumps([sys.argv[1:], kept]))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"{{}}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    program = tmp_path / "venv" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path / "venv"


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        found: int = sock.getsockname()[1]
    return found


def test_a_server_is_started_found_and_stopped(
    environment: Path, port: int, tiny_qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "samplers"
    words = ["--port", str(port), "--environment", str(environment), "--folder", str(folder), "--lora-rank", "12"]
    assert run(["sampler", "start", str(tiny_qwen), *words, "--json", "--", "--seed", "3"]) == 0
    started = json.loads(capsys.readouterr().out)
    assert started["url"] == f"http://127.0.0.1:{port}"
    given, kept = json.loads((folder / "told.txt").read_text())
    assert given[:2] == ["serve", str(tiny_qwen)]
    # vLLM takes certain ranks only; the next one above serves.
    assert given[given.index("--max-lora-rank") + 1] == "16"
    assert given[-2:] == ["--seed", "3"]
    assert kept["VLLM_SERVER_DEV_MODE"] == "1"
    # Nothing of ours but the one file that is meant for it.
    assert {path.name for path in Path(kept["PYTHONPATH"]).glob("*.py")} == {"__init__.py", "groupwise_worker.py"}
    with pytest.raises(ConfigError, match=f"port {port} is taken"):
        start_server(str(tiny_qwen), ServerOptions(port=port), environment=environment, folder=folder)
    assert run(["sampler", "status", "--folder", str(folder), "--json"]) == 0
    assert [row["answers"] for row in json.loads(capsys.readouterr().out)] == [True]
    assert run(["sampler", "stop", "8", "--folder", str(folder)]) == 2
    assert run(["sampler", "stop", str(port), "--folder", str(folder)]) == 0
    assert not Path(f"/proc/{started['pid']}").exists()
    assert known_servers(folder) == []


def test_a_server_that_ends_says_why(environment: Path, port: int, tiny_qwen: Path, tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match=r"ended with status 1 .* ValueError: no such model"):
        start_server(
            str(tiny_qwen), ServerOptions(port=port, more=("--fail",)), environment=environment, folder=tmp_path / "s"
        )
    assert known_servers(tmp_path / "s") == []


def test_the_record_of_a_killed_server_is_removed_and_no_other_process_is_stopped(
    environment: Path, port: int, tiny_qwen: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "s"
    record = start_server(str(tiny_qwen), ServerOptions(port=port), environment=environment, folder=folder)
    os.kill(record.pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    assert known_servers(folder) == []
    assert list(folder.glob("*.json")) == []
    # A pid is used again; its process was born at another time.
    ours = type(record)(**{**vars_of(record), "pid": os.getpid()})
    stop_server(ours, folder)


def vars_of(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in ("url", "model", "pid", "born", "log", "command")}


def test_without_vllm_one_sentence_says_how_to_get_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingExtra, match="there is no vLLM in"):
        find_vllm(tmp_path)
    assert run(["sampler", "start", "tiny", "--environment", str(tmp_path), "--folder", str(tmp_path)]) == 1
    assert "make sampler" in capsys.readouterr().err
    assert run(["sampler", "status", "--folder", str(tmp_path)]) == 0
    assert "no server runs" in capsys.readouterr().out


def test_a_rank_beyond_vllm_is_refused(environment: Path, port: int, tiny_qwen: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an adapter's rank is 1000; vLLM takes at most 512"):
        start_server(str(tiny_qwen), ServerOptions(port=port, lora_rank=1000), environment=environment, folder=tmp_path)
