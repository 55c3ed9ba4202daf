"""How much room text needs: widths of letters, wrapped labels, the size of each node, and what stands on it.

Widths are those of a common sans-serif face, slightly generous: a picture must not depend on the reader's fonts.
"""

import unicodedata
from typing import Literal

from groupwise.workflows.endings import role_of
from groupwise.workflows.graph import Flow, Graph, Node
from groupwise.workflows.titles import percent

# Pixels: sizes of letters, height of a line, widest label of a task, side of a gateway, diameter of a start or end,
# and width of the strip in which a task shows its own join or split.
FONT = 13.0
SMALL = 11.0
LINE = 17.0
WIDEST = 150.0
MOST_LINES = 4
GATE = 40.0
ROUND = 30.0
STRIP = 20.0
CONDITION_LETTERS = 22
LABEL_LETTERS = 40
UNBOUNDED = 1_000_000  # a limit of this many instances or more is shown as "or more"

_NARROW, _WIDE = frozenset("fijlrt.,:;'|!()[]{}-/\\ I"), frozenset("mwMW@%")


def width_of(text: str, size: float = FONT) -> float:
    """The width of a text in pixels."""
    return sum(map(_letter, text)) * size


def _letter(letter: str) -> float:
    """The width of a letter in multiples of the font size."""
    if letter in _NARROW:
        return 0.37
    if letter in _WIDE:
        return 0.92
    if letter < "\u0300":
        return 0.70 if letter.isupper() else 0.59
    if unicodedata.combining(letter):
        return 0.0
    return 1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.72


def wrapped(text: str, widest: float = WIDEST, most: int = MOST_LINES, size: float = FONT) -> tuple[str, ...]:
    """The text in lines no wider than `widest`; if it needs more than `most` lines, the last ends in an ellipsis."""
    lines: list[str] = []
    for word in _pieces(" ".join(text.split()), widest, size):
        joined = f"{lines[-1]}{word}" if lines else word
        if lines and width_of(joined.rstrip(), size) <= widest:
            lines[-1] = joined
        else:
            lines.append(word)
    lines = [line.strip() for line in lines]
    if len(lines) > most:
        last = lines[most - 1]
        while last and width_of(last + "…", size) > widest:
            last = last[:-1]
        lines = [*lines[: most - 1], last.rstrip() + "…"]
    return tuple(lines)


def _pieces(text: str, widest: float, size: float) -> list[str]:
    """Words, with those too long for a line cut up; lines may also break after underscores, hyphens and slashes."""
    words, word = [], ""
    for letter in text:
        if width_of(word + letter, size) > widest:
            words.append(word)
            word = ""
        word += letter
        if letter in " _-/.":
            words.append(word)
            word = ""
    return [*words, word] if word else words


def shortened(text: str, letters: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def flow_label(flow: Flow) -> str:
    """The label of a flow: its name or condition, and its probability, as far as they are known."""
    share = percent(flow.probability) if flow.probability is not None else ""
    if flow.name:
        return shortened(flow.name if share in flow.name else f"{flow.name} {share}", LABEL_LETTERS)
    said = shortened(flow.condition, CONDITION_LETTERS) or ("otherwise" if flow.default else "")
    return " ".join(filter(None, (share, said)))


Icon = Literal["instances", "retry", "timeout", "delay", "due", "priority"]
ICON = 11.0


def marks_of(node: Node) -> tuple[tuple[Icon, str], ...]:
    """The icons of a task with their texts: instances, retries, timeout, delay, due time, priority."""
    copies, handling = node.copies, node.handling
    marks: list[tuple[Icon, str]] = []
    if copies.most > 1:
        range_ = f"{copies.least}–{copies.most}" if copies.most < UNBOUNDED else f"{copies.least} or more"
        count = range_ if copies.least < copies.most else f"{copies.most}"
        marks.append(("instances", f"{copies.enough} of {count}" if copies.enough < copies.least else count))
    if handling.retry.most:
        marks.append(("retry", f"{handling.retry.most}"))
    if handling.timeout is not None:
        marks.append(("timeout", seconds(handling.timeout)))
    if handling.delay:
        marks.append(("delay", seconds(handling.delay)))
    if handling.due is not None:
        marks.append(("due", seconds(handling.due)))
    if handling.priority:
        marks.append(("priority", f"{handling.priority}"))
    return tuple(marks)


def marks_width(marks: tuple[tuple[Icon, str], ...]) -> float:
    return sum(mark_width(text) for _, text in marks)


def mark_width(text: str) -> float:
    return ICON + 4 + width_of(text, SMALL) + 8


def seconds(time: float) -> str:
    """A time in the unit people would use: 90 s is 1.5 min, 86,400 s is 1 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if time >= length:
            return f"{time / length:.3g} {unit}"
    return f"{time:.3g} s"


def size_of(graph: Graph, node: Node) -> tuple[float, float]:
    """Width and height of a node's shape."""
    if node.kind != "task" or is_event(node):
        return ROUND, ROUND
    if node.silent:
        return GATE, GATE
    lines = wrapped(node.label)
    marks = marks_of(node)
    inside = max([width_of(line) for line in lines] + [marks_width(marks)])
    height = LINE * len(lines) + 22 + (16 if marks else 0)
    return max(72.0, inside + 26) + STRIP * sum(strips_of(graph, node)), max(44.0, height)


def is_event(node: Node) -> bool:
    """Whether a silent node is an event, not a gateway: an early end, or whatever a BPMN file calls one."""
    carried = any(e.name.endswith("Event") and "BPMN" in e.namespace for e in node.extras)
    return node.silent and (carried or role_of(node) in ("end", "event"))


def strips_of(graph: Graph, node: Node) -> tuple[bool, bool]:
    """Whether a task itself joins, and whether it splits, without a gateway, as tasks in YAWL do."""
    if node.kind != "task" or node.silent:
        return False, False
    out = [flow for flow in graph.out_of(node.id) if role_of(graph.by_id[flow.target]) != "event"]
    return len(graph.into(node.id)) > 1, len(out) > 1


def name_below(node: Node) -> tuple[str, ...]:
    """The lines of the name below a shape that is too small to contain it."""
    return () if node.kind == "task" and not node.silent else wrapped(node.name, 110, 3, SMALL)
