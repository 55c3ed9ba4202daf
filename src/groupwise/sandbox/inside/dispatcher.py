"""The dispatcher: waits for jobs; for each it forks a judge, and outlives it."""

from __future__ import annotations

import _signal as signal
import os
import resource
import sys

from groupwise.sandbox.inside.judge import report, run_job
from groupwise.sandbox.wire import GONE, JOBS, LAST, REPORTS, write_frame


def dispatch() -> None:
    """Wait for jobs until there are no more; if a judge does not exit cleanly, the dispatcher ends too.

    The last job needs nobody to outlive it, so the dispatcher judges it itself, which saves a fork.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    move_channels()
    write_frame(REPORTS, b"ready")
    while order := os.read(JOBS, 1):
        if order == LAST:
            run_job()
            return
        judge = os.fork()
        if judge == 0:
            run_job()
            os._exit(0)
        status = os.waitpid(judge, 0)[1]
        if status:
            late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
            outcome = "timed_out" if late else "wrong"
            words = "the tests exceeded their time limit" if late else "the tests ended their own process"
            report(outcome, words, GONE)
            return


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
