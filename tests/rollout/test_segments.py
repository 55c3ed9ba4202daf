"""Segments by hand: copies that count, end at their own time and start anew at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.errors import ContractError
from groupwise.rollout.segments import EnvironmentCopies, SeparateEnvironments, restarting
from groupwise.types import End, Task


class Counting:
    """An episode of seed s lasts 2 + s % 3 steps, pays its seed a step and shows (seed, step).

    Odd seeds are cut off at their end, even ones fall; a seed divisible by 4 does both at once.
    """

    observation_size, action_count, max_steps = 2, 2, 9

    def __init__(self, masked: bool = False) -> None:
        self.masked = masked

    def reset(self, seeds: Any) -> Any:
        self.seeds, self.clocks = np.array(seeds), np.zeros(len(seeds), int)
        return self.observe()

    def restart(self, copies: Any, seeds: Any) -> Any:
        self.seeds[copies], self.clocks[copies] = seeds, 0
        return self.observe()

    def observe(self) -> Any:
        return np.stack([self.seeds, self.clocks], axis=1).astype(np.float32)

    def action_mask(self) -> Any:
        return np.stack([self.clocks % 2 == 0, np.ones(len(self.clocks), bool)], axis=1) if self.masked else None

    def step(self, actions: Any) -> Any:
        self.clocks += 1
        over = self.clocks >= 2 + self.seeds % 3
        return self.observe(), self.seeds * 1.0, over & (self.seeds % 2 == 0), over & (self.seeds % 4 != 2)


class Alternating:
    def __init__(self) -> None:
        self.masks: list[Any] = []

    def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
        self.masks.append(mask)
        return (uniforms > 0.5).astype(np.int64), np.log(uniforms).astype(np.float32)


def copies(environment: Any = None, count: int = 2, seed: int = 0) -> EnvironmentCopies:
    """Episode n is task/n, of seed n + 1."""
    return EnvironmentCopies(environment or Counting(), count, lambda n, copy: Task(f"{copy}/{n}", None, n + 1), seed)


# Copy 0 plays seeds 1 (three steps), 3 (two) and 5; copy 1 seeds 2 (four steps), 4 (three) and 6.
OBS = [[[1, 0], [2, 0]], [[1, 1], [2, 1]], [[1, 2], [2, 2]], [[3, 0], [2, 3]], [[3, 1], [4, 0]], [[5, 0], [4, 1]],
       [[5, 1], [4, 2]], [[5, 2], [6, 0]]]  # fmt: skip


@pytest.mark.parametrize("make", [Counting, lambda: SeparateEnvironments(Counting)])
def test_a_segment_by_hand(make: Any) -> None:
    """Seeds are handed out in the order in which copies end: 1 and 2, then 3 to copy 0, 4 to copy 1, 5, 6."""
    segment = copies(make()).play(Alternating(), 7)
    assert segment.obs.tolist() == OBS
    assert segment.rewards.tolist() == [[1, 2], [1, 2], [1, 2], [3, 2], [3, 4], [5, 4], [5, 4]]
    assert segment.terminated.astype(int).tolist() == [[0, 0], [0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 1]]
    assert segment.truncated.astype(int).tolist() == [[0, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [0, 0]]
    assert segment.cut_obs.tolist() == [[1, 3], [3, 2]]
    assert [(e.task_id, e.total, e.length, e.end) for e in segment.episodes] == [
        ("0/0", 3.0, 3, End.TRUNCATED), ("1/1", 8.0, 4, End.FINISHED), ("0/2", 6.0, 2, End.TRUNCATED),
        ("1/3", 12.0, 3, End.FINISHED),
    ]  # fmt: skip
    assert segment.allowed is None
    draws = np.random.default_rng([0, 1]).random((7, 2))
    assert segment.actions.tolist() == (draws > 0.5).astype(int).tolist()
    np.testing.assert_allclose(segment.logp, np.log(draws), rtol=1e-6)


def test_segments_join_without_a_seam() -> None:
    whole, pieces = copies().play(Alternating(), 12), copies()
    parts = [pieces.play(Alternating(), steps) for steps in (1, 4, 2, 5)]
    for name in ("actions", "logp", "rewards", "terminated", "truncated", "cut_obs"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(whole, name))
    np.testing.assert_array_equal(np.concatenate([p.obs[:-1] for p in parts]), whole.obs[:-1])
    assert sum((p.episodes for p in parts), ()) == whole.episodes
    assert parts[0].cut_obs.shape == (0, 2)


@pytest.mark.parametrize("make", [Counting, lambda: SeparateEnvironments(Counting)])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 7, 11])
def test_a_saved_state_goes_on_wherever_it_was_saved(make: Any, before: int) -> None:
    first = copies(make(), 3)
    if before:
        first.play(Alternating(), before)
    state = first.state_dict()
    assert len(state["tape"] if state["tape"] is not None else ()) <= min(before, 4), "no more than the oldest episode"
    second = copies(make(), 3, seed=9)
    second.load_state_dict(state)
    np.testing.assert_array_equal(second.totals, first.totals)
    ours, theirs = second.play(Alternating(), 9), first.play(Alternating(), 9)
    assert ours.episodes == theirs.episodes
    for name in ("obs", "actions", "rewards", "terminated", "truncated", "cut_obs"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_another_number_of_copies_is_refused() -> None:
    first = copies(count=2)
    copies(count=3).load_state_dict(first.state_dict())
    first.play(Alternating(), 1)
    with pytest.raises(ValueError, match=r"2 copies were saved, but rollout\.num_envs is now 3"):
        copies(count=3).load_state_dict(first.state_dict())


@pytest.mark.parametrize("make", [Counting, lambda masked: SeparateEnvironments(lambda: Counting(masked))])
def test_masks_are_those_before_each_step(make: Any) -> None:
    player = Alternating()
    segment = copies(make(True)).play(player, 7)
    assert segment.allowed is not None
    assert segment.allowed[..., 0].tolist() == [[clock % 2 == 0 for _, clock in row] for row in OBS[:7]]
    assert segment.allowed[..., 1].all()
    np.testing.assert_array_equal(segment.allowed, np.stack(player.masks))


class Rarely(Counting):
    """Forbids action 0 at a copy's second step, and says nothing at steps at which no copy is there."""

    def action_mask(self) -> Any:
        second = self.clocks == 1
        return np.stack([~second, np.ones(len(second), bool)], axis=1) if second.any() else None


