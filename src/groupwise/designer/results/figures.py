"""The figures of a design report: Pareto front, parts of the score, generations and stages."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.designer.results.explanation import ParetoRow
from groupwise.designer.results.outcome import STAGES, Generation
from groupwise.reporting.canvas import BLUE, COLOURS, GREEN, INK, MUTED, ORANGE, RULE, label_ends, stacked_axes
from groupwise.training.formatting import number
from groupwise.workflows.scoring import ScorePart
from groupwise.workflows.wording import time_unit

ORIGINS = ("likeliest", "sample", "edit", "memory", "rule")


def draw_front(rows: Sequence[ParetoRow], start: ParetoRow | None, width: float) -> Any:
    """Cost against cycle time; a dot's size is its control-flow complexity, the chosen design is filled."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    figure, axes = _axes(width, min(3.6, 0.75 * width), left=52, bottom=38, right=14, top=20)
    unit, size = time_unit(max(row.cycle_time for row in (*rows, *([start] if start else []))))
    for row in rows:
        axes.scatter(
            row.cycle_time / size, row.cost, s=_area(row), facecolor=ORANGE if row.chosen else BLUE, alpha=0.85,
            linewidth=0, zorder=4 if row.chosen else 3, clip_on=False,
        )  # fmt: skip
    if start is not None:
        place = start.cycle_time / size, start.cost
        axes.scatter(*place, s=_area(start), facecolor="none", edgecolor=MUTED, linewidth=1.4, zorder=2, clip_on=False)
        _name(axes, place, "before", MUTED)
    for row in rows:
        if row.chosen:
            _name(axes, (row.cycle_time / size, row.cost), "chosen", ORANGE)
    axes.margins(0.12, 0.14)
    axes.set_title("cost per case", loc="left", fontsize=9, color=MUTED, pad=6)
    axes.set_xlabel(f"cycle time ({unit})")
    axes.grid(axis="x", color=RULE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    return figure


def _axes(width: float, height: float, *, left: float, bottom: float, right: float, top: float) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes; the space around them is in points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    across, down = 72 * width, 72 * height
    axes = figure.subplots()
    figure.subplots_adjust(left / across, bottom / down, 1 - right / across, 1 - top / down)
    return figure, axes


def _area(row: ParetoRow) -> float:
    return 22 + 5 * min(row.control_flow, 30)


def _name(axes: Any, place: tuple[float, float], words: str, colour: str) -> None:
    style = {"color": colour, "va": "center", "fontsize": 8, "zorder": 5, "fontweight": "bold"}
    axes.annotate(words, place, (8, 0), "data", "offset points", **style)


def draw_parts(before: ScorePart | None, after: ScorePart, width: float) -> Any:
    """Each measure's share: a ring for the baseline, a dot for the design, a line between them."""
    groups = [[part for part in group.parts if part.share is not None] for group in after.parts]
    names = [(group.name, parts) for group, parts in zip(after.parts, groups, strict=True) if parts]
    count = sum(1 + len(parts) for _, parts in names)
    figure, axes = _axes(width, 0.6 + 0.2 * count, left=142, bottom=26, right=34, top=6)
    old = {part.name: part for group in before.parts for part in group.parts} if before is not None else {}
    line = 0
    ticks: list[tuple[int, str, str]] = []
    for group, parts in names:
        ticks.append((line, group, INK))
        line += 1
        for part in parts:
            ticks.append((line, part.name, MUTED))
            _dumbbell(axes, line, old.get(part.name), part)
            line += 1
    axes.set_yticks([place for place, _, _ in ticks], [words for _, words, _ in ticks], fontsize=8)
    for label, (_, _, colour) in zip(axes.get_yticklabels(), ticks, strict=True):
        label.set_color(colour)
        label.set_fontweight("bold" if colour == INK else "normal")
    axes.set_ylim(line - 0.4, -0.6)
    axes.set_xlim(0, 1)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=RULE)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    return figure


