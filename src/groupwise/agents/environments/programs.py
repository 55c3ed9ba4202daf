"""Agent programs of your own, unchanged: anything that speaks OpenAI's API is started once for every attempt.

    task.environment = "program:python agent.py"
    task.options = { tasks = "tasks.jsonl" }

The program finds its task as JSON on its standard input and in GROUPWISE_TASK, the server in OPENAI_BASE_URL and its
label in OPENAI_API_KEY, which OpenAI's clients read by themselves. It reports its score in the last line that it
prints, {"score": 0.5}, or by POST {OPENAI_BASE_URL}/score. With `score = "exit"` its exit status says it: 0 is 1.0 and
1 is 0.0. A program that fails is a failed attempt, which is left out, not scored 0.
"""

import asyncio
import json
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from groupwise.agents.conversation.completion_client import CompletionClient, RolloutScenarios
from groupwise.agents.openai.door import Door, Visit, read_score
from groupwise.errors import ConfigError, ContractError
from groupwise.readers import data_limits, json_lines
from groupwise.types import Score

PREFIX = "program:"
SCORES = ("line", "exit")
KEPT = 64_000  # bytes of each output that are kept: its end
SHOWN = 500  # characters of an error's end that a failure quotes
REPORT = 'Print {"score": 0.5} as the last line, or POST it to {OPENAI_BASE_URL}/score.'


class DoorKeeper:
    """The door of an event loop: opened by the first attempt, and closed with the loop."""

    def __init__(self) -> None:
        self._door: tuple[asyncio.AbstractEventLoop, asyncio.Task[Door]] | None = None

    async def door(self) -> Door:
        loop = asyncio.get_running_loop()
        if self._door is None or self._door[0] is not loop:
            self._door = (loop, loop.create_task(self._opened()))
        return await asyncio.shield(self._door[1])

    async def _opened(self) -> Door:
        door = Door()
        await door.open()
        return door

    def __getstate__(self) -> dict[str, Any]:
        return {"_door": None}


class ProgramScenarios(RolloutScenarios):
    """The tasks of an agent program, each a JSON value."""

    def __init__(
        self, command: str | Sequence[str], tasks: Sequence[Any], *, held_out: Sequence[Any] | None = None,
        name: str = "", score: str = "line",
    ) -> None:  # fmt: skip
        try:
            self.command = tuple(shlex.split(command) if isinstance(command, str) else command)
        except ValueError as error:
            raise ConfigError(f"the command {command!r:.200} cannot be read: {error}") from None
        if not self.command:
            raise ConfigError("the program has no command", hint="Write program:COMMAND ARGUMENTS.")
        if score not in SCORES:
            message = f"task.options.score = {score!r:.60} is not a way to report a score"
            raise ConfigError(message, hint=f"Use one of {', '.join(SCORES)}.", field="task.options.score")
        self.score, self.keeper = score, DoorKeeper()
        super().__init__(self.attempt, tasks, held_out=held_out, name=name or Path(self.command[-1]).stem)

    @classmethod
    def from_settings(cls, command: str, tasks: str = "", held_out: str = "", score: str = "line") -> Self:
        """From `task.options`: `tasks` and `held_out` are files with one JSON value per line."""
        if not tasks:
            message = "a program needs tasks: task.options.tasks names a file with one JSON value per line"
            raise ConfigError(message, hint='Write options = { tasks = "tasks.jsonl" }.', field="task.options")
        return cls(command, read_tasks(tasks), held_out=read_tasks(held_out) if held_out else None, score=score)

    async def attempt(self, client: CompletionClient, task: Any) -> Score:
        """Run the program on one task and return its score."""
        door = await self.keeper.door()
        visit = door.admit(client)
        try:
            status, out, err = await run_program(self.command, task, door.url, visit.label)
        finally:
            door.dismiss(visit)
        return self._scored(visit, status, out, err)

    def _scored(self, visit: Visit, status: int, out: str, err: str) -> Score:
        if visit.score is not None:
            return visit.score
        if self.score == "exit" and status in (0, 1) and visit.limit is None:
            return Score(1.0 - status)
        last = (out.strip().splitlines() or [""])[-1]
        if status == 0 and last.startswith("{"):
            with suppress(ValueError, RecursionError):
                return read_score(json.loads(last))
        if visit.limit is not None:  # it may well have failed of that
            raise visit.limit
        told = " ".join(err.split())[-SHOWN:]
        if status != 0:
            raise ContractError(f"the program ended with status {status}: {told}", hint="Run it by hand to see why.")
        raise ContractError(f"the program reported no score; its last line is {last!r:.120}", hint=REPORT)


async def run_program(command: Sequence[str], task: Any, url: str, label: str) -> tuple[int, str, str]:
    """Run a program to its end and return its status and the end of its outputs; cancelling kills all of it."""
    text = json.dumps(task)
    own = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": label, "GROUPWISE_TASK": text[:100_000], "NO_PROXY": "127.0.0.1"}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **own}, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise ContractError(f"the program {shlex.join(command)!r:.200} cannot be started: {error}") from None
    try:
        outputs = asyncio.gather(_tail(process.stdout), _tail(process.stderr), _told(process, text))
        status = await process.wait()
        out, err, _ = await asyncio.wait_for(outputs, 5.0)
        return status, out, err
    except TimeoutError:  # something that it started keeps its outputs open
        return process.returncode or 0, "", ""
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


async def _told(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(text.encode() + b"\n")
        await process.stdin.drain()
        process.stdin.close()


async def _tail(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    kept = b""
    while piece := await stream.read(1 << 16):
        kept = (kept + piece)[-KEPT:]
    return kept.decode("utf8", "replace")


def read_tasks(path: str) -> list[Mapping[str, Any]]:
    try:
        tasks = [task for _, task in json_lines(path, data_limits())]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint, field="task.options.tasks") from None
    if not tasks:
        raise ConfigError(f"{path} has no tasks", hint="Write one JSON value per line.", field="task.options.tasks")
    return tasks
