"""The outline of several rectangles taken together, for what is cancelled at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Rectangle = tuple[float, float, float, float]
Point = tuple[float, float]


def region(inside: Sequence[Rectangle], outside: Sequence[Rectangle]) -> list[tuple[Point, ...]]:
    """A line around what is inside: one rectangle, with a notch for each of the others that would lie in it.

    Where a notch would cut into something inside, the line keeps close to what it surrounds instead.
    """
    whole = (
        min(one[0] for one in inside),
        min(one[1] for one in inside),
        max(one[2] for one in inside),
        max(one[3] for one in inside),
    )
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
    left, top, right, bottom = (
        max(one[0], whole[0]),
        max(one[1], whole[1]),
        min(one[2], whole[2]),
        min(one[3], whole[3]),
    )
    return [
        (left, top, right, whole[3]),
        (left, whole[1], right, bottom),
        (whole[0], top, right, bottom),
        (left, top, whole[2], bottom),
    ]


def outlines(rectangles: Sequence[Rectangle], without: Sequence[Rectangle] = ()) -> list[tuple[Point, ...]]:
    """Closed lines around the union of (left, top, right, bottom) rectangles, less others."""
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
    """The sides of the filled cells that face empty ones, joined end to end with the filled side on the right."""
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
        rings.append(_corners(ring))
        sides = {start: stops for start, stops in sides.items() if stops}
    return rings


def _next(
    sides: dict[tuple[int, int], list[tuple[int, int]]], before: tuple[int, int], here: tuple[int, int]
) -> tuple[int, int]:
    """Where two cells meet at a corner only, the line turns right and keeps them apart."""
    stops = sides[here]
    came = (here[0] - before[0], here[1] - before[1])
    right = (here[0] - came[1], here[1] + came[0])
    stop = right if right in stops else stops[0]
    stops.remove(stop)
    return stop


def _corners(ring: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ends = zip([ring[-1], *ring[:-1]], ring, [*ring[1:], ring[0]], strict=True)
    return [b for a, b, c in ends if not (a[0] == b[0] == c[0] or a[1] == b[1] == c[1])]
