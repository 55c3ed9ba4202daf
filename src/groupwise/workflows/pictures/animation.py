"""Moving pictures of a simulation: cases as tokens on the drawing of their workflow.

`animation_svg` moves by itself in any browser; `animation_gif` is the same for everything else.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from PIL import Image, ImageColor, ImageDraw

from groupwise.errors import ConfigError
from groupwise.workflows.document import Document
from groupwise.workflows.pictures.figures import Try
from groupwise.workflows.pictures.journeys import MOST, Journey, journeys
from groupwise.workflows.pictures.layout import MARGIN
from groupwise.workflows.pictures.png import png_of
from groupwise.workflows.pictures.scene import scene
from groupwise.workflows.pictures.shapes import Scene, Words
from groupwise.workflows.pictures.style import QUIET
from groupwise.workflows.pictures.svg import svg_of
from groupwise.workflows.pictures.text import seconds as in_words

COLOURS = ("#2f6fb3", "#c2571a", "#2e8b57", "#8e44ad", "#b8860b", "#c0392b", "#16808a", "#6b5b95", "#5d7a1f", "#a8336e")
RADIUS = 5.5
FOOT = 34.0
MOST_FRAMES = 600
WIDEST_GIF, LARGEST_GIF = 1600.0, 1.5e6
PAPER_COLOURS = 200
WHITE = "#ffffff"


def animation_svg(document: Document, tries: Sequence[Try], *, seconds: float = 30.0, most: int = MOST) -> str:
    """A self-contained SVG that shows the first `most` tries in so many seconds, again and again."""
    found, drawn = _prepared(document, tries, seconds, most)
    duration = f'dur="{seconds:g}s" repeatCount="indefinite"'
    width, y = drawn.width - 2 * MARGIN, drawn.height - 12
    bar = (
        f'<rect class="bar" x="{MARGIN:g}" y="{y:g}" width="0" height="3">'
        f'<animate attributeName="width" from="0" to="{width:g}" {duration}/></rect>'
    )
    css = f".bar{{fill:{QUIET[0]}}}.token{{stroke:#fff;stroke-width:1.2}}"
    return svg_of(drawn, [bar, *(_token(journey, duration) for journey in found)], css)


def _prepared(document: Document, tries: Sequence[Try], seconds: float, most: int) -> tuple[list[Journey], Scene]:
    if not 0 < seconds <= 3600:
        raise ConfigError(f"an animation of {seconds} s is none; it may take more than 0 and at most 3600 s")
    found, span = journeys(document, tries, most=most)
    drawn = scene(document)
    words = f"{in_words(span)} in {seconds:g} s; waiting below a task, worked on above it; a colour for each case"
    foot = Words(MARGIN, drawn.height + 10, words, "label")
    return found, replace(drawn, height=drawn.height + FOOT, shapes=(*drawn.shapes, foot))


def _token(journey: Journey, duration: str) -> str:
    moments = [moment for moment, _, _ in journey.stops]
    stops = list(journey.stops)
    if moments[0] > 0:
        stops.insert(0, (0.0, *stops[0][1:]))
    if moments[-1] < 1:
        stops.append((1.0, *stops[-1][1:]))
    times = ";".join(f"{max(0.0, min(1.0, moment)):.5f}" for moment, _, _ in stops)
    animations = [
        f'<animate attributeName="{name}" values="{";".join(f"{stop[place]:.1f}" for stop in stops)}"'
        f' keyTimes="{times}" {duration}/>'
        for name, place in (("cx", 1), ("cy", 2))
    ]
    shown = f"{max(moments[0], 0.00001):.5f};{min(moments[-1], 0.99999):.5f}"
    animations.append(
        f'<animate attributeName="opacity" calcMode="discrete" values="0;1;0" keyTimes="0;{shown}" {duration}/>'
    )
    colour = COLOURS[journey.case % len(COLOURS)]
    title = f"<title>case {journey.case}</title>"
    return f'<circle class="token" r="{RADIUS:g}" fill="{colour}" opacity="0">{title}{"".join(animations)}</circle>'


def animation_gif(
    document: Document, tries: Sequence[Try], *, seconds: float = 20.0, rate: int = 10, most: int = MOST
) -> bytes:
    """The same as a GIF of `rate` pictures a second."""
    found, drawn = _prepared(document, tries, seconds, most)
    count = max(2, round(seconds * rate))
    if count > MOST_FRAMES:
        raise ConfigError(
            f"{seconds:g} s of {rate} pictures each are {count}, and a GIF may have {MOST_FRAMES}",
            hint="Take fewer seconds or a lower rate.",
        )
    scale = min(1.0, WIDEST_GIF / drawn.width, sqrt(LARGEST_GIF / (drawn.width * drawn.height)))
    paper = _with_palette(Image.open(io.BytesIO(png_of(drawn, scale=scale))).convert("RGB"))
    frames = [_frame(paper, found, number / (count - 1), scale) for number in range(count)]
    buffer = io.BytesIO()
    frames[0].save(
        buffer, "GIF", save_all=True, append_images=frames[1:], duration=round(1000 / rate), loop=0, optimize=False
    )
    return buffer.getvalue()


def _with_palette(paper: Image.Image) -> Image.Image:
    """The paper in a palette that ends with the colours of tokens and bar."""
    reduced = paper.quantize(PAPER_COLOURS, dither=Image.Dither.NONE)
    palette = (reduced.getpalette() or [])[: 3 * PAPER_COLOURS]
    palette += [0] * (3 * PAPER_COLOURS - len(palette))
    for colour in (*COLOURS, WHITE, QUIET[0]):
        palette += ImageColor.getrgb(colour)
    reduced.putpalette(palette)
    return reduced


def _frame(paper: Image.Image, found: Sequence[Journey], moment: float, scale: float) -> Image.Image:
    """One picture; colours are places in its palette."""
    frame = paper.copy()
    draw = ImageDraw.Draw(frame)
    radius, white = RADIUS * scale, PAPER_COLOURS + len(COLOURS)
    for journey in found:
        place = journey.at(moment)
        if place is not None:
            x, y = place[0] * scale, place[1] * scale
            colour = PAPER_COLOURS + journey.case % len(COLOURS)
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=white)
    left, right = MARGIN * scale, frame.width - MARGIN * scale
    draw.rectangle((left, frame.height - 12, left + (right - left) * moment, frame.height - 10), fill=white + 1)
    return frame
