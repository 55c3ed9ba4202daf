"""A step of a run as it was recorded: what its attempts were like, and how other groupings would divide them.

Read from `groups/<step>.parquet`. Observations and rewards over time are those of recorded episodes: every step of an
attempt of up to 120, evenly spaced moments of a longer one, whose rewards are then summed from moment to moment. An
attempt in words has its score at its end. Attempts without a finite score, or with an observation that is not finite,
are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groupwise import core
from groupwise.config import TrainingConfig
from groupwise.errors import GroupwiseError, RunError
from groupwise.training import group_files
from groupwise.training.events import plain
from groupwise.training.exhibits import MOMENTS
from groupwise.training.folder import read_config
from groupwise.training.formatting import number
from groupwise.types import Task
from groupwise.worker_process import by_operation

Table = NDArray[np.float64]

# Attempts that are looked at. Of more, whole groups are taken, evenly spaced.
MOST_ATTEMPTS = 400
# Earlier steps that strategies with a memory are shown first.
EARLIER = 4
MOST_GROUPS = 8
RIDGE = 1e-5


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """N attempts of a step, and how many were `recorded` and left out.

    `group` numbers the groups that shared a task and a start. `rewards` and `values` are over the moments of each
    attempt; `values` are those of a critic fitted to these attempts, `last_values` what it expects after the
    last moment, 0 if the attempt ended by itself.
    """

    step: int
    recorded: int
    unscored: int
    not_finite: int
    ids: tuple[str, ...]
    group_names: tuple[str, ...]
    group: NDArray[np.int64]
    tasks: tuple[str, ...]
    totals: Table
    lengths: NDArray[np.int64]
    advantages: Table
    feature_names: tuple[str, ...]
    features: Table
    moments: tuple[NDArray[np.int64], ...]
    rewards: tuple[Table, ...]
    values: tuple[Table, ...]
    last_values: Table
    terminated: NDArray[np.bool_]
    explained_variance: float | None
    gamma: float
    gae_lambda: float
    size_unit: str

    def __len__(self) -> int:
        return len(self.ids)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it. Scores are exact; features, rewards and values have ten digits."""
        return {
            "step": self.step, "recorded": self.recorded, "shown": len(self), "unscored": self.unscored,
            "not_finite": self.not_finite, "ids": list(self.ids), "group_names": list(self.group_names),
            "groups": self.group.tolist(), "tasks": list(self.tasks), "totals": self.totals.tolist(),
            "lengths": self.lengths.tolist(), "advantages": self.advantages.tolist(),
            "feature_names": list(self.feature_names), "features": [_short(row) for row in self.features],
            "moments": [row.tolist() for row in self.moments], "rewards": [_short(row) for row in self.rewards],
            "values": [_short(row) for row in self.values], "last_values": _short(self.last_values),
            "terminated": self.terminated.tolist(), "explained_variance": self.explained_variance,
            "gamma": self.gamma, "gae_lambda": self.gae_lambda, "size_unit": self.size_unit,
        }  # fmt: skip

    def summaries(self) -> core.Summaries:
        """What a grouping may look at; the number of a group stands for its start."""
        return core.Summaries(self.features, np.array(self.tasks, np.str_), self.totals, self.lengths, self.group)


@dataclass(frozen=True, slots=True)
class Regrouping:
    """How a strategy divides a step's attempts: `iterations` of numbers [N], the last being the result; their names."""

    strategy: str
    iterations: tuple[NDArray[np.int64], ...]
    names: dict[int, str]
    earlier_steps: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy, "iterations": [groups.tolist() for groups in self.iterations],
            "names": {str(number): name for number, name in self.names.items()},
            "earlier_steps": list(self.earlier_steps),
        }  # fmt: skip


def read_step(run: Path, step: int, most: int = MOST_ATTEMPTS) -> RecordedStep:
    """The attempts of one step of the run in that folder, at most about `most`."""
    path = group_files.file_of_step(run / "groups", step)
    if path is None:
        hint = f"The newest step with groups is {newest_step(run)}."
        raise RunError(f"run {run.name} has no saved groups for step {step}", hint=hint, field="step")
    return _read(run, path.stat().st_mtime_ns, step, most)


def newest_step(run: Path) -> int:
    """The newest step of the run whose groups were saved."""
    found = group_files.kept_steps(run / "groups")
    if not found:
        hint = "A run saves the groups of every run.group_log_steps-th step; set it to 1 to see them all."
        raise RunError(f"run {run.name} has no saved groups", hint=hint)
    return found[-1]


