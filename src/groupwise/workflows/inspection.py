"""Open a workflow from a file of any format (or the start that requirements name), and check it without running it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.readers import decoded, load_json, read_bytes
from groupwise.workflows.block_form import NotBlocks, lift
from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.document import Document
from groupwise.workflows.feasibility import Contradiction, contradictions
from groupwise.workflows.files import read_workflow
from groupwise.workflows.requirements import Requirements, read_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.scoring import structure_of
from groupwise.workflows.soundness.check import Soundness, check_document
from groupwise.workflows.wording import Violation

# The key `activities` at the left margin of a YAML file; parsing it all would be slower.
ACTIVITIES = re.compile(r"^[\"']?activities[\"']?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Opened:
    """A document, the file it came from, and its requirements if there are any."""

    path: Path
    document: Document
    requirements: Requirements | None = None

    def design(self) -> Design:
        """The block form, which evaluation and scoring need."""
        try:
            return lift(self.document)
        except DesignError as error:
            raise NotBlocks(
                f"{self.path} cannot be evaluated, because it has no block form: {error.message}",
                hint="`groupwise check` says whether it is sound. Blocks need splits and joins in matching pairs.",
            ) from error

    def insist_on_requirements(self, what: str) -> Requirements:
        """The requirements; an error if there are none, because `what` needs them."""
        if self.requirements is None:
            raise ConfigError(
                f"{self.path} has no durations, pools or demand, which {what} needs",
                hint="Add --requirements FILE (in Python: requirements=…).",
                field="requirements",
            )
        return self.requirements


def open_workflow(path: str | Path, requirements: str | Path | Requirements | None = None) -> Opened:
    """The workflow in a file, or the start that requirements name; `requirements` replace those in the file."""
    path = Path(path)
    given = requirements if isinstance(requirements, Requirements | None) else read_requirements(requirements)
    if not is_requirements(path):
        document = read_workflow(path)
        return Opened(path, document, given or document.requirements)
    own = read_requirements(path)
    if own.start is None:
        raise ConfigError(
            f"{path} contains requirements but names no workflow to start from",
            hint="Add `start: FILE` to it, or give a workflow file.",
        )
    return Opened(path, read_workflow(path.parent / own.start), given or own)


def is_requirements(path: Path) -> bool:
    """Whether a YAML or JSON file contains requirements: only they have `activities`, no workflow format does."""
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return False
    try:
        content = read_bytes(path)
        if path.suffix.lower() != ".json":
            return ACTIVITIES.search(decoded(content)) is not None
        value: Any = load_json(content)
    except ConfigError:
        return False
    return isinstance(value, dict) and isinstance(value.get("activities"), dict)


@dataclass(frozen=True)
class Inspection:
    """The results; `unread` says why the rules could not be checked if the workflow has no block form."""

    opened: Opened
    verdicts: Mapping[str, Soundness]
    conflicts: tuple[Contradiction, ...]
    broken: tuple[Violation, ...]
    unread: str

    @property
    def fine(self) -> bool:
        return all(verdict.sound for verdict in self.verdicts.values()) and not self.conflicts and not self.broken

    def as_dict(self) -> dict[str, Any]:
        document = self.opened.document
        return {
            "ok": self.fine,
            "graphs": {name: asdict(verdict) for name, verdict in self.verdicts.items()},
            "metrics": {graph.name: structure_of(graph).as_dict() for graph in document.graphs},
            "blocks": not self.unread,
            "broken": [asdict(violation) for violation in self.broken],
            "contradictions": [{"words": one.words, "rules": list(map(str, one.statements))} for one in self.conflicts],
            "notes": [*document.notes, *([self.unread] if self.unread else [])],
        }


def inspect_workflow(opened: Opened) -> Inspection:
    asked, unread = opened.requirements, ""
    broken: list[Violation] = []
    try:
        design = lift(opened.document)
    except DesignError as error:
        unread = error.message
    else:
        broken = broken_rules(design, asked) if asked else []
    conflicts = contradictions(asked) if asked else []
    return Inspection(opened, check_document(opened.document), tuple(conflicts), tuple(broken), unread)
