"""The vectorised Acrobot, Pendulum and mountain cars, step by step beside Gymnasium's."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest

from groupwise.control.classic.mountain_car import MountainCar, MountainCarContinuous
from groupwise.control.classic.pendulums import Acrobot, Pendulum
from groupwise.control.environments import OWN
from groupwise.errors import ContractError
from groupwise.rollout.checker import check_environment

# Here all but Acrobot's are equal in every bit. Its squares are the C library's `pow` in Gymnasium, and mountain cars'
# cosines the C library's too: these may differ from NumPy's in the last bit.
CASES = {
    "Acrobot-v1": (Acrobot, 1e-11),
    "Pendulum-v1": (Pendulum, 1e-12),
    "MountainCar-v0": (MountainCar, 1e-12),
    "MountainCarContinuous-v0": (MountainCarContinuous, 1e-6),
}
KINDS = [make for make, _ in CASES.values()]


def random_actions(env, rng, count):
    if hasattr(env, "action_space"):
        return rng.normal(0.0, 1.5, (count, 1)).astype(np.float32)
    return rng.integers(0, env.action_count, count)


def play_both(name, seeds, rng, max_steps):
    """One episode per seed in both, agreeing in state, observation, reward and end; returns the steps played."""
    make, tolerance = CASES[name]
    ours = make(max_steps=max_steps)
    theirs = [gymnasium.make(name, max_episode_steps=max_steps, disable_env_checker=True) for _ in seeds]
    obs = ours.reset(seeds)
    for row, env, seed in zip(obs, theirs, seeds, strict=True):
        np.testing.assert_array_equal(row, env.reset(seed=seed)[0], strict=True)
    live, steps = set(range(len(seeds))), 0
    while live:
        actions = random_actions(ours, rng, len(seeds))
        obs, rewards, terminated, truncated = ours.step(actions)
        states = ours.states
        for i in sorted(live):
            expected, reward, ended, cut, _ = theirs[i].step(actions[i])
            np.testing.assert_allclose(states[i], theirs[i].unwrapped.state, rtol=0, atol=tolerance)
            np.testing.assert_allclose(obs[i], expected, rtol=0, atol=max(tolerance, 1e-6))
            assert rewards[i] == pytest.approx(reward, abs=max(tolerance, 1e-6))
            assert (terminated[i], truncated[i]) == (ended, cut)
            steps += 1
            if ended or cut:
                live.remove(i)
    return steps


@pytest.mark.parametrize("name", CASES)
def test_10_000_random_steps_equal_gymnasiums(name):
    rng, steps = np.random.default_rng(0), 0
    while steps < 10_000:
        steps += play_both(name, rng.integers(2**31, size=20).tolist(), rng, max_steps=500)


@pytest.mark.parametrize("name", CASES)
def test_the_usual_step_limit_is_gymnasiums(name):
    assert CASES[name][0]().max_steps == gymnasium.spec(name).max_episode_steps


@pytest.mark.parametrize("make", KINDS)
def test_it_passes_the_check_for_environments(make):
    assert check_environment(make()) == []


@pytest.mark.parametrize("make", KINDS)
def test_a_state_that_is_read_and_set_has_the_same_future(make):
    rng = np.random.default_rng(1)
    env, twin = make(), make()
    env.reset([1, 2, 3])
    for _ in range(5):
        env.step(random_actions(env, rng, 3))
    twin.set_state(env.states)
    for _ in range(20):
        actions = random_actions(env, rng, 3)
        for one, other in zip(env.step(actions), twin.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "state"),
    [(Acrobot, [3.0, 0.0, 0.0, 0.0]), (MountainCar, [0.49, 0.07]), (MountainCarContinuous, [0.44, 0.07])],
)
def test_a_copy_that_has_arrived_stays_put_while_the_others_go_on(make, state):
    rng = np.random.default_rng(1)
    env = make(max_steps=10)
    env.set_state(np.array([state, env.reset([4])[0][: len(state)] * 0.1]))
    seen = [env.step(random_actions(env, rng, 2)) for _ in range(12)]
    obs, rewards, terminated, truncated = (np.stack(arrays) for arrays in zip(*seen, strict=True))
    assert terminated[:, 0].all()
    assert not truncated[:, 0].any()
    assert (obs[:, 0] == obs[0, 0]).all()
    assert (rewards[1:, 0] == 0).all()
    assert truncated[:, 1].tolist() == [False] * 9 + [True] * 3
    assert (rewards[:10, 1] != 0).all()
    assert (rewards[10:, 1] == 0).all()


@pytest.mark.parametrize("make", KINDS)
def test_wrong_actions_are_refused_and_change_nothing(make):
    env = make()
    env.reset([1, 2])
    before = env.states
    wrong = [np.array([0, 3]), np.array([-1, 0]), np.array([[0, 1]]), np.array([[np.nan], [0.0]]), [0, 1]]
    for actions in wrong:
        with pytest.raises(ContractError, match=make.__name__):
            env.step(actions)
    np.testing.assert_array_equal(env.states, before)
    with pytest.raises(ContractError, match="reset"):
        make().step(np.array([0]))


@pytest.mark.parametrize("make", KINDS)
def test_impossible_states_and_seeds_are_refused(make):
    for wrong in (np.zeros(4), np.zeros((2, 7)), np.full((1, len(make.state_names)), np.nan)):
        with pytest.raises(ContractError, match="shape"):
            make().set_state(wrong)
    with pytest.raises(ContractError, match="-3"):
        make().reset([1, -3])


def test_options_change_the_physics():
    with pytest.raises(ContractError, match="0.7"):
        MountainCar(start_speed=0.7)
    assert MountainCar(start_speed=0.05).reset([1])[0, 1] == np.float32(0.05)
    weak, usual = Acrobot(torque=0.1), Acrobot()
    for env in (weak, usual):
        env.set_state(np.zeros((1, 4)))
        env.step(np.array([2]))
    assert abs(weak.states).sum() < abs(usual.states).sum() / 5


@pytest.mark.parametrize("name", OWN)
def test_a_step_of_a_thousand_copies_makes_no_more_calls_than_one_of_ten(name):
    """There is no loop over copies. `benchmarks/vector_envs.py` measures what that is worth."""

    def calls(copies: int) -> int:
        env, count = OWN[name](), 0
        env.reset(range(copies))
        actions = random_actions(env, np.random.default_rng(0), copies)

        def counted(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            env.step(actions)
        finally:
            sys.setprofile(None)
        return count

    assert calls(1000) < 1.5 * calls(10)
