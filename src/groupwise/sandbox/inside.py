"""What runs inside a bubblewrap sandbox, as three kinds of process. It is sent there; nobody imports it here.

    keeper   waits for jobs; for each it forks a judge, and outlives it
    judge    forks the code before it is told the tests, then runs the tests, and reports
    code     runs what a model wrote, under a second filter and limits of its own, and answers calls

The code never shares a process with the tests: it sees the arguments of one call at a time, and only plain data comes
back. So it cannot read the tests, end them early, or return something that claims to equal everything.
"""

from __future__ import annotations

import _signal as signal
import builtins
import ctypes
import os
import resource
import select
import sys
import time

from groupwise.sandbox.wire import WireError, dumps, loads

# Every import here is paid for by every run: `typing`, `signal` and `contextlib` would cost 4 ms each.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)

FRAME = 8 << 20
GRACE = 0.25
WORDS = 400
PR_SET_PDEATHSIG, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 22, 2
SHARED = (
    "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq",
    "itertools", "math", "operator", "random", "re", "statistics", "string", "typing",
)  # fmt: skip
"""Modules that tests may take over from the code: its imports are theirs, as they would be in one process."""
FAILURES = ("wrong", "raised", "memory", "forbidden")
"""What the code may say of itself; that it passed, only the judge says."""


class Ended(BaseException):
    """The run is over before its tests are: an outcome and a sentence."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(outcome, message)
        self.outcome = outcome
        self.message = message


# Frames: four bytes of length, then what they count.


def read_frame(fd: int) -> bytes:
    size = int.from_bytes(read_exactly(fd, 4), "big")
    if size > FRAME:
        raise EOFError(f"a message of {size} bytes")
    return read_exactly(fd, size)


def read_exactly(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def write_frame(fd: int, data: bytes) -> None:
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(fd, data) :]


# The keeper.


def keep() -> None:
    """Wait for jobs until there are no more; a judge that does not end well ends the keeper too."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    write_frame(1, b"ready")
    while os.read(0, 1):
        judge = os.fork()
        if judge == 0:
            run_job()
            os._exit(0)
        status = os.waitpid(judge, 0)[1]
        if status:
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
            outcome = "timed_out" if late else "wrong"
            report(outcome, "the tests did not end in time" if late else "the tests ended their own process", 0.0)
            return


def report(outcome: str, message: str, seconds: float, value: Any = None, stdout: bytes = b"") -> None:
    write_frame(1, dumps((outcome, message, seconds, value, stdout)))


# The judge.


def run_job() -> None:
    """One job, from its first frame to its report."""
    job = loads(read_frame(0))
    code = Code(job)
    tests = loads(read_frame(0))
    # Where the tests themselves hang, this ends the judge, and with it the code.
    signal.setitimer(signal.ITIMER_REAL, job["seconds"] + 4 * GRACE)
    value = None
    try:
        names = code.started()
        if tests:
            run_tests(tests, names, code, job["call"])
        elif job["call"]:
            value = code.ask(("call", job["call"], list(job["inputs"].values()), {}))
            if isinstance(value, Remote):
                raise Ended("wrong", f"the value is a {value._kind}, which is no plain data")
        outcome, message = "passed", ""
    except Ended as ended:
        outcome, message = ended.outcome, ended.message
    except BaseException as error:
        outcome, message = told(error)
    seconds = time.monotonic() - code.start
    signal.setitimer(signal.ITIMER_REAL, 0)
    stdout = code.close()
    outcome, message = code.ending or (outcome, message)
    try:
        report(outcome, message, seconds, value if outcome == "passed" else None, stdout)
    except WireError as error:
        report("wrong", f"the value cannot be taken: {error}", seconds, None, stdout)


