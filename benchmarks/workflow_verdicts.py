"""The verdicts on the specifications of the YAWL engine, as the table of docs/soundness.md.

    python benchmarks/workflow_verdicts.py ../shared/data/yawl/verification_cases ../shared/data/yawl/specs
    python benchmarks/workflow_verdicts.py ... --write      # put the table into docs/soundness.md

A row is a net of a file: the verdict, the broken rule, the explanation, the steps that lead there, and what the brute
force of tests/workflows/soundness/oracle.py says (— where it has too many markings, or where the structure
alone decides).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.workflows.files import read_workflow
from groupwise.workflows.graph import Graph
from groupwise.workflows.soundness.check import Soundness, check_document

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs/soundness.md"
BEGIN, END = "<!-- verdicts -->", "<!-- end of verdicts -->"


def second_opinion(graph: Graph, found: Soundness) -> str:
    from tests.workflows.soundness.oracle import TooManyMarkings, defects

    if found.rule == "structure":
        return "—"
    try:
        return ", ".join(sorted(defects(graph, 5_000))) or "sound"
    except TooManyMarkings:
        return "—"


def rows(folders: list[Path]) -> Iterator[list[str]]:
    for path in (path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in (".xml", ".yawl")):
        try:
            document = read_workflow(path)
        except ConfigError as error:
            yield [path.name, "", "refused", "", error.message, "", ""]
            continue
        verdicts = check_document(document)
        for graph in document.graphs:
            found = verdicts[graph.name]
            steps = " → ".join(found.trace)
            opinion = second_opinion(graph, found)
            yield [path.name, graph.name, found.verdict, found.rule, found.explanation, steps, opinion]


def table(folders: list[Path]) -> str:
    head = ["file", "net", "verdict", "rule", "words", "after", "brute force"]
    lines = [head, ["---"] * len(head), *rows(folders)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders with YAWL specifications")
    parser.add_argument("--write", action="store_true", help="put the table into docs/soundness.md")
    options = parser.parse_args()
    found = table(options.folders)
    print(found)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{found}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
