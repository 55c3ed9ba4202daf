"""`groupwise design | feedback | requirements`: from requirements to a workflow, and back from its performance."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import yaml
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from groupwise.designer import MEMORY_FILE
from groupwise.errors import ConfigError
from groupwise.files import write_output
from groupwise.readers import decoded, read_bytes
from groupwise.reporting.command_options import Common, answer, patiently, say
from groupwise.reporting.starter import Answers, Question, Starter, StarterFiles, stem

if TYPE_CHECKING:
    from groupwise.designer.design_call import DesignReport
    from groupwise.designer.results.outcome import Generation
    from groupwise.workflows.document import Document
    from groupwise.workflows.process_mining import LogEstimate
    from groupwise.workflows.requirements import Requirements


Files = tuple[Path, ...]
Words = tuple[str, ...]


def design(
    requirements: Annotated[Path, Parameter(help="Requirements (YAML or JSON).")],
    *,
    out: Annotated[
        Files, Parameter(name=["--out", "-o"], help="File to write; the suffix decides the format. Repeatable.")
    ] = (),
    evaluations: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Designs to evaluate; by default 64, or more to beat today's design."),
    ] = None,
    choose: Annotated[
        int, Parameter(validator=Number(gte=1), help="Row of the Pareto table to write, instead of the chosen one.")
    ] = 1,
    learn: Annotated[bool, Parameter(help="Improve the policy, and save its weights.")] = False,
    memory: Annotated[
        Path | None,
        Parameter(help=f"Memory shared by calls (an SQLite file); by default {MEMORY_FILE}, if it is here."),
    ] = None,
    policy: Annotated[
        Path | None, Parameter(help="Policy weights (.safetensors) to use instead of the built-in ones.")
    ] = None,
    seed: Annotated[
        int | None, Parameter(validator=Number(gte=0), help="Random seed; the same seed gives the same designs.")
    ] = None,
    config: Annotated[
        Path | None, Parameter(help="Settings of the search, of learning and of memory: TOML, YAML, JSON or XML.")
    ] = None,
    set_: Annotated[Words, Parameter(name="--set", help="Change a setting: --set generation.batch_size=16.")] = (),
    check: Annotated[bool, Parameter(help="Simulate the best design and compare with the prediction.")] = False,
    report: Annotated[Path | None, Parameter(help="HTML report to write, such as report.html.")] = None,
    common: Common = Common(),
) -> int:
    """Design a workflow that is sound and obeys every rule, as good as the evaluations allow.

    `groupwise convert --help` lists the formats of -o. Ctrl-C ends the search and keeps the best design so far. If no
    design obeys every rule, the closest one is written as closest-NAME, and the exit status is 1. It is 2 if the
    requirements contradict each other.
    """
    from groupwise.designer.design_call import DesignOptions, DesignSettings, design_for
    from groupwise.designer.results.report import design_page, show
    from groupwise.training.stop_conditions import graceful_stop
    from groupwise.workflows.files.formats import find_format

    for path in out:
        find_format(path)
    settings = DesignSettings.read(config, set_) if config is not None or set_ else None
    asked = DesignOptions(requirements, evaluations, learn, memory, policy, seed, check, settings)
    with graceful_stop() as flag, progress(common.json, evaluations) as watch:
        found = design_for(asked, watch, lambda: flag.raised).choosing(choose)
    paths = out
    notes = list(dict.fromkeys([*found.notes, *(found.details if common.debug else ())]))
    if found.score.broken and out:
        # A design that breaks a rule must not be taken for a good one, or replace one.
        paths = tuple(path.with_name(f"closest-{path.name}") for path in out)
        kept = ", ".join(map(str, out))
        notes.append(f"{kept}: not written, because the closest design breaks a rule. It has another name.")
    notes += written(found, paths)
    if report is not None:
        write_output(report, design_page(found))
    if common.json:
        answer({**found.as_dict(), "written": [str(path) for path in paths], "notes": notes})
    else:
        if found.details and not common.debug:
            notes.append("Run again with --debug to see how they differ from the training data.")
        show(found, [*paths, *([report] if report else [])], notes, Console())
    return 130 if flag.raised else 1 if found.score.broken else 0


def written(found: DesignReport, out: Files) -> list[str]:
    """Write the design with its requirements to files; returns notes on what a format cannot express."""
    from groupwise.workflows.document import document_of
    from groupwise.workflows.files import write_workflow

    document = document_of(found.design, found.requirements)
    notes: list[str] = []
    for path in out:
        notes += write_workflow(document, path)
    return notes


@contextmanager
def progress(quiet: bool, evaluations: int | None) -> Iterator[Callable[[Generation], None]]:
    """A status line on the terminal for searches that take longer than a second."""
    console = Console(stderr=True)
    began, judged, best = time.perf_counter(), 0, 0.0
    status = console.status("", spinner="dots")

    def watch(generation: Generation) -> None:
        nonlocal judged, best
        at_work()
        judged, best = judged + generation.judged, max(best, generation.best)
        if not quiet and console.is_terminal and time.perf_counter() - began > 1:
            of = f"of {evaluations} " if evaluations is not None else ""
            status.update(f"{judged} {of}evaluations, best score {best:.3f} (Ctrl-C keeps it)")
            status.start()

    with patiently(quiet) as at_work:
        try:
            yield watch
        finally:
            status.stop()


def feedback(
    requirements: Annotated[Path, Parameter(help="The requirements of the design (YAML or JSON).")],
    design: Annotated[Path, Parameter(help="The workflow that was in production, in any format.")],
    *,
    cycle_time: Annotated[float | None, Parameter(help="Measured mean seconds per case.")] = None,
    cost: Annotated[float | None, Parameter(help="Measured mean cost per case.")] = None,
    log: Annotated[
        Path | None, Parameter(name="--from", help="Event log (CSV or XES) with times of cases and activities.")
    ] = None,
    memory: Annotated[Path, Parameter(help="The memory of `groupwise design` to store it in.")] = Path(MEMORY_FILE),
    common: Common = Common(),
) -> int:
    """Record how a design performed in production, so the next design can use it."""
    from groupwise.designer import prediction_correction as correction
    from groupwise.designer.memory import open_memory
    from groupwise.workflows.feasibility import insist_feasible
    from groupwise.workflows.inspection import open_workflow
    from groupwise.workflows.requirements import read_requirements
    from groupwise.workflows.violations import in_time

    stated = read_requirements(requirements)
    insist_feasible(stated)
    found = open_workflow(design, stated).design()
    read = correction.measured_from_log(log) if log is not None else correction.MeasuredPerformance(cycle_time, cost)
    measured = replace(read, cycle_time=cycle_time or read.cycle_time, cost=cost or read.cost)
    with open_memory(memory) as kept, patiently(common.json):
        analysis = correction.learn_from(found, stated, measured, correction.known_correction(kept, stated))
        correction.remember_correction(kept, stated, analysis.correction)
        now = correction.predict(found, stated, analysis.correction)
    if common.json:
        losses = {**asdict(analysis.losses), "total": analysis.losses.total}
        mistakes = [{**asdict(mistake), "error": mistake.error} for mistake in analysis.mistakes]
        result = {"mistakes": mistakes, "losses": losses, "correction": asdict(analysis.correction)}
        answer({**result, "cycle_time_now": now.cycle_time})
    else:
        say(*analysis.lines(), f"The predicted cycle time is now {in_time(now.cycle_time, 4)}. Stored in {memory}.")
    return 0


def requirements(
    source: Annotated[
        Path, Parameter(help="An event log (.csv, .xes, or .gz of these), a description (.txt, .md), or requirements.")
    ],
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], help="File to write: .yaml or .json.")] = None,
    column: Annotated[
        Words, Parameter(help="Where a log has its case, activity, end, start, resource or role: end=Finished.")
    ] = (),
    support: Annotated[
        float, Parameter(help="Share of cases in which A must precede B for it to become a rule.")
    ] = 0.95,
    model: Annotated[str | None, Parameter(help="provider/model that reads a text; default: GROUPWISE_MODEL.")] = None,
    common: Common = Common(),
) -> int:
    """Make requirements from an event log or a description, or check existing requirements.

    The exit status is 1 if their rules contradict each other.
    """
    from groupwise.designer.problem import DesignProblem
    from groupwise.workflows.duties import shift_notes
    from groupwise.workflows.feasibility import contradictions
    from groupwise.workflows.files import write_workflow
    from groupwise.workflows.inspection import is_requirements
    from groupwise.workflows.lower_bounds import best_cycle_time
    from groupwise.workflows.violations import in_time

    found, notes, today = _made(source, column, support, model)
    notes += shift_notes(found)
    conflicts = [str(conflict) for conflict in contradictions(found)]
    conflicts += [f"cannot be designed: {limit}" for limit in DesignProblem(found).limits if not conflicts]
    # A bound on the time means nothing if no design can exist.
    best, chain = (None, []) if conflicts else best_cycle_time(found)
    if out is not None:
        if today is not None and not conflicts:
            start = out.with_name(f"{out.stem}-today.bpmn")
            document, more = process_today(today, found, start.name)
            notes += [*more, *write_workflow(document, start)]
            found = found.model_copy(update={"start": start.name})
        write_output(out, _text(found, out))
    if common.json:
        facts = {"contradictions": conflicts, "notes": notes, "best_cycle_time": best, "chain": chain}
        answer({"source": str(source), **facts, "requirements": found.model_dump(mode="json")})
    else:
        if out is None and not is_requirements(source):
            print(_text(found, Path("-.yaml")), end="")
        say(*(f"# note: {note}" for note in notes), *(f"# ✗ {conflict}" for conflict in conflicts))
        if chain and best is not None:
            say(f"# {found.name}: no design can be faster than {in_time(best, 4)}: {' → '.join(chain)}")
    return 1 if conflicts else 0


def _made(
    source: Path, column: Words, support: float, model: str | None
) -> tuple[Requirements, list[str], LogEstimate | None]:
    """The requirements, notes, and what else a log shows."""
    from groupwise.designer.text_requirements import requirements_from_text
    from groupwise.workflows.process_mining import requirements_from_log
    from groupwise.workflows.requirements import read_requirements

    suffix = Path(source.name.lower().removesuffix(".gz")).suffix
    if suffix in (".csv", ".xes"):
        wrong = [word for word in column if "=" not in word]
        if wrong:
            raise ConfigError(f"--column {wrong[0]!r} must be NAME=COLUMN", hint="For example --column case=Order.")
        columns = dict(word.split("=", 1) for word in column)
        estimate = requirements_from_log(source, columns=columns, support=support)
        return estimate.requirements, list(estimate.notes), estimate
    if suffix in (".txt", ".md"):
        try:
            text = decoded(read_bytes(source))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}", hint=error.hint) from None
        return requirements_from_text(text, model), [], None
    if suffix in (".yaml", ".yml", ".json"):
        found = read_requirements(source)
        _check_start(source, found)
        return found, [], None
    hint = "Use a log (.csv, .xes, or .gz of these), a description (.txt, .md) or requirements (.yaml, .json)."
    raise ConfigError(f"{source}: cannot read requirements from {suffix or 'a file without a suffix'}", hint=hint)


def process_today(today: LogEstimate, asked: Requirements, name: str) -> tuple[Document, list[str]]:
    """The process as the log shows it, for designs to start from and be compared with, and notes about it."""
    from groupwise.designer.baseline import design_as_logged
    from groupwise.workflows.document import document_of
    from groupwise.workflows.evaluation import evaluate
    from groupwise.workflows.violations import in_time

    design = design_as_logged(asked, today.order)
    notes = [f"{name} is the process as it is: the usual order of the log, with everybody it shows at work"]
    predicted = evaluate(design, asked, tier="analytic").cycle_time
    if not 1 / FAR < predicted / max(today.cycle_time, 1e-9) < FAR:
        took, said = in_time(today.cycle_time, 3), in_time(predicted, 3)
        notes.append(
            f"cases took {took} in the log, but the same process is predicted to take {said}: compare designs with "
            "the prediction, not with the log, or correct it with `groupwise feedback`"
        )
    return document_of(design, asked), notes


FAR = 1.25  # how far a prediction may be from the log without a note


def _starter_question(answers: Answers) -> Question | None:
    if "process" in answers:
        return None
    words = "Which file describes the process: an event log (.csv, .xes), a workflow (.bpmn, .yawl) or a text (.txt)?"
    return Question("process", words)


def _starter_files(answers: Answers, folder: Path) -> StarterFiles:
    """Requirements made of a log, a workflow or a text, to edit and to design for."""
    from groupwise.workflows.files.formats import find_format

    source = Path(answers["process"])
    if source.suffix.lower() in (".yaml", ".yml"):
        raise ConfigError(f"{source} is requirements already", hint=f"Design for them: groupwise design {source}")
    name, start = stem(source.name.split(".")[0]), None
    files: dict[str, str] = {}
    if source.suffix.lower() in WORKFLOWS:
        found, notes = _around(source)
        start = os.path.relpath(source, folder)
    else:
        found, notes, today = _made(source, (), 0.95, None)
        if today is not None:
            start = f"{name}-today.bpmn"
            document, more = process_today(today, found, start)
            write = find_format(Path(start)).write
            assert write is not None
            files[start] = write(document).decode()
            notes += more
    text = _text(found.model_copy(update={"start": start}), Path("-.yaml"))
    files[f"{name}.yaml"] = f"# Times are in seconds. docs/workflows.md explains every field.\n{text}"
    design_it = f"groupwise design {{file}} -o {name}-better.bpmn --report {name}.html"
    commands = ("groupwise requirements {file}", design_it)
    return StarterFiles(f"{name}.yaml", files, commands, tuple(notes))


def _around(source: Path) -> tuple[Requirements, list[str]]:
    """The requirements of a workflow: its own if it has some, else its order and a guess at the rest."""
    from groupwise.designer.baseline import requirements_around
    from groupwise.workflows.inspection import open_workflow

    opened = open_workflow(source)
    if opened.requirements is not None:
        return opened.requirements, []
    note = "the workflow has no durations: each activity takes 10 minutes until you edit the file"
    return requirements_around(opened.design(), stem(source.stem)), [note]


def _starter_check(path: Path) -> list[str]:
    from groupwise.workflows.feasibility import contradictions
    from groupwise.workflows.requirements import read_requirements

    found = read_requirements(path)
    _check_start(path, found)
    conflicts = contradictions(found)
    return [f"the rules contradict each other: {conflict}" for conflict in conflicts]


WORKFLOWS = (".bpmn", ".yawl")
PROCESS = Starter(_starter_question, _starter_files, ("process",), _starter_check)


def _check_start(source: Path, found: Requirements) -> None:
    """Read the workflow to start from, so that a wrong name is found before anything is designed."""
    from groupwise.workflows.files import read_workflow

    if found.start is not None:
        try:
            read_workflow(source.parent / found.start)
        except ConfigError as error:
            raise ConfigError(f"{source}: start: {error.message}", hint=error.hint, field="start") from error


def _text(found: Requirements, path: Path) -> str:
    value = found.model_dump(mode="json", exclude_defaults=True)
    if path.suffix.lower() == ".json":
        return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    return yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