def run_tests(tests: str, names: dict[str, Any], code: Code, tested: str) -> None:
    """The tests, in a namespace where what the code defined is called in its own process.

    A name of Python's own stays Python's, unless it is what is tested: tests that say `abs` do not mean the code's.
    """
    try:
        compiled = compile(tests, "<tests>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Ended("tests", f"{type(error).__name__}: {error}") from None
    space: dict[str, Any] = {"__name__": "tests"}
    for name, (kind, what) in names.items():
        if name.startswith("__") or (hasattr(builtins, name) and name != tested):
            continue
        space[name] = code.remote(name, "function") if kind == "callable" else what
        if kind == "shared" and (found := shared(*what)) is not None:
            space[name] = found
    exec(compiled, space)  # noqa: S102


def shared(module: str, name: str) -> Any:
    """A module that the code imported, or something from it; the code's word is not taken for any other."""
    if module not in SHARED or name.startswith("_"):
        return None
    imported = __import__(module)
    return getattr(imported, name, None) if name else imported


def told(error: BaseException) -> tuple[str, str]:
    """What a test's error says about the code."""
    if hasattr(error, "of_code"):
        return error.of_code
    message = f"{type(error).__name__}: {error}"[:WORDS]
    line = tests_line(error)
    place = f" (line {line} of the tests)" if line else ""
    if isinstance(error, AssertionError):
        return "wrong", (f"{message}{place}" if str(error) else f"a test does not hold{place}")
    return "wrong", f"a test cannot use what came back: {message}{place}"


def tests_line(error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def failure(said: Any) -> tuple[str, str, str]:
    """What the code says went wrong, as far as it may say so."""
    if not isinstance(said, tuple) or len(said) != 3 or not all(isinstance(part, str) for part in said):
        return "raised", "", "the code answers nonsense"
    outcome, name, message = said
    return (outcome if outcome in FAILURES else "raised"), name[:WORDS], message[:WORDS]


class Code:
    """The process of the code, seen from the judge: calls go in, plain data and output come out."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.start = time.monotonic()
        self.deadline = self.start + job["seconds"]
        self.room = job["output"]
        self.output: list[bytes] = []
        self.ending: tuple[str, str] | None = None
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
        write_frame(self._requests, dumps(request, self._known))
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
        try:
            kind, value = loads(data, self.remote)
        except (TypeError, ValueError) as error:
            raise self.end("wrong", f"the value cannot be taken: {error}") from None
        if kind == "value":
            return value
        outcome, name, message = failure(value)
        if kind == "ended":
            raise self.end(outcome, message)
        # A class of exceptions that the tests may be waiting for, or its nearest relative.
        known = getattr(builtins, name, None)
        proper = isinstance(known, type) and issubclass(known, Exception)
        try:
            error: Any = known(message) if proper else RuntimeError(message)
        except Exception:
            error = RuntimeError(message)
        error.of_code = outcome, message
        raise error

    def remote(self, number: int | str, kind: str) -> Remote:
        return Remote(self, number, kind)

    def end(self, outcome: str, message: str) -> Ended:
        """How the run ended, for good: tests that catch everything cannot change it."""
        if self.ending is None:
            self.ending = outcome, message
        return Ended(*self.ending)

    def close(self) -> bytes:
        """End the process; what it had printed."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._reaped()
        try:
            while self._out in self._open and select.select([self._out], [], [], 0)[0]:
                self._drain(self._out)
        except Ended:
            pass
        return b"".join(self.output)

    def _received(self) -> bytes:
        """A whole frame from the code, before the deadline."""
        buffer = b""
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
        return buffer[4:]

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
        try:
            return os.waitpid(self.pid, 0)[1]
        except ChildProcessError:
            return 0

    def _known(self, value: Any) -> tuple[int, str]:
        if isinstance(value, Remote) and isinstance(value._number, int):
            return value._number, value._kind
        if isinstance(value, Remote):
            return self.ask(("find", value._number, [], {}))._number, value._kind
        raise Ended("tests", f"they pass a {type(value).__name__} to the code, and only plain data gets there")


class Remote:
    """An object that lives in the code's process. It can be called, walked and passed back, but never compares equal."""

    def __init__(self, code: Code, number: int | str, kind: str) -> None:
        self._code = code
        self._number = number
        self._kind = kind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._code.ask(("call", self._number, list(args), kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self._kind} has no attribute {name!r} that tests can use")
        return self._code.ask(("attribute", self._number, [name], {}))

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


# The code.


def become_code(job: dict[str, Any], request: int, reply: int, out: int, err: int) -> None:
    """From here on this process is the code's; it does not come back."""
    standard_input = os.memfd_create("input")
    os.write(standard_input, job["stdin"].encode("utf-8", "surrogatepass"))
    os.lseek(standard_input, 0, os.SEEK_SET)
    high = 100
    for number, fd in enumerate((request, reply, standard_input, out, err)):
        os.dup2(fd, high + number)
    os.closerange(0, high)
    for number, fd in ((0, high + 2), (1, high + 3), (2, high + 4), (3, high), (4, high + 1)):
        os.dup2(fd, number, inheritable=False)
    os.closerange(5, high + 5)
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, closefd=False) for fd, mode in ((0, "r"), (1, "w"), (2, "w")))
    lock(job)
    serve(job)
    os._exit(0)


def lock(job: dict[str, Any]) -> None:
    """Limits and the filter: after this, nothing can be given back."""
    memory = job["memory"]
    for kind, most in (
        (resource.RLIMIT_AS, memory + (96 << 20)),
        (resource.RLIMIT_DATA, memory + (16 << 20)),
        (resource.RLIMIT_CPU, int(job["seconds"]) + 2),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
    ):
        resource.setrlimit(kind, (most, most))
    if job["processes"] > 1:
        resource.setrlimit(resource.RLIMIT_NPROC, (job["processes"] + 3, job["processes"] + 3))
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    steps = job["filter"]
    program = Program(len(steps) // 8, steps)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        os._exit(71)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        os._exit(72)


def serve(job: dict[str, Any]) -> None:
    """Run the code, say what it defines, and answer calls until the judge is gone."""
    served = job["serve"]
    kept: list[Any] = []

    output = sys.stdout

    def keep(value: Any) -> tuple[int, str]:
        kept.append(value)
        return len(kept) - 1, type(value).__name__

    def reply(kind: str, value: Any) -> None:
        try:
            output.flush()
        except (ValueError, OSError):
            pass
        send((kind, value), keep)

    module = ModuleType("solution" if served else "__main__")
    sys.modules[module.__name__] = module
    space = module.__dict__
    space.update(job["inputs"] if not job["call"] else {})
    try:
        exec(compile(job["code"], "<code>", "exec", dont_inherit=True), space)  # noqa: S102
        reply("value", definitions(space) if served else {})
    except BaseException as error:
        left = isinstance(error, SystemExit) and not error.code and not served
        reply(*(("value", {}) if left else ("ended", ending_of(error))))
    while True:
        try:
            data = read_frame(3)
        except EOFError:
            os._exit(0)
        try:
            reply("value", answer(data, space, kept, keep))
        except BaseException as error:
            reply("raised", ending_of(error))


def answer(data: bytes, space: dict[str, Any], kept: list[Any], keep: Any) -> tuple[Any, dict[int, Any]]:
    """What one call of the judge gives, and which of its arguments it changed."""
    what, target, args, kwargs = loads(data, lambda number, _: kept[number])
    before = {place: dumps(arg, keep) for place, arg in enumerate(args) if type(arg) in (list, dict, set)}
    found = kept[target] if isinstance(target, int) else find(space, target)
    value = done(what, found, args, kwargs)
    return value, {place: args[place] for place, old in before.items() if dumps(args[place], keep) != old}


def find(space: dict[str, Any], name: str) -> Any:
    if name not in space:
        raise NameError(f"name {name!r} is not defined")
    return space[name]


def done(what: str, found: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What the judge asked for."""
    if what == "call":
        value = found(*args, **kwargs)
        return finished(value) if hasattr(value, "cr_await") else value
    if what == "next":
        return [item] if (item := next(found, NOTHING)) is not NOTHING else []
    return QUESTIONS[what](found, *args)


def finished(coroutine: Any) -> Any:
    """What a coroutine returns that waits for nothing but itself."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


NOTHING = object()
QUESTIONS: dict[str, Any] = {
    "attribute": getattr,
    "find": lambda value: value,
    "item": lambda value, key: value[key],
    "iterate": iter,
    "length": len,
    "text": str,
    "truth": bool,
}


def definitions(space: dict[str, Any]) -> dict[str, Any]:
    """Names the tests may use: what can be called, plain data, and what was imported from modules both sides have."""
    found: dict[str, Any] = {}
    for name, value in list(space.items()):
        if name.startswith("__"):
            continue
        if isinstance(value, ModuleType):
            found[name] = ("shared", (value.__name__, ""))
            continue
        module = getattr(value, "__module__", None)
        if module in SHARED and getattr(sys.modules.get(module), str(getattr(value, "__name__", "")), None) is value:
            found[name] = ("shared", (module, value.__name__))
        elif callable(value):
            found[name] = ("callable", "")
        else:
            try:
                dumps(value)
                found[name] = ("plain", value)
            except WireError:
                pass
    return found


def ending_of(error: BaseException) -> tuple[str, str, str]:
    """An exception of the code: an outcome, its name, and a sentence."""
    name, words = type(error).__name__, words_of(error)
    line = error.lineno if isinstance(error, SyntaxError) else code_line(error)
    message = (f"{name}: {words}" if words else name) + (f" (line {line})" if line else "")
    if isinstance(error, MemoryError):
        return "memory", name, message
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return "forbidden", name, message
    return ("wrong" if isinstance(error, AssertionError) else "raised"), name, message


def code_line(error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<code>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def words_of(error: BaseException) -> str:
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)[:WORDS]
    except BaseException:
        return ""


def send(message: tuple[str, Any], keep: Any) -> None:
    try:
        data = dumps(message, keep)
    except BaseException as error:
        data = dumps(("ended", ("wrong", "", f"the value cannot be sent: {words_of(error)}")))
    write_frame(4, data)
