"""The benchmark of half precision, on a toy: what it claims is what it measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_toy_clips_nothing_at_its_first_step_and_much_against_the_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["half_precision.py"])
    half_precision = pytest.importorskip("half_precision")
    shape = "--prompts 2 --samples 4 --tokens 12 --micro-batch 4 --temperature 0.03 --rounds 1"
    half_precision.main(["--small", "--device", "cpu", *shape.split()])
    claims = json.loads(capsys.readouterr().out.splitlines()[-1])["claims"]
    assert claims["gspo_clipped_first_step"] == 0
    for way in ("bf16_weights", "bf16_autocast"):
        assert claims[f"{way}_gspo_clipped_first_step"] == 0
        assert claims[f"{way}_gspo_clipped_against_the_engine"] > 0.05
        assert 1e-3 < claims[f"{way}_sampler_gap_before"] < 0.5
        assert claims[f"{way}_sampler_gap_after"] < 0.1 * claims[f"{way}_sampler_gap_before"]
        assert claims[f"{way}_update_seconds_several_with"] > 0
