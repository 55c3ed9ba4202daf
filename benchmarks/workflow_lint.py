"""Whether other tools accept the BPMN that we write: 200 files, linted, imported, read and validated by five of them.

    python benchmarks/workflow_lint.py --json                     # about five minutes; needs node, npm and chromium
    python benchmarks/workflow_lint.py --tools ~/lint-tools       # install once, use again

The files: the examples, the hand-made designs in `design_truth`, YAWL specifications converted to BPMN, designs of the
policy for synthetic requirements, and random designs. bpmnlint 11 checks them by its `recommended` rules, bpmn-js
imports them in a headless browser, SpiffWorkflow and pm4py read them, and lxml validates them against the schemas in
`../shared/data`. A file counts as read if every activity is there by name. What this Python lacks is installed into the
folder of `--tools`, or into a temporary one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import design_truth_cases as truth
from record import print_result
from rich.progress import track
from workflow_files import TRIALS

from groupwise.designer.generations import Generations
from groupwise.designer.policy import load_policy
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.workflows import Document, document_of, lift, open_workflow, parse_requirements, read_workflow
from groupwise.workflows.blocks import Design, activities, tidied
from groupwise.workflows.files import CannotExpress, bpmn
from groupwise.workflows.requirements import Requirements

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.workflows.designs import ALL, FLAT, random_design  # noqa: E402
from tests.workflows.files.samples import YAWL  # noqa: E402

FILES = 200
FIRST = 5_000_000_000
SIZES = (6, 12, 24, 40)
PACKAGES = ("bpmnlint@11", "bpmn-js@18")
PM4PY = "pm4py==2.7.23.11"
LINT = """
const { readFileSync } = require('node:fs');
const { BpmnModdle } = require('bpmn-moddle');
const Linter = require('bpmnlint/lib/linter');
const NodeResolver = require('bpmnlint/lib/resolver/node-resolver');
(async () => {
  const found = {};
  for (const path of JSON.parse(readFileSync(0))) {
    const { rootElement, warnings } = await new BpmnModdle().fromXML(readFileSync(path, 'utf8'));
    // Rules remember what they saw, so every file needs a linter of its own.
    const linter = new Linter({ config: { extends: 'bpmnlint:recommended' }, resolver: new NodeResolver() });
    const results = await linter.lint(rootElement);
    found[path] = warnings.map(w => ['error', 'parse', w.message]);
    for (const [rule, reports] of Object.entries(results))
      for (const one of reports) found[path].push([one.category, rule, `${one.id}: ${one.message}`]);
  }
  console.log(JSON.stringify(found));
})();
"""
IMPORT = """async text => {
  document.getElementById('canvas').innerHTML = '';
  const viewer = new BpmnJS({ container: '#canvas' });
  try {
    const { warnings } = await viewer.importXML(text);
    const drawn = viewer.get('elementRegistry').filter(e => e.type.endsWith('Task')).length;
    viewer.destroy();
    return { warnings: warnings.map(w => w.message), drawn };
  } catch (error) { return { warnings: [error.message], drawn: 0 }; }
}"""
READ_PM4PY = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import pm4py
found = {}
for path in json.load(sys.stdin):
    try:
        found[path] = [node.get_name() for node in pm4py.read_bpmn(path).get_nodes()]
    except Exception as error:
        found[path] = f"{type(error).__name__}: {error}"
print(json.dumps({"version": pm4py.__version__, "found": found}))
"""


def documents(count: int) -> Iterator[tuple[str, Document]]:
    """`count` workflows from every source that we write BPMN from."""
    yield from islice(_all(), count)