@pytest.mark.parametrize("make", [Rarely, lambda: SeparateEnvironments(Rarely)])
def test_steps_and_copies_without_a_mask_allow_everything(make: Any) -> None:
    player = Alternating()
    segment = copies(make()).play(player, 7)
    assert segment.allowed is not None
    assert segment.allowed.shape == (7, 2, 2)
    assert segment.allowed[..., 0].tolist() == [[clock != 1 for _, clock in row] for row in OBS[:7]]
    assert segment.allowed[..., 1].all()
    said = [any(clock == 1 for _, clock in row) for row in OBS[:7]]
    assert [mask is not None for mask in player.masks] == said
    assert not all(said)


def test_seeds_of_the_generator_differ() -> None:
    actions = [copies(seed=seed).play(Alternating(), 20).actions.tolist() for seed in (0, 0, 1)]
    assert actions[0] == actions[1] != actions[2]


def test_an_environment_that_cannot_restart_gets_one_for_every_copy() -> None:
    made: list[Counting] = []

    def make() -> Any:
        made.append(Counting())
        return made[-1]

    assert restarting(make) is made[0]

    class Plain:
        observation_size, action_count, max_steps = 2, 2, 9
        name = "Plain"

        def __init__(self) -> None:
            inner = Counting()
            self.reset, self.step = inner.reset, inner.step

    apart: Any = restarting(Plain)  # type: ignore[arg-type]
    assert isinstance(apart, SeparateEnvironments)
    assert (apart.name, apart.max_steps, apart.observation_size, apart.action_count) == ("Plain", 9, 2, 2)
    assert apart.reset([5, 6, 7]).tolist() == [[5, 0], [6, 0], [7, 0]]
    assert apart.step(np.zeros(3, int))[0].tolist() == [[5, 1], [6, 1], [7, 1]]
    assert apart.restart(np.array([1]), [9]).tolist() == [[5, 1], [9, 0], [7, 1]]
    assert apart.reset([1, 2]).tolist() == [[1, 0], [2, 0]], "fewer copies than before"
    assert apart.step(np.zeros(2, int))[1].tolist() == [1.0, 2.0]


