"""The first tier: Monty, a separate Python interpreter, for workflows over operators.

Code runs in worker processes of pydantic-monty, which implement a part of Python and know nothing of the machine: no
files, network, processes or C code. All it can do beyond computing are the host functions it is given (`HostCalls`);
values and arguments leave it only as text (`plain_data.read`). A run costs a fraction of a millisecond. Where
bubblewrap is installed, the workers run behind its wall as well (`walled_worker`).
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import secrets
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from groupwise.errors import ConfigError, MissingExtra, ResourceError
from groupwise.event_loop import EventLoop
from groupwise.sandbox.bubblewrap_command import wall
from groupwise.sandbox.fixed_limits import ARGUMENT_CHARACTERS, VALUE_PIECES
from groupwise.sandbox.limits_and_outcomes import SandboxLimits, SandboxOutcome, SandboxResult, readable
from groupwise.sandbox.plain_data import fault_of, read
from groupwise.sandbox.seccomp import dispatcher_filter
from groupwise.sandbox.source_code import called, last_expression, unusable


@cache
def walled_worker() -> str | None:
    """A script that starts a worker behind bubblewrap's wall; None if this machine cannot build one."""
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    program = os.environ.get("MONTY_BIN") or shutil.which("monty", path=places)
    if program is None:
        return None
    folder = tempfile.mkdtemp(prefix="groupwise-monty-")
    atexit.register(_removed, folder, os.getpid())
    script, rules = Path(folder) / "worker", Path(folder) / "filter"
    rules.write_bytes(dispatcher_filter())
    try:
        script.write_text(_script(os.path.realpath(program), str(rules)))
        os.chmod(folder, 0o755)
        script.chmod(0o755)
        tried = subprocess.run([str(script), "--version"], capture_output=True, timeout=20)
    except (ResourceError, OSError, subprocess.TimeoutExpired):
        return None
    return str(script) if tried.returncode == 0 and b"monty" in tried.stdout else None


def _removed(folder: str, owner: int) -> None:
    # A forked child that exits must not delete its parent's script.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _script(program: str, rules: str) -> str:
    """The shell does not `exec`: bubblewrap dies with its parent, which must not be a thread of ours that ends."""
    # The folders of the C library: Debian's, or the usual ones.
    debian = "/usr/lib/x86_64-linux-gnu"
    places = [debian] if os.path.isdir(debian) else filter(os.path.isdir, ("/usr/lib", "/usr/lib64"))
    words = ["env", "-i", *wall([program, *places]), "--seccomp", "3", "--", program]
    return f'#!/bin/sh\n{shlex.join(words)} "$@" 3<{shlex.quote(rules)} 2>/dev/null\n'


# Starts a coroutine on an event loop.
Submit: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


