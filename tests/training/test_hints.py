"""Hints speak up for each kind of sick run, and stay silent on healthy ones."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from groupwise.config.sections import SETTINGS
from groupwise.training import hints as rules
from groupwise.training.hint_evidence import KEEP, Evidence
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
    assert set(REMEDIES) == {*SICK, *DRIFTING, "rewards_clipped", "evaluation_fell", "group_of_one", "reward_hacked"}
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


FLAT = [1.0, 2.0] * 10
RISING = [float(n) for n in range(20)]


def evidence(config: dict[str, Any] | None = None, **facts: Any) -> Evidence:
    """Twenty steps of a run between 0 and 4 that stands at 2, where it began; metrics by name are constant.

    A list gives the last values of a metric.
    """
    recent = {
        name.replace("__", "/"): list(value) if isinstance(value, list) else [value] * 20
        for name, value in facts.items() if "__" in name
    }  # fmt: skip
    plain = {"rewards": [2.0] * 20, "first_rewards": [2.0] * 5, "lowest": 0.0, "highest": 4.0, "best": 2.0}
    about = {name: value for name, value in facts.items() if "__" not in name}
    return Evidence(config or {}, 100, 20, recent, **{**plain, **about})


def silent(**facts: Any) -> Evidence:
    return evidence(**{"groups__zero_spread_share": 0.8, **facts})


def at(reward: float) -> dict[str, Any]:
    """A run that stands there from the beginning."""
    return {"rewards": [reward] * 20, "first_rewards": [reward] * 5, "best": reward}


# A run that rose from 0 to 3.5 of 4: it has learned, and is solved.
SOLVED: dict[str, Any] = {"rewards": [3.5] * 20, "first_rewards": [0.0] * 5, "best": 3.5}
LEARNED: dict[str, Any] = {"rewards": [2.5] * 20, "first_rewards": [0.0] * 5, "best": 2.5}
CLIP = {"advantage": {"reward_clip": 2.0, "estimator": "outcome"}}
ONE = {"rollout": {"num_generations": 1}}
KL = {"optim": {"kl_stop": 0.1, "num_epochs": 4}}
NORM = {"optim": {"max_grad_norm": 0.5}}
CASES: list[tuple[Any, Evidence, str | None]] = [
    (rules.no_spread, silent(groups__zero_spread_share=0.6), "attempts_alike"),
    (rules.no_spread, silent(groups__zero_spread_share=0.59), None),
    (rules.no_spread, silent(groups__zero_spread_share=[0.9, 0.9, 0.5, 0.9, 0.9]), None),
    (rules.no_spread, silent(groups__zero_spread_share=[0.0, 0.9, 0.9, 0.9, 0.9, 0.9]), "attempts_alike"),
    (rules.no_spread, silent(groups__zero_spread_share=[0.9] * 4), None),
    (rules.no_spread, silent(groups__zero_spread_share=[0.9, 0.9, None, 0.9, 0.9]), None),
    (rules.no_spread, silent(rewards=[]), None), (rules.no_spread, silent(**SOLVED), None),
    (rules.no_spread, silent(config=ONE), "group_of_one"),
    (rules.no_spread, silent(groups__close_share=0.4), "attempts_alike"),
    (rules.no_spread, silent(groups__close_share=0.41), "rewards_too_close"),
    (rules.no_spread, silent(lowest=2.0, highest=2.0), "reward_constant"),
    (rules.no_spread, silent(**at(3.0)), "tasks_too_easy"), (rules.no_spread, silent(**at(2.96)), "attempts_alike"),
    (rules.no_spread, silent(**at(1.0)), "tasks_too_hard"), (rules.no_spread, silent(**at(1.04)), "attempts_alike"),
    (rules.no_spread, silent(config=CLIP, lowest=2.5, highest=9.0, **at(5.0)), "rewards_clipped"),
    (rules.no_spread, silent(config=CLIP, lowest=2.0, highest=9.0, **at(5.0)), "attempts_alike"),
    (rules.no_spread, silent(config=CLIP, lowest=-9.0, highest=4.0, **at(-3.0)), "rewards_clipped"),
    (rules.no_spread, silent(config=CLIP, lowest=-9.0, highest=4.0, **at(-2.0)), "attempts_alike"),
    (rules.attempts_failing, evidence(groups__failed_share=0.3), "attempts_failing"),
    (rules.attempts_failing, evidence(groups__failed_share=0.29), None),
    (rules.attempts_failing, evidence(groups__failed_share=[0.9, 0.0, 0.0, 0.0]), None),
    (rules.attempts_failing, evidence(groups__failed_share=[0.0, 0.9, 0.0, 0.1]), "attempts_failing"),
    (rules.attempts_failing, evidence(), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.125, first_entropies=[2.5]), "entropy_collapsed"),
    (rules.entropy_collapsed, evidence(policy__entropy=0.13, first_entropies=[2.5]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=[0.1, 0.1, 0.2, 0.1, 0.1], first_entropies=[2.5]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.0, first_entropies=[2.5]), "entropy_collapsed"),
    (rules.entropy_collapsed, evidence(policy__entropy=-0.1, first_entropies=[2.5]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.0, first_entropies=[2.5, 0.0]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.1), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.0, loss__supervised=0.01, first_entropies=[2.5]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=[0.1] * 4, first_entropies=[2.5]), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.1, first_entropies=[2.5], **SOLVED), None),
    (rules.entropy_collapsed, evidence(policy__entropy=0.1, first_entropies=[2.5], **LEARNED), "entropy_collapsed"),
    (rules.entropy_collapsed, evidence(policy__entropy=0.1, first_entropies=[2.5], rewards=RISING, highest=99.0), None),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.0, optim__steps=2.0), "stopped_by_kl"),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.01, optim__steps=2.0), None),
    (rules.stopped_by_kl, evidence(optim__epochs=1.0, optim__steps=2.0), None),
    (rules.stopped_by_kl, evidence({"optim": {"num_epochs": 4}}, optim__epochs=1.0, optim__steps=2.0), None),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=[1.0] * 9, optim__steps=2.0), None),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.0, optim__steps=[0.0] + [1.0] * 9), None),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.0, optim__steps=[0.0] + [1.0] * 10), "stopped_by_kl"),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.0, optim__steps=2.0, **LEARNED), None),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=1.0, optim__steps=2.0, rewards=RISING, highest=99.0), None),
    (rules.clipped_too_much, evidence(policy__clip_low=0.25, policy__clip_high=0.15), None),
    (rules.clipped_too_much, evidence(policy__clip_low=0.25, policy__clip_high=0.16), "clipped_too_much"),
    (rules.clipped_too_much, evidence(policy__clip_high=0.41), "clipped_too_much"),
    (rules.clipped_too_much, evidence(policy__clip_low=0.41), "clipped_too_much"),
    (rules.clipped_too_much, evidence(), None),
    (rules.gradient_vanished, evidence(optim__grad_norm=9e-7, groups__zero_spread_share=0.9), "gradient_vanished"),
    (rules.gradient_vanished, evidence(optim__grad_norm=1e-6, groups__zero_spread_share=0.9), None),
    (rules.gradient_vanished, evidence(optim__grad_norm=9e-7, groups__zero_spread_share=0.91), None),
    (rules.gradient_vanished, evidence(optim__grad_norm=[0, 0, 1e-3, 0, 0], groups__zero_spread_share=0.1), None),
    (rules.gradient_vanished, evidence(optim__grad_norm=0.0), None),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=5.0), None),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=5.1), "gradient_clipped"),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=[1.0] + [9.0] * 9), None),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=[1.0] + [9.0] * 10), "gradient_clipped"),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=9.0, **LEARNED), None),
    (rules.gradient_clipped, evidence(optim__grad_norm=9.0), None),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.5), None),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.51), "attempts_cut_off"),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=[0.9] * 14), None),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.9, **LEARNED), None),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.9, **at(3.2)), None),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.9, **at(3.1)), "attempts_cut_off"),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.9, rewards=RISING, highest=99.0), None),
    (rules.reward_flat, evidence(rewards=FLAT * 2), "reward_flat"),
    (rules.reward_flat, evidence(rewards=(FLAT * 2)[1:]), None),
    (rules.reward_flat, evidence(rewards=RISING + RISING + FLAT * 2), "reward_flat"),
    (rules.reward_flat, evidence(rewards=[float(n) for n in range(40)], highest=99.0), None),
    (rules.reward_flat, evidence(**at(3.8) | {"rewards": [3.8] * 40}), None),
    (rules.reward_flat, evidence(**at(3.7) | {"rewards": [3.7] * 40}), "reward_flat"),
    (rules.reward_flat, evidence(**SOLVED | {"rewards": [3.5] * 120}), None),
    (rules.reward_flat, evidence(**LEARNED | {"rewards": [2.5] * 119}), None),
    (rules.reward_flat, evidence(**LEARNED | {"rewards": [2.5] * 120}), "reward_flat"),
    (rules.reward_flat, evidence(rewards=FLAT * 2, groups__zero_spread_share=0.6), None),
    (rules.reward_flat, evidence(rewards=FLAT * 2, groups__failed_share=0.3), None),
    (rules.reward_flat, evidence(rewards=FLAT * 2, groups__failed_share=0.2), "reward_flat"),
    (rules.reward_fell, evidence(rewards=[1.9] * 5, first_rewards=[1.0] * 5, best=4.0), "reward_fell"),
    (rules.reward_fell, evidence(rewards=[2.5] * 5, first_rewards=[1.0] * 5, best=4.0), None),
    (rules.reward_fell, evidence(rewards=[1.0] * 5, first_rewards=[1.0] * 5, best=2.0), "reward_fell"),
    (rules.reward_fell, evidence(rewards=[1.0] * 5, first_rewards=[1.0] * 5, best=2.0, highest=7.0), None),
    (rules.reward_fell, evidence(rewards=[0.0] * 5, first_rewards=[2.0] * 5, best=2.0), None),
    (rules.reward_fell, evidence(rewards=[1.0] * 5, first_rewards=[1.0] * 5, best=4.0, highest=20.0), "reward_fell"),
    (rules.reward_fell, evidence(rewards=[3.0] * 5, first_rewards=[1.0] * 5, best=6.0, highest=9.0), None),
    (rules.reward_fell, evidence(rewards=[2.9] * 5, first_rewards=[1.0] * 5, best=6.0, highest=9.0), "reward_fell"),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 2.0, 0.0, 0.0]), "evaluation_fell"),
    (rules.evaluation_fell, evidence(evaluations=[2.0, 0.0, 0.0]), None),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 2.0, 0.0, 1.6]), None),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 2.0, 0.0, 1.5]), "evaluation_fell"),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 0.5, 0.0, 0.0]), None),
    (rules.evaluation_fell, evidence(evaluations=[2.0, 2.0, 0.0, 0.0]), None),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 3.0, 0.0, 0.0], highest=20.0), "evaluation_fell"),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 5.0, 2.0, 2.0], highest=9.0), None),
    (rules.evaluation_fell, evidence(evaluations=[0.0, 5.0, 5.0, 0.0, 0.0], highest=9.0), "evaluation_fell"),
    (rules.not_finite, evidence(broken={"loss/total": 1}), "not_finite"), (rules.not_finite, evidence(), None),
    (rules.not_finite, evidence(broken={"optim/grad_norm": 2, "optim/critic_grad_norm": 2}), None),
    (rules.not_finite, evidence(broken={"optim/critic_grad_norm": 3}), "not_finite"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "seen", "code"), CASES, ids=[f"{n}-{c[0].__name__}" for n, c in enumerate(CASES)])
def test_each_rule_at_its_limits(rule: Any, seen: Evidence, code: str | None) -> None:
    hint = rule(seen)
    assert (hint and hint.code) == code


def test_a_message_says_every_attempt_or_how_many_and_which_numbers_broke() -> None:
    said = [rules.attempts_failing(evidence(groups__failed_share=share)) for share in (1.0, 0.99)]
    assert [hint.message.split(" of the ")[0] for hint in said if hint] == ["Every attempt", "99%"]
    broken = rules.not_finite(evidence(broken=dict.fromkeys("abcde", 1)))
    assert broken is not None
    assert broken.message == "No longer finite: a, b, c and 2 more."
    vanished = rules.gradient_vanished(evidence(optim__grad_norm=0.0, groups__zero_spread_share=0.25))
    assert vanished is not None
    assert vanished.message.startswith("75% of the groups have spread, yet the gradient's norm is 0:")
    three = rules.not_finite(evidence(broken=dict.fromkeys("abc", 1)))
    assert three is not None
    assert three.message == "No longer finite: a, b, c."


SAME = "In 80% of the groups every attempt scores the same, for 5 steps now"
CUT = "and the reward does not rise: the reward at their end is never seen."
OFTEN = "has been over 10 times its limit (0.5) for 10 steps: clipping removes almost all of every step."
SAID: list[tuple[Any, Evidence, str]] = [
    (rules.no_spread, silent(config=ONE),
     "A group of one attempt has nothing to compare it with, so nothing is learned."),
    (rules.no_spread, silent(groups__close_share=0.41), f"{SAME}, to a millionth (2): that counts as equal."),
    (rules.no_spread, silent(lowest=2.0, highest=2.0), f"{SAME}: all attempts of the whole run scored 2."),
    (rules.no_spread, silent(config=CLIP, lowest=2.5, highest=9.0, **at(5.0)), f"{SAME}: they earn 5, clipped to 2."),
    (rules.no_spread, silent(**at(3.0)),
     f"{SAME}, near the best score (mean 3, best 4, worst 0): the tasks are too easy."),
    (rules.no_spread, silent(**at(1.0)),
     f"{SAME}, near the worst score (mean 1, best 4, worst 0): the tasks are too hard."),
    (rules.no_spread, silent(**at(2.5)),
     f"{SAME}, whatever the score (mean 2.5, best 4, worst 0): attempts at one task are all alike."),
    (rules.attempts_failing, evidence(groups__failed_share=[0.0, 0.9, 0.3, 0.3]),
     "50% of the attempts of the last 3 steps got no score: the environment or the reward failed."),
    (rules.entropy_collapsed, evidence(policy__entropy=[9.0, 0.1, 0.02, 0.01, 0.01, 0.01], first_entropies=[3.0, 1.0]),
     "The policy's entropy fell from 2 to 0.03: it hardly explores any more, and the reward stands at 2."),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=0.5, optim__steps=2.0, policy__kl=0.07),
     "Updates stop after 0.5 of 4 epochs: the policy moves too far at once (KL 0.07)."),
    (rules.stopped_by_kl, evidence(KL, optim__epochs=0.5, optim__steps=2.0),
     "Updates stop after 0.5 of 4 epochs: the policy moves too far at once."),
    (rules.clipped_too_much, evidence(policy__clip_low=0.2, policy__clip_high=0.3, policy__kl=0.07),
     "50% of the samples are clipped, for 5 steps now (KL 0.07): the policy moves too far in one update."),
    (rules.gradient_clipped, evidence(NORM, optim__grad_norm=[99.0] + [9.0] * 9 + [19.0]),
     f"The gradient's norm (10) {OFTEN}"),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.6, attempt__length_mean=12.0),
     f"60% of the attempts are cut off at the limit (mean length 12) {CUT}"),
    (rules.attempts_cut_off, evidence(attempt__truncated_share=0.6),
     f"60% of the attempts are cut off at the limit {CUT}"),
    (rules.reward_flat, evidence(rewards=[9.0] + [1.0, 2.0, 2.0, 1.0] * 10),
     "The reward has not risen for 40 steps (mean 1.5, +0 ± 0.01 a step)."),
    (rules.reward_fell, evidence(rewards=[1.9] * 5, first_rewards=[1.0] * 5, best=4.0),
     "The reward fell to 1.9 after 4 at its best (it started at 1)."),
    (rules.evaluation_fell, evidence(evaluations=[0.5, 2.0, 0.25, 0.65]),
     "The last two evaluations average 0.45, after 2 at best (the first was 0.5)."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "seen", "message"), SAID, ids=[f"{n}-{c[0].__name__}" for n, c in enumerate(SAID)])
def test_each_message_says_which_number_was_what(rule: Any, seen: Evidence, message: str) -> None:
    hint = rule(seen)
    assert hint is not None
    assert hint.message == message
    assert hint.remedy == REMEDIES[hint.code]


RISING_RULES = [
    (rules.entropy_collapsed, {"policy__entropy": 0.1, "first_entropies": [2.5]}, 10),
    (rules.stopped_by_kl, {"config": KL, "optim__epochs": 1.0, "optim__steps": 2.0}, 10),
    (rules.attempts_cut_off, {"attempt__truncated_share": 0.9}, 15),
]


@pytest.mark.parametrize(("rule", "facts", "window"), RISING_RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_reward_that_rises_over_the_rules_own_window_is_no_reason_for_a_hint(
    rule: Any, facts: dict[str, Any], window: int
) -> None:
    """Rising in the window and not over any longer one, or only in the latter half of it."""
    start = {"first_rewards": [99.0] * 5, "highest": 400.0, "best": 99.0}
    rose = [99.0] * window + [float(n) for n in range(window)]
    assert rule(evidence(**facts, **start, rewards=rose)) is None
    late = [99.0] * (window - 5) + [0.0, 1.0, 2.0, 3.0, 4.0]
    assert rule(evidence(**facts, **start, rewards=late)) is not None


def test_what_was_saved_of_a_run_does_not_change_while_it_goes_on() -> None:
    first, second = HintEngine(CONFIG, 100), HintEngine(CONFIG, 100)
    sick = list(cartpole(20, change=SICK["tasks_too_hard"]))
    given(iter(sick[:10]), first)
    first.evaluation({"eval/reward_mean": 1.0, "eval/length": math.nan})
    state = first.state_dict()
    second.load_state_dict(state)
    before = repr(state)
    for engine in (first, second):
        given(iter(sick[10:]), engine)
        engine.evaluation({"eval/reward_mean": 1.0, "eval/length": math.nan})
    assert repr(state) == before
    assert first.state_dict() == second.state_dict() != state


def test_what_is_remembered_of_a_run() -> None:
    seen = Evidence({}, 100)
    for step in range(1, 31):
        seen.add_step({"policy/entropy": 1.0 / step, "reward/mean": float(step), "policy/kl": float(step)})
    assert seen.seen == 30
    assert seen.first_entropies == [1.0, 1 / 2, 1 / 3]
    assert seen.first_rewards == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert seen.recent["policy/kl"] == [float(n) for n in range(31 - KEEP, 31)]
    assert (seen.last("policy/kl", 2), seen.mean("policy/kl"), seen.mean("policy/kl", 2)) == ([29.0, 30.0], 28.0, 29.5)
    assert (seen.lowest, seen.highest, seen.start, seen.reward, seen.best) == (1.0, 30.0, 3.0, 28.0, 28.0)
    assert (seen.span, seen.standing, seen.learned, seen.solved) == (29.0, 27 / 29, True, True)
    assert seen.last("groups/failed_share", 1) == [], "it was never measured"
    for step in range(200):
        seen.add_step({"reward/mean": 0.0 if step else 7.0, "reward/min": -5.0, "reward/max": 50.0})
    assert (seen.lowest, seen.highest, seen.best, seen.reward) == (-5.0, 50.0, 28.0, 0.0)
    assert len(seen.rewards) == 3 * seen.patience


def test_the_best_reward_is_of_several_steps_and_not_of_a_lucky_one() -> None:
    seen = Evidence({}, 100)
    for reward, best in (
        (9.0, -math.inf),
        (1.0, -math.inf),
        (1.0, -math.inf),
        (1.0, -math.inf),
        (3.0, 3.0),
        (0.0, 3.0),
    ):
        seen.add_step({"reward/mean": reward})
        assert seen.best == best


@pytest.mark.parametrize(("total", "expected"), [(0, 40), (200, 40), (204, 40), (205, 41), (1000, 200), (5000, 200)])
def test_patience_is_a_fifth_of_a_run_within_bounds(total: int, expected: int) -> None:
    assert Evidence({}, total).patience == expected


@pytest.mark.parametrize(("reward", "start", "learned", "solved"), [
    (3.0, 2.0, False, False), (3.1, 2.0, True, False), (3.2, 2.0, True, True), (3.9, 3.0, False, False),
])  # fmt: skip
def test_a_run_has_learned_by_a_quarter_of_its_range_and_is_solved_near_the_top_of_it(
    reward: float, start: float, learned: bool, solved: bool
) -> None:
    seen = evidence(rewards=[reward] * 5, first_rewards=[start])
    assert (seen.learned, seen.solved) == (learned, solved)


def test_a_metric_is_broken_while_it_is_no_number_and_not_while_it_is_not_measured() -> None:
    seen = Evidence({}, 100)
    for value, count in ((math.nan, 1), (math.inf, 2), (None, None), (-math.inf, 1), (2.0, None)):
        seen.add_step({"loss/total": value})
        assert seen.broken.get("loss/total") == count
    seen.add_evaluation({"eval/reward_mean": math.nan})
    seen.add_evaluation({"eval/reward_mean": 2.0, "eval/length": math.inf})
    assert (seen.broken, seen.evaluations) == ({"eval/length": 1}, [2.0])


def test_settings_are_found_by_name_or_are_none() -> None:
    seen = Evidence({"optim": {"kl_stop": None, "num_epochs": 4}, "loss": 3}, 100)
    assert [seen.setting(path) for path in ("optim.num_epochs", "optim.kl_stop", "optim.x", "x.y", "loss.x")] == [
        4, None, None, None, None,
    ]  # fmt: skip
    assert (seen.numeric("optim.num_epochs"), seen.numeric("optim.kl_stop")) == (4.0, None)


def test_a_rising_reward_is_more_than_two_standard_errors_of_it() -> None:
    noisy = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert evidence(rewards=RISING).rising(10)
    assert not evidence(rewards=noisy).rising(6)
    assert not evidence(rewards=RISING[::-1]).rising(10)
    assert not evidence(rewards=[9.0, *RISING[:2]]).rising(2), "two values have no trend"
    assert evidence(rewards=[99.0] * 10 + RISING).rising(20), "only the last ones count"
    for scatter, rises in ((12.0, False), (10.0, True)):
        # t values of 1.9 and 2.15; of forty values, a quarter as steep and twice as noisy, 1.75 and 2.05.
        assert evidence(rewards=[n + scatter * (n % 2) for n in range(10)]).rising(10) is rises
        noisy = [n / 4 + 2 * scatter * (n % 2) for n in range(40)]
        hint = rules.reward_flat(evidence(rewards=noisy, highest=99.0))
        assert (hint is None) is rises


@pytest.mark.parametrize("gone", [COOLDOWN - 1, COOLDOWN, COOLDOWN + 1])
def test_a_condition_must_be_gone_for_its_cooldown_before_its_hint_comes_again(gone: int) -> None:
    def twice(step: int, metrics: Metrics) -> None:
        if step <= 10 or step > 10 + gone:
            metrics["loss/total"] = math.nan

    steps = [step for step, code in given(cartpole(40, change=twice)) if code == "not_finite"]
    assert steps == ([WARMUP + 1, 11 + gone] if gone > COOLDOWN else [WARMUP + 1])


def test_hints_come_after_five_steps_and_again_after_ten_without_their_condition() -> None:
    assert (WARMUP, COOLDOWN) == (5, 10)


def test_evaluations_do_not_let_time_pass() -> None:
    """The condition of a hint about steps cannot be gone because evaluations came and went."""
    engine = HintEngine(CONFIG, 100)
    sick = list(cartpole(20, change=SICK["tasks_too_hard"]))
    assert [code for _, code in given(iter(sick[:-1]), engine)] == ["tasks_too_hard"]
    for _ in range(3 * COOLDOWN):
        assert engine.evaluation({"eval/reward_mean": 1.0}) == ()
    assert engine.step(sick[-1]) == ()


DRIFTING = ("answers_converge", "answers_repeat", "answers_parrot", "answers_grow")


def drifting(metric: str, start: float, end: float, check: float, steps: int = 40) -> list[str]:
    """The hints of a run whose answers move by one metric while the reward rises and the checks end at `check`."""
    engine, told = HintEngine(total_steps=steps), list[str]()
    for step in range(steps):
        share = step / (steps - 1)
        quiet = {"answers/sameness": 0.1, "answers/repetition": 0.02, "answers/parroting": 0.2, "answers/words": 30.0}
        metrics = {
            "reward/mean": 0.3 + 0.4 * share, "reward/min": 0.0, "reward/max": 1.0, "groups/zero_spread_share": 0.1,
            "groups/failed_share": 0.0, **quiet, metric: start + (end - start) * share,
        }  # fmt: skip
        told += [hint.code for hint in engine.step(metrics)]
        if step % 10 == 0:
            told += [hint.code for hint in engine.evaluation({"eval/check_mean": 0.4 + (check - 0.4) * share})]
    return [code for code in told if code.startswith("answers_")]


@pytest.mark.parametrize(
    ("metric", "start", "end", "code"),
    [
        ("answers/sameness", 0.1, 0.9, "answers_converge"),
        ("answers/repetition", 0.02, 0.6, "answers_repeat"),
        ("answers/parroting", 0.2, 0.9, "answers_parrot"),
        ("answers/words", 30.0, 150.0, "answers_grow"),
    ],
)
def test_answers_that_drift_while_checks_do_not_rise_are_reported_once(metric, start, end, code):
    assert drifting(metric, start, end, check=0.4) == [code]
    assert drifting(metric, start, end, check=0.8) == []
    assert drifting(metric, start, start, check=0.4) == []
    assert REMEDIES[code]


def checked(
    checks: list[float], reward: float = 0.7, std: float | None = 0.3, every: int = 10
) -> list[tuple[int, str]]:
    """When a run whose reward goes from 0.3 to `reward`, with a check on 100 tasks now and then, is called hacked."""
    engine, told, last = HintEngine(total_steps=every * len(checks)), list[tuple[int, str]](), len(checks) - 1
    for n, check in enumerate(checks):
        seen: Metrics = {
            "eval/reward_mean": 0.2,
            "eval/check_mean": check,
            "eval/check_std": std,
            "eval/attempts": 100.0,
        }
        told += [(n, hint.code) for hint in engine.evaluation(seen)]
        for step in range(every):
            mean = 0.3 + (reward - 0.3) * (n + step / every) / max(last, 1)
            engine.step({"reward/mean": mean, "reward/min": 0.0, "reward/max": 1.0, "groups/zero_spread_share": 0.1})
    return [(n, code) for n, code in told if code == "reward_hacked"]


FALLING = [0.6, 0.55, 0.5, 0.4, 0.3, 0.3, 0.3, 0.3]


def test_a_reward_that_rises_while_the_check_falls_is_reported_once_as_hacked():
    # Two standard errors of the difference to the mean of two: 2 · √(0.03² + 0.03² / 2) = 0.073.
    assert checked(FALLING) == [(2, "reward_hacked")]
    assert checked([0.6, 0.6, 0.6, 0.54, 0.53, 0.54, 0.54]) == []
    assert checked([0.6, 0.6, 0.6, 0.52, 0.52]) == [(4, "reward_hacked")]


def test_a_check_that_rose_and_fell_back_is_compared_with_its_best():
    # Three standard errors of the difference of two such means: 3 · √(2 · 0.03² / 2) = 0.09.
    assert checked([0.3, 0.5, 0.7, 0.7, 0.5, 0.5]) == [(5, "reward_hacked")]
    assert checked([0.3, 0.5, 0.6, 0.6, 0.52, 0.52]) == []


def test_nothing_is_called_hacked_without_evidence():
    assert checked(FALLING, reward=0.2) == [], "the reward fell too"
    assert checked(FALLING, std=None) == [], "nobody knows how far chance moves the check"
    assert checked([0.4, 0.45, 0.5, 0.6, 0.7, 0.7]) == []
    assert checked([0.2] * 3 + [0.0] * 5) == [(3, "reward_hacked")], "it may have begun like the reward"
    same = [{"eval/reward_mean": check, "eval/check_mean": check, "eval/attempts": 100.0} for check in FALLING]
    engine = HintEngine(total_steps=100)
    given(cartpole(50), engine)
    assert "reward_hacked" not in [h.code for seen in same for h in engine.evaluation({**seen, "eval/check_std": 0.3})]


def test_what_evaluations_say_is_not_said_again_at_every_evaluation():
    lasting = [0.6, 0.6, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    assert [n for n, _ in checked(lasting, every=25)] == [2]
    assert [n for n, _ in checked([*lasting, 0.6, 0.6, 0.6, 0.6, 0.3, 0.3], every=25)] == [2, 14]


def test_a_share_of_right_answers_needs_no_measured_spread():
    engine, told = HintEngine(total_steps=60), list[str]()
    for n, right in enumerate([0.8, 0.8, 0.5, 0.5]):
        told += [h.code for h in engine.evaluation({"eval/accuracy": right, "eval/attempts": 100.0})]
        for step in range(10):
            engine.step({"reward/mean": 0.3 + (10 * n + step) / 100})
    assert told == ["reward_hacked"]


def test_whether_a_reward_is_hacked_is_known_after_a_resume():
    first, second = HintEngine(total_steps=100), HintEngine(total_steps=100)
    seen = [{"eval/check_mean": check, "eval/check_std": 0.3, "eval/attempts": 100.0} for check in (0.6, 0.6, 0.4, 0.4)]
    for n in range(20):
        first.step({"reward/mean": 0.01 * n})
    for metrics in seen[:3]:
        first.evaluation(metrics)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    assert second.state_dict() == first.state_dict()
    second.step({"reward/mean": 0.5})
    assert [hint.code for hint in second.evaluation(seen[3])] == ["reward_hacked"]


def test_longer_answers_are_no_alarm_if_nobody_checked():
    engine = HintEngine(total_steps=40)
    told = [
        hint.code
        for step in range(40)
        for hint in engine.step({"reward/mean": 0.3 + step / 100, "answers/words": 30.0 + 10 * step})
    ]
    assert "answers_grow" not in told
