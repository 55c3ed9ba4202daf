from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from groupwise.control.policy import MLPPolicy
from groupwise.errors import ContractError


def observations(count, size=4, seed=0):
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


def as_inputs(obs, actions):
    return {"obs": torch.from_numpy(obs)[:, None], "actions": torch.from_numpy(actions)[:, None]}


def scaled(policy, factor):
    """A policy whose last layer is large enough to prefer some actions, as after training."""
    with torch.no_grad():
        policy.actor[-1].weight.mul_(factor)
    return policy


@pytest.mark.parametrize("count", [1, 2, 8, 16, 32, 64])
@pytest.mark.parametrize("factor", [1.0, 300.0])
def test_the_recorded_log_probability_is_the_one_evaluate_finds(count, factor):
    policy = scaled(MLPPolicy(4, 3, seed=1), factor)
    obs = observations(count)
    actions, logp = policy.act(obs, np.random.default_rng(2).random(count))
    evaluation = policy.evaluate(as_inputs(obs, actions))
    assert evaluation.logp.shape == (count, 1)
    np.testing.assert_allclose(evaluation.logp[:, 0].detach(), logp, rtol=0, atol=1e-6)


def test_log_probability_and_entropy_are_those_of_the_categorical_distribution():
    policy = scaled(MLPPolicy(5, 4, hidden_sizes=(16,)), 100.0)
    obs = torch.from_numpy(observations(21, size=5)).view(3, 7, 5)
    actions = torch.arange(21).view(3, 7) % 4
    evaluation = policy.evaluate({"obs": obs, "actions": actions})
    expected = torch.distributions.Categorical(logits=policy.actor(obs))
    torch.testing.assert_close(evaluation.logp, expected.log_prob(actions))
    torch.testing.assert_close(evaluation.entropy, expected.entropy())
    assert evaluation.value is None


@given(
    seed=st.integers(0, 1000),
    action_count=st.integers(2, 6),
    uniform=st.floats(0, 1, exclude_max=True),
    factor=st.sampled_from([1.0, 100.0, 1e5]),
)
@settings(max_examples=60, deadline=None)
def test_a_uniform_picks_the_action_whose_share_of_the_unit_interval_it_falls_in(seed, action_count, uniform, factor):
    policy = scaled(MLPPolicy(4, action_count, hidden_sizes=(8,), seed=seed), factor)
    obs = observations(1, seed=seed)
    actions, logp = policy.act(obs, np.array([uniform]))
    logits = policy.actor(torch.from_numpy(obs))[0].detach().double()
    edges = np.concatenate([[0.0], torch.softmax(logits, 0).cumsum(0).numpy()])
    assert edges[actions[0]] - 1e-5 <= uniform <= edges[actions[0] + 1] + 1e-5
    assert np.isfinite(logp).all()


def test_sampled_actions_come_as_often_as_their_probability_says():
    policy = scaled(MLPPolicy(4, 3, seed=4), 100.0)
    obs = np.repeat(observations(1), 20_000, axis=0)
    actions, _ = policy.act(obs, np.random.default_rng(0).random(len(obs)))
    expected = torch.softmax(policy.actor(torch.from_numpy(obs[:1])), -1)[0].detach().numpy()
    assert 0.02 < expected.min() < expected.max() < 0.98
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / len(obs), expected, atol=0.015)


def test_the_greedy_action_is_the_likeliest():
    policy = scaled(MLPPolicy(4, 5, seed=3), 50.0)
    obs = observations(64)
    likeliest = policy.actor(torch.from_numpy(obs)).argmax(-1).numpy()
    assert len(set(likeliest.tolist())) > 1
    np.testing.assert_array_equal(policy.greedy(obs), likeliest)


