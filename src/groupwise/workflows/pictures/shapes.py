"""The vocabulary of all pictures: styles, shapes, and outlines around several rectangles.

Coordinates are pixels from the upper left corner. A shape names its style (a key of `STYLES`), never a colour, so one
drawing serves light and dark mode; its `hint` is the tooltip.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Literal, TypeAlias

from groupwise.workflows.graph import Rule
from groupwise.workflows.pictures.drawing_layout import Point
from groupwise.workflows.pictures.labels import ICON, Icon


@dataclass(frozen=True, slots=True)
class Style:
    """Colours as (light, dark). `width` and `dash` are those of lines, `size` and `bold` those of text."""

    fill: tuple[str, str] = ("none", "none")
    stroke: tuple[str, str] = ("none", "none")
    width: float = 1.0
    dash: tuple[float, float] | None = None
    size: float = 0.0
    bold: bool = False


INK = ("#1e293b", "#e2e8f0")
QUIET = ("#64748b", "#94a3b8")
PAPER = ("#ffffff", "#0f172a")
POOLS = (
    (("#e3eefb", "#6d9bd1"), ("#1d3350", "#5b8dc7")),
    (("#e4f4e6", "#74b283"), ("#1c3a2a", "#5fa574")),
    (("#fdf0dc", "#d9a45b"), ("#40301a", "#c79552")),
    (("#f3e6f7", "#b08ac2"), ("#38264a", "#a583bd")),
    (("#fde8e6", "#d98b83"), ("#442423", "#cf837b")),
    (("#dff3f3", "#66b0b0"), ("#153b3d", "#5aa5a6")),
    (("#f0f0d8", "#a9a957"), ("#35361b", "#a0a152")),
    (("#ece7e1", "#a5947f"), ("#35302a", "#9d8d79")),
    (("#e6e6fb", "#8b8bd0"), ("#2a2a52", "#8585cb")),
    (("#e9f7d9", "#93bb5c"), ("#2a3d17", "#8bb455")),
    (("#fbe3ef", "#cf7fa6"), ("#43203a", "#c87aa0")),
    (("#dfe7ec", "#7f97a6"), ("#25333c", "#7a93a3")),
)

# Fills for the value of a program in a search, from worthless to solved.
WORTH = (
    ("#f6f8fb", "#1e293b"),
    ("#fdf3d7", "#3f3318"),
    ("#e9f2c9", "#39401b"),
    ("#cfeac4", "#24442a"),
    ("#a9dfb4", "#1f5c37"),
)

STYLES: dict[str, Style] = {
    "paper": Style(fill=PAPER),
    "flow": Style(stroke=QUIET, width=1.4),
    "tip": Style(fill=QUIET),
    "task": Style(fill=("#f6f8fb", "#1e293b"), stroke=QUIET, width=1.3),
    "call": Style(fill=("#f6f8fb", "#1e293b"), stroke=INK, width=2.4),
    "gate": Style(fill=PAPER, stroke=INK, width=1.4),
    "glyph": Style(stroke=INK, width=2.2),
    "start": Style(fill=("#e4f4e6", "#1c3a2a"), stroke=("#3f8f57", "#6cc287"), width=1.8),
    "end": Style(fill=("#fde8e6", "#442423"), stroke=("#b4544a", "#e08a82"), width=3.4),
    "condition": Style(fill=PAPER, stroke=QUIET, width=1.4),
    "region": Style(fill=("#b4544a12", "#e08a8220"), stroke=("#b4544a", "#e08a82"), width=1.2, dash=(6, 4)),
    "name": Style(fill=INK, size=13),
    "label": Style(fill=QUIET, size=11),
    "mark": Style(fill=QUIET, size=11),
    "icon": Style(stroke=QUIET, width=1.2),
    "heading": Style(fill=INK, size=15, bold=True),
    "axis": Style(stroke=("#cbd5e1", "#334155"), width=1.0),
    "limit": Style(stroke=QUIET, width=1.0, dash=(4, 3)),
    "lost": Style(fill=("#fde8e6", "#442423"), stroke=("#b4544a", "#e08a82"), width=1.2, dash=(3, 2)),
    "won": Style(stroke=("#2f855a", "#68d391"), width=2.6),
    **{
        f"worth{number}": Style(fill=(day, night), stroke=QUIET, width=1.2) for number, (day, night) in enumerate(WORTH)
    },
    **{
        f"pool{number}": Style(fill=(day[0], night[0]), stroke=(day[1], night[1]), width=1.3)
        for number, (day, night) in enumerate(POOLS)
    },
}


Rectangle = tuple[float, float, float, float]


def region(inside: Sequence[Rectangle], outside: Sequence[Rectangle]) -> list[tuple[Point, ...]]:
    """A line around what is inside: one rectangle, with a notch for every rectangle outside that would lie in it.

    If a notch would cut into something inside, the line follows the outlines of what it surrounds instead.
    """
    lefts, tops, rights, bottoms = zip(*inside, strict=True)
    whole = (min(lefts), min(tops), max(rights), max(bottoms))
    notches = []
    for other in outside:
        if _meet(other, whole):
            ways = _ways_out(other, whole)
            free = [way for way in ways if not any(_meet(way, one) for one in inside)]
            if not free:
                return outlines(inside)
            notches.append(min(free, key=lambda way: (way[2] - way[0]) * (way[3] - way[1])))
    return outlines([whole], notches)


def _meet(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _ways_out(one: Rectangle, whole: Rectangle) -> list[Rectangle]:
    left, top = max(one[0], whole[0]), max(one[1], whole[1])
    right, bottom = min(one[2], whole[2]), min(one[3], whole[3])
    return [
        (left, top, right, whole[3]),
        (left, whole[1], right, bottom),
        (whole[0], top, right, bottom),
        (left, top, whole[2], bottom),
    ]


def outlines(rectangles: Sequence[Rectangle], without: Sequence[Rectangle] = ()) -> list[tuple[Point, ...]]:
    """Closed lines around the union of (left, top, right, bottom) rectangles, minus others.

    All coordinates that occur form a grid; the union is a set of its cells.
    """
    both = [*rectangles, *without]
    xs = sorted({x for one in both for x in (one[0], one[2])})
    ys = sorted({y for one in both for y in (one[1], one[3])})

    def cells(one: Rectangle) -> set[tuple[int, int]]:
        columns = range(bisect_left(xs, one[0]), bisect_left(xs, one[2]))
        rows = range(bisect_left(ys, one[1]), bisect_left(ys, one[3]))
        return {(column, row) for column in columns for row in rows}

    filled = set().union(*map(cells, rectangles)) - set().union(*map(cells, without))
    return [tuple((xs[column], ys[row]) for column, row in ring) for ring in _rings(filled)]


def _rings(filled: set[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Closed paths along the sides of filled cells that face empty ones, with the filled side on the right."""
    sides: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for x, y in sorted(filled):
        for (dx, dy), start, stop in (
            ((0, -1), (x, y), (x + 1, y)),
            ((1, 0), (x + 1, y), (x + 1, y + 1)),
            ((0, 1), (x + 1, y + 1), (x, y + 1)),
            ((-1, 0), (x, y + 1), (x, y)),
        ):
            if (x + dx, y + dy) not in filled:
                sides.setdefault(start, []).append(stop)
    rings = []
    while sides:
        first = min(sides)
        ring, here = [first], sides[first].pop()
        while here != first:
            ring.append(here)
            here = _next(sides, ring[-2], here)
        # Corners only, without the points in the middle of a straight side.
        ends = zip([ring[-1], *ring[:-1]], ring, [*ring[1:], ring[0]], strict=True)
        rings.append([b for a, b, c in ends if not (a[0] == b[0] == c[0] or a[1] == b[1] == c[1])])
        sides = {start: stops for start, stops in sides.items() if stops}
    return rings