def groups_table(step: RecordedStep, found: Regrouping) -> Any:
    """A table for the terminal: each group's attempts, returns and lengths."""
    from rich.table import Table as Columns

    left = f", {step.unscored + step.not_finite} left out" if step.unscored + step.not_finite else ""
    title = f"step {step.step}: {len(step)} of {step.recorded} attempts{left}, by {found.strategy}"
    table = Columns(title=title, title_justify="left")
    for heading in ("group", "attempts", "mean return", "spread of returns", "mean length"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for name, label in found.names.items():
        rows = found.iterations[-1] == name
        if rows.any():
            totals, lengths = step.totals[rows], step.lengths[rows]
            cells = (number(float(value)) for value in (totals.mean(), totals.std(), lengths.mean()))
            table.add_row(label, str(int(rows.sum())), *cells)
    return table


def _short(values: Table) -> list[float]:
    return [float(f"{value:.10g}") for value in values]


@lru_cache(maxsize=64)
def _read(run: Path, changed: int, step: int, most: int) -> RecordedStep:
    try:
        cfg = read_config(run)
    except (GroupwiseError, OSError):
        cfg = TrainingConfig()  # a run without readable settings: the defaults
    everything = group_files.read_step(run / "groups", step) or []
    rows = sampled(everything, most)
    scored = [row for row in rows if row["total"] is not None and np.isfinite(row["total"])]
    played = [(row, _episode(row)) for row in scored]
    sound = [(row, told) for row, told in played if np.isfinite(told.states).all() and np.isfinite(told.rewards).all()]
    kept, told = [row for row, _ in sound], [one for _, one in sound]
    names = tuple(dict.fromkeys(row["group_id"] for row in kept))
    totals, lengths = [row["total"] for row in kept], [row["length"] for row in kept]
    features = core.attempt_features([one.states for one in told], lengths, totals)
    critic = fit_critic(told, cfg.advantage.gamma)
    averages = core.loss_rule(cfg.loss.loss_type).aggregation == "mean_of_means"
    return RecordedStep(
        step=step, recorded=len(everything), unscored=len(rows) - len(scored), not_finite=len(scored) - len(kept),
        ids=tuple(row["trajectory_id"] for row in kept), group_names=names,
        group=np.array([names.index(row["group_id"]) for row in kept], np.int64),
        tasks=tuple(Task(row["task_id"]).kind for row in kept), totals=np.array(totals, np.float64),
        lengths=np.array(lengths, np.int64), advantages=np.array([row["advantage"] for row in kept], np.float64),
        feature_names=feature_names((features.shape[1] - 2) // 2), features=features,
        moments=tuple(one.at for one in told), rewards=tuple(one.rewards for one in told), values=critic.values,
        last_values=np.where([one.terminated for one in told], 0.0, critic.last), explained_variance=critic.explained,
        terminated=np.array([one.terminated for one in told], np.bool_), gamma=cfg.advantage.gamma,
        gae_lambda=cfg.advantage.gae_lambda, size_unit="attempts" if averages else "actions",
    )  # fmt: skip


def sampled(rows: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """All rows, or whole groups evenly spaced over the step; evenly spaced rows of a single group that is too large."""
    if len(rows) <= most:
        return list(rows)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    members = list(groups.values())
    count = max(1, min(len(members), most * len(members) // len(rows)))
    chosen = [row for at in np.linspace(0, len(members) - 1, count).astype(int) for row in members[at]]
    spaced = np.linspace(0, len(chosen) - 1, min(most, len(chosen))).astype(int)
    return [chosen[at] for at in spaced]


def feature_names(width: int) -> tuple[str, ...]:
    means = [f"mean of observation {n + 1}" for n in range(width)]
    return ("reward per step", "log(1 + length)", *means, *(f"spread of observation {n + 1}" for n in range(width)))


@dataclass(frozen=True, slots=True)
class _Episode:
    at: NDArray[np.int64]
    states: Table
    rewards: Table
    terminated: bool


def _episode(row: dict[str, Any]) -> _Episode:
    """The recorded episode of an attempt; of one in words, moments without reward and the score at its end."""
    terminated = row["end"] == "finished"
    try:
        told = json.loads(row["exhibit"] or "null")
        if isinstance(told, dict) and told.get("kind") == "episode":
            at, sums = np.array(told["at"], np.int64), np.array(told["sums"], np.float64)
            states = np.array(told["states"], np.float64)
            if states.ndim == 2 and len(at) == len(states) == len(sums) > 0:
                return _Episode(at, states, np.diff(sums, prepend=0.0), terminated)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        pass  # runs may come from anywhere: what is no episode is an attempt without one
    count = max(1, min(int(row["length"]), MOMENTS))
    rewards = np.zeros(count)
    rewards[-1] = row["total"]
    at = np.linspace(0, max(int(row["length"]) - 1, 0), count).astype(np.int64)
    return _Episode(at, np.zeros((count, 0)), rewards, True)


@dataclass(frozen=True, slots=True)
class _Critic:
    values: tuple[Table, ...]
    last: Table
    explained: float | None


def fit_critic(episodes: Sequence[_Episode], gamma: float) -> _Critic:
    """What a critic would expect at every moment: the least-squares fit of these attempts' own returns-to-go.

    The features are those of the linear baseline in "Benchmarking Deep Reinforcement Learning for Continuous Control"
    (arXiv 1604.06778): the observation, its square, time, its square and cube, and a constant. A policy's own critic is
    not recorded; this one is the best linear critic for the data it is judged on, so PPO is shown at its best.
    """
    if not episodes:
        return _Critic((), np.zeros(0), None)
    width = max(one.states.shape[1] for one in episodes)
    inputs = [_critic_inputs(one, width) for one in episodes]
    returns = [_returns(one.rewards, gamma) for one in episodes]
    table, target = np.concatenate(inputs), np.concatenate(returns)
    spread = table.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    scaled = table / scale
    weights = np.linalg.solve(scaled.T @ scaled + RIDGE * len(table) * np.eye(table.shape[1]), scaled.T @ target)
    values = tuple(one / scale @ weights for one in inputs)
    fitted = np.concatenate(values)
    rows = [torch.from_numpy(row)[np.newaxis] for row in (fitted, target, np.ones(len(target), np.bool_))]
    explained = float(core.explained_variance(*rows))
    # What follows the last moment is not recorded: its own value stands for it.
    return _Critic(values, np.array([one[-1] for one in values]), explained if np.isfinite(explained) else None)


def _critic_inputs(episode: _Episode, width: int) -> Table:
    states = np.zeros((len(episode.at), width))
    states[:, : episode.states.shape[1]] = np.clip(episode.states, -1e3, 1e3)
    time = episode.at[:, np.newaxis] / 100.0
    return np.concatenate([states, states**2, time, time**2, time**3, np.ones_like(time)], axis=1)


def _returns(rewards: Table, gamma: float) -> Table:
    row = torch.from_numpy(rewards)[np.newaxis]
    found: Table = core.discounted_returns(row, torch.ones_like(row, dtype=torch.bool), gamma)[0].numpy()
    return found


def regroup(run: Path, step: int, strategy: str, n_groups: int | None = 4, seed: int = 0) -> Regrouping:
    """How `strategy` divides the attempts of a step. One that remembers is shown the steps saved before it first."""
    if n_groups is not None and not 1 <= n_groups <= MOST_GROUPS:
        raise RunError(f"n_groups is {n_groups}; it must be from 1 to {MOST_GROUPS}, or left out for automatic")
    try:
        grouping = core.make_grouping(strategy, n_groups, seed=seed)
    except ValueError as error:
        raise RunError(str(error), field="strategy") from None
    earlier: list[int] = []
    if strategy in ("adaptive", "dirichlet"):
        earlier = [past for past in group_files.kept_steps(run / "groups") if past < step][-EARLIER:]
    width = read_step(run, step).features.shape[1]
    for past in list(earlier):
        before = read_step(run, past)
        if before.features.shape[1] == width and len(before):
            grouping(before.summaries())
        else:
            earlier.remove(past)
    iterations = grouping.iterations(read_step(run, step).summaries())
    kinds = {int(kind) for groups in iterations for kind in groups if kind >= 0}
    final = set(iterations[-1].tolist())
    names = {kind: grouping.label(kind) if kind in final else f"{strategy}-{kind}" for kind in sorted(kinds)}
    return Regrouping(strategy, tuple(iterations), names, tuple(earlier))


def make_handler() -> Callable[..., Any]:
    """A process beside the service, for its `Sidecar`: the service itself does without torch."""

    async def attempts(asked: Mapping[str, Any]) -> AsyncIterator[Any]:
        yield plain(read_step(Path(asked["run"]), asked["step"]).as_dict())

    async def grouping(asked: Mapping[str, Any]) -> AsyncIterator[Any]:
        yield plain(regroup(Path(asked["run"]), asked["step"], asked["strategy"], asked["n_groups"]).as_dict())

    return by_operation({"attempts": attempts, "grouping": grouping})