def _all() -> Iterator[tuple[str, Document]]:
    for path in sorted((ROOT / "examples/workflows").glob("*.yaml")):
        opened = open_workflow(path)
        yield f"example {path.stem}", document_of(opened.design(), opened.requirements)
    for case in truth.read_cases():
        yield f"by hand {case.name}", document_of(case.design, parse_requirements(case.requirements))
    for path in YAWL:
        document = read_workflow(path)
        try:
            bpmn.write(document)
        except CannotExpress:
            continue
        yield f"yawl {path.stem}", document
    policy = load_policy()
    for number in range(20):
        prepared = PreparedRequirements.of(random_requirements(FIRST + number, SIZES[number % len(SIZES)]))
        for place, made in enumerate(Generations(policy, prepared, seed=number).propose(4)):
            yield f"designed {number} {place}", document_of(made.design, prepared.problem.requirements)
    for number in range(FILES):
        rng = random.Random(f"lint/{number}")
        made = random_design(rng, rng.randint(1, 30), ALL if number % 2 else FLAT)
        design = Design(made.name, tidied(made.root), made.servers, made.documentation)
        yield f"random {number}", document_of(design, _chances(rng, design))


def _chances(rng: random.Random, design: Design) -> Requirements:
    """Requirements in which some activities end cases, of every kind and by people or machines."""
    kinds = (None, "human", "service", "send", "decision")
    asked = {
        one.name: {
            "kind": rng.choice(kinds),
            "duration": {"mean": 60},
            "pools": rng.choice([["clerk", "desk"], ["desk", "clerk"]]),
            "knock_out": rng.choice([0, 0, 0, 0.2]),
            "failure": rng.choice([0, 0, 0, 0.1]),
        }
        for one in activities(design.root)
    }
    pools = {"clerk": {"most": 9}, "desk": {"most": 9, "kind": "machine"}}
    return parse_requirements({"name": "random", "activities": asked, "pools": pools})


