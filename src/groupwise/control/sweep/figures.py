"""The figures of a sweep: importance, the surface over two settings, the score along each setting, how many solve."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.control.sweep.axes import Axis, shown
from groupwise.control.sweep.findings import Findings, ScoreCurve, Surface
from groupwise.reporting.canvas import BLUE, GROUND, INK, MANY, MUTED, RULE, label_ends
from groupwise.reporting.comparison_figures import finish_axes, single_panel
from groupwise.reporting.text import short
from groupwise.training.formatting import number, percent

# Light to dark for colour-blind readers and grey printers alike.
COLOURS = "viridis"
MARK = "#d6336c"
# Lists with at most this many cells show their numbers.
CELLS = 48
LABEL = 26


def draw_importance(found: Findings, width: float) -> Any:
    """A bar for every setting: dark for what it does alone, light for what it does together with one other."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    names = [short(one.axis.name, 30) for one in found.importance]
    left, row = 16 + 5.4 * max(map(len, names)), 24
    wide, high = 72 * width, 66 + row * len(names)
    figure = Figure(figsize=(width, high / 72))
    axes = figure.subplots(1, 1)
    figure.subplots_adjust(min(left / wide, 0.55), 40 / high, 1 - 16 / wide, 1 - 20 / high)
    for place, one in enumerate(found.importance):
        axes.barh(place, one.total.value, 0.56, color=BLUE, alpha=0.3, linewidth=0)
        axes.barh(place, one.alone.value, 0.56, color=BLUE, linewidth=0)
        if not math.isnan(one.total.low):
            axes.plot([one.total.low, one.total.high], [place, place], color=INK, linewidth=1.1)
            axes.plot([one.total.low, one.total.high], [place, place], "|", color=INK, markersize=7)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(names) - 0.5, -0.5)
    highest = max(one.total.high if not math.isnan(one.total.high) else one.total.value for one in found.importance)
    axes.set_xlim(0, min(max(1.05 * highest, 0.1), 1.02) if highest <= 1 else 1.05 * highest)
    axes.grid(axis="x", color=RULE)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
    axes.set_xlabel("share of the variance of the score (dark: alone; light: with one other; line: 95%)", fontsize=8)
    return figure


def draw_surface(found: Findings, solved: float | None, width: float) -> Any:
    """The score over two settings: cells are predicted, dots are the means of settings that were trained."""
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    surface = found.surface
    assert surface is not None
    x, y = surface.x, surface.y
    height = min(0.62 * width, 4.6) if width > 5 else 0.9 * width
    figure = Figure(figsize=(width, height))
    wide, high = 72 * width, 72 * height
    left = 26 + 5.4 * max(len(label) for label in _tick_labels(y))
    axes = figure.add_axes((left / wide, 42 / high, 1 - (left + 86) / wide, 1 - 64 / high))
    bar = figure.add_axes((1 - 66 / wide, 42 / high, 11 / wide, 1 - 64 / high))
    tried = observed(found, x, y)
    everything = [*surface.scores.ravel().tolist(), *tried.values()]
    norm = Normalize(min(everything), max(everything) if max(everything) > min(everything) else min(everything) + 1)
    axes.pcolormesh(edges(x), edges(y), surface.scores, cmap=COLOURS, norm=norm, linewidth=0, rasterized=True)
    numbers = not (x.is_range or y.is_range) and len(x.values) * len(y.values) <= CELLS
    if numbers:
        _numbers(axes, surface, tried, norm)
    else:
        _dots(axes, x, y, tried, norm)
    _mark(axes, found, x, y, numbers)
    for axis, side in ((x, axes.xaxis), (y, axes.yaxis)):
        _scale(axes, axis, side)
    axes.grid(visible=False)
    axes.set_xlabel(x.name)
    axes.set_title(y.name, loc="left", fontsize=9, color=MUTED, pad=6)
    _colour_bar(figure, bar, norm, solved)
    return figure


def observed(found: Findings, x: Axis, y: Axis) -> dict[tuple[Any, Any], float]:
    """The mean score of the trained settings at every pair of values of two axes."""
    columns = [axis.name for axis in found.axes]
    at_x, at_y = columns.index(x.name), columns.index(y.name)
    scores: dict[tuple[Any, Any], list[float]] = {}
    for trial in found.trials:
        if trial.complete and trial.mean is not None:
            scores.setdefault((trial.candidate.values[at_x], trial.candidate.values[at_y]), []).append(trial.mean)
    return {pair: fmean(values) for pair, values in scores.items()}


