"""The scheduling product: a policy that corrects HEFT's order, and groups of schedules of one graph on given machines.

    [task]
    product = "scheduling"
    environment = "random"        # or a folder of WfCommons instances, to learn from these too

What an attempt earns is HEFT's makespan over its own. `task.options`: `leave_out`, an application of that folder not to
be learned from; `speeds`, the machines of the instances; `best_of`, how many attempts the best counts of (1: the mean).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.training.estimators import Attempts, padded
from groupwise.training.loop import Evaluate
from groupwise.training.session import Parts
from groupwise.training.source import BatchRows, GroupSource, NumberedTasks
from groupwise.types import End, Failed, Group, Policy, Reward, Score, Task, Trajectory
from groupwise.workflows.evaluation.encoding import Floats
from groupwise.workflows.evaluation.schedule import TaskGraph
from groupwise.workflows.scheduling.decoder import makespans
from groupwise.workflows.scheduling.features import NAMES, Case, case_of
from groupwise.workflows.scheduling.instances import SPEEDS, application_of, read_instances
from groupwise.workflows.scheduling.policy import RankPolicy
from groupwise.workflows.scheduling.search import search
from groupwise.workflows.scheduling.worlds import random_work, varied

BEYOND_EVALUATION = 2**32
OPTIONS = ("best_of", "leave_out", "speeds")


def build(cfg: TrainingConfig, works: Sequence[TaskGraph] | None = None, reward: Reward | None = None) -> Parts:
    """Everything a run needs; `works` are learned from besides random ones, in place of what the settings name."""
    policy = RankPolicy(seed=cfg.run.seed)
    source = GroupSource(
        cfg,
        tasks=NumberedTasks(_tasks(works_of(cfg) if works is None else works, cfg.run.seed)),
        rollout=Schedules(policy, cfg.rollout.num_generations, cfg.run.seed),
        reward=reward or MakespanReward(best_of(cfg)),
        collate=rows_of_tasks,
    )
    return Parts(policy, source, held_out(cfg))


def check(cfg: TrainingConfig) -> None:
    """Refuse settings that no scheduling run can be made of, before a run folder exists."""
    works_of(cfg)
    best_of(cfg)
    if cfg.advantage.estimator != "outcome":
        raise ConfigError(
            f"advantage.estimator = {cfg.advantage.estimator!r} looks at single steps, and a schedule is judged whole",
            hint="Use 'outcome'.",
            field="advantage.estimator",
        )


def works_of(cfg: TrainingConfig) -> list[TaskGraph]:
    """The instances that `task.environment` names, without those of the application left out."""
    options = dict(cfg.task.options)
    if unknown := [name for name in options if name not in OPTIONS]:
        raise ConfigError(
            f"task.options.{unknown[0]} is not an option of scheduling",
            hint=f"One of {', '.join(OPTIONS)}.",
            field="task.options",
        )
    if cfg.task.environment == "random":
        return []
    speeds = cast(Sequence[float], options.get("speeds", SPEEDS))
    found = read_instances(Path(cfg.task.environment), speeds)
    return [work for name, work in found.items() if application_of(name) != options.get("leave_out")]


def best_of(cfg: TrainingConfig) -> int:
    """Of how many attempts the best counts; a quarter of the group unless told."""
    size = cfg.rollout.num_generations
    found = cfg.task.options.get("best_of", max(1, size // 4))
    if not isinstance(found, int) or not 1 <= found < max(size, 2):
        raise ConfigError(
            f"task.options.best_of = {found!r} must be at least 1 and less than rollout.num_generations = {size}, "
            "or all attempts would count alike",
            field="task.options",
        )
    return found


def _tasks(works: Sequence[TaskGraph], seed: int) -> Callable[[int], Task]:
    """Every other task is a random one, the rest are the given works in turn, with other durations each time."""

    def make(number: int) -> Task:
        start = BEYOND_EVALUATION + int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        if not works or number % 2:
            return Task(f"random/{number}", case_of(random_work(start)), start)
        work = works[number // 2 % len(works)]
        return Task(f"instance/{number}", case_of(varied(work, np.random.default_rng(start))), start)

    return make


class Schedules:
    """Groups of corrections by the present policy."""

    def __init__(self, policy: RankPolicy, group_size: int, seed: int) -> None:
        self.policy = policy
        self.group_size = group_size
        self.rng = np.random.default_rng([seed, 1])
        self.rounds = 0

    def collect(self, tasks: Sequence[Task]) -> list[Group]:
        self.rounds += 1
        return [self._group(task, f"{self.rounds}/{number}") for number, task in enumerate(tasks)]

    def _group(self, task: Task, name: str) -> Group:
        case: Case = task.payload
        actions, logp = self.policy.sample(case, self.group_size, self.rng)
        size = case.problem.size
        members = (
            Trajectory(
                id=f"{name}/{number}",
                task_id=task.id,
                group_id=name,
                obs=case.features,
                actions=actions[number],
                mask=np.ones(size, np.bool_),
                behavior_logp=logp[number],
                versions=np.full(size, self.policy.version),
                rewards=np.zeros(size),
                end=End.FINISHED,
                terminated=True,
            )
            for number in range(self.group_size)
        )
        return Group(name, task, tuple(members))

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state, "rounds": self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]


class MakespanReward:
    """HEFT's makespan over the attempt's, as it counts for the best of `best_of` attempts.

    Who searches keeps the best of several schedules, and a policy paid by the mean learns to try nothing.
    """

    def __init__(self, best_of: int) -> None:
        self.best_of = best_of

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> list[Score | Failed]:
        case: Case = task.payload
        corrections = np.stack([trajectory.actions for trajectory in group]).astype(np.float64)
        faster = _faster(case.heft, makespans(case.problem, case.problem.ranks * np.exp(corrections)))
        counts = best_with_each(faster, min(self.best_of, len(group)))
        return [Score(c, {"heft_ratio": f}) for c, f in zip(counts.tolist(), faster.tolist(), strict=True)]


def best_with_each(rewards: Floats, size: int) -> Floats:
    """For each of n rewards the mean best of all choices of `size` that it is among (Walder and Karkhanis 2025).

    The policy gradient with these in place of the rewards is that of the expected best of `size`; 1 is the rewards
    themselves. With r rewards below, it is the best of comb(r, size − 1) choices, and one with j below of
    comb(j − 1, size − 2) others.
    """
    count, order = len(rewards), np.argsort(rewards, kind="stable")
    ways = np.zeros((count, count))
    for rank in range(count):
        ways[rank, rank] = math.comb(rank, size - 1)
        ways[rank, rank + 1 :] = [math.comb(j - 1, size - 2) if size > 1 else 0 for j in range(rank + 1, count)]
    found = np.empty(count)
    found[order] = ways @ rewards[order] / math.comb(count - 1, size - 1)
    return found


def _faster(heft: float, found: Floats) -> Floats:
    """How many times as fast as HEFT; work that takes no time is done equally fast by all."""
    ratio: Floats = np.divide(heft, found, out=np.ones(len(found)), where=found > 0)
    return ratio


def rows_of_tasks(attempts: Attempts) -> BatchRows:
    """One row per schedule, one column per task."""
    width = attempts.mask.shape[1]
    obs = np.zeros((len(attempts.members), width, len(NAMES)), np.float32)
    for row, member in zip(obs, attempts.members, strict=True):
        row[: len(member)] = member.obs
    return BatchRows(
        inputs={
            "obs": torch.from_numpy(obs),
            "actions": padded([member.actions for member in attempts.members], np.float32),
        },
        mask=attempts.mask,
        behavior_logp=padded([member.behavior_logp for member in attempts.members], np.float32),
        pick=lambda table: table,
    )


def held_out(cfg: TrainingConfig) -> Evaluate:
    """Random work that training never sees: what the mean correction earns, and the best of 16 evaluations."""
    cases = [case_of(random_work(cfg.run.eval_seed + number)) for number in range(cfg.run.eval_episodes)]

    def evaluate(policy: Policy) -> dict[str, float]:
        assert isinstance(policy, RankPolicy)
        priorities = [(case.problem.ranks * np.exp(policy.see(case)[0]))[None] for case in cases]
        single = [c.heft / makespans(c.problem, p)[0] for c, p in zip(cases, priorities, strict=True)]
        best = [case.heft / search(case, policy, 16, seed).makespan for seed, case in enumerate(cases)]
        return {
            "eval/reward_mean": float(np.mean(single)),
            "eval/reward_min": float(np.min(single)),
            "eval/best_of_16": float(np.mean(best)),
        }

    return evaluate
