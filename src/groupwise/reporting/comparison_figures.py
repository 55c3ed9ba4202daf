"""The figures of a comparison: learning curves, intervals, profiles, differences, and time until solved."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from groupwise.reporting import statistics as st
from groupwise.reporting.canvas import INK, MANY, MUTED, RULE, label_ends, stacked_axes
from groupwise.reporting.comparison import Comparison
from groupwise.reporting.statistics import Interval, Table
from groupwise.reporting.text import short
from groupwise.training.formatting import number, percent

# Dashes for algorithms beyond the number of colours, characters of a name, and points of a curve.
LINES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
NAME = 22
LEVELS = 101
MEASURES = {"iqm": "interquartile mean", "mean": "mean", "median": "median task", "optimality_gap": "optimality gap ↓"}


def colour_of(comparison: Comparison, algorithm: str) -> str:
    return MANY[comparison.algorithms.index(algorithm) % len(MANY)]


def dash_of(comparison: Comparison, algorithm: str) -> Any:
    return LINES[comparison.algorithms.index(algorithm) // len(MANY) % len(LINES)]


def thousands(value: float) -> str:
    """A number of steps, short enough for an axis."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def finish_axes(axes: Any, title: str, xlabel: str = "", *, steps: bool = False, shares: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, loc="left", fontsize=9, color=MUTED, pad=5)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    across = thousands if steps else number
    upwards = percent if shares else number
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: across(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: upwards(value)))


def draw_curves(comparison: Comparison, task: str, width: float) -> Any:
    """The scores of a task over steps: each algorithm's median over seeds and the interquartile range."""
    curves = task_curves(comparison, task)
    solved = comparison.scales[task].solved
    ends = last_values(comparison, {name: quartiles for name, (_, quartiles) in curves.items()})
    if solved is not None:
        ends.append((solved, f"solved {number(solved)}", MUTED))
    figure, axes = single_panel(width, min(3.4, 0.66 * width), ends)
    if solved is not None:
        axes.axhline(solved, color=MUTED, linewidth=0.9, dashes=(4, 3))
    for name, (steps, quartiles) in curves.items():
        draw_band(axes, steps, quartiles, colour_of(comparison, name), dash_of(comparison, name))
    axes.set_xlim(0, max(comparison.horizons[task], 1))
    finish_axes(axes, "score", "steps", steps=True)
    label_ends(axes, ends)
    return figure


def last_values(comparison: Comparison, curves: Mapping[str, Table]) -> list[tuple[float, str, str]]:
    """Labels at the right end of curves: name and last median."""
    lasts = {name: float(quartiles[1, -1]) for name, quartiles in curves.items()}
    return [(y, f"{short(name, NAME)} {number(y)}", colour_of(comparison, name)) for name, y in lasts.items()]


def single_panel(width: float, height: float, ends: Sequence[tuple[float, str, str]]) -> tuple[Any, Any]:
    figure, (axes,) = stacked_axes(width, height, 1, [text for _, text, _ in ends], left=44)
    return figure, axes


def draw_band(axes: Any, x: Table, quartiles: Table, colour: str, dash: Any = "-") -> None:
    axes.fill_between(x, quartiles[0], quartiles[2], color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, quartiles[1], color=colour, linestyle=dash)


def task_curves(comparison: Comparison, task: str) -> dict[str, tuple[Table, Table]]:
    """By algorithm, the steps [P] and the quartiles of its scores over seeds [3, P], up to the task's horizon."""
    steps = np.linspace(0, comparison.horizons[task], LEVELS)
    found = {}
    for algorithm in comparison.algorithms:
        if courses := comparison.of(algorithm, task):
            scores = np.array([course.at(steps) for course in courses])
            found[algorithm] = steps, np.asarray(np.quantile(scores, [0.25, 0.5, 0.75], axis=0))
    return found


def draw_overall(comparison: Comparison, width: float) -> Any:
    """Normalised scores over the share of the budget, all tasks together."""
    curves = overall_curves(comparison)
    x = np.linspace(0, 1, LEVELS)
    ends = last_values(comparison, curves)
    figure, axes = single_panel(width, min(3.4, 0.66 * width), ends)
    for name, quartiles in curves.items():
        draw_band(axes, x, quartiles, colour_of(comparison, name), dash_of(comparison, name))
    axes.set_xlim(0, 1)
    finish_axes(axes, "normalised score (0 random, 1 solved)", "share of the budget")
    label_ends(axes, ends)
    return figure


