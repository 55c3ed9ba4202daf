"""The second tier: full CPython in a sandbox of the Linux kernel.

bubblewrap gives it its own namespaces (no network, no other processes, no files of the machine but Python itself,
read-only), as an unprivileged user that cannot gain privileges. Two system call filters and limits on memory, time,
processes and output come on top. Inside, the code and its tests are separate processes (`inside/`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from groupwise.errors import ConfigError, ResourceError
from groupwise.sandbox.bubblewrap_command import Interpreter, found_interpreter
from groupwise.sandbox.bubblewrap_process import SandboxProcess
from groupwise.sandbox.limits_and_outcomes import SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.sandbox.seccomp import code_filter
from groupwise.sandbox.source_code import unusable
from groupwise.sandbox.wire import WireError, dumps

PROOF = """
import os, socket
refused = []
for name, attempt in (
    ("network", lambda: socket.socket()),
    ("processes", lambda: os.fork() or os._exit(0)),
    ("files", lambda: open("/etc/passwd")),
    ("writing", lambda: open("/written", "w")),
    ("proc", lambda: os.listdir("/proc/self")),
    ("signals", lambda: os.kill(1, 0)),
):
    try:
        attempt()
    except OSError:
        refused.append(name)
def tried():
    return refused
"""
UNHURRIED = SandboxLimits(seconds=30)
# Before its first use a sandbox must refuse everything that PROOF tries.
REFUSED = ["network", "processes", "files", "writing", "proc", "signals"]


class Bubblewrap:
    """Sandboxes for full Python: a fresh one for every run, or one for a group of runs. Any thread may run code.

    `spares` sandboxes are started in advance, so that a run does not have to wait.

    with Bubblewrap() as sandbox:
        sandbox.run("def twice(x):\\n    return 2 * x", tests="assert twice(3) == 6").outcome
    """

    def __init__(self, workers: int | None = None, spares: int = 0) -> None:
        self.workers = workers or os.cpu_count() or 1
        self.spares = spares
        self._interpreter = proved_interpreter()
        self._places = threading.BoundedSemaphore(self.workers)
        self._ready: list[Future[SandboxProcess]] = []
        self._lock = threading.Lock()
        self._launcher: ThreadPoolExecutor | None = None
        self._owner = 0

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
        tests: str = "",
        stdin: str = "",
    ) -> SandboxResult:
        """Run code in its own sandbox. Never raises because of what the code does.

        With `tests` (Python that calls what the code defines), the run passes if they do. With `call`, the value is
        what that function of the code returns for the inputs, in their order. With neither, the code is a program: it
        gets `stdin`, and the inputs as global names, and passes if it ends without an error.
        """
        job = _job(code, inputs, limits, call, tests, stdin)
        if isinstance(job, SandboxResult):
            return job
        with self._places:
            cell = self._cell()
            try:
                return cell.run(job, tests, limits, last=True)
            finally:
                cell.close()

    def run_group(
        self,
        codes: Sequence[str],
        inputs: Mapping[str, Any] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
        tests: str = "",
        stdin: str = "",
    ) -> list[SandboxResult]:
        """Run several attempts at one problem in a few shared sandboxes, each in its own processes: much faster.

        They share namespaces and a user, but cannot see or reach one another. Attempts that may start processes get
        a sandbox each.
        """
        single = partial(self.run, inputs=inputs, limits=limits, call=call, tests=tests, stdin=stdin)
        if limits.processes > 1:
            return [single(code) for code in codes]
        jobs = [_job(code, inputs, limits, call, tests, stdin) for code in codes]
        lanes = min(self.workers, len(codes))
        with ThreadPoolExecutor(max(lanes, 1)) as threads:
            parts = list(threads.map(lambda lane: self._lane(jobs[lane::lanes], tests, limits), range(lanes)))
        return [parts[place % lanes][place // lanes] for place in range(len(codes))]

    async def arun(self, code: str, *args: Any, **options: Any) -> SandboxResult:
        """`run`, with the same arguments, without blocking the event loop."""
        return await asyncio.to_thread(self.run, code, *args, **options)

    def close(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, []
            launcher, self._launcher = self._launcher, None
        if self._owner != os.getpid():  # after a fork the sandboxes belong to the parent
            return
        for cell in ready:
            if cell.exception() is None:
                cell.result().close()
        if launcher is not None:
            launcher.shutdown()

    def __enter__(self) -> Bubblewrap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lane(
        self, jobs: Sequence[Mapping[str, Any] | SandboxResult], tests: str, limits: SandboxLimits
    ) -> list[SandboxResult]:
        """Run jobs one after another in one sandbox; if one of them ends it, continue in a new one."""
        ran: list[SandboxResult] = []
        cell: SandboxProcess | None = None
        with self._places:
            try:
                for job in jobs:
                    if isinstance(job, SandboxResult):
                        ran.append(job)
                        continue
                    if cell is None or not cell.alive:
                        cell = self._cell()
                    ran.append(cell.run(job, tests, limits))
            finally:
                if cell is not None:
                    cell.close()
        return ran

    def _cell(self) -> SandboxProcess:
        with self._lock:
            launch = self._launching()
            self._ready = [spare for spare in self._ready if not (spare.done() and _dead(spare))]
            cell = self._ready.pop(0) if self._ready else launch()
            while len(self._ready) < self.spares:
                self._ready.append(launch())
        return cell.result()

    def _launching(self) -> Any:
        # With --die-with-parent bubblewrap dies with the *thread* that started it, so one long-lived thread starts them
        # all. After a fork that thread does not exist.
        if self._launcher is None or self._owner != os.getpid():
            self._owner, self._ready = os.getpid(), []
            self._launcher = ThreadPoolExecutor(1, "groupwise-sandbox")
        return partial(self._launcher.submit, self._launched)

    def _launched(self) -> SandboxProcess:
        cell = SandboxProcess(self._interpreter)
        cell.start(self._interpreter)
        return cell


def _dead(spare: Future[SandboxProcess]) -> bool:
    return spare.exception() is not None or not spare.result().running


@cache
def proved_interpreter() -> Interpreter:
    """The Python to run code with, after a sandbox with it has proved that it holds. Raises if it does not."""
    interpreter = found_interpreter()
    cell = SandboxProcess(interpreter)
    try:
        cell.start(interpreter)
        job = _job(PROOF, {}, UNHURRIED, "tried", "", "")
        assert isinstance(job, dict)
        ran = cell.run(job, "", UNHURRIED, last=True)
    finally:
        cell.close()
    if ran.value != REFUSED:
        found = f"refuses only {ran.value or 'nothing'} ({ran.message or 'it ran'})"
        hint = f"It must refuse {', '.join(REFUSED)}. Do not run model-written code on this machine."
        raise ResourceError(f"a bubblewrap sandbox on this machine {found}", hint=hint)
    return interpreter


def _job(
    code: str, inputs: Mapping[str, Any] | None, limits: SandboxLimits, call: str, tests: str, stdin: str
) -> dict[str, Any] | SandboxResult:
    """The job to send into a sandbox; or, for code that is not worth one, its result."""
    if fault := unusable(code):
        return SandboxResult(SandboxOutcome.RAISED, message=fault)
    given = dict(inputs or {})
    try:
        dumps(given)
    except WireError as error:
        raise ConfigError(f"the inputs cannot be sent to the code: {error}", hint="Pass plain data.") from None
    return {
        "code": code,
        "inputs": given,
        "call": call,
        "serve": bool(call or tests),
        "stdin": stdin,
        "seconds": float(limits.seconds),
        "output": int(limits.output_kb) << 10,
        "kernel_limits": limits.of_kernel(),
        "filter": code_filter(limits.processes),
    }
