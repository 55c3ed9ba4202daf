"""The figures of a run (learning curve, metric panels, time per step, one group) with their captions and data."""

import csv
import difflib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.files import write_output
from groupwise.reporting import canvas
from groupwise.reporting.charts import GROUPS_ONLY, HEALTH, PHASES, SUPERVISED, Chart, Panel
from groupwise.reporting.history import History, Series
from groupwise.reporting.text import short
from groupwise.reporting.verdict import headline_metric
from groupwise.training.formatting import finite, number, percent


def draw_learning(history: History, width: float) -> Any:
    reward, tests = history.series("reward/mean"), history.series("eval/reward_mean")
    # Drawn as a dashed line if the run has one.
    target = finite(history.setting("training.target_reward"))
    found = (("training", reward[1], canvas.BLUE), ("evaluation", tests[1], canvas.ORANGE))
    labels = [(values[-1], f"{name} {number(values[-1])}", colour) for name, values, colour in found if values]
    if target is not None:
        labels.append((target, f"target {number(target)}", canvas.MUTED))
    figure, (axes,) = canvas.stacked_axes(width, min(3.4, 0.62 * width), 1, [text for _, text, _ in labels])
    _band(axes, history)
    canvas.draw_line(axes, reward, canvas.BLUE)
    axes.plot(*tests, color=canvas.ORANGE, marker="o", markersize=4.5, linewidth=1, zorder=3, clip_on=False)
    if target is not None:
        axes.axhline(target, color=canvas.MUTED, linewidth=0.9, dashes=(4, 3))
    canvas.finish(axes, "reward", _span(history))
    canvas.label_ends(axes, labels)
    return figure


def _band(axes: Any, history: History) -> None:
    """One standard deviation around the mean, but never beyond the best and worst attempt."""
    columns = [dict(zip(*history.series(f"reward/{name}"), strict=True)) for name in ("mean", "std", "min", "max")]
    mean, std, low, high = columns
    steps = [step for step in mean if step in std]
    lower = [max(mean[s] - std[s], low.get(s, mean[s] - std[s])) for s in steps]
    upper = [min(mean[s] + std[s], high.get(s, mean[s] + std[s])) for s in steps]
    xs, lows = canvas.thin((steps, lower))
    axes.fill_between(xs, lows, canvas.thin((steps, upper))[1], color=canvas.BLUE, alpha=0.15, linewidth=0)


def draw_panels(history: History, panels: Sequence[Panel], width: float) -> Any:
    ends = [_ends(history, panel) for panel in panels]
    height = 0.95 + 1.05 * len(panels)
    figure, axes = canvas.stacked_axes(width, height, len(panels), [text for end in ends for _, text, _ in end])
    for i, panel in enumerate(panels):
        for (name, _), colour in zip(panel.lines, canvas.COLOURS, strict=False):
            canvas.draw_line(axes[i], history.series(name), colour)
        canvas.limit(axes[i], panel)
        canvas.finish(axes[i], panel.title, _span(history), bottom=i == len(panels) - 1)
        canvas.label_ends(axes[i], ends[i])
    return figure


def _ends(history: History, panel: Panel) -> list[tuple[float, str, str]]:
    """Labels at the right end of a panel's lines: name and last value."""
    ends = []
    for (name, label), colour in zip(panel.lines, canvas.COLOURS, strict=False):
        value = history.series(name)[1][-1]
        ends.append((value, f"{label} {percent(value) if panel.percent else number(value)}".strip(), colour))
    return ends


def draw_phases(history: History, width: float) -> Any:
    columns = [dict(zip(*history.series(f"timing/{phase}"), strict=True)) for phase in PHASES]
    # A phase may be missing from some steps; it then took no time.
    steps = sorted(set[int]().union(*columns))
    layers = [canvas.thin((steps, [column.get(step, 0.0) for step in steps])) for column in columns]
    totals = [sum(values) for _, values in layers]
    names = [f"{phase} {percent(t / (sum(totals) or 1))}" for phase, t in zip(PHASES, totals, strict=True)]
    figure, (axes,) = canvas.stacked_axes(width, 2.0, 1, names)
    heights = _stack(axes, layers)
    # One slow step, such as a warm-up, must not flatten the others: the axis ends at the 98th percentile.
    top = 1.12 * (sorted(heights)[int(0.98 * (len(heights) - 1))] or 1)
    axes.set_ylim(0, top)
    if max(heights) > top:
        axes.set_title(f"peak {number(max(heights))} s", loc="right", fontsize=8, color=canvas.MUTED, pad=5)
    canvas.finish(axes, "seconds", _span(history))
    ends = [sum(values[-1] for _, values in layers[:i]) + layers[i][1][-1] / 2 for i in range(len(layers))]
    seen = [total >= 0.01 * sum(totals) for total in totals]
    canvas.label_ends(axes, list(compress(zip(ends, names, canvas.COLOURS, strict=False), seen)))
    return figure


