"""What environments and policies must return, at the edges: spaces, masks, shapes, kinds of numbers, sizes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ContractError, GroupwiseError
from groupwise.rollout import contract, recording
from groupwise.rollout.checker import check_environment
from groupwise.rollout.episodes import collect_groups, evaluate_greedy
from groupwise.rollout.segments import EnvironmentCopies
from groupwise.types import LARGEST_REWARD, Box, Discrete, End, MultiDiscrete, Task


def env(count: int = 4, space: Any = None, mask: Any = None, **more: Any) -> Any:
    made = SimpleNamespace(observation_size=2, action_count=count, max_steps=5, **more)
    if space is not None:
        made.action_space = space
    if mask is not None:
        made.action_mask = lambda: mask
    return made


@pytest.mark.parametrize(("space", "numbers", "shape"), [
    (None, 4, ()), (Discrete(3), 3, ()), (MultiDiscrete((2, 3)), 5, (2,)), (Box((0.0, -1.0), (1.0, 1.0)), 2, (2,)),
])  # fmt: skip
def test_an_action_space_needs_as_many_numbers_as_it_has(space: Any, numbers: int, shape: tuple[int, ...]) -> None:
    found = contract.action_space_of(env(numbers, space))
    assert found == (space or Discrete(4))
    assert found.shape == shape
    if space is not None:
        for wrong in (numbers - 1, numbers + 1):
            with pytest.raises(ContractError, match=f"action_count must be {numbers}"):
                contract.action_space_of(env(wrong, space))


ALL = np.ones((3, 5), bool)


@pytest.mark.parametrize("mask", [
    ALL.astype(int), ALL[:2], ALL[:, :4], ALL.tolist(), np.zeros((3, 5), bool), ALL & (np.arange(3) != 1)[:, None],
], ids=str)  # fmt: skip
def test_a_mask_that_is_no_mask_is_refused(mask: Any) -> None:
    with pytest.raises(ContractError, match=r"action_mask\(\) must"):
        contract.action_mask_of(env(5, mask=mask), 3)


def test_a_mask_of_several_choices_allows_something_in_each() -> None:
    space = MultiDiscrete((2, 3))
    allowed = np.array([[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 1, 0]], bool)
    assert contract.action_mask_of(env(5, space, allowed), 3) is allowed
    for choice in (slice(0, 2), slice(2, 5)):
        none = allowed.copy()
        none[1, choice] = False
        with pytest.raises(ContractError, match="must allow every copy some action"):
            contract.action_mask_of(env(5, space, none), 3)
    assert contract.action_mask_of(env(5), 3) is None
    assert contract.action_mask_of(SimpleNamespace(action_mask=lambda: None), 3) is None  # type: ignore[arg-type]


def test_random_actions_are_allowed_ones_and_every_one_of_them() -> None:
    rng = np.random.default_rng(0)
    mask = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], bool)
    drawn = np.array([contract.random_actions(env(4, mask=mask), rng, 2) for _ in range(300)])
    assert [set(column.tolist()) for column in drawn.T] == [{0, 2}, {3}]
    assert abs((drawn[:, 0] == 0).mean() - 0.5) < 0.1
    free = np.array([contract.random_actions(env(3), rng, 1)[0] for _ in range(300)])
    assert np.bincount(free, minlength=3).min() > 60
    several = np.array([[1, 0, 0, 1, 1]], bool)
    pairs = np.array([contract.random_actions(env(5, MultiDiscrete((2, 3)), several), rng, 1)[0] for _ in range(100)])
    assert {tuple(pair) for pair in pairs.tolist()} == {(0, 1), (0, 2)}


def test_random_numbers_fill_a_box_and_are_normal_where_it_is_open() -> None:
    box = Box((-2.0, 5.0, -np.inf, 0.0), (-1.0, 7.0, np.inf, np.inf))
    drawn = contract.random_actions(env(4, box), np.random.default_rng(0), 2000)
    assert (drawn.shape, drawn.dtype) == ((2000, 4), np.float32)
    assert np.allclose(drawn[:, :2].min(0), [-2, 5], atol=0.02)
    assert np.allclose(drawn[:, :2].max(0), [-1, 7], atol=0.02)
    assert np.allclose(drawn[:, :2].mean(0), [-1.5, 6], atol=0.06)
    assert np.allclose(drawn[:, 2:].std(0), 1, atol=0.1)
    assert np.allclose(drawn[:, 2:].mean(0), 0, atol=0.1)


@pytest.mark.parametrize(("space", "actions", "sound"), [
    (Discrete(4), np.zeros(3, np.int64), True), (Discrete(4), np.zeros(3, np.uint8), True),
    (Discrete(4), np.zeros(3), False), (Discrete(4), np.zeros((3, 1), int), False), (Discrete(4), [0, 0, 0], False),
    (Discrete(4), np.zeros(2, int), False), (Discrete(4), np.zeros(3, bool), False),
    (MultiDiscrete((2, 2)), np.zeros((3, 2), int), True), (MultiDiscrete((2, 2)), np.zeros(3, int), False),
    (Box((0.0,), (1.0,)), np.zeros((3, 1), np.float32), True), (Box((0.0,), (1.0,)), np.zeros((3, 1), int), False),
    (Box((0.0,), (1.0,)), np.zeros(3), False),
])  # fmt: skip
def test_what_a_policy_may_choose(space: Any, actions: Any, sound: bool) -> None:
    logp = np.zeros(3, np.float32)
    if sound:
        assert contract.check_choice(object(), (actions, logp), 3, space) == (actions, logp)
    else:
        with pytest.raises(ContractError, match="actions must be"):
            contract.check_choice(object(), (actions, logp), 3, space)


@pytest.mark.parametrize("logp", [np.zeros(2), np.zeros((3, 1)), np.zeros(3, int), [0.0, 0.0, 0.0], None])
def test_log_probabilities_are_one_float_a_copy(logp: Any) -> None:
    with pytest.raises(ContractError, match="log-probabilities must be a float array of shape"):
        contract.check_choice(object(), (np.zeros(3, int), logp), 3, Discrete(4))


OBS, REWARDS, FLAGS = np.zeros((3, 2)), np.zeros(3), np.zeros(3, bool)


@pytest.mark.parametrize("rewards", [REWARDS, REWARDS.astype(np.float32), np.zeros(3, int), np.zeros(3, np.uint8)])
def test_rewards_may_be_any_numbers(rewards: Any) -> None:
    assert contract.check_step(env(), (OBS, rewards, FLAGS, FLAGS), 3)[1] is rewards


@pytest.mark.parametrize("answer", [
    [OBS, REWARDS, FLAGS, FLAGS], (OBS, REWARDS, FLAGS), (OBS, REWARDS, FLAGS, FLAGS, {}), None,
    (OBS[:2], REWARDS, FLAGS, FLAGS), (OBS[:, :1], REWARDS, FLAGS, FLAGS), (OBS.astype(int), REWARDS, FLAGS, FLAGS),
    (OBS, REWARDS[:2], FLAGS, FLAGS), (OBS, REWARDS > 0, FLAGS, FLAGS), (OBS, REWARDS + 0j, FLAGS, FLAGS),
    (OBS, REWARDS, FLAGS.astype(int), FLAGS), (OBS, REWARDS, FLAGS, FLAGS.astype(int)),
    (OBS, REWARDS, FLAGS[:2], FLAGS), (OBS, REWARDS, FLAGS, FLAGS[None]),
], ids=lambda _: "")  # fmt: skip
def test_what_a_step_may_not_return(answer: Any) -> None:
    with pytest.raises(ContractError):
        contract.check_step(env(), answer, 3)


@pytest.mark.parametrize(("size", "sound"), [(1, True), (np.int64(3), True), (0, False), (True, False), (1.0, False)])
@pytest.mark.parametrize("name", contract.SIZES)
def test_sizes_are_counts(name: str, size: Any, sound: bool) -> None:
    made = env()
    setattr(made, name, size)
    if sound:
        contract.check_sizes(made)
    else:
        with pytest.raises(ContractError, match=f"{name} must be a positive integer"):
            contract.check_sizes(made)


def test_an_environment_that_raises_is_named_and_our_own_errors_pass() -> None:
    def fail(error: Exception) -> Any:
        def reset(seeds: Any) -> Any:
            raise error

        return SimpleNamespace(name="Pole", reset=reset)

    with pytest.raises(ContractError, match=r"Pole\.reset raised OSError: gone"):
        contract.ask(fail(OSError("gone")), "reset", [1])
    with pytest.raises(GroupwiseError, match="^ours$"):
        contract.ask(fail(GroupwiseError("ours")), "reset", [1])
    assert contract.ask(SimpleNamespace(step=lambda a, b: a - b), "step", 5, 3) == 2  # type: ignore[arg-type]


class Clock:
    """Two copies that count; copy 0 forbids action 0 at odd steps. Each ends at its length; rewards are given."""

    observation_size, action_count, max_steps = 1, 2, 3

    def __init__(self, lengths: tuple[int, ...] = (9, 9), pay: float = 1.0, masked: bool = False) -> None:
        self.lengths, self.pay, self.masked = np.array(lengths), pay, masked
        self.asked: list[Any] = []

    def reset(self, seeds: Any) -> Any:
        self.clock, self.seeds = 0, list(seeds)
        return self._obs()

    def _obs(self) -> Any:
        return np.full((len(self.seeds), 1), self.clock, np.float32)

    def action_mask(self) -> Any:
        return np.array([[self.clock % 2 == 0, True], [True, True]]) if self.masked else None

    def step(self, actions: Any) -> Any:
        self.asked.append(actions.tolist())
        self.clock += 1
        over = self.clock >= self.lengths
        pay = np.array([self.pay, 1.0])
        return self._obs(), np.where(self.clock <= self.lengths, pay, 0.0), over, over & False


class First:
    """Takes the first action that is allowed."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
        self.seen.append(None if mask is None else mask.tolist())
        assert uniforms.shape == (len(obs),)
        return self.greedy(obs, mask), np.full(len(obs), -0.5, np.float32)

    def greedy(self, obs: Any, mask: Any = None) -> Any:
        return np.zeros(len(obs), np.int64) if mask is None else mask.argmax(1)


