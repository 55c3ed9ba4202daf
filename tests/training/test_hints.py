"""Hints speak up for each kind of sick run, and stay silent on healthy ones."""

import json
import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from groupwise.config.sections import SETTINGS
from groupwise.training.hints import COOLDOWN, REMEDIES, WARMUP, HintEngine

CONFIG = {
    "optim": {"num_epochs": 4, "kl_stop": 0.02, "max_grad_norm": 0.5},
    "advantage": {"reward_clip": None},
}
Metrics = dict[str, float | None]
Change = Callable[[int, Metrics], None]


def cartpole(steps: int, seed: int = 0, change: Change | None = None) -> Iterator[Metrics]:
    """Metrics like those of a CartPole run that learns: it rises noisily to 500 and then has no spread."""
    rng = np.random.default_rng(seed)
    for step in range(1, steps + 1):
        level = 20 + 470 / (1 + math.exp(-(step - 25) / 6))
        mean = float(np.clip(level + rng.normal(0, 0.08 * level), 9, 500))
        solved = mean > 470
        metrics: Metrics = {
            "reward/mean": mean, "reward/std": 0.3 * mean, "reward/min": 0.4 * mean,
            "reward/max": min(500.0, 1.6 * mean), "groups/zero_spread_share": 1.0 if solved else 0.05,
            "groups/failed_share": 0.0, "advantage/std": 0.0 if solved else 0.95,
            "attempt/length_mean": mean, "attempt/truncated_share": max(0.0, (mean - 250) / 250),
            "loss/total": rng.normal(0, 0.01), "policy/entropy": 0.69 - 0.4 * min(1.0, step / 60),
            "policy/kl": 0.004, "policy/clip_low": 0.03, "policy/clip_high": 0.05,
            "optim/epochs": 0.0 if solved else 3.0, "optim/steps": 0.0 if solved else 12.0,
            "optim/grad_norm": None if solved else float(rng.lognormal(-1, 0.5)),
        }  # fmt: skip
        if change:
            change(step, metrics)
        yield metrics


def given(metrics: Iterator[Metrics], engine: HintEngine | None = None) -> list[tuple[int, str]]:
    """Which hint came at which step."""
    engine = engine or HintEngine(CONFIG, total_steps=100)
    return [(step, hint.code) for step, seen in enumerate(metrics, 1) for hint in engine.step(seen)]


def stuck(metrics: Metrics, mean: float, low: float, high: float, share: float) -> None:
    metrics |= {"reward/mean": mean, "reward/min": low, "reward/max": high, "groups/zero_spread_share": share}


def flat(step: int, metrics: Metrics) -> None:
    stuck(metrics, 22 + math.sin(7 * step), 9, 60, 0.0)


def fell(step: int, metrics: Metrics) -> None:
    if step > 60:
        stuck(metrics, 60, 20, 200, 0.0)


def vanished(step: int, metrics: Metrics) -> None:
    flat(step, metrics)
    metrics["optim/grad_norm"] = 1e-12


def clipped_gradient(step: int, metrics: Metrics) -> None:
    flat(step, metrics)
    metrics["optim/grad_norm"] = 40.0


def stopped(step: int, metrics: Metrics) -> None:
    flat(step, metrics)
    metrics |= {"optim/epochs": 0.0, "optim/steps": 2.0}


def cut_off(step: int, metrics: Metrics) -> None:
    flat(step, metrics)
    metrics["attempt/truncated_share"] = 0.9


def collapsed(step: int, metrics: Metrics) -> None:
    flat(step, metrics)
    metrics["policy/entropy"] = 0.69 if step < 8 else 0.001


