"""Any Gymnasium environment behind the contract of vector environments, and what is said of those that cannot be."""

from __future__ import annotations

import copy
import importlib.util
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.gymnasium_environment import GymnasiumEnvironment
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.rollout.checker import check_environment
from groupwise.rollout.contract import random_actions
from groupwise.rollout.episodes import collect_groups, evaluate_greedy
from groupwise.types import Box, Discrete, End, MultiDiscrete, Task

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
numbers = itertools.count()


class Walk(gymnasium.Env):
    """A random walk that ends after `length` steps; what it says can be changed by its makers."""

    def __init__(self, observation_space=BOX, action_space=None, length=6, change=None, start=None, info=None):
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space or spaces.Discrete(2)
        self.length = length
        self.change = change or (lambda *answer: answer)
        self.start = start or (lambda *answer: answer)
        self.info = info or (lambda env: {})
        self.given = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.clock = 0
        return self.start(self.observation_space.sample(), self.info(self))

    def step(self, action):
        assert self.action_space.contains(action), action
        self.given.append(action)
        self.clock += 1
        obs = self.observation_space.sample()
        return self.change(obs, float(self.clock), self.clock == self.length, False, self.info(self))


def walk(max_steps=20, **options):
    """A walk registered under a name of its own, so that it goes the way every other environment goes."""
    name = f"Walk{next(numbers)}-v0"
    gymnasium.register(name, lambda: Walk(**options), max_episode_steps=max_steps)
    return name


def groups_of(env, count=2, size=3, critic=False):
    policy = MLPPolicy(env.observation_size, env.action_space, hidden_sizes=(8,), critic=critic)
    tasks = [Task(f"{env.name}/{n}", seed=n) for n in range(count)]
    return collect_groups(env, policy, tasks, size, np.random.default_rng(0))


def needs(module, extra):
    absent = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(absent, reason=f"{module} is not installed: pip install 'groupwise[{extra}]'")


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "Pendulum-v1",
        "FrozenLake-v1",
        "Taxi-v4",
        pytest.param("LunarLander-v3", marks=needs("Box2D", "box2d")),
        pytest.param("BipedalWalker-v3", marks=needs("Box2D", "box2d")),
        pytest.param("Hopper-v5", marks=needs("mujoco", "mujoco")),
        pytest.param("HalfCheetah-v5", marks=needs("mujoco", "mujoco")),
    ],
)
def test_it_keeps_the_contract(name):
    env = GymnasiumEnvironment(name, max_steps=150)
    assert check_environment(env) == []
    for group in groups_of(env):
        starts = np.stack([member.obs[0] for member in group.members])
        assert (starts == starts[0]).all()
        assert all(member.error is None and np.isfinite(member.behavior_logp).all() for member in group.members)


def test_it_is_our_own_cartpole_bit_for_bit():
    theirs, ours = GymnasiumEnvironment("CartPole-v1"), CartPole()
    assert (theirs.observation_size, theirs.action_count, theirs.max_steps) == (4, 2, 500)
    np.testing.assert_array_equal(theirs.reset([3, 4, 3]), ours.reset([3, 4, 3]))
    rng = np.random.default_rng(0)
    for _ in range(80):
        actions = rng.integers(0, 2, 3)
        for one, other in zip(theirs.step(actions), ours.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("space", "expected", "count"),
    [
        (spaces.Discrete(4, start=-1), Discrete(4), 4),
        (spaces.MultiDiscrete([2, 3]), MultiDiscrete((2, 3)), 5),
        (spaces.MultiBinary(3), MultiDiscrete((2, 2, 2)), 6),
        (spaces.Box(-1.0, 2.0, (2, 2), np.float64), Box((-1.0,) * 4, (2.0,) * 4), 4),
    ],
)
def test_every_kind_of_action_arrives_as_gymnasium_takes_it(space, expected, count):
    env = GymnasiumEnvironment(walk(action_space=space))
    assert (env.action_space, env.action_count) == (expected, count)
    assert check_environment(env) == []
    for member in groups_of(env)[0].members:
        assert member.error is None
        assert member.actions.shape == (6, *expected.shape)