def play(made: Any, actor: Any = None) -> Any:
    return collect_groups(made, actor or First(), [Task("t", None, 7)], 2, np.random.default_rng(0))[0].members


@pytest.mark.parametrize(("pay", "ends"), [
    (LARGEST_REWARD, End.TRUNCATED), (-LARGEST_REWARD, End.TRUNCATED),
    (np.nextafter(LARGEST_REWARD, 2e15), End.ENV_ERROR), (-1.1 * LARGEST_REWARD, End.ENV_ERROR),
])  # fmt: skip
def test_a_reward_may_be_as_large_as_the_largest(pay: float, ends: End) -> None:
    first, other = play(Clock(pay=pay))
    assert (first.end, other.end) == (ends, End.TRUNCATED)
    assert len(first) == (3 if ends is End.TRUNCATED else 0)
    assert len(other) == 3


def test_a_start_that_is_not_finite_ends_that_copy_before_the_policy_sees_it() -> None:
    class Odd(Clock):
        def reset(self, seeds: Any) -> Any:
            obs = super().reset(seeds)
            obs[0] = np.nan
            return obs

    class Seeing(First):
        def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
            assert np.isfinite(obs).all()
            return super().act(obs, uniforms, mask)

    lost, other = play(Odd(), Seeing())
    assert (lost.end, len(lost), other.end, len(other)) == (End.ENV_ERROR, 0, End.TRUNCATED, 3)


