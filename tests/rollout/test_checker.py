from __future__ import annotations

import numpy as np
import pytest

from groupwise.control.classic.cartpole import CartPole
from groupwise.rollout.checker import check_environment


class Autoresetting(CartPole):
    def step(self, actions):
        obs, rewards, terminated, truncated = super().step(actions)
        if terminated.all():
            obs = self.reset([5] * len(actions))
        return obs, rewards, terminated, truncated


class PayingOn(CartPole):
    def step(self, actions):
        obs, rewards, terminated, truncated = super().step(actions)
        return obs, np.ones_like(rewards), terminated, truncated


class Endless(CartPole):
    def step(self, actions):
        obs, rewards, terminated, truncated = super().step(actions)
        return obs, rewards, terminated & False, truncated & False


class Unseeded(CartPole):
    def reset(self, seeds):
        return self.set_state(np.random.default_rng().uniform(-0.05, 0.05, (len(seeds), 4)))


class SharedGenerator(CartPole):
    def reset(self, seeds):
        return self.set_state(np.random.default_rng(seeds[0]).uniform(-0.05, 0.05, (len(seeds), 4)))


class Reusing(CartPole):
    buffer = np.zeros((3, 4), np.float32)

    def step(self, actions):
        obs, *rest = super().step(actions)
        self.buffer[...] = obs
        return self.buffer, *rest


class NotFinite(CartPole):
    def step(self, actions):
        obs, rewards, *flags = super().step(actions)
        return obs, rewards / np.where(rewards == 0, np.nan, 1.0), *flags


class Raising(CartPole):
    def step(self, actions):
        raise OSError("the simulator is gone")


class OneCopyOnly(CartPole):
    def reset(self, seeds):
        return super().reset(seeds[:1])


@pytest.mark.parametrize(
    ("env", "codes", "says"),
    [
        (CartPole(), [], ""),
        (CartPole(max_steps=5), [], ""),
        (Autoresetting(), ["stays_put"], "moved"),
        (PayingOn(), ["earns_nothing_more"], "earned 1.0"),
        (Endless(), ["ends"], "max_steps = 500"),
        (Unseeded(), ["equal_seeds", "reproducible"], "seed 1"),
        (SharedGenerator(), ["equal_seeds"], "seed 1"),
        (Reusing(), ["new_arrays"], "obs"),
        (NotFinite(), ["not_finite"], "reward nan"),
        (Raising(), ["raised"], "OSError: the simulator is gone"),
        (OneCopyOnly(), ["contract"], "shape (3, 4)"),
        (CartPole(max_steps=0), ["contract"], "max_steps"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, CartPole) else "",
)
def test_each_broken_rule_is_found_and_named(env, codes, says):
    findings = check_environment(env)
    assert set(codes) <= {finding.code for finding in findings}
    assert bool(findings) == bool(codes)
    assert all(finding.where == "environment" and finding.hint for finding in findings)
    assert says in " ".join(finding.message for finding in findings)
