"""Environments and rollout functions that rollout workers run in tests; a worker must be able to import them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from groupwise.agents.environments.contract import Listed, Observation, Reply, Transition
from groupwise.types import End, Task


class Talk(Listed[str]):
    """Three turns; the payload says what goes wrong in the second: `raises`, `hangs`, or `dies FILE` (once)."""

    name = "talk"

    def __init__(self, payloads: list[str] | None = None) -> None:
        super().__init__(payloads or ["fine", "well"], ["held out"])

    async def reset(self, task: Task) -> Observation:
        self.fate, self.turn = task.payload, 0
        return Observation(({"role": "user", "content": self.fate},))

    async def step(self, reply: Reply) -> Transition:
        self.turn += 1
        what, _, file = self.fate.partition(" ")
        if self.turn == 2 and what == "raises":
            raise KeyError("no such order")
        if self.turn == 2 and what == "hangs":
            time.sleep(60)
        if self.turn == 2 and what == "dies" and not Path(file).exists():
            Path(file).touch()
            os._exit(3)
        said = ({"role": "user", "content": "go on"},) if self.turn < 3 else ()
        reward = reply.content.count("a") + self.turn / 8
        end = None if self.turn < 3 else End.FINISHED
        return Transition(said, reward, end, {"process": float(os.getpid()) if end else 0.0})


TASKS = ["one", "two", "three"]


async def rollout(client: Any, task: str) -> float:
    """Two turns; a task called `raises` fails, and `endless` calls the model for ever."""
    messages = [{"role": "user", "content": task}]
    turns = 0
    while turns < 2 or task == "endless":
        answer = await client.chat.completions.create(model="policy", messages=messages)
        said = answer.choices[0].message.content
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "more"}]
        turns += 1
        await asyncio.sleep(0)
    if task == "raises":
        raise ValueError("a broken agent")
    return sum(m["content"].count("a") for m in messages if m["role"] == "assistant") + float(os.getpid() < 0)
