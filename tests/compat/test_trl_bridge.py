"""A job handed to TRL trains the agent's own weights, and what TRL cannot carry is refused by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.settings import AgentConfig
from groupwise.compat.trl_bridge import train_with_trl_grpo, trl_arguments
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, GroupwiseError
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model
from groupwise.types import End, Message, Task
from tests.agents.test_agent_product import Letters

pytest.importorskip("trl")


class LoraAgent:
    def __init__(self) -> None:
        self.config = AgentConfig(model_name="tiny", lora_rank=4)

    async def initialize(self) -> None:
        self.language: LanguageModel = load_model("tiny", lora=Lora(4, 8.0))

    def use(self, language: LanguageModel) -> None:
        self.language = language


class OneAnswer(Letters):
    name = "one answer"

    def make(self) -> OneAnswer:
        return OneAnswer()

    async def step(self, reply: Reply) -> Transition:
        return Transition((), float(len(set(reply.content))), End.FINISHED)


class WithTools(OneAnswer):
    def make(self) -> WithTools:
        return WithTools()

    async def reset(self, task: Task) -> Observation:
        return Observation((await super().reset(task)).messages, ({"type": "function"},))


def settings(tmp_path: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{
        "output_dir": str(tmp_path), "max_new_tokens": 6, "num_generations": 4, "tasks_per_step": 2, "num_episodes": 2,
        "learning_rate": 1e-2, "per_device_train_batch_size": 4, "warmup_ratio": 0.0, **changes,
    })  # fmt: skip


def length(turns: list[Message]) -> float:
    return float(len(set(turns[-1]["content"])))


@pytest.mark.parametrize("reward", [length, None])
def test_trl_trains_the_adapter_and_nothing_else(tmp_path: Path, reward: Any) -> None:
    agent = LoraAgent()
    asyncio.run(train_with_trl_grpo(settings(tmp_path), agent, OneAnswer(), reward))
    named = dict(agent.language.model.named_parameters())
    fresh = dict(load_model("tiny", lora=Lora(4, 8.0)).model.named_parameters())
    changed = {name for name, value in named.items() if not torch.equal(value, fresh[name])}
    assert changed
    assert all("lora" in name for name in changed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"estimator": "turns"}, "one advantage"), ({"dynamic_sampling": True}, "draws every group once")],
)
def test_what_trl_cannot_carry_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trl_arguments(settings(tmp_path, **changes))


def test_conversations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="offers tools to the model"):
        asyncio.run(train_with_trl_grpo(settings(tmp_path), LoraAgent(), WithTools()))
    with pytest.raises(GroupwiseError, match="continues after the first answer"):
        asyncio.run(train_with_trl_grpo(settings(tmp_path), LoraAgent(), Letters()))


def test_fields_of_trl_are_passed_through(tmp_path: Path) -> None:
    with pytest.raises((ValueError, ImportError), match="vLLM|vllm"):
        asyncio.run(train_with_trl_grpo(settings(tmp_path), LoraAgent(), OneAnswer(), length, use_vllm=True))
