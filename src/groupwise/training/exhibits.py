"""What can be shown of an attempt beside words and tokens: an episode to replay, a design to draw, a program's cases.

An exhibit is a small JSON object with a `kind`, made only when a step's groups are written to disk. Products put a
function that makes one into `meta["exhibit"]` of a trajectory; an episode is made from any attempt whose observations
are rows of numbers.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from groupwise.training.events import plain
from groupwise.types import Trajectory

# Moments of an episode that are kept, the first and last among them, and numbers of an observation.
MOMENTS = 120
WIDEST = 32
# Characters of an exhibit: a larger one is left out.
LARGEST = 200_000


def exhibit_text(member: Trajectory) -> str:
    """The attempt's exhibit as JSON; empty if it has none."""
    make = member.meta.get("exhibit")
    found: Mapping[str, Any] | None = make() if make is not None else episode(member)
    text = "" if found is None else json.dumps(plain(found), ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= LARGEST else ""


def episode(member: Trajectory) -> dict[str, Any] | None:
    """Moments of an episode: observations, actions, rewards and their sum so far."""
    seen = np.asarray(member.obs)
    count = len(seen)
    if seen.ndim != 2 or not count or seen.shape[1] > WIDEST or not np.issubdtype(seen.dtype, np.floating):
        return None
    at = np.unique(np.linspace(0, count - 1, min(count, MOMENTS)).astype(np.int64))
    actions = np.asarray(member.actions)
    acted = actions[at] if len(actions) == count else at[:0]
    rewards = np.asarray(member.rewards, np.float64)
    return {
        "kind": "episode", "at": at.tolist(), "states": _rounded(seen[at]), "actions": _rounded(acted),
        "rewards": _rounded(rewards[at]), "sums": _rounded(np.cumsum(rewards)[at]),
    }  # fmt: skip


def _rounded(values: Any) -> list[Any]:
    found: list[Any] = np.round(np.asarray(values, np.float64), 4).tolist()
    return found
