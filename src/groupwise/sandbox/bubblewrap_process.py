"""One bubblewrap sandbox: a process that waits for jobs, and reports how they ended.

It starts as Python with a few lines (`BOOT`) that read the files in `PARTS` from standard input: nothing of this
package is visible inside, and nothing has to be imported from disk.
"""

import marshal
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, ResourceError
from groupwise.sandbox.bubblewrap_command import Interpreter, command, mounts
from groupwise.sandbox.fixed_limits import REPORT, RUN_GRACE, START_PATIENCE, VALUE_PIECES
from groupwise.sandbox.limits_and_outcomes import SandboxLimits, SandboxOutcome, SandboxResult, readable
from groupwise.sandbox.plain_data import fault_of
from groupwise.sandbox.program_tests import tests_fault
from groupwise.sandbox.seccomp import dispatcher_filter
from groupwise.sandbox.wire import GONE, LAST, NEXT, WireError, dumps, loads
from groupwise.workers import end_process

BOOT = """
import marshal, os, sys
size, data = int.from_bytes(os.read(0, 4), "big"), b""
while len(data) < size:
    data += os.read(0, size - len(data))
modules, parts = marshal.loads(data)
for name, code in parts:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.dispatch(modules)
"""
# Modules in the order in which they import one another; the last one has `dispatch`, which `BOOT` calls.
PARTS = (
    "fixed_limits", "wire", "inside.program", "inside.remote", "inside.suites", "inside.judge", "inside.dispatcher",
)  # fmt: skip
# Pieces of a report besides the value, and some to spare, so that `fault_of` sees a value that is too large.
AROUND = 10


@dataclass(frozen=True)
class Needs:
    """What a sandbox imports before its first job: installed packages, and modules of the standard library."""

    packages: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()


NOTHING = Needs()


class SandboxDied(Exception):
    """The sandbox ended before its report was complete."""


class SandboxProcess:
    """A sandbox that has started. It takes one job after another; any of them may be its last."""

    def __init__(self, interpreter: Interpreter, needs: Needs = NOTHING) -> None:
        filter_fd, end = os.pipe()
        os.write(end, dispatcher_filter())
        os.close(end)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command(interpreter, filter_fd, BOOT, mounts(needs.packages)), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self._errors, pass_fds=(filter_fd,), env={}, bufsize=0,
            )  # fmt: skip
        finally:
            os.close(filter_fd)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._buffer = bytearray()
        self.needs = needs
        self.alive = True

    def start(self, interpreter: Interpreter) -> None:
        """Wait until it can take a job; raises if this machine does not allow sandboxes."""
        try:
            self._send(_program(interpreter.same_magic, self.needs))
            if (answer := self._frame(time.monotonic() + START_PATIENCE)) != b"ready":
                raise SandboxDied(answer.decode(errors="replace"))
        except (SandboxDied, OSError, TimeoutError) as error:
            self._errors.seek(0)
            said = self._errors.read(2000).decode(errors="replace").strip()
            self.close()
            if self.needs.packages:
                message = f"the tests import {', '.join(self.needs.packages)}, which cannot be used in a sandbox: "
                hint = "User `nobody` must be able to read them, and they must fit the Python of the sandbox."
                raise ConfigError(message + readable(said or str(error)), hint=hint) from None
            message = f"a bubblewrap sandbox does not start on this machine: {said or error or 'no reason given'}"
            hint = "Unprivileged user namespaces must be allowed (sysctl user.max_user_namespaces, AppArmor)."
            raise ResourceError(message, hint=hint) from None

    def run(
        self, job: Mapping[str, Any], tests: Mapping[str, Any], limits: SandboxLimits, *, last: bool = False
    ) -> SandboxResult:
        """Run one job; after the `last` one the sandbox ends."""
        start = time.monotonic()
        try:
            self._write(LAST if last else NEXT)
            self._send(dumps(dict(job)))
            self._send(dumps(dict(tests)))
            ran = _ran(self._frame(start + limits.seconds + RUN_GRACE))
            if ran.seconds != GONE:
                return ran
        except (SandboxDied, TimeoutError):
            ran = None
        except ConfigError:  # after tests that ended their own process, the keeper has ended too
            self.close()
            raise
        self.close()
        seconds = time.monotonic() - start
        if ran is not None:
            return replace(ran, seconds=seconds)
        if seconds >= limits.seconds:
            return SandboxResult(SandboxOutcome.TIMED_OUT, message="it exceeded its time limit", seconds=seconds)
        return SandboxResult(SandboxOutcome.RAISED, message="the sandbox ended before its report", seconds=seconds)

    @property
    def running(self) -> bool:
        return self.alive and self._process.poll() is None

    def close(self) -> None:
        """End it and everything in it: all its processes die with the first."""
        end_process(self._process)
        self._errors.close()
        self.alive = False

    def _send(self, data: bytes) -> None:
        self._write(len(data).to_bytes(4, "big") + data)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._in, data) :]
            except BrokenPipeError:
                raise SandboxDied("it does not accept input") from None

    def _frame(self, deadline: float) -> bytes:
        while len(self._buffer) < 4 or len(self._buffer) < 4 + (size := int.from_bytes(self._buffer[:4], "big")):
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(1000 * left):
                raise TimeoutError
            piece = os.read(self._out, 1 << 16)
            if not piece or len(self._buffer) > REPORT:
                raise SandboxDied("it ended")
            self._buffer += piece
        frame = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return frame


@cache
def _program(compiled: bool, needs: Needs) -> bytes:
    """What is sent into a sandbox: compiled code, or source text if its Python has another bytecode format."""
    folder = Path(__file__).parent
    parts: list[tuple[str, Any]] = []
    for name in PARTS:
        text = (folder / f"{name.replace('.', '/')}.py").read_text()
        code = compile(text, f"<{name}>", "exec", dont_inherit=True, optimize=2) if compiled else text
        parts.append((f"groupwise.sandbox.{name}", code))
    return marshal.dumps(((*needs.packages, *needs.standard), parts))


def _ran(report: bytes) -> SandboxResult:
    """A report as a result. It comes from a sandbox, so only its form is trusted, and checked."""
    try:
        outcome, message, seconds, value, stdout, calls = loads(report, pieces=VALUE_PIECES + AROUND)
        words, printed = readable(str(message)), bytes(stdout).decode(errors="replace")
    except (WireError, TypeError, ValueError) as error:
        return SandboxResult(SandboxOutcome.WRONG, message=f"the value cannot be used: {error}")
    if outcome == "tests":
        raise tests_fault(words)
    if fault := fault_of(value):
        return SandboxResult(SandboxOutcome.WRONG, None, printed, f"the value {fault}", float(seconds))
    return SandboxResult(SandboxOutcome(outcome), value, printed, words, float(seconds), int(calls))
