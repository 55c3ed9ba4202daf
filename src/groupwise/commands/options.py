"""Options that every command understands, and how each answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

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
