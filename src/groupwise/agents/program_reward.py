"""The reward "program": runs the code in an answer against tests, in a sandbox.

The attempts of a group run together to share the cost of starting a sandbox. On a machine without a working sandbox the
reward refuses to be created: code written by a model is never run unprotected. Tests that would reward nonsense, or
that no program can pass, are found before a run (`program_checks`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.agents.data.dataset import listed
from groupwise.agents.program_checks import ProgramTestChecker
from groupwise.agents.program_tasks import ProgramTask, code_in, program_task
from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.function import RewardFunction, turns_of
from groupwise.rewards.rules.components import replies
from groupwise.sandbox import Bubblewrap, SandboxLimits, SandboxResult
from groupwise.types import Failed, Message, Score, Task, Trajectory

BAD_TESTS = ("exclude", "refuse")


class ProgramTestReward(RewardFunction):
    """1 if the code in the last reply passes the tests, else 0; a flag says how it ended.

    The parts are `correct` and `format` (whether there is any code). `tests`, if given, replace those of the tasks.
    Tasks with unsound tests are excluded and counted or, with `bad_tests="refuse"`, stop the run before it starts.
    """

    def __init__(
        self,
        weight: float = 1.0,
        tests: str | None = None,
        seconds: float = 5.0,
        memory_mb: int = 256,
        bad_tests: str = "exclude",
        name: str | None = None,
    ) -> None:
        super().__init__(weight, name or "program")
        if bad_tests not in BAD_TESTS:
            raise ConfigError(f"bad_tests is {bad_tests!r}", hint=f"Choose one of {', '.join(BAD_TESTS)}.")
        self.bad_tests = bad_tests
        self.limits = SandboxLimits(seconds=seconds, memory_mb=memory_mb)
        self.sandbox = Bubblewrap()
        self.checker = ProgramTestChecker(self.sandbox, self.limits)
        self.tests = tests
        if tests and (fault := self.checker.faults([ProgramTask(tests)])[0]):
            raise ConfigError(f"tests cannot be used: {fault}", hint="Write tests that only a right program passes.")

    def unfit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Ids of tasks whose tests are unsound, and why. All are checked at once, and remembered."""
        if self.tests:
            return {}
        found: dict[str, str] = {}
        sound: dict[str, ProgramTask] = {}
        for task in tasks:
            try:
                sound[task.id] = program_task(task)
            except ContractError as error:
                found[task.id] = error.message
        faults = self.checker.faults(list(sound.values()))
        found |= {name: fault for name, fault in zip(sound, faults, strict=True) if fault}
        if found and self.bad_tests == "refuse":
            raise ConfigError(
                f"the tests of {len(found)} of {len(tasks)} tasks are unsound: {listed(found)}", hint=MEND
            )
        return found

    def compute_reward(self, turns: Sequence[Message]) -> Score:
        return self._scored([_code(turns)], self._own_tests())[0]

    async def score_group(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Score | Failed]:
        codes = [_code(turns_of(attempt)) for attempt in group]
        return await asyncio.to_thread(lambda: self._scored(codes, self._sound(task)))

    def close(self) -> None:
        self.checker.close()
        self.sandbox.close()

    def _own_tests(self) -> ProgramTask:
        if not self.tests:
            message = f"{self.name} has no tests to run the code against"
            raise ContractError(message, hint="Pass `tests`, or use tasks with a `tests` column.")
        return ProgramTask(self.tests)

    def _sound(self, task: Task) -> ProgramTask:
        """The tests to use for a task; raises if they are unsound. They may not have been checked before the run."""
        if self.tests:
            return self._own_tests()
        found = program_task(task)
        if fault := self.checker.faults([found])[0]:
            raise ContractError(f"{self.name} cannot score {task.id}: {fault}", hint=MEND)
        return found

    def _scored(self, codes: Sequence[str], task: ProgramTask) -> list[Score]:
        written = [code for code in codes if code]
        runs = iter(
            self.sandbox.run_group(
                written, limits=self.limits, tests=task.tests, call=task.tested, helpers=task.helpers
            )
        )
        return [_score(next(runs) if code else None) for code in codes]


MEND = "Correct the tests, or leave these tasks out (reward.options.bad_tests = 'exclude')."


def _code(turns: Sequence[Message]) -> str:
    said = replies(turns)
    return code_in(said[-1].text) if said else ""


def _score(ran: SandboxResult | None) -> Score:
    if ran is None:
        return Score(0.0, {"correct": 0.0, "format": 0.0}, ("program:none",))
    correct = float(ran.passed)
    parts: dict[str, Any] = {"correct": correct, "format": 1.0}
    return Score(correct, parts, (f"program:{ran.outcome}",))
