"""The code: a process that runs what a model wrote, under a second filter and its own limits, and answers calls.

Assume that the code can do anything in here, including reading and changing these functions: the walls are the kernel's
filter and limits, and the judge believes nothing that this process says (`remote.py`).
"""

from __future__ import annotations

import _ctypes
import _signal as signal
import os
import resource
import sys

from groupwise.sandbox.fixed_limits import HASHED_INSIDE, WORDS
from groupwise.sandbox.wire import MARK, UNASKED, WireError, dumps, loads, read_frame, write_frame

# The mark of the question being answered.
ASKED = bytearray(UNASKED)
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)

PR_SET_PDEATHSIG, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 22, 2
# Modules that tests may use if the code imported them, as they could in a single process.
SHARED = (
    "array", "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq",
    "itertools", "math", "operator", "random", "re", "statistics", "string", "sys", "typing",
)  # fmt: skip


def become_code(job: dict[str, Any], request: int, reply: int, out: int, err: int) -> None:
    """From here on this process belongs to the code; it never returns."""
    standard_input = os.memfd_create("input")
    os.write(standard_input, job["stdin"].encode("utf-8", "surrogatepass"))
    os.lseek(standard_input, 0, os.SEEK_SET)
    high = 100  # first move the five descriptors out of the way, then close all others, then put them at 0 … 4
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
    """Set limits and the filter, which cannot be undone."""
    for name, most in job["kernel_limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    # struct sock_fprog: how many instructions, and their address. Importing `ctypes` would take 4 ms, so the address of
    # the bytes' buffer is computed: it follows the object's header, and `__basicsize__` counts its first byte too.
    steps = job["filter"]
    place = id(steps) + bytes.__basicsize__ - 1
    program = (len(steps) // 8).to_bytes(8, "little") + place.to_bytes(8, "little")
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(prctl, (PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)):
        os._exit(71)
    if _ctypes.call_function(prctl, (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)):
        os._exit(72)


def serve(job: dict[str, Any]) -> None:
    """Run the code, report what it defines, and answer calls until the judge is gone."""
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
    classes = helped(job["helpers"], space)
    try:
        exec(compile(job["code"], "<code>", "exec", dont_inherit=True), space)
        space.update(classes)
        reply("value", definitions(space) if served else {})
    except BaseException as error:
        left = isinstance(error, SystemExit) and not error.code and not served
        reply(*(("value", {}) if left else ("ended", ending_of(error))))
    while True:
        try:
            data = read_frame(3)
        except EOFError:
            os._exit(0)
        ASKED[:], data = data[:MARK], data[MARK:]
        try:
            reply("value", answer(data, space, kept, keep))
        except BaseException as error:
            reply("raised", ending_of(error))


def helped(helpers: str, space: dict[str, Any]) -> dict[str, type]:
    """Run the helpers of the prompt before the code, which may use them; returns the classes among them.

    Tests make objects of these classes in this process, so a class that the code defines again does not replace them.
    Functions need no such care: the tests have their own.
    """
    try:
        exec(compile(helpers, "<helpers>", "exec", dont_inherit=True), space)
    except Exception:
        pass  # the judge reports it
    own = space["__name__"]
    return {name: found for name, found in space.items() if isinstance(found, type) and found.__module__ == own}


def answer(data: bytes, space: dict[str, Any], kept: list[Any], keep: Any) -> tuple[Any, dict[int, Any]]:
    """The value of one call by the judge, and those of its arguments (lists, dicts, sets) that it changed."""
    what, target, args, kwargs = loads(data, lambda number, _: kept[number], HASHED_INSIDE)
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
    """The result of a coroutine that waits for nothing outside itself."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


NOTHING = object()
QUESTIONS: dict[str, Any] = {
    "attribute": getattr,
    "change": setattr,
    "find": lambda value: value,
    "item": lambda value, key: value[key],
    "iterate": iter,
    "length": len,
    "text": str,
    "truth": bool,
}


def definitions(space: dict[str, Any]) -> dict[str, Any]:
    """Names that tests may use: callables, plain data, and what was imported from modules in SHARED."""
    found: dict[str, Any] = {}
    for name, value in list(space.items()):
        if name.startswith("__"):
            continue
        if isinstance(value, ModuleType):
            found[name] = ("shared", (value.__name__, ""))
            continue
        module, own = getattr(value, "__module__", None), str(getattr(value, "__name__", ""))
        if module in SHARED and getattr(sys.modules.get(module), own, None) is value:
            found[name] = ("shared", (module, own))
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
    """An exception of the code as an outcome, the exception's name, and a sentence."""
    name, words = type(error).__name__, words_of(error)
    line = error.lineno if isinstance(error, SyntaxError) else line_in("<code>", error)
    message = (f"{name}: {words}" if words else name) + (f" (line {line})" if line else "")
    if isinstance(error, MemoryError):
        return "memory", name, message
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return "forbidden", name, message
    return ("wrong" if isinstance(error, AssertionError) else "raised"), name, message


def line_in(file: str, error: BaseException) -> int:
    """The innermost line of that file in the traceback; 0 if it does not occur."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def words_of(error: BaseException) -> str:
    """The message of an error, shortened; `__str__` of the code's own exceptions may do anything, even raise."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)[:WORDS]
    except BaseException:
        return ""


def send(message: tuple[str, Any], keep: Any) -> None:
    try:
        data = dumps(message, keep)
    except BaseException as error:
        data = dumps(("ended", ("wrong", "", f"the value cannot be sent: {words_of(error)}")))
    write_frame(4, bytes(ASKED) + data)
