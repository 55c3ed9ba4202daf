"""Several tasks in one environment, for one policy: the reset seed says which task it is.

    seed = start · K + k        task k of K, from `start`

So rollouts need to know nothing about tasks, evaluation seeds cycle through all of them, and the members of a group,
which share a seed, share a task. Observations end in a one-hot of the task, unless the tasks are levels of one task.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groupwise.control.classic.cartpole import CartPole
from groupwise.control.classic.mountain_car import MountainCar
from groupwise.control.classic.pendulums import Acrobot
from groupwise.control.spaces import interface_of, plain_interface
from groupwise.errors import ConfigError, ContractError
from groupwise.rollout.contract import action_mask_of, action_space_of, name_of
from groupwise.types import ActionSpace, Array, Discrete, Group, Task, VectorEnvironment

LIGHTEST, HEAVIEST = 0.01, 100.0


@dataclass(frozen=True)
class SuiteTask:
    """One task of a suite. Rewards are multiplied by `reward_scale`; a curriculum moves on at the return `goal`.

    A task of weight 2 is played twice as often as one of weight 1.
    """

    kind: str
    environment: VectorEnvironment
    reward_scale: float = 1.0
    goal: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not LIGHTEST <= self.weight <= HEAVIEST or not math.isfinite(self.reward_scale) or self.reward_scale == 0:
            message = f"the task {self.kind!r} has weight = {self.weight:g} and reward_scale = {self.reward_scale:g}"
            hint = f"Weights are {LIGHTEST:g} to {HEAVIEST:g}, and a scale is any number but 0."
            raise ConfigError(message, hint=hint, field="task.environment")


class MultiTask:
    """Copies of several environments stepped as one: a `VectorEnvironment`.

    Shorter observations are padded with zeros, and actions that a task lacks are masked in it.
    """

    def __init__(
        self, name: str, parts: Sequence[SuiteTask], *, tell_task: bool = True, max_steps: int | None = None
    ) -> None:
        self.name = name
        self.parts = tuple(parts)
        self.kinds = tuple(part.kind for part in parts)
        self.action_space = common_actions(name, [action_space_of(part.environment) for part in parts])
        self.action_count = max(part.environment.action_count for part in parts)
        self._width = max(part.environment.observation_size for part in parts)
        self._tells = tell_task
        self.observation_size = self._width + (len(parts) if tell_task else 0)
        plain = plain_interface(self.observation_size, self.action_space)
        own = {part.kind: interface_of(part.environment) for part in parts}
        members = {kind: {"observation": seen.observation, "action": seen.action} for kind, seen in own.items()}
        self.interface = replace(plain, tasks=len(parts), members=members) if tell_task else plain
        # A limit for the suite shortens its tasks but never lengthens them.
        for part in parts:
            part.environment.max_steps = min(part.environment.max_steps, max_steps or part.environment.max_steps)
        self.max_steps = max(part.environment.max_steps for part in parts)
        # Task numbers in the order in which they are played.
        self.order = weighted_order([part.weight for part in parts])
        self._uneven = len({part.environment.action_count for part in parts}) > 1
        self._task = np.empty(0, np.intp)
        self._members: list[tuple[int, Array]] = []

    def seed_of(self, kind: int, start: int) -> int:
        """The seed with which task number `kind` begins at `start`."""
        return start * len(self.parts) + kind

    def kind_at(self, seed: int) -> str:
        return self.kinds[seed % len(self.parts)]

    def reset(self, seeds: Sequence[int]) -> Array:
        # The remainder is the task, the quotient the start.
        self._task = np.array([seed % len(self.parts) for seed in seeds], np.intp)
        found = [(number, np.flatnonzero(self._task == number)) for number in range(len(self.parts))]
        self._members = [(number, rows) for number, rows in found if len(rows)]
        obs = self._blank()
        for number, rows in self._members:
            starts = [seeds[row] // len(self.parts) for row in rows.tolist()]
            self._see(obs, number, rows, self.parts[number].environment.reset(starts))
        return obs

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array]:
        if len(actions) != len(self._task):
            hint = "Pass one action per copy."
            raise ContractError(f"{self.name} needs {len(self._task)} actions, not {len(actions)}", hint=hint)
        count = len(actions)
        obs, rewards = self._blank(), np.zeros(count)
        terminated, truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for number, rows in self._members:
            part = self.parts[number]
            seen, earned, terminated[rows], truncated[rows] = part.environment.step(actions[rows])
            self._see(obs, number, rows, seen)
            rewards[rows] = earned * part.reward_scale
        return obs, rewards, terminated, truncated

    def action_mask(self) -> Array | None:
        """Which actions each copy's task has; None if all tasks have the same."""
        # Tasks with fewer actions use the first ones.
        counts = np.array([part.environment.action_count for part in self.parts])
        allowed: Array = np.arange(self.action_count) < counts[self._task][:, np.newaxis]
        masks = [(rows, action_mask_of(self.parts[number].environment, len(rows))) for number, rows in self._members]
        for rows, mask in masks:
            if mask is not None:
                allowed[rows, : mask.shape[1]] = mask
        return allowed if self._uneven or any(mask is not None for _, mask in masks) else None

    def drawn(self) -> "MultiTask":
        """The same suite, whose Gymnasium environments can be drawn."""
        parts = [
            replace(p, environment=getattr(p.environment, "drawn", lambda p=p: p.environment)()) for p in self.parts
        ]
        return MultiTask(self.name, parts, tell_task=self._tells)

    def _blank(self) -> Array:
        obs = np.zeros((len(self._task), self.observation_size), np.float32)
        if self._tells:
            obs[np.arange(len(obs)), self._width + self._task] = 1.0
        return obs

    def _see(self, obs: Array, number: int, rows: Array, seen: Array) -> None:
        obs[rows, : self.parts[number].environment.observation_size] = seen


