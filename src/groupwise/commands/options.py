"""Options that several commands share, and how a command prints its answer."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from groupwise.training.events import plain

RUNS = "runs"

RunName = Annotated[str, Parameter(help='A run\'s name or folder, or "latest".')]
RunsDir = Annotated[Path, Parameter(help="Where runs are kept.")]
Overrides = Annotated[
    tuple[str, ...],
    Parameter(name="--set", negative=(), help="Change a setting: --set optim.learning_rate=1e-4."),
]

Quiet = Annotated[bool, Parameter(negative=(), help="Say nothing of the run, only what goes wrong.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options that every command understands."""

    json: Annotated[bool, Parameter(negative=(), help="Answer in JSON.")] = False
    debug: Annotated[bool, Parameter(negative=(), help="Show the whole traceback of an error.")] = False


def answer(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a command's answer as JSON."""
    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


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
