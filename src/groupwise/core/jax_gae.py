"""GAE in JAX: one associative scan over the steps of all rows, in place of a loop over time. JAX is optional."""

import importlib
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.core.returns_and_gae import Gae
from groupwise.core.shapes import check_rank, check_shape
from groupwise.errors import MissingExtra


def jax_gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Gae:
    """`returns_and_gae.gae` with the same arguments and results, computed by JAX in float64."""
    check_rank("rewards", rewards, 2)
    shape = tuple(rewards.shape)
    given = (("values", values), ("terminated", terminated), ("truncated", truncated), ("mask", mask))
    for name, tensor in given:
        check_shape(name, tensor, shape)
    check_shape("next_values", next_values, shape, shape[:1])
    jax = import_jax("jax_gae")
    inside = mask.bool().cpu().numpy()
    # Only the steps that took place [N], row after row: in the mask's holes no time passes.
    row = np.nonzero(inside)[0]
    v, r, after = (t.detach().double().cpu().numpy() for t in (values, rewards, next_values))
    ended, cut = (t.bool().cpu().numpy()[inside] for t in (terminated, truncated))
    last = np.append(row[1:] != row[:-1], True)[: len(row)]
    ahead = np.where(last, after[row], np.roll(v[inside], -1)) if after.ndim == 1 else after[inside]
    # An advantage flows back over neither an end, a cut nor the end of a row: after each a new group begins.
    breaks = ended | cut | last
    group = np.cumsum(breaks) - breaks
    # Lengths are rounded up to powers of two, so that JAX compiles a few programs and not one for every batch.
    columns = [v[inside], r[inside], ended.astype(np.float64), group, ahead]
    spare = (1 << max(0, len(row) - 1).bit_length()) - len(row)
    filled = [np.pad(c, (0, spare), constant_values=len(row) if c is group else 0) for c in columns]
    with _float64(jax):
        found = np.asarray(compiled_scan()(*filled, gamma, lam)[0])[: len(row)]
    advantages = torch.zeros(shape, dtype=values.dtype)
    advantages[torch.from_numpy(inside)] = torch.from_numpy(found.copy()).to(values.dtype)
    advantages = advantages.to(values.device)
    return Gae(advantages, (advantages + values.detach()).where(mask.bool(), 0))


def import_jax(asks: str) -> Any:
    """JAX, or the extra that brings it."""
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        message = f"{asks} needs jax, which cannot be imported: {error}"
        hint = "pip install 'groupwise[jax]'; groupwise.core.gae does the same in torch"
        raise MissingExtra(message, hint=hint) from error


def _float64(jax: Any) -> Any:
    """The context in which JAX computes in float64; its name depends on the version."""
    place = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    return place.enable_x64(True)


@cache
def compiled_scan() -> Any:
    """(values, rewards, dones, groups, next_values, γ, λ) → advantages [N], and the same divided by each group's RMS.

    Steps [N] are sorted by group; one associative scan, whose link is cut at every end of a group, runs over all.
    """
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
