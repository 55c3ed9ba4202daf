"""A workflow to work with: read from a file of any format, or named by requirements as their start."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.document import Document
from groupwise.workflows.files import read_workflow
from groupwise.workflows.lifting import NotBlocks, lift
from groupwise.workflows.requirements import LARGEST, Requirements, read_requirements

ACTIVITIES = re.compile(r"^[\"']?activities[\"']?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Opened:
    """A document, where it came from, and what is required of it, if anybody said."""

    path: Path
    document: Document
    requirements: Requirements | None = None

    def design(self) -> Design:
        """The document in blocks, which evaluation and scores need."""
        try:
            return lift(self.document)
        except DesignError as error:
            raise NotBlocks(
                f"{self.path} cannot be evaluated, because it has no block form: {error.message}",
                hint="`groupwise check` tells whether it is sound; splits and joins that pair up make it blocks.",
            ) from error

    def insist_on_requirements(self, what: str) -> Requirements:
        """The requirements, or a sentence about what `what` needs them for."""
        if self.requirements is None:
            raise ConfigError(
                f"{self.path} says nothing of durations, pools and demand, which {what} needs",
                hint="Give them with --requirements FILE (from Python: requirements=).",
                field="requirements",
            )
        return self.requirements


def open_workflow(path: str | Path, requirements: str | Path | Requirements | None = None) -> Opened:
    """The workflow in a file, or the one that a requirements file starts from.

    `requirements` take the place of those that the file itself has.
    """
    path = Path(path)
    given = requirements if isinstance(requirements, Requirements | None) else read_requirements(requirements)
    if not is_requirements(path):
        document = read_workflow(path)
        return Opened(path, document, given or document.requirements)
    own = read_requirements(path)
    if own.start is None:
        raise ConfigError(
            f"{path} holds requirements and names no workflow to start from",
            hint="Add start: FILE, or name a workflow.",
        )
    return Opened(path, read_workflow(path.parent / own.start), given or own)


def is_requirements(path: Path) -> bool:
    """Whether a YAML or JSON file holds requirements: they have activities, and no workflow format has."""
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return False
    try:
        if path.stat().st_size > LARGEST:
            return False
        text = path.read_text(encoding="utf8")
        if path.suffix.lower() != ".json":
            return ACTIVITIES.search(text) is not None
        value: Any = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("activities"), dict)
