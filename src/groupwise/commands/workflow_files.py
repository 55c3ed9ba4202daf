"""`groupwise convert`, `groupwise diff` and `groupwise requirements`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from groupwise.commands.options import Common, RequirementsFile, WorkflowFile, answer, say
from groupwise.designer.text_requirements import requirements_from_text
from groupwise.errors import ConfigError, StorageError
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.feasibility import best_cycle_time, contradictions
from groupwise.workflows.files import write_workflow
from groupwise.workflows.inspection import is_requirements, open_workflow
from groupwise.workflows.process_mining import SUPPORT, requirements_from_log
from groupwise.workflows.requirements import Requirements, read_requirements

Words = tuple[str, ...]


def convert(
    source: WorkflowFile,
    target: Annotated[Path, Parameter(help="Where to write it; the suffix says the format.")],
    *,
    to: Annotated[str | None, Parameter(help="The format, where the suffix does not say it.")] = None,
    requirements: RequirementsFile = None,
    common: Common = Common(),
) -> None:
    """Write a workflow in another format: YAWL, BPMN, PNML, Actions, Argo, Airflow, WfCommons, Mermaid, SVG, PNG, JSON.

    A format that cannot say something refuses and names it. What the source had and a document cannot hold is told.
    """
    opened = open_workflow(source, requirements)
    document = opened.document
    if opened.requirements is not None and document.requirements is None:
        document = replace(document, requirements=opened.requirements)
    try:
        notes = (*document.notes, *write_workflow(document, target, to))
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}") from error
    if common.json:
        answer({"source": str(source), "target": str(target), "notes": list(notes)})
        return
    say(*(f"note: {note}" for note in notes), f"{target} written")


def diff(old: WorkflowFile, new: WorkflowFile, *, common: Common = Common()) -> int:
    """Tell what was added, removed, moved, and handled or chosen otherwise. The exit status is 1 if anything was."""
    found = compare_workflows(open_workflow(old).document, open_workflow(new).document)
    if common.json:
        answer({"old": str(old), "new": str(new), **found.as_dict()})
    elif found.same:
        say("they do the same" if found.by == "blocks" else "they are drawn the same")
    else:
        say(*found.lines())
    return 0 if found.same else 1


def requirements(
    source: Annotated[
        Path, Parameter(help="An event log (.csv, .xes, also .gz), a text (.txt, .md), or requirements.")
    ],
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="Where to write them: .yaml or .json.")] = None,
    column: Annotated[Words, Parameter(negative=(), help="A log's column that is called otherwise: case=Order.")] = (),
    support: Annotated[float, Parameter(help="How nearly always one comes before another to be a rule.")] = SUPPORT,
    model: Annotated[str | None, Parameter(help="provider/model that reads a text; GROUPWISE_MODEL otherwise.")] = None,
    common: Common = Common(),
) -> int:
    """Make requirements from an event log or a description; of requirements, tell whether they can be met.

    The exit status is 1 if their rules contradict each other.
    """
    found, notes = _made(source, column, support, model)
    conflicts = [str(conflict) for conflict in contradictions(found)]
    best, chain = best_cycle_time(found)
    if out is not None:
        try:
            out.write_text(_text(found, out), encoding="utf8")
        except OSError as error:
            raise StorageError(f"{out} cannot be written: {error.strerror}") from error
    if common.json:
        facts = {"contradictions": conflicts, "notes": notes, "best_cycle_time": best, "chain": chain}
        answer({"source": str(source), **facts, "requirements": found.model_dump(mode="json")})
    else:
        if out is None and not is_requirements(source):
            print(_text(found, Path("-.yaml")), end="")
        say(*(f"# note: {note}" for note in notes), *(f"# ✗ {conflict}" for conflict in conflicts))
        if chain:
            say(f"# {found.name}: no design takes less than {best:.6g} s: {' → '.join(chain)}")
    return 1 if conflicts else 0


def _made(source: Path, column: Words, support: float, model: str | None) -> tuple[Requirements, list[str]]:
    suffix = Path(source.name.lower().removesuffix(".gz")).suffix
    if suffix in (".csv", ".xes"):
        wrong = [word for word in column if "=" not in word]
        if wrong:
            raise ConfigError(f"--column {wrong[0]!r} is not NAME=COLUMN", hint="For example --column case=Order.")
        columns = dict(word.split("=", 1) for word in column)
        estimate = requirements_from_log(source, columns=columns, support=support)
        return estimate.requirements, list(estimate.notes)
    if suffix in (".txt", ".md"):
        try:
            text = source.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{source} cannot be read: {error}") from error
        return requirements_from_text(text, model), []
    if suffix in (".yaml", ".yml", ".json"):
        return read_requirements(source), []
    raise ConfigError(f"{source}: requirements cannot be made from {suffix or 'such a file'}", hint=SOURCES)


SOURCES = "From logs (.csv, .xes, gzipped too), texts (.txt, .md), or requirements (.yaml, .json)."


def _text(found: Requirements, path: Path) -> str:
    value = found.model_dump(mode="json", exclude_defaults=True)
    if path.suffix.lower() == ".json":
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    return yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
