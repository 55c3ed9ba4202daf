"""The second tier: full CPython in a sandbox of the Linux kernel.

bubblewrap gives it its own namespaces (no network, no other processes, no files of the machine but Python itself,
read-only), as an unprivileged user that cannot gain privileges. Two system call filters and limits on memory, time,
processes and output come on top. Inside, the code and its tests are separate processes (`inside/`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from groupwise.errors import ConfigError, ResourceError
from groupwise.sandbox.bubblewrap_command import Interpreter, found_interpreter
from groupwise.sandbox.bubblewrap_process import NOTHING, Needs, SandboxProcess
from groupwise.sandbox.fixed_limits import PACKAGES_MEMORY
from groupwise.sandbox.limits_and_outcomes import SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.sandbox.program_tests import Expectations, read_tests, without_classes
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


@dataclass(frozen=True)
class JudgedProgram:
    """Code and the tests it must pass; `call` is the function under test, if known. `helpers`: see `Bubblewrap.run`.

    With `variants`, the code is that many programs of our own in one (see `inside.judge.variant`), and the value is a
    list of how each ended: outcome, message, and number of calls.
    """

    code: str
    tests: str = ""
    call: str = ""
    helpers: str = ""
    variants: int = 0


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

    @property
    def python(self) -> str:
        """The Python that runs the code."""
        return self._interpreter.program

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
        tests: str = "",
        stdin: str = "",
        helpers: str = "",
    ) -> SandboxResult:
        """Run code in its own sandbox. Never raises because of what the code does.

        With `tests` (Python that calls what the code defines: assertions, test functions, or cases of unittest), the
        run passes if they do; packages that they import are visible inside. `helpers` is what the prompt defines: the
        code and the tests can use it, and the code cannot change what the tests use. With `call`, the value is what
        that function of the code returns for the inputs, in their order. With neither, the code is a program: it gets
        `stdin`, and the inputs as global names, and passes if it ends without an error.
        """
        (ran,) = self._run_all([JudgedProgram(code, tests, call, helpers)], inputs, limits, stdin, fresh=True)
        return _raised(ran)

    def run_group(
        self,
        codes: Sequence[str],
        inputs: Mapping[str, Any] | None = None,
        limits: SandboxLimits = SandboxLimits(),
        *,
        call: str = "",
        tests: str = "",
        stdin: str = "",
        helpers: str = "",
    ) -> list[SandboxResult]:
        """Run several attempts at one problem in a few shared sandboxes, each in its own processes: much faster.

        They share namespaces and a user, but cannot see or reach one another. Attempts that may start processes get
        a sandbox each.
        """
        programs = [JudgedProgram(code, tests, call, helpers) for code in codes]
        return [_raised(ran) for ran in self._run_all(programs, inputs, limits, stdin, fresh=limits.processes > 1)]

    def run_programs(
        self, programs: Sequence[JudgedProgram], limits: SandboxLimits = SandboxLimits()
    ) -> list[SandboxResult | ConfigError]:
        """Run many programs, each with its own tests, in a few shared sandboxes.

        If the tests of one cannot be run, its result is the error, and the others run all the same.
        """
        return self._run_all(programs, {}, limits, "")

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

    def _run_all(
        self,
        programs: Sequence[JudgedProgram],
        inputs: Mapping[str, Any] | None,
        limits: SandboxLimits,
        stdin: str,
        *,
        fresh: bool = False,
    ) -> list[SandboxResult | ConfigError]:
        """Run programs in as many sandboxes as may run at a time; `fresh`: in one each."""
        given = dict(inputs or {})
        try:
            dumps(given)
        except WireError as error:
            raise ConfigError(f"the inputs cannot be sent to the code: {error}", hint="Pass plain data.") from None
        jobs = [partial(_job, program, given, limits, stdin) for program in programs]
        lanes = min(self.workers, len(jobs))
        run = partial(self._lane, limits=limits, fresh=fresh)
        if lanes < 2:
            return run(jobs) if jobs else []
        with ThreadPoolExecutor(lanes) as threads:
            parts = list(threads.map(lambda lane: run(jobs[lane::lanes]), range(lanes)))
        return [parts[place % lanes][place // lanes] for place in range(len(jobs))]

    def _lane(
        self, jobs: Sequence[Callable[[], SandboxJob]], *, limits: SandboxLimits, fresh: bool
    ) -> list[SandboxResult | ConfigError]:
        """Run jobs one after another in one sandbox; if one of them ends it, or needs others, continue in a new one."""
        ran: list[SandboxResult | ConfigError] = []
        cell: SandboxProcess | None = None
        with self._places, ExitStack() as opened:
            for make in jobs:
                try:
                    job = make()
                    if job.refused:
                        ran.append(job.refused)
                        continue
                    if cell is None or fresh or not cell.alive or cell.needs != job.needs:
                        opened.close()
                        cell = self._cell(job.needs)
                        opened.callback(cell.close)
                    ran.append(cell.run(job.code, job.tests, limits, last=fresh and not job.tests["text"]))
                except ConfigError as error:
                    ran.append(error)
        return ran

    def _cell(self, needs: Needs) -> SandboxProcess:
        with self._lock:
            launch = self._launching()
            self._ready = [spare for spare in self._ready if not (spare.done() and _dead(spare))]
            spares = self._ready if needs == NOTHING else []
            cell = spares.pop(0) if spares else launch(needs)
            while len(self._ready) < self.spares:
                self._ready.append(launch(NOTHING))
        return cell.result()

    def _launching(self) -> Callable[[Needs], Future[SandboxProcess]]:
        # With --die-with-parent bubblewrap dies with the *thread* that started it, so one long-lived thread starts them
        # all. After a fork that thread does not exist.
        if self._launcher is None or self._owner != os.getpid():
            self._owner, self._ready = os.getpid(), []
            self._launcher = ThreadPoolExecutor(1, "groupwise-sandbox")
        launcher = self._launcher
        return lambda needs: launcher.submit(self._launched, needs)

    def _launched(self, needs: Needs) -> SandboxProcess:
        cell = SandboxProcess(self._interpreter, needs)
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
        job = _job(JudgedProgram(PROOF, call="tried"), {}, UNHURRIED, "")
        ran = cell.run(job.code, job.tests, UNHURRIED, last=True)
    finally:
        cell.close()
    if ran.value != REFUSED:
        found = f"refuses only {ran.value or 'nothing'} ({ran.message or 'it ran'})"
        hint = f"It must refuse {', '.join(REFUSED)}. Do not run model-written code on this machine."
        raise ResourceError(f"a bubblewrap sandbox on this machine {found}", hint=hint)
    return interpreter


@dataclass(frozen=True)
class SandboxJob:
    """One run as it is sent into a sandbox: for the code, for its tests, and what must be imported before.

    Code that is not worth a sandbox is `refused`.
    """

    code: Mapping[str, Any]
    tests: Mapping[str, Any]
    needs: Needs
    refused: SandboxResult | None = None


def _job(program: JudgedProgram, inputs: Mapping[str, Any], limits: SandboxLimits, stdin: str) -> SandboxJob:
    fault = unusable(program.code)
    refused = SandboxResult(SandboxOutcome.RAISED, message=fault) if fault else None
    facts = read_tests(program.tests, program.call, program.helpers) if program.tests else Expectations((), (), ())
    for_code = {
        "code": program.code,
        "inputs": inputs,
        "call": program.call,
        "helpers": program.helpers,
        "variants": program.variants,
        "serve": bool(program.call or program.tests),
        "stdin": stdin,
        "seconds": float(limits.seconds),
        "output": int(limits.output_kb) << 10,
        "kernel_limits": limits.of_kernel(PACKAGES_MEMORY if facts.packages else 0),
        "filter": code_filter(limits.processes),
    }
    for_tests = {
        "text": program.tests,
        "helpers": without_classes(program.helpers),
        "pytest": "pytest" in facts.packages,
        "imports": [*facts.packages, *facts.standard],
    }
    return SandboxJob(for_code, for_tests, Needs(facts.packages, facts.standard), refused)


def _raised(ran: SandboxResult | ConfigError) -> SandboxResult:
    if isinstance(ran, ConfigError):
        raise ran
    return ran
