from __future__ import annotations

import asyncio
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.control.grpo import build
from groupwise.control.normaliser import Moments, Normaliser, ScaledReward
from groupwise.control.policy import MLPPolicy
from groupwise.rewards.function import EnvironmentReward
from groupwise.training.checkpoint import load_checkpoint
from groupwise.training.folder import create_run
from groupwise.training.session import execute

CONTINUOUS = {"environment": "Pendulum-v1", "max_episode_steps": 30, "num_generations": 4, "tasks_per_step": 2}


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=20), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_moments_taken_in_parts_are_those_of_the_whole(parts):
    moments, halves = Moments(1), (Moments(1), Moments(1))
    for number, part in enumerate(parts):
        rows = np.array(part).reshape(-1, 1)
        moments.add(rows)
        halves[number % 2].add(rows)
    whole = np.concatenate([np.array(part) for part in parts])
    halves[0].join(halves[1])
    for found in (moments, halves[0]):
        assert found.count == len(whole)
        if len(whole):
            assert found.mean[0] == pytest.approx(whole.mean(), abs=1e-6)
            assert found.std()[0] == pytest.approx(whole.std(), abs=1e-5)


def test_the_world_is_seen_in_standard_units():
    policy = MLPPolicy(3, 2, normalise=True)
    rows = np.random.default_rng(0).normal([5.0, -300.0, 2.0], [0.1, 50.0, 0.0], (1000, 3)).astype(np.float32)
    moments = Moments(3)
    moments.add(rows)
    policy.set_normalisation(moments.mean, moments.std())
    seen = policy._seen(torch.from_numpy(rows))
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=1e-2)
    np.testing.assert_allclose(seen[:, :2].std(0), 1.0, atol=1e-2)
    assert policy._seen(torch.full((1, 3), 1e9)).max() == 10.0


def collected(parts, count=1):
    return [parts.source.next() for _ in range(count)][-1]


def test_it_is_on_for_continuous_actions_and_off_for_others(small_config):
    assert build(small_config(**CONTINUOUS)).policy.normalise
    assert not build(small_config()).policy.normalise
    assert build(small_config(normalize_observations=True)).policy.normalise
    parts = build(small_config(**CONTINUOUS, normalize_observations=False, normalize_returns=False))
    assert not parts.policy.normalise
    assert isinstance(parts.source.reward, EnvironmentReward)
    assert isinstance(build(small_config(**CONTINUOUS)).source.reward, ScaledReward)


def test_it_is_frozen_until_the_policy_has_learned(small_config):
    parts = build(small_config(**CONTINUOUS))
    policy, normaliser = parts.policy, parts.source.rollout.normaliser
    first, second = collected(parts), collected(parts)
    for batch in (first, second):
        with torch.no_grad():
            seen = policy.evaluate(batch.inputs)
        np.testing.assert_allclose(seen.logp, batch.behavior_logp, rtol=0, atol=1e-5)
    assert policy.obs_mean.tolist() == [0.0] * 3
    assert normaliser.return_scale == 1.0
    policy.version += 1
    third = collected(parts)
    everything = torch.cat([first.inputs["obs"], second.inputs["obs"]])[:, 0].double()
    np.testing.assert_allclose(policy.obs_mean, everything.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(1 / policy.obs_scale, everything.std(0, correction=0), rtol=1e-5)
    assert normaliser.return_scale > 2.0
    with torch.no_grad():
        seen = policy.evaluate(third.inputs)
    np.testing.assert_allclose(seen.logp, third.behavior_logp, rtol=0, atol=1e-5)


def test_totals_are_reported_as_they_were_while_steps_are_scaled(small_config):
    parts = build(small_config(**CONTINUOUS))
    collected(parts)
    parts.policy.version += 1
    source = parts.source
    (group, *_) = source.rollout.collect(source.tasks.take(1))
    plain = asyncio.run(EnvironmentReward()(group.task, group.members))
    scaled = asyncio.run(source.reward(group.task, group.members))
    scale = source.rollout.normaliser.return_scale
    assert scale > 2.0
    for one, other in zip(plain, scaled, strict=True):
        assert (one.total, one.parts) == (other.total, other.parts)
        np.testing.assert_allclose(other.rewards, one.rewards / scale)


def test_a_return_that_never_varies_is_left_alone():
    normaliser = Normaliser(MLPPolicy(1, 2), 1)
    normaliser.known["returns"].add(np.full((10, 1), 3.0))
    assert normaliser.return_scale == 1.0


@pytest.mark.parametrize("estimator", ["group_rtg", "gae"])
def test_a_resumed_run_ends_bit_for_bit_like_an_undisturbed_one(small_config, numbers, estimator):
    def finish(path):
        return list(execute(path, build))

    options = {**CONTINUOUS, "estimator": estimator, "save_steps": 2}
    path = create_run(small_config(**options, run_name="whole"))
    finish(path)
    broken = create_run(small_config(**options, run_name="broken"))
    for event in execute(broken, build):
        if event.type == "step" and event.step == 3:
            break
    finish(broken)
    assert numbers(broken) == numbers(path)
    newest = load_checkpoint(max((path / "checkpoints").iterdir()))
    assert newest.model["obs_mean"].abs().sum() > 0
    shutil.rmtree(path.parent)
