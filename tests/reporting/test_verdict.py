"""What is said of a run: noise is not called progress."""

import pytest

from groupwise.reporting.history import History
from groupwise.reporting.verdict import subject, verdict


@pytest.mark.parametrize(
    ("before", "after", "word"), [(20.0, 500.0, "rose"), (500.0, 20.0, "fell"), (20.0, 21.0, "hardly moved")]
)
def test_the_verdict_knows_noise_from_change(before: float, after: float, word: str) -> None:
    history = History()
    for step, score in ((0, before), (60, after)):
        history.evals[step] = {"metrics": {"eval/reward_mean": score, "eval/reward_std": 5.0, "eval/attempts": 20.0}}
    assert f"Evaluation reward {word}" in verdict(history)


def test_without_evaluations_the_verdict_says_so() -> None:
    history = History(steps={step: {"metrics": {"reward/mean": 20.0 + 8 * step}} for step in range(1, 21)})
    assert verdict(history) == "Training reward rose from 44 to 164; it was never evaluated."


@pytest.mark.parametrize(("after", "word"), [(0.9, "rose"), (0.33, "hardly moved:"), (0.05, "fell"), (7.0, "rose")])
def test_right_answers_are_counted_where_there_are_any(after: float, word: str) -> None:
    history = History()
    for step, share in ((0, 0.3), (60, after)):
        history.evals[step] = {"metrics": {"eval/reward_mean": 1.0, "eval/accuracy": share, "eval/attempts": 400.0}}
    assert verdict(history).startswith(f"Right answers to 400 held-out tasks {word} from 30.0% before training to ")


@pytest.mark.parametrize(
    ("model", "wanted"), [("runs/warm-1/checkpoints/000190", "warm-1 on sums.jsonl"), ("a/tiny", "tiny on sums.jsonl")]
)
def test_a_model_from_a_run_has_the_runs_name(model: str, wanted: str) -> None:
    config = {"policy": {"model_name": model}, "task": {"environment": "data/sums.jsonl"}}
    assert subject(History(config=config)) == wanted
