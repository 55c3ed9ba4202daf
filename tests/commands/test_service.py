"""`groupwise keys` and `groupwise serve` on the command line."""

from __future__ import annotations

import json
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