def test_a_greedy_evaluation_checks_the_sizes_too() -> None:
    made = Clock()
    made.max_steps = 0
    with pytest.raises(ContractError, match="max_steps must be a positive integer"):
        evaluate_greedy(made, First(), [])


def test_masks_reach_the_policy_and_are_kept_with_the_steps_they_belong_to() -> None:
    actor, made = First(), Clock((2, 9), masked=True)
    first, other = play(made, actor)
    assert actor.seen == [[[True, True], [True, True]], [[False, True], [True, True]], [[True, True], [True, True]]]
    assert (first.actions.tolist(), other.actions.tolist()) == ([0, 1], [0, 0, 0])
    assert first.action_mask.tolist() == [[True, True], [False, True]]
    assert other.action_mask.tolist() == [[True, True]] * 3
    assert play(Clock())[0].action_mask is None
    assert evaluate_greedy(Clock((2, 9), masked=True), First(), [1, 2])[1].tolist() == [2, 3]


def test_every_copy_of_a_group_starts_from_its_tasks_seed() -> None:
    made = Clock((1, 1, 1, 1))  # type: ignore[arg-type]
    made.step = lambda actions: (np.zeros((4, 1)), np.zeros(4), np.ones(4, bool), np.zeros(4, bool))  # type: ignore[method-assign]
    collect_groups(made, First(), [Task("a", None, 5), Task("b", None, 6)], 2, np.random.default_rng(0))
    assert made.seeds == [5, 5, 6, 6]


