"""Shapes to be drawn, the same for every kind of picture.

Coordinates are pixels from the upper left corner. A shape names its style (`style.STYLES`) and may have a `hint`, the
text that shows when one points at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import cos, pi, sin
from typing import Literal, TypeAlias

from groupwise.workflows.graph import Rule
from groupwise.workflows.pictures.layout import Point
from groupwise.workflows.pictures.text import ICON, Icon


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
    """Straight pieces; corners are rounded by `bend`."""

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
    """The sign of a gateway: + all of the ways, × one of them, ○ one or more."""
    if rule == "or":
        yield Disc(x, y, size, "glyph")
        return
    reach = size if rule == "and" else size * 0.8
    ends = ((reach, 0.0), (0.0, reach)) if rule == "and" else ((reach, reach), (reach, -reach))
    yield from (Line(((x - dx, y - dy), (x + dx, y + dy)), "glyph") for dx, dy in ends)


def icon_shapes(icon: Icon, x: float, y: float) -> Iterator[Shape]:
    """A small sign around a middle."""
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


def moved(shape: Shape, down: float) -> Shape:
    if down == 0:
        return shape
    if isinstance(shape, Line):
        return replace(shape, points=tuple((x, y + down) for x, y in shape.points))
    return replace(shape, y=shape.y + down)
