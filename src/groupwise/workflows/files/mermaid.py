"""Mermaid flowcharts, which Markdown renderers draw; written only."""

from collections.abc import Iterator

from groupwise.workflows.document import Document
from groupwise.workflows.files.formats import Format
from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.pictures.labels import flow_label, is_event, marks_of
from groupwise.workflows.pictures.scene import pool_of, pool_styles, shown
from groupwise.workflows.pictures.shapes import INK, STYLES

RULES = {"and": "+", "xor": "×", "or": "○"}
MARKS = {
    "instances": "{} at once",
    "retry": "up to {} retries",
    "timeout": "limit {}",
    "delay": "{} later",
    "due": "due {}",
    "priority": "priority {}",
}


def write(document: Document) -> bytes:
    """A flowchart from left to right; several graphs become subgraphs."""
    graphs = [shown(graph, document.requirements) for graph in document.graphs]
    lines = ["flowchart LR"]
    for number, graph in enumerate(graphs):
        lines += [f"  subgraph g{number} [{_quoted(graph.name)}]"] if len(graphs) > 1 else []
        lines += [f"  {line}" for line in _graph(graph, f"g{number}n")]
        lines += ["  end"] if len(graphs) > 1 else []
    lines += [f"  {line}" for line in _classes(document, graphs)]
    return ("\n".join(lines) + "\n").encode()


def _classes(document: Document, graphs: list[Graph]) -> Iterator[str]:
    pools = pool_styles(document)
    members: dict[str, list[str]] = {}
    for number, graph in enumerate(graphs):
        cleared = {name for node in graph.nodes for name in node.cancels}
        for place, node in enumerate(graph.nodes):
            for style in (pools.get(pool_of(document, node), ""), "cleared" if node.id in cleared else ""):
                members.setdefault(style, []).append(f"g{number}n{place}")
    for style in sorted(members.keys() - {""}):
        look = "stroke-dasharray:6 4"
        if style in STYLES:
            look = f"fill:{STYLES[style].fill[0]},stroke:{STYLES[style].stroke[0]},color:{INK[0]}"
        yield f"classDef {style} {look}"
        yield f"class {','.join(members[style])} {style}"


def _graph(graph: Graph, prefix: str) -> Iterator[str]:
    name = {node.id: f"{prefix}{number}" for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        yield name[node.id] + _shape(graph, node)
    for flow in graph.flows:
        label = flow_label(flow)
        arrow = f"-->|{_quoted(label)}|" if label else "-->"
        yield f"{name[flow.source]} {arrow} {name[flow.target]}"


def _shape(graph: Graph, node: Node) -> str:
    if node.kind == "end":
        return f"((({_quoted(node.name or ' ')})))"
    if is_event(node):
        ends = any(graph.by_id[flow.target].kind == "end" for flow in graph.out_of(node.id))
        return f"((({_quoted(node.name or ' ')})))" if ends else f"(({_quoted(node.name or ' ')}))"
    if node.kind != "task":
        return f"(({_quoted(node.name or ' ')}))"
    if node.silent:
        joins, splits = len(graph.into(node.id)) > 1, len(graph.out_of(node.id)) > 1
        rules = dict.fromkeys([RULES[node.join]] * joins + [RULES[node.split]] * splits)
        words = " ".join([*([node.name] if node.name else []), *rules]) or "cancel"
        return f"{{{_quoted(words)}}}"
    marks = ", ".join(MARKS[icon].format(text) for icon, text in marks_of(node))
    text = _quoted(node.label) if not marks else f'{_quoted(node.label)[:-1]}<br/>{_escaped(marks)}"'
    return f"[[{text}]]" if node.calls else f"({text})"


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Text in which every character that is special in Mermaid, Markdown or HTML is a character code."""
    plain = " ".join(text.split())
    # #38; and the like are understood by Mermaid inside quotes.
    return "".join(c if c.isalnum() or c in " .,:;!?()+-–=×○%/…" else f"#{ord(c)};" for c in plain) or " "


FORMAT = Format("mermaid", "Mermaid", (".mmd", ".mermaid"), write=write, picture=True)
