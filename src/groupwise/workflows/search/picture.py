"""A search tree as a picture: from left to right, the winner's way on top, greener where better was found."""

from __future__ import annotations

from collections.abc import Iterator

from groupwise.workflows.pictures.shapes import Line, Oblong, Scene, Shape, Words
from groupwise.workflows.pictures.svg import svg_of
from groupwise.workflows.pictures.text import SMALL, shortened, width_of
from groupwise.workflows.search.outline import Branch, outline
from groupwise.workflows.search.tree import Tree

MARGIN, HEAD = 24.0, 40.0
ROW, BOX, GAP = 46.0, 34.0, 44.0
LETTERS = 48
GRADES = 5


def tree_svg(tree: Tree, title: str, most: int = 40) -> str:
    """The picture of a tree, a file of its own."""
    return svg_of(tree_scene(tree, title, most))


def tree_scene(tree: Tree, title: str, most: int = 40) -> Scene:
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
    return Scene(title, width, height, (Words(MARGIN, 28, title, "heading"), *lines, *others))


def _widths(top: Branch) -> list[float]:
    """How wide each column must be."""
    widths: list[float] = []
    layer = [top]
    while layer:
        widths.append(max(_width(branch) for branch in layer))
        layer = [below for branch in layer for below in branch.branches]
    return widths


def _width(branch: Branch) -> float:
    return max(width_of(shortened(branch.action, LETTERS)), width_of(_small(branch), SMALL)) + 22


def _small(branch: Branch) -> str:
    return f"worth {branch.best:.2f}" if branch.finished else f"{branch.tries} tried, best {branch.best:.2f}"


def _place(
    branch: Branch, depth: int, row: float, widths: list[float], lefts: list[float], shapes: list[Shape]
) -> tuple[float, float]:
    """Put a branch and all below it from a row on; the middle of its box, and the first free row."""
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
        shapes.append(_arm((right, middle), (lefts[depth + 1], there), below))
    shapes += _box(branch, lefts[depth], middle - BOX / 2, widths[depth])
    return middle, free


def _arm(start: tuple[float, float], end: tuple[float, float], below: Branch) -> Line:
    turn = start[0] + GAP / 2
    points = (start, end) if start[1] == end[1] else (start, (turn, start[1]), (turn, end[1]), end)
    return Line(points, "won" if below.winner else "flow", bend=8)


def _box(branch: Branch, x: float, y: float, width: float) -> Iterator[Shape]:
    grade = min(GRADES - 1, int(branch.best * (GRADES - 1)))
    hint = f"{branch.action}\n{_small(branch)}, mean {branch.mean:.2f}"
    yield Oblong(x, y, width, BOX, f"worth{grade}", 6, hint)
    yield Words(x + 11, y + 15, shortened(branch.action, LETTERS), "name")
    yield Words(x + 11, y + 28, _small(branch), "label")
