"""The examples of the founding documents, as they print them: other import paths, the tiny model, small numbers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise import (
    Agent,
    AgentConfig,
    ConversationEnvironment,
    MultiObjectiveRewardFunction,
    MultiTurnAgent,
    RewardFunction,
    Score,
    TrainingConfig,
)
from groupwise.agents.conversation.dialogues import DialogueDatabase
from groupwise.agents.strategies import DOMAINS
from groupwise.compat import (
    GRPOTrainer,
    KeywordRewardComponent,
    LengthRewardComponent,
    MultiTurnGRPOTrainer,
    NeuralRewardFunction,
    RulerRewardFunction,
    create_customer_service_reward,
    create_customer_service_ruler,
    create_neural_reward_function,
    train,
)
from groupwise.rewards.function import attempt_of
from groupwise.rewards.scoring import score_groups
from groupwise.rewards.signatures import as_reward
from groupwise.types import Event, Group, Message, Task

RUDE = [{"role": "user", "content": "Where is my order?"}, {"role": "assistant", "content": "No idea."}]
KIND = [
    {"role": "user", "content": "Where is my order?"},
    {"role": "assistant", "content": "I am sorry, please wait. I'll help you with that and check it now. thank you!"},
]
SCENARIOS = [
    {"topic": "refund", "context": "Order delayed"},
    {"topic": "shipping", "context": "Track package"},
]
SMALL: dict[str, Any] = {
    "max_new_tokens": 8, "max_conversation_turns": 2, "tasks_per_step": 1, "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1, "eval_steps": 0, "threads": 1, "learning_rate": 1e-3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to a folder of the test; no server is reached and no key is known."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def totals(reward: Any, *conversations: list[Message]) -> list[Score]:
    group = Group("group", Task("task"), tuple(attempt_of(turns) for turns in conversations))
    scores = [score for scored in score_groups(as_reward(reward), [group]) for score in scored.scores]
    assert all(isinstance(score, Score) for score in scores), scores
    return scores  # type: ignore[return-value]


def test_the_minimal_example_of_the_implementation_guide() -> None:
    async def train() -> tuple[Any, Any, list[Event], bool]:
        agent = MultiTurnAgent(AgentConfig(model_name="tiny"))
        await agent.initialize()
        env = ConversationEnvironment(scenarios=SCENARIOS, max_turns=6)
        reward_fn = create_customer_service_reward()
        config = TrainingConfig(
            num_episodes=2, num_generations=4, beta=0.1, use_reference_model=True, clip_ratio=0.2, **SMALL
        )
        seen: list[Event] = []
        before = [p.detach().clone() for p in agent.model.parameters()]
        trainer = MultiTurnGRPOTrainer(agent, env, reward_fn, config, on_event=seen.append)
        await trainer.initialize()
        trained_agent = await trainer.train()
        learned = any(not torch.equal(a, b) for a, b in zip(before, agent.model.parameters(), strict=True))
        await agent.close()
        return agent, trained_agent, seen, learned

    agent, trained, seen, learned = asyncio.run(train())
    assert trained is agent
    assert learned
    steps = [event.data["metrics"] for event in seen if event.type == "step"]
    assert len(steps) == 2
    assert all("policy/reference_kl" in metrics and "reward/part/empathy" in metrics for metrics in steps)


def test_the_first_and_fourth_before_of_the_migration_guide() -> None:
    """`train(agent, environment, num_episodes)`, and `await GRPOTrainer(agent, environment, reward).train()`."""
    env = ConversationEnvironment(SCENARIOS, max_turns=1)
    trainer = train(MultiTurnAgent("tiny"), env, num_episodes=1, num_generations=2, **SMALL)
    assert trainer.path is not None
    agent = trainer.agent
    config = TrainingConfig(num_episodes=1, num_generations=2, **SMALL)
    assert asyncio.run(GRPOTrainer(agent, env, create_customer_service_reward(), config).train()) is agent
    asyncio.run(agent.close())


def test_the_second_example_a_judge_in_the_place_of_a_number() -> None:
    class SimpleReward(RewardFunction):
        def compute_reward(self, turns: Any) -> float:
            return 0.5  # Fixed reward

    assert [score.total for score in totals(SimpleReward(), RUDE, KIND)] == [0.5, 0.5]

    ruler_reward = create_customer_service_ruler(model="openai/gpt-4", weight=0.6, fallback_enabled=True)
    assert ruler_reward.weight == 0.6
    for score in totals(ruler_reward, RUDE, KIND):  # there is no key: the heuristic scores, and says so
        assert "judge_fallback" in score.flags


def test_the_third_example_from_one_answer_to_a_conversation() -> None:
    async def talk() -> Any:
        config = AgentConfig(model_name="tiny", max_new_tokens=8)
        agent = Agent(config)
        await agent.initialize()
        assert isinstance(await agent.generate_response("Hello"), str)
        await agent.close()
        dialogue_db = DialogueDatabase()
        dialogue_db.add(KIND)
        multiturn_agent = MultiTurnAgent(model_config=config, max_conversation_turns=20, dialogue_database=dialogue_db)
        await multiturn_agent.initialize()
        context = await multiturn_agent.start_conversation(user_id="user123")
        response = await multiturn_agent.generate_multiturn_response(
            context.conversation_id, user_message="Hello, I need help with my order", strategy="customer_service"
        )
        await multiturn_agent.close()
        return response

    response = asyncio.run(talk())
    assert response.metadata["strategy"] == "customer_service"
    assert response.examples
    assert response.tokens >= 1


def test_the_fifth_example_from_rules_to_a_network() -> None:
    class ManualReward(RewardFunction):
        def compute_reward(self, turns: Any) -> float:
            score = 0.0
            if "please" in turns[-1]["content"]:
                score += 0.2
            if "thank you" in turns[-1]["content"]:
                score += 0.3
            return score

    assert [score.total for score in totals(ManualReward(), RUDE, KIND)] == [0.0, 0.5]

    neural_reward = create_neural_reward_function(
        embedding_dim=128, hidden_dim=256, learning_rate=1e-4, weight=1.0, update_frequency=100
    )
    for number in range(50):
        totals(neural_reward, [*RUDE[:1], {**RUDE[1], "content": f"No, {number}."}], KIND)
        assert neural_reward.metrics()["neural/updates"] == (1.0 if number == 49 else 0.0)  # at the 100th evaluation


def test_the_sixth_example_several_objectives() -> None:
    components = [LengthRewardComponent(weight=0.3), KeywordRewardComponent(weight=0.7)]
    rude, kind = totals(MultiObjectiveRewardFunction(components), RUDE, KIND)
    assert rude.total < kind.total
    assert set(kind.parts) == {"length", "keywords"}

    reward = create_customer_service_reward(
        expected_responses=["I'll help you with that", "Let me check on that"],
        weight=1.0,
        normalization_method="weighted_sum",
    )
    rude, kind = totals(reward, RUDE, KIND)
    shares = reward.weights
    assert rude.total < kind.total == pytest.approx(sum(share * kind.parts[part] for part, share in shares.items()))


def test_the_best_practices_of_the_migration_guide() -> None:
    reward = MultiObjectiveRewardFunction(
        [
            RulerRewardFunction(weight=0.4),  # LLM judge
            NeuralRewardFunction(weight=0.3),  # Learned rewards
            MultiObjectiveRewardFunction(weight=0.3),  # Heuristic components
        ]
    )
    with pytest.raises(AssertionError, match="OPENAI_API_KEY is not set"):  # no key, and no fallback was chosen
        totals(reward, RUDE, KIND)
    reward.components["ruler_general"] = RulerRewardFunction(weight=0.4, fallback_enabled=True)
    rude, kind = totals(reward, RUDE, KIND)
    assert rude.total < kind.total
    assert {"ruler_general", "neural", "multi_objective"} <= set(kind.parts)
    strategies = {
        "customer_support": "customer_service",
        "tech_help": "technical_support",
        "sales_chat": "sales",
        "tutoring": "educational",
    }
    assert strategies.items() <= dict(DOMAINS).items()
