"""The computational engine of document 4: conversations made by many workers at once, and rewards that are learned.

    engine = create_computational_engine(agent=agent, environment=environment, reward_function=reward_function,
                                         num_workers=8, use_learned_rewards=True)
    results = await engine.train_iteration(prompts)
    metrics = await engine.get_metrics()                       # or without `await`
    if metrics["trajectories_per_second"] < threshold:
        await engine.scale_computation(scale_factor=2.0)

It is a face on the trainer: an iteration is a step of the one loop, whose conversations are held in the workers of
`groupwise.rollout.backends`. A worker holds one conversation at a time, so `num_workers` of them are under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Self

from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.task import TaskEnvironment
from groupwise.compat.trainer import ConversationTrainer, Trainable
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ResourceError
from groupwise.rewards.combination import MultiObjectiveRewardFunction
from groupwise.rewards.function import EnvironmentReward, RewardFunction
from groupwise.rewards.learned.neural import NeuralRewardFunction
from groupwise.rewards.signatures import as_reward
from groupwise.rollout.backends import RolloutWorkers
from groupwise.types import Failed, Message, Reward, Score, ScoredGroup, Task, Trajectory


class AwaitableResult(dict[str, Any]):
    """Results that are there at once and may be awaited too, as document 4 does."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


class ComputationalGRPOEngine:
    """Trains an agent with many workers; see `create_computational_engine`."""

    def __init__(self, trainer: ConversationTrainer) -> None:
        self.trainer = trainer
        self.iterations = self.trajectories = 0
        self._last: dict[str, float] = {}
        self._began: float | None = None
        self._orders: list[Mapping[str, Any]] = []

    async def train_iteration(self, prompts: Sequence[Any]) -> dict[str, Any]:
        """One step on a group of conversations about every prompt: sampled, scored, and learned from.

        A prompt is a scenario of the environment, or a text: what the user says first.
        """
        if isinstance(prompts, str) or not prompts:
            raise ConfigError(f"prompts = {prompts!r:.60} is not a list of prompts", hint='Pass ["Hello", …].')
        if self._began is not None:
            raise ConfigError("an iteration is already under way", hint="Await it before the next one.")
        await self._initialized()
        self._began = time.perf_counter()
        try:
            return await self._iteration([scenario_of(self.trainer.environment, prompt) for prompt in prompts])
        finally:
            self._began = None

    async def _iteration(self, scenarios: Sequence[Any]) -> dict[str, Any]:
        began, workers = time.perf_counter(), self.workers
        while self._orders:
            self._scale(self._orders.pop(0))
        changed = workers.adjust()
        groups = await self.trainer.generate_trajectories(scenarios)
        sampled = time.perf_counter()
        load = workers.metrics()
        learned = await self.trainer.training_step(groups)
        ended = time.perf_counter()
        count = sum(len(group.scores) for group in groups)
        self.iterations += 1
        self.trajectories += count
        self._last = {
            "trajectories_per_second": count / (ended - began), "sampled_per_second": count / (sampled - began),
            "average_reward": _mean(groups), **{name.removeprefix("rollout/"): value for name, value in load.items()},
        }  # fmt: skip
        return {
            "iteration": self.iterations, "trajectories": count, "average_reward": self._last["average_reward"],
            "seconds": ended - began, "workers": workers.size, "scaled": changed, "metrics": {**load, **learned},
        }  # fmt: skip

    def get_metrics(self) -> AwaitableResult:
        """How fast the last iteration was, its update included, how busy the workers were, and the totals."""
        size = self.workers.size if self.trainer.is_prepared else self.trainer.cfg.rollout.num_workers
        return AwaitableResult(
            {"trajectories_per_second": 0.0, **self._last, "workers": size, "iterations": self.iterations,
             "trajectories": self.trajectories}
        )  # fmt: skip

    def scale_computation(
        self, scale_factor: float | None = None, *, workers: int | None = None, least: int | None = None,
        most: int | None = None,
    ) -> AwaitableResult:  # fmt: skip
        """Change the number of workers: by a factor, to a number, or automatically within limits.

        During an iteration, and before the first, the order is carried out before the next one.
        """
        given = {"scale_factor": scale_factor, "workers": workers, "least": least, "most": most}
        args = {name: value for name, value in given.items() if value is not None}
        if not args or any(value <= 0 for value in args.values()):
            raise ConfigError(
                f"{args or 'nothing'} is not an order to scale", hint="Pass scale_factor=2.0 or workers=8."
            )
        if self._began is not None or not self.trainer.is_prepared:
            self._orders.append(args)
            return AwaitableResult({"workers": self.get_metrics()["workers"], "later": args})
        return AwaitableResult(self._scale(args))

    def _scale(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        done = self.workers.scale(args)
        if "refused" in done:
            raise ResourceError(done["refused"], hint=done["remedy"])
        return done

    @property
    def workers(self) -> RolloutWorkers:
        found = self.trainer.workers
        assert found is not None
        return found

    def close(self) -> None:
        """End the workers and free the model's engine. The agent keeps its weights."""
        self.trainer.close()

    async def __aenter__(self) -> Self:
        await self._initialized()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def _initialized(self) -> None:
        if not self.trainer.is_prepared:
            await self.trainer.initialize()


def create_computational_engine(
    agent: Trainable,
    environment: Scenarios,
    reward_function: Reward | Callable[[Sequence[Message]], Any] | None = None,
    num_workers: int = 8,
    use_learned_rewards: bool = True,
    *,
    max_workers: int | None = None,
    backend: Literal["processes", "ray"] = "processes",
    config: TrainingConfig | None = None,
) -> ComputationalGRPOEngine:
    """An engine that trains `agent` in place.

    Args:
      agent: its model learns.
      environment: the scenarios, such as a `ConversationEnvironment`; workers import its class and get a copy of it.
      reward_function: as for `GRPOTrainer`; without one, the environment's own rewards count.
      num_workers: conversations under way at once, each in a worker of its own.
      use_learned_rewards: a network learns from these rewards, and half of a score is its own once it beats chance on
        attempts that it has not seen.
      max_workers: the number of workers then follows the load, between `num_workers` and this.
      backend: "processes", or "ray".
      config: settings of the run, such as the learning rate and the size of a group.
    """
    if backend not in ("processes", "ray"):
        raise ConfigError(f"backend = {backend!r} has no workers", hint='Use "processes" or "ray".', field="backend")
    reward: Any = reward_function if reward_function is not None else EnvironmentReward()
    if use_learned_rewards:
        reward = with_learned_reward(as_reward(reward))
    cfg = (config or TrainingConfig(product="agent")).replace(
        backend=backend, num_workers=num_workers, max_workers=max_workers, attempts_per_worker=1
    )
    return ComputationalGRPOEngine(ConversationTrainer(agent, environment, reward, cfg))


def scenario_of(environment: Scenarios, prompt: Any) -> Any:
    """What a conversation of this environment is about, if the user begins with `prompt`."""
    if not isinstance(prompt, str):
        return prompt
    if isinstance(environment, ConversationEnvironment):
        return {"opening": prompt}
    if isinstance(environment, TaskEnvironment):
        known = (task for task in (*environment.train, *environment.test) if task["goal"] == prompt)
        return next(known, {"goal": prompt})
    return prompt


def with_learned_reward(reward: Reward) -> MultiObjectiveRewardFunction:
    """Half the reward itself, half a network that learns from it; the reward is asked once for each group."""
    known = AskedOnce(reward)
    return MultiObjectiveRewardFunction(
        [known, NeuralRewardFunction(teacher=known, heuristic=known)], "weighted_average"
    )


class AskedOnce(RewardFunction):
    """A reward whose answer about a group is shared by all who ask for it."""

    def __init__(self, reward: Reward) -> None:
        super().__init__(name="given")
        self.reward = reward
        self._answers: dict[tuple[int, ...], asyncio.Task[Sequence[Score | Failed]]] = {}

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        key = tuple(map(id, group))
        asked = self._answers.get(key)
        if asked is None:
            asked = self._answers[key] = asyncio.ensure_future(self._ask(task, group))
            # Both components ask before either has its answer; afterwards other attempts may have these ids.
            asked.add_done_callback(lambda _: self._answers.pop(key, None))
        return await asyncio.shield(asked)

    async def _ask(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        return await self.reward(task, group)


def _mean(groups: Sequence[ScoredGroup]) -> float:
    totals = [score.total for group in groups for score in group.scores if isinstance(score, Score)]
    return sum(totals) / len(totals) if totals else float("nan")
