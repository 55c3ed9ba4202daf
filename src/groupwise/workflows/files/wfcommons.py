"""WfCommons' WfFormat 1.5: recorded runs of scientific workflows, with runtimes, files and machines.

Each task becomes an activity with its runtime as duration; it reads and writes its files (their sizes are the
requirements' `data`) and may run on any machine. A machine is a pool with one server per core. Dates, authors and
energy have no place in a document; `notes` say so.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groupwise.readers import load_json, read_bytes
from groupwise.workflows.blocks import Handling
from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import LIMITS, BadFile, CannotExpress, Format
from groupwise.workflows.files.step_dag import WorkflowStep, by_need, graph_of, refuse_handling, safe_names, steps_of
from groupwise.workflows.requirements import Duration, Pool, RequiredActivity, Requirements

TITLE = "WfFormat"
VERSION = "1.5"
UNKNOWN = "unknown"


class _Part(BaseModel):
    """Strict about types. Fields that are not kept stay in `model_extra`, and a note lists them."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Task(_Part):
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    parents: list[str]
    children: list[str]
    inputFiles: list[str] = []
    outputFiles: list[str] = []


class _File(_Part):
    id: Annotated[str, Field(min_length=1)]
    sizeInBytes: Annotated[int, Field(ge=0)]


class _Command(_Part):
    program: str = ""
    arguments: list[str] = []


class _Run(_Part):
    id: str
    runtimeInSeconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    command: _Command | None = None
    coreCount: Annotated[float | None, Field(ge=0)] = None
    memoryInBytes: Annotated[float | None, Field(ge=0)] = None
    priority: float | None = None
    machines: list[str] = []


class _Cpu(_Part):
    coreCount: Annotated[int | None, Field(ge=1)] = None


class _Machine(_Part):
    nodeName: Annotated[str, Field(min_length=1)]
    cpu: _Cpu = _Cpu()


class _Specification(_Part):
    tasks: Annotated[list[_Task], Field(min_length=1)]
    files: list[_File] = []


class _Execution(_Part):
    tasks: list[_Run]
    machines: list[_Machine] = []


class _Workflow(_Part):
    specification: _Specification
    execution: _Execution | None = None


class _Instance(_Part):
    name: Annotated[str, Field(min_length=1)]
    schemaVersion: str
    workflow: _Workflow
    description: str = ""


def read(content: bytes) -> Document:
    instance = _instance(load_json(content, LIMITS))
    tasks, execution = instance.workflow.specification.tasks, instance.workflow.execution
    _consistent(tasks)
    # Task names are labels if they are unique; otherwise ids are, and the name becomes the documentation.
    unique = len({task.name for task in tasks}) == len(tasks)
    runs = _runs(tasks, execution)
    label = {task.id: task.name if unique else task.id for task in tasks}
    steps = [
        WorkflowStep(
            task.id,
            label[task.id] if label[task.id] != task.id else "",
            tuple(task.parents),
            _handling(runs[task.id]) if execution else Handling(),
            "" if task.name == label[task.id] else task.name,
        )
        for task in tasks
    ]
    graph = graph_of(instance.name, steps, instance.description)
    requirements, servers = None, {}
    if execution is not None:
        servers = {machine.nodeName: machine.cpu.coreCount or 1 for machine in execution.machines}
        for run in runs.values():
            servers |= {name: 1 for name in run.machines if name not in servers}
        requirements = _requirements(instance, runs, label, servers)
    return Document(instance.name, (graph,), requirements, tuple(servers.items()), tuple(_notes(instance)))


def recorded_makespan(path: Path) -> float | None:
    """How many seconds the recorded run in a WfFormat file took; None if it is not such a file or does not say."""
    if path.suffix.lower() != ".json":
        return None
    value = load_json(read_bytes(path, LIMITS), LIMITS)
    workflow = value.get("workflow") if isinstance(value, dict) and "schemaVersion" in value else None
    execution = workflow.get("execution") if isinstance(workflow, dict) else None
    seconds = execution.get("makespanInSeconds") if isinstance(execution, dict) else None
    return float(seconds) if isinstance(seconds, int | float) and 0 < seconds < float("inf") else None


def _instance(value: Any) -> _Instance:
    try:
        instance = _Instance.model_validate(value)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        more = f" (and {len(others)} more)" if others else ""
        raise BadFile(f"{'.'.join(map(str, first['loc']))}: {first['msg']}{more}") from error
    if instance.schemaVersion not in ("1.4", VERSION):
        raise BadFile(f"schemaVersion: {instance.schemaVersion!r} is not supported, only {VERSION} is")
    return instance


