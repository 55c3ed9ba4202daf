"""A workflow as PNG, drawn by matplotlib from the same shapes as the SVG."""

import io

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, PathPatch
from matplotlib.path import Path

from groupwise.workflows.blocks import Design
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.pictures.drawing_layout import Point
from groupwise.workflows.pictures.scene import scene
from groupwise.workflows.pictures.shapes import STYLES, Disc, Line, Oblong, Scene, Shape, Words
from groupwise.workflows.pictures.svg import towards

DOTS = 100
LARGEST = 16000
ALIGN = {"start": "left", "middle": "center", "end": "right"}


def png(workflow: Document | Design, *, scale: float = 2.0, dark: bool = False) -> bytes:
    """The picture of a workflow, `scale` times the size of the SVG, but at most LARGEST pixels in either direction."""
    return png_of(scene(workflow if isinstance(workflow, Document) else document_of(workflow)), scale=scale, dark=dark)


def png_of(drawn: Scene, *, scale: float = 2.0, dark: bool = False) -> bytes:
    """A scene as PNG."""
    scale = min(scale, LARGEST / drawn.width, LARGEST / drawn.height)
    figure = Figure(figsize=(drawn.width * scale / DOTS, drawn.height * scale / DOTS), dpi=DOTS)
    FigureCanvasAgg(figure)
    side = int(dark)
    figure.set_facecolor(STYLES["paper"].fill[side])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawn.width)
    axes.set_ylim(drawn.height, 0)
    for order, shape in enumerate(drawn.shapes):
        _draw(axes, shape, order, side, scale * 72 / DOTS)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor=figure.get_facecolor(), metadata={"Title": drawn.title})
    return buffer.getvalue()


def _draw(axes: Axes, shape: Shape, order: int, side: int, unit: float) -> None:
    """Draw one shape; `unit` is a pixel of the scene in points, in which matplotlib measures lines and letters."""
    style = STYLES[shape.style]
    if isinstance(shape, Words):
        axes.text(
            shape.x,
            shape.y,
            shape.text.replace("$", r"\$"),
            color=style.fill[side],
            fontsize=style.size * unit * 0.92,
            ha=ALIGN[shape.anchor],
            va="baseline",
            zorder=order,
            weight="bold" if style.bold else "normal",
        )
        return
    look = {
        "facecolor": style.fill[side],
        "edgecolor": style.stroke[side],
        "linewidth": style.width * unit,
        "linestyle": (0, tuple(part / style.width for part in style.dash)) if style.dash else "-",
        "zorder": order,
    }
    if isinstance(shape, Disc):
        axes.add_patch(Circle((shape.x, shape.y), shape.radius, **look))
    else:
        axes.add_patch(PathPatch(_path(_as_line(shape)), capstyle="round", joinstyle="round", **look))


def _as_line(shape: Oblong | Line) -> Line:
    if isinstance(shape, Line):
        return shape
    right, bottom = shape.x + shape.width, shape.y + shape.height
    corners = ((shape.x, shape.y), (right, shape.y), (right, bottom), (shape.x, bottom))
    return Line(corners, shape.style, closed=True, bend=shape.radius)


def _path(line: Line) -> Path:
    points: list[Point] = []
    codes: list[int] = []
    for number, point in enumerate(line.points):
        if line.bend and (line.closed or 0 < number < len(line.points) - 1):
            before, after = line.points[number - 1], line.points[(number + 1) % len(line.points)]
            points += [towards(point, before, line.bend), point, towards(point, after, line.bend)]
            codes += [int(Path.LINETO), int(Path.CURVE3), int(Path.CURVE3)]
        else:
            points.append(point)
            codes.append(int(Path.LINETO))
    codes[0] = int(Path.MOVETO)
    if line.closed:
        points.append(points[0])
        codes.append(int(Path.CLOSEPOLY))
    return Path(points, codes)
