"""`groupwise paper`: for a reader, and in the shape of every benchmark."""

from __future__ import annotations

import json

import pytest

from groupwise.cli import run


def test_a_paper_for_a_reader_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paper", "gpmixture", "--seed", "5", "--seeds", "2"]
    assert run(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "one process over everything" in shown
    assert "than one model of everything: reproduced" in shown
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) >= {
        "v",
        "name",
        "command",
        "commit",
        "machine",
        "peers",
        "seeds",
        "claims",
        "intervals",
        "not_run",
    }
    assert (told["v"], told["name"], told["seeds"]) == (1, "paper_gpmixture", [5, 6])
    assert told["claims"]["appeared"] is True
    assert told["claims"]["tasks_found"] == 3
    low, high = told["intervals"]["error_vs_one_process"]
    assert low < told["claims"]["error_vs_one_process"] < high
    assert told["sentence"].endswith(".")


def test_an_unknown_paper_and_too_few_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "grp", "--json"]) == 2
    assert "grpo, pcgrad, softmod, gpmixture" in json.loads(capsys.readouterr().out)["error"]["hint"]
    assert run(["paper", "grpo", "--seeds", "1", "--json"]) == 2
    assert ">= 2" in json.loads(capsys.readouterr().out)["error"]["message"]
