"""The style of all figures, and the pieces they are made of, with Matplotlib.

A figure is drawn once, in light colours. `inline_svg` puts it into a page, where each colour becomes a CSS variable, so
that the same drawing works in light and dark mode. Matplotlib is imported only when a figure is drawn.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias
from xml.sax.saxutils import quoteattr

from groupwise.reporting.charts import Panel
from groupwise.reporting.history import Series
from groupwise.training.formatting import number, percent

Draw: TypeAlias = Callable[[float], Any]

INK, MUTED, RULE, GROUND = "#1c2127", "#68717c", "#dfe3e8", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, ROSE = "#2563a8", "#c2571a", "#2f8554", "#7a4fa3", "#b23a63"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, ROSE)
TEAL, OCHRE, GREY, BRICK, INDIGO = "#178a8a", "#86690f", "#555b63", "#8f2f24", "#4a4fb8"
MANY = (*COLOURS, TEAL, OCHRE, GREY, BRICK, INDIGO)
VARIABLES = {
    INK: "--ink", MUTED: "--muted", RULE: "--rule", GROUND: "--ground",
    BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", PURPLE: "--purple", ROSE: "--rose",
    TEAL: "--teal", OCHRE: "--ochre", GREY: "--grey", BRICK: "--brick", INDIGO: "--indigo",
}  # fmt: skip
STYLE = {
    "font.size": 9, "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "text.parse_math": False,
    "text.color": INK, "axes.labelcolor": MUTED, "axes.edgecolor": MUTED, "xtick.color": MUTED,
    "ytick.color": MUTED, "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "xtick.major.size": 3, "ytick.major.size": 0, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": RULE,
    "grid.linewidth": 0.7, "axes.axisbelow": True, "lines.linewidth": 1.5, "lines.solid_capstyle": "round",
    "axes.formatter.useoffset": False, "svg.fonttype": "none", "svg.hashsalt": "groupwise",
    "savefig.dpi": 160,
    "figure.facecolor": GROUND, "axes.facecolor": GROUND, "savefig.facecolor": GROUND,
}  # fmt: skip
# Points of a line at most: more cannot be seen at this width.
POINTS = 600


def render(draw: Draw, width: float, kind: str) -> bytes:
    """The figure made by `draw(width in inches)`, as an svg, png or pdf file."""
    return render_kinds(draw, width, (kind,))[kind]


def render_kinds(draw: Draw, width: float, kinds: Sequence[str]) -> dict[str, bytes]:
    """The same in several kinds, drawn once. Without dates, so that equal figures are equal files."""
    import matplotlib

    files = {}
    with matplotlib.rc_context(STYLE):
        figure = draw(width)
        for kind in kinds:
            buffer = io.BytesIO()
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files


def inline_svg(draw: Draw, width: float, name: str, alt: str) -> str:
    """A figure as a fluid `<svg>` in the page's colours and font; `name` prefixes its ids."""
    return inlined(render(draw, width, "svg"), name, alt)


def inlined(svg: bytes, name: str, alt: str) -> str:
    """The same, from a figure's SVG file."""
    text = svg.decode()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r'\b(id="|href="#)|url\(#', lambda found: f"{found[0]}{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label={quoteattr(alt)}', 1)


def stacked_axes(width: float, height: float, rows: int, labels: Iterable[str], left: float = 40) -> tuple[Any, Any]:
    """A figure of `rows` panels with room at the right for the longest label; sizes in points."""
    from matplotlib.figure import Figure

    # About 5.6 points per character at font size 9.
    right = max(64, 10 + 5.6 * max((len(label) for label in labels), default=0))
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    wide, high = 72 * width, 72 * height
    inner = (high - 48 - 26 * (rows - 1)) / rows
    figure.subplots_adjust(left / wide, 32 / high, 1 - right / wide, 1 - 16 / high, hspace=26 / inner)
    return figure, axes


def finish(axes: Any, title: str, span: tuple[int, int], bottom: bool = True) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, loc="left", fontsize=9, color=MUTED, pad=5)
    first, last = span
    axes.set_xlim(first - 0.5 * (first == last), last + 0.5 * (first == last))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if not isinstance(axes.yaxis.get_major_formatter(), FuncFormatter):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if bottom:
        axes.set_xlabel("step")


def draw_line(axes: Any, series: Series, colour: str, **style: Any) -> None:
    steps, values = thin(series)
    few = {"marker": "o", "markersize": 3, "clip_on": False} if len(steps) <= 25 else {}
    axes.plot(steps, values, color=colour, **few, **style)


def thin(series: Series) -> Series:
    """At most `POINTS` points, each the mean of as many neighbours."""
    steps, values = series
    size = -(-len(steps) // POINTS)
    if size <= 1:
        return series
    starts = range(0, len(steps), size)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in starts]
    return [steps[min(i + size // 2, len(steps) - 1)] for i in starts], means


def limit(axes: Any, panel: Panel) -> None:
    """Start the axis at 0 unless numbers are negative; shares reach at least 10%."""
    from matplotlib.ticker import FuncFormatter

    low, high = axes.dataLim.intervaly
    if low >= 0:
        usual = max(1.12 * high, 0.1 if panel.percent else 0.0) or 1
        axes.set_ylim(0, usual if panel.top is None else 1.03 * panel.top)
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))


def label_ends(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Write (height, text, colour) at the right edge, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    # 11 points: one line of text, as a fraction of the axes' height.
    gap = 11 / (axes.get_position().height * axes.figure.get_figheight() * 72)
    places = sorted((min(max((y - low) / (high - low), 0), 1), text, colour) for y, text, colour in labels)
    heights = spread_apart([place[0] for place in places], gap)
    for height, (_, text, colour) in zip(heights, places, strict=True):
        axes.annotate(
            text, (1, height), (5, 0), "axes fraction", "offset points", color=colour, va="center",
            annotation_clip=False,
        )  # fmt: skip


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved at least `gap` apart, evenly up and down, and kept within 0 and 1 if they fit."""
    # The mean of pushing everything up and pushing everything down moves labels least.
    up = _pushed(heights, gap)
    down = [-height for height in reversed(_pushed([-height for height in reversed(heights)], gap))]
    middle = [(a + b) / 2 for a, b in zip(up, down, strict=True)]
    ceiling = [min(height, 1 - gap * (len(middle) - 1 - i)) for i, height in enumerate(middle)]
    return [max(height, gap * i) for i, height in enumerate(ceiling)]


def _pushed(heights: Sequence[float], gap: float) -> list[float]:
    pushed: list[float] = []
    for height in heights:
        pushed.append(max(height, pushed[-1] + gap) if pushed else height)
    return pushed
