from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.control.classic.cartpole import CartPole
from groupwise.errors import ContractError
from groupwise.rollout.checker import check_environment


def steadying(obs):
    """Push towards where the pole falls: balances for hundreds of steps."""
    return (obs[:, 2] + 0.5 * obs[:, 3] + 0.02 * obs[:, 0] + 0.05 * obs[:, 1] > 0).astype(np.int64)


def compare_with_gymnasium(seeds, choose, max_steps=500):
    """Play one episode per seed in both, agreeing in every bit; returns the steps and how each ended."""
    ours = CartPole(max_steps=max_steps)
    theirs = [gymnasium.make("CartPole-v1", max_episode_steps=max_steps) for _ in seeds]
    obs = ours.reset(seeds)
    for row, env, seed in zip(obs, theirs, seeds, strict=True):
        np.testing.assert_array_equal(row, env.reset(seed=seed)[0], strict=True)
    live, endings, steps = set(range(len(seeds))), {}, 0
    while live:
        actions = choose(obs)
        obs, rewards, terminated, truncated = ours.step(actions)
        for i in sorted(live):
            expected, reward, ended, cut, _ = theirs[i].step(int(actions[i]))
            np.testing.assert_array_equal(obs[i], expected, strict=True)
            np.testing.assert_array_equal(ours.states[i], theirs[i].unwrapped.state, strict=True)
            assert (rewards[i], terminated[i], truncated[i]) == (reward, ended, cut)
            steps += 1
            if ended or cut:
                endings[i] = (ended, cut)
                live.remove(i)
    return steps, [endings[i] for i in range(len(seeds))]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_10_000_random_steps_equal_gymnasiums_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    steps = 0
    while steps < 10_000:
        seeds = rng.integers(2**31, size=16).tolist()
        steps += compare_with_gymnasium(seeds, lambda obs: rng.integers(0, 2, len(obs)))[0]


def test_long_episodes_equal_gymnasiums_up_to_the_time_limit():
    steps, endings = compare_with_gymnasium([3, 4, 5], steadying)
    assert steps == 1500
    assert endings == [(False, True)] * 3


def test_a_pole_that_falls_on_the_last_step_is_both_terminated_and_truncated():
    steps, endings = compare_with_gymnasium([7], lambda obs: np.zeros(len(obs), np.int64))
    assert endings == [(True, False)]
    _, endings = compare_with_gymnasium([7], lambda obs: np.zeros(len(obs), np.int64), max_steps=steps)
    assert endings == [(True, True)]


@given(seed=st.integers(0, 2**63))
@settings(max_examples=30, deadline=None)
def test_a_seed_starts_where_gymnasium_starts_it_and_equal_seeds_start_alike(seed):
    expected, _ = gymnasium.make("CartPole-v1").reset(seed=seed)
    obs = CartPole().reset([seed, seed + 1, seed])
    np.testing.assert_array_equal(obs[0], expected)
    np.testing.assert_array_equal(obs[2], expected)
    assert not np.array_equal(obs[1], expected)


def test_a_copy_that_has_ended_stays_put_and_earns_nothing_while_the_others_go_on():
    env, alone = CartPole(), CartPole()
    env.reset([1, 2])
    alone.set_state(env.states[1:])
    answers = []
    for _ in range(40):
        steady = steadying(env.states)[1]
        answers.append(env.step(np.array([1, steady])))
        np.testing.assert_array_equal(answers[-1][0][1], alone.step(np.array([steady]))[0][0])
    obs, rewards, terminated, truncated = (np.stack(arrays) for arrays in zip(*answers, strict=True))
    end = int(terminated[:, 0].argmax())
    assert 0 < end < 30
    assert terminated[end:, 0].all()
    assert (obs[end:, 0] == obs[end, 0]).all()
    assert rewards[:, 0].tolist() == [1.0] * (end + 1) + [0.0] * (39 - end)
    assert rewards[:, 1].all()
    assert not terminated[:, 1].any()
    assert not truncated.any()


def test_a_copy_that_fell_before_the_time_limit_is_never_truncated():
    env = CartPole(max_steps=30)
    env.reset([1, 2])
    for _ in range(33):
        _, rewards, terminated, truncated = env.step(np.array([1, steadying(env.states)[1]]))
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert rewards.tolist() == [0.0, 0.0]


