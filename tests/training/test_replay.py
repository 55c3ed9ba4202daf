"""Replay: past groups are learned from again, with what was recorded when they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import RolloutSettings, TrainingConfig
from groupwise.control import grpo as control
from groupwise.training.checkpoint import plain_state
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.replay import ReplayBuffer, Replayed, essence, packed, unpacked, version_of
from groupwise.training.session import Build, Parts, execute
from groupwise.types import End, Event, Failed, Failure, Group, Score, ScoredGroup, Task, Trajectory

Configure = Callable[..., TrainingConfig]
Numbers = Callable[[Path], dict[str, Any]]

LANGUAGE = {
    "estimator": "outcome", "advantage_scale": "group_std", "num_generations": 4, "tasks_per_step": 3,
    "learning_rate": 5e-3, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "per_device_train_batch_size": 64,
    "num_epochs": 1, "num_episodes": 6, "eval_steps": 0, "save_steps": 2, "replay_size": 6, "replay_groups": 2,
}  # fmt: skip


def group(number: int, version: int, length: int = 3) -> ScoredGroup:
    """A group of two scored attempts and one that failed, cut out of larger arrays as a rollout does."""
    table = np.random.default_rng(number).normal(size=(10, 3)).astype(np.float32)
    members = tuple(
        Trajectory(
            f"g{number}/m{n}", f"t{number}", f"g{number}", obs=table[:length], actions=np.arange(length),
            mask=np.arange(length) > 0, behavior_logp=table[:length, n], versions=np.full(length, version),
            rewards=np.zeros(length), end=End.TRUNCATED, terminated=n == 0,
            last_obs=table[length] if n else None, meta={"text": object()},
            action_mask=None if n else table[:length] > 0,
        )
        for n in range(3)
    )  # fmt: skip
    scores = (Score(1.0, {"a": 1.0}, ("x",), np.ones(length)), Score(0.0), Failed(Failure("reward", "c", "m")))
    return ScoredGroup(Group(f"g{number}", Task(f"t{number}", object(), number), members), scores)


def arrays(*members: Trajectory) -> set[str]:
    """The names of all arrays that any of the attempts has."""
    return {f.name for f in fields(Trajectory) for m in members if isinstance(getattr(m, f.name), np.ndarray)}


def kept(replay: ReplayBuffer) -> list[str]:
    return [scored.group.id for scored in replay.kept]


def test_the_newest_groups_are_kept_and_the_old_ones_dropped() -> None:
    replay = ReplayBuffer(RolloutSettings(replay_size=3, replay_groups=2, replay_max_age=2), seed=0)
    replay.add([group(n, version=n) for n in range(5)])
    assert kept(replay) == ["g2", "g3", "g4"]
    replay.see([group(9, version=5)])
    drawn = replay.draw()
    assert kept(replay) == ["g3", "g4"]
    assert ([g.group.id for g in drawn.groups], drawn.ages) == (["g3", "g4"], (2, 1))
    assert drawn.metrics(fresh=6) == {"replay/share": 0.25, "replay/age_mean": 1.5}
    replay.see([group(9, version=50)])
    assert (replay.draw().groups, kept(replay)) == ((), [])


def test_a_group_is_drawn_at_most_once_a_step_and_every_group_has_its_turn() -> None:
    replay = ReplayBuffer(RolloutSettings(replay_size=8, replay_groups=3), seed=0)
    replay.add([group(n, version=0) for n in range(8)])
    draws = [[g.group.id for g in replay.draw().groups] for _ in range(30)]
    assert all(len(set(draw)) == 3 for draw in draws)
    assert len({name for draw in draws for name in draw}) == 8


def test_a_group_survives_a_checkpoint_to_the_last_bit(tmp_path: Path) -> None:
    whole = group(1, version=4)
    before = essence(whole)
    torch.save(plain_state(packed(before)), tmp_path / "state.pt")
    after = unpacked(torch.load(tmp_path / "state.pt", weights_only=True))
    assert len(after.group.members) == len(after.scores) == 2
    assert after.scores == before.scores
    assert after.group.task == before.group.task
    assert version_of(after) == 4
    pairs = list(zip(before.group.members, after.group.members, strict=True))
    for name in arrays(*whole.group.members):
        for old, new in ((getattr(a, name), getattr(b, name)) for a, b in pairs):
            assert (old is None) == (new is None)
            assert old is None or (old.dtype == new.dtype and np.array_equal(old, new))
    assert all((a.id, a.end, a.terminated) == (b.id, b.end, b.terminated) for a, b in pairs)
    assert np.array_equal(after.scores[0].rewards, np.ones(3))  # type: ignore[union-attr, arg-type]


def test_what_is_kept_does_not_hold_on_to_a_whole_rollout() -> None:
    for member in essence(group(1, version=0)).group.members:
        assert all(getattr(member, name).base is None for name in arrays(member))
        assert not member.meta


def varied(task: Task, attempt: Trajectory) -> float:
    return float(attempt.actions[attempt.mask].sum() % 11)


def language(tiny: ModuleType) -> Build:
    def build(cfg: TrainingConfig) -> Parts:
        return tiny.build(cfg, tiny.per_attempt(varied))  # type: ignore[no-any-return]

    return build


def test_a_replayed_attempts_ratio_is_to_its_recorded_log_probabilities_and_a_fresh_ones_is_one(
    small_config: Configure, tiny_language: ModuleType
) -> None:
    cfg = small_config(**LANGUAGE)
    parts = language(tiny_language)(cfg)
    learner = Learner(parts.policy, cfg)
    first = parts.source.next()
    assert (first.metrics["replay/share"], first.metrics["replay/age_mean"]) == (0.0, None)
    recorded = {recorded_logp(m) for scored in parts.source.replay.kept for m in scored.group.members}
    learner.update(first)
    batch = parts.source.next()
    assert batch.metrics["replay/share"] == pytest.approx(2 / 5)
    assert batch.metrics["replay/age_mean"] == 1.0
    assert (batch.rows, batch.attempts, len(batch.records)) == (20, 12, 12)
    with torch.no_grad():
        now = parts.policy.evaluate(batch.inputs).logp
    ratio = (now - batch.behavior_logp).exp()
    fresh, replayed = torch.arange(20) < 12, torch.arange(20) >= 12
    assert ratio[fresh][batch.mask[fresh]].sub(1).abs().max() < 1e-4
    assert ratio[replayed][batch.mask[replayed]].sub(1).abs().max() > 0.01
    pairs = zip(batch.behavior_logp[replayed], batch.mask[replayed], strict=True)
    assert {tuple(logp[mask].tolist()) for logp, mask in pairs} <= recorded
    stats = learner.update(batch)
    assert stats["policy/ratio_max"] == pytest.approx(float(ratio[batch.mask].max()), rel=1e-3)


def recorded_logp(member: Trajectory) -> tuple[float, ...]:
    return tuple(member.behavior_logp[member.mask].tolist())


def test_replayed_attempts_stand_against_their_own_group(small_config: Configure, tiny_language: ModuleType) -> None:
    parts = language(tiny_language)(small_config(**LANGUAGE, advantage_normalization=False))
    parts.source.next()
    batch = parts.source.next()
    per_answer = (batch.advantages.sum(1) / batch.mask.sum(1)).reshape(5, 4)
    assert per_answer.mean(1).abs().max() < 1e-5
    assert per_answer.abs().sum(1).min() > 0


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("kind", ["language", "control", "critic"])
def test_an_interrupted_run_replays_what_it_would_have_replayed(
    small_config: Configure, tiny_language: ModuleType, numbers: Numbers, kind: str, steps: int
) -> None:
    build = language(tiny_language) if kind == "language" else control.build
    changes = dict(LANGUAGE) if kind == "language" else {"replay_size": 6, "replay_groups": 2, "replay_max_age": 2}
    changes |= {"estimator": "gae"} if kind == "critic" else {}
    whole, broken = (create_run(small_config(**changes, run_name=name)) for name in ("whole", "broken"))
    finish(execute(whole, build))
    finish(execute(broken, build), steps)
    finish(execute(broken, build))
    assert numbers(broken) == numbers(whole)
    assert [metrics["replay/share"] for _, metrics, _ in numbers(whole)["steps"]][-1] > 0


def finish(events: Iterator[Event], steps: int | None = None) -> None:
    for event in events:
        if event.type == "step" and event.step == steps:
            return


def buffer(size: int = 3, groups: int = 2, age: int = 2, seed: int = 0) -> ReplayBuffer:
    return ReplayBuffer(RolloutSettings(replay_size=size, replay_groups=groups, replay_max_age=age), seed)


@pytest.mark.parametrize(("now", "left"), [(3, ["g1", "g2", "g3"]), (4, ["g2", "g3"]), (5, ["g3"]), (6, [])])
def test_a_group_is_replayed_up_to_its_greatest_age_and_never_again(now: int, left: list[str]) -> None:
    replay = buffer(size=9, groups=9)
    replay.add([group(n, version=n) for n in (1, 2, 3)])
    replay.see([group(9, version=now)])
    drawn = replay.draw()
    assert [g.group.id for g in drawn.groups] == left == kept(replay)
    assert drawn.ages == tuple(now - int(name[1:]) for name in left)


def test_the_policys_version_never_goes_back_and_prompts_do_not_count() -> None:
    """`group` has a first token that is not the policy's own; a member without an action says nothing."""
    replay = buffer()
    replay.see([group(1, version=7)])
    replay.see([group(2, version=3)])
    assert replay.version == 7
    idle = group(3, version=99)
    idle = replace(idle, group=replace(idle.group, members=tuple(
        replace(m, mask=np.zeros(3, bool)) for m in idle.group.members)))  # fmt: skip
    replay.see([idle])
    assert (replay.version, version_of(idle)) == (7, 0)


