"""Options that the workflow commands share."""

from __future__ import annotations

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


def say(*lines: str) -> None:
    """Print lines as they are, whatever brackets they have."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(escape(line))
