"""`groupwise keys` and `groupwise serve` on the command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli import run


def test_keys_are_made_listed_and_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--runs-dir", str(tmp_path), "--json"]
    assert run(["keys", "add", "ann", "--scope", "read", *where]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["key"].startswith("gw_")
    assert run(["keys", "list", *where]) == 0
    listed = capsys.readouterr().out
    assert [(key["name"], key["scope"], key["revoked"]) for key in json.loads(listed)] == [("ann", "read", None)]
    assert made["key"] not in listed
    assert run(["keys", "revoke", made["id"], *where]) == 0
    assert json.loads(capsys.readouterr().out)["revoked"]
    assert run(["keys", "revoke", "nobody", *where]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "config"


def test_a_service_for_others_is_refused_without_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--host", "0.0.0.0", "--port", "0", "--runs-dir", str(tmp_path), "--json"]) == 2
    assert "keys add" in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "groupwise.service.app", raising=False)
    assert run(["serve", "--runs-dir", str(tmp_path), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["hint"]) == ("missing_extra", "pip install 'groupwise[service]'")


def test_a_taken_port_is_refused_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["serve", "--port", str(port), "--runs-dir", str(tmp_path), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == f"port {port} on 127.0.0.1 is already in use"
    assert "another port with --port" in error["hint"]


def test_listing_keys_does_not_import_the_web_framework(tmp_path: Path) -> None:
    look = "import sys; from groupwise.cli import run; run(sys.argv[1:]); sys.exit('fastapi' in sys.modules)"
    command = [sys.executable, "-c", look, "keys", "list", "--runs-dir", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"no keys exist")