def install(folder: Path) -> Path:
    """bpmnlint and bpmn-js in the folder, and the Python that has pm4py."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed: bpmnlint and bpmn-js need Node.js 18 or later")
    if not (folder / "node_modules").is_dir():
        subprocess.run([npm, "install", "--silent", *PACKAGES], cwd=folder, check=True)
    if find_spec("pm4py") is not None:
        return Path(sys.executable)
    python = folder / "venv/bin/python"
    if not python.is_file():
        venv.create(folder / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PM4PY], check=True)
    return python


def linted(folder: Path, paths: list[str]) -> dict[str, list[list[str]]]:
    (folder / "lint.cjs").write_text(LINT)
    found = subprocess.run(["node", "lint.cjs"], cwd=folder, input=json.dumps(paths), text=True, capture_output=True)
    if found.returncode:
        sys.exit(f"bpmnlint failed: {found.stderr[-2000:]}")
    result: dict[str, list[list[str]]] = json.loads(found.stdout)
    return result


def imported(folder: Path, paths: list[str]) -> dict[str, dict[str, Any]]:
    """The warnings of bpmn-js, and how many tasks it draws."""
    from playwright.sync_api import sync_playwright

    script = (folder / "node_modules/bpmn-js/dist/bpmn-viewer.production.min.js").read_text()
    with sync_playwright() as playing:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playing.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page()
        page.set_content('<div id="canvas" style="height: 600px"></div>')
        page.add_script_tag(content=script)
        found = {path: page.evaluate(IMPORT, Path(path).read_text()) for path in paths}
        browser.close()
    return found


def read_by_spiff(path: str) -> list[str] | str:
    """The names of what SpiffWorkflow reads, in all processes; or what it says is wrong."""
    from lxml import etree
    from SpiffWorkflow.bpmn.parser.BpmnParser import BpmnParser

    try:
        root = etree.parse(path).getroot()
        parser = BpmnParser()
        parser.add_bpmn_xml(root, filename=path)
        specs = [parser.get_spec(one.get("id")) for one in root.iter("{*}process")]
        inner = [parser.get_subprocess_specs(one.name).values() for one in specs]
        every = [*specs, *(spec for some in inner for spec in some)]
        return [task.bpmn_name for spec in every for task in spec.task_specs.values() if task.bpmn_name]
    except Exception as error:  # whatever another tool cannot read is counted
        return f"{type(error).__name__}: {error}"


def read_by_pm4py(python: Path, paths: list[str]) -> tuple[str, dict[str, list[str] | str]]:
    asked = [str(python), "-c", READ_PM4PY]
    found = subprocess.run(asked, input=json.dumps(paths), text=True, capture_output=True, check=True)
    result = json.loads(found.stdout.splitlines()[-1])
    return result["version"], result["found"]


def names_of(document: Document) -> set[str]:
    return {n.label for g in document.graphs for n in g.nodes if n.kind == "task" and not n.silent and not n.calls}


def is_read(wanted: set[str], found: list[str] | str) -> bool:
    """Whether every activity is there; pm4py writes line breaks as spaces."""
    return not isinstance(found, str) and {" ".join(name.split()) for name in wanted} <= {
        " ".join(name.split()) for name in found
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--tools", type=Path, help="folder for bpmnlint, bpmn-js and pm4py")
    parser.add_argument("--keep", type=Path, help="folder for the BPMN files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        tools, kept = options.tools or Path(temporary), options.keep or Path(temporary) / "files"
        for folder in (tools, kept):
            folder.mkdir(parents=True, exist_ok=True)
        python = install(tools.resolve())
        _run(tools.resolve(), kept.resolve(), python, options.files, quiet=options.json)


def _run(tools: Path, kept: Path, python: Path, count: int, *, quiet: bool) -> None:
    written: dict[str, Document] = {}
    same = []
    for name, document in track(documents(count), "writing", total=count, disable=quiet):
        path = kept / f"{name.replace(' ', '_')}.bpmn"
        path.write_bytes(bpmn.write(document))
        written[str(path)] = document
        same.append(name.startswith("yawl") or lift(read_workflow(path)) == lift(document))
    paths = list(written)
    lint, drawn = linted(tools, paths), imported(tools, paths)
    pm4py_version, by_pm4py = read_by_pm4py(python, paths)
    spiff = {path: read_by_spiff(path) for path in paths}
    schema = {path: TRIALS["bpmn"].mistakes(Path(path).read_bytes()) for path in paths}
    every = [(path, *one) for path in paths for one in lint[path]]
    errors = [f"{Path(path).stem}: {rule}: {said}" for path, kind, rule, said in every if kind == "error"]
    warned = Counter(rule for _, kind, rule, _ in every if kind != "error")
    own = [path for path in paths if not Path(path).stem.startswith("yawl")]
    names = {path: names_of(document) for path, document in written.items()}
    bad = {
        "spiff": {path: spiff[path] for path in paths if not is_read(names[path], spiff[path])},
        "pm4py": {path: by_pm4py[path] for path in paths if not is_read(names[path], by_pm4py[path])},
        "bpmn_js": {path: drawn[path]["warnings"] for path in paths if drawn[path]["warnings"]},
        "schema": {path: schema[path] for path in paths if schema[path]},
    }
    unread = {name: [f"{Path(path).stem}: {said}"[:300] for path, said in some.items()] for name, some in bad.items()}
    claims = {
        "files": len(paths),
        "lint_errors": len(errors),
        "lint_warnings": sum(warned.values()),
        "lint_warnings_of_designs": sum(kind != "error" for path in own for kind, _, _ in lint[path]),
        "import_warnings": sum(len(drawn[path]["warnings"]) for path in paths),
        "spiff_read": len(paths) - len(unread["spiff"]),
        "pm4py_read": len(paths) - len(unread["pm4py"]),
        "xsd_valid": len(paths) - len(unread["schema"]),
        "same_design": sum(same),
    }
    versions = {
        **{name: json.loads((tools / f"node_modules/{name}/package.json").read_text())["version"]
           for name in ("bpmnlint", "bpmn-js")},
        "pm4py": pm4py_version,
        "SpiffWorkflow": version("SpiffWorkflow"),
        "lxml": version("lxml"),
    }  # fmt: skip
    raw = {"versions": versions, "errors": errors[:50], "warnings": dict(warned), "unread": unread}
    print_result("workflow_lint", claims, seeds=[FIRST], raw=raw)


if __name__ == "__main__":
    main()
