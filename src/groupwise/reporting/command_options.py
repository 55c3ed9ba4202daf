"""Options that several commands share, and how a command prints its answer."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from groupwise.reporting.text import in_any_encoding

RUNS = "runs"

RunName = Annotated[str, Parameter(help='A run\'s name or folder, or "latest".')]
RunsDir = Annotated[Path, Parameter(help="Folder of the runs.")]
OwnRunsDir = Annotated[
    Path | None, Parameter(name="--runs-dir", help="Folder of the runs; run.output_dir of the settings by default.")
]
SettingsFile = Annotated[Path, Parameter(help="A settings file: TOML, YAML, JSON or XML.")]
Overrides = Annotated[
    tuple[str, ...], Parameter(name="--set", help="Change a setting: --set optim.learning_rate=1e-4.")
]

Quiet = Annotated[bool, Parameter(help="Print errors only.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options that every command understands."""

    json: Annotated[bool, Parameter(help="Print JSON.")] = False
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False


def answer(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a command's answer as JSON."""
    from groupwise.training.events import plain  # needs NumPy, which `--help` does without

    print(json.dumps(plain(value), ensure_ascii=not in_any_encoding(sys.stdout), allow_nan=False))


WorkflowFile = Annotated[
    Path,
    Parameter(
        help="A workflow in any format (see `groupwise convert --help`), or requirements with a starting design."
    ),
]
RequirementsFile = Annotated[
    Path | None,
    Parameter(name=["--requirements", "-r"], help="Requirements (YAML or JSON); by default those in the file."),
]


@contextmanager
def patiently(quiet: bool, seconds: float = 1.0) -> Iterator[Callable[[], None]]:
    """Explain a wait while evaluation is compiled, which happens when it is first used on a machine.

    Nothing is said about any other wait. Call what this yields as soon as there is other progress to see.
    """
    over = threading.Event()
    teller = threading.Thread(target=_tell_of_compiling, args=(over, seconds), daemon=True)
    if not quiet:
        teller.start()
    try:
        yield over.set
    finally:
        over.set()
        if not quiet:
            teller.join()


def _tell_of_compiling(over: threading.Event, seconds: float) -> None:
    """A line that counts on, where it can be overwritten; otherwise one sentence."""
    from groupwise.workflows.evaluation.compile_progress import PROGRESS  # imports all of workflows

    said, since = False, None
    while not over.wait(0.1):
        if not PROGRESS.running:
            continue
        since = time.monotonic() if since is None else since
        if (lasted := time.monotonic() - since) < seconds:
            continue
        if sys.stderr.isatty():
            words = f"compiling the evaluation, once on this machine: {PROGRESS.done} functions, {lasted:.0f} s"
            print(f"\r{words}", end="", file=sys.stderr, flush=True)
        elif not said:
            words = "compiling the evaluation, which happens once on a machine and takes up to a minute"
            print(words, file=sys.stderr, flush=True)
        said = True
    if said and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # back to an empty line


def say(*lines: str) -> None:
    """Print lines as they are, even if they contain brackets, which Rich would read as markup."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))
