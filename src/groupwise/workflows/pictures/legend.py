"""What the colours and signs of a drawing mean, in rows below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from groupwise.workflows.document import Document
from groupwise.workflows.graph import Graph, Rule
from groupwise.workflows.pictures.layout import MARGIN
from groupwise.workflows.pictures.shapes import Line, Oblong, Shape, Words, glyph, icon_shapes
from groupwise.workflows.pictures.text import SMALL, Icon, marks_of, shortened, width_of

ROW = 24.0
LEGEND: tuple[tuple[str, str], ...] = (
    ("xor", "one of the ways"),
    ("and", "all of the ways"),
    ("or", "one or more of the ways"),
    ("region", "cleared away together"),
    ("instances", "several at once"),
    ("retry", "further tries"),
    ("timeout", "time limit of a try"),
    ("delay", "begins later"),
    ("due", "due"),
    ("priority", "priority"),
)


def legend(
    document: Document, graphs: Sequence[Graph], pools: Mapping[str, str], width: float, top: float
) -> tuple[list[Shape], tuple[float, float]]:
    """Pools and signs that occur, in rows; the shapes and the room they take."""
    servers = dict(document.servers)
    entries = [(style, pool + (f" ({servers[pool]})" if pool in servers else "")) for pool, style in pools.items()]
    used = {sign for graph in graphs for sign in _signs(graph)}
    entries += [entry for entry in LEGEND if entry[0] in used]
    shapes: list[Shape] = []
    x, y, right = MARGIN, top + 10.0, 0.0
    for sign, words in entries:
        words = shortened(words, 28)
        step = 24 + width_of(words, SMALL) + 18
        if x > MARGIN and x + step > width - MARGIN + 18:
            x, y = MARGIN, y + ROW
        shapes += [*_sample(sign, x + 8, y), Words(x + 22, y + 4, words, "label")]
        x += step
        right = max(right, x)
    return shapes, (right + MARGIN - 18, y - top + ROW - 4) if entries else (0.0, 0.0)


def _signs(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        yield from (icon for icon, _ in marks_of(node))
        if node.cancels:
            yield "region"
        if node.kind == "task" and len(graph.into(node.id)) > 1:
            yield node.join
        if node.kind == "task" and len(graph.out_of(node.id)) > 1:
            yield node.split


def _sample(sign: str, x: float, y: float) -> Iterator[Shape]:
    if sign.startswith("pool"):
        yield Oblong(x - 7, y - 6, 14, 12, sign, 3)
    elif sign == "region":
        yield Oblong(x - 8, y - 6, 16, 12, sign, 3)
    elif sign in ("xor", "and", "or"):
        yield Line(((x, y - 9), (x + 9, y), (x, y + 9), (x - 9, y)), "gate", closed=True)
        rule: Rule = "xor" if sign == "xor" else "and" if sign == "and" else "or"
        yield from glyph(rule, x, y, 3.5)
    else:
        icon: Icon = next(known for known in _ICONS if known == sign)
        yield from icon_shapes(icon, x, y)


_ICONS: tuple[Icon, ...] = ("instances", "retry", "timeout", "delay", "due", "priority")
