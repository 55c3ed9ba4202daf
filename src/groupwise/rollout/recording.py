"""The recording of a rollout: [T, N] arrays, written one row per step and cut into episodes at the end."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from groupwise.rollout.contract import action_space_of, broken, check_observations, check_step, completed, name_of
from groupwise.types import LARGEST_REWARD, Array, Box, End, Failure, Trajectory, VectorEnvironment

Names: TypeAlias = tuple[str, str, str]

FIRST_ROWS = 512  # the arrays double when they are full


class Tape:
    """What N copies saw, did and earned, and how each of them ended.

    Copies that have ended are still stepped with the others, but nothing they return counts. `obs` has one more row
    than the other arrays: what is seen after the last step.
    """

    def __init__(self, env: VectorEnvironment, count: int) -> None:
        rows = min(env.max_steps, FIRST_ROWS)
        self.env, self.count, self.steps = env, count, 0
        self.obs = np.empty((rows + 1, count, env.observation_size), np.float32)
        space = action_space_of(env)
        self.actions = np.empty((rows, count, *space.shape), np.float32 if isinstance(space, Box) else np.int64)
        self.logp = np.empty((rows, count), np.float32)
        self.rewards = np.empty((rows, count), np.float64)
        # Invariant: a live copy has length 0; `lengths` is set once, when the copy stops.
        self.live = np.ones(count, np.bool_)
        self.lengths = np.zeros(count, np.int64)
        self.terminated = np.zeros(count, np.bool_)
        self.failures: dict[int, Failure] = {}
        # One entry [N, actions] per recorded step; None where everything was allowed.
        self.masks: list[Array | None] = []
        self.running = count > 0

    def start(self, obs: Any) -> None:
        """Record what `reset` returned."""
        if isinstance(obs, Failure):
            self._fail(obs)
            return
        self.obs[0] = check_observations(self.env, obs, self.count)
        self._drop_not_finite(self.obs[0], np.zeros(self.count))

    def record(self, actions: Array, logp: Array, answer: Any, mask: Array | None = None) -> None:
        """Record the actions chosen, and what the environment returned for them."""
        if isinstance(answer, Failure):
            self._fail(answer)
            return
        obs, rewards, terminated, truncated = check_step(self.env, answer, self.count)
        step = self.steps
        if step == len(self.actions):
            rows = min(step, self.env.max_steps - step)
            for name in ("obs", "actions", "logp", "rewards"):
                setattr(self, name, _longer(getattr(self, name), rows))
        self.obs[step + 1] = obs
        self.actions[step] = actions
        self.logp[step] = logp
        self.masks.append(mask)
        self.rewards[step] = rewards
        # Before `steps` advances, so that a copy that is dropped ends before this step and does not keep it.
        self._drop_not_finite(self.obs[step + 1], self.rewards[step])
        self.steps = step + 1
        ended = np.logical_or(terminated, truncated)
        # Copies that ended earlier keep saying so: count each end once.
        np.logical_and(ended, self.live, ended)
        if np.count_nonzero(ended):
            self.terminated |= ended & terminated
            self._stop(ended)
        # Whatever is still live now was cut off by the limit: truncated, not terminated.
        if self.steps == self.env.max_steps:
            self._stop(self.live.copy())

    def played(self) -> NDArray[np.bool_]:
        """Which steps [N, T] come before the end of their episode."""
        mask: NDArray[np.bool_] = np.arange(self.steps) < self.lengths[:, np.newaxis]
        return mask

    def returns(self) -> NDArray[np.float64]:
        """The sum of each episode's rewards [N], NaN if the environment failed."""
        totals: NDArray[np.float64] = np.where(self.played(), self.rewards[: self.steps].T, 0.0).sum(axis=1)
        totals[list(self.failures)] = np.nan
        return totals

    def cut(self, names: Sequence[Names], version: int) -> list[Trajectory]:
        """One episode per copy, with its names (id, task id, group id)."""
        mask = self.played()
        # [T, N, …] → [N, T, …] → [Σ lengths, …]: the episodes of all copies end to end, so that each is a slice.
        tables = (self.obs, self.actions, self.logp, self.rewards)
        obs, actions, logp, rewards = (table[: self.steps].swapaxes(0, 1)[mask] for table in tables)
        masks = completed(self.masks, self.count, self.env.action_count)
        allowed = None if masks is None else np.stack(masks).swapaxes(0, 1)[mask]
        acted, versions = np.ones(len(obs), np.bool_), np.full(len(obs), version, np.int64)
        stops = np.cumsum(self.lengths).tolist()
        episodes = []
        for copy, (name, length, stop) in enumerate(zip(names, self.lengths.tolist(), stops, strict=True)):
            part = slice(stop - length, stop)
            end, last_obs = self._ending(copy)
            episodes.append(
                Trajectory(
                    *name, obs[part], actions[part], acted[part], logp[part], versions[part], rewards[part],
                    end, end is End.FINISHED, last_obs, self.failures.get(copy),
                    action_mask=None if allowed is None else allowed[part],
                )
            )  # fmt: skip
        return episodes

    def check_logp(self, actor: object) -> None:
        logp = self.logp[: self.steps].T[self.played()]
        if not _finite(logp):
            remedy = "The weights may have diverged: lower the learning rate or max_grad_norm."
            worst = float(logp[~np.isfinite(logp)][0])
            raise broken(actor, "the log-probability of a sampled action must be finite", worst, remedy)

    def _ending(self, copy: int) -> tuple[End, Array | None]:
        if copy in self.failures:
            return End.ENV_ERROR, None
        if self.terminated[copy]:
            return End.FINISHED, None
        # The observation after the last step: the value of a truncated episode is bootstrapped from it.
        return End.TRUNCATED, self.obs[self.lengths[copy], copy].copy()

    def _stop(self, copies: Array) -> None:
        self.lengths[copies] = self.steps
        self.live[copies] = False
        self.running = bool(self.live.any())

    def _fail(self, failure: Failure) -> None:
        self.failures |= dict.fromkeys(np.flatnonzero(self.live).tolist(), failure)
        self._stop(self.live.copy())

    def _drop_not_finite(self, obs: Array, rewards: Array) -> None:
        """End the copies whose latest numbers are not finite, before the step that brought them."""
        # Not `>`: a comparison with NaN is false.
        if _finite(obs) and np.abs(rewards).max(initial=0.0) <= LARGEST_REWARD:
            return
        lost = ~(np.isfinite(obs).all(axis=1) & (np.abs(rewards) <= LARGEST_REWARD))
        for copy in np.flatnonzero(lost & self.live).tolist():
            self.failures[copy] = self._not_finite(obs[copy], rewards[copy])
        self._stop(lost & self.live)
        # The policy is still given this row, and must not see a NaN.
        obs[lost] = 0.0

    def _not_finite(self, obs: Array, reward: float) -> Failure:
        seen = f"observation {obs.tolist()!s:.80}, reward {reward}"
        hint = (
            f"Observations (as float32) and rewards must be finite, and rewards at most {LARGEST_REWARD:g}: look for a "
            "division by 0 or an overflow, or divide the rewards by a constant."
        )
        return Failure("environment", "not_finite", f"{name_of(self.env)}, step {self.steps}: {seen}", hint)


def _longer(table: Array, rows: int) -> Array:
    return np.concatenate([table, np.empty((rows, *table.shape[1:]), table.dtype)])


def _finite(values: Array) -> bool:
    # Counting takes a third of the time of `all()`.
    return bool(np.count_nonzero(np.isfinite(values)) == values.size)
