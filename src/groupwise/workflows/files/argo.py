"""Argo Workflows: one `dag` of tasks with retries, back-off and time limits; each task has its own template.

Reading keeps names, dependencies, retries, time limits and pools (as node selectors). A condition or a loop over items
is refused; `notes` list everything else.
"""

import re
from math import isfinite, nan
from typing import Any

from groupwise.readers import YamlDocument, open_yaml
from groupwise.workflows.blocks import DesignError, Handling, Retry
from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import BadFile, CannotExpress, Format
from groupwise.workflows.files.step_dag import WorkflowStep, dump_yaml, graph_of, refuse_handling, safe_names, steps_of

TITLE = "Argo"
# Annotations and a node label in which names, descriptions and pools are kept.
NAME, ABOUT, POOL = "groupwise/name", "groupwise/about", "groupwise/pool"
# A placeholder that does nothing and succeeds.
CONTAINER = {"image": "busybox:1.36", "command": ["true"]}
# What Kubernetes accepts as the value of a label.
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
# A duration as Argo writes it; seconds if there is no unit.
LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
# Keys of a task and of a template that are read; the others are listed in notes.
TASK = {"name", "template", "dependencies", "depends"}
TEMPLATE = {"name", "metadata", "container", "retryStrategy", "activeDeadlineSeconds", "nodeSelector"}
# Keys of a task that change when or how often it runs.
CONDITIONS = (
    "when", "withItems", "withParam", "withSequence", "templateRef", "inline", "continueOn", "hooks", "onExit",
)  # fmt: skip


def write(document: Document) -> bytes:
    steps = steps_of(document, TITLE)
    names = safe_names({step.id: step.id for step in steps}, "A-Za-z0-9-", "task", longest=60)
    tasks, templates = [], []
    for step in steps:
        refuse_handling(step, TITLE, only=("retry", "timeout", "pool"))
        own = names[step.id]
        task: dict[str, Any] = {"name": own, "template": f"do-{own}"}
        if step.needs:
            task["dependencies"] = [names[need] for need in step.needs]
        tasks.append(task)
        templates.append(_template(step, f"do-{own}"))
    title = safe_names({"": document.name.lower()}, "a-z0-9-", "workflow", longest=40)[""]
    whole = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": f"{title}-", "annotations": {NAME: _text(document.name)}},
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}, *templates]},
    }
    comments = ("Durations, pools and demand are in the requirements.",) if document.requirements else ()
    return dump_yaml(whole, comments)


def _text(text: str) -> str:
    # Argo expands {{ … }}, so a name could read parameters of the workflow.
    if "{{" in text:
        raise CannotExpress(f"{TITLE} would evaluate the '{{{{' in {text!r}", hint="Choose another name.")
    return text


def _template(step: WorkflowStep, name: str) -> dict[str, Any]:
    handling = step.handling
    about = {ABOUT: _text(step.documentation)} if step.documentation else {}
    template: dict[str, Any] = {"name": name, "metadata": {"annotations": {NAME: _text(step.label), **about}}}
    template["container"] = dict(CONTAINER)
    if handling.retry != Retry():
        template["retryStrategy"] = _retries(step)
    if handling.timeout is not None:
        template["activeDeadlineSeconds"] = f"{_whole(handling.timeout, step, 'a time limit')}"
    if handling.pool is not None:
        if not LABEL.fullmatch(handling.pool):
            raise CannotExpress(f"{TITLE} cannot use the pool {handling.pool!r} of {step.label!r} as a node label")
        template["nodeSelector"] = {POOL: handling.pool}
    return template


def _retries(step: WorkflowStep) -> dict[str, Any]:
    retry = step.handling.retry
    strategy: dict[str, Any] = {"limit": f"{retry.most}"}
    # Without a pause there is nothing to grow, so no backoff is written.
    if retry.pause or retry.growth != Retry().growth:
        strategy["backoff"] = {"duration": f"{retry.pause:.15g}s", "factor": f"{_whole(retry.growth, step, 'growth')}"}
        if float(f"{retry.pause:.15g}") != retry.pause or "e" in f"{retry.pause:.15g}":
            raise CannotExpress(f"{TITLE} cannot express the pause of {retry.pause} s of {step.label!r} exactly")
    return strategy


def _whole(number: float, step: WorkflowStep, what: str) -> int:
    if number != int(number):
        raise CannotExpress(f"{TITLE} needs a whole number for {what}, but that of {step.label!r} is {number}")
    return int(number)


def read(content: bytes) -> Document:
    file = open_yaml(content, aliases=True)
    whole = file.value if isinstance(file.value, dict) else {}
    if whole.get("kind") not in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate"):
        file.refuse(f"not an Argo workflow: its kind is {whole.get('kind')!r}", "kind")
    spec = _mapping(file, whole.get("spec"), "spec")
    templates = _templates(file, spec)
    main = spec.get("entrypoint")
    if not isinstance(main, str) or main not in templates:
        file.refuse(f"the entrypoint {main!r} is not a template", "spec", "entrypoint")
    number, template = templates[main]
    at = ("spec", "templates", number)
    if "dag" not in template:
        file.refuse(f"the entrypoint {main!r} has no dag, the only kind of template supported", *at)
    tasks = _mapping(file, template["dag"], *at, "dag").get("tasks")
    if not isinstance(tasks, list) or not tasks:
        file.refuse(f"the dag of {main!r} has no tasks", *at, "dag")
    notes = [f"spec.{key} is not kept" for key in spec if key not in ("entrypoint", "templates")]
    steps = [_step(file, task, templates, (*at, "dag", "tasks", spot), notes) for spot, task in enumerate(tasks)]
    metadata = _mapping(file, whole.get("metadata", {}), "metadata")
    name = _mapping(file, metadata.get("annotations", {}), "metadata", "annotations").get(NAME)
    name = name or metadata.get("name") or str(metadata.get("generateName", "workflow")).rstrip("-")
    try:
        return Document(str(name), (graph_of(str(name), steps),), notes=tuple(notes))
    except DesignError as error:
        raise BadFile(f"line {file.line(*at)}: {error.message}") from error
    except BadFile as error:
        raise BadFile(f"line {file.line(*at, 'dag')}: {error.message}") from error


