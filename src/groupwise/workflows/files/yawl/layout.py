"""The layout section of YAWL files: kept with the nodes and flows it draws, and made for those without."""

from dataclasses import replace

from groupwise.workflows.document import Document
from groupwise.workflows.files.xml_tree import place
from groupwise.workflows.files.yawl.vocabulary import YAWL, el
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.pictures.drawing_layout import placed
from groupwise.xml_reader import COMMENT, Element, first

# Pixels, as the YAWL editor draws tasks and the decorators of their joins and splits.
SIZE = 32.0
DECORATOR = 11.0
LABEL_WIDTH, LABEL_HEIGHT = 96.0, 18.0
# The sides of a task, as the editor numbers them: joins on the left, splits on the right.
LEFT, RIGHT = "12", "13"
# The locale decides how the editor reads decimal points.
LOCALE = ("en", "GB")


def layout_of(document: Document, uri: str, nets: list[str], ids: list[dict[str, str]]) -> Element:
    """The layout of all nets: as it was read, plus new nodes and flows, minus those that are gone."""
    frame = first(document.extras, "layout", YAWL)
    drawn = [_net(graph, net, names) for graph, net, names in zip(document.graphs, nets, ids, strict=True)]
    locale = frame.find("locale") if frame is not None else None
    old = frame.find("specification") if frame is not None else None
    size = old.find("size") if old is not None else None
    font = old.all("labelFontSize") if old is not None else ()
    own = el("specification", size or el("size", w="800", h="600"), *drawn, *font)
    attributes = (("id", uri), *(old.attributes if old is not None else ()))
    plain = el("locale", language=LOCALE[0], country=LOCALE[1])
    return el("layout", locale or plain, replace(own, attributes=attributes))


def _net(graph: Graph, net: str, ids: dict[str, str]) -> Element:
    carried = first(graph.extras, "net", YAWL)
    middles = placed(graph, {node.id: at for node in graph.nodes if (at := _drawn_at(node)) is not None})
    vertices = [_vertex(graph, node, ids[node.id], middles[node.id]) for node in graph.nodes]
    flows = [_flow(flow, ids) for flow in graph.flows]
    if carried is None:
        width = str(round(max(x for x, _ in middles.values())) + 120)
        height = str(round(max(y for _, y in middles.values())) + 120)
        frame = tuple(el(name, x="0", y="0", w=width, h=height) for name in ("bounds", "frame", "viewport"))
    else:
        frame = carried.children
    attributes = (("id", net), *(carried.attributes if carried is not None else ()))
    return Element(f"{{{YAWL}}}net", attributes, "", (*frame, *vertices, *flows))


def _drawn_at(node: Node) -> tuple[float, float] | None:
    carried = first(node.extras, "container", YAWL) or first(node.extras, "vertex", YAWL)
    vertex = carried.find("vertex") if carried is not None and carried.name == "container" else carried
    attributes = vertex.find("attributes") if vertex is not None else None
    bounds = attributes.find("bounds") if attributes is not None else None
    if bounds is None:
        return None
    try:
        # A layout with numbers that nobody can read is treated as missing.
        x, y, w, h = (_number(bounds.get(name)) for name in ("x", "y", "w", "h"))
    except ValueError:
        return None
    return x + w / 2, y + h / 2


def _number(text: str) -> float:
    """A number in any country's notation: 1,247.5 or 1247,5."""
    whole, comma, rest = text.rpartition(",")
    return float(text.replace(",", "") if "." in rest or len(rest) == 3 else f"{whole}.{rest}" if comma else text)


def _vertex(graph: Graph, node: Node, name: str, middle: tuple[float, float]) -> Element:
    carried = first(node.extras, "container", YAWL) or first(node.extras, "vertex", YAWL)
    if carried is not None:
        children = tuple(_matching(part, node) for part in carried.children)
        return Element(carried.tag, (("id", name),), carried.text, children)
    x, y = middle[0] - SIZE / 2, middle[1] - SIZE / 2
    vertex = el("vertex", el("attributes", _bounds(x, y, SIZE, SIZE)))
    if node.kind != "task" and not node.name:
        return vertex.with_attributes(id=name)
    parts = [vertex]
    if node.kind == "task" and len(graph.into(node.id)) > 1:
        parts.append(_decorator(f"{node.join.upper()}_join", LEFT, x - DECORATOR + 1, y))
    if node.kind == "task" and len(graph.out_of(node.id)) > 1:
        parts.append(_decorator(f"{node.split.upper()}_split", RIGHT, x + SIZE - 1, y))
    label = _bounds(middle[0] - LABEL_WIDTH / 2, y + SIZE + 1, LABEL_WIDTH, LABEL_HEIGHT)
    return el("container", *parts, el("label", el("attributes", label)), id=name)