def _stack(axes: Any, layers: Sequence[Series]) -> list[float]:
    """Draw stacked areas, or bars if there are too few steps, and return the heights."""
    steps = layers[0][0]
    heights = [0.0] * len(steps)
    for (_, values), colour in zip(layers, canvas.COLOURS, strict=False):
        tops = [low + value for low, value in zip(heights, values, strict=True)]
        if len(steps) < 3:
            axes.bar(steps, values, 0.5, heights, color=colour)
        else:
            axes.fill_between(steps, heights, tops, color=colour, alpha=0.85, linewidth=0)
        heights = tops
    return heights


def draw_group(rows: Sequence[Mapping[str, Any]], width: float) -> Any:
    """One group: each attempt's score minus the group's mean, and its advantage.

    `rows` are the group's rows from `read_groups`, best first, failed attempts last.
    """
    from matplotlib.figure import Figure

    scores = [finite(row.get("total")) for row in rows]
    # Failed attempts have no score and no bar.
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else 0.0
    advantages = [None if s is None else finite(row.get("advantage")) for row, s in zip(rows, scores, strict=True)]
    height = 0.75 + 0.17 * len(rows)
    wide, high = 72 * width, 72 * height
    figure = Figure(figsize=(width, height))
    left, right = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(46 / wide, 32 / high, 1 - 10 / wide, 1 - 20 / high, wspace=0.12)
    _bars(left, [None if s is None else s - mean for s in scores], f"score − mean ({number(mean)})")
    _bars(right, advantages, "advantage")
    left.set_yticks(range(len(rows)), ["failed" if s is None else number(s) for s in scores], fontsize=8)
    left.set_ylim(len(rows) - 0.4, -0.6)
    for i, row in enumerate(rows):
        if scores[i] is None:
            reason = short(str(row.get("failure") or "no score"), 26)
            style = {"va": "center", "color": canvas.MUTED, "fontsize": 8}
            left.annotate(reason, (0, i), (4, 0), "data", "offset points", **style)
    return figure