def _next(
    sides: dict[tuple[int, int], list[tuple[int, int]]], before: tuple[int, int], here: tuple[int, int]
) -> tuple[int, int]:
    """The next corner. Where two cells meet only at a corner, turn right, which keeps them apart."""
    stops = sides[here]
    came = (here[0] - before[0], here[1] - before[1])
    right = (here[0] - came[1], here[1] + came[0])
    stop = right if right in stops else stops[0]
    stops.remove(stop)
    return stop


@dataclass(frozen=True, slots=True)
class Oblong:
    x: float
    y: float
    width: float
    height: float
    style: str
    radius: float = 0.0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Disc:
    x: float
    y: float
    radius: float
    style: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Straight segments; corners are rounded by `bend` pixels."""

    points: tuple[Point, ...]
    style: str
    closed: bool = False
    bend: float = 0.0
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    x: float
    y: float
    text: str
    style: str
    anchor: Literal["start", "middle", "end"] = "start"


Shape: TypeAlias = Oblong | Disc | Line | Words


@dataclass(frozen=True, slots=True)
class Scene:
    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


def glyph(rule: Rule, x: float, y: float, size: float) -> Iterator[Shape]:
    """The symbol of a gateway: + all branches, × exactly one, ○ one or more."""
    if rule == "or":
        yield Disc(x, y, size, "glyph")
        return
    reach = size if rule == "and" else size * 0.8
    ends = ((reach, 0.0), (0.0, reach)) if rule == "and" else ((reach, reach), (reach, -reach))
    yield from (Line(((x - dx, y - dy), (x + dx, y + dy)), "glyph") for dx, dy in ends)


def icon_of(icon: Icon, x: float, y: float) -> Iterator[Shape]:
    """A small icon, centred."""
    r = ICON / 2 - 0.5
    if icon == "instances":
        yield from (Line(((x + dx, y - r), (x + dx, y + r)), "icon") for dx in (-3.5, 0, 3.5))
    elif icon == "retry":
        turns = [0.1 + 1.55 * pi * step / 16 for step in range(17)]
        arc = tuple((x + r * cos(turn), y + r * sin(turn)) for turn in turns)
        tip = arc[-1]
        yield Line(arc, "icon")
        yield Line(((tip[0] - 3.2, tip[1] - 2.6), tip, (tip[0] - 2.4, tip[1] + 3.4)), "icon")
    elif icon == "timeout":
        yield Disc(x, y, r, "icon")
        yield Line(((x, y - r + 2), (x, y), (x + 2.6, y + 1.2)), "icon")
    elif icon == "delay":
        yield from (Line(((x + dx, y - r + 1), (x + dx, y + r - 1)), "icon") for dx in (-2.0, 2.0))
    elif icon == "due":
        yield Line(((x - 3, y + r), (x - 3, y - r), (x + 4, y - r + 2.5), (x - 3, y)), "icon")
    else:
        yield Line(((x - r + 1, y + r - 1.5), (x, y - r + 1), (x + r - 1, y + r - 1.5)), "icon", closed=True)