def edges(axis: Axis) -> NDArray[np.float64]:
    """The borders of the cells of an axis, in the figure's coordinates."""
    if axis.values:
        return np.arange(len(axis.values) + 1, dtype=np.float64) - 0.5
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.log else (axis.low, axis.high)
    borders = np.linspace(low, high, len(axis.levels()) + 1)
    return np.asarray(np.exp(borders) if axis.log else borders, np.float64)


def position(axis: Axis, value: Any) -> float:
    return axis.place(value) if axis.values else float(value)


def _dots(axes: Any, x: Axis, y: Axis, tried: dict[tuple[Any, Any], float], norm: Any) -> None:
    if tried:
        across = [position(x, pair[0]) for pair in tried]
        upwards = [position(y, pair[1]) for pair in tried]
        axes.scatter(across, upwards, c=list(tried.values()), cmap=COLOURS, norm=norm, s=34, edgecolors=GROUND,
                     linewidths=1.1, zorder=3, clip_on=False)  # fmt: skip


def _numbers(axes: Any, surface: Surface, tried: dict[tuple[Any, Any], float], norm: Any) -> None:
    """The mean of the trained settings in every cell, or in brackets what is predicted where none was trained."""
    from matplotlib import colormaps

    for row, above in enumerate(surface.y.values):
        for column, across in enumerate(surface.x.values):
            predicted, mean = float(surface.scores[row, column]), tried.get((across, above))
            red, green, blue, _ = colormaps[COLOURS](norm(predicted))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            text = f"({number(predicted)})" if mean is None else number(mean)
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")


def _mark(axes: Any, found: Findings, x: Axis, y: Axis, numbers: bool) -> None:
    """A ring around the recommended setting, or a frame around its cell where a ring would hide the number."""
    from matplotlib.patches import Rectangle

    if found.recommendation is None:
        return
    columns = [axis.name for axis in found.axes]
    values = found.recommendation.trial.candidate.values
    here = position(x, values[columns.index(x.name)]), position(y, values[columns.index(y.name)])
    if numbers:
        corner = here[0] - 0.47, here[1] - 0.46
        axes.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=MARK, linewidth=2.2, zorder=4))
        return
    for colour, line in ((GROUND, 3.2), (MARK, 1.8)):
        axes.scatter(*here, s=190, facecolors="none", edgecolors=colour, linewidths=line, zorder=4, clip_on=False)


def _tick_labels(axis: Axis) -> list[str]:
    if axis.values:
        return [short(shown(value), 14) for value in axis.values]
    return [f"{axis.low:g}", f"{axis.high:g}"]


