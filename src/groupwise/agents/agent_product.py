"""The agent product: a model learns conversations with an environment. `build` assembles a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.agents.attempt_workers import workers_and_reward
from groupwise.agents.checks import check_agent_run as check
from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.conversation.custom_rollout import rollout_for
from groupwise.agents.conversation.rollouts import ConversationLimits, Conversations, conversation_tasks
from groupwise.agents.environments.checker import check_conversation_environment
from groupwise.agents.environments.contract import Scenarios
from groupwise.agents.environments.equipped import EquippedScenarios, scenarios_of
from groupwise.agents.environments.verifiers_episodes import VerifiersScenarios
from groupwise.agents.evaluation import correct_in, grade, summary
from groupwise.agents.language_product import LanguageSource, policy_of, sampling
from groupwise.agents.memory.run_memory import RunMemory
from groupwise.agents.memory.user_memory import UserMemory
from groupwise.agents.model_start import load_start
from groupwise.agents.model_start import open_run as open_start
from groupwise.agents.model_start import pin_start as prepare
from groupwise.config import TrainingConfig
from groupwise.config.rules import needs_critic
from groupwise.errors import ContractError
from groupwise.event_loop import EventLoop
from groupwise.language.loading import LanguageModel
from groupwise.language.policy import LanguagePolicy
from groupwise.language.samplers.sampler_choice import engine_for
from groupwise.language.samplers.token_engine import TokenEngine
from groupwise.memory.run_start import rewind_for_run, start_from
from groupwise.rewards.combination import absolute
from groupwise.rewards.function import EnvironmentReward
from groupwise.rewards.registry import find_reward
from groupwise.rewards.rules.components import known
from groupwise.rewards.scoring import RewardScorer
from groupwise.rollout.backends import RolloutWorkers
from groupwise.training.batch_source import NumberedTasks
from groupwise.training.checkpoint import checkpoint_folders
from groupwise.training.ranks.communication import Ranks
from groupwise.training.session import Parts
from groupwise.training.step_groups import StepGroups
from groupwise.types import Batch, Failure, Policy, Reward, Sample, Score, ScoredGroup, Task, Trajectory

__all__ = ["build", "check", "open_run", "prepare"]

SHOWN, LONGEST = 8, 2000  # conversations shown in reports, and characters of each
CHECKED = 4  # scenarios that the environment checker tries


def open_run(path: Path, cfg: TrainingConfig, *, learning: bool) -> TrainingConfig:
    """Return the settings to build a run with; take the memory of one without a checkpoint back to where it began."""
    cfg = open_start(path, cfg, learning=learning)
    memory = str(cfg.task.options.get("memory", ""))
    if learning and memory:
        with UserMemory(memory) as opened:
            start_from(path, opened.store, begun=any(checkpoint_folders(path / "checkpoints")))
    return cfg


def build(
    cfg: TrainingConfig,
    reward: Reward | None = None,
    scenarios: Scenarios | None = None,
    language: LanguageModel | None = None,
    reference: LanguagePolicy | None = None,
) -> Parts:
    """Make everything a run of conversations needs; arguments replace what the settings name.

    `reference` is the reference of an earlier policy, for a model that has learned since.
    """
    # A worker makes them again from the settings, or gets those that were made in code.
    given = scenarios
    scenarios = scenarios_of(cfg, given)
    sent = scenarios if given else {name: cfg.to_dict()[name] for name in ("task", "tools")}
    own = reward or find_reward(cfg.reward) or EnvironmentReward()
    workers, learned_from = workers_and_reward(cfg, sent, reward, own)
    language = language or load_start(cfg)
    policy = policy_of(cfg, language, reference)
    frame = frame_of(cfg, language)
    slots = cfg.rollout.conversations_in_flight
    engine = engine_for(cfg, language, slots=slots, params=sampling(cfg), ends=frame.end_ids)
    kind, make, collate = rollout_for(scenarios, needs_critic(cfg.advantage.estimator))
    memory = str(cfg.task.options.get("memory", ""))
    remembered = RunMemory(UserMemory(memory)) if memory else None
    talk = kind(
        engine, frame, make, sampling(cfg),
        group_size=cfg.rollout.num_generations, seed=cfg.run.seed, limits=limits(cfg), memory=remembered,
        workers=workers,
    )  # fmt: skip
    tasks = NumberedTasks(conversation_tasks(scenarios, cfg.run.seed))
    source = AgentSource(cfg, policy, engine, tasks, talk, learned_from, collate, workers)
    source.scenarios = scenarios
    evaluation = ConversationEvaluation(
        cfg, scenarios, engine, frame, absolute(own), source.scorer, talk.loop, remembered, workers
    )
    return Parts(
        policy, source, evaluation, lambda: evaluation.shown,
        inspect=lambda: inspected(scenarios, frame), notes=notes(cfg, scenarios),
    )  # fmt: skip


def frame_of(cfg: TrainingConfig, language: LanguageModel) -> Frame:
    """Return the model's chat format with the run's settings."""
    settings = cfg.language
    return Frame(language.tokenizer, f"'{language.name}'", settings.chat_template_kwargs, settings.tool_format)


def notes(cfg: TrainingConfig, scenarios: Scenarios) -> tuple[str, ...]:
    """Return what a person should know before the run starts."""
    if not (cfg.run.eval_steps and getattr(scenarios, "shared", False)):
        return ()
    return ("there is only one scenario, so evaluation uses the training scenario; pass others as held_out",)


def inspected(scenarios: Scenarios, frame: Frame) -> list[Failure]:
    """Return the rules that the environment breaks, found in a few conversations with scripted replies."""
    if isinstance(scenarios, RolloutScenarios):
        return []
    tasks = [Task(f"{scenarios.name}/{number}", scenarios.training(0, number), number) for number in range(CHECKED)]
    return check_conversation_environment(scenarios.make, tasks, frame=frame)


def limits(cfg: TrainingConfig) -> ConversationLimits:
    rollout = cfg.rollout
    return ConversationLimits(rollout.max_conversation_turns, rollout.conversations_in_flight, rollout.turn_timeout)


class AgentSource(LanguageSource):
    """A language source that keeps the run's memory, if there is one, and closes its rollout's event loop."""

    rollout: Conversations
    scenarios: Scenarios | None = None

    def join(self, ranks: Ranks) -> bool:
        # A memory is one file, which one process writes.
        return self.rollout.memory is None and super().join(ranks)

    def compare(self, drawn: StepGroups) -> Batch:
        if self.rollout.memory is not None:
            self.rollout.memory.keep(drawn.all)
        return super().compare(drawn)

    def state_dict(self) -> dict[str, Any]:
        memory = self.rollout.memory
        return {**super().state_dict(), **(memory.state_dict() if memory is not None else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.rollout.memory is not None and "memory" in state:
            rewind_for_run(self.rollout.memory.memory.store, state["memory"])

    def close(self) -> None:
        self.rollout.close()
        if self.rollout.memory is not None:
            self.rollout.memory.memory.close()
        if isinstance(self.scenarios, EquippedScenarios | VerifiersScenarios):
            self.scenarios.close()
        super().close()


class ConversationEvaluation:
    """A fixed set of held-out scenarios: one greedy conversation each, with the engine's current weights.

    A conversation that fails is left out and counted in `eval/failed_share`. Whatever the reward, the environment's own
    rewards are reported beside it, unless the environment gives none.
    """

    def __init__(
        self, cfg: TrainingConfig, scenarios: Scenarios, engine: TokenEngine, frame: Frame, reward: Reward,
        scorer: RewardScorer, loop: EventLoop, memory: RunMemory | None = None,
        workers: RolloutWorkers | None = None,
    ) -> None:  # fmt: skip
        held_out = scenarios.held_out(cfg.run.eval_seed, cfg.run.eval_episodes)
        self.tasks = [Task(f"{scenarios.name}/held out {n}", scenario, n) for n, scenario in enumerate(held_out)]
        kind, make, _ = rollout_for(scenarios)
        self.talk = kind(
            engine, frame, make, sampling(cfg, temperature=0.0),
            group_size=1, seed=cfg.run.eval_seed, limits=limits(cfg), loop=loop, memory=memory,
            workers=workers,
        )  # fmt: skip
        self.reward, self.scorer = reward, scorer
        self.shown: list[Sample] = []

    def __call__(self, policy: Policy) -> Mapping[str, float]:
        if not self.tasks:
            hint = "Let held_out(seed, count) return at least one, or set run.eval_steps = 0."
            raise ContractError("there are no held-out scenarios to evaluate on", hint=hint)
        groups = self.talk.collect(self.tasks)
        # Greedy conversations are all alike, so a group has one member.
        attempts = [group.members[0] for group in groups]
        replaced = not isinstance(self.reward, EnvironmentReward)
        own = EnvironmentReward() if replaced and any(map(_graded, attempts)) else None
        graded = grade(self.scorer, groups, self.reward, own if replaced else self.reward)
        self.shown = [shown for group in graded.first(len(groups)) if (shown := _sample(*group)) is not None][:SHOWN]
        turns = sum(attempt.meta["turns"] for attempt in attempts) / len(attempts)
        return {**summary(graded, [attempt.actions_taken for attempt in attempts]), "eval/turns_mean": turns}


def _graded(attempt: Trajectory) -> bool:
    """Whether the environment said anything about how good the conversation was."""
    return bool(attempt.rewards.any() or attempt.meta.get("parts"))


def _sample(rewarded: ScoredGroup, checked: ScoredGroup | None) -> Sample | None:
    (attempt,), (score,) = rewarded.group.members, rewarded.scores
    if not isinstance(score, Score):
        return None
    given = known(rewarded.group.task, "answer")
    expected = "" if given is None else str(given)
    meta, correct = attempt.meta, correct_in(score, checked.scores[0] if checked else None)
    prompt, text, answer = (said[:LONGEST] for said in (meta["prompt"], meta["content"], expected))
    return Sample(prompt, text, answer, score.total, correct, meta["reasoning"][:LONGEST])
