"""GAE of many interleaved groups at once, in JAX: an extra, imported when it is called."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from groupwise.errors import MissingExtra


def compute_group_advantages_vectorized(
    values: Any,
    rewards: Any,
    dones: Any,
    groups: Any,
    *,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    next_values: Any = None,
    scale: bool = False,
) -> Any:
    """Generalised advantage estimation of every group by itself, however their steps are mixed up in the arrays.

    Steps of one group stand in the order of time; between them may stand any steps of other groups. They are sorted
    by group, and one associative scan, whose link is cut at every end of a group, runs over all: nothing leaks from
    one group into another, as it would by masking. It can be called inside `jax.jit` and `jax.vmap`.

    Args:
      values: V(s_t), [N].
      rewards: r, [N].
      dones: [N], true after the last step of an episode: no value follows, and no advantage of a later one.
      groups: [N] integers, one group per stream of steps.
      gamma: γ, the discount.
      gae_lambda: λ.
      next_values: V(s_{t+1}), [N], of the state each step led to. None takes the group's next step, and 0 after its
        last one.
      scale: divide by the group's root mean square (a segment sum); a group without any stays 0. No mean is
        subtracted.

    Returns:
      A, [N], a JAX array in the dtype JAX computes in (float32 unless it was told otherwise).
    """
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        raise MissingExtra(
            f"compute_group_advantages_vectorized needs jax, which cannot be imported: {error}",
            hint="pip install 'groupwise[jax]'; groupwise.core.gae does the same in torch",
        ) from error
    given = {"values": values, "rewards": rewards, "dones": dones, "groups": groups}
    if next_values is not None:
        given["next_values"] = next_values
    _check(given, jax.core.Tracer)
    found = _compiled()(values, rewards, dones, groups, next_values, gamma, gae_lambda)
    return found[1] if scale else found[0]


def _check(given: dict[str, Any], tracer: type) -> None:
    """One shape [N], and no number that is none; while JAX traces there are shapes only."""
    shape = np.shape(given["values"])
    if len(shape) != 1:
        raise ValueError(f"values has shape {shape}; it needs 1 dimension: flatten the steps and number their groups")
    for name, array in given.items():
        if np.shape(array) != shape:
            raise ValueError(f"{name} has shape {np.shape(array)}; it needs {shape}")
        if not isinstance(array, tracer) and not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"{name} holds a number that is not finite")


@cache
def _compiled() -> Any:
    jax = importlib.import_module("jax")
    jnp = importlib.import_module("jax.numpy")

    def later_first(after: Any, now: Any) -> Any:
        """A_t = δ_t + link_t A_{t+1}, as the composition of two such steps."""
        return after[0] * now[0], now[1] + now[0] * after[1]

    def run(values: Any, rewards: Any, dones: Any, groups: Any, next_values: Any, gamma: Any, lam: Any) -> Any:
        groups = jnp.asarray(groups)
        order = jnp.argsort(groups, stable=True)
        v, r, d, g = (jnp.asarray(array)[order] for array in (values, rewards, dones, groups))
        changes = g[1:] != g[:-1]
        last = jnp.append(changes, True)[: g.shape[0]]
        ahead = jnp.where(last, 0.0, jnp.roll(v, -1)) if next_values is None else jnp.asarray(next_values)[order]
        goes_on = gamma * (1.0 - d)
        delta = r + goes_on * ahead - v
        link = jnp.where(last, 0.0, goes_on * lam)
        _, advantages = jax.lax.associative_scan(later_first, (link, delta), reverse=True)
        segment = jnp.cumsum(jnp.append(False, changes)[: g.shape[0]])
        squares = jax.ops.segment_sum(advantages**2, segment, num_segments=g.shape[0])
        counts = jax.ops.segment_sum(jnp.ones_like(advantages), segment, num_segments=g.shape[0])
        rms = jnp.sqrt(squares / jnp.maximum(counts, 1.0))[segment]
        scaled = jnp.where(rms > 0, advantages / jnp.where(rms > 0, rms, 1.0), 0.0)
        back = jnp.argsort(order)
        return advantages[back], scaled[back]

    return jax.jit(run)
