"""Animations of a simulation (cases as tokens that move over their workflow), and all figures written to a folder.

`animation_svg` runs in any browser; `animation_gif` shows the same everywhere else. A token travels along the flows to
a task, waits below it, and is worked on above it. Moments are shares of the whole animation, from 0 to 1.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import hypot, sqrt
from pathlib import Path

from PIL import Image, ImageColor, ImageDraw

from groupwise.errors import ConfigError
from groupwise.files import write_output
from groupwise.workflows.document import Document
from groupwise.workflows.endings import role_of
from groupwise.workflows.evaluation.performance import SimulatedTry
from groupwise.workflows.graph import Graph, Node
from groupwise.workflows.pictures.drawing_layout import MARGIN, Point
from groupwise.workflows.pictures.figures import gantt, queues, utilisation
from groupwise.workflows.pictures.labels import seconds as in_words
from groupwise.workflows.pictures.png import png_of
from groupwise.workflows.pictures.scene import PlacedGraph, arranged, scene
from groupwise.workflows.pictures.shapes import QUIET, Scene, Words
from groupwise.workflows.pictures.summary import is_large, summarised
from groupwise.workflows.pictures.svg import svg, svg_of

# The share of the animation that a token takes from one task to the next.
TRAVEL = 0.03
# Tries shown by default: more tokens would slow a browser down.
MOST = 400
# Pixels between tokens at one task.
STEP = 13.0
# Times this close count as equal.
CLOSE = 1e-9

Stop = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Journey:
    """Where a token is: (moment, x, y) with straight lines in between. It is hidden before and after."""

    case: int
    stops: tuple[Stop, ...]

    def at(self, moment: float) -> Point | None:
        if not self.stops[0][0] <= moment <= self.stops[-1][0]:
            return None
        for (t1, x1, y1), (t2, x2, y2) in pairwise(self.stops):
            if moment <= t2:
                share = (moment - t1) / (t2 - t1) if t2 > t1 else 1.0
                return x1 + share * (x2 - x1), y1 + share * (y2 - y1)
        return self.stops[-1][1:]


def journeys(document: Document, tries: Sequence[SimulatedTry], *, most: int = MOST) -> tuple[list[Journey], float]:
    """The tokens of the first `most` tries, and how many seconds of the simulation they cover."""
    shown = sorted(tries, key=lambda one: (one.ready, one.start, one.end))[:most]
    if not shown:
        raise ConfigError("the trace is empty", hint="Simulate with a trace of at least one try.")
    begin = shown[0].ready
    span = max(max(one.end for one in shown) - begin, CLOSE)
    found = [journey for placed in arranged(document) for journey in _Stage(placed, begin, span).journeys(shown)]
    if not found:
        raise ConfigError(f"the trace is of another workflow: {shown[0].activity!r} is not a task of {document.name!r}")
    # Travelling takes time that the simulation does not have, so moments are scaled to end at 1.
    last = max(journey.stops[-1][0] for journey in found)
    return [Journey(one.case, tuple((moment / last, x, y) for moment, x, y in one.stops)) for one in found], span


@dataclass(slots=True)
class _Visit:
    """A try on the drawing: where its token is worked on, when it leaves, and the tasks it has led to."""

    what: SimulatedTry
    node: str
    spot: Point
    leaves: float
    follows: set[str] = field(default_factory=set)


class _Stage:
    def __init__(self, placed: PlacedGraph, begin: float, span: float) -> None:
        self.placed, self.begin, self.span = placed, begin, span
        self.graph = placed.graph
        self.tasks = {node.label: node.id for node in self.graph.nodes if _works(node)}
        sources = [node.id for node in self.graph.nodes if _works(node) or node.kind == "start"]
        self.ways = {name: _ways(self.graph, name) for name in sources}
        self.above: dict[str, list[float]] = {}
        self.below: dict[str, list[float]] = {}

    def journeys(self, tries: Sequence[SimulatedTry]) -> Iterator[Journey]:
        cases: dict[int, list[_Visit]] = {}
        for one in tries:
            if one.activity in self.tasks:
                yield from self._come(cases.setdefault(one.case, []), one)
        for visits in cases.values():
            for visit in visits:
                yield from self._go(visit)

    def _moment(self, time: float) -> float:
        return TRAVEL + (time - self.begin) / self.span

    def _come(self, visits: list[_Visit], one: SimulatedTry) -> Iterator[Journey]:
        """The token of a try, and tokens of other branches that arrived earlier at the join before it."""
        node = self.tasks[one.activity]
        origins = sorted(self._origins(visits, one, node), key=lambda visit: visit.leaves)
        origin = origins[-1] if origins else None
        path, depart = self._path_to(node, origin, self._moment(one.ready))
        arrive = depart + (TRAVEL if len(path) > 1 else 0.0)
        start = max(self._moment(one.start), arrive)
        leaves = max(self._moment(one.end), start + TRAVEL / 4)
        stops = _walk(path, depart, arrive)
        # It waits below the task if nobody can start it, then moves above it to be worked on.
        if start > arrive + CLOSE:
            stops += [(arrive + TRAVEL / 6, *self._spot(self.below, node, arrive, start, low=True))]
            stops += [(max(start, stops[-1][0]), *stops[-1][1:])]
        spot = self._spot(self.above, node, start, leaves, low=False)
        stops += [(stops[-1][0] + TRAVEL / 6, *spot), (max(leaves, stops[-1][0] + TRAVEL / 5), *spot)]
        yield Journey(one.case, tuple(stops))
        for visit in origins[:-1]:
            path = [visit.spot, *self._points(visit.node, node, before_join=True)]
            early = _walk(path, visit.leaves, visit.leaves + TRAVEL)
            yield Journey(visit.what.case, (*early, (max(arrive, early[-1][0]), *early[-1][1:])))
        for visit in origins:
            visit.follows.add(node)
        visits.append(_Visit(one, node, spot, stops[-1][0]))

    def _origins(self, visits: list[_Visit], one: SimulatedTry, node: str) -> list[_Visit]:
        """The last finished try of each task that leads to this node and has not led to it before."""
        latest: dict[str, _Visit] = {}
        for visit in visits:
            again = visit.node == node and visit.what.outcome == "failed"
            leads = node in self.ways[visit.node] and visit.what.outcome == "done"
            if (again or leads) and visit.what.end <= one.ready + CLOSE * self.span and node not in visit.follows:
                latest[visit.node] = visit
        return list(latest.values())

    def _path_to(self, node: str, origin: _Visit | None, ready: float) -> tuple[list[Point], float]:
        if origin is None:
            box = self.placed.layout.boxes[node]
            entry = (box.x, box.middle[1] + self.placed.top)
            return self._points(self.graph.start.id, node) or [entry], ready - TRAVEL
        if origin.node == node and node not in self.ways[node]:
            return [origin.spot], origin.leaves
        return [origin.spot, *self._points(origin.node, node)], origin.leaves

    def _points(self, source: str, target: str, *, before_join: bool = False) -> list[Point]:
        """The points along the flows from one node to another; with `before_join` only up to the first and-join."""
        points: list[Point] = []
        for flow in self.ways[source].get(target, ()):
            points += [(x, y + self.placed.top) for x, y in self.placed.layout.routes[flow]]
            ahead = self.graph.by_id[flow.partition("→")[2]] if flow.count("→") == 1 else None
            if before_join and ahead is not None and ahead.join == "and" and len(self.graph.into(ahead.id)) > 1:
                break
        return points

    def _go(self, visit: _Visit) -> Iterator[Journey]:
        """A token's way to the end, if nothing came after this try."""
        ends = [name for name in self.ways[visit.node] if _is_end(self.graph.by_id[name])]
        if not visit.follows and visit.what.outcome == "done" and ends:
            end = ends[0]
            box = self.placed.layout.boxes[end]
            middle = (box.middle[0], box.middle[1] + self.placed.top)
            path = [visit.spot, *self._points(visit.node, end), middle]
            yield Journey(visit.what.case, tuple(_walk(path, visit.leaves, visit.leaves + TRAVEL)))

    def _spot(self, taken: dict[str, list[float]], node: str, start: float, end: float, *, low: bool) -> Point:
        """The first free place on the upper or lower edge of a task; if there is none, the last one is shared."""
        box, until = self.placed.layout.boxes[node], taken.setdefault(node, [])
        places = max(1, int((box.width - 8) // STEP))
        free = next((number for number, time in enumerate(until) if time <= start + CLOSE), len(until))
        if free == len(until):
            until.append(end)
        until[free] = end
        x = box.x + 4 + STEP / 2 + STEP * min(free, places - 1)
        return x, (box.bottom if low else box.y) + self.placed.top


def _is_end(node: Node) -> bool:
    return node.kind == "end" or role_of(node) == "end"


def _works(node: Node) -> bool:
    return node.kind == "task" and not node.silent


def _ways(graph: Graph, source: str) -> dict[str, tuple[str, ...]]:
    """The tasks (and the end) that come next, each with the flows that lead there through gateways."""
    found: dict[str, tuple[str, ...]] = {}
    queue: list[tuple[str, tuple[str, ...]]] = [(source, ())]
    seen: set[str] = set()
    for here, path in queue:
        # A token that goes on does not take the ways by which cases end early.
        for flow in (one for one in graph.out_of(here) if not role_of(one)):
            target = graph.by_id[flow.target]
            if role_of(target) == "event":
                continue
            if _works(target) or _is_end(target):
                found.setdefault(target.id, (*path, flow.id))
            elif target.id not in seen:
                seen.add(target.id)
                queue.append((target.id, (*path, flow.id)))
    return found


def _walk(points: Sequence[Point], start: float, end: float) -> list[Stop]:
    lengths = [hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points)]
    whole, gone = sum(lengths) or 1.0, 0.0
    stops = [(start, *points[0])]
    for point, length in zip(points[1:], lengths, strict=True):
        gone += length
        stops.append((start + (end - start) * gone / whole, *point))
    return stops


COLOURS = ("#2f6fb3", "#c2571a", "#2e8b57", "#8e44ad", "#b8860b", "#c0392b", "#16808a", "#6b5b95", "#5d7a1f", "#a8336e")
RADIUS = 5.5
FOOT = 34.0
MOST_FRAMES = 600
WIDEST_GIF, LARGEST_GIF = 1600.0, 1.5e6
PAPER_COLOURS = 200
WHITE = "#ffffff"


def animation_svg(document: Document, tries: Sequence[SimulatedTry], *, seconds: float = 30.0, most: int = MOST) -> str:
    """A self-contained SVG that plays the first `most` tries in this many seconds, over and over."""
    found, drawn = _prepared(document, tries, seconds, most)
    duration = f'dur="{seconds:g}s" repeatCount="indefinite"'
    width, y = drawn.width - 2 * MARGIN, drawn.height - 12
    bar = (
        f'<rect class="bar" x="{MARGIN:g}" y="{y:g}" width="0" height="3">'
        f'<animate attributeName="width" from="0" to="{width:g}" {duration}/></rect>'
    )
    css = f".bar{{fill:{QUIET[0]}}}.token{{stroke:#fff;stroke-width:1.2}}"
    return svg_of(drawn, [bar, *(_token(journey, duration) for journey in found)], css)


def _prepared(
    document: Document, tries: Sequence[SimulatedTry], seconds: float, most: int
) -> tuple[list[Journey], Scene]:
    if not 0 < seconds <= 3600:
        raise ConfigError(f"an animation cannot last {seconds} s; choose more than 0 and at most 3600 s")
    found, span = journeys(document, tries, most=most)
    drawn = scene(document)
    words = f"{in_words(span)} in {seconds:g} s; cases wait below a task and are handled above it; one colour per case"
    foot = Words(MARGIN, drawn.height + 10, words, "label")
    return found, replace(drawn, height=drawn.height + FOOT, shapes=(*drawn.shapes, foot))


def _token(journey: Journey, duration: str) -> str:
    # SVG wants key times from exactly 0 to 1; the token is transparent outside its journey.
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
    fade = 'attributeName="opacity" calcMode="discrete" values="0;1;0"'
    animations.append(f'<animate {fade} keyTimes="0;{shown}" {duration}/>')
    colour = COLOURS[journey.case % len(COLOURS)]
    title = f"<title>case {journey.case}</title>"
    return f'<circle class="token" r="{RADIUS:g}" fill="{colour}" opacity="0">{title}{"".join(animations)}</circle>'


def animation_gif(
    document: Document, tries: Sequence[SimulatedTry], *, seconds: float = 20.0, rate: int = 10, most: int = MOST
) -> bytes:
    """The same as a GIF with `rate` frames per second."""
    found, drawn = _prepared(document, tries, seconds, most)
    count = max(2, round(seconds * rate))
    if count > MOST_FRAMES:
        raise ConfigError(
            f"{seconds:g} s at {rate} frames per second make {count} frames; a GIF may have at most {MOST_FRAMES}",
            hint="Choose fewer seconds or a lower rate.",
        )
    scale = min(1.0, WIDEST_GIF / drawn.width, sqrt(LARGEST_GIF / (drawn.width * drawn.height)))
    paper = _with_palette(Image.open(io.BytesIO(png_of(drawn, scale=scale))).convert("RGB"))
    frames = [_frame(paper, found, number / (count - 1), scale) for number in range(count)]
    buffer = io.BytesIO()
    pause = round(1000 / rate)
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=pause, loop=0, optimize=False)
    return buffer.getvalue()


