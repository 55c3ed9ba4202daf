"""Training on many ranks under the names of the founding documents: thin faces on `training.ranks`.

    config = DistributedConfig(world_size=4, mixed_precision=True)
    results = launch_distributed_training(
        agent=agent, environment=environment, reward_function=reward, training_config=cfg, distributed_config=config
    )

Each rank is a process of its own, to which agent, environment and reward are sent: what they are made of must be
importable there. Under torchrun a script uses `DistributedGRPOTrainer` as it would use `GRPOTrainer`.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from groupwise.agents.agent import Agent
from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.settings import AgentConfig
from groupwise.compat.trainer import ConversationTrainer, Trainable
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError, RankError
from groupwise.event_loop import EventLoop
from groupwise.language.loading import LanguageModel
from groupwise.training.checkpoint import choose_checkpoint
from groupwise.training.events import read_events
from groupwise.training.folder import latest_metrics
from groupwise.training.ranks.communication import ALONE, Ranks, check_groups, joined
from groupwise.training.ranks.launcher import RESTARTS, launch
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Message, Reward


@dataclass(frozen=True)
class DistributedConfig:
    """How a run is spread over processes.

    world_size: ranks, one for each GPU. mixed_precision: compute in bfloat16. gradient_accumulation_steps: the
    micro-batches of an optimiser step, shared by the ranks. activation_checkpointing: recompute activations in the
    backward pass. sharding: all weights on every rank ("ddp"), or a part ("fsdp"). max_restarts: how often all ranks
    are started again from the last checkpoint after one has died.
    """

    world_size: int = 1
    mixed_precision: bool = False
    gradient_accumulation_steps: int | None = None
    activation_checkpointing: bool = False
    sharding: Literal["ddp", "fsdp"] = "ddp"
    max_restarts: int = RESTARTS

    def __post_init__(self) -> None:
        for name, least in (("world_size", 1), ("gradient_accumulation_steps", 1), ("max_restarts", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ConfigError(f"{name} = {value!r} must be a whole number from {least}", field=name)

    def applied(self, cfg: TrainingConfig) -> TrainingConfig:
        """The settings of a run with these added."""
        changed: dict[str, Any] = {"sharding": self.sharding}
        if self.mixed_precision:
            changed["bf16"] = True
        if self.activation_checkpointing:
            changed["gradient_checkpointing"] = True
        if self.gradient_accumulation_steps is not None:
            changed["gradient_accumulation_steps"] = self.gradient_accumulation_steps
        return cfg.replace(**changed)


class DistributedGRPOTrainer(ConversationTrainer):
    """`GRPOTrainer` on the ranks that torchrun started; without torchrun, on one."""

    def __init__(
        self,
        agent: Trainable,
        environment: Scenarios,
        reward_function: Reward | Callable[[Sequence[Message]], Any] | None = None,
        training_config: TrainingConfig | None = None,
        distributed_config: DistributedConfig | None = None,
        **options: Any,
    ) -> None:
        self.distributed = distributed_config or DistributedConfig()
        cfg = self.distributed.applied((training_config or TrainingConfig()).replace(product="agent"))
        super().__init__(agent, environment, reward_function, cfg, **options)

    def run(self, stop: StopFlag | None = None, ranks: Ranks = ALONE) -> None:
        """Train from synchronous code, with an initialised agent; raise `stop` to end after the current step."""
        if not ranks.alone:
            super().run(stop, ranks)
            return
        with joined(self.cfg) as present:
            super().run(stop, present)


@dataclass(frozen=True)
class DistributedResults:
    """What a run on many ranks ended with: its folder, its steps, why it ended, and the newest value of each metric."""

    path: Path
    steps: int
    reason: str
    attempts: int
    metrics: dict[str, float] = field(default_factory=dict)


def launch_distributed_training(
    agent: Trainable,
    environment: Scenarios,
    reward_function: Reward | Callable[[Sequence[Message]], Any] | None = None,
    training_config: TrainingConfig | None = None,
    distributed_config: DistributedConfig | None = None,
) -> DistributedResults:
    """Train an agent on `world_size` processes of this machine, and give it the trained weights.

    If a rank dies, all are started again from the last checkpoint. Ctrl-C lets the step finish and saves.
    """
    trainer = DistributedGRPOTrainer(agent, environment, reward_function, training_config, distributed_config)
    ranks = trainer.distributed.world_size
    check_groups(ranks, trainer.cfg)
    what = (sent(agent), environment, reward_function, training_config, distributed_config)
    if ranks > 1:
        _insist_on_sending(agent=what[0], environment=environment, reward_function=reward_function)
    path = trainer._folder()
    restarts = trainer.distributed.max_restarts
    answers = launch(train_rank, path, *what, ranks=ranks, run=path, restarts=restarts) if ranks > 1 else []
    errors = [answer for answer in answers if isinstance(answer, GroupwiseError)]
    for error in sorted(errors, key=lambda error: isinstance(error, RankError)):
        raise error
    _initialised(trainer)
    if ranks == 1:
        trainer.path = path
        trainer.run()
    else:
        assert trainer._parts is not None
        trainer._parts.policy.load_state_dict(choose_checkpoint(path).model)
        trainer.close()
    return results_of(path)


@dataclass(frozen=True)
class SentAgent:
    """What a rank needs of an agent: its settings, and its model if it is loaded. Conversations stay behind."""

    config: AgentConfig
    language: LanguageModel | None


def sent(agent: Trainable) -> Trainable | SentAgent:
    """What is sent to the ranks in the agent's place; an agent of another kind goes itself."""
    if not isinstance(agent, Agent):
        return agent
    return SentAgent(agent.config, agent._given if agent._parts is None else agent.language)


def train_rank(path: Path, agent: Trainable | SentAgent, *what: Any) -> GroupwiseError | None:
    """What one rank does: train the run at `path`."""
    given = Agent(agent.config, language=agent.language) if isinstance(agent, SentAgent) else agent
    trainer = DistributedGRPOTrainer(given, *what)
    trainer.path = path
    try:
        with joined(trainer.cfg) as ranks:
            # Ctrl-C reaches the run as an order; see the launcher.
            _initialised(trainer).run(StopFlag(), ranks)
    except GroupwiseError as error:
        return error
    return None


def _initialised(trainer: DistributedGRPOTrainer) -> DistributedGRPOTrainer:
    loop = EventLoop("trainer")
    try:
        loop.run(trainer.initialize())
    finally:
        loop.close()
    return trainer


def results_of(path: Path) -> DistributedResults:
    events = read_events(path / "events.jsonl")
    end = events[-1]
    return DistributedResults(path, end.step, str(end.data.get("reason", "")), end.attempt, latest_metrics(events))


def _insist_on_sending(**parts: Any) -> None:
    """Refuse what cannot be sent to other processes."""
    for name, part in parts.items():
        try:
            pickle.dumps(part)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{name} cannot be sent to the ranks: {error}",
                hint="Define its class and functions at the top of a module, and leave connections and files to be "
                "opened when they are first used. Or start the script with torchrun and use DistributedGRPOTrainer.",
            ) from error
