"""Trainers with the names of the founding documents; `train` runs the one loop, and the other calls its parts.

    agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
    trainer = MultiTurnGRPOTrainer(agent, environment, reward, TrainingConfig(num_episodes=100))
    await trainer.initialize()
    agent = await trainer.train()

`train` is a run like any other: its folder (`trainer.path`) has events and checkpoints, and a trainer with the same
`run_name` resumes it. The other methods take single steps by hand.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from groupwise.agents.agent_product import AgentSource, build
from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.environments.contract import Environment, Observation, Scenarios
from groupwise.agents.settings import AgentConfig
from groupwise.compat.trl_trainer import TextTrainer
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.language.adapters import lora_of, wanted_lora
from groupwise.language.loading import LanguageModel, prepare
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.signatures import as_reward
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.loop import Position
from groupwise.training.ranks.communication import ALONE, Ranks
from groupwise.training.run import Run
from groupwise.training.session import Parts, execute, use_threads
from groupwise.training.step_groups import StepGroups
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Batch, Event, Group, Message, Reward, ScoredGroup, Task, Trajectory


class Trainable(Protocol):
    """An agent that can learn: it has a language model and loads it on request."""

    @property
    def language(self) -> LanguageModel: ...
    async def initialize(self) -> Any: ...
    def use(self, language: LanguageModel) -> None: ...


class GRPOTrainer:
    """One name, two calls: `GRPOTrainer(agent, environment, …)` and, as in TRL, `GRPOTrainer(model, reward_funcs, …)`.

    An agent has a language model and loads it on request; anything else is a model or its name.
    """

    def __new__(cls, *given: Any, **named: Any) -> Any:
        if cls is not GRPOTrainer:
            return super().__new__(cls)
        first = given[0] if given else named.get("agent")
        is_agent = "agent" in named or hasattr(first, "initialize")
        return object.__new__(ConversationTrainer if is_agent else ModelTrainer)


class ModelTrainer(TextTrainer, GRPOTrainer):
    """TRL's call; see `compat/trl_trainer.py`."""


