"""A reward for programs: the code in an answer is run against tests, in a sandbox.

A group is run together, so that its attempts share the cost of starting a sandbox. Where this machine has none that
holds, the reward refuses to be made: model-written code is never run in the open.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from groupwise.errors import ContractError
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.registry import add_reward, find_reward
from groupwise.rewards.rules.components import known, replies
from groupwise.sandbox import Bubblewrap, SandboxLimits, SandboxResult
from groupwise.types import Failed, Message, Score, Task, Trajectory

FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
LONGEST = 100_000


def code_in(text: str) -> str:
    """The last block between ``` of a text or, without any, all of it where it defines a function; else nothing."""
    blocks = FENCE.findall(text[-LONGEST:])
    if blocks:
        return str(blocks[-1])
    return text if re.search(r"^(async )?def \w+\(", text, re.MULTILINE) else ""


def task_tests(task: Task) -> tuple[str, str]:
    """The tests that came with a task, and the function they are about, if it says.

    `tests` is a text or a list of lines; `test_list` and `test_setup_code` are MBPP's, `test` and `entry_point` are
    HumanEval's.
    """
    tested = str(known(task, "entry_point") or "")
    whole = known(task, "tests") or known(task, "test_list") or known(task, "test")
    lines = [whole] if isinstance(whole, str) else list(whole or ())
    if not known(task, "tests") and not known(task, "test_list") and tested:
        lines.append(f"check({tested})")
    return "\n".join(map(str, [known(task, "test_setup_code") or "", *lines])).strip(), tested


class ProgramTestReward(RewardFunction):
    """1 where the code in the last reply passes the tests, else 0; a flag says how it ended.

    Parts are `correct` and `format` (whether there is code at all). `tests` are for every task, where they are given.
    """

    def __init__(
        self,
        weight: float = 1.0,
        tests: str | None = None,
        seconds: float = 5.0,
        memory_mb: int = 256,
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name or "program")
        self.tests = tests
        self.limits = SandboxLimits(seconds=seconds, memory_mb=memory_mb)
        self.sandbox = Bubblewrap()

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        return self._scored([_code(turns)], self.tests or "", "")[0]

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        tests, tested = (self.tests, "") if self.tests else task_tests(task)
        codes = [_code(turns_of(attempt)) for attempt in group]
        return await asyncio.to_thread(self._scored, codes, tests, tested)

    def _scored(self, codes: Sequence[str], tests: str, tested: str) -> list[Score]:
        if not tests:
            raise ContractError(
                f"{self.name} has no tests to run the code against",
                hint="Give `tests`, or tasks with a column `tests`.",
            )
        written = [code for code in codes if code]
        runs = iter(self.sandbox.run_group(written, limits=self.limits, tests=tests, call=tested))
        return [_score(next(runs) if code else None) for code in codes]


def _code(turns: Sequence[Message]) -> str:
    said = replies(turns)
    return code_in(said[-1].text) if said else ""


def _score(ran: SandboxResult | None) -> Score:
    if ran is None:
        return Score(0.0, {"correct": 0.0, "format": 0.0}, ("program:none",))
    correct = float(ran.passed)
    parts: dict[str, Any] = {"correct": correct, "format": 1.0}
    return Score(correct, parts, (f"program:{ran.outcome}",))


__all__ = ["find_reward"]

add_reward("program", ProgramTestReward)
