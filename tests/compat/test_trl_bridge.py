"""A job handed to TRL trains the agent's own weights, and what TRL cannot carry is refused by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.environments.contract import Reply, Transition
from groupwise.agents.settings import AgentConfig
from groupwise.compat.trl_bridge import _Openings, _talk, train_with_trl_grpo, trl_arguments
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.adapters import Lora
from groupwise.language.loading import LanguageModel, load_model
from groupwise.types import End, Message
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


def test_conversations_of_several_turns_are_learned_from(tmp_path: Path) -> None:
    agent, seen = LoraAgent(), []

    def turns(turns: list[Message]) -> float:
        seen.append([turn["role"] for turn in turns])
        return sum(length([turn]) for turn in turns if turn["role"] == "assistant")

    asyncio.run(train_with_trl_grpo(settings(tmp_path), agent, Letters(), turns))
    assert len(seen) == 2 * 2 * 4
    assert {tuple(roles) for roles in seen} == {("user", "assistant", "user", "assistant", "user")}
    fresh = dict(load_model("tiny", lora=Lora(4, 8.0)).model.named_parameters())
    assert any(not torch.equal(value, fresh[name]) for name, value in agent.language.model.named_parameters())


def test_conversations_cannot_be_sampled_with_vllm(tmp_path: Path) -> None:
    opened = _Openings([], [], goes_on=True)
    vllm: Any = SimpleNamespace(use_vllm=True)
    with pytest.raises(
        ConfigError, match="'letters' goes on after the first answer, which cannot be sampled with vLLM"
    ):
        _talk(Letters(), opened, None, None, settings(tmp_path), None, vllm)  # type: ignore[arg-type]


@pytest.mark.parametrize("environment", [OneAnswer(), Letters()])
def test_a_reference_without_an_adapter_is_the_agents_own_model(tmp_path: Path, environment: Any) -> None:
    class WholeAgent(LoraAgent):
        async def initialize(self) -> None:
            self.language = load_model("tiny")

    agent = WholeAgent()
    cfg = settings(tmp_path, beta=0.1, use_reference_model=True)
    asyncio.run(train_with_trl_grpo(cfg, agent, environment, None))
    fresh = dict(load_model("tiny").model.named_parameters())
    assert any(not torch.equal(value, fresh[name]) for name, value in agent.language.model.named_parameters())
    assert not Path(agent.language.model.config._name_or_path).is_dir()


def test_fields_of_trl_are_passed_through(tmp_path: Path) -> None:
    with pytest.raises((ValueError, ImportError), match="vLLM|vllm"):
        asyncio.run(train_with_trl_grpo(settings(tmp_path), LoraAgent(), OneAnswer(), length, use_vllm=True))


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
def test_weights_in_8_or_4_bits_need_an_adapter_and_are_refused_in_a_sentence(tmp_path: Path, bits: Any) -> None:
    agent = MultiTurnAgent(AgentConfig(model_name="tiny", quantization=bits))
    with pytest.raises(ConfigError, match="quantised weights cannot be trained"):
        asyncio.run(train_with_trl_grpo(settings(tmp_path), agent, OneAnswer(), length))
