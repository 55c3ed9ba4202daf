"""Hands training to TRL: its GRPOTrainer trains the agent's model on our scenarios and rewards.

Where the first answer ends an attempt, TRL samples it itself (with vLLM, if asked to). Conversations of several turns
and tools are sampled by our engine with TRL's current weights, and TRL learns from the model's own tokens in them. What
TRL does not support (critics, credit per turn, other baselines) is refused by name. docs/trl.md maps the settings.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from groupwise.agents.agent_product import frame_of, limits
from groupwise.agents.conversation.call_formats import read_reply
from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.conversation.rollouts import Conversations
from groupwise.agents.environments.contract import Environment, Reply, Scenarios
from groupwise.agents.language_product import sampling
from groupwise.compat.trainer import Trainable
from groupwise.config import TrainingConfig
from groupwise.core import clip_range
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.event_loop import EventLoop
from groupwise.language.adapters import lora_of
from groupwise.language.engine import Engine
from groupwise.language.loading import LanguageModel
from groupwise.rewards.function import EnvironmentReward, attempt_of
from groupwise.rewards.scoring import RewardScorer
from groupwise.rewards.signatures import as_reward
from groupwise.types import Group, Message, Reward, Score, Task, Trajectory

MOST_PROMPTS = 10_000
# Setting → the values that TRL supports, and why.
CARRIED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "estimator": (("outcome",), "TRL gives every attempt one advantage"),
    "baseline_type": (("group_mean",), "TRL compares with the group's mean"),
    "advantage_scale": (("group_std", "batch_std", "none"), "TRL divides by the group's or the batch's deviation"),
    "kl_estimator": (("k3",), "TRL estimates the KL by k3"),
    "kl_target": ((None,), "TRL keeps beta fixed"),
    "dynamic_sampling": ((False,), "TRL draws every group once"),
    "replay_groups": ((0,), "TRL keeps no past groups"),
    "reward_clip": ((None,), "TRL clips no rewards"),
    "early_stopping": ((False,), "TRL trains to the end"),
    "kl_stop": ((None,), "TRL takes all its steps"),
}


SAME = (
    "num_generations", "temperature", "top_p", "top_k", "repetition_penalty", "top_entropy_quantile", "learning_rate",
    "lr_scheduler_type", "max_grad_norm", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "bf16", "fp16",
    "gradient_checkpointing", "seed",
)  # fmt: skip
# TRL's name → ours.
RENAMED = {
    "max_steps": "num_episodes", "num_iterations": "num_epochs", "max_completion_length": "max_new_tokens",
    "delta": "dual_clip",
    "mask_truncated_completions": "mask_truncated",
}  # fmt: skip


async def train_with_trl_grpo(
    config: TrainingConfig,
    agent: Trainable,
    environment: Scenarios,
    reward_model: Reward | Callable[[Sequence[Message]], Any] | None = None,
    **trl_settings: Any,
) -> Any:
    """Train the agent's model with TRL, in place, and return the agent.

    Args:
      config: as for any other run, except that model, LoRA and quantisation are the agent's.
      agent: its weights are trained.
      environment: the scenarios, of one turn or several.
      reward_model: scores an answer or conversation; by default the environment's own reward.
      trl_settings: further fields of TRL's `GRPOConfig`, such as `use_vllm=True`.
    """
    try:
        library = import_module("trl")
    except ImportError as error:
        raise MissingExtra(f"TRL cannot be imported: {error}", hint="pip install 'groupwise[trl]'") from error
    await agent.initialize()
    loop = EventLoop("trl")
    try:
        opened = await asyncio.to_thread(loop.run, _openings(environment, config))
        arguments = library.GRPOConfig(**{**trl_arguments(config), **trl_settings})
        talk = await asyncio.to_thread(
            _talk, environment, opened, reward_model, loop, config, agent.language, arguments
        )
        language, rows = agent.language, [_row(n, messages) for n, messages in enumerate(opened.prompts)]
        with _as_reference(language.model, arguments.beta):
            trainer = library.GRPOTrainer(
                language.model, talk.score, args=arguments, processing_class=language.tokenizer,
                train_dataset=import_module("datasets").Dataset.from_list(rows),
                rollout_func=talk.roll_out if isinstance(talk, _Conversations) else None,
            )  # fmt: skip
        try:
            await asyncio.to_thread(trainer.train)
        finally:
            talk.close()
    finally:
        loop.close()
    agent.language.model.eval()
    return agent


@contextmanager
def _as_reference(model: Any, beta: float) -> Iterator[None]:
    """Let TRL find the model's present weights where it looks for its reference: at the path in the model's settings.

    With an adapter it needs none: the model without the adapter is the reference.
    """
    if beta == 0.0 or lora_of(model) is not None:
        yield
        return
    before = model.config._name_or_path
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model.config._name_or_path = folder
        try:
            yield
        finally:
            model.config._name_or_path = before


def _row(number: int, messages: Sequence[Message]) -> dict[str, Any]:
    # The task's number is also in the messages: a rollout function of TRL gets nothing else.
    return {"prompt": [{**message, "number": number} for message in messages], "number": number}


def trl_arguments(config: TrainingConfig) -> dict[str, Any]:
    """Return our settings as fields of TRL's `GRPOConfig`; refuse those it does not support."""
    cfg = SimpleNamespace(**config.replace(product="agent").flat())
    for name, (values, reason) in CARRIED.items():
        value = getattr(cfg, name)
        if value not in values:
            allowed = " or ".join(map(repr, values))
            message = f"TRL does not support {name} = {value!r}: {reason}"
            raise ConfigError(message, hint=f"Set {name} = {allowed}, or train with MultiTurnGRPOTrainer.", field=name)
    rows = cfg.num_generations * cfg.tasks_per_step
    # TRL wants the rows of a step to be a multiple of the batch size.
    size = next(n for n in range(min(rows, cfg.per_device_train_batch_size), 0, -1) if rows % n == 0)
    scale = {"group_std": "group", "batch_std": "batch", "none": "none"}[cfg.advantage_scale]
    sequence = cfg.loss_type == "gspo" or cfg.importance_level == "sequence"
    low, high = clip_range(cfg.loss_type, cfg.clip_ratio, cfg.clip_ratio_high)
    return {
        **{name: getattr(cfg, name) for name in SAME},
        **{theirs: getattr(cfg, ours) for theirs, ours in RENAMED.items()},
        "output_dir": str(Path(cfg.output_dir) / (cfg.run_name or "trl")),
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": rows // size,
        "steps_per_generation": rows // size,
        "epsilon": low,
        "epsilon_high": high,
        "min_p": cfg.min_p or None,
        "beta": cfg.beta if cfg.use_reference_model else 0.0,
        "loss_type": "grpo" if cfg.loss_type == "gspo" else cfg.loss_type,
        "importance_sampling_level": "sequence" if sequence else "token",
        "scale_rewards": scale if cfg.advantage_normalization else "none",
        "warmup_steps": math.ceil(cfg.warmup_ratio * cfg.num_episodes),
        "use_cpu": cfg.device == "cpu",
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
    }


