"""Runs side by side in one picture."""

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.reporting.figures import plot_runs

MakeRun = Callable[..., Path]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_runs_are_compared_in_one_picture(tmp_path: Path, suffix: str, magic: bytes, make_run: MakeRun) -> None:
    runs = [make_run(tmp_path / "first", steps=20), make_run(tmp_path / "$second$", steps=40)]
    out = plot_runs(runs, "reward/mean", tmp_path / "pictures" / f"runs.{suffix}")
    assert out.read_bytes().startswith(magic)
    if suffix == "svg":
        assert ">first 180<" in out.read_text()
        assert ">$second$ 340<" in out.read_text()


def test_a_metric_or_a_format_that_does_not_exist_is_explained(tmp_path: Path, make_run: MakeRun) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="Did you mean 'reward/mean'") as error:
        plot_runs([run], "reward/meen", tmp_path / "a.png")
    assert "timing/rollout" in error.value.hint
    with pytest.raises(ConfigError, match=r"\.png, \.svg or \.pdf"):
        plot_runs([run], "reward/mean", tmp_path / "a.gif")
