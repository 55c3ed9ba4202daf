"""A workflow as SVG: sharp at any size, following the reader's light or dark mode, with tooltips."""

from collections.abc import Iterable
from html import escape
from math import hypot

from groupwise.workflows.blocks import Design
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.pictures.drawing_layout import Point
from groupwise.workflows.pictures.scene import scene
from groupwise.workflows.pictures.shapes import STYLES, Disc, Line, Oblong, Scene, Shape, Style, Words

FACE = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def svg(workflow: Document | Design) -> str:
    """The picture of a workflow, as a self-contained file."""
    return svg_of(scene(workflow if isinstance(workflow, Document) else document_of(workflow)))


def svg_of(drawn: Scene, extra: Iterable[str] = (), css: str = "") -> str:
    """A scene as SVG; `extra` are finished elements drawn on top, `css` their style."""
    width, height = f"{drawn.width:g}", f"{drawn.height:g}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    used = {shape.style for shape in drawn.shapes} | {"paper"}
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{text(drawn.title)}</title>",
            f"<style>{_css(used)}{css}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *map(_element, drawn.shapes),
            *extra,
            "</svg>\n",
        ]
    )


def text(words: str) -> str:
    """The text escaped, with control characters that XML cannot contain replaced."""
    return escape("".join(letter if letter >= " " or letter in "\t\n" else "\ufffd" for letter in words))


def _css(used: set[str]) -> str:
    day = "".join(f".{name}{{{_rule(STYLES[name], 0)}}}" for name in STYLES if name in used)
    night = "".join(f".{name}{{{_rule(STYLES[name], 1, colours_only=True)}}}" for name in STYLES if name in used)
    letters = f"text{{font-family:{FACE}}}path,circle,rect{{stroke-linecap:round;stroke-linejoin:round}}"
    return f"{letters}{day}@media(prefers-color-scheme:dark){{{night}}}"


def _rule(style: Style, side: int, *, colours_only: bool = False) -> str:
    rule = f"fill:{style.fill[side]};"
    if style.stroke != ("none", "none"):
        rule += f"stroke:{style.stroke[side]};"
    if colours_only:
        return rule
    if style.stroke != ("none", "none"):
        rule += f"stroke-width:{style.width:g};"
    if style.dash:
        rule += f"stroke-dasharray:{style.dash[0]:g} {style.dash[1]:g};"
    if style.size:
        rule += f"font-size:{style.size:g}px;" + ("font-weight:600;" if style.bold else "")
    return rule


def _element(shape: Shape) -> str:
    if isinstance(shape, Words):
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        where = f'x="{shape.x:.2f}" y="{shape.y:.2f}"'
        return f'<text class="{shape.style}" {where}{anchor}>{text(shape.text)}</text>'
    hint = f"<title>{text(shape.hint)}</title>" if shape.hint else ""
    if isinstance(shape, Oblong):
        where = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}"'
        return f'<rect class="{shape.style}" {where} rx="{shape.radius:g}">{hint}</rect>'
    if isinstance(shape, Disc):
        return f'<circle class="{shape.style}" cx="{shape.x:g}" cy="{shape.y:g}" r="{shape.radius:g}">{hint}</circle>'
    return f'<path class="{shape.style}" d="{path_data(shape)}">{hint}</path>'


def path_data(line: Line) -> str:
    """The `d` attribute of a line; rounded corners are quadratic curves."""
    if not line.bend:
        data = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in line.points)
        return data + "Z" * line.closed
    points = line.points
    parts = []
    for number, point in enumerate(points):
        inner = line.closed or 0 < number < len(points) - 1
        before, after = points[number - 1], points[(number + 1) % len(points)]
        if inner:
            start, stop = towards(point, before, line.bend), towards(point, after, line.bend)
            parts += [f"{start[0]:.2f} {start[1]:.2f}Q{point[0]:.2f} {point[1]:.2f} {stop[0]:.2f} {stop[1]:.2f}"]
        else:
            parts += [f"{point[0]:.2f} {point[1]:.2f}"]
    return "M" + "L".join(parts) + "Z" * line.closed


def towards(point: Point, other: Point, far: float) -> Point:
    """The point `far` from a corner towards the next one, at most halfway."""
    whole = hypot(other[0] - point[0], other[1] - point[1])
    share = min(far / whole, 0.5) if whole else 0.0
    return point[0] + (other[0] - point[0]) * share, point[1] + (other[1] - point[1]) * share
