"""What is said of a run: noise is not called progress."""

import pytest

from groupwise.reporting.history import History
from groupwise.reporting.verdict import advice, headline_metric, method, subject, verdict


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
    # How far rewards scatter says nothing about right answers.
    for evaluation in history.evals.values():
        evaluation["metrics"]["eval/reward_std"] = 100.0
    assert f" {word} from 30.0% before training to " in verdict(history)


@pytest.mark.parametrize("check", [None, 0.3])
def test_a_reward_that_rises_does_not_hide_what_the_tasks_own_check_says(check: float | None) -> None:
    history = History(config={"task": {"product": "language"}})
    for step, reward in ((0, 0.3), (60, 0.9)):
        metrics = {"eval/reward_mean": reward, "eval/accuracy": 0.3, "eval/attempts": 400.0, "eval/reward_std": 0.1}
        history.evals[step] = {"metrics": metrics if check is None else {**metrics, "eval/check_mean": check}}
    said = verdict(history)
    assert said.startswith("Right answers to held-out tasks hardly moved: from 30.0% before training to 30.0%")
    rewarded = " Mean reward on held-out tasks rose from 0.3 before training to 0.9 after step 60."
    assert said.endswith(rewarded) == (check is not None)


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


# Exactly where the words change.


def evaluated(*rows: dict[str, float], every: int = 10, product: str = "language", first: int = 0) -> History:
    """A run with these evaluations, of a product that is judged by its share of right answers."""
    history = History(config={"task": {"product": product}})
    for place, row in enumerate(rows):
        history.evals[first + every * place] = {"metrics": row}
    return history


def rewarded(*means: float, std: float = 1.0, attempts: float = 100.0) -> History:
    return evaluated(
        *({"eval/reward_mean": m, "eval/reward_std": std, "eval/attempts": attempts} for m in means), product="control"
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [(0.28, "hardly moved:"), (0.29, "rose"), (-0.28, "hardly moved:"), (-0.29, "fell"), (0.0, "hardly moved:")],
)
def test_a_change_of_rewards_needs_two_standard_errors_of_both_evaluations(change: float, word: str) -> None:
    """Deviations of 1 over 100 attempts each: two standard errors of the difference are 2·√(1/100 + 1/100) = 0.2828."""
    assert f"episodes {word} from 0.5 " in verdict(rewarded(0.5, 0.5 + change))


@pytest.mark.parametrize(
    ("before", "after", "word"), [(1.0, 0.0, "rose"), (0.0, 1.0, "hardly moved:"), (0.0, 0.9, "rose")]
)
def test_each_evaluation_counts_by_its_own_deviation_and_attempts(before: float, after: float, word: str) -> None:
    rows = [
        {"eval/reward_mean": 0.0, "eval/reward_std": before, "eval/attempts": 16.0},
        {"eval/reward_mean": 1.0, "eval/reward_std": after, "eval/attempts": 4.0},
    ]
    assert f"episodes {word} " in verdict(evaluated(*rows, product="control"))


@pytest.mark.parametrize(
    ("after", "word"), [(0.63, "hardly moved:"), (0.64, "rose"), (0.37, "hardly moved:"), (0.36, "fell")]
)
def test_a_change_of_a_share_needs_two_binomial_standard_errors(after: float, word: str) -> None:
    """0.5 of 100 has a variance of 0.0025, and 0.64 of 100 one of 0.0023; two standard errors are 0.139."""
    history = evaluated(*({"eval/accuracy": share, "eval/attempts": 100.0} for share in (0.5, after)))
    assert f" {word} from 50.0% " in verdict(history)


def test_evaluations_that_do_not_say_how_many_attempts_they_made_count_as_one() -> None:
    said = verdict(evaluated({"eval/reward_mean": 1.0}, {"eval/reward_mean": 1.01}, product="control"))
    assert said == "Mean return of the evaluation episodes rose from 1 before training to 1.01 after step 10."
    bare = {"eval/reward_std": 1.0}
    unsure = evaluated({"eval/reward_mean": 0.0, **bare}, {"eval/reward_mean": 2.8, **bare}, product="control")
    assert "hardly moved" in verdict(unsure)


def test_a_run_evaluated_first_at_a_later_step_says_so() -> None:
    history = evaluated({"eval/reward_mean": 1.0}, {"eval/reward_mean": 3.0}, {"eval/reward_mean": 2.0}, first=5)
    assert verdict(history) == "Mean reward on held-out tasks rose from 1 at step 5 to 2 after step 25."


def test_one_evaluation_is_told_as_the_only_one() -> None:
    once = evaluated({"eval/accuracy": 0.256, "eval/reward_mean": 3.0, "eval/attempts": 10.0}, first=7)
    assert verdict(once) == "Right answers to held-out tasks 25.6% at step 7, the only evaluation."


@pytest.mark.parametrize(
    ("check", "reward", "twice"),
    [((0.3, 0.3), (0.3, 0.9), True), ((0.3, 0.9), (0.3, 0.9), False), ((), (0.3, 0.9), False)],
)
def test_the_reward_is_told_beside_right_answers_where_it_says_something_else(
    check: tuple[float, ...], reward: tuple[float, ...], twice: bool
) -> None:
    rows = [{"eval/accuracy": 0.5, "eval/reward_mean": mean, "eval/attempts": 9.0} for mean in reward]
    for row, mean in zip(rows, check, strict=False):
        row["eval/check_mean"] = mean
    assert ("Mean reward on held-out tasks" in verdict(evaluated(*rows))) is twice
    without = [{k: v for k, v in row.items() if k != "eval/accuracy"} for row in rows]
    assert verdict(evaluated(*without)).count("Mean reward") == 1, "the headline is not told twice"


