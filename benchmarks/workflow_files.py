"""Whether files hold: random designs written in every format, checked against its published schema, and read again.

    python benchmarks/workflow_files.py --json                       # 1,000 designs, every format
    python benchmarks/workflow_files.py --formats yawl bpmn --designs 200

Each format gets random designs of everything it has words for. A file is *valid* if the schema in `../shared/data`
(or, for what has none, Python's compiler or our own grammar) finds nothing wrong with it, and *kept* if what is read
from it, written and read again is the same; our own JSON must give the very document, YAWL and BPMN the very design.
Instances of WfCommons and YAWL specifications are read, written and read, and specifications also edited and written.
About fifteen minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from record import print_result
from rich.progress import track

from groupwise.workflows.block_form import lift
from groupwise.workflows.blocks import Activity, Block, Design, Handling, Retry, rewritten
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files import CannotExpress, pnml, read_workflow
from groupwise.workflows.files.formats import Format, formats
from groupwise.workflows.files.json_file import schema as own_schema
from groupwise.workflows.files.xml_tree import parse
from groupwise.workflows.requirements import parse_requirements
from groupwise.workflows.soundness.check import check_graph

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.workflows.designs import ALL, FLAT, random_block, random_design  # noqa: E402
from tests.workflows.files.samples import YAWL, edited  # noqa: E402
from tests.workflows.files.test_mermaid import parsed as mermaid_parsed  # noqa: E402
from tests.workflows.files.test_pnml import check_structure  # noqa: E402

DATA = next((p for parent in ROOT.parents if (p := parent / "shared/data").is_dir()), None)
ACTIONS, ARGO = "schemas/github-workflow.schema.json", "schemas/argo-workflows.schema.json"
WFFORMAT = "wfcommons/wfcommons-schema.json"
NETS = tuple(kind for kind in FLAT if kind != "cancellable")
STEPS = ("sequence", "parallel", "order")


@dataclass(frozen=True)
class Trial:
    """How designs for a format are made, what checks a file, and whether it holds all there is to a design."""

    make: Callable[[random.Random], Document]
    mistakes: Callable[[bytes], list[str]]
    lifts: bool = False


def anything(rng: random.Random) -> Document:
    return document_of(random_design(rng, rng.randint(1, 40), ALL))


def nets(rng: random.Random) -> Document:
    """What a place/transition net can do: it has no cancelling."""
    return document_of(Design("net", random_block(rng, rng.randint(1, 40), NETS)))


def steps(*, retries: bool, timed: bool) -> Callable[[random.Random], Document]:
    """Designs of tasks that need each other; `timed` ones know how long each takes."""

    def make(rng: random.Random) -> Document:
        def varied(block: Block) -> Block:
            if not isinstance(block, Activity) or timed:
                return block
            retry = Retry(rng.randint(0, 3), rng.choice([0.0, 2.5]), rng.choice([1.0, 2.0])) if retries else Retry()
            handling = Handling(pool=rng.choice([None, "gpu"]), timeout=rng.choice([None, 90.0]), retry=retry)
            return Activity(block.name, handling)

        size = rng.randint(1, 40)
        design = Design("steps", rewritten(random_block(rng, size, STEPS), varied))
        known = {
            f"a{n}": {"duration": {"kind": "fixed", "mean": rng.random()}, "reads": [f"f{n}"]} for n in range(size)
        }
        return document_of(design, parse_requirements({"name": "steps", "activities": known}) if timed else None)

    return make


@cache
def json_validator(path: str) -> Any:
    from jsonschema import Draft7Validator, Draft202012Validator

    assert DATA is not None
    return (Draft202012Validator if "argo" in path else Draft7Validator)(json.loads((DATA / path).read_text()))


def by_json_schema(path: str, load: Callable[[bytes], Any]) -> Callable[[bytes], list[str]]:
    return lambda content: [error.message for error in json_validator(path).iter_errors(load(content))]


@cache
def xml_schema(path: str) -> Any:
    from lxml import etree

    assert DATA is not None
    return etree.XMLSchema(etree.parse(str(DATA / path)))


def by_xml_schema(path: str) -> Callable[[bytes], list[str]]:
    def mistakes(content: bytes) -> list[str]:
        from lxml import etree

        found = xml_schema(path)
        return [] if found.validate(etree.fromstring(content)) else [str(error) for error in found.error_log]

    return mistakes


@cache
def our_validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(own_schema())


def by_our_schema(content: bytes) -> list[str]:
    return [error.message for error in our_validator().iter_errors(json.loads(content))]


def load_yaml(content: bytes) -> Any:
    return yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def by_python(content: bytes) -> list[str]:
    compile(content, "dag.py", "exec")
    return []


def by_structure(content: bytes) -> list[str]:
    """What the grammar of place/transition nets demands, and that the net is sound."""
    check_structure(parse(content))
    verdict = check_graph(pnml.read(content).root)
    return [] if verdict.verdict == "sound" else [verdict.explanation]


def by_nothing(content: bytes) -> list[str]:
    return []


TRIALS = {
    "yawl": Trial(anything, by_xml_schema("yawl/schema/YAWL_Schema4.0.xsd"), lifts=True),
    "bpmn": Trial(anything, by_xml_schema("schemas/bpmn20/BPMN20.xsd"), lifts=True),
    "pnml": Trial(nets, by_structure),
    "json": Trial(anything, by_our_schema),
    "mermaid": Trial(anything, by_nothing),
    "actions": Trial(steps(retries=False, timed=False), by_json_schema(ACTIONS, load_yaml)),
    "argo": Trial(steps(retries=True, timed=False), by_json_schema(ARGO, load_yaml)),
    "airflow": Trial(steps(retries=True, timed=False), by_python),
    "wfcommons": Trial(steps(retries=False, timed=True), by_json_schema(WFFORMAT, json.loads)),
}


def tried(format_: Format, trial: Trial, seed: int) -> dict[str, Any]:
    """One design: whether its file is valid, and whether it comes back."""
    document = trial.make(random.Random(f"{format_.name}/{seed}"))
    assert format_.write is not None
    try:
        content = format_.write(document)
    except CannotExpress as error:
        return {"refused": error.message}
    if format_.name == "mermaid":
        mermaid_parsed(document)
    wrong = trial.mistakes(content)
    kept = True
    if format_.read is not None:
        again = format_.read(content)
        kept = replace(format_.read(format_.write(again)), notes=()) == replace(again, notes=())
        kept = kept and (format_.name != "json" or again == document)
        kept = kept and (not trial.lifts or lift(again) == lift(document))
    return {"valid": not wrong, "kept": kept, "wrong": wrong[:1]}


def campaign(format_: Format, trial: Trial, designs: int, *, quiet: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    found = [tried(format_, trial, seed) for seed in track(range(designs), format_.name, disable=quiet)]
    written = [one for one in found if "refused" not in one]
    return {
        "designs": designs,
        "refused": designs - len(written),
        "why": next((one["refused"] for one in found if "refused" in one), ""),
        "valid": sum(one["valid"] for one in written) / max(len(written), 1),
        "kept": sum(one["kept"] for one in written) / max(len(written), 1),
        "wrong": next((one["wrong"] for one in written if one["wrong"]), []),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def instances(known: dict[str, Format], pattern: str, name: str) -> dict[str, Any]:
    """Files of other people: read, written, read again."""
    assert DATA is not None
    format_, results = known[name], {}
    assert format_.write is not None
    assert format_.read is not None
    for path in sorted(DATA.glob(pattern)):
        document = read_workflow(path)
        again = format_.read(format_.write(document))
        results[path.name] = replace(again, notes=()) == replace(document, notes=())
    return {
        "files": len(results),
        "identical": sum(results.values()),
        "not": [n for n, same in results.items() if not same],
    }


def edits(known: dict[str, Format]) -> dict[str, Any]:
    """YAWL specifications of others: read, edited in every net, and written."""
    wrong = {}
    write = known["yawl"].write
    assert write is not None
    for path in YAWL:
        document = read_workflow(path)
        changed = replace(document, graphs=tuple(edited(graph) for graph in document.graphs))
        wrong[path.name] = TRIALS["yawl"].mistakes(write(changed))
    valid = sum(not found for found in wrong.values())
    return {"files": len(wrong), "valid": valid, "not": [name for name, found in wrong.items() if found]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--designs", type=int, default=1000)
    parser.add_argument("--formats", nargs="+", default=list(TRIALS), choices=list(TRIALS))
    parser.add_argument("--json", action="store_true", help="nothing but the result")
    given = parser.parse_args()
    if DATA is None:
        raise SystemExit("shared/data with the published schemas is not beside the repository")
    known = formats()
    chosen = [name for name in given.formats if name in known]
    raw = {name: campaign(known[name], TRIALS[name], given.designs, quiet=given.json) for name in chosen}
    files = {}
    if "wfcommons" in chosen:
        files["wfcommons"] = instances(known, "wfcommons/instances/*.json", "wfcommons")
    if "yawl" in chosen:
        files["yawl"] = instances(known, "yawl/[sv]*/*.[yx]*l", "yawl")
        files["yawl_edited"] = edits(known)
    claims = {f"{name}_valid": one["valid"] for name, one in raw.items()}
    claims |= {f"{name}_kept": one["kept"] for name, one in raw.items() if known[name].read is not None}
    for name, one in files.items():
        claims |= {f"{name}_files_{what}": one[what] / one["files"] for what in ("identical", "valid") if what in one}
    if not given.json:
        for name, one in raw.items():
            print(name, one)
    print_result("workflow_files", claims, raw={"designs": raw, "files": files})


if __name__ == "__main__":
    main()
