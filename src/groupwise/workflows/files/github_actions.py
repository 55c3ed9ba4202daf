"""GitHub Actions: jobs that need each other, without choices, loops and retries.

A job has the name of its task, its pool as the runner's label, and its time limit; people fill in what it does. Reading
keeps names, needs, runners and time limits; `notes` list everything else.
"""

from typing import Any

from groupwise.readers import YamlDocument, open_yaml
from groupwise.workflows.blocks import PLAIN, DesignError, Handling
from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import BadFile, CannotExpress, Format
from groupwise.workflows.files.step_dag import WorkflowStep, dump_yaml, graph_of, refuse_handling, safe_names, steps_of

TITLE = "GitHub Actions"
# The runner of a job without a pool.
USUAL = "ubuntu-latest"
# Keys of a job that are read; the others are listed in notes.
KNOWN = {"name", "needs", "runs-on", "timeout-minutes", "steps"}


def write(document: Document) -> bytes:
    steps = steps_of(document, TITLE)
    names = safe_names({step.id: step.id for step in steps}, "A-Za-z0-9_-", "job", longest=100)
    jobs = {}
    for step in steps:
        refuse_handling(step, TITLE, only=("timeout", "pool"))
        for text in (step.label, step.handling.pool or "", step.documentation, document.name):
            # GitHub expands ${{ … }} in names, so a task name could read secrets.
            if "${{" in text:
                raise CannotExpress(f"{TITLE} would evaluate the '${{{{' in {text!r}", hint="Choose another name.")
        jobs[names[step.id]] = _job(step, [names[need] for need in step.needs])
    whole = {"name": document.name, "on": {"workflow_dispatch": None}, "jobs": jobs}
    comments = ("Durations, pools and demand are in the requirements.",) if document.requirements else ()
    return dump_yaml(whole, comments)


def _job(step: WorkflowStep, needs: list[str]) -> dict[str, Any]:
    job: dict[str, Any] = {"name": step.label, "runs-on": step.handling.pool or USUAL}
    if needs:
        job["needs"] = needs
    if step.handling.timeout is not None:
        # Only limits that survive the way to minutes and back are written.
        minutes = step.handling.timeout / 60
        if minutes * 60 != step.handling.timeout:
            raise CannotExpress(f"{TITLE} counts minutes, not {step.handling.timeout} s as for {step.label!r}")
        job["timeout-minutes"] = int(minutes) if minutes == int(minutes) else minutes
    job["steps"] = _what_it_does(step.label, step.documentation)
    return job


def _what_it_does(label: str, documentation: str) -> list[dict[str, Any]]:
    about = {"ABOUT": documentation} if documentation else {}
    return [{"run": 'echo "$TASK"', "env": {"TASK": label, **about}}]


def read(content: bytes) -> Document:
    file = open_yaml(content, aliases=True)
    jobs = file.value.get("jobs") if isinstance(file.value, dict) else None
    if not isinstance(jobs, dict) or not jobs:
        file.refuse("not a GitHub Actions workflow: it has no jobs", "jobs")
    name = file.value.get("name") or "workflow"
    steps, notes = [], []
    for job, body in jobs.items():
        step, left = _step(file, str(job), body)
        steps.append(step)
        notes += left
    for step in steps:
        for need in step.needs:
            if need not in {other.id for other in steps}:
                file.refuse(f"job {step.id!r} needs {need!r}, which does not exist", "jobs", step.id, "needs")
    try:
        graph = graph_of(str(name), steps)
    except BadFile as error:
        raise BadFile(f"line {file.line('jobs')}: {error.message}") from error
    # YAML 1.1 reads the bare key `on` as true.
    notes += [f"{key} is not kept" for key in file.value if key not in ("name", "jobs", "on", True)]
    return Document(str(name), (graph,), notes=tuple(notes))


def _step(file: YamlDocument, job: str, body: Any) -> tuple[WorkflowStep, list[str]]:
    at = ("jobs", job)
    if not isinstance(body, dict):
        file.refuse(f"job {job!r} must be a mapping, not {body!r}", *at)
    needs = body.get("needs", [])
    needs = [needs] if isinstance(needs, str) else needs
    if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
        file.refuse(f"the needs of job {job!r} must be names of jobs, not {needs!r}", *at, "needs")
    name = body.get("name", "")
    if not isinstance(name, str):
        file.refuse(f"the name of job {job!r} must be a string, not {name!r}", *at, "name")
    notes = [f"job {job}: {key} is not kept" for key in body if key not in KNOWN]
    # Our own placeholder step is recognised, and its description kept; other steps are not.
    about = _about(body.get("steps"))
    if "steps" in body and body["steps"] != _what_it_does(name or job, about):
        notes.append(f"job {job}: what its steps do is not kept")
        about = ""
    handling = _handling(file, job, body, notes)
    return WorkflowStep(job, "" if name == job else name, tuple(needs), handling, about), notes


def _about(steps: Any) -> str:
    first = steps[0] if isinstance(steps, list) and steps else None
    env = first.get("env") if isinstance(first, dict) else None
    about = env.get("ABOUT", "") if isinstance(env, dict) else ""
    return about if isinstance(about, str) else ""


def _handling(file: YamlDocument, job: str, body: dict[str, Any], notes: list[str]) -> Handling:
    limit, runner = body.get("timeout-minutes"), body.get("runs-on", USUAL)
    timeout = None
    if isinstance(limit, str):
        notes.append(f"job {job}: timeout-minutes {limit!r} is computed at run time, and not kept")
    elif limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < 1e9:
            said = f"timeout-minutes of job {job!r} must be above 0, not {limit!r}"
            file.refuse(said, "jobs", job, "timeout-minutes")
        timeout = limit * 60.0
    if not isinstance(runner, str):
        notes.append(f"job {job}: runs-on {runner!r} is more than one label, and not kept")
        runner = USUAL
    pool = None if runner == USUAL else runner
    try:
        return Handling(pool=pool, timeout=timeout) if pool or timeout else PLAIN
    except DesignError as error:
        raise BadFile(f"line {file.line('jobs', job)}: {error.message}") from error


FORMAT = Format(
    "actions", TITLE, (".yml", ".yaml"), lambda head: b"jobs:" in head or b"workflow_dispatch" in head, read, write
)