@dataclass(frozen=True)
class _Openings:
    """The training tasks, the opening messages of each, and whether a conversation goes on after the first answer."""

    tasks: Sequence[Task]
    prompts: Sequence[Sequence[Message]]
    goes_on: bool


async def _openings(environment: Scenarios, cfg: TrainingConfig) -> _Openings:
    if isinstance(environment, RolloutScenarios):
        message = f"{environment.name!r} is a rollout function, which the TRL bridge does not support"
        raise ConfigError(message, hint="Train with MultiTurnGRPOTrainer.")
    count = min(MOST_PROMPTS, cfg.training.num_episodes * cfg.rollout.tasks_per_step)
    tasks = [Task(f"{environment.name}/{n}", environment.training(cfg.run.seed, n), n) for n in range(count)]
    seen = [await environment.make().reset(task) for task in tasks]
    first = environment.make()
    tools = (await first.reset(tasks[0])).tools
    goes_on = bool(tools) or (await first.step(Reply(""))).end is None
    return _Openings(tasks, [[dict(m) for m in one.messages] for one in seen], goes_on)


def _talk(
    environment: Scenarios, opened: _Openings, reward: Reward | Callable[[Sequence[Message]], Any] | None,
    loop: EventLoop, cfg: TrainingConfig, language: LanguageModel, arguments: Any,
) -> "_Answers | _Conversations":  # fmt: skip
    """Return who samples and scores: TRL itself, or our engine where a conversation goes on after the first answer."""
    scored = None if reward is None else as_reward(reward)
    if not opened.goes_on:
        return _Answers(environment, opened, scored, loop, cfg)
    if arguments.use_vllm:
        message = f"{environment.name!r} goes on after the first answer, which cannot be sampled with vLLM here"
        raise ConfigError(message, hint="Leave out use_vllm: our engine then samples whole conversations.")
    return _Conversations(environment, opened, scored, cfg, language)