def test_the_last_observation_is_kept_of_what_was_cut_and_of_nothing_else() -> None:
    ended, cut = play(Clock((3, 9)))
    assert (ended.end, ended.terminated, ended.last_obs) == (End.FINISHED, True, None)
    assert (cut.end, cut.terminated, cut.last_obs.tolist()) == (End.TRUNCATED, False, [3.0])
    assert [m.obs[:, 0].tolist() for m in (ended, cut)] == [[0, 1, 2]] * 2
    assert ended.behavior_logp.tolist() == [-0.5] * 3


@pytest.mark.parametrize("steps", [2, 3, 4, 9])
def test_a_recording_grows_as_long_as_its_environment_may_run(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(recording, "FIRST_ROWS", 2)
    made = Clock((99, 99))
    made.max_steps = steps
    first, _ = play(made)
    assert first.obs[:, 0].tolist() == list(range(steps))
    assert first.rewards.tolist() == [1.0] * steps
    assert first.last_obs.tolist() == [steps]


def test_returns_leave_out_what_came_after_the_end_and_are_nothing_where_it_failed() -> None:
    returns, lengths = evaluate_greedy(Clock((2, 9), pay=5.0), First(), [1, 2])
    assert (returns.tolist(), lengths.tolist()) == ([10.0, 3.0], [2, 3])
    returns, lengths = evaluate_greedy(Clock(pay=np.inf), First(), [1, 2])
    assert (np.isnan(returns).tolist(), lengths.tolist()) == ([True, False], [0, 3])


class Honest:
    """Keeps the contract: each copy shows (seed, clock), is paid 1 a step, ends at the limit and then stands still.

    `what` names the promise it breaks.
    """

    observation_size, action_count = 2, 2

    def __init__(self, what: str = "", max_steps: int = 3) -> None:
        self.what, self.max_steps, self.plays = what, max_steps, 0

    def reset(self, seeds: Any) -> Any:
        self.seeds, self.clock, self.plays = np.array(seeds), 0, self.plays + 1
        self.paid = np.zeros(len(seeds))
        return self.observe()

    def observe(self) -> Any:
        shown = min(self.clock, self.max_steps) if self.what != "moves" else self.clock
        if self.what == "obs" and self.plays == 3:
            shown += 1
        late = np.nan if self.what == "nan" and self.clock == 2 else 0.0
        own = self.seeds if self.what != "one generator" else np.arange(len(self.seeds))
        return np.stack([own + np.where(own == 2, late, 0.0), np.full(len(own), shown)], axis=1).astype(np.float32)

    def step(self, actions: Any) -> Any:
        self.clock += 1
        late = self.clock > self.max_steps
        pay = self.paid if self.what == "reused" else np.zeros(len(self.seeds))
        pay[...] = 0.0 if late and self.what != "pays" else 1.0
        if self.what == "rewards" and self.plays == 3:
            pay[1] = 7.0
        over = np.full(len(self.seeds), self.clock >= self.max_steps and self.what != "endless")
        if self.what == "one endless":
            over &= self.seeds != 2
        falls, cut = np.zeros_like(over), over.copy()
        if self.plays == 3:
            falls = over & (self.what == "terminated")
            cut &= self.what != "truncated"
        return self.observe(), pay, falls, cut


@pytest.mark.parametrize(("what", "code", "words"), [
    ("moves", "stays_put", "Copy 0 had ended, but moved at step 3 from [1.0, 3.0] to [1.0, 4.0]."),
    ("pays", "earns_nothing_more", "Copy 0 had ended, but earned 1.0 at step 3."),
    ("endless", "ends", "Copy 0 was neither terminated nor truncated after max_steps = 3."),
    ("one endless", "ends", "Copy 2 was neither terminated nor truncated after max_steps = 3."),
    ("nan", "not_finite", "Copy 2 has observation [nan  2.] at step 2."),
    ("one generator", "equal_seeds", "Two copies reset with seed 1 start differently: [0.0, 0.0] and [1.0, 0.0]."),
    ("obs", "reproducible", "The same seeds and actions gave a different `obs` the second time."),
    ("rewards", "reproducible", "The same seeds and actions gave a different `rewards` the second time."),
    ("terminated", "reproducible", "The same seeds and actions gave a different `terminated` the second time."),
    ("truncated", "reproducible", "The same seeds and actions gave a different `truncated` the second time."),
    ("reused", "new_arrays", "A later call changed arrays that an earlier one returned: rewards."),
])  # fmt: skip
def test_each_rule_of_the_checker_sees_its_own_breach(what: str, code: str, words: str) -> None:
    assert check_environment(Honest()) == []
    found = check_environment(Honest(what))  # type: ignore[arg-type]
    assert [(failure.code, failure.message) for failure in found] == [(code, words)]


def test_an_environment_too_long_to_be_played_to_its_end_is_not_called_endless() -> None:
    assert check_environment(Honest("endless", max_steps=2001)) == []  # type: ignore[arg-type]
    (found,) = check_environment(Honest("endless", max_steps=2000))  # type: ignore[arg-type]
    assert found.code == "ends"


class Scripted:
    """Three copies; at every step each says what the script has for it: "f" falls, "c" is cut off, "b" is both."""

    observation_size, action_count, max_steps = 1, 2, 4

    def __init__(self, *script: str) -> None:
        self.script = script

    def reset(self, seeds: Any) -> Any:
        self.clock = 0
        return np.zeros((len(seeds), 1))

    def step(self, actions: Any) -> Any:
        said = np.array(list(self.script[self.clock]))
        self.clock += 1
        obs = np.full((len(actions), 1), self.clock, np.float64)
        return obs, np.arange(3.0) + 10 * self.clock, np.isin(said, ["f", "b"]), np.isin(said, ["c", "b"])


def test_a_copy_ends_once_and_as_it_ended_first() -> None:
    """Copy 0 is cut off and then falls, copy 1 falls at its limit of time, copy 2 falls and is then cut off."""
    made: Any = Scripted("c.f", "fbc", "fff", "ccc")
    (group,) = collect_groups(
        made, First(), [Task("t", None, 1)], 3, np.random.default_rng(0), version=6, prefix="step 9"
    )
    assert [m.end for m in group.members] == [End.TRUNCATED, End.FINISHED, End.FINISHED]
    assert [m.terminated for m in group.members] == [False, True, True]
    assert [m.rewards.tolist() for m in group.members] == [[10.0], [11.0, 21.0], [12.0]]
    cut, fallen, other = (m.last_obs for m in group.members)
    assert (cut.tolist(), fallen, other) == ([1.0], None, None)
    assert [m.versions.tolist() for m in group.members] == [[6], [6, 6], [6]]
    assert [m.id for m in group.members] == [f"step 9/g0/m{n}" for n in range(3)]
    assert made.clock == 2, "nobody is left after the second step"


@pytest.mark.parametrize(("copy", "step", "sound"), [(0, 0, False), (0, 1, True), (1, 1, False), (2, 1, True)])
def test_a_log_probability_must_be_finite_where_its_copy_still_acts(copy: int, step: int, sound: bool) -> None:
    class Unsure(First):
        def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
            actions, logp = super().act(obs, uniforms, mask)
            if len(self.seen) == step + 1:
                logp[copy] = -np.inf
            return actions, logp

    def attempt() -> Any:
        made: Any = Scripted("c.f", "fbc")
        return collect_groups(made, Unsure(), [Task("t", None, 1)], 3, np.random.default_rng(0))

    if sound:
        assert len(attempt()) == 1
    else:
        with pytest.raises(ContractError, match="log-probability of a sampled action must be finite, not float: -inf"):
            attempt()


def test_copies_that_are_stepped_after_their_end_draw_numbers_too() -> None:
    """One number a copy and step, whoever has ended: so what one copy does never depends on the others' lengths."""
    drawn = []

    class Noting(First):
        def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
            drawn.append(uniforms.tolist())
            return super().act(obs, uniforms, mask)

    made: Any = Scripted("c.f", "fbc")
    collect_groups(made, Noting(), [Task("t", None, 1)], 3, np.random.default_rng(4))
    assert drawn == np.random.default_rng(4).random((2, 3)).tolist()


def test_a_step_at_which_nothing_is_forbidden_needs_no_mask() -> None:
    """An environment may say None where all actions are allowed: here at the start, and again from step 2 on."""

    class Sometimes(Clock):
        def action_mask(self) -> Any:
            return np.array([[False, True], [True, True]]) if self.clock == 1 else None

    actor = First()
    first, other = play(Sometimes((3, 2)), actor)
    assert actor.seen == [None, [[False, True], [True, True]], None]
    assert first.action_mask.tolist() == [[True, True], [False, True], [True, True]]
    assert other.action_mask.tolist() == [[True, True]] * 2
    assert (first.actions.tolist(), other.actions.tolist()) == ([0, 1, 0], [0, 0])


def test_one_copy_alone_is_played_to_its_end() -> None:
    class Alone(Clock):
        def step(self, actions: Any) -> Any:
            return tuple(part[:1] for part in super().step(actions))

    ((member,),) = (g.members for g in collect_groups(Alone(), First(), [Task("t")], 1, np.random.default_rng(0)))
    assert (len(member), member.end) == (3, End.TRUNCATED)


class Several:
    """Two copies of an environment with other actions than one choice; it keeps what it is asked to do."""

    observation_size, max_steps = 1, 3

    def __init__(self, space: Any, count: int) -> None:
        self.action_space, self.action_count = space, count
        self.asked: list[Any] = []

    def reset(self, seeds: Any) -> Any:
        return np.zeros((len(seeds), 1), np.float32)

    restart = reset

    def step(self, actions: Any) -> Any:
        self.asked.append(actions.copy())
        none = np.zeros(len(actions), bool)
        return np.zeros((len(actions), 1), np.float32), np.zeros(len(actions)), none, none.copy()


@pytest.mark.parametrize(("space", "count", "dtype"), [
    (MultiDiscrete((2, 3)), 5, np.int64), (Box((-1.0, 0.0, 2.0), (1.0, 9.0, 4.0)), 3, np.float32),
])  # fmt: skip
def test_actions_of_any_space_are_drawn_given_and_kept_in_its_shape(space: Any, count: int, dtype: Any) -> None:
    shape = space.shape

    class Drawing:
        def act(self, obs: Any, uniforms: Any, mask: Any = None) -> Any:
            assert uniforms.shape == (2, *shape)
            return (uniforms * 2).astype(dtype), np.zeros(2, np.float32)

    made: Any = Several(space, count)
    (group,) = collect_groups(made, Drawing(), [Task("t")], 2, np.random.default_rng(3))
    drawn = (np.random.default_rng(3).random((3, 2, *shape)) * 2).astype(dtype)
    np.testing.assert_array_equal(np.stack(made.asked), drawn)
    for copy, member in enumerate(group.members):
        assert member.actions.dtype == dtype
        np.testing.assert_array_equal(member.actions, drawn[:, copy])
    apart: Any = Several(space, count)
    segment = EnvironmentCopies(apart, 2, lambda number, copy: Task(str(number)), 3).play(Drawing(), 4)
    np.testing.assert_array_equal(segment.actions, np.stack(apart.asked))
    assert segment.actions.shape == (4, 2, *shape)
