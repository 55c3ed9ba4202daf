"""PNML: place/transition nets, read as graphs of conditions and tasks.

A net has no probabilities, people or time, so only the control flow is written.
"""

from groupwise.workflows.document import Document
from groupwise.workflows.endings import without_endings
from groupwise.workflows.files.formats import BadFile, CannotExpress, Format
from groupwise.workflows.files.xml_tree import parse, place, serialise, xml_names
from groupwise.workflows.graph import ONCE, Flow, Graph, Node
from groupwise.workflows.pictures.drawing_layout import Point, layout
from groupwise.workflows.soundness.net import Net, graph_net
from groupwise.xml_reader import Element

PNML = "http://www.pnml.org/version-2009/grammar/pnml"
PT_NET = "http://www.pnml.org/version-2009/grammar/ptnet"
# How ProM marks silent transitions; other tools follow it.
INVISIBLE = "$invisible$"
# Arc types of extended nets, whose meaning a workflow net does not have.
_OTHER_ARCS = ("inhibitor", "reset", "read", "test")


def write(document: Document) -> bytes:
    graph = without_endings(document.root)
    _refuse(graph)
    # A graph that came from PNML is written as it is; any other through its net.
    shown = graph if _is_net(graph) else as_graph(document.name, graph_net(graph).net)
    drawn = {name: box.middle for name, box in layout(shown).boxes.items()}
    ids = xml_names([node.id for node in shown.nodes])
    nodes = [_node(node, ids[node.id], drawn[node.id]) for node in shown.nodes]
    arcs = [
        _el("arc", id=f"arc_{number}", source=ids[flow.source], target=ids[flow.target])
        for number, flow in enumerate(shown.flows)
    ]
    net = _el("net", _named(document.name), _el("page", *nodes, *arcs, id="page"), id="net", type=PT_NET)
    root = _el("pnml", net)
    return serialise(Element(root.tag, root.attributes, "", root.children, prefixes=(("", PNML),)))


def _refuse(graph: Graph) -> None:
    for node in graph.nodes:
        said = f"{graph.name}: {node.label!r}"
        if node.calls:
            raise CannotExpress(f"{said} calls {node.calls!r}, but a place/transition net has no calls")
        if node.cancels:
            raise CannotExpress(f"{said} cancels others, which a place/transition net cannot express")
        if node.copies != ONCE:
            raise CannotExpress(f"{said} has several instances, which a place/transition net cannot express")
        if node.kind == "task" and node.join == "or" and len(graph.into(node.id)) > 1:
            raise CannotExpress(f"{said} is an or-join, which a place/transition net cannot express")


def _is_net(graph: Graph) -> bool:
    kinds = {node.id: node.kind == "task" for node in graph.nodes}
    plain = all(node.join == node.split == "and" for node in graph.tasks)
    return plain and all(kinds[flow.source] != kinds[flow.target] for flow in graph.flows)


def _el(name: str, /, *children: Element, text: str = "", **attributes: str) -> Element:
    return Element(f"{{{PNML}}}{name}", tuple(attributes.items()), text, children)


def _named(name: str) -> Element:
    return _el("name", _el("text", text=name))


def _node(node: Node, name: str, at: Point) -> Element:
    graphics = _el("graphics", _el("position", x=f"{at[0]:.1f}", y=f"{at[1]:.1f}"))
    called = [_named(node.name)] if node.name else []
    if node.kind == "task":
        quiet = [_el("toolspecific", tool="ProM", version="6.4", activity=INVISIBLE)] if node.silent else []
        return _el("transition", *called, graphics, *quiet, id=name)
    marked = [_el("initialMarking", _el("text", text="1"))] if node.kind == "start" else []
    return _el("place", *called, graphics, *marked, id=name)


def as_graph(name: str, net: Net) -> Graph:
    """A net as a graph: places become conditions, transitions become tasks that join and split by and."""
    places = [f"p{number}" for number in range(len(net.places))]
    ends = {net.source: "start", net.sink: "end"}
    nodes = [Node(f"p{n}", net.places[n], kind=ends.get(n, "condition")) for n in range(len(net.places))]  # type: ignore[arg-type]
    flows = []
    for number, step in enumerate(net.transitions):
        here = f"t{number}"
        nodes.append(Node(here, step.label or step.name, join="and", split="and", silent=not step.label))
        flows += [Flow(places[n], here) for n in range(len(places)) if step.takes >> n & 1]
        flows += [Flow(here, places[n]) for n in range(len(places)) if step.puts >> n & 1]
    return Graph(name, tuple(nodes), tuple(flows))


