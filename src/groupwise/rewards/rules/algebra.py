"""SymPy in a process of its own, so that an expression without end costs a second and not the run.

A thread cannot be stopped; a process can. It reads expressions from its input, two at a time, and answers on its
output; it is started when it is first asked, and again after it had to be ended.

    python -m groupwise.rewards.rules.algebra      what that process runs
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import IO, Any

from groupwise.errors import MissingExtra

START = 30.0
MEMORY = 2 << 30


class NotCompared(ValueError):
    """Expressions that could not be compared: why."""


class Algebra:
    """Tells whether two expressions are equal."""

    def __init__(self) -> None:
        if importlib.util.find_spec("sympy") is None:
            raise MissingExtra("comparing expressions needs SymPy", hint="pip install 'groupwise[symbolic]'")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def same(self, first: str, second: str, time_limit: float) -> bool:
        """Whether they are equal; `NotCompared` where one is no expression, or it takes longer than `time_limit` s."""
        with self._lock:
            process = self._running()
            answer = _asked(process, json.dumps([first, second]), time_limit)
            if answer is None:
                self.close()
                raise NotCompared(f"no answer within {time_limit:g} s")
        if isinstance(answer, str):
            raise NotCompared(answer)
        return bool(answer)

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "groupwise.rewards.rules.algebra"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf8",
            )  # fmt: skip
            weakref.finalize(self, _end, self._process)
            if _asked(self._process, json.dumps(["0", "0"]), START) is not True:
                self.close()
                raise NotCompared("SymPy did not start")
        return self._process

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _asked(process: subprocess.Popen[str], question: str, time_limit: float) -> Any:
    """The process's answer to one line; None where it does not come in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda out: lines.append(out.readline()), args=(process.stdout,), daemon=True)
    with suppress(OSError):
        process.stdin.write(question + "\n")
        process.stdin.flush()
    reader.start()
    reader.join(time_limit)
    return json.loads(lines[0]) if lines and lines[0] else None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Answer each line with true or false, or with a text that says why not."""
    from groupwise.rewards.rules.expressions import same_expression

    for line in questions:
        try:
            found: bool | str = same_expression(*json.loads(line))
        except Exception as error:  # whatever SymPy runs into is no verdict
            found = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(found), file=answers, flush=True)


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    _limit_memory()
    serve(sys.stdin, sys.stdout)
