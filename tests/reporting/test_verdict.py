"""What is said of a run: noise is not called progress."""

import pytest

from groupwise.reporting.history import History
from groupwise.reporting.verdict import verdict


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
