"""Preferences, their split and their replay."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.rewards.learned.preferences import (
    MOST_PAIRS,
    Preference,
    PrioritisedReplay,
    RewardTranscript,
    Split,
    all_pairs,
    disjoint_pairs,
    preference_of,
)
from groupwise.rewards.learned.trainer import NeuralRewardTrainer, binomial_tail


def said(prompt: str, text: str) -> RewardTranscript:
    return RewardTranscript(((False, prompt), (True, text)))


def numbered(number: int) -> Preference:
    return Preference(said("q", f"good {number}"), said("q", f"bad {number}"))


def test_rows_of_preference_datasets_and_plain_triples_are_the_same() -> None:
    plain = preference_of(("hello?", "yes", "no"))
    assert plain == Preference(said("hello?", "yes"), said("hello?", "no"))
    assert preference_of({"prompt": "hello?", "chosen": "yes", "rejected": "no"}) == plain
    chat = {
        "prompt": [{"role": "user", "content": "hello?"}],
        "chosen": [{"role": "assistant", "content": "yes"}],
        "rejected": [{"role": "assistant", "content": [{"type": "text", "text": "no"}]}],
    }
    assert preference_of(chat) == plain


def test_what_tools_were_called_with_is_part_of_what_was_said() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look_up"}}]}
    assert "look_up" in RewardTranscript.of([call]).turns[0][1]


def test_conversations_with_one_opening_are_on_one_side() -> None:
    split = Split()
    sides = [{split.holds_out(said(f"prompt {p}", f"text {t}")) for t in range(20)} for p in range(300)]
    assert all(len(side) == 2 for side in sides[:4])
    assert all(len(side) == 1 for side in sides[4:])
    assert 0.1 < np.mean([True in side for side in sides[4:]]) < 0.3


def test_no_conversation_is_both_learned_from_and_judged_on() -> None:
    trainer = NeuralRewardTrainer(16, 16)
    rng = np.random.default_rng(0)
    for _ in range(200):
        prompt = f"prompt {rng.integers(20)}"
        trainer.add_scores([(said(prompt, f"text {rng.integers(50)}"), float(rng.random())) for _ in range(6)])
    learned, judged = (
        {s for pair in pairs for s in (pair.better, pair.worse)} for pairs in (trainer.replay.kept, trainer.held_out)
    )
    assert len(learned) > 100
    assert len(judged) > 20
    assert not learned & judged


def test_pairs_of_a_group_are_those_whose_scores_differ_and_a_test_counts_no_text_twice() -> None:
    group = [(said("q", f"text {n}"), float(n // 2)) for n in range(8)]
    rng = np.random.default_rng(0)
    pairs = all_pairs(group, rng)
    assert len(pairs) == MOST_PAIRS < 8 * 7 / 2 - 4
    assert all(pair.scores is not None and pair.scores[0] > pair.scores[1] for pair in pairs)
    assert all_pairs([(said("q", "a"), 1.0), (said("q", "b"), 1.0)], rng) == []
    counted = [s for pair in disjoint_pairs(group, rng) for s in (pair.better, pair.worse)]
    assert len(counted) == len(set(counted)) >= 4


def test_a_policy_that_repeats_itself_gives_no_more_evidence() -> None:
    trainer = NeuralRewardTrainer(16, 16)
    group = [(said("q", f"text {n}"), float(n)) for n in range(100)]
    for _ in range(20):
        trainer.add_scores(group)
    judged = [s for pair in trainer.held_out for s in (pair.better, pair.worse)]
    assert 4 < len(judged) == len(set(judged)) < 40


def test_what_is_predicted_badly_is_drawn_often_and_weighs_less() -> None:
    replay = PrioritisedReplay(alpha=1.0, beta=1.0)
    for number in range(100):
        replay.add(numbered(number))
    replay.settle(np.arange(100), [1.0] * 50 + [3.0] * 50)
    rng = np.random.default_rng(0)
    drawn = [replay.draw(10, rng) for _ in range(400)]
    hard = np.mean([(numbers >= 50).mean() for numbers, _ in drawn])
    assert hard == pytest.approx(0.75, abs=0.03)
    numbers, weights = drawn[0]
    assert weights[numbers < 50] == pytest.approx(1.0)
    assert weights[numbers >= 50] == pytest.approx(1 / 3)


def test_the_oldest_preference_makes_room() -> None:
    replay = PrioritisedReplay(capacity=3)
    for number in range(5):
        replay.add(numbered(number))
    assert replay.kept == [numbered(3), numbered(4), numbered(2)]
    assert NeuralRewardTrainer(16, 16, replay=PrioritisedReplay(capacity=3)).replay.capacity == 3
    again = PrioritisedReplay(capacity=3)
    again.load_state_dict(replay.state_dict())
    again.add(numbered(5))
    assert again.kept == [numbered(3), numbered(4), numbered(5)]


def test_chance_is_beaten_by_the_binomial_test() -> None:
    assert binomial_tail(10, 10) == 2**-10
    assert binomial_tail(0, 7) == 1.0
    assert binomial_tail(8, 10) == pytest.approx(56 / 1024)
    trainer = NeuralRewardTrainer(16, 16)
    assert math.isnan(trainer.held_out_accuracy)
    assert not trainer.trusted
    for right, judged, believed in ((9, 9, False), (10, 10, True), (60, 100, False), (66, 100, True)):
        trainer.right, trainer.judged = right, judged
        assert trainer.trusted is believed
