"""Figures of a simulation from its trace: who did what when, how many waited, and how busy the servers were.

Each is a `Scene`, to be rendered by `svg.svg_of` or `png.png_of`. A trace is any sequence of tries of activities. One
that was cut off is incomplete towards its end; `until` leaves that part out.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import floor, inf, log10

from groupwise.errors import ConfigError
from groupwise.workflows.evaluation.performance import SimulatedTry
from groupwise.workflows.pictures.drawing_layout import MARGIN, Point
from groupwise.workflows.pictures.labels import SMALL, seconds, shortened, width_of
from groupwise.workflows.pictures.shapes import POOLS, Line, Oblong, Scene, Shape, Words

WIDTH = 680.0
ROW, STRIP_HEIGHT = 22.0, 74.0
NOBODY = "nobody needed"


class _Axis:
    def __init__(self, begin: float, end: float, left: float, right: float) -> None:
        self.begin, self.end, self.left, self.right = begin, max(end, begin + 1e-9), left, right

    def x(self, time: float) -> float:
        share = (min(max(time, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return self.left + share * (self.right - self.left)

    def shapes(self, top: float, bottom: float) -> Iterator[Shape]:
        for time in _ticks(self.end - self.begin):
            x = self.x(self.begin + time)
            yield Line(((x, top), (x, bottom)), "axis")
            yield Words(x, bottom + 15, seconds(time) if time else "0", "label", "middle")


def _ticks(span: float) -> list[float]:
    """About eight round times: multiples of 1, 2, 5, 10 … seconds, or of whole minutes, hours and days."""
    wanted = span / 8
    natural = [60.0, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 1209600]
    power = 10 ** floor(log10(wanted))
    steps = [power, 2 * power, 5 * power, 10 * power]
    step = min(steps if wanted < 60 or wanted > natural[-1] else natural, key=lambda one: abs(one - wanted))
    return [number * step for number in range(int(span / step * (1 + 1e-12)) + 1)]


def _window(tries: Sequence[SimulatedTry], until: float | None) -> tuple[list[SimulatedTry], float, float]:
    if not tries:
        raise ConfigError("the trace is empty", hint="Simulate with a trace of at least one try.")
    begin = min(one.ready for one in tries)
    end = max(one.end for one in tries) if until is None else until
    return [one for one in tries if one.ready < end], begin, end


def _pools(tries: Sequence[SimulatedTry]) -> list[str]:
    return list(dict.fromkeys(sorted(one.pool for one in tries if one.pool is not None)))


def _label_width(labels: Sequence[str]) -> float:
    return MARGIN + max(width_of(label, SMALL) for label in labels) + 10


def gantt(tries: Sequence[SimulatedTry], *, until: float | None = None, title: str = "Who did what, and when") -> Scene:
    """A row for every server and a bar for every try; those that failed or were cancelled are dashed."""
    shown, begin, end = _window(tries, until)
    rows = _rows(shown)
    labels = [shortened(label, 30) for label, _ in rows]
    axis = _Axis(begin, end, _label_width(labels), WIDTH - MARGIN)
    top = MARGIN + 24
    bottom = top + ROW * len(rows)
    shapes: list[Shape] = [Words(MARGIN, MARGIN + 6, title, "heading"), *axis.shapes(top, bottom)]
    names = list(dict.fromkeys(one.activity for one in sorted(shown, key=lambda one: one.start)))
    styles = {name: f"pool{number % len(POOLS)}" for number, name in enumerate(names)}
    for number, (label, bars) in enumerate(rows):
        y = top + ROW * number
        shapes.append(Words(axis.left - 8, y + 15, shortened(label, 30), "label", "end"))
        shapes += [shape for one in bars for shape in _bar(one, axis, y, styles[one.activity])]
    lost = {"failed or cancelled": "lost"} if any(one.outcome != "done" for one in shown) else {}
    legend, height = _names(styles | lost, bottom + 32)
    return Scene(title, WIDTH, bottom + 32 + height, (*shapes, *legend))


def _rows(tries: Sequence[SimulatedTry]) -> list[tuple[str, list[SimulatedTry]]]:
    """One row per server of every pool; tries that need nobody share as few rows as possible."""
    rows: dict[tuple[str, int], list[SimulatedTry]] = {}
    for one in sorted(tries, key=lambda one: (one.start, one.end)):
        if one.pool is not None and one.server >= 0:
            rows.setdefault((one.pool, one.server), []).append(one)
    found = [(f"{pool} {server + 1}", bars) for (pool, server), bars in sorted(rows.items())]
    free: list[list[SimulatedTry]] = []
    for one in sorted(tries, key=lambda one: (one.start, one.end)):
        if one.pool is None or one.server < 0:
            row = next((row for row in free if row[-1].end <= one.start), None)
            if row is None:
                free.append([one])
            else:
                row.append(one)
    return found + [(NOBODY if number == 0 else "", bars) for number, bars in enumerate(free)]


def _bar(one: SimulatedTry, axis: _Axis, y: float, style: str) -> Iterator[Shape]:
    left, right = axis.x(one.start), axis.x(one.end)
    hint = (
        f"{one.activity}, case {one.case}: {seconds(one.end - one.start)}, "
        f"waited {seconds(one.start - one.ready)}, {one.outcome}"
    )
    style = style if one.outcome == "done" else "lost"
    yield Oblong(left, y + 3, max(right - left, 1.0), ROW - 6, style, min(3.0, (right - left) / 2), hint)
    label = f"{one.activity} {one.case}"
    for text in (label, f"{one.case}"):
        if width_of(text, SMALL) + 8 < right - left:
            yield Words((left + right) / 2, y + 15, text, "mark", "middle")
            break


def _names(styles: Mapping[str, str], top: float) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    x, y = MARGIN, top
    for name, style in styles.items():
        label = shortened(name, 28)
        step = 22 + width_of(label, SMALL) + 16
        if x > MARGIN and x + step > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        shapes += [Oblong(x, y - 6, 14, 12, style, 3), Words(x + 20, y + 4, label, "label")]
        x += step
    return shapes, y - top + 24


def queues(tries: Sequence[SimulatedTry], *, until: float | None = None, title: str = "Queue lengths") -> Scene:
    """The length of every pool's queue over time."""
    shown, begin, end = _window(tries, until)
    strips = []
    for pool in _pools(shown):
        steps = _steps([(one.ready, one.start) for one in shown if one.pool == pool and one.start > one.ready])
        mean = _mean(steps, begin, end)
        strips.append((pool, f"{mean:.2g} on average", steps, None))
    return _strips(strips, begin, end, title)


