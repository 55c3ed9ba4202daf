"""What is said of a run: noise is not called progress."""

import pytest

from groupwise.reporting.history import History
from groupwise.reporting.verdict import advice, subject, verdict


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
    assert verdict(history) == "Training reward rose from 44 to 164; the run was never evaluated."


@pytest.mark.parametrize(("after", "word"), [(0.9, "rose"), (0.33, "hardly moved:"), (0.05, "fell"), (7.0, "rose")])
def test_right_answers_are_counted_where_there_are_any(after: float, word: str) -> None:
    history = History(config={"task": {"product": "language"}})
    for step, share in ((0, 0.3), (60, after)):
        history.evals[step] = {"metrics": {"eval/reward_mean": 1.0, "eval/accuracy": share, "eval/attempts": 400.0}}
    assert f" {word} from 30.0% before training to " in verdict(history)
    assert verdict(history).endswith("after step 60, over 400 attempts each.")


def judged(*scores: float) -> History:
    """A run whose training reward rises throughout, and whose evaluations every ten steps are these."""
    history = History(steps={step: {"metrics": {"reward/mean": float(step)}} for step in range(1, 10 * len(scores))})
    for place, score in enumerate(scores):
        metrics = {"eval/reward_mean": score, "eval/reward_std": 0.1, "eval/attempts": 100.0}
        history.evals[10 * place] = {"metrics": metrics}
    history.end = {"reason": "finished"}
    return history


def test_advice_goes_by_held_out_results_and_not_by_the_training_reward() -> None:
    [fallen] = advice(judged(0.2, 0.9, 0.95, 0.9))
    assert "reached 0.95 at step 20 and fell to 0.9 by the end" in fallen
    [rising] = advice(judged(0.2, 0.4, 0.6, 0.8))
    assert rising.startswith("Still improving at the end")
    [steady] = advice(judged(0.2, 0.9, 0.9, 0.9))
    assert steady.startswith("Nothing looks wrong.")


def test_without_evaluations_advice_goes_by_the_training_reward() -> None:
    history = judged(0.2, 0.4, 0.6)
    history.evals = {}
    assert any("training reward was still rising" in tip for tip in advice(history))


def test_a_supervised_run_is_judged_by_its_loss() -> None:
    losses = {step: {"metrics": {"reward/mean": 0.1, "loss/supervised": 3.0 - 0.1 * step}} for step in range(1, 21)}
    assert verdict(History(steps=losses)) == "Training loss fell from 2.7 to 1.2; the run was never evaluated."


@pytest.mark.parametrize(
    ("model", "wanted"), [("runs/warm-1/checkpoints/000190", "warm-1 on sums.jsonl"), ("a/tiny", "tiny on sums.jsonl")]
)
def test_a_model_from_a_run_has_the_runs_name(model: str, wanted: str) -> None:
    config = {"policy": {"model_name": model}, "task": {"environment": "data/sums.jsonl"}}
    assert subject(History(config=config)) == wanted