def test_numbers_beyond_a_limit_become_the_limit_and_are_recorded_as_drawn():
    env = GymnasiumEnvironment(walk(action_space=spaces.Box(-0.1, 0.1, (2,), np.float32)))
    (group,) = groups_of(env, count=1)
    assert max(np.abs(member.actions).max() for member in group.members) > 0.5
    given = np.stack(env._copies[0].unwrapped.given)
    np.testing.assert_array_equal(given, np.clip(group.members[0].actions, np.float32(-0.1), np.float32(0.1)))


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(5), 5),
        (spaces.Box(0.0, 1.0, (2, 3), np.float64), 6),
        (spaces.Dict({"b": spaces.Discrete(2), "a": BOX}), 5),
        (spaces.Tuple((BOX, spaces.MultiBinary(2))), 5),
    ],
)
def test_every_kind_of_observation_becomes_a_row(space, size):
    env = GymnasiumEnvironment(walk(observation_space=space))
    assert env.observation_size == size
    assert check_environment(env) == []


def test_a_dictionary_is_read_in_the_order_of_its_keys_whatever_order_it_comes_in():
    space = spaces.Dict({"b": BOX, "a": spaces.Discrete(2)})
    turned = walk(observation_space=space, change=lambda obs, *rest: (dict(reversed(obs.items())), *rest))
    env, twin = GymnasiumEnvironment(turned), GymnasiumEnvironment(walk(observation_space=space))
    actions = np.zeros(2, np.int64)
    np.testing.assert_array_equal(env.reset([1, 2]), twin.reset([1, 2]))
    np.testing.assert_array_equal(env.step(actions)[0], twin.step(actions)[0])
    assert set(env.reset([1])[0][:2].tolist()) == {0.0, 1.0}


def test_bytes_are_seen_as_shares():
    env = GymnasiumEnvironment(walk(observation_space=spaces.Box(0, 255, (4, 4), np.uint8)))
    obs = env.reset(range(20))
    assert obs.shape == (20, 16)
    assert 0.9 < obs.max() <= 1.0


def from_info(env):
    return {"action_mask": np.array([0, 1, env.clock % 2], np.int8)}


class Asked(Walk):
    def action_masks(self):
        return from_info(self)["action_mask"].astype(bool)


def masked_walks():
    three = spaces.Discrete(3)
    asked = f"Walk{next(numbers)}-v0"
    gymnasium.register(asked, lambda: Asked(action_space=three), max_episode_steps=20)
    seen = spaces.Dict({"at": BOX, "action_mask": spaces.MultiBinary(3)})
    told = walk(
        action_space=three, observation_space=seen,
        start=lambda obs, info: ({**obs, "action_mask": np.array([0, 1, 0])}, info),
        change=lambda obs, reward, *rest: ({**obs, "action_mask": np.array([0, 1, reward % 2])}, reward, *rest),
    )  # fmt: skip
    return {"info": walk(action_space=three, info=from_info), "method": asked, "observation": told}


@pytest.mark.parametrize("way", ["info", "method", "observation"])
def test_forbidden_actions_are_not_taken_and_the_masks_are_recorded(way):
    env = GymnasiumEnvironment(masked_walks()[way])
    assert env.observation_size == 3
    for member in groups_of(env, size=20)[0].members:
        expected = [[False, True, bool(step % 2)] for step in range(6)]
        assert member.action_mask.tolist() == expected
        assert member.action_mask[np.arange(6), member.actions].all()
    policy = MLPPolicy(3, 3)
    assert evaluate_greedy(env, policy, [1, 2])[1].tolist() == [6, 6]


def test_a_mask_that_allows_nothing_is_refused():
    env = GymnasiumEnvironment(walk(info=lambda env: {"action_mask": np.zeros(2, np.int8)}))
    with pytest.raises(ContractError, match="allow every copy some action"):
        groups_of(env)
    env = GymnasiumEnvironment(walk(info=lambda env: {"action_mask": np.zeros(5, np.int8)}))
    with pytest.raises(ContractError, match="must have 2 entries"):
        groups_of(env)


def test_a_copy_that_has_ended_is_not_stepped_again_and_no_row_is_garbage():
    env = GymnasiumEnvironment(walk(length=4, max_steps=9))
    env.reset([1, 2])
    seen = [env.step(np.zeros(2, np.int64)) for _ in range(7)]
    obs, rewards, terminated, truncated = (np.stack(arrays) for arrays in zip(*seen, strict=True))
    assert len(env._copies[0].unwrapped.given) == 4
    assert (obs[3:] == obs[3]).all()
    assert rewards[:, 0].tolist() == [1, 2, 3, 4, 0, 0, 0]
    assert terminated[:, 0].tolist() == [False] * 3 + [True] * 4
    assert not truncated.any()


