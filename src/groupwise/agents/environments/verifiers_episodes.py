"""Environments of the package verifiers, unmodified: `task.environment = "verifiers:TASKSET"`.

The package pins other versions than ours, so it lives in an environment of its own (`make verifiers`), where one
process plays all episodes (`verifiers_driver`). Its agents talk to the door like any other agent program, so the tokens
that are trained on are those that were sampled for them. The reward is the environment's.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupwise.agents.conversation.completion_client import CompletionClient, RolloutScenarios
from groupwise.agents.environments.programs import DoorKeeper
from groupwise.agents.openai.door import read_score
from groupwise.errors import ConfigError, ContractError, MissingExtra
from groupwise.types import Score

PREFIX = "verifiers:"
DRIVER = Path(__file__).with_name("verifiers_driver.py")
USUAL = Path(".venv-verifiers/bin/python")  # where `make verifiers` puts it
START = 300.0  # seconds to import the package and to load the tasks
ARGS = 'Write the options of the environment as JSON, such as args = \'{"agent": {"harness": {"id": "null"}}}\'.'


class VerifiersScenarios(RolloutScenarios):
    """The tasks of a taskset, by their numbers; one in five is held out."""

    def __init__(self, taskset: str, args: str = "{}", python: str = "") -> None:
        try:
            self.args = json.loads(args)
        except ValueError as error:
            message = f"task.options.args is not valid JSON: {error}"
            raise ConfigError(message, hint=ARGS, field="task.options.args") from None
        self.taskset, self.keeper = taskset, DoorKeeper()
        self.process = EpisodeProcess(python or str(USUAL), {"open": taskset, "args": self.args})
        super().__init__(self.attempt, range(self.process.open()), name=taskset)

    async def attempt(self, client: CompletionClient, task: int) -> Score:
        """Let an episode be played, and return the environment's reward."""
        door = await self.keeper.door()
        visit = door.admit(client)
        try:
            asked = {"task": task, "base_url": door.url, "key": visit.label}
            answer = await asyncio.wrap_future(self.process.ask(asked))
        finally:
            door.dismiss(visit)
        if "error" in answer and visit.limit is not None:
            raise visit.limit
        if "error" in answer:
            raise ContractError(f"the episode failed: {answer['error']}", hint="Try it with the package's own `eval`.")
        return read_score(answer)

    def close(self) -> None:
        self.process.close()


class EpisodeProcess:
    """The process in the environment of verifiers: started when it is needed, and again when it has ended."""

    def __init__(self, python: str, opening: dict[str, Any]) -> None:
        self.python, self.opening = python, opening
        self._process: subprocess.Popen[str] | None = None
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._said: deque[str] = deque(maxlen=20)

    def open(self) -> int:
        """Start the process and return how many tasks there are."""
        if not Path(self.python).exists():
            message = f"environments of verifiers need a Python of their own, and there is no {self.python}"
            raise MissingExtra(message, hint="make verifiers, or name another in task.options.python.")
        words = [self.python, str(DRIVER)]
        own = {"PATH": f"{Path(self.python).parent.resolve()}{os.pathsep}{os.environ.get('PATH', '')}"}
        paths = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self._process = process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **own, "PYTHONPATH": paths}, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._listen_to_reports, args=(process,), daemon=True).start()
        too_slow = threading.Event()

        def give_up() -> None:
            too_slow.set()
            process.kill()

        clock = threading.Timer(START, give_up)
        clock.start()
        self._tell(process, self.opening)
        first = process.stdout.readline() if process.stdout else ""
        clock.cancel()
        answer = json.loads(first) if first.startswith("{") else {"error": self._story()}
        if "tasks" not in answer or not answer["tasks"]:
            self.close()
            late = f"it was not ready after {START:g} s. {self._story()}".rstrip()
            said = late if too_slow.is_set() else answer.get("error") or "its process ended without a word"
            if answer.get("tasks") == 0:
                said = "it has no tasks"
            message = f"the environment {self.opening['open']!r:.80} of verifiers cannot be used: {said:.300}"
            raise ConfigError(message, hint="Install it beside the package; docs/agent_programs.md shows how.")
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return int(answer["tasks"])

    def ask(self, asked: dict[str, Any]) -> Future[dict[str, Any]]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.open()
            assert self._process is not None
            number, answer = next(self._numbers), Future[dict[str, Any]]()
            self._waiting[number] = answer
            self._tell(self._process, {"id": number, **asked})
        return answer

    def close(self) -> None:
        if self._process is not None:
            with suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                # With the agents' programs and the tools that it has started.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _tell(self, process: subprocess.Popen[str], what: dict[str, Any]) -> None:
        with suppress(OSError):  # its end is noticed by those who listen
            assert process.stdin is not None
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            with suppress(ValueError, KeyError):
                answer = json.loads(line)
                waiting = self._waiting.pop(answer["id"])
                if not waiting.done():
                    waiting.set_result(answer)
        for number in list(self._waiting):
            waiting = self._waiting.pop(number)
            if not waiting.done():
                waiting.set_result({"error": f"the process of verifiers ended: {self._story()}"})

    def _listen_to_reports(self, process: subprocess.Popen[str]) -> None:
        self._said.extend(process.stderr or ())

    def _story(self) -> str:
        return " ".join("".join(self._said).split())[-300:]

    def __getstate__(self) -> dict[str, Any]:
        return {"python": self.python, "opening": self.opening}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
