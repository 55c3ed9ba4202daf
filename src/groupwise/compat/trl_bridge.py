"""Hands training to TRL: its GRPOTrainer trains the agent's model on our scenarios and rewards.

TRL brings vLLM and multi-machine training. What it does not support (conversations of several turns, critics, credit
per turn, other baselines) is refused by name rather than ignored. docs/trl.md maps the settings.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from groupwise.agents.environments.contract import Environment, Reply, Scenarios
from groupwise.compat.trainer import Trainable
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.event_loop import EventLoop
from groupwise.rewards.function import as_reward, attempt_of
from groupwise.rewards.scoring import RewardScorer
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
    "epsilon": "clip_ratio", "epsilon_high": "clip_ratio_high", "delta": "dual_clip",
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
      environment: scenarios whose first messages are the prompt, and which end with the model's first answer.
      reward_model: scores an answer; by default the environment's own reward.
      trl_settings: further fields of TRL's `GRPOConfig`, such as `use_vllm=True`.
    """
    try:
        library = import_module("trl")
    except ImportError as error:
        raise MissingExtra(f"TRL cannot be imported: {error}", hint="pip install 'groupwise[trl]'") from error
    await agent.initialize()
    loop = EventLoop("trl")
    try:
        tasks, prompts = await asyncio.to_thread(loop.run, _openings(environment, config))
        score = _Scores(environment, tasks, prompts, reward_model, loop, config)
        arguments = library.GRPOConfig(**{**trl_arguments(config), **trl_settings})
        rows = [{"prompt": [dict(m) for m in messages], "number": n} for n, messages in enumerate(prompts)]
        dataset, language = import_module("datasets").Dataset.from_list(rows), agent.language
        trainer = library.GRPOTrainer(
            language.model, score, args=arguments, train_dataset=dataset, processing_class=language.tokenizer
        )
        await asyncio.to_thread(trainer.train)
    finally:
        loop.close()
    agent.language.model.eval()
    return agent


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
    return {
        **{name: getattr(cfg, name) for name in SAME},
        **{theirs: getattr(cfg, ours) for theirs, ours in RENAMED.items()},
        "output_dir": str(Path(cfg.output_dir) / (cfg.run_name or "trl")),
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": rows // size,
        "steps_per_generation": rows // size,
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


async def _openings(environment: Scenarios, cfg: TrainingConfig) -> tuple[list[Task], list[list[Message]]]:
    """Return the training tasks and the opening messages of each."""
    count = min(MOST_PROMPTS, cfg.training.num_episodes * cfg.rollout.tasks_per_step)
    tasks = [Task(f"{environment.name}/{n}", environment.training(cfg.run.seed, n), n) for n in range(count)]
    prompts = []
    for task in tasks:
        observation = await environment.make().reset(task)
        if observation.tools:
            message = f"{environment.name!r} offers tools to the model, which the TRL bridge does not support"
            raise ConfigError(message, hint="Train with MultiTurnGRPOTrainer.")
        prompts.append(list(observation.messages))
    return tasks, prompts


class _Scores:
    """A reward function in TRL's form: called with all completions of a batch and the columns of their prompts."""

    def __init__(
        self, environment: Scenarios, tasks: Sequence[Task], prompts: Sequence[Sequence[Message]],
        reward: Reward | Callable[[Sequence[Message]], Any] | None, loop: EventLoop, cfg: TrainingConfig,
    ) -> None:  # fmt: skip
        self.__name__ = "groupwise"
        self.environment, self.tasks, self.prompts, self.loop = environment, tasks, prompts, loop
        self.reward = None if reward is None else as_reward(reward)
        self.scorer = RewardScorer(cfg.rollout.reward_timeout)

    def __call__(self, completions: Sequence[Any], number: Sequence[int], **_: Any) -> list[float | None]:
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
        transition = await environment.step(Reply(text))
        if transition.end is None:
            message = f"{self.environment.name!r} continues after the first answer, but TRL makes only one"
            hint = "Train with MultiTurnGRPOTrainer, or pass a reward_model that scores first answers."
            raise ContractError(message, hint=hint)
        return float(transition.reward)

    def _attempt(self, number: int, place: int, text: str) -> Trajectory:
        said = attempt_of([*self.prompts[number], {"role": "assistant", "content": text}])
        group, meta = f"g{number}", {**said.meta, "text": text}
        return replace(said, id=f"{group}/m{place}", task_id=self.tasks[number].id, group_id=group, meta=meta)