def utilisation(
    tries: Sequence[SimulatedTry],
    servers: Mapping[str, int],
    *,
    until: float | None = None,
    title: str = "Busy servers",
) -> Scene:
    """How many servers of every pool are busy over time; the dashed line shows how many there are."""
    shown, begin, end = _window(tries, until)
    strips = []
    for pool in _pools(shown):
        steps = _steps([(one.start, one.end) for one in shown if one.pool == pool])
        count = servers.get(pool, max(height for _, height in steps))
        strips.append((pool, f"{_mean(steps, begin, end) / count:.0%} busy", steps, count))
    return _strips(strips, begin, end, title)


Steps = list[tuple[float, int]]


def _steps(spans: Sequence[tuple[float, float]]) -> Steps:
    """How many spans cover each moment, as (time of a change, number from then on)."""
    changes: dict[float, int] = {}
    for start, stop in spans:
        changes[start] = changes.get(start, 0) + 1
        changes[stop] = changes.get(stop, 0) - 1
    steps, height = [(-inf, 0)], 0
    for time, change in sorted(changes.items()):
        height += change
        steps.append((time, height))
    return steps


def _mean(steps: Steps, begin: float, end: float) -> float:
    area = 0.0
    for (time, height), (until, _) in zip(steps, [*steps[1:], (inf, 0)], strict=True):
        area += height * max(0.0, min(until, end) - max(time, begin))
    return area / (end - begin) if end > begin else 0.0


def _strips(strips: Sequence[tuple[str, str, Steps, int | None]], begin: float, end: float, title: str) -> Scene:
    """Charts below each other on a common time axis, each with its own scale."""
    if not strips:
        raise ConfigError("no try in the trace needs a pool, so there is nothing to show")
    left = _label_width([shortened(pool, 24) for pool, *_ in strips] + [note for _, note, *_ in strips]) + 24
    axis = _Axis(begin, end, left, WIDTH - MARGIN)
    top = MARGIN + 24
    bottom = top + STRIP_HEIGHT * len(strips)
    shapes: list[Shape] = [Words(MARGIN, MARGIN + 6, title, "heading"), *axis.shapes(top, bottom)]
    for number, (pool, note, steps, limit) in enumerate(strips):
        base = top + STRIP_HEIGHT * (number + 1) - 4
        most = max([height for _, height in steps] + [limit or 1])
        unit = (STRIP_HEIGHT - 18) / most
        shapes.append(Line(_area(steps, axis, base, unit), f"pool{number % len(POOLS)}", closed=True))
        if limit is not None:
            shapes.append(Line(((axis.left, base - limit * unit), (axis.right, base - limit * unit)), "limit"))
        shapes.append(Line(((axis.left, base), (axis.right, base)), "axis"))
        shapes.append(Words(MARGIN, base - 26, shortened(pool, 24), "name"))
        shapes.append(Words(MARGIN, base - 10, note, "label"))
        shapes.append(Words(axis.left - 6, base - most * unit + 4, f"{most}", "label", "end"))
        shapes.append(Words(axis.left - 6, base + 4, "0", "label", "end"))
    return Scene(title, WIDTH, bottom + 32, tuple(shapes))


def _area(steps: Steps, axis: _Axis, base: float, unit: float) -> tuple[Point, ...]:
    points: list[Point] = [(axis.left, base)]
    for time, height in steps:
        x, y = axis.x(time), base - height * unit
        points += [(x, points[-1][1]), (x, y)]
    points += [(axis.right, points[-1][1]), (axis.right, base)]
    return tuple(points)
