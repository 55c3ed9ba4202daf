"""The learned reward learns from preferences, says when it does not know, and never stops a run."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.control import grpo as control
from groupwise.errors import ConfigError
from groupwise.rewards.combination import MultiObjectiveRewardFunction
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.learned.neural import NeuralRewardFunction, create_neural_reward_function
from groupwise.rewards.learned.preferences import LONGEST_TURN, RewardTranscript
from groupwise.rewards.learned.trainer import NeuralRewardTrainer
from groupwise.rewards.registry import make_reward
from groupwise.rewards.rules.heuristic import HeuristicReward
from groupwise.rewards.scoring import per_attempt, score_groups
from groupwise.training.checkpoint import plain_state
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import End, Failed, Group, Reward, Score, Task, Trajectory

FILLING = ("the", "box", "came", "by", "post", "with", "a", "note", "and", "one", "more", "part", "in", "blue", "paper")
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


def learner(teacher: Reward | str | None = None, seed: int = 0, **changes: Any) -> NeuralRewardFunction:
    settings = {**SMALL, "teacher": teacher, "seed": seed, **changes}
    return create_neural_reward_function(**settings)


def accuracy(trainer: NeuralRewardTrainer, pairs: Sequence[tuple[str, str, str]]) -> float:
    better, _ = trainer.score([RewardTranscript(((False, q), (True, a))) for q, a, _ in pairs])
    worse, _ = trainer.score([RewardTranscript(((False, q), (True, b))) for q, _, b in pairs])
    return float(np.mean(np.array(better) > np.array(worse)))


def trained(seed: int = 0, shuffled: bool = False) -> NeuralRewardFunction:
    reward = learner(seed=seed)
    reward.add_preferences(preferences(seed, 500, shuffled))
    reward.trainer.fit()
    return reward


@pytest.fixture(scope="module")
def knowing() -> NeuralRewardFunction:
    return trained()


def copy_of(reward: NeuralRewardFunction) -> NeuralRewardFunction:
    copy = learner()
    copy.load_state_dict(reward.state_dict())
    return copy


def test_it_learns_the_order_of_words_from_preferences_and_is_then_believed(knowing: NeuralRewardFunction) -> None:
    assert accuracy(knowing.trainer, preferences(77, 200)) > 0.85
    assert knowing.trainer.held_out_accuracy > 0.8
    assert knowing.trainer.trusted
    (scored,) = score_groups(knowing, groups(5, 1))
    assert all(isinstance(s, Score) and not s.flags and 0 < s.total < 1 for s in scored.scores)
    assert all(isinstance(s, Score) and 0 < s.parts["certainty"] < 1 for s in scored.scores)


def test_from_shuffled_preferences_it_learns_nothing_and_is_not_believed() -> None:
    reward = trained(seed=1, shuffled=True)
    assert abs(accuracy(reward.trainer, preferences(77, 200)) - 0.5) < 0.15
    assert not reward.trainer.trusted
    (scored,) = score_groups(reward, groups(5, 1))
    assert [s.flags for s in scored.scores if isinstance(s, Score)] == [("fallback", "neural_unproven")] * 4


def test_what_is_not_believed_is_scored_by_the_heuristic() -> None:
    texts = ["", "Parts are on their way to you today.", "yes yes yes yes"]
    (expected,), (scored,) = (score_groups(reward, [group_of(texts)]) for reward in (HeuristicReward(), learner()))
    assert scored.totals().tolist() == expected.totals().tolist()
    assert expected.totals()[1] > expected.totals()[0] == expected.totals()[2] == 0.0


def test_the_hundredth_evaluation_brings_the_update() -> None:
    reward = create_neural_reward_function(teacher=TEACHER)
    before = {name: value.clone() for name, value in reward.trainer.network.state_dict().items()}
    many = groups(0, 25)
    score_groups(reward, many[:24])
    assert (reward.evaluations, reward.trainer.updates) == (96, 0)
    assert all(torch.equal(before[name], value) for name, value in reward.trainer.network.state_dict().items())
    score_groups(reward, many[24:])
    assert (reward.evaluations, reward.trainer.updates) == (100, 1)
    changed = [
        name for name, value in reward.trainer.network.state_dict().items() if not torch.equal(before[name], value)
    ]
    assert len(changed) == len(before)
    assert reward.metrics()["neural/loss"] < 2


def test_it_learns_from_a_teacher_while_it_is_used() -> None:
    reward = learner(TEACHER)
    flags = [s.flags for g in score_groups(reward, groups(3, 150)) for s in g.scores if isinstance(s, Score)]
    assert flags[0] == ("fallback", "neural_unproven")
    assert flags[-1] == ()
    assert accuracy(reward.trainer, preferences(77, 200)) > 0.85
    found = reward.metrics()
    assert found["neural/held_out_accuracy"] > 0.8
    assert found["neural/replay_size"] > 200
    assert 0 < found["neural/fallback_share"] < 1
    assert found["neural/uncertainty"] > 0
    assert found["neural/trusted"] == 1


def test_conversations_that_stand_alone_teach_too() -> None:
    reward = learner(per_attempt(lambda _, a: is_good(member(0, a.meta["messages"][-1]["content"]))))

    rng = random.Random(0)
    for _ in range(100):
        assert reward.trainer.updates == 0
        said = {"role": "assistant", "content": reply(rng)[0]}
        assert 0 <= reward.compute_reward([{"role": "user", "content": "what now?"}, said]).total <= 1
    assert reward.trainer.updates == 1
    assert len(reward.trainer.replay) > 20
    assert len(reward.trainer.held_out) > 2


def test_a_resumed_reward_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, rest = learner(TEACHER, update_frequency=20), groups(9, 40)
    score_groups(whole, groups(8, 30))
    torch.save(plain_state(whole.state_dict()), tmp_path / "state.pt")
    resumed = learner(TEACHER, seed=5, update_frequency=20)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    scores = [[g.scores for g in score_groups(reward, rest)] for reward in (whole, resumed)]
    assert scores[0] == scores[1]
    assert whole.metrics() == resumed.metrics()
    assert whole.trainer.updates == 14


def test_weights_on_stems_of_another_version_are_fitted_anew() -> None:
    reward, other = learner(TEACHER, update_frequency=20), learner(TEACHER, update_frequency=20)
    score_groups(reward, groups(8, 30))
    state = reward.state_dict()
    weights = state["trainer"]["linear"]["weights"]
    state["trainer"]["linear"] |= {"stems": 1, "weights": torch.zeros_like(weights)}
    other.load_state_dict(state)
    assert bool(other.trainer.linear.weights.abs().max() > 0)
    assert other.trainer.held_out_accuracy == reward.trainer.held_out_accuracy


def test_doubt_of_fewer_properties_is_fitted_anew() -> None:
    reward, other = learner(TEACHER, update_frequency=20), learner(TEACHER, update_frequency=20)
    score_groups(reward, groups(8, 30))
    state = reward.state_dict()
    realism = state["trainer"]["realism"]
    del realism["runs"]
    for name in ("weights", "centre", "scale"):
        realism[name] = realism[name][:-1]
    other.load_state_dict(state)
    found = other.trainer.realism
    assert found.fitted
    assert found.runs
    assert len(found.weights) == len(reward.trainer.realism.weights)


class Spoken(NeuralRewardFunction):
    """The reward of a cart's run, told in words."""

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        pushed = [" ".join("left" if push else "right" for push in attempt.actions[:12]) for attempt in group]
        told = [replace(a, meta={"prompt": task.id, "text": text}) for a, text in zip(group, pushed, strict=True)]
        return await super().score_group(task, told)