class _Conversations:
    """Conversations of several turns for TRL: `roll_out` samples them with its weights, `score` rewards them."""

    def __init__(
        self, environment: Scenarios, opened: _Openings, reward: Reward | None, cfg: TrainingConfig,
        language: LanguageModel,
    ) -> None:  # fmt: skip
        self.tasks, self.seed, self.calls = opened.tasks, cfg.run.seed, 0
        self.reward, self.scorer = reward or EnvironmentReward(), RewardScorer(cfg.rollout.reward_timeout)
        cfg = cfg.replace(product="agent")
        frame, slots = frame_of(cfg, language), cfg.rollout.conversations_in_flight
        self.engine = Engine(language.model, language.tokenizer, slots=slots, ends=frame.end_ids)
        size = cfg.rollout.num_generations
        self.talk = Conversations(
            self.engine, frame, environment.make, sampling(cfg), group_size=size, seed=self.seed, limits=limits(cfg)
        )
        self.rows: list[tuple[int, int]] = []
        self.groups: dict[int, Group] = {}

    def roll_out(self, prompts: Sequence[Sequence[Message]], trainer: Any) -> dict[str, list[Any]]:
        """Sample a group for every prompt; TRL names each prompt as often as a group has members."""
        self.engine.load(trainer.accelerator.unwrap_model(trainer.model), trainer.state.global_step)
        # A task that comes again is sampled with other random numbers.
        self.calls, self.talk.seed = self.calls + 1, self.seed + self.calls
        numbers = [int(prompt[0]["number"]) for prompt in prompts]
        known = list(dict.fromkeys(numbers))
        groups = self.talk.collect([self.tasks[number] for number in known])
        self.groups = dict(zip(known, groups, strict=True))
        self.rows = [(number, numbers[:place].count(number)) for place, number in enumerate(numbers)]
        members = [self.groups[number].members[member] for number, member in self.rows]
        begins = [_begin(member) for member in members]
        return {
            "prompt_ids": [m.actions[:begin].tolist() for m, begin in zip(members, begins, strict=True)],
            "completion_ids": [m.actions[begin:].tolist() for m, begin in zip(members, begins, strict=True)],
            "env_mask": [m.mask[begin:].astype(int).tolist() for m, begin in zip(members, begins, strict=True)],
            "logprobs": [m.behavior_logp[begin:].tolist() for m, begin in zip(members, begins, strict=True)],
        }

    def score(self, completions: Sequence[Any], **_: Any) -> list[float | None]:
        """Return the reward of every conversation of the last `roll_out`; None for one that failed."""
        scored = self.scorer.score(self.reward, list(self.groups.values()))
        found = dict(zip(self.groups, scored, strict=True))
        scores = [found[number].scores[member] for number, member in self.rows]
        return [score.total if isinstance(score, Score) else None for score in scores]

    def close(self) -> None:
        self.talk.close()
        self.engine.close()
        self.scorer.close()


def _begin(attempt: Trajectory) -> int:
    """Where the model's first token is; the last token if it never spoke, as TRL wants a completion of some length."""
    return int(attempt.mask.argmax()) if attempt.mask.any() else max(0, len(attempt) - 1)


class _Answers:
    """First answers for TRL, which samples them itself; `score` is a reward function in its form."""

    def __init__(
        self, environment: Scenarios, opened: _Openings, reward: Reward | None, loop: EventLoop, cfg: TrainingConfig
    ) -> None:
        self.environment, self.tasks, self.prompts = environment, opened.tasks, opened.prompts
        self.reward, self.loop = reward, loop
        self.scorer = RewardScorer(cfg.rollout.reward_timeout)

    def score(self, completions: Sequence[Any], number: Sequence[int], **_: Any) -> list[float | None]:
        """Return one reward per completion; TRL leaves out those that are None, which have no score."""
        texts = [said if isinstance(said, str) else said[-1]["content"] for said in completions]
        if self.reward is None:
            return [self.loop.run(self._played(n, text)) for n, text in zip(number, texts, strict=True)]
        found: list[float | None] = [None] * len(texts)
        for n in dict.fromkeys(number):
            places = [place for place, other in enumerate(number) if other == n]
            members = tuple(self._attempt(n, place, texts[place]) for place in places)
            (graded,) = self.scorer.score(self.reward, [Group(f"g{n}", self.tasks[n], members)])
            for place, score in zip(places, graded.scores, strict=True):
                found[place] = score.total if isinstance(score, Score) else None
        return found

    async def _played(self, number: int, text: str) -> float:
        environment: Environment = self.environment.make()
        await environment.reset(self.tasks[number])
        transition = await environment.step(read_reply(text, None, 0))
        if transition.end is None:
            message = f"{self.environment.name!r} ended after an empty first answer but goes on after this one"
            raise ContractError(message, hint="Train with MultiTurnGRPOTrainer.")
        return float(transition.reward)

    def _attempt(self, number: int, place: int, text: str) -> Trajectory:
        said = attempt_of([*self.prompts[number], {"role": "assistant", "content": text}])
        group, meta = f"g{number}", {**said.meta, "text": text}
        return replace(said, id=f"{group}/m{place}", task_id=self.tasks[number].id, group_id=group, meta=meta)

    def close(self) -> None:
        self.scorer.close()
