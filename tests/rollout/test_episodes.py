from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ContractError
from groupwise.rollout.episodes import collect_groups, evaluate_greedy
from groupwise.types import End, Task

TASKS = [Task("one", seed=11), Task("two", seed=12), Task("three", seed=13)]


class Steadying:
    """Pushes towards where the pole falls: balances to the time limit."""

    def greedy(self, obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] + 0.02 * obs[:, 0] + 0.05 * obs[:, 1] > 0).astype(np.int64)

    def act(self, obs, uniforms):
        return self.greedy(obs), np.zeros(len(obs), np.float32)


class Scripted:
    """Copy i pays its step number and ends after `lengths[i]` steps in the way `kinds[i]` names."""

    observation_size = 2
    action_count = 3

    def __init__(self, lengths, kinds, max_steps=50):
        self.lengths = np.array(lengths)
        self.terminates = np.array([kind != "cut" for kind in kinds])
        self.truncates = np.array([kind != "falls" for kind in kinds])
        self.max_steps = max_steps

    def reset(self, seeds):
        self.clock = 0
        return self.observe()

    def step(self, actions):
        self.clock += 1
        over = self.clock >= self.lengths
        rewards = np.where(self.clock <= self.lengths, float(self.clock), 0.0)
        return self.observe(), rewards, over & self.terminates, over & self.truncates

    def observe(self):
        clocks = np.minimum(self.clock, self.lengths)
        return np.stack([clocks, np.arange(len(self.lengths))], axis=1).astype(np.float32)


def play(env, actor=None, tasks=TASKS[:1], group_size=3, seed=0, **names):
    actor = actor or MLPPolicy(env.observation_size, env.action_count)
    return collect_groups(env, actor, tasks, group_size, np.random.default_rng(seed), **names)


def assert_equal_groups(ones, others):
    for one, other in zip(ones, others, strict=True):
        for a, b in zip(one.members, other.members, strict=True):
            for name in ("obs", "actions", "behavior_logp", "rewards"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)


def test_every_task_is_attempted_by_a_group_that_starts_in_one_state():
    groups = play(CartPole(), tasks=TASKS, group_size=5, version=4, prefix="s7")
    assert [group.task for group in groups] == TASKS
    assert [group.id for group in groups] == ["s7/g0", "s7/g1", "s7/g2"]
    for group in groups:
        assert [m.id for m in group.members] == [f"{group.id}/m{j}" for j in range(5)]
        start = CartPole().reset([group.task.seed])[0]
        for member in group.members:
            assert (member.group_id, member.task_id) == (group.id, group.task.id)
            np.testing.assert_array_equal(member.obs[0], start)
    assert len({len(m) for group in groups for m in group.members}) > 1


def test_a_trajectory_is_arrays_over_one_axis():
    (group,) = play(CartPole(), version=4)
    for member in group.members:
        length = len(member)
        expected = {
            "obs": ((length, 4), np.float32),
            "actions": ((length,), np.int64),
            "mask": ((length,), np.bool_),
            "behavior_logp": ((length,), np.float32),
            "versions": ((length,), np.int64),
            "rewards": ((length,), np.float64),
        }
        for name, (shape, dtype) in expected.items():
            assert (getattr(member, name).shape, getattr(member, name).dtype) == (shape, dtype)
        assert member.mask.all()
        assert (member.versions == 4).all()


def test_a_recorded_episode_replays_in_gymnasium():
    for member, task in ((m, g.task) for g in play(CartPole(), tasks=TASKS) for m in g.members):
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=task.seed)
        for t, action in enumerate(member.actions.tolist()):
            np.testing.assert_array_equal(member.obs[t], obs)
            obs, reward, terminated, truncated, _ = env.step(action)
            assert member.rewards[t] == reward
            assert (terminated or truncated) == (t == len(member) - 1)
        assert terminated
        assert member.terminated
        assert member.end is End.FINISHED
        assert member.last_obs is None


def test_recorded_log_probabilities_are_those_of_the_policy_that_acted():
    policy = MLPPolicy(4, 2, seed=3)
    for member in play(CartPole(), policy, group_size=8)[0].members:
        inputs = {
            "obs": torch.from_numpy(member.obs)[None],
            "actions": torch.from_numpy(member.actions)[None],
        }
        logp = policy.evaluate(inputs).logp[0].detach()
        np.testing.assert_allclose(member.behavior_logp, logp, rtol=0, atol=1e-6)


def test_a_rollout_depends_on_its_generator_and_on_nothing_else_that_draws():
    torch.manual_seed(0)
    one = play(CartPole(), tasks=TASKS, seed=5)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    other = play(CartPole(), tasks=TASKS, seed=5)
    assert_equal_groups(one, other)
    different = play(CartPole(), tasks=TASKS, seed=6)
    assert any(
        not np.array_equal(a.actions, b.actions) for a, b in zip(one[0].members, different[0].members, strict=True)
    )