def test_a_group_is_as_old_as_its_oldest_own_action() -> None:
    mixed = group(1, version=5)
    members = list(mixed.group.members)
    members[1] = replace(members[1], versions=np.array([0, 8, 3]))
    assert version_of(replace(mixed, group=replace(mixed.group, members=tuple(members)))) == 3


@pytest.mark.parametrize(("held", "wanted", "drawn"), [(0, 2, 0), (1, 2, 1), (2, 2, 2), (3, 2, 2), (3, 0, 0)])
def test_as_many_groups_are_drawn_as_there_are_and_from_old_to_new(held: int, wanted: int, drawn: int) -> None:
    replay = buffer(groups=wanted)
    replay.add([group(n, version=0) for n in range(held)])
    for _ in range(5):
        names = [g.group.id for g in replay.draw().groups]
        assert len(names) == drawn
        assert names == sorted(names)


def test_a_share_counts_fresh_and_replayed_groups() -> None:
    two = Replayed((group(1, 0), group(2, 0)), (3, 4))
    assert two.metrics(fresh=6) == {"replay/share": 0.25, "replay/age_mean": 3.5}
    assert two.metrics(fresh=0)["replay/share"] == 1.0
    assert Replayed().metrics(fresh=0) == {"replay/share": 0.0, "replay/age_mean": None}


