"""Training by the calls people know, over the one loop.

    agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
    trainer = MultiTurnGRPOTrainer(agent, environment, reward, TrainingConfig(num_episodes=100))
    await trainer.initialize()
    agent = await trainer.train()

`train` is a run like any other: its folder (`trainer.path`) holds events and checkpoints, and a trainer with the same
`run_name` goes on with it. The other calls take single steps by hand with the same parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from groupwise.agents.agent_product import AgentSource, build
from groupwise.agents.conversation.custom_rollout import RolloutScenarios
from groupwise.agents.environments.contract import Environment, Observation, Scenarios
from groupwise.agents.settings import AgentConfig
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.event_loop import EventLoop
from groupwise.language.adapters import Lora, lora_of
from groupwise.language.loading import LanguageModel, prepare
from groupwise.language.policy import LanguagePolicy
from groupwise.rewards.function import as_reward
from groupwise.rewards.scoring import score_group
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.loop import Position
from groupwise.training.run import Run
from groupwise.training.session import Parts, execute
from groupwise.training.step_groups import StepGroups
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Event, Message, Reward, ScoredGroup, Task


class Trainable(Protocol):
    """An agent that can learn: it has a language model, and makes it ready when asked."""

    @property
    def language(self) -> LanguageModel: ...
    async def initialize(self) -> Any: ...
    def use(self, language: LanguageModel) -> None: ...


class GRPOTrainer:
    """Trains an agent's model on conversations with an environment.

    Args:
      agent: whose weights learn, in place.
      environment: the scenarios, such as a `ConversationEnvironment`.
      reward_fn: what a conversation is worth: a `RewardFunction`, or a function of its turns. Without one, the
        environment's own rewards count.
      config: settings of the run. How the agent was told to sample holds where these leave it at the default.
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
        """Make the agent's model ready, and everything that trains it."""
        await self.agent.initialize()
        self._adapt()
        self._prepare()

    async def train(self) -> Any:
        """Train to the end and return the agent. Other tasks of the event loop go on meanwhile.

        Ctrl-C, or cancelling whoever waits, ends it after the step under way, with a checkpoint to go on from.
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

    def run(self, stop: StopFlag | None = None) -> None:
        """The same from ordinary code, for an agent that is ready; raise `stop` to end it after the step under way."""
        if self._parts is not None and (self._run is not None or self._position.step):
            self._save()
        self.close()
        self.path = self._folder()
        for event in execute(self.path, self._build, self.cfg, stop):
            if self.on_event is not None:
                self.on_event(event)
        self._parts = None

    async def generate_trajectories(self, scenarios: Sequence[Any] | None = None) -> list[ScoredGroup]:
        """A group of conversations about every scenario, scored; without any, about the next ones in training."""
        source = self._source
        if scenarios is None:
            tasks: Sequence[Task] = source.tasks.take(self.cfg.rollout.tasks_per_step)
        else:
            numbers = range(self._drawn, self._drawn + len(scenarios))
            tasks = [Task(f"{self.environment.name}/{n}", s, n) for n, s in zip(numbers, scenarios, strict=True)]
            self._drawn += len(scenarios)
        source.engine.start()
        groups = await source.rollout.gather(tasks)
        timeout = self.cfg.rollout.reward_timeout
        return [await score_group(source.reward, group, timeout) for group in groups]

    def compute_grpo_loss(self, groups: Sequence[ScoredGroup]) -> dict[str, Tensor]:
        """The terms of the loss, `total_loss` among them, with their graph."""
        terms = self._learner.losses(self._compared(groups))
        return {"total_loss": terms.pop("loss/total"), **{name.replace("/", "_"): term for name, term in terms.items()}}

    def compute_enhanced_grpo_loss(self, groups: Sequence[ScoredGroup], beta: float) -> dict[str, Tensor]:
        """The same with the KL term towards the reference model weighted by `beta`."""
        if not self.cfg.policy.use_reference_model:
            raise ConfigError(
                "the loss with a KL term needs a reference model", hint="TrainingConfig(use_reference_model=True, …)."
            )
        with _weighted(self._learner, beta):
            return self.compute_grpo_loss(groups)

    async def training_step(self, groups: Sequence[ScoredGroup]) -> dict[str, float]:
        """Learn from the groups: all epochs of one step."""
        batch = self._compared(groups)
        metrics = await asyncio.to_thread(self._learner.update, batch)
        assert self._parts is not None
        self._parts.source.publish(self._parts.policy)
        self._position.advance(batch)
        told = {name: value for name, value in batch.metrics.items() if value is not None}
        return {**told, **metrics}

    async def evaluate(self, scenarios: Sequence[Any] | None = None) -> Mapping[str, float]:
        """How the model does, greedily, on the held-out scenarios or those given."""
        self._prepare()
        assert self._parts is not None
        examination: Any = self._parts.evaluate
        before = examination.tasks
        if scenarios is not None:
            examination.tasks = [Task(f"{self.environment.name}/given {n}", s, n) for n, s in enumerate(scenarios)]
        try:
            result: Mapping[str, float] = await asyncio.to_thread(examination, self._parts.policy)
            return result
        finally:
            examination.tasks = before

    async def save_checkpoint(self) -> Path:
        """Keep weights, optimiser and place, so that `train`, or a trainer with this `run_name`, goes on from here."""
        return await asyncio.to_thread(self._save)

    def close(self) -> None:
        """Let go of engine, threads and run folder; what was saved stays."""
        if self._parts is not None:
            self._parts.source.close()
        if self._run is not None:
            self._run.close()
        self._parts = self._run = None

    def _adapt(self) -> None:
        """Give the agent's model what the settings ask for; an adapter that it has already is written into them."""
        settings, there = self.cfg.language, lora_of(self.agent.language.model)
        if there is not None and settings.lora_rank not in (0, there.rank):
            raise ConfigError(
                f"language.lora_rank = {settings.lora_rank}, and the agent's model has an adapter of rank {there.rank}",
                hint="Give the rank to the AgentConfig or to the TrainingConfig, not to both.",
                field="language.lora_rank",
            )
        if there is not None:
            self.cfg = self.cfg.replace(lora_rank=there.rank, lora_alpha=there.alpha)
        fresh = there is None and settings.lora_rank > 0
        language = prepare(
            self.agent.language,
            device=None,
            lora=Lora(settings.lora_rank, settings.lora_alpha or 2.0 * settings.lora_rank) if fresh else None,
            gradient_checkpointing=self.cfg.policy.gradient_checkpointing,
            seed=self.cfg.run.seed,
        )
        if fresh:
            self.agent.use(language)

    def _build(self, cfg: TrainingConfig) -> Parts:
        """The parts of a run. Its reference is the model as this trainer first saw it, however often it is built."""
        told = getattr(getattr(self.agent, "config", None), "system_prompt", None)
        own = isinstance(self.environment, RolloutScenarios)  # whose agent writes all its messages itself
        scenarios = Told(self.environment, told) if told and not own else self.environment
        parts = build(cfg, self.reward, scenarios, self.agent.language, self._reference)
        assert isinstance(parts.policy, LanguagePolicy)
        self._reference = parts.policy.reference
        return parts

    def _prepare(self) -> None:
        if self._parts is None:
            self._parts = self._build(self.cfg)
            self._position = Position(self.cfg)
            self._learner = Learner(self._parts.policy, self.cfg)
            self._parts.source.publish(self._parts.policy)

    @property
    def _source(self) -> AgentSource:
        self._prepare()
        assert self._parts is not None
        assert isinstance(self._parts.source, AgentSource)
        return self._parts.source

    def _compared(self, groups: Sequence[ScoredGroup]) -> Any:
        return self._source.compare(StepGroups(tuple(groups), (), 1))

    def _folder(self) -> Path:
        """The run's folder: the one that is there under its name, or a new one."""
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


