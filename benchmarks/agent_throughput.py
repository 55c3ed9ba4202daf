"""Do slow tools cost the others anything: tokens a second of many conversations, with tools that sleep and without.

    python benchmarks/agent_throughput.py --json

512 conversations of 4 turns with a tool call after each but the last, 64 in flight over 32 slots of the engine, the
tiny model with random weights, 24 tokens a turn. With sleep, every call takes 0 to 200 ms, drawn from its
conversation's seed. Both arms alternate. Claim: tokens a second with sleeping tools over those without, the median of
the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from typing import Any

import numpy as np
import torch
from record import print_result

from groupwise.agents.conversation.chat_format import Frame
from groupwise.agents.conversation.rollouts import ConversationLimits, Conversations
from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.agents.tools.function_tool import tool
from groupwise.agents.tools.toolbox import Toolbox
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.tiny import tiny_model
from groupwise.types import End, Task


class Desk:
    """Calls a tool for whatever is said, and ends after some turns."""

    def __init__(self, turns: int, longest: float) -> None:
        self.left, self.longest = turns, longest
        self.toolbox = Toolbox([self.look_up])

    @tool
    async def look_up(self, order: str) -> str:
        """What is known of an order."""
        seconds = self.random.random() * self.longest
        if seconds:
            await asyncio.sleep(seconds)
        return f"order {order} was sent"

    async def reset(self, task: Task) -> Observation:
        self.random = random.Random(task.seed)
        return Observation(({"role": "user", "content": f"Where is order {task.seed}?"},), self.toolbox.schemas)

    async def step(self, reply: Reply) -> Transition:
        self.left -= 1
        if self.left == 0:
            return Transition((), 1.0, End.FINISHED)
        result = await self.look_up(order=str(self.left))
        return Transition(({"role": "tool", "content": result},))


def measure(options: argparse.Namespace, longest: float) -> dict[str, float]:
    model, tokenizer = tiny_model(seed=0)
    params = SamplingParams(max_new_tokens=options.tokens, temperature=1.0)
    tasks = [Task(f"desk/{n}", None, n) for n in range(options.conversations)]
    with Engine(model, tokenizer, slots=options.slots, eos=()) as engine:
        talk = Conversations(
            engine, Frame(tokenizer), lambda: Desk(options.turns, longest), params,
            group_size=1, seed=0, limits=ConversationLimits(turns=options.turns + 1, in_flight=options.in_flight),
        )  # fmt: skip
        talk.collect(tasks[: options.slots])
        read, wall, cpu = engine.tokens_read, time.perf_counter(), time.process_time()
        groups = talk.collect(tasks)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        read = engine.tokens_read - read
        talk.close()
    attempts = [group.members[0] for group in groups]
    assert all(attempt.error is None for attempt in attempts), attempts[0].error
    tokens = sum(attempt.actions_taken for attempt in attempts)
    return {
        "tokens": tokens, "seconds": wall, "cpu_seconds": cpu, "tokens_per_second": tokens / wall,
        "tokens_per_cpu_second": tokens / cpu, "tokens_read": read,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=512)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--longest", type=float, default=0.2, help="seconds that a tool sleeps at most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    raw: list[dict[str, Any]] = []
    for _ in range(options.repeats):
        raw.append({"without": measure(options, 0.0), "with": measure(options, options.longest)})
        if not options.json:
            print({arm: {name: round(value) for name, value in found.items()} for arm, found in raw[-1].items()})
    ratios = [pair["with"]["tokens_per_second"] / pair["without"]["tokens_per_second"] for pair in raw]
    by_cpu = [pair["with"]["tokens_per_cpu_second"] / pair["without"]["tokens_per_cpu_second"] for pair in raw]
    print_result(
        "agent_throughput",
        {
            "throughput_with_tools": float(np.median(ratios)),
            "per_cpu_second_with_tools": float(np.median(by_cpu)),
            "tokens_per_second_without": float(np.median([pair["without"]["tokens_per_second"] for pair in raw])),
            "tokens_per_second_with": float(np.median([pair["with"]["tokens_per_second"] for pair in raw])),
        },
        intervals={"throughput_with_tools": [min(ratios), max(ratios)]},
        raw=raw,
    )


if __name__ == "__main__":
    main()