def _consistent(tasks: list[_Task]) -> None:
    place = {task.id: number for number, task in enumerate(tasks)}
    if len(place) < len(tasks):
        twice = Counter(task.id for task in tasks).most_common(1)[0][0]
        raise BadFile(f"workflow.specification.tasks: the id {twice!r} is used twice")
    parents = {task.id: set(task.parents) for task in tasks}
    children = {task.id: set(task.children) for task in tasks}
    for at, task, other in _mentions(tasks):
        if other not in place:
            raise BadFile(f"{at}: {task!r} names {other!r}, which does not exist")
    for at, task, other in _mentions(tasks):
        if task not in (children if at.endswith("parents") else parents)[other]:
            raise BadFile(f"{at}: {task!r} names {other!r}, which does not name it back")


def _mentions(tasks: list[_Task]) -> Iterator[tuple[str, str, str]]:
    for number, task in enumerate(tasks):
        for field, others in (("parents", task.parents), ("children", task.children)):
            for other in others:
                yield f"workflow.specification.tasks.{number}.{field}", task.id, other


def _runs(tasks: list[_Task], execution: _Execution | None) -> dict[str, _Run]:
    if execution is None:
        return {}
    runs = {run.id: run for run in execution.tasks}
    known = {task.id for task in tasks}
    for number, run in enumerate(execution.tasks):
        if run.id not in known:
            raise BadFile(f"workflow.execution.tasks.{number}: {run.id!r} is not a task of the specification")
    for task in tasks:
        if task.id not in runs:
            raise BadFile(f"workflow.execution.tasks: the task {task.id!r} is missing")
    return {task.id: runs[task.id] for task in tasks}


def _handling(run: _Run) -> Handling:
    # Handling has whole priorities; a note counts the others.
    whole = run.priority is not None and run.priority == int(run.priority)
    return Handling(pool=run.machines[0] if run.machines else None, priority=int(run.priority or 0) if whole else 0)


def _requirements(
    instance: _Instance, runs: dict[str, _Run], label: dict[str, str], servers: dict[str, int]
) -> Requirements:
    specification = instance.workflow.specification
    pools = tuple(servers)
    activities = {}
    for task in specification.tasks:
        run = runs[task.id]
        command = [run.command.program, *run.command.arguments] if run.command and run.command.program else []
        activities[label[task.id]] = RequiredActivity(
            # A recorded run has exactly one observation per task.
            duration=Duration(kind="fixed", mean=run.runtimeInSeconds),
            pools=pools,
            cpu=run.coreCount or 0.0,
            memory=run.memoryInBytes or 0.0,
            reads=tuple(task.inputFiles),
            writes=tuple(task.outputFiles),
            documentation=shlex.join(command),
        )
    return Requirements(
        name=instance.name,
        activities=activities,
        pools={name: Pool(least=1, most=count, kind="machine") for name, count in servers.items()},
        data={file.id: float(file.sizeInBytes) for file in specification.files},
    )


def _notes(instance: _Instance) -> list[str]:
    execution = instance.workflow.execution
    notes = [f"{key} is not kept" for key in instance.model_extra or {}]
    notes += [f"workflow.{key} is not kept" for key in instance.workflow.model_extra or {}]
    if execution is None:
        return notes
    notes += [f"workflow.execution.{key} is not kept" for key in execution.model_extra or {}]
    for what, parts in (("tasks", execution.tasks), ("machines", execution.machines)):
        counts = Counter(key for part in parts for key in part.model_extra or {})
        notes += [f"workflow.execution.{what}: {key} of {count} is not kept" for key, count in counts.items()]
    cpus = Counter(key for machine in execution.machines for key in machine.cpu.model_extra or {})
    notes += [f"workflow.execution.machines: cpu.{key} of {count} is not kept" for key, count in cpus.items()]
    several = sum(len(run.machines) > 1 for run in execution.tasks)
    notes += [f"workflow.execution.tasks: the second machine of {several} is not kept"] if several else []
    uneven = sum(run.priority is not None and run.priority != int(run.priority) for run in execution.tasks)
    notes += [f"workflow.execution.tasks: the fraction of {uneven} priorities is not kept"] if uneven else []
    return notes