def common_actions(name: str, spaces: Sequence[ActionSpace]) -> ActionSpace:
    """Actions that fit all tasks: the largest number of choices, or a Box that all share."""
    if all(isinstance(space, Discrete) for space in spaces):
        return max((space for space in spaces if isinstance(space, Discrete)), key=lambda space: space.count)
    if all(space == spaces[0] for space in spaces):
        return spaces[0]
    hint = "Combine tasks with Discrete actions, or tasks whose actions are the same."
    raise ContractError(f"One policy cannot handle all tasks of {name}: {', '.join(map(str, spaces))}", hint=hint)


def insist_on_several_tasks(environment: VectorEnvironment, setting: str, value: str) -> None:
    """Refuse a setting that is about several tasks where there is only one."""
    if isinstance(environment, MultiTask) and len(environment.kinds) > 1:
        return
    message = f"{setting} = {value!r} is about several tasks, but {name_of(environment)} is one"
    hint = "Train on a suite, such as reward-scales or a TOML file of tasks, or leave it out."
    raise ConfigError(message, hint=hint, field=setting)


def weighted_order(weights: Sequence[float]) -> list[int]:
    """Numbers of tasks, each as often as its weight says and as evenly spread as possible (smooth round robin)."""
    shares = np.asarray(weights, float) / sum(weights)
    turns = len(shares) if np.ptp(shares) < 1e-9 else min(200, round(1 / float(shares.min())))
    order, credit = [], np.zeros(len(shares))
    for _ in range(turns):
        credit += shares
        order.append(int(np.argmax(credit)))
        credit[order[-1]] -= 1.0
    return order