states = st.lists(st.tuples(*[st.floats(-0.2, 0.2)] * 4), min_size=1, max_size=5)


@given(states=states, actions=st.lists(st.integers(0, 1), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_a_state_that_is_read_and_set_has_the_same_future(states, actions):
    env = CartPole()
    obs = env.set_state(np.array(states))
    np.testing.assert_array_equal(obs, np.array(states, np.float32))
    env.step(np.full(len(states), actions[0]))
    twin = CartPole()
    twin.set_state(env.states)
    np.testing.assert_array_equal(twin.states, env.states)
    if not (np.abs(env.states[:, [0, 2]]) > [2.4, 0.2]).any():
        for action in actions:
            np.testing.assert_array_equal(
                env.step(np.full(len(states), action))[0], twin.step(np.full(len(states), action))[0]
            )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])  # noqa: S301
def test_a_copied_environment_goes_on_as_the_original(duplicate):
    env = CartPole()
    env.reset([1, 2, 3])
    env.step(np.array([0, 1, 0]))
    twin = duplicate(env)
    for _ in range(20):
        actions = steadying(env.states)
        for one, other in zip(env.step(actions), twin.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_negative_force_swaps_left_and_right():
    env, mirrored = CartPole(), CartPole(force=-10.0)
    env.reset([5])
    mirrored.reset([5])
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(env.step(np.array([action]))[0], mirrored.step(np.array([1 - action]))[0])


def test_a_shorter_pole_falls_sooner():
    def lasts(env):
        env.reset([5])
        return next(t for t in range(500) if env.step(np.array([1]))[2][0])

    assert lasts(CartPole(half_length=0.1)) < lasts(CartPole()) < lasts(CartPole(half_length=2.0))


@pytest.mark.parametrize(
    ("actions", "quoted"),
    [
        (np.array([0, 2]), "array([0, 2])"),
        (np.array([-1, 0]), "array([-1,  0])"),
        (np.array([0]), "array([0])"),
        (np.array([[0, 1]]), "array([[0, 1]])"),
        (np.array([0.0, 1.0]), "array([0., 1.])"),
        ([0, 1], "[0, 1]"),
    ],
)
def test_wrong_actions_are_refused_with_the_value(actions, quoted):
    env = CartPole()
    env.reset([1, 2])
    before = env.states
    with pytest.raises(ContractError) as error:
        env.step(actions)
    assert quoted in str(error.value)
    np.testing.assert_array_equal(env.states, before)


def test_stepping_before_the_first_reset_says_what_to_do():
    with pytest.raises(ContractError, match="reset"):
        CartPole().step(np.array([0]))


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((2, 3)), np.array([[0.0, np.nan, 0.0, 0.0]])])
def test_impossible_states_are_refused(wrong):
    with pytest.raises(ContractError, match=r"\[N, 4\]"):
        CartPole().set_state(wrong)


def test_a_negative_seed_is_refused_with_the_value():
    with pytest.raises(ContractError, match="-3"):
        CartPole().reset([1, -3])


def test_it_passes_the_check_for_environments():
    assert check_environment(CartPole()) == []


def test_a_copy_that_starts_anew_goes_its_own_way_and_disturbs_no_other():
    rng = np.random.default_rng(0)
    together, alone = CartPole(max_steps=20), CartPole(max_steps=20)
    together.reset([1, 2, 3])
    for _ in range(7):
        together.step(rng.integers(0, 2, 3))
    obs = together.restart(np.array([1]), [9])
    np.testing.assert_array_equal(obs[1], alone.reset([9])[0])
    for step in range(20):
        actions = steadying(obs)
        obs, rewards, terminated, truncated = together.step(actions)
        expected, reward, ended, cut = alone.step(actions[1:2])
        np.testing.assert_array_equal(obs[1], expected[0])
        assert (rewards[1], terminated[1], truncated[1]) == (reward[0], ended[0], cut[0])
        assert truncated[0] == (step >= 12 and not terminated[0])
    assert truncated[1]
