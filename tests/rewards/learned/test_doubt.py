"""The learned reward starts from a linear model, doubts what it has never seen, and says how likely it is right."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from groupwise.rewards.learned.calibration import ScoreScale, calibration_error
from groupwise.rewards.learned.linear import LinearReward, features, stems
from groupwise.rewards.learned.preferences import Preference, RewardTranscript, preference_of
from groupwise.rewards.learned.realism import SPOILERS, Realism, parrots
from groupwise.rewards.learned.trainer import NeuralRewardTrainer

HELLOS = ("Hello!", "Good morning,", "Thanks for writing.", "Hi there,")
THINGS = ("order", "parcel", "lamp", "kettle", "chair", "invoice", "refund")
GOOD = ("your {t} was sent today.", "we sent the {t} this morning.", "the {t} leaves our shop today.")
BAD = ("your {t} was forgotten somewhere.", "we know nothing about the {t}.", "the {t} may come some day.")
ENDS = ("Please write if it is late.", "It should take two days.", "Is there anything else?", "Have a nice day.")


def reply(rng: random.Random, thing: str, good: bool) -> str:
    return " ".join((rng.choice(HELLOS), rng.choice(GOOD if good else BAD).format(t=thing), rng.choice(ENDS)))


def preferences(seed: int, count: int, wrong: float = 0.0) -> list[Preference]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        thing = rng.choice(THINGS)
        better, worse = reply(rng, thing, True), reply(rng, thing, False)
        if rng.random() < wrong:
            better, worse = worse, better
        found.append(preference_of((f"Where is my {thing} number {rng.randrange(1000)}?", better, worse)))
    return found


def told(prompt: str, text: str) -> RewardTranscript:
    return RewardTranscript(((False, prompt), (True, text)))


def trained(count: int, wrong: float = 0.0) -> NeuralRewardTrainer:
    trainer = NeuralRewardTrainer(16, 16, 1e-3)
    trainer.add_preferences(preferences(0, count, wrong))
    trainer.update(steps=1)  # the linear model is fitted completely all the same
    return trainer


@pytest.fixture(scope="module")
def knowing() -> NeuralRewardTrainer:
    return trained(160)


def right(trainer: NeuralRewardTrainer, pairs: Sequence[Preference]) -> float:
    better, worse = (trainer.score([getattr(pair, side) for pair in pairs])[0] for side in ("better", "worse"))
    return float(np.mean(np.array(better) > np.array(worse)))


def test_a_few_preferences_are_enough_because_the_linear_model_scores_first() -> None:
    trainer = trained(40)
    assert not trainer.uses_network
    assert right(trainer, preferences(5, 100)) > 0.95
    found = trainer.metrics()
    assert found["linear_accuracy"] == found["held_out_accuracy"]
    assert found["uses_network"] == 0.0


def test_the_network_takes_over_when_it_is_better_on_held_out_pairs_and_not_before(
    knowing: NeuralRewardTrainer,
) -> None:
    trainer = NeuralRewardTrainer(16, 16)
    trainer.load_state_dict(knowing.state_dict())
    network, linear = np.ones(40, bool), np.arange(40) >= 4
    trainer._choose(network, linear)  # 4 won, none lost: 1 in 16
    assert not trainer.uses_network
    trainer._choose(network, np.arange(40) >= 5)  # 5 won, none lost: 1 in 32
    assert trainer.uses_network
    assert all(0 < score < 1 for score in trainer.score([pair.better for pair in preferences(1, 5)])[0])
    trainer._choose(linear, network)
    assert not trainer.uses_network


def test_stems_order_and_answers_are_features_and_length_is_not() -> None:
    assert stems("Opened, opening the open boxes; is it?") == ["open", "open", "the", "open", "box", "is", "it"]
    first, second = (set(features(told("a leak", text))[0]) for text in ("detach then open", "open then detach"))
    assert first != second
    assert len(first & second) == 3 + 6  # the same stems, in answer to the same two, in another order
    for words in (100, 200):
        values = features(told("a leak", " ".join(f"word{n}" for n in range(words))))[1]
        assert np.square(values).sum() == pytest.approx(1 + 4 + 4)


def test_the_linear_model_minimises_its_loss() -> None:
    pairs, model = preferences(3, 60), LinearReward(penalty=0.3)
    model.fit(pairs)
    margins = model.rewards([pair.better for pair in pairs]) - model.rewards([pair.worse for pair in pairs])
    slope = np.zeros(len(model.weights))
    for pair, margin in zip(pairs, margins, strict=True):
        for side, sign in ((pair.better, 1.0), (pair.worse, -1.0)):
            np.subtract.at(slope, features(side)[0], sign * features(side)[1] / (1 + np.exp(margin)))
    slope += 0.3 * model.weights.numpy()
    assert np.abs(slope).max() < 0.02
    again = LinearReward()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.weights, model.weights)


@pytest.mark.parametrize("spoil", SPOILERS)
def test_spoiled_replies_are_doubted_and_real_ones_are_not(knowing: NeuralRewardTrainer, spoil: object) -> None:
    rng = random.Random(1)
    real = [pair.better for pair in preferences(9, 40)]
    fakes = [spoil(one, real, rng) for one in real]  # type: ignore[operator]
    assert np.mean(knowing.realism.doubts(real)) < 0.1
    assert np.mean(knowing.realism.doubts(fakes)) > 0.8
    assert np.mean(knowing.score(fakes)[0]) < np.mean(knowing.score([pair.worse for pair in preferences(9, 40)])[0])


def test_doubt_lowers_the_score_and_is_told(knowing: NeuralRewardTrainer) -> None:
    prompt, text = "Where is my lamp number 7?", "Hello! your lamp was sent today. Have a nice day."
    heap = "sent today this morning leaves shop sent today lamp sent today lamp leaves today"
    (plain, piled), (sure, unsure) = knowing.score([told(prompt, text), told(prompt, heap)])
    assert plain > 0.7 > 0.3 > piled
    assert sure < 0.1 < 0.9 < unsure
    scale = ScoreScale(cap=1.0, spread=2.0)
    lower = scale.lower(np.array([5.0, 0.5, 0.5]), np.array([0.0, 0.0, 0.25]), np.array([0.0, 0.1, 0.0]))
    assert lower.tolist() == pytest.approx([1.0, 0.4, 0.0])


def test_climbing_from_nothing_never_beats_the_best_real_reply(knowing: NeuralRewardTrainer) -> None:
    rng = random.Random(2)
    words = sorted(
        {w for pair in preferences(0, 160) for side in (pair.better, pair.worse) for w in side.turns[1][1].split()}
    )
    for thing in ("lamp", "parcel", "invoice"):
        prompt = f"Where is my {thing} number 12345?"
        best = max(knowing.score([told(prompt, reply(rng, thing, True)) for _ in range(24)])[0])
        said = rng.choices(words, k=12)
        reward = knowing.score([told(prompt, " ".join(said))])[0][0]
        for _ in range(60):
            tries = []
            for _ in range(6):
                other = list(said)
                other[rng.randrange(len(other))] = rng.choice(words)
                tries.append(other)
            rewards = knowing.score([told(prompt, " ".join(other)) for other in tries])[0]
            top = int(np.argmax(rewards))
            if rewards[top] > reward:
                said, reward = tries[top], rewards[top]
        assert reward <= best


def test_what_climbing_finds_is_learned_from(knowing: NeuralRewardTrainer) -> None:
    assert knowing.realism.climbed
    realism, rng = Realism(), random.Random(0)
    real = [pair.better for pair in preferences(9, 40)]
    realism.fit(real, rng)
    realism.climb(real[0], lambda batch: [float(len(one.turns[1][1])) for one in batch], rng)
    (found,) = realism.climbed
    assert len(found.turns[1][1]) > 1.5 * len(real[0].turns[1][1])
    again = Realism()
    again.load_state_dict(realism.state_dict())
    assert again.doubts(real).tolist() == realism.doubts(real).tolist()
    pairs = knowing._fakes(preferences(9, 20))
    assert len(pairs) == 8 + min(8, len(knowing.realism.climbed))
    assert all(pair.worse != pair.better for pair in pairs)


def test_a_teacher_that_likes_the_question_said_back_is_not_believed() -> None:
    """A teacher that counts words of the question prefers it in every pair."""
    rng, trainer = random.Random(4), NeuralRewardTrainer(16, 16, 1e-3)
    pairs = []
    for _ in range(60):
        thing = rng.choice(THINGS)
        prompt = f"Could you tell me please where my {thing} number {rng.randrange(1000)} is now?"
        replies = [reply(rng, thing, True), reply(rng, thing, False), f"{prompt} I see, let me look at that with care."]
        group = [told(prompt, text) for text in replies]
        scores = [float(len({*text.split()} & {*prompt.split()})) for text in replies]
        trainer.add_scores(list(zip(group, scores, strict=True)))
        pairs.append(Preference(group[0], group[2]))
    trainer.update(steps=1)
    assert right(trainer, pairs) > 0.95
    assert [parrots(one) for one in (pairs[0].better, pairs[0].worse)] == [False, True]
    assert not parrots(told("Is it on?", "Is it on?"))  # three words are no piece


def test_chances_come_out_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    margins = np.abs(rng.normal(0, 2, 4000))
    likely = 0.1 + 0.8 / (1 + np.exp(-1.5 * margins))
    margins = np.where(rng.random(4000) < likely, margins, -margins)
    scale = ScoreScale()
    scale.fit_chances(margins)
    assert scale.slope == pytest.approx(1.5, rel=0.2)
    assert scale.wrong == pytest.approx(0.1, abs=0.03)
    assert calibration_error(scale.chances(margins)) < 0.03
    unfitted = ScoreScale(slope=6.0)
    assert calibration_error(unfitted.chances(margins)) > 0.1


def test_the_calibration_error_is_the_gap_between_saying_and_being_right() -> None:
    # Twenty pairs at 0.9, eighteen of them right; then only ten.
    assert calibration_error(np.array([0.9] * 18 + [0.1] * 2), bins=1) == pytest.approx(0.0)
    assert calibration_error(np.array([0.9] * 10 + [0.1] * 10), bins=1) == pytest.approx(0.4)


def test_doubted_replies_are_still_told_apart_however_sure_a_few_pairs_made_it() -> None:
    scale = ScoreScale(cap=2.5, spread=5.0)
    scale.fit_chances(np.full(12, 3.0))
    assert scale.slope > 1.0
    low, high = scale.scores(scale.lower(np.array([0.0, 0.5]), np.ones(2), np.zeros(2)))
    assert high - low > 0.005


def test_wrong_labels_lower_the_chances_and_not_the_ranking() -> None:
    trainer = trained(300, wrong=0.2)
    pairs = preferences(6, 200)
    assert right(trainer, pairs) > 0.8
    assert np.max(trainer.chances(pairs)) < 0.95
    assert calibration_error(np.array(trainer.chances(preferences(7, 600, 0.2))), bins=5) < 0.1
