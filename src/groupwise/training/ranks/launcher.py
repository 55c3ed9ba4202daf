"""Start ranks on this machine and start all of them again when one dies: torchrun, from Python.

torchrun's own agent does the work. What is added: one sentence instead of its report, refusals that are not tried
again, and Ctrl-C that lets the run save first.
"""

import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch.multiprocessing import _prctl_pr_set_pdeathsig

from groupwise.errors import RankError
from groupwise.training.control_file import send_command

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

    # The agent warns of every restart with a traceback of its own.
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as logs, _stopped_by_order(run):
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=ranks, run_id=run.name, rdzv_backend="c10d",
            rdzv_endpoint="localhost:0", local_addr="localhost", max_restarts=restarts, start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=logs), signals_to_handle="SIGHUP,SIGQUIT",
        )  # fmt: skip
        try:
            answers = elastic_launch(config, _in_rank)(function, arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            again = f" after {restarts} restart{'s' * (restarts != 1)}" if restarts else ""
            raise RankError(
                f"rank {rank} ended with {_status(failure.exitcode)}{again}",
                hint=f"Continue from the last checkpoint with `groupwise resume {run} --ranks {ranks}`.",
            ) from None
        except SignalException:
            raise KeyboardInterrupt from None
    return [answers[rank] for rank in range(ranks)]


def _in_rank(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    # Ctrl-C reaches every process of the terminal; the launcher turns it into an order that the run obeys. SIGTERM
    # keeps its meaning: the agent ends the ranks that are left when one has died, and Linux those of a dead launcher.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl_pr_set_pdeathsig(signal.SIGTERM)
    return function(*arguments)


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


def _status(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
