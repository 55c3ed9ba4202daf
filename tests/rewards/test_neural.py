"""The learned reward learns from preferences, says when it does not know, and never stops a run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import ConfigError
from groupwise.rewards.neural import NeuralRewardFunction, create_neural_reward_function
from groupwise.rewards.neural_trainer import NeuralRewardTrainer, binomial_tail
from groupwise.rewards.plain import PlainReward
from groupwise.rewards.preferences import Preference
from groupwise.rewards.scoring import per_attempt, score_groups
from groupwise.rewards.transcripts import LONGEST, Transcript
from groupwise.training.checkpoint import plain_state
from groupwise.types import End, Failed, Group, Reward, Score, Task, Trajectory

FILLING = "the box came by post with a note and one more part in blue paper".split()
SMALL: Any = {"embedding_dim": 32, "hidden_dim": 32, "learning_rate": 3e-3}


def reply(rng: random.Random) -> tuple[str, float]:
    """First a thing is checked and then sent, or the other way round: the same words, and only the first is good."""
    said = rng.sample(FILLING, rng.randrange(3, 9))
    good = rng.random() < 0.5
    first, then = sorted(rng.sample(range(len(said) + 1), 2))
    said.insert(then, "send" if good else "check")
    said.insert(first, "check" if good else "send")
    return " ".join(said), float(good)


def preferences(seed: int, count: int, shuffled: bool = False) -> list[tuple[str, str, str]]:
    rng = random.Random(seed)
    pairs: list[tuple[str, str, str]] = []
    while len(pairs) < count:
        (a, good), (b, other) = reply(rng), reply(rng)
        if good != other:
            better, worse = (a, b) if (good > other) != (shuffled and rng.random() < 0.5) else (b, a)
            pairs.append((f"order {rng.randrange(10_000)}", better, worse))
    return pairs


def member(number: int, text: str, prompt: str = "what now?") -> Trajectory:
    one = np.ones(1)
    return Trajectory(
        f"m{number}", "t", "g", one, one, one.astype(bool), one, one.astype(int), one, End.FINISHED, True,
        meta={"prompt": prompt, "text": text},
    )  # fmt: skip


def group_of(texts: Sequence[str], number: int = 0) -> Group:
    members = tuple(member(n, text, f"question {number}") for n, text in enumerate(texts))
    return Group("g", Task(f"t/{number}"), members)


def groups(seed: int, count: int, size: int = 4) -> list[Group]:
    rng = random.Random(seed)
    return [group_of([reply(rng)[0] for _ in range(size)], rng.randrange(10_000)) for _ in range(count)]


def is_good(attempt: Trajectory) -> float:
    words = attempt.meta["text"].split()
    return float(words.index("check") < words.index("send"))


TEACHER = per_attempt(lambda _, attempt: is_good(attempt))


def learner(teacher: Reward | None = None, seed: int = 0, **changes: Any) -> NeuralRewardFunction:
    settings = {**SMALL, "teacher": teacher, "seed": seed, **changes}
    return create_neural_reward_function(**settings)


def accuracy(trainer: NeuralRewardTrainer, pairs: Sequence[tuple[str, str, str]]) -> float:
    better, _ = trainer.score([Transcript(((False, q), (True, a))) for q, a, _ in pairs])
    worse, _ = trainer.score([Transcript(((False, q), (True, b))) for q, _, b in pairs])
    return float(np.mean(np.array(better) > np.array(worse)))


def trained(seed: int = 0, shuffled: bool = False) -> NeuralRewardFunction:
    reward = learner(seed=seed)
    reward.add_preferences(preferences(seed, 500, shuffled))
    reward.trainer.fit()
    return reward


@pytest.fixture(scope="module")
def knowing() -> NeuralRewardFunction:
    return trained()


def test_it_learns_the_order_of_words_from_preferences_and_is_then_believed(knowing: NeuralRewardFunction) -> None:
    assert accuracy(knowing.trainer, preferences(77, 200)) > 0.85
    assert knowing.trainer.held_out_accuracy > 0.8
    assert knowing.trainer.trusted
    (scored,) = score_groups(knowing, groups(5, 1))
    assert all(isinstance(s, Score) and not s.flags and 0 < s.total < 1 for s in scored.scores)
    assert all(isinstance(s, Score) and s.parts["uncertainty"] > 0 for s in scored.scores)


def test_from_shuffled_preferences_it_learns_nothing_and_is_not_believed() -> None:
    reward = trained(seed=1, shuffled=True)
    assert abs(accuracy(reward.trainer, preferences(77, 200)) - 0.5) < 0.15
    assert not reward.trainer.trusted
    (scored,) = score_groups(reward, groups(5, 1))
    assert [s.flags for s in scored.scores if isinstance(s, Score)] == [("fallback", "neural_unproven")] * 4


def test_what_is_not_believed_is_scored_by_the_heuristic() -> None:
    texts = ["", "Parts are on their way to you today.", "yes yes yes yes"]
    (expected,), (scored,) = (score_groups(reward, [group_of(texts)]) for reward in (PlainReward(), learner()))
    assert scored.totals().tolist() == expected.totals().tolist()
    assert expected.totals()[1] > expected.totals()[2] > expected.totals()[0] == 0


def test_the_hundredth_evaluation_brings_the_update() -> None:
    reward = create_neural_reward_function(teacher=TEACHER)
    before = {name: value.clone() for name, value in reward.trainer.network.state_dict().items()}
    many = groups(0, 25)
    score_groups(reward, many[:24])
    assert (reward.evaluations, reward.trainer.updates) == (96, 0)
    assert all(torch.equal(before[name], value) for name, value in reward.trainer.network.state_dict().items())
    score_groups(reward, many[24:])
    assert (reward.evaluations, reward.trainer.updates) == (100, 1)
    changed = [name for name, value in reward.trainer.network.state_dict().items() if not torch.equal(before[name], value)]
    assert len(changed) == len(before)
    assert reward.metrics()["loss"] < 2


def test_it_learns_from_a_teacher_while_it_is_used() -> None:
    reward = learner(TEACHER)
    flags = [s.flags for g in score_groups(reward, groups(3, 250)) for s in g.scores if isinstance(s, Score)]
    assert flags[0] == ("fallback", "neural_unproven")
    assert flags[-1] == ()
    assert accuracy(reward.trainer, preferences(77, 200)) > 0.85
    found = reward.metrics()
    assert found["held_out_accuracy"] > 0.8
    assert found["replay_size"] > 300
    assert 0 < found["fallback_share"] < 1
    assert found["uncertainty"] > 0
    assert found["trusted"] == 1


def test_conversations_that_stand_alone_teach_too() -> None:
    reward = learner(per_attempt(lambda _, a: is_good(member(0, a.meta["messages"][-1]["content"]))))

    async def evaluate(count: int) -> list[Score | Failed]:
        rng = random.Random(0)
        asked = {"role": "user", "content": "what now?"}
        said = [{"role": "assistant", "content": reply(rng)[0]} for _ in range(count)]
        return [await reward.compute_reward([asked, one]) for one in said]

    assert len(asyncio.run(evaluate(100))) == 100
    assert reward.trainer.updates == 1
    assert len(reward.trainer.replay) > 20
    assert len(reward.trainer.held_out) > 2