@pytest.mark.parametrize(
    ("names", "headline"),
    [
        (["eval/reward_mean", "eval/accuracy"], "eval/accuracy"),
        (["eval/reward_mean"], "eval/reward_mean"),
        (["eval/length_mean", "eval/attempts"], "eval/reward_mean"),
        (["eval/length_mean", "eval/format"], "eval/format"),
        ([], "eval/reward_mean"),
    ],
)
def test_a_run_is_judged_by_the_first_held_out_metric_of_its_product_that_it_has(
    names: list[str], headline: str
) -> None:
    history = evaluated(dict.fromkeys(names, 1.0))
    history.steps[1] = {"metrics": {"loss/supervised": 2.0}}
    assert headline_metric(history).name == headline


@pytest.mark.parametrize(
    ("rewards", "first", "last"),
    [([3.0], "3", "3"), ([1.0, 2.0], "1", "2"), ([1.0, 2.0, 9.0], "1", "9"), ([1.0, 2.0, 3.0, 6.0], "1.5", "4.5"),
     ([float(k) for k in range(1, 13)], "3", "10")],
)  # fmt: skip
def test_training_rewards_are_compared_over_at_most_five_steps_at_each_end(
    rewards: list[float], first: str, last: str
) -> None:
    history = History(steps={step: {"metrics": {"reward/mean": value}} for step, value in enumerate(rewards, 1)})
    how = "rose" if last != first else "fell"
    assert verdict(history) == f"Training reward {how} from {first} to {last}; the run was never evaluated."
    assert verdict(History()) == "No step was completed."


def test_how_a_run_learns_is_told_as_far_as_its_settings_say() -> None:
    config = {
        "rollout": {"tasks_per_step": 4, "num_generations": 8}, "loss": {"loss_type": "grpo"},
        "advantage": {"estimator": "group"},
    }  # fmt: skip
    assert method(History(config=config)) == "4 × 8 attempts a step · grpo loss · group advantages"
    assert method(History(config={"rollout": {"tasks_per_step": 4}, "loss": {"loss_type": "grpo"}})) == "grpo loss"
    imitates = History(config=config, steps={1: {"metrics": {"loss/supervised": 2.0}}})
    assert method(imitates) == "supervised, 4 demonstrations a step"
    assert method(History()) == ""


def lower_is_better(*shares: float) -> History:
    """A run that is judged by the attempts that could not be checked."""
    return evaluated(*({"eval/check_failed_share": share, "eval/attempts": 400.0} for share in shares))


@pytest.mark.parametrize(
    ("history", "tip"),
    [
        (judged(0.2, 0.4, 0.6, 0.8), "Still improving at the end (evaluation reward)"),
        (judged(0.8, 0.6, 0.4, 0.2), "Evaluation reward reached 0.8 at step 0 and fell to 0.2"),
        (judged(0.2, 0.9, 0.91), "Nothing looks wrong."),
        (judged(0.2, 0.9), "Still improving"),
        (judged(0.2, 0.9, 0.7, 0.9), "Nothing looks wrong."),
        # Of eight evaluations the last quarter is the last two: the sixth is what the end is compared with.
        (judged(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.79, 0.8), "Nothing looks wrong."),
        (judged(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "Still improving"),
        (judged(0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 0.81, 0.82), "Nothing looks wrong."),
        (lower_is_better(0.5, 0.3, 0.1), "Still improving at the end (attempts that could not be checked)"),
        (
            lower_is_better(0.5, 0.1, 0.4),
            "Attempts that could not be checked reached 10.0% at step 10 and rose to 40.0%",
        ),
    ],
)
def test_advice_by_the_curve_of_the_evaluations(history: History, tip: str) -> None:
    history.steps = {1: {"metrics": {"reward/mean": 1.0}}}
    history.end = {"reason": "finished"}
    (said,) = advice(history)
    assert said.startswith(tip)


@pytest.mark.parametrize(
    ("rewards", "rising"),
    [
        ([float(k) for k in range(10)], True),
        ([float(k) for k in range(9)], False),
        ([float(-k) for k in range(20)], False),
        ([*range(15), 14.0, 13.0, 12.0, 11.0, 10.0], False),
        ([0.0, 1.0] * 10, False),
        # Long ago it rose, and the last quarter is flat.
        ([*range(30), *([29.0, 29.1] * 10)], False),
        ([*([0.0] * 60), *range(20)], True),
    ],
)
def test_a_training_reward_that_still_rises_calls_for_more_steps(rewards: list[float], rising: bool) -> None:
    history = History(steps={step: {"metrics": {"reward/mean": r}} for step, r in enumerate(rewards, 1)})
    assert any("training reward was still rising" in tip for tip in advice(history)) is rising


def test_advice_begins_with_the_remedies_of_the_hints_once_each() -> None:
    history = judged(0.2, 0.9, 0.9)
    history.hints = [(1, {"remedy": "Do this."}), (2, {"message": "no remedy"}), (3, {"remedy": "Do this."})]
    history.hints.append((4, {"remedy": "Do that."}))
    assert advice(history) == ["Do this.", "Do that."]
    history.end = None
    assert advice(history)[2:] == ["The run has not ended. If no process is writing to it, resume it (see below)."]
    assert "Set run.eval_steps" in advice(History(end={"reason": "finished"}))[0]
    assert advice(evaluated({"eval/reward_mean": 1.0}))[0].startswith("The run has not ended")