class TaskCurriculum:
    """An endless stream of tasks that opens the next level when the newest is mastered: a `Tasks`.

    Half of the tasks come from the newest level, the rest from earlier ones. A level is mastered when the mean return
    of its last `window` groups reaches its goal.
    """

    def __init__(self, environment: MultiTask, make: Callable[[int, int], Task], seed: int, window: int = 8) -> None:
        self.environment, self.make, self.seed, self.window = environment, make, seed, window
        self.cursor = 0
        self.level = 0
        self.recent: list[float] = []

    def take(self, count: int) -> list[Task]:
        numbers = range(self.cursor, self.cursor + count)
        self.cursor += count
        return [self.make(number, self._level_of(number)) for number in numbers]

    def see(self, groups: Sequence[Group]) -> None:
        """Take note of how the latest groups did."""
        newest = self.environment.parts[self.level]
        for group in groups:
            returns = [float(member.rewards.sum()) for member in group.members if member.error is None]
            if group.task.kind == newest.kind and returns:
                self.recent = [*self.recent, float(np.mean(returns))][-self.window :]
        # Only the newest level is judged; earlier ones stay open.
        mastered = newest.goal is not None and len(self.recent) == self.window
        if mastered and np.mean(self.recent) >= (newest.goal or 0.0) and self.level + 1 < len(self.environment.parts):
            self.level, self.recent = self.level + 1, []

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "level": self.level, "recent": list(self.recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cursor, self.level, self.recent = state["cursor"], state["level"], list(state["recent"])

    def _level_of(self, number: int) -> int:
        # A task's level depends on its number alone, so a resumed run draws the same tasks.
        rng = np.random.default_rng([self.seed, number, 3])
        return self.level if self.level == 0 or rng.random() < 0.5 else int(rng.integers(self.level))


def reward_scales() -> list[SuiteTask]:
    """Three CartPoles whose rewards differ by a factor of 10,000; in the third, left and right are swapped."""
    return [
        SuiteTask("cartpole", CartPole(), reward_scale=100.0),
        SuiteTask("cartpole-long", CartPole(half_length=1.0), reward_scale=1.0),
        SuiteTask("cartpole-short-reversed", CartPole(half_length=0.25, force=-10.0), reward_scale=0.01),
    ]


def dynamics() -> list[SuiteTask]:
    """The same goal and rewards under different physics."""
    return [
        SuiteTask("cartpole", CartPole()),
        SuiteTask("cartpole-long", CartPole(half_length=2.0)),
        SuiteTask("cartpole-short", CartPole(half_length=0.2)),
        SuiteTask("cartpole-reversed", CartPole(force=-10.0)),
    ]


def lengths() -> list[SuiteTask]:
    """The same task with limits from 50 to 2,000 steps: long episodes fill a batch and drown out short ones."""
    return [SuiteTask(f"cartpole-{steps}", CartPole(max_steps=steps)) for steps in (50, 500, 2000)]


def capability() -> list[SuiteTask]:
    """Agents of different strength: the weakest pushes with a fifth of the usual force."""
    strength = {"strong": 10.0, "weak": 5.0, "weakest": 2.0}
    return [SuiteTask(f"cartpole-{name}", CartPole(force=force)) for name, force in strength.items()]


def classic() -> list[SuiteTask]:
    """Unrelated tasks: observations and actions differ in size and meaning."""
    return [
        SuiteTask("cartpole", CartPole()),
        SuiteTask("acrobot", Acrobot()),
        SuiteTask("mountain-car", MountainCar()),
    ]


def curriculum() -> list[SuiteTask]:
    """A mountain car that starts fast and, level by level, slower, until it must rock itself out."""
    speeds = {"fast": 0.055, "slower": 0.045, "slow": 0.03, "at-rest": 0.0}
    cars = {name: MountainCar(start_speed=speed) for name, speed in speeds.items()}
    return [SuiteTask(f"mountain-car-{name}", car, goal=-150.0) for name, car in cars.items()]


PARTS: Mapping[str, Callable[[], list[SuiteTask]]] = {
    make.__name__.replace("_", "-"): make
    for make in (reward_scales, dynamics, lengths, capability, classic, curriculum)
}


def make_suite(name: str, *, max_steps: int | None = None) -> MultiTask:
    """The suite of that name. The curriculum's levels are one task, so observations do not name the level."""
    return MultiTask(name, PARTS[name](), tell_task=name != "curriculum", max_steps=max_steps)


SUITES = tuple(PARTS)
