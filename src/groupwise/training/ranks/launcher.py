"""Start ranks on this machine and start all of them again when one dies: torchrun, from Python.

torchrun's own agent does the work. What is added: one sentence instead of its reports, with the reason; refusals that
are not tried again; and Ctrl-C that lets the run save first.
"""

import logging
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from groupwise.errors import RankError
from groupwise.training.control_file import send_command

logger = logging.getLogger(__name__)
RESTARTS = 3


def launch(function: Callable[..., Any], *arguments: Any, ranks: int, run: Path, restarts: int = RESTARTS) -> list[Any]:
    """Call `function(*arguments)` in `ranks` processes that can join each other; return what each returned.

    If a process dies, or the function raises, all are started again, up to `restarts` times: the function must go on
    from the last checkpoint of `run`. Ctrl-C or SIGTERM asks the run to stop; a second one ends it at once.
    """
    # Importing it takes a second.
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name, _stopped_by_order(run):
        reasons = Path(name)
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=ranks, run_id=run.name, rdzv_backend="c10d",
            rdzv_endpoint="localhost:0", local_addr="localhost", max_restarts=restarts, start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=name), signals_to_handle="SIGHUP,SIGQUIT",
        )  # fmt: skip
        try:
            with _deaths_announced(reasons, restarts):
                answers = elastic_launch(config, _in_rank)(function, arguments, str(reasons))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            again = f" after {restarts} restart{'s' * (restarts != 1)}" if restarts else ""
            raise RankError(
                f"rank {rank} {_reason(reasons, rank, failure.exitcode)}{again}",
                hint=f"Continue from the last checkpoint with `groupwise resume {run} --ranks {ranks}`.",
            ) from _traceback(reasons, rank)
        except SignalException:
            raise KeyboardInterrupt from None
    return [answers[rank] for rank in range(ranks)]


def _in_rank(function: Callable[..., Any], arguments: tuple[Any, ...], reasons: str) -> Any:
    from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

    # Ctrl-C reaches every process of the terminal; the launcher turns it into an order that the run obeys. SIGTERM
    # keeps its meaning: the agent ends the ranks that are left when one has died, and Linux those of a dead launcher.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl_pr_set_pdeathsig(signal.SIGTERM)
    note = Path(reasons) / f"rank-{os.environ['RANK']}"
    note.unlink(missing_ok=True)  # of an earlier attempt
    try:
        return function(*arguments)
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        note.write_text(f"{words[:400]}\n{traceback.format_exc()}")
        raise


@contextmanager
def _deaths_announced(reasons: Path, restarts: int) -> Iterator[None]:
    """Say in a sentence which rank died and why, while there are restarts left; silence the agent's own reports."""
    deaths = _Deaths(reasons, restarts)
    reports = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    silenced = [logging.getLogger(name) for name in ("torch.distributed.elastic", "torch.multiprocessing")]
    before = [(log, log.level, log.propagate) for log in (reports, *silenced)]
    for log in silenced:
        log.setLevel(logging.CRITICAL)
    reports.setLevel(logging.ERROR)
    reports.propagate = False
    reports.addHandler(deaths)
    try:
        yield
    finally:
        reports.removeHandler(deaths)
        for log, level, propagate in before:
            log.setLevel(level)
            log.propagate = propagate


class _Deaths(logging.Handler):
    """Hears the agent's report of a dead rank: "failed (exitcode: %s) local_rank: %s …"."""

    def __init__(self, reasons: Path, restarts: int) -> None:
        super().__init__(logging.ERROR)
        self.reasons, self.restarts, self.count = reasons, restarts, 0

    def emit(self, record: logging.LogRecord) -> None:
        args = record.args
        if not (str(record.msg).startswith("failed (exitcode") and isinstance(args, tuple) and len(args) >= 2):
            return
        self.count += 1
        if self.count <= self.restarts:
            code, rank = int(str(args[0])), int(str(args[1]))
            logger.warning(
                "rank %d %s; all ranks start again from the last checkpoint (restart %d of %d)",
                rank, _reason(self.reasons, rank, code), self.count, self.restarts,
            )  # fmt: skip


def _reason(reasons: Path, rank: int, code: int) -> str:
    """What ended a rank: the error it raised, a signal, or a status."""
    words = _note(reasons, rank).partition("\n")[0]
    if words:
        return f"failed with {words}"
    if code >= 0:
        return f"ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    # The kernel kills without a word a process that takes more memory than there is.
    return f"was killed by signal {name}" + (" (out of memory?)" if -code == signal.SIGKILL else "")


def _traceback(reasons: Path, rank: int) -> Exception | None:
    """What --debug shows of an error in another process."""
    text = _note(reasons, rank).partition("\n")[2]
    return RuntimeError(f"in rank {rank}:\n{text}") if text else None


def _note(reasons: Path, rank: int) -> str:
    with suppress(OSError):
        return (reasons / f"rank-{rank}").read_text()
    return ""


@contextmanager
def _stopped_by_order(run: Path) -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into an order to stop, and leave the second to do what it always does."""
    before: dict[int, Any] = {}

    def order(number: int, frame: FrameType | None) -> None:
        for known, handler in before.items():
            signal.signal(known, handler)
        send_command(run, "stop")

    before |= {number: signal.signal(number, order) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