def write(document: Document) -> bytes:
    """The tasks with what the requirements say about them; without requirements, only the specification."""
    steps = steps_of(document, TITLE)
    names = safe_names({step.id: step.id for step in steps}, "A-Za-z0-9_.#-", "task", longest=200)
    known = document.requirements.activities if document.requirements else {}
    for step in steps:
        refuse_handling(step, TITLE, only=("pool", "priority") if document.requirements else ())
        _expressible(step, known.get(step.label), document)
    # WfFormat lists every dependency twice: as parent and as child.
    children: dict[str, list[str]] = {step.id: [] for step in steps}
    for step in steps:
        for need in step.needs:
            children[need].append(names[step.id])
    allowed = r"0-9a-zA-Z_./:#-"
    safe = safe_names({name: name for name in _sizes(document)}, allowed, "file", longest=250)
    files = {name: name if re.fullmatch(f"[{allowed}]+", name) else other for name, other in safe.items()}
    specification = {
        "tasks": [
            {
                "name": step.documentation or step.label,
                "id": names[step.id],
                "parents": [names[need] for need in step.needs],
                "children": children[step.id],
                "inputFiles": [files[name] for name in known[step.label].reads] if known else [],
                "outputFiles": [files[name] for name in known[step.label].writes] if known else [],
            }
            for step in steps
        ],
        "files": [{"id": files[name], "sizeInBytes": int(size)} for name, size in _sizes(document).items()],
    }
    workflow: dict[str, Any] = {"specification": specification}
    if document.requirements:
        workflow["execution"] = _execution(document, steps, names)
    whole: dict[str, Any] = {"name": document.name, "schemaVersion": VERSION, "workflow": workflow}
    if document.root.documentation:
        whole["description"] = document.root.documentation
    return (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode()


def _expressible(step: WorkflowStep, activity: RequiredActivity | None, document: Document) -> None:
    if document.requirements is None:
        return
    if activity is None:
        raise CannotExpress(f"{TITLE} needs a runtime for every task, but {step.label!r} is not in the requirements")
    if activity.duration.kind != "fixed":
        raise CannotExpress(
            f"{TITLE} has one runtime per task, but {step.label!r} has a duration of kind {activity.duration.kind}",
            hint="Use a duration of kind fixed.",
        )
    for field in ("cost", "failure", "knock_out"):
        if getattr(activity, field):
            raise CannotExpress(f"{TITLE} cannot express the {field} of {step.label!r}")


def _sizes(document: Document) -> dict[str, float]:
    """Every file that is read or written, with its size in bytes; 0 if unknown."""
    if document.requirements is None:
        return {}
    named = [n for a in document.requirements.activities.values() for n in (*a.reads, *a.writes)]
    return dict(document.requirements.data) | {name: 0.0 for name in named if name not in document.requirements.data}


def _execution(document: Document, steps: list[WorkflowStep], names: dict[str, str]) -> dict[str, Any]:
    requirements = document.requirements
    assert requirements is not None
    tasks = []
    for step in steps:
        activity = requirements.activities[step.label]
        task: dict[str, Any] = {"id": names[step.id], "runtimeInSeconds": activity.duration.mean}
        if activity.documentation:
            # The documentation of an activity read from WfFormat is its command line.
            program, *arguments = _words(activity.documentation)
            task["command"] = {"program": program, "arguments": arguments}
        task |= {"coreCount": activity.cpu} if activity.cpu else {}
        task |= {"memoryInBytes": activity.memory} if activity.memory else {}
        task |= {"priority": step.handling.priority} if step.handling.priority else {}
        task |= {"machines": [step.handling.pool]} if step.handling.pool else {}
        tasks.append(task)
    servers = {name: pool.most for name, pool in requirements.pools.items()} | dict(document.servers)
    execution: dict[str, Any] = {
        "makespanInSeconds": _longest_path(requirements, steps),  # with unlimited machines
        "executedAt": UNKNOWN,
        "tasks": tasks,
    }
    if servers:
        execution["machines"] = [{"nodeName": name, "cpu": {"coreCount": count}} for name, count in servers.items()]
    return execution


def _longest_path(requirements: Requirements, steps: list[WorkflowStep]) -> float:
    by_id = {step.id: step for step in steps}
    done: dict[str, float] = {}
    for name in by_need(steps):
        begin = max((done[need] for need in by_id[name].needs), default=0.0)
        done[name] = begin + requirements.activities[by_id[name].label].duration.mean
    return max(done.values())


def _words(documentation: str) -> list[str]:
    try:
        return shlex.split(documentation) or [documentation]
    except ValueError:
        return [documentation]


FORMAT = Format("wfcommons", TITLE, (".wfcommons.json", ".json"), lambda head: b'"schemaVersion"' in head, read, write)
