"""Train a conversational agent with 0.9 million weights, using most of what GRPO offers here, in half a minute.

It uses a custom reward, a reference model with a KL term, a critic with GAE, clipping, a LoRA adapter, evaluation and
checkpoints. Then the agent answers; inspect the run with `groupwise show` and talk to it with `groupwise chat`.

    python examples/complete_grpo_training.py [--episodes 40] [--runs runs]
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from groupwise import AgentConfig, ConversationEnvironment, MultiTurnAgent, RewardFunction, Score, TrainingConfig
from groupwise.compat import MultiTurnGRPOTrainer
from groupwise.types import Event, Message

SCENARIOS = [
    {"topic": "refund", "context": "Order delayed", "user_responses": ["How long will it take?"]},
    {"topic": "shipping", "context": "Track package", "user_responses": ["Where is it now?"]},
    {"topic": "returns", "context": "Wrong size", "user_responses": ["Do I have to pay for it?"]},
    {"topic": "invoice", "context": "Address is wrong", "user_responses": ["Can you send it again?"]},
    {"topic": "account", "context": "Cannot log in", "user_responses": ["I have tried that."]},
]


class Readable(RewardFunction):
    """Reward readable text: letters and spaces, words of normal length. At first the model writes gibberish."""

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        said = " ".join(turn["content"] for turn in turns if turn["role"] == "assistant")
        letters = sum(character.isalpha() or character == " " for character in said) / max(1, len(said))
        words = said.split()
        usual = sum(2 <= len(word) <= 9 for word in words) / max(1, len(words))
        return Score(0.7 * letters + 0.3 * usual, {"letters": letters, "usual_words": usual})


def print_progress(event: Event) -> None:
    """Print a line for some of the events."""
    if event.type == "step" and event.step % 5 == 0:
        metrics = event.data["metrics"]
        print(f"step {event.step:3}  reward {metrics['reward/mean']:.3f}  KL {metrics['policy/reference_kl']:.4f}")
    elif event.type == "eval":
        print(f"step {event.step:3}  held out {event.data['metrics']['eval/reward_mean']:.3f}")


async def main(episodes: int, runs: str) -> None:
    agent = MultiTurnAgent(AgentConfig(model_name="tiny", max_new_tokens=24))
    await agent.initialize()
    environment = ConversationEnvironment(scenarios=SCENARIOS, max_turns=2)
    config = TrainingConfig(
        num_episodes=episodes, num_generations=8, tasks_per_step=4, max_new_tokens=24,
        estimator="gae", advantage_scale="batch_std", value_coef=0.5, value_clip=0.2,
        beta=0.02, use_reference_model=True, clip_ratio=0.2, entropy_coef=0.001, reward_clip=10.0,
        lora_rank=8, learning_rate=5e-3, lr_scheduler_type="cosine", warmup_ratio=0.1, max_grad_norm=1.0,
        per_device_train_batch_size=32, gradient_accumulation_steps=1,
        eval_steps=max(1, episodes // 2), eval_episodes=4, save_steps=max(1, episodes // 2),
        output_dir=runs, threads=1,
    )  # fmt: skip
    before = await answer(agent)
    trainer = MultiTurnGRPOTrainer(agent, environment, Readable(), config, on_event=print_progress)
    await trainer.initialize()
    trained = await trainer.train()
    print(f"before: {before!r}\nafter:  {await answer(trained)!r}")
    print(f"next:   groupwise show {trainer.path}")
    await trained.close()


async def answer(agent: MultiTurnAgent) -> str:
    """Return the agent's answer to a customer."""
    context = await agent.start_conversation(user_id="user123")
    question = "I have a question about refund: Order delayed."
    return (await agent.generate_multiturn_response(context.conversation_id, question)).text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--runs", default="runs", help="folder for runs")
    given = parser.parse_args()
    asyncio.run(main(given.episodes, given.runs))