class Told:
    """Scenarios whose conversations begin with what the agent is told, unless they begin with a system message."""

    def __init__(self, scenarios: Scenarios, prompt: str) -> None:
        self.scenarios, self.prompt, self.name = scenarios, prompt, scenarios.name
        self.training, self.held_out = scenarios.training, scenarios.held_out
        self.shared = getattr(scenarios, "shared", False)

    def make(self) -> Environment:
        return ToldConversation(self.scenarios.make(), self.prompt)


class ToldConversation:
    """A conversation with what the agent is told at its head."""

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


class MultiTurnGRPOTrainer(GRPOTrainer):
    """`GRPOTrainer`, by the name under which conversations of several turns are trained."""


def train(
    agent: Trainable,
    environment: Scenarios,
    num_episodes: int = 1000,
    reward_fn: Reward | Callable[[Sequence[Message]], Any] | None = None,
    **settings: Any,
) -> GRPOTrainer:
    """Train an agent for so many iterations, in one call from ordinary code; any setting may be given by its name."""
    trainer = GRPOTrainer(agent, environment, reward_fn, TrainingConfig(num_episodes=num_episodes, **settings))
    loop = EventLoop("trainer")
    loop.run(trainer.initialize())
    loop.close()
    trainer.run()
    return trainer


@contextmanager
def _weighted(learner: Learner, beta: float) -> Iterator[None]:
    before, learner.kl_coef = learner.kl_coef, beta
    try:
        yield
    finally:
        learner.kl_coef = before
