"""The figures of a report: learning curve, panels of metrics, time per step, one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from groupwise.reporting.canvas import (
    BLUE,
    COLOURS,
    MUTED,
    ORANGE,
    RULE,
    draw_line,
    finish,
    label_ends,
    limit,
    stacked_axes,
    thin,
)
from groupwise.reporting.charts import PHASES, Panel
from groupwise.reporting.history import History, Series
from groupwise.reporting.text import short
from groupwise.training.numbers import finite, number, percent


def draw_learning(history: History, width: float) -> Any:
    reward, tests = history.series("reward/mean"), history.series("eval/reward_mean")
    target = finite(history.setting("training.target_reward"))
    found = (("training", reward[1], BLUE), ("evaluation", tests[1], ORANGE))
    labels = [(values[-1], f"{name} {number(values[-1])}", colour) for name, values, colour in found if values]
    if target is not None:
        labels.append((target, f"target {number(target)}", MUTED))
    figure, (axes,) = stacked_axes(width, min(3.4, 0.62 * width), 1, [text for _, text, _ in labels])
    _band(axes, history)
    draw_line(axes, reward, BLUE)
    axes.plot(*tests, color=ORANGE, marker="o", markersize=4.5, linewidth=1, zorder=3, clip_on=False)
    if target is not None:
        axes.axhline(target, color=MUTED, linewidth=0.9, dashes=(4, 3))
    finish(axes, "reward", _span(history))
    label_ends(axes, labels)
    return figure


def _band(axes: Any, history: History) -> None:
    """One standard deviation around the mean, never beyond the best and the worst attempt."""
    columns = [dict(zip(*history.series(f"reward/{name}"), strict=True)) for name in ("mean", "std", "min", "max")]
    mean, std, low, high = columns
    steps = [step for step in mean if step in std]
    lower = [max(mean[s] - std[s], low.get(s, mean[s] - std[s])) for s in steps]
    upper = [min(mean[s] + std[s], high.get(s, mean[s] + std[s])) for s in steps]
    xs, lows = thin((steps, lower))
    axes.fill_between(xs, lows, thin((steps, upper))[1], color=BLUE, alpha=0.15, linewidth=0)


def draw_panels(history: History, panels: Sequence[Panel], width: float) -> Any:
    ends = [_ends(history, panel) for panel in panels]
    height = 0.95 + 1.05 * len(panels)
    figure, axes = stacked_axes(width, height, len(panels), [text for end in ends for _, text, _ in end])
    for i, panel in enumerate(panels):
        for (name, _), colour in zip(panel.lines, COLOURS, strict=False):
            draw_line(axes[i], history.series(name), colour)
        limit(axes[i], panel)
        finish(axes[i], panel.title, _span(history), bottom=i == len(panels) - 1)
        label_ends(axes[i], ends[i])
    return figure


def _ends(history: History, panel: Panel) -> list[tuple[float, str, str]]:
    """The direct labels of a panel's lines: name and last value."""
    ends = []
    for (name, label), colour in zip(panel.lines, COLOURS, strict=False):
        value = history.series(name)[1][-1]
        ends.append((value, f"{label} {percent(value) if panel.percent else number(value)}".strip(), colour))
    return ends


def draw_phases(history: History, width: float) -> Any:
    columns = [dict(zip(*history.series(f"timing/{phase}"), strict=True)) for phase in PHASES]
    steps = sorted(set[int]().union(*columns))
    layers = [thin((steps, [column.get(step, 0.0) for step in steps])) for column in columns]
    totals = [sum(values) for _, values in layers]
    names = [f"{phase} {percent(t / (sum(totals) or 1))}" for phase, t in zip(PHASES, totals, strict=True)]
    figure, (axes,) = stacked_axes(width, 2.0, 1, names)
    heights = _stack(axes, layers)
    # One slow step (a warm-up, say) must not press the others flat.
    top = 1.12 * (sorted(heights)[int(0.98 * (len(heights) - 1))] or 1)
    axes.set_ylim(0, top)
    if max(heights) > top:
        axes.set_title(f"peak {number(max(heights))} s", loc="right", fontsize=8, color=MUTED, pad=5)
    finish(axes, "seconds", _span(history))
    ends = [sum(values[-1] for _, values in layers[:i]) + layers[i][1][-1] / 2 for i in range(len(layers))]
    seen = [total >= 0.01 * sum(totals) for total in totals]
    label_ends(axes, list(compress(zip(ends, names, COLOURS, strict=False), seen)))
    return figure


def _stack(axes: Any, layers: Sequence[Series]) -> list[float]:
    """Stacked areas, or bars where there are too few steps for an area; returns the heights."""
    steps = layers[0][0]
    heights = [0.0] * len(steps)
    for (_, values), colour in zip(layers, COLOURS, strict=False):
        tops = [low + value for low, value in zip(heights, values, strict=True)]
        if len(steps) < 3:
            axes.bar(steps, values, 0.5, heights, color=colour)
        else:
            axes.fill_between(steps, heights, tops, color=colour, alpha=0.85, linewidth=0)
        heights = tops
    return heights


def draw_group(rows: Sequence[Mapping[str, Any]], width: float) -> Any:
    """One group: each attempt's score against the group's mean, and the advantage that came of it.

    `rows` are the group's rows as `groups.read_groups` gives them, best first, failed attempts last.
    """
    from matplotlib.figure import Figure

    scores = [finite(row.get("total")) for row in rows]
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else 0.0
    advantages = [None if s is None else finite(row.get("advantage")) for row, s in zip(rows, scores, strict=True)]
    height = 0.75 + 0.17 * len(rows)
    wide, high = 72 * width, 72 * height
    figure = Figure(figsize=(width, height))
    left, right = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(46 / wide, 32 / high, 1 - 10 / wide, 1 - 20 / high, wspace=0.12)
    _bars(
        left,
        [None if s is None else s - mean for s in scores],
        f"score − mean ({number(mean)})",
    )
    _bars(right, advantages, "advantage")
    left.set_yticks(range(len(rows)), ["failed" if s is None else number(s) for s in scores], fontsize=8)
    left.set_ylim(len(rows) - 0.4, -0.6)
    for i, row in enumerate(rows):
        if scores[i] is None:
            reason = short(str(row.get("failure") or "no score"), 26)
            style = {"va": "center", "color": MUTED, "fontsize": 8}
            left.annotate(reason, (0, i), (4, 0), "data", "offset points", **style)
    return figure


def _bars(axes: Any, values: Sequence[float | None], title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for i, value in enumerate(values):
        if value is not None:
            axes.barh(i, value, height=0.62, color=BLUE if value >= 0 else ORANGE)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.grid(axis="x", color=RULE)
    axes.grid(visible=False, axis="y")
    axes.set_title(title, loc="left", fontsize=9, color=MUTED, pad=5)
    size = 1.1 * max((abs(value) for value in values if value is not None), default=0) or 1.0
    axes.set_xlim(-size, size)
    axes.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _span(history: History) -> tuple[int, int]:
    steps = [*history.steps, *history.evals]
    return (min(steps), max(steps)) if steps else (0, 1)