def test_draws_depend_on_the_seed_and_go_on_after_a_resume() -> None:
    def draws(replay: ReplayBuffer, times: int = 6) -> list[list[str]]:
        return [[g.group.id for g in replay.draw().groups] for _ in range(times)]

    def filled(seed: int) -> ReplayBuffer:
        replay = buffer(size=8, groups=3, seed=seed)
        replay.add([group(n, version=0) for n in range(8)])
        return replay

    one, other, same = filled(0), filled(1), filled(0)
    first = draws(one)
    assert first == draws(same) != draws(other)
    one.see([group(0, version=2)])
    resumed = buffer(size=8, groups=3, seed=5)
    resumed.load_state_dict(one.state_dict())
    assert resumed.version == 2
    assert draws(resumed) == draws(one)


def test_a_buffer_made_smaller_keeps_the_newest_of_what_was_saved() -> None:
    replay = buffer(size=8)
    replay.add([group(n, version=0) for n in range(8)])
    smaller = buffer(size=3)
    smaller.load_state_dict(replay.state_dict())
    assert kept(smaller) == ["g5", "g6", "g7"]
    smaller.add([group(8, version=0)])
    assert kept(smaller) == ["g6", "g7", "g8"]


def test_what_is_kept_of_a_group_is_its_scored_attempts_and_a_copy_of_them() -> None:
    whole = group(1, version=4)
    part = essence(whole)
    assert [m.id for m in part.group.members] == ["g1/m0", "g1/m1"]
    assert part.scores == whole.scores[:2]
    assert part.group.task == Task("t1", None, 1)
    whole.group.members[0].actions[:] = 99
    assert part.group.members[0].actions.tolist() == [0, 1, 2]
