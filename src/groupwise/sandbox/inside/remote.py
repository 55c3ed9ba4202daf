"""The process of the code as the judge sees it: calls go in, plain data and output come out."""

from __future__ import annotations

import _signal as signal
import builtins
import os
import select
import time

from groupwise.sandbox.inside.program import become_code
from groupwise.sandbox.wire import FRAME, HASHED_INSIDE, MARK, UNASKED, WORDS, dumps, loads, write_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAILURES = ("wrong", "raised", "memory", "forbidden")
"""What the code may say of itself; that it passed, only the judge says."""


class Ended(BaseException):
    """The run is over before its tests are: an outcome and a sentence."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(outcome, message)
        self.outcome = outcome
        self.message = message


class CodeProcess:
    """The process of the code, seen from the judge: calls go in, plain data and output come out."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.start = time.monotonic()
        self.deadline = self.start + job["seconds"]
        self.room = job["output"]
        self.output: list[bytes] = []
        self.ending: tuple[str, str] | None = None
        self.lent = False
        """Whether the code chose functions for the tests from modules that both have: what they make is its doing."""
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
        """What the code defines, once it ran to its end."""
        names = self.answer()
        if not isinstance(names, dict):
            raise self.end("raised", "the code answers nonsense")
        return names

    def ask(self, request: tuple[Any, ...]) -> Any:
        """What the code answers to a call; changes it made to lists, dicts and sets are made here too."""
        if self.ending:
            raise Ended(*self.ending)
        self._mark = os.urandom(MARK)
        write_frame(self._requests, self._mark + dumps(request, self._known))
        answer = self.answer()
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise self.end("raised", "the code answers nonsense")
        value, changes = answer
        for place, changed in changes.items():
            take_over(request[2], place, changed)
        return value

    def answer(self) -> Any:
        """The next reply of the code, while its output is drained; errors of the code are raised here."""
        data = self._received()
        if data[:MARK] != self._mark:
            raise self.end("wrong", "the code answers what it was not asked")
        try:
            kind, value = loads(data[MARK:], self.remote, HASHED_INSIDE)
        except (TypeError, ValueError) as error:
            raise self.end("wrong", f"the value cannot be taken: {error}") from None
        if kind == "value":
            return value
        outcome, name, message = failure(value)
        if kind == "ended":
            raise self.end(outcome, message)
        # A class of exceptions that the tests may be waiting for; one that ends loops would make `all` believe.
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
        """How the run ended, for good: tests that catch everything cannot change it."""
        if self.ending is None:
            self.ending = outcome, message
        return Ended(*self.ending)

    def close(self) -> bytes:
        """End the process; what it had printed."""
        self._reaped()
        try:
            while self._out in self._open and select.select([self._out], [], [], 0)[0]:
                self._drain(self._out)
        except Ended:
            pass
        return b"".join(self.output)

    def _received(self) -> bytes:
        """A whole frame from the code, before the deadline."""
        buffer = bytearray()
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            if len(buffer) >= 4 and int.from_bytes(buffer[:4], "big") > FRAME:
                raise self.end("memory", f"an answer of more than {FRAME >> 20} MB")
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
            raise self.end("memory", "it wrote more output than its limit")

    def _died(self) -> tuple[str, str]:
        status = self._reaped()
        if os.WIFEXITED(status):
            return "raised", f"the program ended its process with status {os.WEXITSTATUS(status)}"
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return "timed_out", "it used more processor time than its limit"
        if number == signal.SIGSYS:
            return "forbidden", "it called the kernel in a way that no program may"
        return "raised", f"the process was ended by signal {number}"

    def _reaped(self) -> int:
        """How the process ended; one that only closed its channels is ended now."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self._status = os.waitpid(self.pid, 0)[1]
        return self._status

    def _known(self, value: Any) -> tuple[int, str]:
        if isinstance(value, RemoteObject) and isinstance(value._number, int):
            return value._number, value._kind
        if isinstance(value, RemoteObject):
            return self.ask(("find", value._number, [], {}))._number, value._kind
        fault = f"they pass a {type(value).__name__} to the code, and only plain data gets there"
        raise Ended("wrong", f"the tests cannot be run: {fault}") if self.lent else Ended("tests", fault)


class RemoteObject:
    """An object in the code's process. It can be called, walked and passed back, but never compares equal."""

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
    """What a call did to one of its arguments."""
    if not isinstance(place, int) or not 0 <= place < len(arguments):
        return
    argument = arguments[place]
    if type(argument) is list and isinstance(changed, list):
        argument[:] = changed
    elif type(argument) in (dict, set) and type(changed) is type(argument):
        argument.clear()
        argument.update(changed)


def failure(said: Any) -> tuple[str, str, str]:
    """What the code says went wrong, as far as it may say so."""
    if not isinstance(said, tuple) or len(said) != 3 or not all(isinstance(part, str) for part in said):
        return "raised", "", "the code answers nonsense"
    outcome, name, message = said
    return (outcome if outcome in FAILURES else "raised"), name[:WORDS], message[:WORDS]
