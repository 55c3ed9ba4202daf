"""Past groups, learned from again together with fresh ones.

Attempts are replayed as recorded: their log-probabilities are those of the policy that made them, so the ratio in the
loss measures how far the policy has moved since, and the clip (or `loss.off_policy_threshold`) does the rest.
Advantages are computed again, within the attempt's own group.

An attempt's arrays, names and score are kept, but not its task's payload or its `meta`: a checkpoint can store only
the former, and a resumed run must learn from exactly the groups an uninterrupted run would have had.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from groupwise.config import RolloutSettings
from groupwise.types import Array, End, Group, Score, ScoredGroup, Task, Trajectory

ARRAYS = ("obs", "actions", "mask", "behavior_logp", "versions", "rewards", "last_obs", "action_mask")


@dataclass(frozen=True)
class Replayed:
    """Groups drawn again, and the age of each in versions of the policy."""

    groups: tuple[ScoredGroup, ...] = ()
    ages: tuple[int, ...] = ()

    def metrics(self, fresh: int) -> dict[str, float | None]:
        """`fresh` is the number of new groups in the same step."""
        count = len(self.groups)
        return {
            "replay/share": count / max(1, count + fresh),
            "replay/age_mean": sum(self.ages) / count if count else None,
        }


class ReplayBuffer:
    """The newest `replay_size` groups that can teach, and seeded draws from those that are not too old."""

    def __init__(self, cfg: RolloutSettings, seed: int) -> None:
        self.cfg = cfg
        self.kept: deque[ScoredGroup] = deque(maxlen=cfg.replay_size)
        self.version = 0
        # The 2 makes it a different stream from other generators with this seed.
        self.rng = np.random.default_rng([seed, 2])

    def draw(self) -> Replayed:
        """Up to `replay_groups` distinct groups. Groups that are too old are dropped for good."""
        oldest = self.version - self.cfg.replay_max_age
        self.kept = deque((g for g in self.kept if version_of(g) >= oldest), self.cfg.replay_size)
        count = min(self.cfg.replay_groups, len(self.kept))
        # Sorted, so that a batch has its groups from old to new.
        chosen = sorted(self.rng.choice(len(self.kept), count, replace=False).tolist()) if count else []
        groups = tuple(self.kept[number] for number in chosen)
        return Replayed(groups, tuple(self.version - version_of(group) for group in groups))

    def see(self, fresh: Sequence[ScoredGroup]) -> None:
        """Update the current version of the policy from fresh attempts."""
        versions = [int(m.versions.max()) for group in fresh for m in group.group.members if m.actions_taken]
        self.version = max([self.version, *versions])

    def add(self, fresh: Sequence[ScoredGroup]) -> None:
        self.kept.extend(essence(group) for group in fresh)

    def state_dict(self) -> dict[str, Any]:
        return {
            "groups": [packed(group) for group in self.kept],
            "version": self.version,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = deque((unpacked(group) for group in state["groups"]), self.cfg.replay_size)
        self.version = state["version"]
        self.rng.bit_generator.state = state["rng"]


def version_of(group: ScoredGroup) -> int:
    """The oldest version of the policy that acted in the group."""
    return min((int(m.versions[m.mask].min()) for m in group.group.members if m.actions_taken), default=0)


def essence(scored: ScoredGroup) -> ScoredGroup:
    """The scored attempts reduced to what replay needs; arrays are copied, since they may be views of large ones."""
    pairs = [(m, s) for m, s in zip(scored.group.members, scored.scores, strict=True) if isinstance(s, Score)]
    members = tuple(_essence_of_attempt(member) for member, _ in pairs)
    task = Task(scored.group.task.id, None, scored.group.task.seed)
    return ScoredGroup(Group(scored.group.id, task, members), tuple(score for _, score in pairs))


def _essence_of_attempt(member: Trajectory) -> Trajectory:
    arrays: dict[str, Any] = {name: _copied(getattr(member, name)) for name in ARRAYS}
    return replace(member, meta={}, error=None, **arrays)


def packed(scored: ScoredGroup) -> dict[str, Any]:
    """A group as plain values and tensors."""
    group = scored.group
    return {
        "id": group.id,
        "task": {"id": group.task.id, "seed": group.task.seed},
        "members": [_packed_attempt(member) for member in group.members],
        "scores": [_packed_score(score) for score in scored.scores if isinstance(score, Score)],
    }


def unpacked(state: Mapping[str, Any]) -> ScoredGroup:
    task = Task(state["task"]["id"], None, state["task"]["seed"])
    members = tuple(_unpacked_attempt(member, task.id, state["id"]) for member in state["members"])
    return ScoredGroup(Group(state["id"], task, members), tuple(_unpacked_score(s) for s in state["scores"]))


def _packed_attempt(member: Trajectory) -> dict[str, Any]:
    arrays = {name: _tensor(getattr(member, name)) for name in ARRAYS}
    return {"id": member.id, "end": str(member.end), "terminated": bool(member.terminated), **arrays}


def _unpacked_attempt(state: Mapping[str, Any], task: str, group: str) -> Trajectory:
    arrays: dict[str, Any] = {name: _array(state.get(name)) for name in ARRAYS}
    return Trajectory(
        id=state["id"], task_id=task, group_id=group, end=End(state["end"]), terminated=state["terminated"], **arrays
    )


def _packed_score(score: Score) -> dict[str, Any]:
    return {
        "total": score.total,
        "parts": dict(score.parts),
        "flags": list(score.flags),
        "rewards": _tensor(score.rewards),
    }


def _unpacked_score(state: Mapping[str, Any]) -> Score:
    return Score(state["total"], state["parts"], tuple(state["flags"]), _array(state["rewards"]))


def _copied(values: Array | None) -> Array | None:
    return None if values is None else np.array(values)


def _tensor(values: Array | None) -> torch.Tensor | None:
    return None if values is None else torch.from_numpy(np.array(values))


def _array(values: torch.Tensor | None) -> Array | None:
    return None if values is None else values.numpy()