SICK: dict[str, Change] = {
    "reward_constant": lambda step, m: stuck(m, 0.0, 0.0, 0.0, 1.0),
    "rewards_too_close": lambda step, m: (
        stuck(m, 1000.0, 1000.0, 1000.0005, 1.0),
        m.update({"groups/close_share": 1.0}),
    ),
    "tasks_too_easy": lambda step, m: stuck(m, 0.95, 0.0, 1.0, 0.9),
    "tasks_too_hard": lambda step, m: stuck(m, 0.02, 0.0, 1.0, 0.9),
    "attempts_alike": lambda step, m: stuck(m, 0.5, 0.0, 1.0, 0.9),
    "attempts_failing": lambda step, m: m.update({"groups/failed_share": 1.0, "reward/mean": None}),
    "entropy_collapsed": collapsed,
    "stopped_by_kl": stopped,
    "clipped_too_much": lambda step, m: m.update({"policy/clip_high": 0.4, "policy/clip_low": 0.3}),
    "gradient_vanished": vanished,
    "gradient_clipped": clipped_gradient,
    "attempts_cut_off": cut_off,
    "reward_flat": flat,
    "reward_fell": fell,
    "not_finite": lambda step, m: m.update({"loss/total": math.nan}),
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("steps", [60, 200])
def test_a_healthy_run_gets_no_hints(seed: int, steps: int) -> None:
    assert given(cartpole(steps, seed)) == []


@pytest.mark.parametrize("code", SICK)
def test_each_sickness_has_its_hint(code: str) -> None:
    hints = given(cartpole(100, change=SICK[code]))
    assert code in {found for _, found in hints}
    assert min(step for step, _ in hints) > WARMUP
    assert [found for _, found in hints].count(code) == 1


@pytest.mark.parametrize(
    ("estimator", "wanted"),
    [("outcome", "rewards_clipped"), ("group_rtg", "attempts_alike"), ("gae", "attempts_alike")],
)
def test_totals_are_called_clipped_only_where_totals_are_clipped(estimator: str, wanted: str) -> None:
    """`group_rtg` and `gae` clip every step's reward: a pole that stays up 35 steps earns 35, none of it clipped."""
    engine = HintEngine({"advantage": {"reward_clip": 10.0, "estimator": estimator}}, 100)
    hints = given(cartpole(20, change=lambda step, m: stuck(m, 35, 12, 60, 1.0)), engine)
    assert [code for _, code in hints] == [wanted]


def test_groups_of_one_are_not_called_hard_tasks() -> None:
    engine = HintEngine({"rollout": {"num_generations": 1}}, 100)
    hints = given(cartpole(20, change=SICK["tasks_too_hard"]), engine)
    assert [code for _, code in hints] == ["group_of_one"]


def test_evaluations_that_fall_are_hinted_at_the_evaluation() -> None:
    engine = HintEngine(CONFIG, 100)
    given(cartpole(30), engine)
    scores = [20.0, 300.0, 480.0, 90.0, 80.0]
    hints = [hint.code for score in scores for hint in engine.evaluation({"eval/reward_mean": score})]
    assert hints == ["evaluation_fell"]


def test_every_remedy_is_tested_and_names_settings_that_exist() -> None:
    assert set(REMEDIES) == {*SICK, "rewards_clipped", "evaluation_fell", "group_of_one"}
    known = {setting.path for setting in SETTINGS.values()}
    named = {name for text in REMEDIES.values() for name in re.findall(r"\b[a-z]+\.[a-z_]+\b", text)}
    assert len(named) > 8
    assert named <= known, named - known


def test_messages_carry_the_numbers() -> None:
    engine = HintEngine(CONFIG, 100)
    (hint,) = [h for m in cartpole(20, change=SICK["tasks_too_hard"]) for h in engine.step(m)]
    assert "90%" in hint.message
    assert "mean 0.02" in hint.message
    assert hint.as_dict() == {"code": hint.code, "message": hint.message, "remedy": hint.remedy}


def test_a_hint_comes_again_only_after_its_condition_was_gone_for_a_while() -> None:
    def twice(step: int, metrics: Metrics) -> None:
        if step <= 12 or step in (15, 18) or step > 18 + COOLDOWN + 6:
            metrics["loss/total"] = math.inf

    hints = given(cartpole(60, change=twice))
    assert hints == [(WARMUP + 1, "not_finite"), (18 + COOLDOWN + 7, "not_finite")]


def test_a_gradient_may_overflow_once_but_not_three_times_in_a_row() -> None:
    once = given(cartpole(20, change=lambda step, m: m.update({"optim/grad_norm": math.inf} if step == 9 else {})))
    assert once == []
    often = given(cartpole(20, change=lambda step, m: m.update({"optim/grad_norm": math.inf} if step >= 9 else {})))
    assert often == [(11, "not_finite")]


def test_no_update_because_no_group_had_spread_is_not_a_kl_stop() -> None:
    def idle(step: int, metrics: Metrics) -> None:
        flat(step, metrics)
        metrics |= {"optim/epochs": 0.0, "optim/steps": 0.0}

    assert "stopped_by_kl" not in {code for _, code in given(cartpole(40, change=idle))}


@pytest.mark.parametrize("code", SICK)
def test_a_resumed_engine_goes_on_exactly(code: str) -> None:
    series = list(cartpole(100, change=SICK[code]))
    whole = given(iter(series))
    for cut in (3, 7, 45, 80):
        first, second = HintEngine(CONFIG, 100), HintEngine(CONFIG, 100)
        before = given(iter(series[:cut]), first)
        second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
        after = given(iter(series[cut:]), second)
        assert before + [(step + cut, found) for step, found in after] == whole


def test_missing_metrics_are_no_reason_for_hints() -> None:
    assert given({} for _ in range(100)) == []
    assert given({"reward/mean": None, "loss/total": None} for _ in range(100)) == []