def test_an_episode_cut_by_the_time_limit_keeps_what_the_policy_would_have_seen_next():
    env = CartPole(max_steps=60)
    (group,) = play(env, Steadying())
    for member in group.members:
        assert (len(member), member.end, member.terminated) == (60, End.TRUNCATED, False)
        twin = CartPole(max_steps=1000)
        twin.reset([group.task.seed])
        for action in member.actions.tolist():
            seen, *_ = twin.step(np.array([action]))
        np.testing.assert_array_equal(member.last_obs, seen[0])


@given(
    copies=st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["falls", "cut", "both"])), min_size=1, max_size=6)
)
@settings(max_examples=40, deadline=None)
def test_every_episode_has_its_own_length_rewards_and_ending(copies):
    lengths, kinds = zip(*copies, strict=True)
    (group,) = play(Scripted(lengths, kinds, max_steps=50), group_size=len(copies))
    for number, (member, (length, kind)) in enumerate(zip(group.members, copies, strict=True)):
        cut = kind == "cut" or length > 50
        steps = min(length, 50)
        assert len(member) == steps
        assert member.rewards.tolist() == list(range(1, steps + 1))
        assert member.obs.tolist() == [[t, number] for t in range(steps)]
        assert member.end is (End.TRUNCATED if cut else End.FINISHED)
        assert member.terminated is not cut
        if cut:
            assert member.last_obs.tolist() == [steps, number]
        else:
            assert member.last_obs is None


def test_an_environment_that_never_ends_is_cut_at_its_own_limit():
    env = Scripted([10**9] * 2, ["falls", "cut"], max_steps=1300)
    (group,) = play(env, group_size=2)
    for number, member in enumerate(group.members):
        assert (len(member), member.end) == (1300, End.TRUNCATED)
        assert member.rewards.tolist() == list(range(1, 1301))
        assert member.obs.tolist() == [[t, number] for t in range(1300)]
        assert member.last_obs.tolist() == [1300, number]


class Breaking(Scripted):
    """Raises in the step after the clock shows `at`; at 0, in the reset."""

    def __init__(self, at, error, **scripted):
        super().__init__(**scripted)
        self.at = at
        self.error = error

    def reset(self, seeds):
        if self.at == 0:
            raise self.error
        return super().reset(seeds)

    def step(self, actions):
        if self.clock == self.at:
            raise self.error
        return super().step(actions)


def test_an_environment_that_raises_ends_the_running_copies_with_what_they_have():
    env = Breaking(4, OSError("the simulator is gone"), lengths=[2, 9, 9], kinds=["falls"] * 3)
    (group,) = play(env)
    ended, *lost = group.members
    assert (len(ended), ended.end, ended.error) == (2, End.FINISHED, None)
    for member in lost:
        assert (len(member), member.end, member.terminated) == (4, End.ENV_ERROR, False)
        assert member.rewards.tolist() == [1, 2, 3, 4]
        assert (member.error.where, member.error.code) == ("environment", "raised")
        assert "Breaking.step" in member.error.message
        assert "OSError: the simulator is gone" in member.error.message
        assert "check_environment" in member.error.hint


def test_an_environment_that_cannot_reset_leaves_empty_attempts_that_say_so():
    (group,) = play(Breaking(0, OSError("no display"), lengths=[2] * 3, kinds=["falls"] * 3))
    for member in group.members:
        assert (len(member), member.end, member.obs.shape) == (0, End.ENV_ERROR, (0, 2))
        assert "no display" in member.error.message


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_taken_for_a_failure_of_the_environment(interrupt):
    with pytest.raises(interrupt):
        play(Breaking(2, interrupt(), lengths=[5] * 3, kinds=["falls"] * 3))


class Spoiled(Scripted):
    """One number of one copy is wrong from one moment on."""

    def __init__(self, copy, at, value, what, **scripted):
        super().__init__(**scripted)
        self.spoil = copy, at, value, what

    def observe(self):
        copy, at, value, what = self.spoil
        obs = super().observe()
        if what == "obs" and self.clock >= at:
            obs[copy, 0] = value
        return obs

    def step(self, actions):
        obs, rewards, terminated, truncated = super().step(actions)
        copy, at, value, what = self.spoil
        if what == "reward" and self.clock >= at:
            rewards[copy] = value
        return obs, rewards, terminated, truncated


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["obs", "reward"])
@pytest.mark.parametrize("at", [0, 3])
def test_a_number_that_is_not_finite_ends_that_copy_alone(value, what, at):
    (group,) = play(Spoiled(1, at, value, what, lengths=[5, 5, 6], kinds=["falls"] * 3))
    first, lost, last = group.members
    assert [len(first), len(last)] == [5, 6]
    assert [first.end, last.end] == [End.FINISHED] * 2
    assert lost.end is End.ENV_ERROR
    assert len(lost) == max(at - 1, 0)
    assert np.isfinite(lost.obs).all()
    assert np.isfinite(lost.rewards).all()
    assert (lost.error.where, lost.error.code) == ("environment", "not_finite")
    assert "Spoiled" in lost.error.message
    assert str(value) in lost.error.message


