"""The reward "program": runs the code in an answer against tests, in a sandbox.

The attempts of a group run together to share the cost of starting a sandbox. On a machine without a working sandbox the
reward refuses to be created: code written by a model is never run unprotected.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from groupwise.errors import ContractError
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.components import known, replies
from groupwise.sandbox import Bubblewrap, SandboxLimits, SandboxResult
from groupwise.types import Failed, Message, Score, Task, Trajectory

FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
LONGEST = 100_000  # characters of an answer that are searched for code, counted from its end


def code_in(text: str) -> str:
    """Return the last ``` block; without one, the entire text if it defines a function, else nothing."""
    blocks = FENCE.findall(text[-LONGEST:])
    if blocks:
        return str(blocks[-1])
    return text if re.search(r"^(async )?def \w+\(", text, re.MULTILINE) else ""


def task_tests(task: Task) -> tuple[str, str]:
    """Return a task's tests, and the function under test if the task names it.

    `tests` is a text or a list of lines; `test_list` and `test_setup_code` come from MBPP, `test` and `entry_point`
    from HumanEval.
    """
    tested = str(known(task, "entry_point") or "")
    whole = known(task, "tests") or known(task, "test_list") or known(task, "test")
    lines = [whole] if isinstance(whole, str) else list(whole or ())
    # HumanEval's tests define check(), which must be called with the function.
    if not known(task, "tests") and not known(task, "test_list") and tested:
        lines.append(f"check({tested})")
    return "\n".join(map(str, [known(task, "test_setup_code") or "", *lines])).strip(), tested


class ProgramTestReward(RewardFunction):
    """1 if the code in the last reply passes the tests, else 0; a flag says how it ended.

    The parts are `correct` and `format` (whether there is any code). `tests`, if given, replace those of the tasks.
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
            message = f"{self.name} has no tests to run the code against"
            raise ContractError(message, hint="Pass `tests`, or use tasks with a `tests` column.")
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