def _matching(part: Element, node: Node) -> Element:
    if part.name != "decorator":
        return part
    side = part.get("type").partition("_")[2]
    shown = f"{(node.join if side == 'join' else node.split).upper()}_{side}"
    return replace(part, attributes=tuple((n, shown if n == "type" else v) for n, v in part.attributes))


def _decorator(kind: str, position: str, x: float, y: float) -> Element:
    attributes = el("attributes", _bounds(x, y, DECORATOR, SIZE), el("size", w=f"{DECORATOR:g}", h=f"{SIZE:g}"))
    return el("decorator", el("position", text=position), attributes, type=kind)


def _bounds(x: float, y: float, width: float, height: float) -> Element:
    """Whole numbers, because the editor reads fractions in the notation of the file's country."""
    return el("bounds", x=f"{x:.0f}", y=f"{y:.0f}", w=f"{width:.0f}", h=f"{height:.0f}")


def _flow(flow: Flow, ids: dict[str, str]) -> Element:
    carried = first(flow.extras, "flow", YAWL)
    line = el("attributes", el("lineStyle", text="11"))
    parts = (el("ports", **{"in": RIGHT, "out": LEFT}), line) if carried is None else carried.children
    return el("flow", *parts, source=ids[flow.source], target=ids[flow.target])


def attach_layout(
    document: Document, layout: Element, uri: str, nets: list[str], ids: list[dict[str, str]]
) -> tuple[Document, list[str]]:
    """The document with its layout, and notes on what the layout draws but the nets do not have."""
    own = next((one for one in layout.all("specification") if one.get("id") == uri), None)
    if own is None:
        return document, [f"{place(layout)}the layout is left out: it draws no specification {uri!r}"]
    if _is_ours(document, layout, uri, nets, ids):
        return document, []
    by_net = {one.get("id"): one for one in own.all("net")}
    notes: list[str] = []
    graphs = []
    for graph, net, names in zip(document.graphs, nets, ids, strict=True):
        drawn = by_net.pop(net, None)
        graphs.append(graph if drawn is None else _attach(graph, drawn, names, notes))
    notes += [f"{place(one)}the layout of {name!r} is left out: there is no such net" for name, one in by_net.items()]
    bare = tuple(part for part in own.children if part.name in ("size", "labelFontSize"))
    attributes = tuple(pair for pair in own.attributes if pair[0] != "id")
    kept = tuple(part for part in layout.children if part.name == "locale")
    frame = el("layout", *kept, replace(own, attributes=attributes, children=bare))
    return replace(document, graphs=tuple(graphs), extras=(*document.extras, frame)), notes


def _is_ours(document: Document, layout: Element, uri: str, nets: list[str], ids: list[dict[str, str]]) -> bool:
    locale = layout.find("locale")
    if locale is None or (locale.get("language"), locale.get("country")) != LOCALE:
        return False
    # `ids` map from the file to the graph; the writer needs them the other way round.
    written = [{new: old for old, new in names.items()} for names in ids]
    return layout_of(document, uri, nets, written) == layout


def _attach(graph: Graph, drawn: Element, names: dict[str, str], notes: list[str]) -> Graph:
    boxes: dict[str, Element] = {}
    lines: dict[tuple[str, str], Element] = {}
    frame = []
    for part in drawn.children:
        if part.name in ("vertex", "container") and part.get("id") in names:
            boxes[names[part.get("id")]] = replace(part, attributes=())
        elif part.name == "flow" and part.get("source") in names and part.get("target") in names:
            lines[names[part.get("source")], names[part.get("target")]] = replace(part, attributes=())
        elif part.name in ("vertex", "container", "flow"):
            notes.append(f"{place(part)}the layout draws a {part.name} that is not in the net {graph.name!r}")
        elif part.tag != COMMENT:
            frame.append(part)
    flows = tuple(
        replace(f, extras=(*f.extras, lines.pop((f.source, f.target)))) if (f.source, f.target) in lines else f
        for f in graph.flows
    )
    notes += [f"{place(e)}the layout draws a flow {a!r} → {b!r} that does not exist" for (a, b), e in lines.items()]
    nodes = tuple(replace(n, extras=(*n.extras, boxes[n.id])) if n.id in boxes else n for n in graph.nodes)
    attributes = tuple(pair for pair in drawn.attributes if pair[0] != "id")
    net = Element(f"{{{YAWL}}}net", attributes, "", tuple(frame))
    return replace(graph, nodes=nodes, flows=flows, extras=(*graph.extras, net))
