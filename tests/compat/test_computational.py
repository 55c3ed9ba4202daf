"""The computational engine of document 4, as it wrote it: many workers, learned rewards, metrics, and scaling."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.agent import Agent
from groupwise.agents.environments.conversation import ConversationEnvironment
from groupwise.agents.environments.task import TaskEnvironment
from groupwise.compat import ComputationalGRPOEngine, create_computational_engine
from groupwise.compat.computational import scenario_of
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError, ResourceError
from groupwise.types import Message

sys.path.insert(0, str(Path(__file__).parents[1] / "agents" / "environments"))
import talking_environments as talking

CONFIG = TrainingConfig(
    product="agent", num_generations=4, max_new_tokens=4, learning_rate=2e-3, num_epochs=1, threads=1,
    per_device_train_batch_size=32, gradient_accumulation_steps=1, warmup_ratio=0.0,
)  # fmt: skip
PROMPTS = ["Hello", "How are you?"]


def count_a(turns: list[Message]) -> float:
    return sum(turn["content"].count("a") for turn in turns if turn["role"] == "assistant") / 10


@pytest.fixture(scope="module")
def engine() -> Iterator[ComputationalGRPOEngine]:
    # As in the document, but for the settings.
    engine = create_computational_engine(
        agent=Agent("tiny"),
        environment=talking.Talk(),
        reward_function=count_a,
        num_workers=2,
        use_learned_rewards=True,
        config=CONFIG,
    )
    yield engine
    engine.close()


def weights(engine: ComputationalGRPOEngine) -> torch.Tensor:
    model: Any = engine.trainer.agent.language.model
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


def test_an_iteration_changes_the_weights_and_reports_itself(engine: ComputationalGRPOEngine) -> None:
    async def both() -> tuple[Any, torch.Tensor, Any, torch.Tensor]:
        first = await engine.train_iteration(PROMPTS)
        middle = weights(engine)
        return first, middle, await engine.train_iteration(PROMPTS), weights(engine)

    first, middle, second, after = asyncio.run(both())
    assert not torch.equal(middle, after)
    assert (first["iteration"], second["iteration"], second["trajectories"]) == (1, 2, 8)
    assert second["metrics"]["rollout/workers"] == 2
    assert second["metrics"]["loss/policy"] is not None
    reward: Any = engine.trainer.reward
    assert list(reward.components) == ["given", "neural"]
    # Asked once for each group, whoever wants to know; the network learned from every attempt.
    assert reward.components["neural"].evaluations == 16


def test_the_monitoring_snippet_runs_as_it_is_written(engine: ComputationalGRPOEngine) -> None:
    async def monitor(threshold: float) -> None:
        # Monitor key metrics
        metrics = await engine.get_metrics()
        if metrics["trajectories_per_second"] < threshold:
            await engine.scale_computation(scale_factor=2.0)

    assert engine.get_metrics()["trajectories_per_second"] > 0
    asyncio.run(monitor(0.0))
    assert engine.get_metrics()["workers"] == 2
    asyncio.run(monitor(1e9))
    assert engine.get_metrics()["workers"] == 4
    assert engine.scale_computation(scale_factor=0.5) == {"workers": 2, "before": 4}


def test_an_order_during_an_iteration_is_carried_out_before_the_next(engine: ComputationalGRPOEngine) -> None:
    async def ordered() -> tuple[Any, Any, Any]:
        under_way = asyncio.ensure_future(engine.train_iteration(PROMPTS))
        while engine._began is None:
            await asyncio.sleep(0)
        later = engine.scale_computation(workers=1)
        with pytest.raises(ConfigError, match="already under way"):
            await engine.train_iteration(PROMPTS)
        return later, await under_way, await engine.train_iteration(PROMPTS)

    later, first, second = asyncio.run(ordered())
    assert later == {"workers": 2, "later": {"workers": 1}}
    assert (first["workers"], second["workers"]) == (2, 1)


def test_wrong_orders_and_prompts_are_refused_in_a_sentence(engine: ComputationalGRPOEngine) -> None:
    with pytest.raises(ResourceError, match="10000 workers are more than there is room for"):
        engine.scale_computation(workers=10_000)
    for args in ({}, {"scale_factor": -1.0}):
        with pytest.raises(ConfigError, match="is not an order to scale"):
            engine.scale_computation(**args)  # type: ignore[arg-type]
    for prompts in ("Hello", []):
        with pytest.raises(ConfigError, match="is not a list of prompts"):
            asyncio.run(engine.train_iteration(prompts))
    with pytest.raises(ConfigError, match="has no workers"):
        create_computational_engine(Agent("tiny"), talking.Talk(), backend="local")  # type: ignore[arg-type]


def test_a_prompt_becomes_a_scenario_of_its_environment() -> None:
    conversation = ConversationEnvironment([{"topic": "refund"}, {"topic": "delay"}])
    assert scenario_of(conversation, "Hello") == {"opening": "Hello"}
    assert scenario_of(conversation, {"topic": "refund"}) == {"topic": "refund"}
    tasks = [{"goal": "What is 2 + 2?", "answer": "4"}, {"goal": "What is 3 + 3?", "answer": "6"}]
    environment = TaskEnvironment(tasks, lambda task, messages: 1.0)
    assert scenario_of(environment, "What is 3 + 3?") == tasks[1]
    assert scenario_of(environment, "New") == {"goal": "New"}
    assert scenario_of(talking.Talk(), "fine") == "fine"