def read(content: bytes) -> Document:
    root = parse(content)
    if root.name != "pnml":
        raise BadFile(f"{place(root)}the root element is <{root.name}>, but a PNML file has <pnml>")
    nets = root.all("net")
    if len(nets) != 1:
        raise BadFile(f"{place(root)}a file must have one net, not {len(nets)}")
    return _Reading(nets[0]).document()


class _Reading:
    def __init__(self, net: Element) -> None:
        self.net = net
        self.places: dict[str, Element] = {}
        self.transitions: dict[str, Element] = {}
        self.arcs: list[Element] = []
        self.notes: list[str] = []
        self._collect(net)

    def _collect(self, holder: Element) -> None:
        for part in holder.parts:
            name = part.get("id")
            if part.name in ("place", "transition"):
                if not name or name in self.places or name in self.transitions:
                    raise BadFile(f"{place(part)}the id {name!r} of a {part.name} is missing or used twice")
                (self.places if part.name == "place" else self.transitions)[name] = part
            elif part.name == "arc":
                self.arcs.append(part)
            elif part.name == "page":
                self._collect(part)
            elif part.name in ("referencePlace", "referenceTransition"):
                raise BadFile(f"{place(part)}<{part.name}> {name!r}: references are not supported")
            elif part.name not in ("name", "graphics", "toolspecific", "finalmarkings"):
                self.notes.append(f"{place(part)}<{part.name}> is left out")

    def document(self) -> Document:
        flows = tuple(self._flow(arc) for arc in self.arcs)
        targets, sources = {flow.target for flow in flows}, {flow.source for flow in flows}
        start = self._only([name for name in self.places if name not in targets], "start")
        end = self._only([name for name in self.places if name not in sources], "end")
        self._check_marking(start)
        nodes = []
        for name, part in self.places.items():
            kind = "start" if name == start else "end" if name == end else "condition"
            nodes.append(Node(name, _name_of(part), kind=kind))  # type: ignore[arg-type]
        for name, part in self.transitions.items():
            quiet = any(e.get("activity") == INVISIBLE for e in part.all("toolspecific")) or not _name_of(part)
            nodes.append(Node(name, _name_of(part), join="and", split="and", silent=quiet))
        title = _name_of(self.net) or self.net.get("id") or "net"
        return Document(title, (Graph(title, tuple(nodes), flows),), notes=tuple(self.notes))

    def _only(self, names: list[str], what: str) -> str:
        if len(names) != 1:
            found = ", ".join(names[:5]) or "none"
            raise BadFile(f"{place(self.net)}a workflow net has one {what} place, but this net has: {found}")
        return names[0]

    def _check_marking(self, start: str) -> None:
        for name, part in self.places.items():
            marking = part.find("initialMarking")
            tokens = "0" if marking is None else marking.says("text") or "0"
            # PNML writes "Default,1" for one token of the default colour.
            if tokens.rpartition(",")[2] != ("1" if name == start else "0") and marking is not None:
                raise BadFile(f"{place(part)}the place {name!r} has {tokens} tokens, but only {start!r} may have one")

    def _flow(self, arc: Element) -> Flow:
        source, target = arc.get("source"), arc.get("target")
        known = {*self.places, *self.transitions}
        for end in (source, target):
            if end not in known:
                raise BadFile(f"{place(arc)}the arc {arc.get('id')!r} names {end!r}, which does not exist")
        if (source in self.places) == (target in self.places):
            raise BadFile(f"{place(arc)}the arc {arc.get('id')!r} does not connect a place with a transition")
        weight = arc.find("inscription")
        number = "1" if weight is None else weight.says("text") or "1"
        if number.rpartition(",")[2] != "1":
            raise BadFile(f"{place(arc)}the arc {arc.get('id')!r} moves {number} tokens; only 1 is supported")
        kinds = [child.get("value") or child.says("text") for child in arc.all("type")] + [arc.get("type")]
        other = next((kind for kind in kinds if kind.lower() in _OTHER_ARCS), "")
        if other:
            raise BadFile(f"{place(arc)}the arc {arc.get('id')!r} has the unsupported type {other!r}")
        return Flow(source, target)


def _name_of(part: Element) -> str:
    name = part.find("name")
    return "" if name is None else name.says("text") or name.text.strip()


FORMAT = Format("pnml", "PNML (place/transition nets)", (".pnml", ".xml"), lambda head: b"<pnml" in head, read, write)
