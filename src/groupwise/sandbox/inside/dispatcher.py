"""The dispatcher: waits for jobs; for each it forks a judge, and outlives it."""

from __future__ import annotations

import _signal as signal
import os
import resource
import sys

from groupwise.sandbox.inside.judge import report, run_job
from groupwise.sandbox.inside.program import words_of
from groupwise.sandbox.wire import GONE, JOBS, LAST, REPORTS, write_frame

# How a judge exits that has reported: tests that exit on their own have not.
REPORTED = 113


def dispatch(modules: tuple[str, ...]) -> None:
    """Wait for jobs until there are no more; if a judge does not exit cleanly, the dispatcher ends too.

    The modules are imported first: everything that is forked later has them already.
    The last job needs nobody to outlive it, so the dispatcher judges it itself, which saves a fork.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    move_channels()
    sys.path.append("/packages")
    for name in modules:
        try:
            __import__(name)
        except BaseException as error:
            write_frame(REPORTS, f"{name} cannot be imported: {type(error).__name__}: {words_of(error)}".encode())
            return
    write_frame(REPORTS, b"ready")
    while order := os.read(JOBS, 1):
        if order == LAST:
            run_job()
            return
        judge = os.fork()
        if judge == 0:
            run_job()
            os._exit(REPORTED)
        status = os.waitpid(judge, 0)[1]
        if os.waitstatus_to_exitcode(status) != REPORTED:
            report(*unreported(status), GONE)
            return


def unreported(status: int) -> tuple[str, str]:
    """Why a judge ended without a report."""
    if os.WIFEXITED(status):
        return "tests", "they end their own process"
    if os.WTERMSIG(status) == signal.SIGALRM:
        return "timed_out", "the tests exceeded their time limit"
    return "wrong", f"the tests were killed by signal {os.WTERMSIG(status)}"


class Nowhere:
    """What tests print to: it discards everything."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def move_channels() -> None:
    """Move jobs and reports to descriptors that tests do not use, and put closed pipes in place of 0, 1 and 2."""
    os.dup2(0, JOBS)
    os.dup2(1, REPORTS)
    empty, end = os.pipe()
    for fd, number in ((empty, 0), (end, 1), (end, 2)):
        os.dup2(fd, number)
    os.close(empty)
    os.close(end)
    sys.stdin = None
    sys.stdout = sys.stderr = Nowhere()