class HostCalls:
    """Host functions for one run. The code may catch what they raise, except an attempt to stop the program.

    The code sees functions that write their arguments as text and pass it to one of ours, under a random name that it
    cannot know. So the arguments of hostile code are built only by `plain_data.read`.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], submit: Submit) -> None:
        self._functions = functions
        self._async = {name for name, function in functions.items() if inspect.iscoroutinefunction(function)}
        self._submit = submit
        self._stop: BaseException | None = None
        self._key = f"_{secrets.token_hex(16)}"
        self._pieces, self._characters = VALUE_PIECES, ARGUMENT_CHARACTERS

    def drive(self, session: Any, text: str, inputs: dict[str, Any], printed: Any) -> Any:
        """Feed the text to a session of Monty and answer its calls; returns the value of its last expression."""
        if self._functions:
            session.feed_run(self._faces())
        given = {"inputs": inputs, "print_callback": printed, "external_lookup": {self._key: self._call}}
        if not self._async:
            return session.feed_run(text, **given)
        waiting: dict[int, Future[Any]] = {}
        try:
            snapshot = session.feed_start(text, **given)
            while not hasattr(snapshot, "output"):
                snapshot = self._answered(snapshot, waiting)
            return snapshot.output
        finally:
            for future in waiting.values():
                future.cancel()

    def reraise(self) -> None:
        """Raise a KeyboardInterrupt or SystemExit of a host function again: the code could have caught it."""
        if self._stop is not None:
            raise self._stop

    def _faces(self) -> str:
        faces = []
        for name in self._functions:
            define, wait = ("async def", "await ") if name in self._async else ("def", "")
            body = f'return {wait}{self._key}({name!r}, f"{{(given, named)!r}}")'
            faces.append(f"{define} {name}(*given, **named):\n    {body}\n")
        return "".join(faces)

    def _answered(self, snapshot: Any, waiting: dict[int, Future[Any]]) -> Any:
        """Answer a snapshot and return the next; async calls run concurrently until the code waits for them."""
        if hasattr(snapshot, "pending_call_ids"):
            done = wait(waiting.values(), return_when=FIRST_COMPLETED).done
            ids = [number for number, future in waiting.items() if future in done]
            return snapshot.resume({number: _settled(waiting.pop(number)) for number in ids})
        if getattr(snapshot, "function_name", "") != self._key or snapshot.args[0] not in self._async:
            return snapshot.resume_auto()
        try:
            work = self._call(*snapshot.args)
        except TypeError as error:
            return snapshot.resume({"exception": error})
        waiting[snapshot.call_id] = self._submit(self._awaited(work))
        return snapshot.resume({"future": ...})

    async def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The work; a KeyboardInterrupt or SystemExit is kept until the run is over, to spare the event loop."""
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as stop:
            self._stop = stop
            raise RuntimeError("the program is stopping") from None

    def _call(self, name: str, written: str) -> Any:
        """Call a host function with the arguments that the code wrote as text."""
        self._characters -= len(written)
        try:
            if self._characters < 0:
                raise ValueError(f"exceeds {ARGUMENT_CHARACTERS:,} characters together with all earlier calls")
            (given, named), pieces = read(written, self._pieces)
            self._pieces -= pieces
        except ValueError as error:
            self._pieces = max(0, self._pieces - len(written) // 2)  # charge for it: it may have been read to the end
            raise TypeError(f"{name} takes only plain data, but what it was given {error}") from None
        try:
            return self._functions[name](*given, **named)
        except (KeyboardInterrupt, SystemExit) as stop:
            self._stop = stop
            raise


def _settled(future: Future[Any]) -> dict[str, Any]:
    error = future.exception()
    return {"return_value": future.result()} if error is None else {"exception": error}


# How Monty words an exceeded limit, names what it forbids, and says that something is missing.
OVERRUN = "limit exceeded"
FORBIDDEN = ("PermissionError", "ModuleNotFoundError", "ImportError")
NOT_HERE = ("is not supported in this environment", "module 'os' has no attribute")


class Monty:
    """A pool of Monty workers, started with the first run; any thread may run code on it.

    with Monty() as sandbox:
        sandbox.run("def solve(x):\\n    return double(x)", {"x": 3}, {"double": lambda x: 2 * x}, call="solve").value
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._library = monty_library()
        self._pool: Any = None
        self._owner = 0
        self._loop = EventLoop("groupwise-sandbox")

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
    ) -> SandboxResult:
        """Run code with inputs and host functions by name; the value is what `call` returns, or the last expression.

        `call` names a function of the code; it gets the inputs in their order, and is awaited if it is async. Host
        functions may be async too. Never raises because of what the code does.
        """
        return self._run(self._loop.submit, code, inputs, functions, limits, call=call)

    async def arun(self, code: str, *args: Any, **options: Any) -> SandboxResult:
        """`run`, with the same arguments, without blocking: async host functions run on the caller's event loop."""
        submit = partial(asyncio.run_coroutine_threadsafe, loop=asyncio.get_running_loop())
        return await asyncio.to_thread(self._run, submit, code, *args, **options)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._owner == os.getpid():
            pool.__exit__(None, None, None)
        self._loop.close()

    def __enter__(self) -> Monty:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self,
        submit: Submit,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
    ) -> SandboxResult:
        if fault := unusable(code):
            return SandboxResult(SandboxOutcome.RAISED, message=fault)
        given = dict(inputs or {})
        calls = HostCalls(functions or {}, submit)
        printed = self._library.CollectString(limits.output_kb * 1024)
        text = called(code, call, given) if call else last_expression(code)
        start = time.perf_counter()
        written, outcome, message = "None", SandboxOutcome.PASSED, ""
        try:
            with self._opened().checkout(limits=_limits(limits)) as session:
                written = calls.drive(session, text, given, printed)
        except self._library.MontyConversionError as error:
            raise ConfigError(f"the inputs cannot be sent to the code: {error}", hint="Pass plain data.") from None
        except self._library.MontyError as error:
            outcome, message = _ending_of(error, self._library)
        seconds = time.perf_counter() - start
        calls.reraise()
        value, fault = _value(written)
        if fault:
            outcome, message = SandboxOutcome.WRONG, f"the value {fault}"
        return SandboxResult(outcome, value, printed.output, readable(message), seconds)

    def _opened(self) -> Any:
        # After a fork the workers belong to the parent, so the child starts its own.
        if self._pool is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._pool = self._library.Monty(binary_path=walled_worker(), max_processes=self.workers).__enter__()
        return self._pool


def monty_library() -> Any:
    """The package pydantic_monty; raises `MissingExtra` if it is not installed."""
    try:
        import pydantic_monty
    except ImportError as error:
        message = f"the first tier of the sandbox needs pydantic-monty, which cannot be imported: {error}"
        raise MissingExtra(message, hint="pip install 'groupwise[sandbox]'") from error
    return pydantic_monty


def _limits(limits: SandboxLimits) -> dict[str, Any]:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_total_sleep_secs": limits.seconds,
        "max_memory": limits.memory_mb * 2**20,
        "max_suspensions": limits.calls,
    }


def _value(written: str) -> tuple[Any, str]:
    try:
        value, _ = read(written)
    except ValueError as error:
        return None, str(error)
    fault = fault_of(value)
    return (None, fault) if fault else (value, "")


def _ending_of(error: Any, library: Any) -> tuple[SandboxOutcome, str]:
    if isinstance(error, library.MontyCrashedError):
        return (SandboxOutcome.TIMED_OUT if error.timed_out else SandboxOutcome.MEMORY), f"the worker ended: {error}"
    inner = error.exception()
    kind, words = type(inner).__name__, str(inner)
    message = f"{kind}: {words}{_place(error)}" if words else f"{kind}{_place(error)}"
    if OVERRUN in words or "exceeded its memory limit" in words:
        named = {"TimeoutError": SandboxOutcome.TIMED_OUT, "MemoryError": SandboxOutcome.MEMORY}
        return named.get(kind, SandboxOutcome.RAISED), message
    if kind in FORBIDDEN or any(part in words for part in NOT_HERE):
        return SandboxOutcome.FORBIDDEN, message
    return (SandboxOutcome.WRONG if kind == "AssertionError" else SandboxOutcome.RAISED), message


def _place(error: Any) -> str:
    frames = error.traceback() if hasattr(error, "traceback") else []
    lines = [frame.line for frame in frames if frame.filename == frames[0].filename]
    return f" (line {lines[-1]})" if lines else ""