def test_arrays_that_were_given_do_not_change_later() -> None:
    apart = SeparateEnvironments(Counting)
    start = apart.reset([1, 2])
    stepped = apart.step(np.zeros(2, int))[0]
    apart.restart(np.array([0]), [7])
    assert (start.tolist(), stepped.tolist()) == ([[1, 0], [2, 0]], [[1, 1], [2, 1]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["obs", "reward", "start"])
def test_a_number_that_is_not_finite_names_its_copy(value: float, what: str) -> None:
    class Broken(Counting):
        def observe(self) -> Any:
            obs = super().observe()
            if what == "start" or (what == "obs" and self.clocks[1]):
                obs[1, 1] = value
            return obs

        def step(self, actions: Any) -> Any:
            obs, rewards, *flags = super().step(actions)
            return obs, np.where([False, what == "reward"], value, rewards), *flags

    clock, paid = (1 if what == "reward" else value), (value if what == "reward" else 0 if what == "start" else 2)
    words = rf"Broken returned the observation \[2, {clock:.3g}\] and the reward {paid:g}; both must be finite"
    with pytest.raises(ContractError, match=words):
        copies(Broken()).play(Alternating(), 3)


class Summing(Counting):
    """Counts like `Counting`, and shows the sum of the actions of the episode, each worth its step's number."""

    observation_size = 3

    def reset(self, seeds: Any) -> Any:
        self.sums = np.zeros(len(seeds))
        return super().reset(seeds)

    def restart(self, copies: Any, seeds: Any) -> Any:
        self.sums[copies] = 0
        return super().restart(copies, seeds)

    def observe(self) -> Any:
        return np.column_stack([super().observe(), self.sums]).astype(np.float32)

    def step(self, actions: Any) -> Any:
        assert actions.shape == self.clocks.shape
        self.sums += actions * (self.clocks + 1)
        return super().step(actions)


@pytest.mark.parametrize("make", [Summing, lambda: SeparateEnvironments(Summing)])
def test_every_copy_is_given_its_own_actions(make: Any) -> None:
    segment = copies(make(), 3).play(Alternating(), 12)
    sums, clocks = np.zeros(3), np.zeros(3, int)
    for t in range(12):
        assert segment.obs[t, :, 2].tolist() == sums.tolist()
        clocks += 1
        sums += segment.actions[t] * clocks
        over = segment.terminated[t] | segment.truncated[t]
        sums[over], clocks[over] = 0, 0
    assert segment.obs[12, :, 2].tolist() == sums.tolist()
    assert len(np.unique(segment.obs[..., 2])) > 4


@pytest.mark.parametrize("make", [Summing, lambda: SeparateEnvironments(Summing)])
@pytest.mark.parametrize("before", [1, 2, 3, 5, 8])
def test_a_resumed_copy_is_where_its_own_actions_had_led_it(make: Any, before: int) -> None:
    first, second = copies(make(), 3), copies(make(), 3, seed=9)
    first.play(Alternating(), before)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(second.obs, first.obs)
    ours, theirs = second.play(Alternating(), 9), first.play(Alternating(), 9)
    for name in ("obs", "actions", "logp", "rewards", "cut_obs"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_one_environment_is_made_for_every_copy_and_kept() -> None:
    made: list[Counting] = []

    def make() -> Any:
        made.append(Counting())
        return made[-1]

    apart = SeparateEnvironments(make)
    for seeds, count in (([1, 2, 3], 3), ([4, 5], 3), ([6, 7, 8, 9], 4)):
        start = apart.reset(seeds)
        assert len(made) == count
        apart.restart(np.array([0]), [77])
        assert start[:, 0].tolist() == seeds, "what was given does not change"


def test_copies_of_an_environment_without_sizes_are_refused() -> None:
    made = Counting()
    made.max_steps = 0
    with pytest.raises(ContractError, match="max_steps must be a positive integer"):
        copies(made)