def test_weights_depend_on_the_seed_alone_and_the_global_random_state_stays():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = MLPPolicy(4, 2, critic=True, seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = MLPPolicy(4, 2, critic=True, seed=7)
    different = MLPPolicy(4, 2, critic=True, seed=8)
    assert torch.equal(parameters_to_vector(one.parameters()), parameters_to_vector(other.parameters()))
    assert not torch.equal(one.actor[0].weight, different.actor[0].weight)


def test_the_actor_is_the_same_with_and_without_a_critic():
    with_critic, without = MLPPolicy(4, 2, critic=True, seed=7), MLPPolicy(4, 2, seed=7)
    assert torch.equal(with_critic.actor[2].weight, without.actor[2].weight)


def test_weights_are_orthogonal_with_the_stated_gains():
    policy = MLPPolicy(4, 2, hidden_sizes=(32, 32), critic=True)
    hidden = [(network[n], 2**0.5) for network in (policy.actor, policy.critic) for n in (0, 2)]
    for layer, gain in [*hidden, (policy.actor[4], 0.01), (policy.critic[4], 1.0)]:
        weight = layer.weight if layer.in_features >= layer.out_features else layer.weight.T
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-5, rtol=0)
        assert not layer.bias.any()


def test_actor_and_critic_share_nothing_and_are_all_there_is():
    policy = MLPPolicy(4, 2, critic=True)
    actor, critic = policy.actor_parameters(), policy.critic_parameters()
    assert {id(p) for p in policy.parameters()} == {id(p) for p in actor} | {id(p) for p in critic}
    evaluation = policy.evaluate({"obs": torch.ones(3, 2, 4), "actions": torch.zeros(3, 2, dtype=torch.int64)})
    assert evaluation.value.shape == (3, 2)
    evaluation.value.sum().backward()
    assert all(p.grad is None for p in actor)
    assert all(p.grad is not None for p in critic)
    assert MLPPolicy(4, 2).critic_parameters() == []


def test_asking_for_a_value_without_a_critic_says_how_to_get_one():
    with pytest.raises(ContractError, match="critic=True"):
        MLPPolicy(4, 2).value(torch.zeros(1, 4))


def in_place(policy):
    optimizer = torch.optim.Adam(policy.parameters(), 0.1)
    policy.evaluate(as_inputs(observations(8), np.zeros(8, np.int64))).logp.sum().backward()
    optimizer.step()
    return policy


def loaded(policy):
    policy.load_state_dict(MLPPolicy(4, 2, seed=99).state_dict())
    return policy


def assigned(policy):
    policy.load_state_dict(MLPPolicy(4, 2, seed=99).state_dict(), assign=True)
    return policy


def replaced(policy):
    vector_to_parameters(parameters_to_vector(policy.parameters()) + 0.1, policy.parameters())
    return policy


def copied(policy):
    return in_place(copy.deepcopy(policy))


def pickled(policy):
    return in_place(pickle.loads(pickle.dumps(policy)))  # noqa: S301


@pytest.mark.parametrize("change", [in_place, loaded, assigned, replaced, copied, pickled])
def test_acting_follows_the_weights_however_they_change(change):
    policy = MLPPolicy(4, 2)
    obs, uniforms = observations(8), np.random.default_rng(0).random(8)
    _, before = policy.act(obs, uniforms)
    policy = change(policy)
    actions, after = policy.act(obs, uniforms)
    assert not np.allclose(before, after, atol=1e-4)
    expected = policy.evaluate(as_inputs(obs, actions)).logp[:, 0].detach()
    np.testing.assert_allclose(after, expected, rtol=0, atol=2e-6)


def test_a_copy_keeps_its_weights_when_the_original_learns():
    policy = MLPPolicy(4, 2)
    obs, uniforms = observations(8), np.random.default_rng(0).random(8)
    _, before = policy.act(obs, uniforms)
    reference = copy.deepcopy(policy)
    in_place(policy)
    np.testing.assert_array_equal(reference.act(obs, uniforms)[1], before)


def test_acting_adds_nothing_to_a_saved_policy():
    policy = MLPPolicy(4, 2)
    before = len(pickle.dumps(policy))
    policy.act(observations(8), np.zeros(8))
    assert len(pickle.dumps(policy)) == before


def test_weights_off_the_cpu_are_refused_by_name():
    with pytest.raises(ContractError, match="meta"):
        MLPPolicy(4, 2).to("meta").act(observations(1), np.zeros(1))
