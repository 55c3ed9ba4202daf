"""Parts of `neural_reward.py` that need no run: accuracy against the linear baseline, calibration, and attacks.

An attack climbs: it starts from random words, from a real reply or from the question, changes a word, a pair of words
or a letter at random, and keeps a change if the reward rises, as a policy does with less patience. Its words are those
of all replies the reward has learned from, so it can write anything that the reward could know.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from repair_desk import Phrases, ask, reply

from groupwise.rewards.learned.calibration import calibration_error
from groupwise.rewards.learned.linear import LinearReward
from groupwise.rewards.learned.neural import NeuralRewardFunction
from groupwise.rewards.learned.preferences import RewardTranscript, preference_of
from groupwise.rewards.learned.trainer import NeuralRewardTrainer

Pair = tuple[str, str, str]
SIZES = ((50, 0.0), (200, 0.0), (1000, 0.15))  # preferences, and the share of them that is wrong
TEST_PAIRS, PROMPTS, REAL, STARTS, CHANGES, AT_ONCE = 1000, 20, 64, 3, 60, 8
# By chance alone, the error of a calibrated reward is 0.8 · √(0.7 · 0.3 / 400) = 0.02 with ten bins of 400.
CALIBRATION_PAIRS = 4000


def pairs(seed: int, count: int, phrases: Phrases, wrong: float = 0.0) -> list[Pair]:
    """(prompt, better, worse), a share of them the wrong way round."""
    rng = random.Random(seed)
    found: list[Pair] = []
    while len(found) < count:
        fault, prompt = ask(rng, phrases)
        one, other = reply(rng, phrases, fault), reply(rng, phrases, fault)
        if one.worth != other.worth:
            better, worse = (one, other) if (one.worth > other.worth) != (rng.random() < wrong) else (other, one)
            found.append((prompt, better.text, worse.text))
    return found


def trained(seed: int, given: Sequence[Pair]) -> NeuralRewardTrainer:
    """A reward as it is after these preferences."""
    trainer = NeuralRewardTrainer(learning_rate=1e-3, seed=seed)
    NeuralRewardFunction(trainer=trainer, teacher=None).add_preferences(given)
    trainer.fit()
    return trainer


def sides(given: Sequence[Pair]) -> tuple[list[RewardTranscript], list[RewardTranscript]]:
    found = [preference_of(pair) for pair in given]
    return [pair.better for pair in found], [pair.worse for pair in found]


def accuracy(better: Any, worse: Any) -> float:
    """The share of pairs ranked right; a tie counts half."""
    return float(np.mean(0.5 + 0.5 * np.sign(np.asarray(better) - np.asarray(worse))))


def accuracies(trainer: NeuralRewardTrainer, clean: Sequence[Pair]) -> dict[str, float]:
    """Of the reward as it is used, of a linear model with a fixed penalty as the baseline, and of the network alone."""
    better, worse = sides(clean)
    found = {"reward": accuracy(trainer.score(better)[0], trainer.score(worse)[0])}
    baseline = LinearReward()
    baseline.fit(trainer.replay.kept)
    found["linear"] = accuracy(baseline.rewards(better), baseline.rewards(worse))
    networks = [np.asarray(trainer.network(side).detach().mean(0)) for side in (better, worse)]
    return {**found, "network": accuracy(*networks)}


def calibration(trainer: NeuralRewardTrainer, labelled: Sequence[Pair]) -> float:
    """Of the probability that the better reply is better, on pairs labelled as those that were learned from."""
    return calibration_error(np.array(trainer.chances([preference_of(pair) for pair in labelled])))


def climbed(trainer: NeuralRewardTrainer, prompt: str, start: str, words: Sequence[str], rng: random.Random) -> str:
    """The best text that random changes lead to."""

    def rate(texts: Sequence[str]) -> list[float]:
        return trainer.score([RewardTranscript(((False, prompt), (True, text))) for text in texts])[0]

    best, reward = start, rate([start])[0]
    for _ in range(CHANGES):
        tries = [changed(best, words, rng) for _ in range(AT_ONCE)]
        rewards = rate(tries)
        top = int(np.argmax(rewards))
        if rewards[top] > reward:
            best, reward = tries[top], rewards[top]
    return best


def changed(text: str, words: Sequence[str], rng: random.Random) -> str:
    said = text.split()
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(said) + 1)
        kind = rng.choice(("replace", "add", "remove", "swap", "letter"))
        if kind == "add" or place == len(said):
            said.insert(place, rng.choice(words))
        elif kind == "remove" and len(said) > 1:
            said.pop(place)
        elif kind == "swap":
            other = rng.randrange(len(said))
            said[place], said[other] = said[other], said[place]
        elif kind == "letter":
            cut = rng.randrange(len(said[place]))
            said[place] = said[place][:cut] + rng.choice("abcdefghijklmnopqrstuvwxyz.") + said[place][cut + 1 :]
        else:
            said[place] = rng.choice(words)
    return " ".join(said)


def attacks(trainer: NeuralRewardTrainer, seed: int, learned: Sequence[Pair], phrases: Phrases) -> dict[str, Any]:
    """On each prompt, the best of 64 real replies against the best text of an attack from each kind of start.

    `climbs` is on how many prompts text that began as random words or as the question scored above the best real reply;
    `improved` on how many a real reply was changed into one that did.
    """
    rng = random.Random(seed)
    words = sorted({word for _, better, worse in learned for word in f"{better} {worse}".split()})
    found: dict[str, Any] = {"climbs": 0, "improved": 0, "margins": [], "texts": []}
    for _ in range(PROMPTS):
        fault, prompt = ask(rng, phrases)
        replies = [reply(rng, phrases, fault).text for _ in range(REAL)]
        best = max(score_all(trainer, prompt, replies))
        salads = [" ".join(rng.choices(words, k=rng.randrange(6, 16))) for _ in range(STARTS)]
        texts = [climbed(trainer, prompt, start, words, rng) for start in (*salads, prompt)]
        top = max(score_all(trainer, prompt, texts))
        found["climbs"] += top > best + 1e-9
        found["margins"].append(round(best - top, 4))
        found["texts"].append(texts[int(np.argmax(score_all(trainer, prompt, texts)))])
        better = climbed(
            trainer, prompt, max(replies, key=lambda text: score_all(trainer, prompt, [text])[0]), words, rng
        )
        found["improved"] += score_all(trainer, prompt, [better])[0] > best + 1e-9
    return found


def score_all(trainer: NeuralRewardTrainer, prompt: str, texts: Sequence[str]) -> list[float]:
    return trainer.score([RewardTranscript(((False, prompt), (True, text))) for text in texts])[0]


def checks(seed: int, learned: Phrases, tested: Phrases) -> dict[str, Any]:
    """Accuracy after 50, 200 and 1,000 preferences; of the last, calibration and attacks too."""
    found: dict[str, Any] = {}
    for count, wrong in SIZES:
        given = pairs(seed, count, learned, wrong)
        trainer = trained(seed, given)
        names = accuracies(trainer, pairs(seed + 10_000, TEST_PAIRS, tested))
        found |= {f"{name}_{count}": value for name, value in names.items()}
        found[f"uses_network_{count}"] = trainer.uses_network
        found[f"trusted_{count}"] = trainer.trusted
        found[f"calibration_{count}"] = calibration(trainer, pairs(seed + 20_000, CALIBRATION_PAIRS, learned, wrong))
        found[f"calibration_new_{count}"] = calibration(trainer, pairs(seed + 30_000, CALIBRATION_PAIRS, tested, wrong))
    found |= {f"known_{name}": value for name, value in attacks(trainer, seed + 40_000, given, learned).items()}
    found |= {f"new_{name}": value for name, value in attacks(trainer, seed + 50_000, given, tested).items()}
    return found
