"""Options that the workflow commands share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

WorkflowFile = Annotated[
    Path,
    Parameter(help="A workflow in any format (`groupwise convert --help` lists them), or requirements with a start."),
]
RequirementsFile = Annotated[
    Path | None,
    Parameter(name=["--requirements", "-r"], help="Requirements (YAML or JSON); those of the file itself by default."),
]


@contextmanager
def patiently(quiet: bool, seconds: float = 3.0) -> Iterator[Callable[[], None]]:
    """Tell whoever waits longer than so many seconds why: evaluation is compiled when it is first used.

    What comes is to be called once it is clear that something happens.
    """
    words = "still at work: the first time on a machine the evaluation is compiled, which takes up to a minute"
    timer = threading.Timer(seconds, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if not quiet:
        timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def say(*lines: str) -> None:
    """Print lines as they are, whatever brackets they have."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))
