"""Mermaid flowcharts have every node and every flow, and nothing that people wrote is taken for markup."""

from __future__ import annotations

import random
import re

import pytest

from groupwise.workflows.blocks import Activity, Choice, Design, Handling, Instances, Retry, Sequence
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files.mermaid import write
from groupwise.workflows.pictures.scene import without_detours
from tests.workflows.designs import random_design

TEXT = r'"(?:[^"#<>\n]|#\d+;|<br/>)*"'
NODE = re.compile(rf"  +(g\d+n\d+)(?:\({TEXT}\)|\(\({TEXT}\)\)|\(\(\({TEXT}\)\)\)|\{{{TEXT}\}}|\[\[{TEXT}\]\])")
FLOW = re.compile(rf"  +(g\d+n\d+) -->(?:\|{TEXT}\|)? (g\d+n\d+)")
OTHER = re.compile(rf"flowchart LR|  subgraph g\d+ \[{TEXT}\]|  end|  classDef \w+ [\w:#,.\- ]+|  class [\w,]+ \w+")


def parsed(document: Document) -> tuple[list[str], list[tuple[str, str]]]:
    nodes, flows = [], []
    for line in write(document).decode().splitlines():
        if found := FLOW.fullmatch(line):
            flows.append((found[1], found[2]))
        elif found := NODE.fullmatch(line):
            nodes.append(found[1])
        else:
            assert OTHER.fullmatch(line), line
    return nodes, flows


@pytest.mark.parametrize("seed", range(30))
def test_a_flowchart_has_every_node_and_flow(seed: int) -> None:
    rng = random.Random(seed)
    document = document_of(random_design(rng, rng.randint(1, 25)))
    nodes, flows = parsed(document)
    drawn = [without_detours(graph) for graph in document.graphs]
    assert len(nodes) == len(set(nodes)) == sum(len(graph.nodes) for graph in drawn)
    assert len(flows) == sum(len(graph.flows) for graph in drawn)
    assert {end for flow in flows for end in flow} <= set(nodes)


def test_names_marks_and_chances_are_there_and_nothing_breaks_out() -> None:
    nasty = 'end"]; click x "javascript:alert(1)" <b>&\n%%{init}'
    marked = Activity("b", Handling(retry=Retry(3), timeout=60))
    root = Sequence((Activity(nasty), Choice((marked, Instances(Activity("c"), 2, 3, 1)), (0.25, 0.75))))
    document = document_of(Design("d", root))
    parsed(document)
    text = write(document).decode()
    assert '-->|"b (25%)"|' in text
    assert "up to 3 retries, limit 1 min" in text
    assert "1 of 2–3 at once" in text
    assert "javascript:alert(1)" not in text.replace("#34;", '"').split('("')[0]
    assert "<b>" not in text
    assert "#34;" in text