class ConversationTrainer(GRPOTrainer):
    """Trains an agent's model on conversations with an environment.

    Args:
      agent: its weights are trained in place.
      environment: the scenarios, such as a `ConversationEnvironment`.
      reward_fn: a `RewardFunction`, or a function of a conversation's turns. Without one, the environment's own
        rewards count.
      config: settings of the run. Sampling settings left at their default are taken from the agent.
      on_event: called with every event of `train`.
    """

    def __init__(
        self,
        agent: Trainable,
        environment: Scenarios,
        reward_fn: Reward | Callable[[Sequence[Message]], Any] | None = None,
        config: TrainingConfig | None = None,
        *,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self.agent, self.environment, self.on_event = agent, environment, on_event
        self.reward = None if reward_fn is None else as_reward(reward_fn)
        given = (config or TrainingConfig()).replace(product="agent")
        # Any object with a language model will do; only ours has settings to take over.
        own = getattr(agent, "config", None)
        model = getattr(own, "model_name", None) or given.policy.model_name
        words = own.chosen_sampling(given) if isinstance(own, AgentConfig) else {}
        self.cfg = given.replace(environment=environment.name, model_name=model, **words)
        self.path: Path | None = None
        self._parts: Parts | None = None
        self._run: Run | None = None
        self._reference: LanguagePolicy | None = None
        self._drawn = 0

    async def initialize(self) -> None:
        """Load the agent's model and make everything that trains it."""
        await self.agent.initialize()
        self._adapt()
        self.prepare()

    async def train(self) -> Any:
        """Train to the end and return the agent, without blocking the event loop.

        Ctrl-C, or cancelling the task, ends training after the current step, with a checkpoint to resume from.
        """
        if self._parts is None:
            await self.initialize()
        stop = StopFlag()
        work = asyncio.create_task(asyncio.to_thread(self.run, stop))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.raised = True
            await work
            raise
        return self.agent

    def run(self, stop: StopFlag | None = None, ranks: Ranks = ALONE) -> None:
        """Train from synchronous code, with an initialised agent; raise `stop` to end after the current step."""
        # Steps taken by hand are saved, so that the run resumes after them.
        if self._parts is not None and (self._run is not None or self._position.step):
            self._save()
        self.close()
        self.path = ranks.on_first(self._folder)
        for event in execute(self.path, self._build, self.cfg, stop, ranks=ranks):
            if self.on_event is not None and ranks.first:
                self.on_event(event)
        self._parts = None

    async def generate_trajectories(self, scenarios: Sequence[Any] | None = None) -> list[ScoredGroup]:
        """Return a scored group of conversations for every scenario; by default for the next training scenarios."""
        source = self._source
        if scenarios is None:
            tasks: Sequence[Task] = source.tasks.take(self.cfg.rollout.tasks_per_step)
        else:
            numbers = range(self._drawn, self._drawn + len(scenarios))
            tasks = [Task(f"{self.environment.name}/{n}", s, n) for n, s in zip(numbers, scenarios, strict=True)]
            self._drawn += len(scenarios)
        source.engine.start()
        groups = await source.rollout.gather(tasks)
        return await asyncio.to_thread(source.scorer.score, source.reward, groups)

    def compute_grpo_loss(self, groups: Sequence[ScoredGroup]) -> dict[str, Tensor]:
        """Return the terms of the loss as differentiable tensors, and metrics that are means over tokens.

        `total_loss` is the sum of `loss_policy` and, where the settings ask for them, `loss_kl` (with its weight) and
        `value_coef` × `loss_value`, minus the entropy bonus. `policy_entropy` and `policy_reference_kl` are means.
        """
        terms = self._learner.losses(self._compared(groups))
        return {"total_loss": terms.pop("loss/total"), **{name.replace("/", "_"): term for name, term in terms.items()}}

    def _compute_group_policy_loss(self, group: ScoredGroup | Group, advantages: Sequence[float]) -> Tensor:
        """Return the clipped policy loss of a group whose advantages are given, one per attempt; differentiable."""
        batch = self._with_advantages(_members(group), advantages)
        with self._kl_weighted(0.0):
            return self._learner.losses(batch)["loss/policy"]

    async def _update_policy(
        self, trajectories: ScoredGroup | Group | Sequence[Trajectory], advantages: Sequence[float]
    ) -> float:
        """Learn from attempts whose advantages are given, and return the policy loss."""
        batch = self._with_advantages(_members(trajectories), advantages)
        metrics = await asyncio.to_thread(self._learner.update, batch)
        assert self._parts is not None
        self._parts.source.publish(self._parts.policy)
        return float(metrics["loss/policy"])

    def _with_advantages(self, members: tuple[Trajectory, ...], advantages: Sequence[float]) -> Batch:
        if not members or len(members) != len(advantages):
            raise ConfigError(f"there are {len(members)} attempts but {len(advantages)} advantages, not one for each")
        group = Group(members[0].group_id, Task(members[0].task_id), members)
        return self._source.with_advantages(group, advantages)

    def compute_enhanced_grpo_loss(self, groups: Sequence[ScoredGroup], beta: float) -> dict[str, Tensor]:
        """Return the terms of the loss with the KL term towards the reference model weighted by `beta`."""
        if not self.cfg.policy.use_reference_model:
            message = "a loss with a KL term needs a reference model"
            raise ConfigError(message, hint="Use TrainingConfig(use_reference_model=True, …).")
        with self._kl_weighted(beta):
            return self.compute_grpo_loss(groups)

    @contextmanager
    def _kl_weighted(self, beta: float) -> Iterator[None]:
        """Weight the KL term by `beta` for a while."""
        learner, usual = self._learner, self._learner.kl_coef
        learner.kl_coef = beta
        try:
            yield
        finally:
            learner.kl_coef = usual

    async def training_step(self, groups: Sequence[ScoredGroup]) -> dict[str, float]:
        """Learn from the groups, with all epochs of one step, and return the metrics."""
        batch = self._compared(groups)
        metrics = await asyncio.to_thread(self._updated, batch)
        assert self._parts is not None
        self._parts.source.publish(self._parts.policy)
        self._position.advance(batch)
        return {**{name: value for name, value in batch.metrics.items() if value is not None}, **metrics}

    def _updated(self, batch: Batch) -> dict[str, float]:
        free_threads = use_threads(self.cfg.run.threads)
        try:
            return self._learner.update(batch)
        finally:
            free_threads()

    async def evaluate(self, scenarios: Sequence[Any] | None = None) -> Mapping[str, float]:
        """Evaluate the model with greedy answers, on the held-out scenarios or those given."""
        self.prepare()
        assert self._parts is not None
        evaluation: Any = self._parts.evaluate
        before = evaluation.tasks
        if scenarios is not None:
            evaluation.tasks = [Task(f"{self.environment.name}/given {n}", s, n) for n, s in enumerate(scenarios)]
        try:
            result: Mapping[str, float] = await asyncio.to_thread(evaluation, self._parts.policy)
            return result
        finally:
            evaluation.tasks = before

    async def save_checkpoint(self) -> Path:
        """Save weights, optimiser and position, so that `train`, or a trainer with this `run_name`, resumes here."""
        return await asyncio.to_thread(self._save)

    def close(self) -> None:
        """Release the engine, threads and run folder; what was saved stays."""
        if self._parts is not None:
            self._parts.source.close()
        if self._run is not None:
            self._run.close()
        self._parts = self._run = None

    def _adapt(self) -> None:
        """Prepare the agent's model as the settings ask; an adapter it already has is entered into the settings."""
        settings, there = self.cfg.language, lora_of(self.agent.language.model)
        if there is not None and settings.lora_rank not in (0, there.rank):
            raise ConfigError(
                f"language.lora_rank = {settings.lora_rank}, but the agent's model has an adapter of rank {there.rank}",
                hint="Set the rank in the AgentConfig or in the TrainingConfig, not in both.",
                field="language.lora_rank",
            )
        if there is not None:
            self.cfg = self.cfg.replace(lora_rank=there.rank, lora_alpha=there.alpha)
        fresh = there is None and settings.lora_rank > 0
        language = prepare(
            self.agent.language,
            device=None,
            lora=wanted_lora(settings) if fresh else None,
            gradient_checkpointing=self.cfg.policy.gradient_checkpointing,
            seed=self.cfg.run.seed,
        )
        if fresh:
            self.agent.use(language)

    def _build(self, cfg: TrainingConfig) -> Parts:
        prompt = getattr(getattr(self.agent, "config", None), "system_prompt", None)
        own = isinstance(self.environment, RolloutScenarios)  # a rollout function writes all messages itself
        scenarios = PromptedScenarios(self.environment, prompt) if prompt and not own else self.environment
        parts = build(cfg, self.reward, scenarios, self.agent.language, self._reference)
        assert isinstance(parts.policy, LanguagePolicy)
        # However often the parts are built, the reference is the model as this trainer first saw it.
        self._reference = parts.policy.reference
        return parts

    @property
    def is_prepared(self) -> bool:
        """Whether everything that trains the model has been made."""
        return self._parts is not None

    @property
    def workers(self) -> RolloutWorkers | None:
        """Where conversations are held; None if it is this process."""
        return self._source.workers

    def prepare(self) -> None:
        """Make everything that trains the model; steps taken by hand do so themselves."""
        if self._parts is None:
            self._parts = self._build(self.cfg)
            self._position = Position(self.cfg)
            self._learner = Learner(self._parts.policy, self.cfg)
            self._parts.source.publish(self._parts.policy)

    @property
    def _source(self) -> AgentSource:
        self.prepare()
        assert self._parts is not None
        assert isinstance(self._parts.source, AgentSource)
        return self._parts.source

    def _compared(self, groups: Sequence[ScoredGroup]) -> Any:
        return self._source.compare(StepGroups(tuple(groups), (), 1))

    def _folder(self) -> Path:
        """Return the run's folder: the existing one with its name, or a new one."""
        name = self.cfg.run.run_name
        there = Path(self.cfg.run.output_dir) / name if name else None
        return self.path or (there if there is not None and (there / "config.toml").is_file() else create_run(self.cfg))

    def _save(self) -> Path:
        source = self._source
        assert self._parts is not None
        self.path = self._folder()
        self._run = self._run or Run(self.path)
        state = self._position.capture(source, self._learner)
        step = self._position.step
        return self._run.save(step, self._parts.policy.state_dict(), state, self.cfg.run.save_total_limit)


class PromptedScenarios:
    """Scenarios whose conversations begin with a system prompt, unless they have one already."""

    def __init__(self, scenarios: Scenarios, prompt: str) -> None:
        self.scenarios, self.prompt, self.name = scenarios, prompt, scenarios.name
        self.training, self.held_out = scenarios.training, scenarios.held_out
        self.shared = getattr(scenarios, "shared", False)

    def make(self) -> Environment:
        return PromptedEnvironment(self.scenarios.make(), self.prompt)


class PromptedEnvironment:
    def __init__(self, environment: Environment, prompt: str) -> None:
        self.environment, self.prompt, self.step = environment, prompt, environment.step

    async def reset(self, task: Task) -> Observation:
        seen = await self.environment.reset(task)
        if seen.messages and seen.messages[0]["role"] == "system":
            return seen
        return replace(seen, messages=({"role": "system", "content": self.prompt}, *seen.messages))

    async def close(self) -> None:
        if hasattr(self.environment, "close"):
            await self.environment.close()


def _members(given: ScoredGroup | Group | Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    group = given.group if isinstance(given, ScoredGroup) else given
    return group.members if isinstance(group, Group) else tuple(group)


class MultiTurnGRPOTrainer(ConversationTrainer):
    """`GRPOTrainer` under the name that the documents use for conversations of several turns."""


def train(
    agent: Trainable,
    environment: Scenarios,
    num_episodes: int = 1000,
    reward_fn: Reward | Callable[[Sequence[Message]], Any] | None = None,
    **settings: Any,
) -> ConversationTrainer:
    """Train an agent for `num_episodes` iterations in one synchronous call; other settings are keyword arguments."""
    trainer = ConversationTrainer(agent, environment, reward_fn, TrainingConfig(num_episodes=num_episodes, **settings))
    loop = EventLoop("trainer")
    loop.run(trainer.initialize())
    loop.close()
    trainer.run()
    return trainer
