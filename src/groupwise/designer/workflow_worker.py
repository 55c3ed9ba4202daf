"""The worker process for workflows: it designs, edits, checks, simulates and converts, one request at a time.

Each request gets a temporary folder for its files. Requirements may name a starting workflow only if the request
includes it: a request never makes the service read a file of its machine.
"""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from groupwise.designer.baseline import with_pools
from groupwise.designer.design_call import DesignOptions, design_for
from groupwise.errors import ConfigError
from groupwise.readers import load_yaml
from groupwise.training.events import plain
from groupwise.worker_process import Operation, by_operation
from groupwise.workflows.blocks import Design, DesignError
from groupwise.workflows.blocks import activities as walk_activities
from groupwise.workflows.differences import compare_workflows
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.editing import (
    RULES,
    Assessment,
    Edited,
    applied,
    as_written,
    assess,
    chances,
    edit_of,
    in_words,
)
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.performance import unknown_performance
from groupwise.workflows.evaluation.simulation import simulate as simulate_events
from groupwise.workflows.feasibility import insist_feasible
from groupwise.workflows.files import read_workflow, write_workflow
from groupwise.workflows.files.formats import find_format, formats
from groupwise.workflows.inspection import Opened, inspect_workflow, open_workflow
from groupwise.workflows.pictures.animation import animation_svg
from groupwise.workflows.pictures.figures import queues
from groupwise.workflows.pictures.summary import is_large
from groupwise.workflows.pictures.svg import svg, svg_of
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_document

REQUIREMENTS = "requirements.json"
MOST_SHOWN = 300  # tries in the pictures of a simulation
Asked = Mapping[str, Any]


def design(asked: Asked) -> dict[str, Any]:
    """The best design found, with a picture and the document for downloads."""
    start = _written_workflow(asked)
    _written_requirements(asked, start)
    request = DesignOptions(Path(REQUIREMENTS), asked["evaluations"], seed=asked["seed"], check=asked["check"])
    found = design_for(request, lambda generation: None, lambda: False)
    document = document_of(found.design, found.requirements)
    today = "" if start is None else svg(read_workflow(start))
    return {**found.as_dict(), "notes": list(found.notes), "today_svg": today, **_shown(document)}


def edit(asked: Asked) -> dict[str, Any]:
    """A workflow after edits: drawn, with its score and the rules it breaks, beside what it was before."""
    opened = _opened(asked)
    wanted = opened.insist_on_requirements("editing")
    before = Edited(with_pools(opened.design(), wanted), wanted)
    edits = [edit_of(one) for one in asked["edits"]]
    after = applied(before.design, wanted, edits)
    document = document_of(after.design, after.requirements)
    pools = {
        name: {"count": dict(after.design.servers).get(name, 1), "least": pool.least, "most": pool.most}
        for name, pool in after.requirements.pools.items()
    }
    activities = {
        one.name: {"pool": one.handling.pool, "pools": list(known.pools) if known else []}
        for one in walk_activities(after.design.root)
        for known in [after.requirements.activities.get(one.name)]
    }
    key = (asked["workflow"], json.dumps(as_written(wanted)), asked["seed"])
    return {
        **_assessed(assess(after, seed=asked["seed"])),
        "before": _before(*key),
        "edits": in_words(edits), "changes": list(compare_workflows(before.design, after.design).sentences()),
        "pools": pools, "activities": activities, "chances": chances(after.requirements), "rules": list(RULES),
        "requirements": as_written(after.requirements), **_shown(document),
    }  # fmt: skip


def _assessed(found: Assessment) -> dict[str, Any]:
    told = {"score": None, "groups": {}, "explanation": None} if found.score is None else found.score.as_dict()
    return {
        **told,
        "ok": not found.broken and not found.conflicts,
        "broken": [asdict(violation) for violation in found.broken],
        "contradictions": [{"words": one.words, "rules": list(map(str, one.statements))} for one in found.conflicts],
        "performance": asdict(found.performance) if found.performance else None,
    }


@lru_cache(maxsize=16)
def _before(workflow: str, requirements: str, seed: int) -> dict[str, Any]:
    """The same workflow before the first edit, which is asked for with every edit."""
    opened = _opened({"workflow": workflow, "requirements": json.loads(requirements)})
    wanted = opened.insist_on_requirements("editing")
    design = with_pools(opened.design(), wanted)
    found = _assessed(assess(Edited(design, wanted), seed=seed))
    return {
        **{name: found[name] for name in ("ok", "score", "broken", "performance")},
        "svg": svg(document_of(design, wanted)),
    }


def check(asked: Asked) -> dict[str, Any]:
    opened = _opened(asked)
    return {**inspect_workflow(opened).as_dict(), "name": opened.document.name, "svg": svg(_with_requirements(opened))}


def simulate(asked: Asked) -> dict[str, Any]:
    opened = _opened(asked)
    wanted = opened.insist_on_requirements("a simulation")
    insist_feasible(wanted)
    blocks = opened.design()
    if broken := [asdict(violation) for violation in broken_rules(blocks, wanted)]:
        return {**unknown_performance(), "broken": broken, "ok": False}
    found = evaluate(blocks, wanted, tier=asked["tier"], seed=asked["seed"], cases=asked["cases"])
    broken = [asdict(violation) for violation in broken_rules(blocks, wanted, found.cycle_time)]
    shown = _pictures(opened.document, blocks, wanted, asked["seed"]) if asked.get("pictures") else {}
    return {**asdict(found), "broken": broken, "ok": not broken, "pictures": shown}


