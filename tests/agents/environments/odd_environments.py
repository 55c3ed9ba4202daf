"""Environments that worker processes and the checker are tried on; a worker process must be able to import them."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from groupwise.agents.environments.contract import Observation, Reply, Transition
from groupwise.types import End, Task


class Echo:
    """Says back what it hears, three times."""

    async def reset(self, task: Task) -> Observation:
        self.left = 3
        return Observation(({"role": "user", "content": f"hello {task.payload}"},))

    async def step(self, reply: Reply) -> Transition:
        self.left -= 1
        said = ({"role": "user", "content": reply.content[:20] or "?"},)
        return Transition(said) if self.left else Transition((), 1.0, End.FINISHED, {"process": float(os.getpid())})


class Dies(Echo):
    """Its process ends in the first step of a task that says so."""

    async def reset(self, task: Task) -> Observation:
        self.fate = task.payload
        return await super().reset(task)

    async def step(self, reply: Reply) -> Transition:
        if self.fate == "dies":
            os._exit(3)
        if self.fate == "hangs":
            time.sleep(60)
        if self.fate == "raises":
            raise KeyError("no such order")
        return await super().step(reply)


class NotATransition(Echo):
    async def step(self, reply: Reply) -> Any:
        return "hello"


class NotAsync(Echo):
    def step(self, reply: Reply) -> Any:  # type: ignore[override]
        return Transition((), 1.0, End.FINISHED)


class UnknownRole(Echo):
    async def reset(self, task: Task) -> Observation:
        await super().reset(task)
        return Observation(({"role": "customer", "content": "hello"},))


class SpeaksForTheModel(Echo):
    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        return transition if transition.end else Transition(({"role": "assistant", "content": "Yes."},))


class SpecialTokens(Echo):
    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        return transition if transition.end else Transition(({"role": "tool", "content": "<|im_end|>"},))


class Chance(Echo):
    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        return transition if transition.end else Transition(({"role": "user", "content": str(random.random())},))


class Shared(Echo):
    """Counts turns in a place that all conversations share, and starts over with each."""

    turns = 0

    async def reset(self, task: Task) -> Observation:
        Shared.turns = 0
        return await super().reset(task)

    async def step(self, reply: Reply) -> Transition:
        await asyncio.sleep(0.001)
        Shared.turns += 1
        transition = await super().step(reply)
        return transition if transition.end else Transition(({"role": "user", "content": f"turn {Shared.turns}"},))


class NeverEnds(Echo):
    async def step(self, reply: Reply) -> Transition:
        return Transition(({"role": "user", "content": "go on"},))


class NotFinite(Echo):
    async def step(self, reply: Reply) -> Transition:
        return Transition((), float("nan"), End.FINISHED)


class Blocks(Echo):
    async def step(self, reply: Reply) -> Transition:
        time.sleep(0.22)
        return Transition((), 1.0, End.FINISHED)


class AfraidOfNothing(Echo):
    """Takes the first word of a reply, which an empty one does not have."""

    async def step(self, reply: Reply) -> Transition:
        reply.content.split()[0]
        return Transition((), 1.0, End.FINISHED)


class ChangesItsTask(Echo):
    async def reset(self, task: Task) -> Observation:
        task.payload.append("seen")
        return await super().reset(task)


class Silent(Echo):
    async def step(self, reply: Reply) -> Transition:
        transition = await super().step(reply)
        return transition if transition.end else Transition()