def test_a_number_that_is_not_finite_after_the_end_is_nobodys_failure():
    (group,) = play(Spoiled(1, 4, np.nan, "obs", lengths=[5, 3, 6], kinds=["falls"] * 3))
    assert [m.end for m in group.members] == [End.FINISHED] * 3


def test_very_large_numbers_are_still_finite():
    env = Spoiled(0, 0, 3e38, "obs", lengths=[5] * 3, kinds=["falls"] * 3)
    (group,) = play(env, Answered(lambda n: (np.zeros(n, int), np.zeros(n))))
    assert [m.end for m in group.members] == [End.FINISHED] * 3


class Answering(Scripted):
    """Changes its answer to a step."""

    def __init__(self, change):
        super().__init__(lengths=[5] * 3, kinds=["falls"] * 3)
        self.change = change

    def step(self, actions):
        return self.change(*super().step(actions))


@pytest.mark.parametrize(
    ("change", "rule", "value"),
    [
        (lambda o, r, te, tr: (o[:2], r, te, tr), "shape (3, 2)", "(2, 2)"),
        (lambda o, r, te, tr: (o.astype(int), r, te, tr), "float array", "int64"),
        (lambda o, r, te, tr: (o.tolist(), r, te, tr), "float array", "list"),
        (lambda o, r, te, tr: (o, r[:, None], te, tr), "rewards", "(3, 1)"),
        (lambda o, r, te, tr: (o, 1.0, te, tr), "rewards", "1.0"),
        (lambda o, r, te, tr: (o, r, te.astype(float), tr), "terminated", "float64"),
        (lambda o, r, te, tr: (o, r, te, tr[:1]), "truncated", "(1,)"),
        (lambda o, r, te, tr: (o, r, te, False), "truncated", "False"),
        (lambda o, r, te, tr: (o, r, te, tr, {}), "(obs, rewards, terminated, truncated)", "tuple"),
    ],
)
def test_a_broken_contract_names_the_environment_the_rule_and_the_value(change, rule, value):
    with pytest.raises(ContractError) as error:
        play(Answering(change))
    assert error.value.message.startswith("Answering: ")
    assert rule in error.value.message
    assert value in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("name", ["observation_size", "action_count", "max_steps"])
@pytest.mark.parametrize("size", [0, -1, 2.5, None])
def test_sizes_that_are_no_sizes_are_refused(name, size):
    env = CartPole()
    setattr(env, name, size)
    with pytest.raises(ContractError, match=f"CartPole: {name}"):
        collect_groups(env, Steadying(), TASKS, 2, np.random.default_rng(0))


class Answered:
    def __init__(self, answer):
        self.answer = answer

    def act(self, obs, uniforms):
        return self.answer(len(obs))


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (lambda n: (np.zeros(n), np.zeros(n)), "actions"),
        (lambda n: (np.zeros((n, 1), int), np.zeros(n)), "actions"),
        (lambda n: (np.zeros(n, int), np.zeros(n - 1)), "log-probabilities"),
        (lambda n: (np.zeros(n, int), np.full(n, np.nan)), "log-probability .* nan"),
        (lambda n: (np.full(n, 5), np.zeros(n)), "0 or 1"),
    ],
)
def test_a_policy_that_breaks_the_contract_stops_the_rollout(answer, rule):
    with pytest.raises(ContractError, match=rule):
        play(CartPole(), Answered(answer))


def test_no_tasks_make_no_groups_and_no_group_is_empty():
    assert play(CartPole(), tasks=[]) == []
    with pytest.raises(ContractError, match="0"):
        play(CartPole(), group_size=0)


def test_greedy_evaluation_plays_one_episode_per_seed():
    policy = MLPPolicy(4, 2)
    returns, lengths = evaluate_greedy(CartPole(), policy, [1, 2, 3, 1])
    np.testing.assert_array_equal(returns, lengths)
    assert returns[0] == returns[3]
    for seed, length in zip([1, 2, 3], lengths, strict=False):
        env = gymnasium.make("CartPole-v1")
        obs, ended, steps = env.reset(seed=seed)[0], False, 0
        while not ended:
            obs, _, terminated, truncated, _ = env.step(int(policy.greedy(obs[None])[0]))
            ended, steps = terminated or truncated, steps + 1
        assert steps == length


def test_greedy_evaluation_of_a_good_policy_reaches_the_limit():
    returns, _ = evaluate_greedy(CartPole(), Steadying(), range(5))
    assert returns.tolist() == [500.0] * 5


def test_an_evaluation_that_failed_has_no_return():
    env = Breaking(4, OSError(), lengths=[2, 9], kinds=["falls"] * 2)
    returns, lengths = evaluate_greedy(env, MLPPolicy(2, 3), [0, 0])
    np.testing.assert_array_equal(returns, [3.0, np.nan])
    assert lengths.tolist() == [2, 4]