def test_a_run_that_was_broken_off_learns_the_same_reward(
    small_config: Callable[..., Any], numbers: Callable[[Path], dict[str, Any]]
) -> None:
    def build(cfg: Any) -> Any:
        trainer = NeuralRewardTrainer(16, 16, 1e-3)
        return control.build(cfg, reward=Spoken(trainer=trainer, heuristic=EnvironmentReward(), update_frequency=12))

    whole, broken = (create_run(small_config(run_name=name, max_episode_steps=30)) for name in ("whole", "broken"))
    finished = list(execute(whole, build))
    for event in execute(broken, build):
        if event.type == "step" and event.step == 5:
            break
    list(execute(broken, build))
    assert numbers(whole) == numbers(broken)
    last = [event.data["metrics"] for event in finished if event.type == "step"][-1]
    assert last["neural/updates"] == 4
    assert last["neural/loss"] > 0


def test_a_state_that_is_kept_does_not_change_when_learning_goes_on() -> None:
    reward = learner(TEACHER, update_frequency=20)
    score_groups(reward, groups(8, 10))
    kept = reward.state_dict()["trainer"]["network"]["first"]
    now = kept.clone()
    score_groups(reward, groups(9, 10))
    assert torch.equal(kept, now)
    assert not torch.equal(kept, reward.trainer.network.first)


def test_the_order_of_groups_counts_however_long_the_teacher_takes() -> None:
    def taught(slow: bool) -> NeuralRewardFunction:
        async def teacher(task: Task, group: Sequence[Trajectory]) -> list[Score]:
            await asyncio.sleep(0.002 * (int(task.id[-1]) % 4) if slow else 0)
            return [Score(is_good(attempt)) for attempt in group]

        reward = learner(teacher, update_frequency=20)
        score_groups(reward, groups(4, 30))
        return reward

    slow, quick = taught(True), taught(False)
    assert slow.trainer.replay.kept == quick.trainer.replay.kept
    assert torch.equal(slow.trainer.network.first, quick.trainer.network.first)