def overall_curves(comparison: Comparison) -> dict[str, Table]:
    """By algorithm, the quartiles over seeds [3, P] of the mean over its tasks."""
    found = {}
    for standing in comparison.standings:
        by_key, name = comparison.by_key, standing.algorithm
        curves = [
            np.mean([comparison.curve(by_key[name, task, seed], LEVELS) for task in standing.tasks], axis=0)
            for seed in standing.seeds
        ]
        found[name] = np.asarray(np.quantile(curves, [0.25, 0.5, 0.75], axis=0))
    return found


def draw_intervals(comparison: Comparison, width: float) -> Any:
    """One panel for each summary of the final scores, one row for each algorithm."""
    columns = 4 if width > 6 else 2
    names = [standing.algorithm for standing in comparison.standings]
    figure, panels = row_panels(width, names, len(MEASURES), columns)
    for axes, (key, title) in zip(panels, MEASURES.items(), strict=True):
        for row, standing in enumerate(comparison.standings):
            mark_interval(axes, row, standing.final[key], colour_of(comparison, standing.algorithm))
        finish_rows(axes, names, title)
    return figure


def row_panels(width: float, names: Sequence[str], count: int, columns: int) -> tuple[Any, list[Any]]:
    """Panels side by side, with room for the row names at the left; sizes in points."""
    from matplotlib.figure import Figure

    # Ceiling division.
    rows = -(-count // columns)
    left = 14 + 5.4 * max((min(len(name), NAME) for name in names), default=0)
    inner = 16 + 19 * len(names)
    height = (8 + rows * (inner + 44)) / 72
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    wide, high = 72 * width, 72 * height
    figure.subplots_adjust(left / wide, 28 / high, 1 - 12 / wide, 1 - 20 / high, wspace=0.16, hspace=46 / inner)
    return figure, list(grid.flat)[:count]


def mark_interval(axes: Any, row: int, interval: Interval, colour: str) -> None:
    axes.plot([interval.low, interval.high], [row, row], color=colour, linewidth=5, alpha=0.32, solid_capstyle="butt")
    axes.plot(interval.value, row, "o", color=colour, markersize=5)


def finish_rows(axes: Any, names: Sequence[str], title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, loc="left", fontsize=9, color=MUTED, pad=5)
    axes.set_yticks(range(len(names)), [short(name, NAME) for name in names])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", color=RULE)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    low, high = axes.get_xlim()
    # Equal values need some width, or the axis would show rounding errors.
    if high - low < 0.02:
        middle = (low + high) / 2
        axes.set_xlim(middle - 0.05, middle + 0.05)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}" if abs(value) > 1e-9 else "0"))


def draw_profile(comparison: Comparison, levels: Table, profiles: Mapping[str, Table], width: float) -> Any:
    """The share of runs that end above a score, for every score, from `profile_lines`."""
    colours = {name: colour_of(comparison, name) for name in profiles}
    middle = len(levels) // 2
    ends = [(bands[1, middle], short(name, NAME), colours[name]) for name, bands in profiles.items()]
    figure, axes = single_panel(width, min(3.2, 0.62 * width), ends)
    for name, bands in profiles.items():
        draw_band(axes, levels, bands, colours[name], dash_of(comparison, name))
    axes.axvline(1.0, color=MUTED, linewidth=0.9, dashes=(4, 3))
    axes.set_xlim(levels[0], levels[-1])
    axes.set_ylim(-0.02, 1.04)
    finish_axes(axes, "share of runs above", "normalised final score (1 is solved)", shares=True)
    label_ends(axes, ends)
    return figure


def profile_lines(comparison: Comparison, repetitions: int = 2000) -> tuple[Table, dict[str, Table]]:
    """Levels [L] and, by algorithm, the share above them: lower end, value, upper end [3, L]."""
    tables = {
        s.algorithm: (comparison.table(s.algorithm, s.tasks, s.seeds, "final"), comparison.strata(s.tasks))
        for s in comparison.standings
    }
    everything = np.concatenate([table.ravel() for table, _ in tables.values()])
    # From random or worse to a little above solved, whatever the scores are.
    levels = np.linspace(min(0.0, float(everything.min())), max(1.05, float(everything.max())), LEVELS)
    lines = {}
    for name, (table, strata) in tables.items():
        above = partial(st.performance_profile, levels=levels)
        samples = st.bootstrap(above, table, strata=strata, repetitions=repetitions)
        low, high = np.quantile(samples, [0.025, 0.975], axis=0)
        lines[name] = np.stack([low, above(table), high])
    return levels, lines


