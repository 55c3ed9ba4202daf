"""What a training run remembers about the users of its scenarios.

A scenario that is a mapping with a `user_id` has a user. Before a group begins, what is known about its user is
recalled once, by the opening question, and every member of the group is shown the same. After a step, what the users
said is kept, and facts that were shown are reported: they helped if the group scored at least the step's mean. A step
is one generation of the memory; a checkpoint stores its number, and a resumed run rewinds the memory to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.agents.memory.facts import forget_request, read_facts
from groupwise.agents.memory.user_memory import RecalledFact, UserMemory
from groupwise.types import Message, ScoredGroup, Task

OPENING = "What this user told you before:"


def user_of(task: Task) -> str | None:
    """The user of a scenario; None if it names none, and then nothing is remembered."""
    user = task.payload.get("user_id") if isinstance(task.payload, Mapping) else None
    return user if isinstance(user, str) and user.strip() else None


def as_note(lines: Sequence[str]) -> str:
    """What the model reads about its user."""
    return "\n".join([OPENING, *(f"- {line}" for line in lines)])


class RunMemory:
    """The memory of one run: what is shown for the tasks of a step, and what is kept after it."""

    def __init__(self, memory: UserMemory) -> None:
        self.memory = memory
        self._shown: dict[str, tuple[RecalledFact, ...]] = {}

    def note(self, task: Task, messages: Sequence[Message]) -> str:
        """What to tell the model about the task's user, the same for every attempt at it; "" if there is nothing."""
        user = user_of(task)
        if user is None:
            return ""
        if task.id not in self._shown:
            asked = next((str(m.get("content") or "") for m in reversed(messages) if m["role"] == "user"), "")
            self._shown[task.id] = self.memory.recall(user, asked)
        found = self._shown[task.id]
        return as_note([one.text for one in found]) if found else ""

    def keep(self, groups: Sequence[ScoredGroup]) -> None:
        """Take in a step: what users said, what they want forgotten, and whether what was shown helped."""
        said = [(user, text) for group in groups if (user := user_of(group.group.task)) for text in _said_in(group)]
        for user, text in said:
            if (request := forget_request(text)) is not None:
                self.memory.forget_as_asked(user, request)
        with self.memory.generation(self.memory.store.now + 1):
            for user, text in said:
                if forget_request(text) is None:
                    self.memory.learn(user, read_facts(text, self.memory.facts(user)))
            self._report(groups)
        self._shown = {}

    def state_dict(self) -> dict[str, Any]:
        self.memory.store.sync()
        return {"memory": self.memory.store.now}

    def _report(self, groups: Sequence[ScoredGroup]) -> None:
        means = [_mean(group) for group in groups]
        middle = np.nanmean(means) if np.isfinite(means).any() else np.nan
        for group, mean in zip(groups, means, strict=True):
            user, shown = user_of(group.group.task), self._shown.get(group.group.task.id, ())
            if user is not None and shown and np.isfinite(mean):
                self.memory.report(user, shown, helped=bool(mean >= middle))


def _mean(group: ScoredGroup) -> float:
    totals = group.totals()
    return float(np.nanmean(totals)) if np.isfinite(totals).any() else np.nan


def _said_in(group: ScoredGroup) -> list[str]:
    """What the user said in any of a group's conversations, each once, in a fixed order."""
    messages = [m for member in group.group.members for m in member.meta.get("messages", ())]
    return list(dict.fromkeys(str(m.get("content") or "") for m in messages if m["role"] == "user"))
