"""Actions of every kind: what is recorded when acting is what learning finds again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from groupwise.control.acting import normal
from groupwise.control.policy import MLPPolicy
from groupwise.errors import ContractError
from groupwise.types import Box, Discrete, MultiDiscrete

SPACES = [Discrete(5), MultiDiscrete((3, 2, 4)), Box((-1.0, -2.0), (1.0, 2.0))]


def policy_for(space, **options):
    """A policy that prefers some actions, as after training."""
    policy = MLPPolicy(6, space, seed=1, **options)
    with torch.no_grad():
        for parameter in policy.actor_parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return policy


def world(space, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 6)).astype(np.float32), rng.random((count, *space.shape))


def some_masks(space, count, seed=4):
    counts = space.counts if isinstance(space, MultiDiscrete) else (space.count,)
    rng = np.random.default_rng(seed)
    parts = []
    for size in counts:
        mask = rng.random((count, size)) < 0.5
        mask[np.arange(count), rng.integers(size, size=count)] = True
        parts.append(mask)
    return np.concatenate(parts, axis=1)


def evaluated(policy, obs, actions, mask=None):
    inputs = {"obs": torch.from_numpy(obs)[:, None], "actions": torch.from_numpy(actions)[:, None]}
    if mask is not None:
        inputs["action_mask"] = torch.from_numpy(mask)[:, None]
    with torch.no_grad():
        return policy.evaluate(inputs)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_recorded_log_probability_is_the_one_evaluate_finds(space, own, normalise):
    torch.manual_seed(0)
    network = (
        (lambda inputs, outputs: nn.Sequential(nn.Linear(inputs, 9), nn.ReLU(), nn.Linear(9, outputs))) if own else None
    )
    policy = policy_for(space, network=network, normalise=normalise)
    if normalise:
        policy.set_normalisation(np.arange(6) * 0.1, np.array([0.0, 0.01, 1.0, 2.0, 3.0, 4.0]))
    obs, uniforms = world(space, 200)
    actions, logp = policy.act(obs, uniforms)
    assert actions.shape == (200, *space.shape)
    seen = evaluated(policy, obs, actions)
    np.testing.assert_allclose(logp, seen.logp[:, 0], rtol=0, atol=1e-5)
    assert torch.isfinite(seen.entropy).all()


@pytest.mark.parametrize("space", SPACES[:2])
def test_forbidden_actions_are_never_taken_and_cost_no_probability(space):
    policy, (obs, uniforms), mask = policy_for(space), world(space, 500), some_masks(space, 500)
    actions, logp = policy.act(obs, uniforms, mask)
    counts = space.counts if isinstance(space, MultiDiscrete) else (space.count,)
    for chosen in (actions, policy.greedy(obs, mask)):
        start = 0
        for choice, size in zip(chosen.reshape(500, -1).T, counts, strict=True):
            assert mask[np.arange(500), start + choice].all()
            start += size
    seen = evaluated(policy, obs, actions, mask)
    np.testing.assert_allclose(logp, seen.logp[:, 0], rtol=0, atol=1e-5)
    only = np.zeros_like(mask)
    only[:, np.cumsum([0, *counts[:-1]])] = True
    actions, logp = policy.act(obs, uniforms, only)
    assert (actions == 0).all()
    np.testing.assert_array_equal(logp, 0.0)
    np.testing.assert_allclose(evaluated(policy, obs, actions, only).entropy, 0.0, atol=1e-6)


@pytest.mark.parametrize("space", SPACES[:2])
def test_a_forbidden_action_gets_no_gradient(space):
    policy, (obs, uniforms), mask = policy_for(space), world(space, 50), some_masks(space, 50)
    mask[:, 1] = False
    mask[:, 0] = True
    actions, _ = policy.act(obs, uniforms, mask)
    inputs = {"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions), "action_mask": torch.from_numpy(mask)}
    seen = policy.evaluate(inputs)
    (seen.logp.sum() + seen.entropy.sum()).backward()
    gradient = policy.actor[-1].bias.grad
    assert gradient[1] == 0
    assert torch.isfinite(gradient).all()


def test_several_choices_are_independent():
    policy = policy_for(MultiDiscrete((3, 2)))
    obs, _ = world(Discrete(2), 1)
    grid = np.array([[a, b] for a in range(3) for b in range(2)])
    seen = evaluated(policy, obs.repeat(6, axis=0), grid)
    chances = seen.logp[:, 0].exp().numpy().reshape(3, 2)
    assert chances.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(chances, np.outer(chances.sum(1), chances.sum(0)), atol=1e-6)


def test_a_gaussian_is_torchs():
    policy = policy_for(SPACES[2])
    obs, uniforms = world(SPACES[2], 300)
    actions, logp = policy.act(obs, uniforms)
    means = torch.from_numpy(policy.greedy(obs))
    theirs = torch.distributions.Normal(means, policy.log_std.detach().exp())
    np.testing.assert_allclose(logp, theirs.log_prob(torch.from_numpy(actions)).sum(-1), rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        evaluated(policy, obs, actions).entropy[:, 0], theirs.entropy().sum(-1), rtol=0, atol=1e-5
    )


def test_uniform_numbers_become_normal_ones():
    numbers = normal(np.random.default_rng(0).random(100_000))
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.std() - 1) < 0.02
    assert np.isfinite(normal(np.zeros(3))).all()


def test_the_spread_of_a_gaussian_is_learned():
    policy = policy_for(SPACES[2])
    assert any(parameter is policy.log_std for parameter in policy.actor_parameters())
    assert "log_std" in policy.state_dict()
    assert "log_std" not in MLPPolicy(4, 2).state_dict()


def test_a_network_that_does_not_fit_is_refused_with_its_shape():
    with pytest.raises(ContractError, match=r"\(2, 7\), not \(2, 3\)"):
        MLPPolicy(4, 3, network=lambda inputs, outputs: nn.Linear(inputs, 7))


def test_a_user_network_is_used_for_actor_and_critic():
    made = []

    def network(inputs, outputs):
        made.append((inputs, outputs))
        return nn.Linear(inputs, outputs)

    policy = MLPPolicy(4, 3, network=network, critic=True)
    assert made == [(4, 3), (4, 1)]
    assert policy.value(torch.zeros(5, 4)).shape == (5,)
    assert len(policy.critic_parameters()) == 2
