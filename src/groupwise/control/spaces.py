"""What a policy sees and does, in its own rows of numbers and in the form of the environment's spaces.

    observation of any space → a row of numbers           choice as one-hot, bytes as shares of 255, parts side by side
    the policy's action      → an action of the space     from `start` on, clipped to the limits, in its shape

A space is a small table of plain values, so that it is saved with the weights (`Interface.to_bytes`): a model sees and
acts as it did in training wherever it is used, without Gymnasium and without its environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.contract import action_space_of
from groupwise.types import ActionSpace, Array, Box, Discrete, MultiDiscrete, VectorEnvironment

MASK = "action_mask"
# {"kind": "box", "shape": [3], …}; a "dict" or "tuple" has `parts`, by name or in order.
Space: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class RowPart:
    """One space without parts, and its place in a row: `shape` is [H, W, C] or [C, H, W] for an image."""

    start: int
    size: int
    shape: tuple[int, ...]
    is_image: bool


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether bytes of this shape are a picture, [H, W], [H, W, C] or [C, H, W], or a stack of pictures."""
    sides = sorted(shape)[-2:]
    return len(shape) in (2, 3, 4) and sides[0] >= (16 if len(shape) == 2 else 8)


@dataclass(frozen=True)
class Interface:
    """The spaces that a policy was trained on; `batch` below is the number of observations seen at once.

    In a suite, the last `tasks` numbers of a row are a one-hot of the task, and `members` has the spaces of each.
    """

    observation: Space
    action: Space
    tasks: int = 0
    members: Mapping[str, Mapping[str, Space]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> tuple[RowPart, ...]:
        found, start = [], 0
        for leaf in leaves(self.observation):
            size, shape = width(leaf), tuple(leaf["shape"])
            found.append(RowPart(start, size, shape, leaf.get("bytes", False) and is_image(shape)))
            start += size
        return tuple(found)

    @cached_property
    def observation_size(self) -> int:
        return sum(part.size for part in self.parts)

    @cached_property
    def action_space(self) -> ActionSpace:
        found = list(leaves(self.action))
        if self.action["kind"] == "discrete":
            return Discrete(found[0]["counts"][0])
        if all(leaf["kind"] == "box" for leaf in found):
            return Box(*(tuple(limit for leaf in found for limit in leaf[bound]) for bound in ("low", "high")))
        return MultiDiscrete(tuple(count for leaf in found for count in leaf["counts"]))

    def row(self, obs: Any) -> Array:
        """The row [D] of a single observation."""
        space = self.observation
        if space["kind"] == "box":  # by far the most frequent, and stepped one by one
            seen = obs if type(obs) is np.ndarray else np.asarray(obs)
            if list(seen.shape) != space["shape"]:
                raise ValueError(seen.shape)
            flat = seen if seen.ndim == 1 else seen.ravel()
            return np.asarray(flat * np.float32(1 / 255)) if space["bytes"] else flat
        rows = [_encoded(leaf, value, 1) for leaf, value in _values(space, obs)]
        return np.asarray(np.concatenate(rows, axis=1)[0])

    def rows(self, obs: Any) -> tuple[Array, bool]:
        """The rows [N, D] of one observation or a batch of them, and whether it was one."""
        if self.members and np.shape(obs)[-1:] != (self.observation_size,):
            message = f"a suite's policy sees rows of {self.observation_size} numbers, not shape {np.shape(obs)}"
            hint = f"For what one of its tasks returns: model.task({next(iter(self.members))!r}).predict(obs)."
            raise ContractError(message, hint=hint)
        pairs = [(leaf, np.asarray(value)) for leaf, value in _values(self.observation, obs)]
        single = pairs[0][1].ndim == len(pairs[0][0]["shape"])
        batch = 1 if single else len(pairs[0][1])
        rows = [_encoded(leaf, value, batch) for leaf, value in pairs]
        return np.concatenate(rows, axis=1, dtype=np.float32), single

    def mask(self, obs: Any) -> Any:
        """The action mask inside an observation, where it is not one of the numbers that the policy sees."""
        space = self.observation
        return obs.get(MASK) if space["kind"] == "dict" and isinstance(obs, Mapping) else None

    def mask_rows(self, mask: Any, count: int) -> Array:
        """A mask, or one for each part of the action, as boolean rows [count, actions]."""
        parts = mask if isinstance(mask, tuple | list) else [mask]
        table = [np.asarray(part).reshape(count, -1) for part in parts]
        return np.concatenate(table, axis=1).astype(np.bool_)

    def actions(self, chosen: Array) -> Any:
        """Actions [N, ...] of the policy as a batch of the environment's."""
        return _decoded(self.action, chosen.reshape(len(chosen), -1), [0])

    def each_action(self, chosen: Array) -> Sequence[Any]:
        """The same, one by one."""
        return _unbatched(self.action, self.actions(chosen), len(chosen))

    def one_action(self, chosen: Array) -> Any:
        """The only action of a batch of one."""
        return self.each_action(chosen)[0]

    def to_bytes(self) -> bytes:
        tasks = {"tasks": self.tasks, "members": self.members} if self.tasks else {}
        return json.dumps({"observation": self.observation, "action": self.action, **tasks}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Interface:
        return cls(**json.loads(text))


def interface_of(environment: VectorEnvironment) -> Interface:
    """The environment's own interface; one that only has rows is seen as it is, and acted on in its own numbers."""
    own: Interface | None = getattr(environment, "interface", None)
    return own or plain_interface(environment.observation_size, action_space_of(environment))


def plain_interface(observation_size: int, actions: ActionSpace) -> Interface:
    """Rows of numbers in, and actions as the policy has them out."""
    seen = {"kind": "box", "shape": [observation_size], "bytes": False}
    if isinstance(actions, Box):
        limits = {"low": list(actions.low), "high": list(actions.high)}
        return Interface(seen, {"kind": "box", "shape": [len(actions.low)], "dtype": "float32", **limits})
    many = isinstance(actions, MultiDiscrete)
    counts = list(actions.counts) if isinstance(actions, MultiDiscrete) else [actions.count]
    shape = [len(counts)] if many else []
    choice = {"shape": shape, "dtype": "int64", "counts": counts, "starts": [0] * len(counts)}
    return Interface(seen, {"kind": "choices" if many else "discrete", **choice})


def read_interface(name: str, observation: Any, action: Any) -> Interface:
    """The interface to Gymnasium's spaces; one that no policy can handle is refused."""
    seen = _read(observation)
    if seen is None:
        message = f"{name} has observations of varying size, {observation}, and the policies here need a fixed one"
        hint = "Wrap it so that its observation space is a Box, Discrete, Dict or Tuple of fixed size."
        raise ConfigError(message, hint=hint, field="task.environment")
    if seen["kind"] == "dict":
        seen = {**seen, "parts": {key: part for key, part in seen["parts"].items() if key != MASK}}
    done = _read(action)
    kinds = set() if done is None else {leaf["kind"] == "box" for leaf in leaves(done)}
    if done is None or len(kinds) != 1:
        message = f"{name} has the action space {action}, which no policy here supports"
        hint = (
            "Wrap it so that its actions are all choices (Discrete, MultiDiscrete, MultiBinary) or all numbers (Box)."
        )
        raise ConfigError(message, hint=hint, field="task.environment")
    return Interface(seen, done)


def _read(space: Any) -> Space | None:
    """Gymnasium's space as a table; None if it has no fixed size."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = isinstance(space, spaces.Dict)
        inner: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = {key: _read(part) for key, part in inner}
        if None in parts.values() or not parts:
            return None
        return {"kind": "dict", "parts": parts} if named else {"kind": "tuple", "parts": list(parts.values())}
    shape, dtype = list(space.shape or ()), str(space.dtype)
    if isinstance(space, spaces.Box):
        table: dict[str, Any] = {"kind": "box", "shape": shape, "dtype": dtype, "bytes": space.dtype == np.uint8}
        if space.dtype != np.uint8:
            table |= {bound: np.ravel(getattr(space, bound)).astype(float).tolist() for bound in ("low", "high")}
        return table
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "shape": [], "dtype": dtype, "counts": [int(space.n)], "starts": [int(space.start)]}
    if isinstance(space, spaces.MultiDiscrete):
        counts, starts = np.ravel(space.nvec).tolist(), np.ravel(space.start).tolist()
        return {"kind": "choices", "shape": shape, "dtype": dtype, "counts": counts, "starts": starts}
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(shape))
        return {
            "kind": "choices",
            "shape": shape,
            "dtype": dtype,
            "counts": [2] * size,
            "starts": [0] * size,
            "bits": 1,
        }
    return None


def leaves(space: Space) -> Iterator[Space]:
    """The spaces without parts, in the order of a row."""
    if "parts" not in space:
        yield space
        return
    parts = space["parts"]
    for part in parts.values() if space["kind"] == "dict" else parts:
        yield from leaves(part)


def width(leaf: Space) -> int:
    """How many numbers of a row a space takes."""
    if leaf["kind"] == "box":
        return int(np.prod(leaf["shape"], dtype=int))
    return len(leaf["counts"]) if "bits" in leaf else sum(leaf["counts"])


def _values(space: Space, obs: Any) -> Iterator[tuple[Space, Any]]:
    """Every space without parts with its value in `obs`."""
    if "parts" not in space:
        yield space, obs
        return
    parts = space["parts"]
    if space["kind"] == "dict":
        for key, part in parts.items():
            yield from _values(part, obs[key])
        return
    for part, value in zip(parts, obs, strict=True):
        yield from _values(part, value)


def _encoded(leaf: Space, value: Any, batch: int) -> Array:
    """[batch, width]: the numbers that the policy sees."""
    given, shape = np.asarray(value), tuple(leaf["shape"])
    if given.shape not in (shape, (batch, *shape)) or (batch > 1 and given.shape == shape):
        hint = "Pass what the environment's reset and step return, or a batch of it."
        raise ContractError(f"an observation has shape {given.shape}, but the policy sees {shape}", hint=hint)
    flat = given.reshape(batch, -1)
    if leaf["kind"] == "box":
        return flat.astype(np.float32) * np.float32(1 / 255) if leaf["bytes"] else flat.astype(np.float32)
    if "bits" in leaf:
        return flat.astype(np.float32)
    chosen = flat.astype(np.int64) - np.array(leaf["starts"])
    counts = np.array(leaf["counts"])
    if (chosen < 0).any() or (chosen >= counts).any():
        raise ValueError(value)
    table = np.zeros((batch, int(counts.sum())), np.float32)
    # The choices lie side by side; each sets one number of its own stretch.
    np.put_along_axis(table, chosen + (np.cumsum(counts) - counts), 1.0, axis=1)
    return table


def _decoded(space: Space, numbers: Array, used: list[int]) -> Any:
    """A batch of actions of the space from `numbers` [N, K]; `used` counts the columns that are taken."""
    if "parts" in space:
        if space["kind"] == "dict":
            return {key: _decoded(part, numbers, used) for key, part in space["parts"].items()}
        return tuple(_decoded(part, numbers, used) for part in space["parts"])
    size = len(space["low"]) if space["kind"] == "box" else len(space["counts"])
    own = numbers[:, used[0] : used[0] + size]
    used[0] += size
    if space["kind"] == "box":
        own = np.clip(own, space["low"], space["high"])
        if np.dtype(space["dtype"]).kind in "iu":
            own = np.rint(own)
    else:
        own = own + np.array(space["starts"])
    return own.astype(space["dtype"]).reshape(len(numbers), *space["shape"])


def _unbatched(space: Space, batch: Any, count: int) -> Sequence[Any]:
    if "parts" not in space:
        return list(batch)
    if space["kind"] == "dict":
        columns = [_unbatched(part, batch[key], count) for key, part in space["parts"].items()]
        return [dict(zip(space["parts"], values, strict=True)) for values in zip(*columns, strict=True)]
    return list(zip(*(_unbatched(p, b, count) for p, b in zip(space["parts"], batch, strict=True)), strict=True))