def _pictures(document: Document, design: Design, wanted: Requirements, seed: int) -> dict[str, str]:
    """The first cases as moving tokens, unless the workflow is too large to be drawn, and the queues of the pools."""
    encoded = encode(design, wanted)
    cases = max(20, min(MOST_SHOWN, 20 * MOST_SHOWN // encoded.size))
    tries = simulate_events(encoded, cases, seed, trace=MOST_SHOWN).trace
    found = {}
    if not is_large(document):
        found["tokens"] = animation_svg(replace(document, requirements=wanted), tries, most=MOST_SHOWN)
    if any(one.pool is not None for one in tries):
        found["queues"] = svg_of(queues(tries))
    return found


def convert(asked: Asked) -> dict[str, Any]:
    return _file(_with_requirements(_opened(asked)), asked["to"])


def download(asked: Asked) -> dict[str, Any]:
    """An earlier design in the requested format."""
    Path("design.json").write_text(asked["document"], encoding="utf8")
    return _file(read_workflow("design.json", "json"), asked["to"])


def known_formats(asked: Asked) -> dict[str, Any]:
    known = [
        {
            "name": one.name, "title": one.title, "suffix": one.suffixes[0], "reads": one.read is not None,
            "writes": one.write is not None,
        }
        for one in formats().values()
    ]  # fmt: skip
    return {"formats": known}


def _with_requirements(opened: Opened) -> Document:
    """The document with the requirements that were given, unless it has its own."""
    if opened.requirements is None or opened.document.requirements is not None:
        return opened.document
    return replace(opened.document, requirements=opened.requirements)


def _opened(asked: Asked) -> Opened:
    file = _written_workflow(asked)
    if file is None:
        hint = "Send the workflow's text as `workflow`."
        raise ConfigError("the request has no workflow", hint=hint, field="workflow")
    return open_workflow(file, _written_requirements(asked, file) if asked.get("requirements") is not None else None)


def _written_workflow(asked: Asked) -> str | None:
    """Write the workflow to a file; its format is the one named, or is detected."""
    if asked.get("workflow") is None:
        return None
    content = asked["workflow"].encode("utf8", "replace")
    try:
        found = find_format(Path("workflow"), name=asked.get("format"), head=content[:4096])
    except ConfigError as error:
        raise ConfigError(f"format: {error.message}", hint=f"One of {', '.join(formats())}.", field="format") from None
    name = f"workflow{found.suffixes[0]}"
    Path(name).write_bytes(content)
    return name


def _written_requirements(asked: Asked, start: str | None) -> Requirements:
    """Write the requirements to a file."""
    given = asked["requirements"]
    value: Any = load_yaml(given.encode("utf8", "replace"), aliases=True) if isinstance(given, str) else dict(given)
    if isinstance(value, dict) and start is not None:
        value["start"] = start
    elif isinstance(value, dict) and value.get("start") is not None:
        raise ConfigError(
            f"start = {value['start']!r:.80} names a file, but the service does not read files of its machine",
            hint="Send the starting workflow as `workflow`, or leave `start` out.",
            field="start",
        )
    requirements = parse_requirements(value)
    Path(REQUIREMENTS).write_text(requirements.model_dump_json(exclude_defaults=True), encoding="utf8")
    return requirements


def _shown(document: Document) -> dict[str, Any]:
    write_workflow(document, "design.json", "json")
    sound = all(verdict.sound for verdict in check_document(document).values())
    text = Path("design.json").read_text("utf8")
    result = {"name": document.name, "sound": sound, "svg": svg(document), "document": text}
    return {**result, "cannot": _cannot(document)}


def _cannot(document: Document) -> dict[str, str]:
    """Formats that cannot express this design, and why. Pictures can express any."""
    found = {}
    for one in formats().values():
        if one.write is not None and one.name not in ("svg", "png"):
            try:
                one.write(document)
            except DesignError as error:
                found[one.name] = error.message
    return found


def _file(document: Document, to: str) -> dict[str, Any]:
    found = find_format(Path("workflow"), name=to)
    name = f"workflow{found.suffixes[0]}"
    notes = write_workflow(document, name, to)
    content = base64.b64encode(Path(name).read_bytes()).decode("ascii")
    return {"content": content, "suffix": found.suffixes[0], "name": document.name, "notes": list(notes)}


@contextmanager
def _own_folder() -> Iterator[None]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="groupwise-") as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _handler(work: Callable[[Asked], dict[str, Any]], one_at_a_time: asyncio.Lock) -> Operation:
    def do(asked: Asked) -> Any:
        with _own_folder():
            return plain(work(asked))

    async def handle(asked: Asked) -> AsyncIterator[Any]:
        async with one_at_a_time:
            yield await asyncio.to_thread(do, asked)

    return handle


def make_handler() -> Callable[..., Any]:
    """What `Sidecar` starts the process with."""
    lock = asyncio.Lock()
    works = {
        "design": design, "edit": edit, "check": check, "simulate": simulate, "convert": convert, "download": download,
        "formats": known_formats,
    }  # fmt: skip
    return by_operation({name: _handler(work, lock) for name, work in works.items()})
