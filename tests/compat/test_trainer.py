"""The trainer's calls do what their names say, on the one loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.agents.conversation.completion_client import RolloutScenarios
from groupwise.agents.conversation.multiturn_agent import MultiTurnAgent
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.model_start import load_run
from groupwise.agents.settings import AgentConfig
from groupwise.compat.trainer import GRPOTrainer, MultiTurnGRPOTrainer, train
from groupwise.config import TrainingConfig
from groupwise.errors import ConfigError
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.loading import LanguageModel, load_model
from groupwise.training.folder import inspect_run
from groupwise.types import Event, Message, ScoredGroup, Task
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


def test_an_update_by_hand_uses_the_threads_of_the_settings(tmp_path: Path) -> None:
    agent, seen = SomeAgent(), list[int]()

    async def step() -> None:
        trainer = GRPOTrainer(agent, Letters(), config=settings(tmp_path, threads=3))
        await trainer.initialize()
        groups = await trainer.generate_trajectories()
        hooks = [
            p.register_hook(lambda _: seen.append(torch.get_num_threads())) for p in agent.language.model.parameters()
        ]
        await trainer.training_step(groups)
        for hook in hooks:
            hook.remove()
        trainer.close()

    before = torch.get_num_threads()
    asyncio.run(step())
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


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


def test_a_run_samples_as_its_agent_was_told_to(tmp_path: Path) -> None:
    agent = SomeAgent()
    agent.config = AgentConfig(model_name="tiny", temperature=0.7, max_new_tokens=9, top_k=5)
    own = GRPOTrainer(agent, Letters(), count_a, TrainingConfig(output_dir=str(tmp_path), max_new_tokens=4)).cfg
    assert (own.sampling.temperature, own.sampling.top_k) == (0.7, 5)
    assert own.sampling.max_new_tokens == 4, "the run's own settings come first"
    agent.config = AgentConfig(model_name="tiny", temperature=0)
    assert GRPOTrainer(agent, Letters(), count_a).cfg.sampling.temperature == 1


def test_the_kl_term_needs_and_uses_a_reference(tmp_path: Path) -> None:
    async def losses(**changes: Any) -> dict[str, torch.Tensor]:
        trainer = GRPOTrainer(SomeAgent(), Letters(), count_a, settings(tmp_path, **changes))
        await trainer.initialize()
        groups = await trainer.generate_trajectories()
        await trainer.training_step(groups)
        result = trainer.compute_enhanced_grpo_loss(groups, beta=1.0)
        plain = trainer.compute_grpo_loss(groups)
        policy = trainer._parts.policy
        batch = trainer._compared(groups)
        with torch.no_grad():
            entropy = policy.evaluate(batch.inputs).entropy[batch.mask].mean()
        trainer.close()
        assert "loss_kl" not in plain
        return {**result, "plain": plain["loss_policy"], "entropy": entropy}

    found = asyncio.run(losses(use_reference_model=True, loss_type="bnpo"))
    assert found["loss_policy"].requires_grad
    number = {name: float(term.detach()) for name, term in found.items()}
    assert number["policy_reference_kl"] > 0
    assert number["policy_entropy"] == pytest.approx(number["entropy"]), "a mean over tokens, not a sum"
    assert number["loss_kl"] == pytest.approx(number["policy_reference_kl"], rel=1e-4), "bnpo divides by tokens too"
    assert number["loss_policy"] == pytest.approx(number["plain"]), "the KL is a term of its own"
    assert number["total_loss"] == pytest.approx(number["loss_policy"] + number["loss_kl"])
    with pytest.raises(ConfigError, match="needs a reference model"):
        asyncio.run(losses())


def test_advantages_from_elsewhere_make_a_loss_and_an_update(tmp_path: Path) -> None:
    async def updates() -> None:
        trainer = GRPOTrainer(SomeAgent(), Letters(), count_a, settings(tmp_path))
        await trainer.initialize()
        (group,) = await trainer.generate_trajectories(["a"])
        good = [1.0, -1.0, 0.5, -0.5, 0.0, 0.0]
        loss = trainer._compute_group_policy_loss(group, good)
        loss.backward()
        model = trainer.agent.language.model
        pushed = torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])
        model.zero_grad()
        # The opposite advantages push the other way: the loss is linear in them on the first pass.
        trainer._compute_group_policy_loss(group.group, [-advantage for advantage in good]).backward()
        back = torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])
        assert pushed.abs().sum() > 0
        assert torch.allclose(pushed, -back, atol=1e-6)
        model.zero_grad()
        before = weights(trainer)
        assert isinstance(await trainer._update_policy(group.group.members, good), float)
        assert not torch.equal(before, weights(trainer))
        with pytest.raises(ConfigError, match="6 attempts but 2 advantages"):
            await trainer._update_policy(group, [1.0, -1.0])
        trainer.close()

    asyncio.run(updates())


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


def test_steps_by_hand_count_and_the_reference_stays_where_it_was(tmp_path: Path) -> None:
    """Whoever trains on, by hand, by `train` or by `train` again, is held to the model that there was at first."""

    async def divergences() -> tuple[list[int], list[float]]:
        seen: list[Event] = []
        cfg = settings(tmp_path, num_episodes=2, use_reference_model=True, beta=0.01, learning_rate=0.01)
        trainer = GRPOTrainer(SomeAgent(), Letters(), count_a, cfg, on_event=seen.append)
        await trainer.initialize()
        await trainer.training_step(await trainer.generate_trajectories())
        await trainer.train()
        trainer.cfg = trainer.cfg.replace(num_episodes=3)
        await trainer.train()
        steps = [event for event in seen if event.type == "step"]
        return [event.step for event in steps], [event.data["metrics"]["policy/reference_kl"] for event in steps]

    steps, divergence = asyncio.run(divergences())
    assert steps == [2, 3]
    assert min(divergence) > 1e-3


def test_an_adapter_of_the_agent_is_part_of_the_run(tmp_path: Path) -> None:
    """The run can be loaded by itself, whoever asked for the adapter; two ranks are refused."""
    agent = MultiTurnAgent(AgentConfig(model_name="tiny", lora_rank=2, lora_alpha=6.0))
    trainer = train(agent, Letters(), reward_fn=count_a, **plain(tmp_path, num_episodes=1))
    assert trainer.path is not None
    loaded = load_run(trainer.path).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in agent.model.state_dict().items())
    with pytest.raises(ConfigError, match="lora_rank = 4, but the agent's model has an adapter of rank 2"):
        asyncio.run(GRPOTrainer(agent, Letters(), config=settings(tmp_path, lora_rank=4)).initialize())
    asyncio.run(agent.close())


def test_activations_are_recomputed_where_the_settings_say_so(tmp_path: Path) -> None:
    agent = SomeAgent()
    trainer = GRPOTrainer(agent, Letters(), config=settings(tmp_path, gradient_checkpointing=True))
    asyncio.run(trainer.initialize())
    trainer.close()
    assert any(getattr(module, "gradient_checkpointing", False) for module in agent.language.model.modules())


class Slotted:
    """An environment that takes no attributes from others."""

    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = Letters().make()

    async def reset(self, task: Task) -> Observation:
        return await self.inner.reset(task)

    async def step(self, reply: Reply) -> Transition:
        return await self.inner.step(reply)


class SlottedLetters(Letters):
    def make(self) -> Any:
        return Slotted()


async def own(client: Any, task: str) -> float:
    answer = await client.chat.completions.create(model="policy", messages=[{"role": "user", "content": task}])
    return float(len(answer.choices[0].message.content))


@pytest.mark.parametrize(
    ("environment", "first"),
    [(Letters(), "system"), (SlottedLetters(), "system"), (RolloutScenarios(own, ["a", "b"]), "user")],
)
def test_what_the_agent_is_told_heads_every_conversation_that_is_held_for_it(
    tmp_path: Path, environment: Any, first: str
) -> None:
    async def groups() -> list[ScoredGroup]:
        agent = SomeAgent()
        agent.config = AgentConfig(model_name="tiny", system_prompt="Be brief.")
        trainer = GRPOTrainer(agent, environment, config=settings(tmp_path))
        await trainer.initialize()
        try:
            return await trainer.generate_trajectories()
        finally:
            trainer.close()

    for group in asyncio.run(groups()):
        for attempt in group.group.members:
            assert attempt.error is None
            if first == "system":
                assert attempt.meta["messages"][0] == {"role": "system", "content": "Be brief."}


def test_whoever_stops_waiting_ends_the_training_with_a_checkpoint(tmp_path: Path) -> None:
    async def stopped() -> GRPOTrainer:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def told(event: Event) -> None:
            if event.type == "step":
                loop.call_soon_threadsafe(begun.set)

        cfg = settings(tmp_path, num_episodes=1000, save_steps=1000)
        trainer = GRPOTrainer(SomeAgent(), Letters(), count_a, cfg, on_event=told)
        work = asyncio.create_task(trainer.train())
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        return trainer

    trainer = asyncio.run(stopped())
    assert trainer.path is not None
    info = inspect_run(trainer.path)
    assert info.state == "stopped"
    assert 1 <= info.step < 20
    assert any((trainer.path / "checkpoints").iterdir())