@pytest.mark.parametrize("network", [True, False])
def test_a_model_that_breaks_is_replaced_by_the_heuristic_for_the_whole_group(
    knowing: NeuralRewardFunction, network: bool
) -> None:
    reward = copy_of(knowing)
    reward.trainer.uses_network = network
    with torch.no_grad():
        reward.trainer.network.first[0, 0, 0] = float("nan")
        reward.trainer.linear.weights[:] = float("nan")
    (scored,) = score_groups(reward, groups(5, 1))
    assert [s.flags for s in scored.scores if isinstance(s, Score)] == [("fallback", "neural_failed")] * 4
    assert scored.totals().tolist() == score_groups(HeuristicReward(), groups(5, 1))[0].totals().tolist()


def test_an_update_that_fails_leaves_the_weights_as_they_were(knowing: NeuralRewardFunction) -> None:
    reward = copy_of(knowing)
    huge = RewardTranscript(((False, "q"), (True, "a")))
    reward.trainer.add_scores([(huge, 1e300), (RewardTranscript(((False, "q"), (True, "b"))), -1e300)])
    reward.trainer.range = (float("-inf"), float("inf"))
    before = reward.trainer.network.first.clone()
    reward.trainer.credit = 5.0
    reward.trainer.update()
    assert reward.trainer.failures == 1
    assert torch.equal(reward.trainer.network.first, before)
    assert reward.trainer.trusted


def test_a_teacher_that_fails_teaches_nothing_and_spoils_nothing() -> None:
    async def broken(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        raise RuntimeError("nobody is at home")

    reward = learner(broken)
    scored = score_groups(reward, groups(0, 30))
    assert all(isinstance(s, Score) for g in scored for s in g.scores)
    assert len(reward.trainer.replay) == 0
    assert reward.metrics()["neural/fallback_share"] == 1.0
    assert "neural/held_out_accuracy" not in reward.metrics()


def test_by_default_it_learns_from_its_heuristic_which_is_asked_once() -> None:
    asked = []

    async def counting(task: Task, group: Sequence[Trajectory]) -> list[Score]:
        asked.append(task.id)
        return [Score(float(len(attempt.meta["text"]))) for attempt in group]

    reward = NeuralRewardFunction(heuristic=counting, trainer=NeuralRewardTrainer(16, 16))
    score_groups(reward, groups(0, 10))
    assert len(asked) == 10
    assert len(reward.trainer.replay) > 20
    assert reward.trainer.range[1] > 20


def test_settings_can_name_it_its_teacher_and_a_file_of_preferences(tmp_path: Path) -> None:
    file = tmp_path / "preferences.jsonl"
    rows = [{"prompt": q, "chosen": a, "rejected": b} for q, a, b in preferences(0, 50)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    reward: Any = make_reward("neural", {**SMALL, "teacher": "customer_service", "preferences": str(file)})
    assert isinstance(reward.teacher, MultiObjectiveRewardFunction)
    assert len(reward.trainer.replay) + len(reward.trainer.held_out) > 40
    assert learner("none").teacher is None
    with pytest.raises(ConfigError, match="cannot be read as preferences"):
        learner("none", preferences=str(tmp_path / "nowhere.jsonl"))


def test_it_is_a_component_like_any_other(knowing: NeuralRewardFunction) -> None:
    both = MultiObjectiveRewardFunction([knowing, HeuristicReward(weight=0.5, name="rough")])
    (scored,) = score_groups(both, groups(5, 1))
    assert all(isinstance(s, Score) and {"neural", "rough", "neural.certainty"} <= {*s.parts} for s in scored.scores)
    assert both.metrics()["neural/trusted"] == 1.0


def test_whatever_is_said_has_a_score(knowing: NeuralRewardFunction) -> None:
    odd = ["", " \n ", "é 漢字 \ud800 🎉", "x" * 1_000_000, "word " * 200_000, "<|end|>"]
    (scored,) = score_groups(knowing, [group_of(odd)])
    assert all(isinstance(s, Score) and not s.flags for s in scored.scores)
    assert len(RewardTranscript.of([{"role": "assistant", "content": odd[3]}]).turns[0][1]) < LONGEST_TURN + 10
    assert asyncio.run(knowing(Task("t"), [])) == []


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"embedding_dim": 33}, {"hidden_dim": 0}, {"learning_rate": -1.0}, {"update_frequency": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            create_neural_reward_function(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not a preference"):
        learner().add_preferences([("only", "two")])  # type: ignore[list-item]
