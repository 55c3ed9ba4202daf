"""BPMN diagram interchange: shapes and edges, as the file draws them or as we lay them out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from groupwise.workflows.files.bpmn.vocabulary import BPMNDI, DC, DI, normal
from groupwise.workflows.files.xml_tree import free_name
from groupwise.workflows.pictures.drawing_layout import NodeBox, Point
from groupwise.xml_reader import COMMENT, Element

# Prefix of the ids of diagrams that we write.
OURS = "groupwise_diagram"
# Sizes of gateways and events that BPMN editors use, and the space around the content of a sub-process.
GATE, EVENT, PADDING = 50.0, 36.0, 30.0


@dataclass(slots=True)
class DiagramSheet:
    """One diagram while it is drawn.

    `boxes` are by element id, `lines` (source, target) and `routes` (points) by flow id, `labels` by either; `carried`
    are shapes and edges kept from the file. `level` are pools and lanes, which are drawn across the page.
    """

    plane: str
    taken: set[str]
    boxes: dict[str, NodeBox] = field(default_factory=dict)
    carried: dict[str, Element] = field(default_factory=dict)
    lines: dict[str, tuple[str, str]] = field(default_factory=dict)
    routes: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    expanded: set[str] = field(default_factory=set)
    level: set[str] = field(default_factory=set)
    labels: dict[str, NodeBox] = field(default_factory=dict)

    def around(self, names: Iterable[str]) -> NodeBox:
        inner = [self.boxes[name] for name in names if name in self.boxes] or [NodeBox(0, 0, 100, 80)]
        left, top = min(box.x for box in inner) - PADDING, min(box.y for box in inner) - PADDING
        right, bottom = max(box.right for box in inner) + PADDING, max(box.bottom for box in inner) + PADDING
        return NodeBox(left, top, right - left, bottom - top)

    def element(self, number: int, rest: tuple[Element, ...] = ()) -> Element:
        known = {part.get("bpmnElement") for part in rest}
        shapes = [self._shape(name, box) for name, box in self.boxes.items() if name not in known]
        edges = [self._edge(name, ends) for name, ends in self.lines.items()]
        attributes = (("id", f"{OURS}_{number}_plane"), ("bpmnElement", self.plane))
        plane = Element(f"{{{BPMNDI}}}BPMNPlane", attributes, "", (*rest, *shapes, *edges))
        return Element(f"{{{BPMNDI}}}BPMNDiagram", (("id", f"{OURS}_{number}"),), "", (plane,))

    def _shape(self, name: str, box: NodeBox) -> Element:
        if name in self.carried:
            return self._named(self.carried[name], name)
        extra = (("isExpanded", "true"),) if name in self.expanded else ()
        extra = (("isHorizontal", "true"),) if name in self.level else extra
        attributes = (("id", free_name(f"{name}_shape", self.taken)), ("bpmnElement", name), *extra)
        return Element(f"{{{BPMNDI}}}BPMNShape", attributes, "", (_bounds(box), *self._label(name)))

    def _label(self, name: str) -> list[Element]:
        return [Element(f"{{{BPMNDI}}}BPMNLabel", (), "", (_bounds(self.labels[name]),))] if name in self.labels else []

    def _edge(self, name: str, ends: tuple[str, str]) -> Element:
        if name in self.carried:
            return self._named(self.carried[name], name)
        source, target = (self.boxes.get(end, NodeBox(0, 0, 0, 0)) for end in ends)
        points = self.routes.get(name) or _line(source, target)
        inner = tuple(Element(f"{{{DI}}}waypoint", (("x", f"{x:.1f}"), ("y", f"{y:.1f}"))) for x, y in points)
        attributes = (("id", free_name(f"{name}_edge", self.taken)), ("bpmnElement", name))
        return Element(f"{{{BPMNDI}}}BPMNEdge", attributes, "", (*inner, *self._label(name)))

    @staticmethod
    def _named(carried: Element, name: str) -> Element:
        return replace(carried, attributes=(*carried.attributes, ("bpmnElement", name)))


def _bounds(box: NodeBox) -> Element:
    values = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    return Element(f"{{{DC}}}Bounds", tuple((key, f"{value:.1f}") for key, value in values.items()))


def _line(source: NodeBox, target: NodeBox) -> list[Point]:
    (x, y), (to_x, to_y) = (source.right, source.middle[1]), (target.x, target.middle[1])
    if to_x >= x:
        middle = (x + to_x) / 2
        return [(x, y), (to_x, to_y)] if y == to_y else [(x, y), (middle, y), (middle, to_y), (to_x, to_y)]
    below = max(source.bottom, target.bottom) + 20
    (x, y), (to_x, to_y) = (source.middle[0], source.bottom), (target.middle[0], target.bottom)
    return [(x, y), (x, below), (to_x, below), (to_x, to_y)]


def box_of(carried: Element | None) -> NodeBox | None:
    bounds = None if carried is None else carried.find("Bounds")
    if bounds is None:
        return None
    try:
        x, y, width, height = (float(bounds.get(name)) for name in ("x", "y", "width", "height"))
    except ValueError:
        return None
    return NodeBox(x, y, width, height)


def drawings(root: Element) -> dict[str, Element]:
    planes = [plane for diagram in root.all("BPMNDiagram") for plane in diagram.all("BPMNPlane")]
    known = (f"{{{BPMNDI}}}BPMNShape", f"{{{BPMNDI}}}BPMNEdge")
    found = [part for plane in planes for part in plane.parts if part.tag in known and part.get("bpmnElement")]
    return {part.get("bpmnElement").rpartition(":")[2]: part for part in found}


def is_our_layout(root: Element) -> bool:
    """Whether the diagrams are still those that Groupwise laid out for these processes.

    The reader then leaves them out, because they would be drawn the same again. Once somebody moves a shape or changes
    a process, the fingerprint no longer matches and the diagrams are kept as drawn.
    """
    diagrams = root.all("BPMNDiagram")
    marks = {one.get("documentation") for one in diagrams}
    return bool(diagrams) and marks == {_mark(root.all("process"), diagrams)}


def marked_as_ours(processes: Iterable[Element], diagrams: Sequence[Element]) -> list[Element]:
    """The diagrams with the mark by which `is_our_layout` recognises them."""
    mark = _mark(processes, diagrams)
    return [one.with_attributes(documentation=mark) for one in diagrams]


def _mark(processes: Iterable[Element], diagrams: Iterable[Element]) -> str:
    """A fingerprint of tags and attributes, without texts, whose whitespace other tools change."""
    digest = sha256()
    for whole in (*processes, *(one.with_attributes(documentation=None) for one in diagrams)):
        for element in whole.walk():
            if element.tag != COMMENT:
                digest.update(repr((element.tag, element.attributes, len(element.parts))).encode())
    return f"laid out by Groupwise, {digest.hexdigest()[:16]}"


def rest_of_diagrams(root: Element, left: dict[str, Element]) -> tuple[Element, ...]:
    """What diagrams draw besides nodes and flows: lanes, participants, data and notes."""
    planes = {p.get("bpmnElement").rpartition(":")[2] for d in root.all("BPMNDiagram") for p in d.all("BPMNPlane")}
    rest = tuple(normal(part) for name, part in left.items() if name not in planes)
    styles = tuple(style for one in root.all("BPMNDiagram") for style in one.all("BPMNLabelStyle"))
    if not rest and not styles:
        return ()
    plane = Element(f"{{{BPMNDI}}}BPMNPlane", children=rest)
    return (Element(f"{{{BPMNDI}}}BPMNDiagram", children=(plane, *styles)),)
