"""`groupwise compare` and `GRPOvsPPOAnalyzer`: mostly on courses that lie there already, once for real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import run
from groupwise.compat.comparison import GRPOvsPPOAnalyzer
from groupwise.config import TrainingConfig
from groupwise.control.comparison.arms import ABLATIONS, default_algorithms
from groupwise.control.comparison.campaign import Entry
from groupwise.errors import ConfigError
from groupwise.training.loop import changes

Write = Callable[..., Path]


@pytest.fixture
def settings_file(tmp_path: Path) -> Write:
    def write(name: str, **changes: Any) -> Path:
        small = {
            "hidden_sizes": [8], "num_generations": 4, "estimator": "group_rtg", "advantage_scale": "batch_std",
            "num_episodes": 2, "eval_steps": 1, "eval_episodes": 3, "per_device_train_batch_size": 256, **changes,
        }  # fmt: skip
        path = tmp_path / f"{name}.toml"
        path.write_text(TrainingConfig(**small).to_toml())
        return path

    return write


def test_two_settings_are_trained_and_compared(
    settings_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real thing, then again from its files: as JSON and for a reader."""
    files = [str(settings_file("one")), f"two={settings_file('other', learning_rate=1e-2)}"]
    command = ["compare", *files, "--seeds", "1", "--first", "7", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["algorithms"] == ["one", "two"]
    assert [standing["seeds"] for standing in told["standings"]] == [[7], [7]]
    assert told["failures"] == []
    assert "Settings that differ" in Path(told["report"]).read_text("utf8")
    assert (tmp_path / "out" / "figures" / "lesson-1-fan.png").exists()
    assert run(command) == 0
    shown = capsys.readouterr()
    assert "not distinguishable" in shown.out
    assert "report.html" in shown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no settings file was given"),
        (["one"], "'one' has nothing to be compared with"),
        (["one", "two", "--threshold", "high"], "--threshold 'high' must be TASK=NUMBER"),
        (["one", "two", "--ablation", "outcome-grouping"], "has its own settings"),
        (["--ablation", "nonsense"], "--ablation 'nonsense' is not known"),
        (["one", "two", "--set", "run.eval_steps=0"], "never evaluated"),
        (["one", "two", "--environment", "CartPole-v9"], "CartPole-v9"),
        (["same=one", "same=two"], "'same' has nothing"),
        (["one", "two", "--seeds", "0"], "seeds"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    settings_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    files = {name: str(settings_file(name)) for name in ("one", "two")}
    named = [
        f"same={files[word.removeprefix('same=')]}" if word.startswith("same=") else files.get(word, word)
        for word in words
    ]
    assert run(["compare", *named, "--out", str(tmp_path / "out"), "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]
    assert not (tmp_path / "out" / "runs").exists()


def test_settings_without_a_common_environment_are_refused() -> None:
    from groupwise.control.commands import check

    here, there = (Entry(name, TrainingConfig(environment=name), "later") for name in ("here", "there"))
    with pytest.raises(ConfigError, match="have no common environment: here in here; there in there"):
        check([here, there])


def test_the_ablation_differs_in_nothing_but_the_group_whose_mean_is_subtracted() -> None:
    ablation = ABLATIONS["outcome-grouping"]()
    sound, *others = ablation.arms.values()
    assert list(ablation.arms) == ["same start", "by return", "by clusters"]
    assert [cfg.grouping.baseline_group for cfg in others] == ["difficulty", "auto"]
    for cfg in others:
        changed = {line.partition(":")[0] for line in changes(sound.to_dict(), cfg.to_dict())}
        assert changed == {"grouping.baseline_group", "grouping.allow_outcome_baseline"}
    assert "best of the worst" in ablation.preface


def test_the_analyzer_reports_what_the_documents_ask_for(finished_analyzer: GRPOvsPPOAnalyzer) -> None:
    report = finished_analyzer.generate_report()
    assert report["headline"] == "GRPO-task ends above GRPO-auto."
    assert any("5 runs of PPO in CartPole-v1" in words and "not available" in words for words in report["cautions"])
    metrics = finished_analyzer.metrics
    assert set(metrics) == {"sample_efficiency", "final_performance", "training_stability", "group_fairness"}
    assert [row["algorithm"] for row in metrics["final_performance"]] == ["GRPO-auto", "GRPO-task"]
    assert report["report"] == str(finished_analyzer.folder / "report.html")


def test_the_analyzers_own_algorithms_are_those_of_the_documents_with_equal_budgets() -> None:
    algorithms = default_algorithms("CartPole-v1", 5000)
    assert list(algorithms) == ["PPO", "GRPO-auto", "GRPO-task"]
    assert [cfg.grouping.group_strategy for cfg in list(algorithms.values())[1:]] == ["auto", "task"]
    assert algorithms["PPO"].task.product == "ppo"
    assert {cfg.training.total_samples for cfg in algorithms.values()} == {5000}


@pytest.mark.parametrize(("suite", "seeds"), [([], 5), ("CartPole-v1", 5), (["CartPole-v1"], 0)])
def test_an_empty_comparison_is_refused(tmp_path: Path, suite: Any, seeds: int) -> None:
    with pytest.raises(ConfigError):
        GRPOvsPPOAnalyzer(tmp_path, quiet=True).run_comparison(suite, n_seeds=seeds)
    with pytest.raises(ConfigError, match="nothing to report"):
        GRPOvsPPOAnalyzer(tmp_path).generate_report()
