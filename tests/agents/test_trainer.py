"""The trainer's calls do what their names say, on the one loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.settings import AgentConfig
from groupwise.agents.trainer import GRPOTrainer, MultiTurnGRPOTrainer, train
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel, load_model
from groupwise.types import Event, Message
from tests.agents.test_agent_product import Letters


class SomeAgent:
    """An agent is whoever has a model and a configuration."""

    def __init__(self) -> None:
        self.config = AgentConfig(model_name="tiny")

    async def initialize(self) -> None:
        self.language: LanguageModel = load_model("tiny")

    def use(self, language: LanguageModel) -> None:
        self.language = language


def settings(tmp_path: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**plain(tmp_path, **changes))


def plain(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path), "max_new_tokens": 4, "num_generations": 6, "tasks_per_step": 2,
        "learning_rate": 2e-3, "num_episodes": 4, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
        "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1, "eval_steps": 0, "threads": 1,
        "save_steps": 2, **changes,
    }  # fmt: skip


def weights(trainer: GRPOTrainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in trainer.agent.language.model.parameters()])


def count_a(turns: list[Message]) -> float:
    return float(sum(turn["content"].count("a") for turn in turns if turn["role"] == "assistant"))


def test_steps_by_hand_learn_and_are_kept(tmp_path: Path) -> None:
    async def steps() -> None:
        trainer = MultiTurnGRPOTrainer(SomeAgent(), Letters(), count_a, settings(tmp_path, num_episodes=3))
        await trainer.initialize()
        groups = await trainer.generate_trajectories(["a", "b"])
        assert [len(group.scores) for group in groups] == [6, 6]
        loss = trainer.compute_grpo_loss(groups)["total_loss"]
        loss.backward()
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in trainer.agent.language.model.parameters())
        before = weights(trainer)
        metrics = await trainer.training_step(groups)
        assert metrics["optim/grad_norm"] > 0
        after = weights(trainer)
        assert not torch.equal(before, after)
        assert set(await trainer.evaluate(["a", "b"])) >= {"eval/reward_mean", "eval/turns_mean"}
        saved = await trainer.save_checkpoint()
        assert (saved / "COMPLETE").exists()
        seen: list[Event] = []
        trainer.on_event = seen.append
        assert await trainer.train() is trainer.agent
        assert [event.step for event in seen if event.type == "step"] == [2, 3]
        assert not torch.equal(after, weights(trainer))

    asyncio.run(steps())


def test_a_trainer_of_the_same_name_goes_on(tmp_path: Path) -> None:
    first = train(SomeAgent(), Letters(), **plain(tmp_path, run_name="letters", num_episodes=2))
    again = GRPOTrainer(SomeAgent(), Letters(), config=settings(tmp_path, run_name="letters", num_episodes=3))
    seen: list[Event] = []
    again.on_event = seen.append
    asyncio.run(again.train())
    assert again.path == first.path
    assert [event.step for event in seen if event.type == "step"] == [3]


def test_the_kl_term_needs_and_uses_a_reference(tmp_path: Path) -> None:
    async def losses(**changes: Any) -> dict[str, torch.Tensor]:
        trainer = GRPOTrainer(SomeAgent(), Letters(), count_a, settings(tmp_path, **changes))
        await trainer.initialize()
        groups = await trainer.generate_trajectories()
        await trainer.training_step(groups)
        result = trainer.compute_enhanced_grpo_loss(groups, beta=1.0)
        plain = trainer.compute_grpo_loss(groups)
        trainer.close()
        return {"kl": result["policy_reference_kl"], "gap": result["total_loss"] - plain["total_loss"]}

    found = asyncio.run(losses(use_reference_model=True))
    assert found["kl"] > 0
    assert found["gap"] > 0
    with pytest.raises(ConfigError, match="needs a reference model"):
        asyncio.run(losses())


def test_an_engine_that_was_told_nothing_notices_what_was_learned(tmp_path: Path) -> None:
    """An agent goes on talking with an engine of its own while, or after, its model is trained."""

    async def answers() -> tuple[list[int], list[int], list[int]]:
        agent = SomeAgent()
        trainer = GRPOTrainer(agent, Letters(), count_a, settings(tmp_path, learning_rate=0.05))
        await trainer.initialize()
        model, tokenizer = agent.language.model, agent.language.tokenizer
        params, prompt = SamplingParams(max_new_tokens=8, temperature=0.0), tokenizer.encode("hello")
        with Engine(model, tokenizer) as engine:
            before = engine.generate([(prompt, 0)], params)[0].ids.tolist()
            await trainer.training_step(await trainer.generate_trajectories())
            after = engine.generate([(prompt, 0)], params)[0].ids.tolist()
        with Engine(model, tokenizer) as fresh:
            right = fresh.generate([(prompt, 0)], params)[0].ids.tolist()
        trainer.close()
        return before, after, right

    before, after, right = asyncio.run(answers())
    assert before != right
    assert after == right
