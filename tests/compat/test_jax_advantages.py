"""GAE of interleaved groups in JAX against the torch one, group by group."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.compat.jax_advantages import compute_group_advantages_vectorized
from groupwise.core import gae
from groupwise.errors import MissingExtra

COUNT = 40  # one shape for all: JAX compiles for each


def steps(seed: int, groups: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "values": rng.normal(size=COUNT).astype(np.float32),
        "rewards": rng.normal(size=COUNT).astype(np.float32),
        "dones": rng.random(COUNT) < 0.2,
        "groups": rng.integers(groups, size=COUNT),
    }


def one_by_one(data: dict[str, Any], next_values: Any = None) -> Any:
    """The torch GAE of each group alone, put back where its steps stood."""
    found = np.zeros(len(data["values"]))
    for name in np.unique(data["groups"]):
        rows = np.flatnonzero(data["groups"] == name)
        values, rewards, dones = (torch.tensor(data[key][rows])[None] for key in ("values", "rewards", "dones"))
        ahead = torch.zeros(1) if next_values is None else torch.tensor(next_values[rows])[None]
        nothing = torch.zeros_like(dones)
        alone = gae(rewards, values, ahead, dones, nothing, torch.ones_like(dones), gamma=0.99, lam=0.95)
        found[rows] = alone.advantages[0].numpy()
    return found


@given(st.integers(0, 10_000), st.integers(1, COUNT))
@settings(max_examples=20, deadline=None)
def test_interleaved_groups_are_each_groups_own_gae(seed: int, groups: int) -> None:
    pytest.importorskip("jax")
    data = steps(seed, groups)
    found = np.asarray(compute_group_advantages_vectorized(**data))
    np.testing.assert_allclose(found, one_by_one(data), atol=1e-5)


def test_states_that_steps_led_to_stand_for_what_follows_a_cut() -> None:
    pytest.importorskip("jax")
    data = steps(1, 3)
    ahead = np.random.default_rng(2).normal(size=COUNT).astype(np.float32)
    found = np.asarray(compute_group_advantages_vectorized(**data, next_values=ahead))
    np.testing.assert_allclose(found, one_by_one(data, ahead), atol=1e-5)


def test_what_one_group_earns_does_not_leak_into_another() -> None:
    """Masking another group's steps to 0 keeps them in time, and lets γλ decay over them; sorting does not."""
    pytest.importorskip("jax")
    data = steps(3, 2)
    before = np.asarray(compute_group_advantages_vectorized(**data))
    data["rewards"] = np.where(data["groups"] == 1, 1e3, data["rewards"]).astype(np.float32)
    after = np.asarray(compute_group_advantages_vectorized(**data))
    assert (before == after)[data["groups"] == 0].all()
    assert (before != after)[data["groups"] == 1].all()


def test_by_hand() -> None:
    """γ = λ = ½. Group 7: 1 + ¼·2 = 1.5, 2; group 3: 4. The steps of the two alternate."""
    pytest.importorskip("jax")
    found = compute_group_advantages_vectorized(
        np.zeros(3), np.array([1.0, 4.0, 2.0]), np.zeros(3), np.array([7, 3, 7]), gamma=0.5, gae_lambda=0.5
    )
    assert found.tolist() == [1.5, 4.0, 2.0]


def test_names_of_groups_do_not_matter_and_scaling_divides_by_each_groups_own() -> None:
    pytest.importorskip("jax")
    data = steps(4, 4)
    plain = np.asarray(compute_group_advantages_vectorized(**data))
    found = np.asarray(compute_group_advantages_vectorized(**{**data, "groups": data["groups"] * -7 + 100}, scale=True))
    for name in range(4):
        rows = data["groups"] == name
        np.testing.assert_allclose(found[rows], plain[rows] / np.sqrt((plain[rows] ** 2).mean()), atol=1e-5)


def test_a_group_without_any_advantage_stays_zero() -> None:
    pytest.importorskip("jax")
    zeros = np.zeros(COUNT, np.float32)
    found = compute_group_advantages_vectorized(zeros, zeros, zeros > 0, np.arange(COUNT) % 3, scale=True)
    assert found.tolist() == [0.0] * COUNT


def test_it_runs_inside_jit() -> None:
    jax = pytest.importorskip("jax")
    data = steps(5, 3)
    inside = jax.jit(compute_group_advantages_vectorized)(**data)
    np.testing.assert_allclose(np.asarray(inside), one_by_one(data), atol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match=r"rewards has shape \(3,\); it needs \(2,\)"):
        compute_group_advantages_vectorized(np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match="flatten the steps"):
        compute_group_advantages_vectorized(*[np.zeros((2, 2))] * 4)
    with pytest.raises(ValueError, match="values holds a number that is not finite"):
        compute_group_advantages_vectorized(np.array([np.nan]), np.zeros(1), np.zeros(1), np.zeros(1))


def test_without_jax_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtra, match="needs jax") as error:
        compute_group_advantages_vectorized(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
    assert "groupwise[jax]" in error.value.hint
