"""The code's process as the judge sees it: calls go in, plain data and output come out.

Everything that arrives here was made by the code. It is read within limits, its form is checked, and an outcome can
only be one that the code is allowed to claim: `passed` is not among them.
"""

from __future__ import annotations

import _signal as signal
import builtins
import os
import select
import time

from groupwise.sandbox.fixed_limits import FRAME, HASHED_INSIDE, WORDS
from groupwise.sandbox.inside.program import become_code
from groupwise.sandbox.wire import MARK, UNASKED, dumps, loads, write_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Outcomes that the code may report about itself; only the judge says that it passed.
FAILURES = ("wrong", "raised", "memory", "forbidden")


class Ended(BaseException):
    """The run ended before its tests did: an outcome and a sentence. A BaseException, so that tests hardly catch it."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(outcome, message)
        self.outcome, self.message = outcome, message


class CodeProcess:
    """The code's process: forked from the judge, asked by pipes, and killed at the end."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.start = time.monotonic()
        self.deadline = self.start + job["seconds"]
        self.room = job["output"]
        self.output: list[bytes] = []
        self.ending: tuple[str, str] | None = None
        self.calls = 0
        self.shares = False
        self.lent = False
        """Whether the code passed functions of shared modules to the tests under other names: then what goes wrong with
        them counts against the code, not as an error of the tests."""
        self._status: int | None = None
        self._mark = UNASKED
        request, self._requests = os.pipe()
        self._replies, reply = os.pipe()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            become_code(job, request, reply, out, err)
        for fd in (request, reply, out, err):
            os.close(fd)
        self._open = {self._replies, self._out, self._err}

    def started(self) -> dict[str, Any]:
        """The names that the code defines, after it ran to its end."""
        names = self.answer()
        if not isinstance(names, dict):
            raise self.end("raised", "the code sent a malformed answer")
        return names

    def ask(self, request: tuple[Any, ...]) -> Any:
        """The code's answer to a call; changes it made to lists, dicts and sets are repeated here."""
        if self.ending:
            raise Ended(*self.ending)
        self.calls += request[0] == "call"
        # What has a number is an object that the code returned. Where the tests expected a list, it may be the code's
        # own idea: then what they do with it counts against the code.
        of_code = self.lent or isinstance(request[1], int)
        asked = dumps(request, lambda value: self._known(value, of_code))  # may ask questions of its own
        self._mark = os.urandom(MARK)
        write_frame(self._requests, self._mark + asked)
        answer = self.answer()
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise self.end("raised", "the code sent a malformed answer")
        value, changes = answer
        for place, changed in changes.items():
            take_over(request[2], place, changed)
        return value

    def answer(self) -> Any:
        """The code's next reply, while its output is drained; errors of the code are raised here."""
        data = self._received()
        if data[:MARK] != self._mark:
            raise self.end("wrong", "the code answered a question that was not asked")
        try:
            kind, value = loads(data[MARK:], self.remote, HASHED_INSIDE)
        except (TypeError, ValueError) as error:
            raise self.end("wrong", f"the value cannot be used: {error}") from None
        if kind == "value":
            return value
        outcome, name, message = failure(value)
        if kind == "ended":
            raise self.end(outcome, message)
        # Tests may expect a built-in exception. But a StopIteration would end a loop early, and `all(…)` would be true.
        known = getattr(builtins, name, None)
        proper: Any = known if isinstance(known, type) and issubclass(known, Exception) else RuntimeError
        proper = RuntimeError if issubclass(proper, StopIteration | StopAsyncIteration) else proper
        try:
            raised = proper(message)
        except TypeError:
            raised = RuntimeError(message)
        raised.of_code = outcome, message
        raise raised

    def remote(self, number: int | str, kind: str) -> RemoteObject:
        return RemoteObject(self, number, kind)

    def end(self, outcome: str, message: str) -> Ended:
        """Fix how the run ended: tests that catch everything cannot change it any more."""
        if self.ending is None:
            self.ending = outcome, message
        return Ended(*self.ending)

    def close(self) -> bytes:
        """End the process; returns what it printed."""
        self._reaped()
        try:
            while self._out in self._open and select.select([self._out], [], [], 0)[0]:
                self._drain(self._out)
        except Ended:
            pass
        return b"".join(self.output)

    def _received(self) -> bytes:
        """A complete message from the code, before the deadline."""
        buffer = bytearray()
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            if len(buffer) >= 4 and int.from_bytes(buffer[:4], "big") > FRAME:
                raise self.end("memory", f"an answer is larger than {FRAME >> 20} MB")
            left = self.deadline - time.monotonic()
            ready = select.select(list(self._open), [], [], max(left, 0))[0] if left > 0 else []
            if not ready:
                raise self.end("timed_out", "it ran longer than its limit")
            for fd in ready:
                if fd != self._replies:
                    self._drain(fd)
            if self._replies in ready:
                piece = os.read(self._replies, 1 << 16)
                if not piece:
                    raise self.end(*self._died())
                buffer += piece
        return bytes(buffer[4:])

    def _drain(self, fd: int) -> None:
        piece = os.read(fd, 1 << 16)
        if not piece:
            self._open.discard(fd)
        if fd == self._out:
            self.output.append(piece[: max(self.room, 0)])
        self.room -= len(piece)
        if self.room < 0:
            raise self.end("memory", "it exceeded its output limit")

    def _died(self) -> tuple[str, str]:
        status = self._reaped()
        if os.WIFEXITED(status):
            return "raised", f"the program ended its process with status {os.WEXITSTATUS(status)}"
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return "timed_out", "it used more processor time than its limit"
        if number == signal.SIGSYS:
            return "forbidden", "it made a system call that kills the process"
        return "raised", f"the process was killed by signal {number}"

    def _reaped(self) -> int:
        """The exit status of the process; if it only closed its pipes, it is killed now."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._status = os.waitpid(self.pid, 0)[1]
        return self._status

    def _known(self, value: Any, of_code: bool = False) -> tuple[int, str]:
        if isinstance(value, RemoteObject) and isinstance(value._number, int):
            return value._number, value._kind
        if isinstance(value, RemoteObject):
            return self.ask(("find", value._number, [], {}))._number, value._kind
        fault = f"they pass a {type(value).__name__} to the code, but only plain data can be passed"
        raise Ended("wrong", f"the tests cannot be run: {fault}") if of_code else Ended("tests", fault)


class RemoteObject:
    """An object in the code's process. It can be called, iterated over and passed back, but never compares equal."""

    def __init__(self, code: CodeProcess, number: int | str, kind: str) -> None:
        self.__dict__.update(_code=code, _number=number, _kind=kind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._code.ask(("call", self._number, list(args), kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self._kind} has no attribute {name!r} that tests can use")
        return self._code.ask(("attribute", self._number, [name], {}))

    def __setattr__(self, name: str, value: Any) -> None:
        self._code.ask(("change", self._number, [name, value], {}))

    def __iter__(self) -> Any:
        walker = self._code.ask(("iterate", self._number, [], {}))
        while True:
            item = self._code.ask(("next", walker._number, [], {}))
            if not item:
                return
            yield item[0]

    def __getitem__(self, key: Any) -> Any:
        return self._code.ask(("item", self._number, [key], {}))

    def __len__(self) -> int:
        return int(self._code.ask(("length", self._number, [], {})))

    def __bool__(self) -> bool:
        return bool(self._code.ask(("truth", self._number, [], {})))

    def __str__(self) -> str:
        return str(self._code.ask(("text", self._number, [], {})))

    def __repr__(self) -> str:
        return f"<{self._kind}>"


def take_over(arguments: list[Any], place: Any, changed: Any) -> None:
    """Repeat here what a call did to one of its arguments; anything but a change of the same type is ignored."""
    if not isinstance(place, int) or not 0 <= place < len(arguments):
        return
    argument = arguments[place]
    if type(argument) is list and isinstance(changed, list):
        argument[:] = changed
    elif type(argument) in (dict, set) and type(changed) is type(argument):
        argument.clear()
        argument.update(changed)


def failure(said: Any) -> tuple[str, str, str]:
    """What the code says went wrong, as far as it is allowed to."""
    if not isinstance(said, tuple) or len(said) != 3 or not all(isinstance(part, str) for part in said):
        return "raised", "", "the code sent a malformed answer"
    outcome, name, message = said
    return (outcome if outcome in FAILURES else "raised"), name[:WORDS], message[:WORDS]