def draw_improvement(comparison: Comparison, width: float) -> Any:
    """The probability that a run of the first algorithm beats a run of the second."""
    names = [f"{short(duel.ours, 16)} > {short(duel.theirs, 16)}" for duel in comparison.duels]
    figure, axes = pair_panel(width, names)
    axes.axvline(0.5, color=MUTED, linewidth=0.9, dashes=(4, 3))
    for row, duel in enumerate(comparison.duels):
        mark_interval(axes, row, duel.improvement, colour_of(comparison, duel.ours))
    axes.set_xlim(-0.03, 1.03)
    finish_pairs(axes, names, "probability that a run beats a run of the other")
    return figure


def draw_differences(comparison: Comparison, width: float) -> Any:
    """Paired differences of the final scores; grey ones may not be claimed."""
    names = [f"{short(duel.ours, 16)} − {short(duel.theirs, 16)}" for duel in comparison.duels]
    figure, axes = pair_panel(width, names)
    axes.axvline(0, color=MUTED, linewidth=0.9, dashes=(4, 3))
    for row, duel in enumerate(comparison.duels):
        better = duel.ours if duel.final.interval.value > 0 else duel.theirs
        colour = colour_of(comparison, better) if duel.distinguishable else MUTED
        mark_interval(axes, row, duel.final.interval, colour)
    size = 1.1 * max(abs(end) for end in (*axes.dataLim.intervalx, 0.05))
    axes.set_xlim(-size, size)
    finish_pairs(axes, names, "difference of normalised final scores, by seed")
    return figure


def pair_panel(width: float, names: Sequence[str], row: float = 21) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # About 5.2 points per character.
    left = 16 + 5.2 * max(len(name) for name in names)
    wide, high = 72 * width, 62 + row * len(names)
    figure = Figure(figsize=(width, high / 72))
    figure.subplots_adjust(min(left / wide, 0.6), 28 / high, 1 - 14 / wide, 1 - 22 / high)
    return figure, figure.subplots(1, 1)


def finish_pairs(axes: Any, names: Sequence[str], title: str) -> None:
    low, high = axes.get_xlim()
    finish_rows(axes, names, "")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(low, high)
    # The title starts at the figure's edge, because names take most of a narrow figure.
    axes.figure.text(6 / (72 * axes.figure.get_figwidth()), 1 - 14 / (72 * axes.figure.get_figheight()), title,
                     fontsize=9, color=MUTED, va="baseline")  # fmt: skip


def draw_survival(comparison: Comparison, task: str, width: float) -> Any:
    """The share of runs that have solved a task by a step; a run that never did is censored at its end."""
    found = {name: s for (name, where), s in comparison.survivals.items() if where == task}
    ends = [
        (1 - s.shares[-1], f"{short(name, NAME)} {s.solved} of {s.runs}", colour_of(comparison, name))
        for name, s in found.items()
    ]
    figure, axes = single_panel(width, min(3.0, 0.6 * width), ends)
    for name, survival in found.items():
        # The last step of the curve extends to the end of the axis.
        times = [*survival.times, comparison.horizons[task]]
        shares = [1 - share for share in (*survival.shares, survival.shares[-1])]
        axes.step(times, shares, where="post", color=colour_of(comparison, name), linestyle=dash_of(comparison, name))
    axes.axhline(0.5, color=RULE, linewidth=0.9)
    axes.set_xlim(0, max(comparison.horizons[task], 1))
    axes.set_ylim(-0.02, 1.04)
    finish_axes(axes, f"share of runs that reached {number(comparison.scales[task].solved or 0)}", "steps",
                steps=True, shares=True)  # fmt: skip
    label_ends(axes, ends)
    return figure


def draw_tasks(comparison: Comparison, width: float) -> Any:
    """Every task's final scores, algorithm by algorithm: do all tasks contribute to the average?"""
    rows = task_rows(comparison)
    names = [short(algorithm or task, NAME) for task, algorithm, _ in rows]
    figure, axes = pair_panel(width, names, 15)
    for row, (_, algorithm, scores) in enumerate(rows):
        if algorithm:
            value, low, high = np.quantile(scores, [0.5, 0.25, 0.75])
            mark_interval(axes, row, Interval(value, low, high), colour_of(comparison, algorithm))
    axes.margins(x=0.08)
    finish_pairs(axes, names, "normalised final score: median and middle half of the seeds")
    for label, (_, algorithm, _) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set(color=MUTED if algorithm else INK, fontweight="normal" if algorithm else "bold")
    return figure


def task_rows(comparison: Comparison) -> list[tuple[str, str, Sequence[float]]]:
    """Task, algorithm and its scores by seed; each task starts with a heading row that has neither."""
    rows: list[tuple[str, str, Sequence[float]]] = []
    for task in comparison.tasks:
        rows.append((task, "", ()))
        for algorithm in comparison.algorithms:
            if courses := comparison.of(algorithm, task):
                rows.append((task, algorithm, [comparison.final(course) for course in courses]))
    return rows