def test_its_own_step_limit_can_be_replaced():
    env = GymnasiumEnvironment(walk(length=10**9, max_steps=8), max_steps=5)
    (group,) = groups_of(env, count=1)
    assert {(len(member), member.end) for member in group.members} == {(5, End.TRUNCATED)}


def test_an_environment_that_never_ends_needs_a_limit():
    name = walk(max_steps=None)
    with pytest.raises(ConfigError, match="no step limit") as error:
        GymnasiumEnvironment(name)
    assert "task.max_episode_steps" in error.value.hint
    assert GymnasiumEnvironment(name, max_steps=7).max_steps == 7


@pytest.mark.parametrize(
    ("name", "message", "meant"),
    [
        ("LunarLander-v2", "LunarLander-v2 no longer exists", "LunarLander-v3"),
        ("HalfCheetah-v3", "HalfCheetah-v3 no longer exists", "HalfCheetah-v5"),
        ("CartPole-v²", "CartPole-v² no longer exists", "CartPole-v1"),
        ("CartPole-v" + "9" * 5000, "an environment's id has 5,010 characters; the limit is 1000", ""),
        ("CartPole-v9", "CartPole has no version 9", "CartPole-v1"),
        ("lunar-lander-v3", "there is no environment", "LunarLander-v3"),
        ("no_such_module:Walk-v0", "No module named 'no_such_module'", ""),
        ("zzzzzz", "there is no environment zzzzzz", ""),
    ],
)
def test_an_id_that_does_not_exist_is_met_with_the_one_that_does(name, message, meant):
    with pytest.raises(ConfigError, match=message) as error:
        GymnasiumEnvironment(name)
    assert error.value.field == "task.environment"
    assert f"'{meant}'" in error.value.hint if meant else error.value.hint


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("Hopper-v5", "mujoco", "mujoco"), ("ALE/Pong-v5", "ale_py", "atari")],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(name, module, extra):
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(MissingExtra, match=name.split("-")[0] if "/" not in name else "Atari") as error:
        GymnasiumEnvironment(name)
    assert f"groupwise[{extra}]" in error.value.hint


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"start": lambda obs, info: obs}, "reset must return"),
        ({"start": lambda obs, info: (obs, None)}, "info must be a dictionary"),
        ({"change": lambda *a: a[:4]}, "step must return"),
        ({"change": lambda o, *rest: (o[:2], *rest)}, "must fit its observation_space"),
        ({"change": lambda o, *rest: (None, *rest)}, "must fit its observation_space"),
        ({"change": lambda o, r, *rest: (o, "much", *rest)}, "rewards must be numbers, not 'much'"),
        ({"change": lambda o, r, *rest: (o, None, *rest)}, "rewards must be numbers, not None"),
        ({"change": lambda o, r, e, *rest: (o, r, 0, *rest)}, "terminated and truncated must be booleans, not 0"),
    ],
)
def test_an_environment_that_breaks_the_api_is_told_which_rule(options, rule):
    env = GymnasiumEnvironment(walk(**options))
    with pytest.raises(ContractError, match=rule) as error:
        groups_of(env)
    assert error.value.message.startswith(env.name)
    (finding,) = check_environment(env)
    assert rule in finding.message


def test_spaces_without_a_policy_or_a_network_are_refused():
    with pytest.raises(ConfigError, match="has the action space Tuple"):
        GymnasiumEnvironment(walk(action_space=spaces.Tuple((spaces.Discrete(2), BOX))))
    with pytest.raises(ConfigError, match="varying size"):
        GymnasiumEnvironment(walk(observation_space=spaces.Sequence(BOX)))


def test_a_number_that_is_not_finite_is_reported_with_the_environment_and_the_step():
    env = GymnasiumEnvironment(walk(change=lambda o, r, *rest: (o * (np.nan if r == 3 else 1), r, *rest)))
    member = groups_of(env)[0].members[0]
    assert (len(member), member.end) == (2, End.ENV_ERROR)
    assert f"{env.name}, step 2" in member.error.message


def test_an_environment_that_raises_is_reported_by_its_id():
    def fail(*answer):
        raise OSError("the simulator is gone")

    env = GymnasiumEnvironment(walk(change=fail))
    assert f"{env.name}.step raised OSError: the simulator is gone" in groups_of(env)[0].members[0].error.message


def test_random_actions_are_allowed_ones():
    env = GymnasiumEnvironment(masked_walks()["info"])
    env.reset(range(50))
    assert (random_actions(env, np.random.default_rng(0), 50) == 1).all()
