"""A search tree to look at: the part worth showing, on a terminal and as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

from rich.console import RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree as Drawing

from groupwise.programs.search.tree import SearchTree, TreeEdge
from groupwise.reporting.text import printable
from groupwise.workflows.pictures.labels import SMALL, shortened, width_of
from groupwise.workflows.pictures.shapes import Line, Oblong, Scene, Shape, Words
from groupwise.workflows.pictures.svg import svg_of


@dataclass(slots=True)
class OutlineBranch:
    """An action to show: how often it was tried, its values, and what to show below.

    `hidden` counts the tried actions below that are not shown.
    """

    action: str
    tries: int
    mean: float
    best: float
    winner: bool
    finished: bool
    solved: bool = False
    hidden: int = 0
    branches: list[OutlineBranch] = field(default_factory=list)


Place: TypeAlias = tuple[float, tuple[int, int], OutlineBranch, TreeEdge, int]


def outline(tree: SearchTree, most: int = 30, beside: int = 6, path: tuple[str, ...] | None = None) -> OutlineBranch:
    """At most `most` branches in total and `beside` at each node; those on the path are always included.

    The path is that of the best program, unless another is given; its branches are the `winner`s.
    """
    winner = path if path is not None else tree.best.actions if tree.best else ()
    tally = tree.root.tally
    top = OutlineBranch("", tally.count, tally.mean, tally.best, bool(winner), False, tree.solved)
    queue: list[Place] = []
    _line_up(tree, queue, top, 0, winner, 0)
    shown = 0
    while queue:
        _, _, above, edge, depth = heappop(queue)
        on_way = _on_way(above, edge, depth, winner)
        if not on_way and (shown >= most or len(above.branches) >= beside):
            above.hidden += 1
            continue
        shown += 1
        actions, last = _only_way(tree, edge)
        branch = _branch(tree, last, "; ".join(actions), on_way)
        above.branches.append(branch)
        if last.child is not None:
            _line_up(tree, queue, branch, last.child, winner, depth + len(actions))
    _in_order(top)
    return top


def _on_way(above: OutlineBranch, edge: TreeEdge, depth: int, winner: tuple[str, ...]) -> bool:
    return above.winner and winner[depth : depth + 1] == (edge.action,)


def _only_way(tree: SearchTree, edge: TreeEdge) -> tuple[list[str], TreeEdge]:
    # An action, joined with the one after it if that was the only one ever tried and ended the program.
    child = tree.child(edge)
    tried = [below for below in child.edges if below.tally.count] if child else []
    end = tree.child(tried[0]) if len(tried) == 1 else None
    return ([edge.action, tried[0].action], tried[0]) if end and end.finished else ([edge.action], edge)


def _branch(tree: SearchTree, edge: TreeEdge, action: str, on_way: bool) -> OutlineBranch:
    child = tree.child(edge)
    finished = child is not None and child.finished
    solved = finished and child is not None and child.judged is not None and child.judged.solved
    return OutlineBranch(action, edge.tally.count, edge.tally.mean, edge.tally.best, on_way, finished, solved)


def _line_up(
    tree: SearchTree, queue: list[Place], above: OutlineBranch, number: int, winner: tuple[str, ...], depth: int
) -> None:  # fmt: skip
    # Queue the tried actions of a node: the winner's first, then by number of tries and best value.
    for place, edge in enumerate(tree.nodes[number].edges):
        if edge.tally.count:
            rank = -inf if _on_way(above, edge, depth, winner) else -(edge.tally.count + edge.tally.best)
            heappush(queue, (rank, (number, place), above, edge, depth))


def _in_order(branch: OutlineBranch) -> None:
    branch.branches.sort(key=lambda one: (not one.winner, -one.best, -one.tries, one.action))
    for one in branch.branches:
        _in_order(one)


BAR = 8


def tree_view(tree: SearchTree, title: str, most: int = 30) -> Drawing:
    """The tree for a terminal: how often each line was tried, and the best value below it."""
    top = outline(tree, most)
    drawing = Drawing(Text(printable(title), style="bold"), guide_style="dim")
    _grow(drawing, top)
    return drawing


def _grow(drawing: Drawing, branch: OutlineBranch) -> None:
    for one in branch.branches:
        _grow(drawing.add(_label(one)), one)
    if branch.hidden:
        drawing.add(Text(f"… {branch.hidden} more", style="dim"))


def _label(branch: OutlineBranch) -> Text:
    style = "bold green" if branch.winner and branch.solved else "bold" if branch.winner else ""
    text = Text(printable(branch.action), style=style)
    text.append("  ")
    text.append(bar(branch.best), style="green" if branch.best >= 1 else "yellow" if branch.best > 0 else "dim")
    text.append(f" {branch.best:.2f}", style="dim")
    if branch.finished:
        return text.append(" ✓" if branch.solved else "", style="bold green")
    return text.append(f"  {branch.tries} tried", style="dim")


def bar(value: float) -> str:
    eighths = round(max(0.0, min(1.0, value)) * BAR * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(BAR, "·")


def program_view(text: str, title: str, solved: bool) -> RenderableType:
    """A program in a frame whose colour says whether it solves the problem."""
    lines = "\n".join(printable(line) for line in text.split("\n"))
    code = Syntax(lines, "python", background_color="default")
    colour = "green" if solved else "yellow"
    return Panel(code, title=Text(title), title_align="left", border_style=colour, expand=False)


MARGIN, HEAD = 24.0, 40.0
ROW, BOX, GAP = 46.0, 34.0, 44.0
LETTERS = 48
GRADES = 5


def tree_svg(tree: SearchTree, title: str, most: int = 40) -> str:
    top = outline(tree, most)
    top.action = "def solve"
    widths = _widths(top)
    lefts = [MARGIN]
    for width in widths:
        lefts.append(lefts[-1] + width + GAP)
    shapes: list[Shape] = []
    rows = _place(top, 0, 0.0, widths, lefts, shapes)[1]
    lines = [shape for shape in shapes if isinstance(shape, Line)]
    others = [shape for shape in shapes if not isinstance(shape, Line)]
    width = max(lefts[len(widths)] - GAP + MARGIN, MARGIN * 2 + width_of(title, 15))
    height = HEAD + rows * ROW + MARGIN
    return svg_of(Scene(title, width, height, (Words(MARGIN, 28, title, "heading"), *lines, *others)))


def _widths(top: OutlineBranch) -> list[float]:
    # The width of each column.
    widths: list[float] = []
    layer = [top]
    while layer:
        names = (width_of(shortened(branch.action, LETTERS)) for branch in layer)
        widths.append(max(*names, *(width_of(_small(branch), SMALL) for branch in layer)) + 22)
        layer = [below for branch in layer for below in branch.branches]
    return widths


def _small(branch: OutlineBranch) -> str:
    return f"value {branch.best:.2f}" if branch.finished else f"{branch.tries} tried, best {branch.best:.2f}"


def _place(
    branch: OutlineBranch, depth: int, row: float, widths: list[float], lefts: list[float], shapes: list[Shape]
) -> tuple[float, float]:
    # Draw a branch and everything below it, starting at a row; returns the middle of its box and the next free row.
    middles, free = [], row
    for below in branch.branches:
        middle, free = _place(below, depth + 1, free, widths, lefts, shapes)
        middles.append((middle, below))
    if branch.hidden:
        shapes.append(Words(lefts[depth + 1] + 4, HEAD + free * ROW + 20, f"… {branch.hidden} more", "label"))
        free += 0.5
    free = max(free, row + 1)
    middle = middles[0][0] if middles else HEAD + row * ROW + BOX / 2
    right = lefts[depth] + widths[depth]
    for there, below in middles:
        start, end, turn = (right, middle), (lefts[depth + 1], there), right + GAP / 2
        points = (start, end) if middle == there else (start, (turn, middle), (turn, there), end)
        shapes.append(Line(points, "won" if below.winner else "flow", bend=8))
    shapes += _box(branch, lefts[depth], middle - BOX / 2, widths[depth])
    return middle, free


def _box(branch: OutlineBranch, x: float, y: float, width: float) -> Iterator[Shape]:
    grade = min(GRADES - 1, int(branch.best * (GRADES - 1)))
    hint = f"{branch.action}\n{_small(branch)}, mean {branch.mean:.2f}"
    yield Oblong(x, y, width, BOX, f"worth{grade}", 6, hint)
    yield Words(x + 11, y + 15, shortened(branch.action, LETTERS), "name")
    yield Words(x + 11, y + 28, _small(branch), "label")