def _dumbbell(axes: Any, line: int, old: ScorePart | None, part: ScorePart) -> None:
    share = part.share or 0.0
    if old is not None and old.share is not None:
        colour = GREEN if share > old.share + 1e-3 else ORANGE if share < old.share - 1e-3 else MUTED
        axes.plot([old.share, share], [line, line], color=colour, linewidth=2.2, alpha=0.6, zorder=2)
        axes.scatter(old.share, line, s=22, facecolor="none", edgecolor=MUTED, linewidth=1.2, zorder=3, clip_on=False)
    axes.scatter(share, line, s=26, color=BLUE, zorder=4, clip_on=False)
    axes.annotate(f"{share:.2f}", (1, line), (8, 0), "data", "offset points", va="center", fontsize=8, color=MUTED)


def draw_generations(generations: Sequence[Generation], width: float) -> Any:
    """Best and mean score by generation; below, the origin of the candidates."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    numbers = [generation.number + 1 for generation in generations]
    best, mean = _running_best(generations), [generation.mean for generation in generations]
    names = [origin for origin in ORIGINS if any(generation.origins.get(origin) for generation in generations)]
    labels = [f"best {best[-1]:.3f}", f"mean {mean[-1]:.3f}", *names]
    figure, (above, below) = stacked_axes(width, 3.4, 2, labels)
    style = {"marker": "o", "markersize": 3.5, "clip_on": False}
    above.plot(numbers, best, color=BLUE, **style)
    above.plot(numbers, mean, color=ORANGE, **style)
    above.set_title("score", loc="left", fontsize=9, color=MUTED, pad=5)
    above.yaxis.set_major_locator(MaxNLocator(4))
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    heights = [0.0] * len(numbers)
    middles: list[tuple[float, str, str]] = []
    for origin, colour in zip(names, COLOURS, strict=False):
        counts = [generation.origins.get(origin, 0) for generation in generations]
        below.bar(numbers, counts, 0.62, heights, color=colour)
        if counts[-1]:
            middles.append((heights[-1] + counts[-1] / 2, f"{origin} {counts[-1]}", colour))
        heights = [low + count for low, count in zip(heights, counts, strict=True)]
    below.set_title("candidates", loc="left", fontsize=9, color=MUTED, pad=5)
    below.set_xlim(0.5, numbers[-1] + 0.5)
    below.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    below.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    below.set_xlabel("generation")
    label_ends(above, [(best[-1], labels[0], BLUE), (mean[-1], labels[1], ORANGE)])
    label_ends(below, middles)
    return figure


def _running_best(generations: Sequence[Generation]) -> list[float]:
    found, best = [], float("-inf")
    for generation in generations:
        best = max(best, generation.best)
        found.append(best)
    return found


def draw_stages(stages: Mapping[str, float], generations: int, width: float) -> Any:
    """Each stage's time per generation, beside its target range."""
    figure, axes = _axes(width, 0.55 + 0.26 * len(stages), left=122, bottom=34, right=56, top=8)
    for line, (name, seconds) in enumerate(stages.items()):
        own = 1000 * seconds / max(generations, 1)
        low, high = STAGES.get(name, (0.0, 0.0))
        axes.barh(line, 1000 * (high - low), 0.7, 1000 * low, color=RULE, zorder=1)
        axes.barh(line, own, 0.36, color=BLUE if own <= 1000 * high else ORANGE, zorder=2)
        axes.annotate(
            f"{own:.0f} ms" if own >= 0.5 else "< 1 ms" if own else "–", (1, line), (6, 0),
            ("axes fraction", "data"), "offset points", va="center", fontsize=8, color=MUTED,
        )  # fmt: skip
    axes.set_yticks(range(len(stages)), list(stages), fontsize=8)
    axes.set_ylim(len(stages) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=RULE)
    axes.set_xlabel("milliseconds per generation")
    return figure