def _with_palette(paper: Image.Image) -> Image.Image:
    """The background in a palette that ends with the colours of the tokens and the progress bar."""
    reduced = paper.quantize(PAPER_COLOURS, dither=Image.Dither.NONE)
    palette = (reduced.getpalette() or [])[: 3 * PAPER_COLOURS]
    palette += [0] * (3 * PAPER_COLOURS - len(palette))
    for colour in (*COLOURS, WHITE, QUIET[0]):
        palette += ImageColor.getrgb(colour)
    reduced.putpalette(palette)
    return reduced


def _frame(paper: Image.Image, found: Sequence[Journey], moment: float, scale: float) -> Image.Image:
    """One frame; colours are indices of its palette."""
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


SHOWN = 300


def write_figures(
    document: Document, tries: Sequence[SimulatedTry], servers: Mapping[str, int], folder: str | Path
) -> list[Path]:
    """Write the workflow, a Gantt chart, queues, utilisation, and animations as SVG and GIF; returns the files.

    The Gantt chart and the animations show the first 300 tries. A workflow too large to be drawn is summarised, if it
    is an order of tasks (see `summary`), and has no animation.
    """
    folder = Path(folder)
    large = is_large(document)
    drawn = summarised(document) if large else document
    pictures: dict[str, str | bytes] = {"workflow.svg": svg(drawn)} if drawn is not None else {}
    pictures["gantt.svg"] = svg_of(gantt(tries[:SHOWN]))
    if any(one.pool is not None for one in tries):
        pictures["queues.svg"] = svg_of(queues(tries))
        pictures["utilisation.svg"] = svg_of(utilisation(tries, servers))
    if not large:
        pictures["tokens.svg"] = animation_svg(document, tries, most=SHOWN)
        pictures["tokens.gif"] = animation_gif(document, tries, seconds=12.0, most=SHOWN)
    for name, picture in pictures.items():
        write_output(folder / name, picture)
    return [folder / name for name in pictures]