def _bars(axes: Any, values: Sequence[float | None], title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for i, value in enumerate(values):
        if value is not None:
            axes.barh(i, value, height=0.62, color=canvas.BLUE if value >= 0 else canvas.ORANGE)
    axes.axvline(0, color=canvas.MUTED, linewidth=0.8)
    axes.grid(axis="x", color=canvas.RULE)
    axes.grid(visible=False, axis="y")
    axes.set_title(title, loc="left", fontsize=9, color=canvas.MUTED, pad=5)
    size = 1.1 * max((abs(value) for value in values if value is not None), default=0) or 1.0
    axes.set_xlim(-size, size)
    axes.xaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _span(history: History) -> tuple[int, int]:
    steps = [*history.steps, *history.evals]
    return (min(steps), max(steps)) if steps else (0, 1)


# Rows of a figure's data at most: longer runs are thinned.
CSV_ROWS = 5000
LEARNING = ("reward/mean", "reward/std", "reward/min", "reward/max", "eval/reward_mean", "eval/reward_std")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure to be drawn, with its caption, its alternative text and its data."""

    name: str
    title: str
    caption: str
    alt: str
    csv: str
    draw: canvas.Draw


def pictures(history: History) -> list[Picture]:
    """Every figure of the run that has data, the learning curve first."""
    found = []
    if history.series("reward/mean")[0] or history.series("eval/reward_mean")[0]:
        found.append(_learning_picture(history))
    for chart in charts_of(history):
        if panels := _with_data(history, chart):
            found.append(_chart_picture(history, replace(chart, panels=panels)))
    if any(history.series(f"timing/{phase}")[0] for phase in PHASES):
        found.append(_time_picture(history))
    return found


def charts_of(history: History) -> list[Chart]:
    """The charts that suit the run: what it is judged by, its reward's parts, and the health of the training."""
    if history.supervised:
        return [SUPERVISED, _judged_by(history), *(chart for chart in HEALTH if chart.name not in GROUPS_ONLY)]
    return [_judged_by(history), _parts(history), *HEALTH]


def _judged_by(history: History) -> Chart:
    """The product's headline metric, unless it is the reward that the learning curve shows."""
    metric = headline_metric(history)
    lines = () if metric.name in LEARNING else ((metric.name, ""),)
    caption = "What the run is judged by, at each evaluation."
    panel = Panel(metric.meaning, lines, percent=metric.unit == "share")
    return Chart("evaluation", "Held-out results", caption, (panel,))


def _parts(history: History) -> Chart:
    names = [name for name in history.names() if name.startswith("reward/part/")][: len(canvas.COLOURS)]
    # A single part would be the reward itself.
    lines = tuple((n, short(n.removeprefix("reward/part/"), 14)) for n in names) if len(names) > 1 else ()
    caption = "The parts of the reward, each averaged over the step's attempts."
    return Chart("parts", "Parts of the reward", caption, (Panel("mean", lines),))


def _with_data(history: History, chart: Chart) -> tuple[Panel, ...]:
    """The chart's panels, reduced to lines that have data."""
    known = [tuple(line for line in panel.lines if history.series(line[0])[0]) for panel in chart.panels]
    return tuple(replace(panel, lines=lines) for panel, lines in zip(chart.panels, known, strict=True) if lines)


def _learning_picture(history: History) -> Picture:
    return Picture(
        "learning",
        "Learning curve",
        "Mean reward of each step's attempts, with a band of one standard deviation. Dots are evaluations.",
        _in_words(history, [("reward/mean", "training reward"), ("eval/reward_mean", "evaluation reward")]),
        as_csv(history, LEARNING),
        lambda width: draw_learning(history, width),
    )


def _chart_picture(history: History, chart: Chart) -> Picture:
    lines = [(name, f"{panel.title} {label}".strip()) for panel in chart.panels for name, label in panel.lines]
    return Picture(
        chart.name,
        chart.title,
        chart.caption,
        _in_words(history, lines),
        as_csv(history, [name for name, _ in lines]),
        lambda width: draw_panels(history, chart.panels, width),
    )


def _time_picture(history: History) -> Picture:
    return Picture(
        "time",
        "Time per step",
        "Seconds by phase: making attempts, scoring them, computing advantages, updating the policy.",
        _in_words(history, [(f"timing/{phase}", f"seconds of {phase}") for phase in PHASES]),
        as_csv(history, [f"timing/{phase}" for phase in (*PHASES, "total")]),
        lambda width: draw_phases(history, width),
    )


def _in_words(history: History, lines: Iterable[tuple[str, str]]) -> str:
    """Where each line starts and ends, for readers who cannot see the figure."""
    words = []
    for name, label in lines:
        steps, values = history.series(name)
        if len(values) > 1:
            ends = f"{number(values[0])} at step {steps[0]} to {number(values[-1])} at step {steps[-1]}"
            words.append(f"{label} from {ends}")
        elif values:
            words.append(f"{label} {number(values[0])} at step {steps[0]}")
    return "; ".join(words)


def as_csv(history: History, names: Sequence[str]) -> str:
    """The series as a table by step; long runs are thinned to evenly spaced rows and the last one."""
    columns = {name: dict(zip(*history.series(name), strict=True)) for name in names}
    columns = {name: column for name, column in columns.items() if column}
    steps = sorted(set[int]().union(*columns.values()))
    # Ceiling division: at most CSV_ROWS rows.
    every = -(-len(steps) // CSV_ROWS) or 1
    rows = sorted({*steps[::every], *steps[-1:]})
    return csv_text(["step", *columns], ([step, *(c.get(step, "") for c in columns.values())] for step in rows))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def plot_runs(run_dirs: Sequence[Path], metric: str, out: Path) -> Path:
    """Draw one metric of several runs in one figure, written as .png, .svg or .pdf."""
    kind = out.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise ConfigError(f"cannot write a figure to {out.name!r}", hint="Use .png, .svg or .pdf.")
    histories = [History.read(path) for path in run_dirs]
    shown = [history for history in histories if history.series(metric)[0]]
    if not shown:
        runs = ", ".join(short(history.run, 40) for history in histories)
        message = f"there are no values of {metric!r} in {runs}"
        raise ConfigError(message, field="metric", hint=_near(metric, histories))
    write_output(out, canvas.render(lambda width: _draw_runs(shown, metric, width), 8.0, kind))
    return out


def _draw_runs(histories: Sequence[History], metric: str, width: float) -> Any:
    shares = metric.endswith("_share") or metric.startswith("policy/clip")
    lines = [history.series(metric) for history in histories]
    ends = [steps[-1] for steps, _ in lines]
    colours = [canvas.MANY[i % len(canvas.MANY)] for i in range(len(lines))]
    values = [percent(values[-1]) if shares else number(values[-1]) for _, values in lines]
    names = [f"{short(history.run, 28)} {value}" for history, value in zip(histories, values, strict=True)]
    figure, (axes,) = canvas.stacked_axes(width, 4.2, 1, names)
    for i, (series, colour) in enumerate(zip(lines, colours, strict=True)):
        canvas.draw_line(axes, series, colour, linestyle=("-", "--", ":")[i // len(canvas.MANY) % 3])
        axes.plot([ends[i], max(ends)], [series[1][-1]] * 2, color=colour, linewidth=0.6, alpha=0.4)
    canvas.limit(axes, Panel(metric, (), percent=shares))
    canvas.finish(axes, metric, (min(steps[0] for steps, _ in lines), max(ends)))
    canvas.label_ends(axes, [(line[1][-1], name, c) for line, name, c in zip(lines, names, colours, strict=True)])
    return figure


def _near(metric: str, histories: Sequence[History]) -> str:
    names = sorted({name for history in histories for name in history.names()})
    near = difflib.get_close_matches(metric, names, n=1, cutoff=0.5)
    known = f"Known: {', '.join(names)}." if names else "These runs have recorded nothing yet."
    return f"Did you mean {near[0]!r}? {known}" if near else known