def _scale(axes: Any, axis: Axis, side: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    horizontal = side is axes.xaxis
    if axis.values:
        labels = _tick_labels(axis)
        # Long names would run into each other.
        room = 72 * axes.figure.get_figwidth() * axes.get_position().width / len(labels)
        crowded = horizontal and 5.4 * max(map(len, labels)) + 5 > room
        (axes.set_xticks if horizontal else axes.set_yticks)(
            range(len(labels)), labels, **({"rotation": 30, "ha": "right"} if crowded else {})
        )
        return
    if axis.log:
        (axes.set_xscale if horizontal else axes.set_yscale)("log")
        # Labels between the decades, as far as there is room for them.
        room = 72 * axes.figure.get_figwidth() * axes.get_position().width if horizontal else 300.0
        each = room / max(math.log10(axis.high / axis.low), 0.5)
        side.set_major_locator(LogLocator(subs=(1.0,) if each < 90 else (1.0, 3.0) if each < 180 else (1.0, 2.0, 5.0)))
        side.set_minor_formatter(NullFormatter())
    else:
        side.set_major_locator(MaxNLocator(5, integer=axis.whole, steps=[1, 2, 2.5, 5, 10]))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    (axes.set_xlim if horizontal else axes.set_ylim)(axis.low, axis.high)


def _colour_bar(figure: Any, bar: Any, norm: Any, solved: float | None) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import FuncFormatter

    drawn = figure.colorbar(ScalarMappable(norm, COLOURS), cax=bar)
    drawn.outline.set_visible(False)
    bar.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    bar.set_title("score", loc="left", fontsize=9, color=MUTED, pad=6)
    bar.grid(visible=False)
    if solved is not None and norm.vmin < solved < norm.vmax:
        bar.axhline(solved, color=MARK, linewidth=1.6)


def draw_responses(found: Findings, solved: float | None, width: float) -> Any:
    """The score along every setting, averaged over all others, with its interval; dots are trained settings."""
    from matplotlib.figure import Figure

    columns = min(len(found.responses), 3 if width > 6 else 1)
    rows = -(-len(found.responses) // columns)
    wide, inner = 72 * width, 118
    high = 22 + rows * (inner + 48)
    figure = Figure(figsize=(width, high / 72))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    figure.subplots_adjust(40 / wide, 30 / high, 1 - 12 / wide, 1 - 20 / high, wspace=0.1, hspace=52 / inner)
    for place, axes in enumerate(panels.flat):
        if place < len(found.responses):
            _response_panel(axes, found, found.responses[place], solved)
        else:
            axes.set_visible(False)
    return figure


def _response_panel(axes: Any, found: Findings, response: ScoreCurve, solved: float | None) -> None:
    axis, column = response.axis, [one.name for one in found.axes].index(response.axis.name)
    finish_axes(axes, short(axis.name, LABEL))
    done = [trial for trial in found.trials if trial.complete]
    across = [position(axis, trial.candidate.values[column]) for trial in done]
    axes.scatter(across, [trial.mean for trial in done], s=9, color=MUTED, alpha=0.45, linewidths=0)
    places = [position(axis, value) for value in response.values]
    if axis.values:
        axes.vlines(places, response.low, response.high, color=BLUE, alpha=0.32, linewidth=6)
        axes.plot(places, response.scores, "o", color=BLUE, markersize=5)
        axes.set_xlim(-0.6, len(places) - 0.4)
    else:
        axes.fill_between(places, response.low, response.high, color=BLUE, alpha=0.16, linewidth=0)
        axes.plot(places, response.scores, color=BLUE)
    _scale(axes, axis, axes.xaxis)
    if solved is not None and axes.get_ylim()[0] <= solved <= 1.02 * axes.get_ylim()[1]:
        axes.axhline(solved, color=MUTED, linewidth=0.9, dashes=(4, 3))


def draw_shares(everything: Sequence[Findings], solved: float | None, width: float) -> Any:
    """The share of settings whose mean score reaches a level, for every level: high lines forgive wrong settings."""
    curves = share_curves(everything)
    solving = {found.algorithm: found.solving for found in everything}
    labels = []
    for place, (name, (_, shares)) in enumerate(curves.items()):
        share = solving[name]
        words = short(name, 20) if share is None else f"{short(name, 20)} {percent(share.value)} solve"
        labels.append((float(shares[-1]), words, MANY[place % len(MANY)]))
    figure, axes = single_panel(width, min(3.0, 0.6 * width), labels)
    for (levels, shares), (_, _, colour) in zip(curves.values(), labels, strict=True):
        axes.step(levels, shares, where="post", color=colour)
    if solved is not None:
        axes.axvline(solved, color=MUTED, linewidth=0.9, dashes=(4, 3))
    axes.set_ylim(-0.02, 1.04)
    title = f"mean score of a setting{f' (dashed: solved, {number(solved)})' if solved is not None else ''}"
    finish_axes(axes, "share of settings that reach it", title, shares=True)
    label_ends(axes, labels)
    return figure


def share_curves(everything: Sequence[Findings]) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """By algorithm, levels of the score and the share of ended settings whose mean reaches them."""
    means = {
        found.algorithm: [t.mean for t in found.trials if t.complete and t.mean is not None] for found in everything
    }
    ended = {found.algorithm: sum(t.state in ("finished", "failed") for t in found.trials) for found in everything}
    scores = [mean for own in means.values() for mean in own]
    levels = np.linspace(min(scores), max(scores), 201)
    return {
        name: (levels, (np.array(own)[:, np.newaxis] >= levels).sum(0) / max(ended[name], 1))
        for name, own in means.items() if own
    }  # fmt: skip