def _mapping(file: YamlDocument, value: Any, *path: str | int) -> dict[str, Any]:
    if not isinstance(value, dict):
        file.refuse(f"{path[-1]} must be a mapping, not {value!r}", *path)
    return value


def _templates(file: YamlDocument, spec: dict[str, Any]) -> dict[Any, tuple[int, dict[str, Any]]]:
    found = spec.get("templates")
    if not isinstance(found, list):
        file.refuse("spec has no list of templates", "spec", "templates")
    templates = {}
    for number, template in enumerate(found):
        body = _mapping(file, template, "spec", "templates", number)
        if not isinstance(body.get("name"), str):
            file.refuse("a template has no name", "spec", "templates", number)
        templates[body["name"]] = (number, body)
    return templates


def _step(
    file: YamlDocument,
    task: Any,
    templates: dict[Any, tuple[int, dict[str, Any]]],
    at: tuple[str | int, ...],
    notes: list[str],
) -> WorkflowStep:
    body = _mapping(file, task, *at)
    name = body.get("name")
    if not isinstance(name, str):
        file.refuse("a task has no name", *at)
    for key in CONDITIONS:
        if key in body:
            file.refuse(f"task {name!r} has {key}, which is not supported", *at, key)
    notes += [f"task {name}: {key} is not kept" for key in body if key not in TASK]
    if not isinstance(body.get("template"), str) or body["template"] not in templates:
        file.refuse(f"task {name!r} has the template {body.get('template')!r}, which does not exist", *at, "template")
    number, template = templates[body["template"]]
    there = ("spec", "templates", number)
    if "dag" in template or "steps" in template:
        file.refuse(f"task {name!r} is a dag itself; only one dag is supported", *at)
    notes += [f"template {template['name']}: {key} is not kept" for key in template if key not in TEMPLATE]
    if template.get("container") not in (None, CONTAINER):
        notes.append(f"template {template['name']}: what its container does is not kept")
    metadata = _mapping(file, template.get("metadata", {}), *there, "metadata")
    annotations = _mapping(file, metadata.get("annotations", {}), *there, "metadata")
    label, about = str(annotations.get(NAME, "")), str(annotations.get(ABOUT, ""))
    handling = _handling(file, template, there)
    return WorkflowStep(name, "" if label == name else label, _needs(file, body, at), handling, about)


def _needs(file: YamlDocument, body: dict[str, Any], at: tuple[str | int, ...]) -> tuple[str, ...]:
    needs = body.get("dependencies")
    if "depends" in body:
        # `depends` is an expression; only "a && b.Succeeded && …" means the same as a list of dependencies.
        needs = [part.strip().removesuffix(".Succeeded") for part in str(body["depends"]).split("&&")]
        if any(not re.fullmatch(r"[A-Za-z0-9_-]+", need) for need in needs):
            file.refuse(f"depends {body['depends']!r} is more than names joined by &&", *at, "depends")
    needs = [] if needs is None else needs
    if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
        file.refuse(f"the dependencies of {body['name']!r} must be names, not {needs!r}", *at, "dependencies")
    return tuple(needs)


def _handling(file: YamlDocument, template: dict[str, Any], at: tuple[str | int, ...]) -> Handling:
    limit = template.get("activeDeadlineSeconds")
    timeout = None if limit is None else _number(file, limit, *at, "activeDeadlineSeconds")
    pool = _mapping(file, template.get("nodeSelector", {}), *at, "nodeSelector").get(POOL)
    if pool is not None and not isinstance(pool, str):
        file.refuse(f"the pool must be a string, not {pool!r}", *at, "nodeSelector")
    try:
        return Handling(pool=pool, retry=_retry(file, template, at), timeout=timeout)
    except DesignError as error:
        raise BadFile(f"line {file.line(*at)}: {error.message}") from error


def _retry(file: YamlDocument, template: dict[str, Any], at: tuple[str | int, ...]) -> Retry:
    if "retryStrategy" not in template:
        return Retry()
    at = (*at, "retryStrategy")
    strategy = _mapping(file, template["retryStrategy"], *at)
    backoff = _mapping(file, strategy.get("backoff", {}), *at, "backoff")
    most = _number(file, strategy.get("limit", "0"), *at, "limit")
    growth = _number(file, backoff.get("factor", "2"), *at, "backoff")
    return Retry(int(most), _length(file, backoff.get("duration", "0"), *at, "backoff"), growth)


def _number(file: YamlDocument, value: Any, *path: str | int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = nan
    if not isfinite(number):
        file.refuse(f"{path[-1]} must be a number, not {value!r}", *path)
    return number


def _length(file: YamlDocument, value: Any, *path: str | int) -> float:
    found = LENGTH.fullmatch(str(value))
    if found is None:
        file.refuse(f"a duration must be like 30s, 5m or 1h, not {value!r}", *path)
    return float(found[1]) * UNITS[found[2]]


FORMAT = Format(
    "argo", TITLE, (".argo.yaml", ".argo.yml", ".yaml", ".yml"), lambda head: b"argoproj.io" in head, read, write
)
