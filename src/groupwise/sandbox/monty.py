"""The first tier: Monty, a Python interpreter of its own, for workflows over operators.

Code runs in worker processes of pydantic-monty that know a part of Python and nothing of the machine: no files, no
network, no processes, no C. Whatever it may do beyond arithmetic are the host functions it is given; values and
arguments leave it as text only (`literal.py`). A run costs fractions of a millisecond. Where there is bubblewrap, the
workers live behind its wall too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from groupwise.errors import ConfigError, MissingExtra
from groupwise.event_loop import EventLoop
from groupwise.sandbox.host_calls import HostCalls, Submit
from groupwise.sandbox.literal import read
from groupwise.sandbox.outcome import Limits, Outcome, Ran, readable
from groupwise.sandbox.plain import fault_of
from groupwise.sandbox.worker import walled_worker
from groupwise.sandbox.written import called, last_expression, unusable

OVERRUN = "limit exceeded"
FORBIDDEN = ("PermissionError", "ModuleNotFoundError", "ImportError")
NOT_HERE = ("is not supported in this environment", "module 'os' has no attribute")


class Monty:
    """A pool of Monty's workers, started with the first run; any thread may run code on it.

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
        limits: Limits = Limits(),
        *,
        call: str = "",
    ) -> Ran:
        """Run code with inputs and host functions by name; the value is what `call` returns, or the last expression.

        `call` names a function of the code; it gets the inputs in their order, and is awaited if it is async. Host
        functions may be async too. Never raises for what the code does.
        """
        return self._run(code, inputs, functions, limits, call, self._loop.submit)

    async def arun(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        limits: Limits = Limits(),
        *,
        call: str = "",
    ) -> Ran:
        """`run` for an event loop: async host functions run on the caller's loop, which is not blocked."""
        submit = partial(asyncio.run_coroutine_threadsafe, loop=asyncio.get_running_loop())
        return await asyncio.to_thread(self._run, code, inputs, functions, limits, call, submit)

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
        code: str,
        inputs: Mapping[str, Any] | None,
        functions: Mapping[str, Callable[..., Any]] | None,
        limits: Limits,
        call: str,
        submit: Submit,
    ) -> Ran:
        if fault := unusable(code):
            return Ran(Outcome.RAISED, message=fault)
        given = dict(inputs or {})
        calls = HostCalls(functions or {}, submit)
        printed = self._library.CollectString(limits.output_kb * 1024)
        text = called(code, call, given) if call else last_expression(code)
        start = time.perf_counter()
        written, outcome, message = "None", Outcome.PASSED, ""
        try:
            with self._opened().checkout(limits=_limits(limits)) as session:
                written = calls.drive(session, text, given, printed)
        except self._library.MontyConversionError as error:
            raise ConfigError(f"the inputs cannot be sent to the code: {error}", hint="Give plain data.") from None
        except self._library.MontyError as error:
            outcome, message = _told(error, self._library)
        seconds = time.perf_counter() - start
        calls.reraise()
        value, fault = _value(written)
        if fault:
            outcome, message = Outcome.WRONG, f"the value {fault}"
        return Ran(outcome, value, printed.output, readable(message), seconds)

    def _opened(self) -> Any:
        # After a fork the workers belong to the parent.
        if self._pool is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._pool = self._library.Monty(binary_path=walled_worker(), max_processes=self.workers).__enter__()
        return self._pool


def monty_library() -> Any:
    """pydantic-monty, or `MissingExtra`."""
    try:
        import pydantic_monty
    except ImportError as error:
        raise MissingExtra(
            f"the first tier of the sandbox needs pydantic-monty, which cannot be imported: {error}",
            hint="pip install 'groupwise[sandbox]'",
        ) from error
    return pydantic_monty


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_total_sleep_secs": limits.seconds,
        "max_memory": limits.memory_mb * 2**20,
        "max_suspensions": limits.calls,
    }


def _value(written: str) -> tuple[Any, str]:
    """The value that was written down, and what is wrong with it."""
    try:
        value, _ = read(written)
    except ValueError as error:
        return None, str(error)
    fault = fault_of(value)
    return (None, fault) if fault else (value, "")


def _told(error: Any, library: Any) -> tuple[Outcome, str]:
    """An error of Monty as an outcome and a sentence."""
    if isinstance(error, library.MontyCrashedError):
        return (Outcome.TIMED_OUT if error.timed_out else Outcome.MEMORY), f"the worker ended: {error}"
    inner = error.exception()
    kind, words = type(inner).__name__, str(inner)
    message = f"{kind}: {words}{_place(error)}" if words else f"{kind}{_place(error)}"
    if OVERRUN in words or "exceeded its memory limit" in words:
        named = {"TimeoutError": Outcome.TIMED_OUT, "MemoryError": Outcome.MEMORY}
        return named.get(kind, Outcome.RAISED), message
    if kind in FORBIDDEN or any(part in words for part in NOT_HERE):
        return Outcome.FORBIDDEN, message
    return (Outcome.WRONG if kind == "AssertionError" else Outcome.RAISED), message


def _place(error: Any) -> str:
    frames = error.traceback() if hasattr(error, "traceback") else []
    lines = [frame.line for frame in frames if frame.filename == frames[0].filename]
    return f" (line {lines[-1]})" if lines else ""
