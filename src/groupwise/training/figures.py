"""What a run's events say, as series, and the pictures of them: one restrained style, made with Matplotlib.

A figure is drawn once, in the light colours. `inline_svg` puts it into a page, where each colour becomes a
CSS variable, so the same drawing is right in light and dark. Matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path
from typing import Any, TypeAlias
from xml.sax.saxutils import quoteattr

from groupwise.errors import ConfigError, RunNotFound
from groupwise.training.events import read_events
from groupwise.training.hints import finite, number, percent
from groupwise.training.storage import disk
from groupwise.types import Event

Series: TypeAlias = tuple[list[int], list[float]]
Draw: TypeAlias = Callable[[float], Any]

INK, MUTED, RULE, GROUND = "#1c2127", "#68717c", "#dfe3e8", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, ROSE = "#2563a8", "#c2571a", "#2f8554", "#7a4fa3", "#b23a63"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, ROSE)
MANY = (*COLOURS, "#178a8a", "#86690f", "#555b63", "#8f2f24", "#4a4fb8")
VARIABLES = {
    INK: "--ink", MUTED: "--muted", RULE: "--rule", GROUND: "--ground",
    BLUE: "--blue", ORANGE: "--orange", GREEN: "--green", PURPLE: "--purple", ROSE: "--rose",
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
PHASES = ("rollout", "score", "advantage", "update")
POINTS = 600


@dataclass
class History:
    """A run so far: its events folded into what tables, curves and reports need.

    A `start` that resumes from an earlier step forgets what came after that step, as the run folder does.
    """

    run: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    total_steps: int = 0
    steps: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    evals: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    hints: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    times: dict[int, tuple[float, float]] = field(default_factory=dict)
    _found: dict[str, Series] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        self._found.clear()
        self.run = event.run
        first, _ = self.times.get(event.attempt, (event.time, event.time))
        self.times[event.attempt] = (first, event.time)
        if event.type == "start":
            self._start(event.data)
        elif event.type == "step":
            self.steps[event.step] = event.data
        elif event.type == "eval":
            self.evals[event.step] = event.data
        elif event.type == "hint":
            self.hints.append((event.step, event.data))
        elif event.type == "error":
            self.errors.append(_mapping(event.data.get("error")))
        elif event.type == "end":
            self.end = event.data

    def _start(self, data: Mapping[str, Any]) -> None:
        last = int(finite(data.get("resumed_from")) or 0)
        self.config, self.env = _mapping(data.get("config")), _mapping(data.get("env"))
        self.total_steps = int(finite(data.get("total_steps")) or 0)
        self.steps = {step: kept for step, kept in self.steps.items() if step <= last}
        self.evals = {step: kept for step, kept in self.evals.items() if step <= last}
        self.hints = [(step, kept) for step, kept in self.hints if step <= last]
        self.errors, self.end = [], None

    @property
    def step(self) -> int:
        return max(self.steps, default=0)

    @property
    def seconds(self) -> float:
        """Time at work, without the pauses between attempts at the run."""
        return sum(last - first for first, last in self.times.values())

    def series(self, name: str) -> Series:
        """The steps and finite values of a metric, of `timing/<phase>` or of `totals/<what>`."""
        if name not in self._found:
            rows, part, key = self._place(name)
            values = ((step, finite(_mapping(data.get(part)).get(key))) for step, data in sorted(rows.items()))
            pairs = [(step, value) for step, value in values if value is not None]
            self._found[name] = [step for step, _ in pairs], [value for _, value in pairs]
        return self._found[name]

    def last(self, name: str) -> float | None:
        """The newest value of a series, looked for in the newest rows only: a display asks often."""
        rows, part, key = self._place(name)
        for data in islice(reversed(rows.values()), 100):
            if (value := finite(_mapping(data.get(part)).get(key))) is not None:
                return value
        return None

    def _place(self, name: str) -> tuple[dict[int, Mapping[str, Any]], str, str]:
        """Where a series lives: the rows by step, the part of a row and the key in it."""
        head, _, rest = name.partition("/")
        if head in ("timing", "totals"):
            return self.steps, head, rest
        return self.evals if head == "eval" else self.steps, "metrics", name

    def names(self) -> list[str]:
        """Every series there is."""
        found = {str(n) for data in self.evals.values() for n in _mapping(data.get("metrics"))}
        for data in self.steps.values():
            for part, prefix in (("metrics", ""), ("timing", "timing/"), ("totals", "totals/")):
                found.update(f"{prefix}{name}" for name in _mapping(data.get(part)))
        return sorted(found)

    def setting(self, path: str) -> Any:
        """A value of the configuration by its dotted name, or None."""
        value: Any = self.config
        for key in path.split("."):
            value = _mapping(value).get(key)
        return value

    @classmethod
    def read(cls, run_dir: Path) -> History:
        """The history in a run folder; a torn end of its log is left out."""
        if not run_dir.is_dir():
            raise RunNotFound(f"no run folder at {run_dir}", hint="`groupwise runs` lists them.")
        history = cls.of(read_events(run_dir / "events.jsonl"))
        history.run = history.run or run_dir.name
        return history


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Panel:
    """One small set of axes: its title and, for each line, the metric and a direct label."""

    title: str
    lines: tuple[tuple[str, str], ...]
    percent: bool = False
    top: float | None = None


def render(draw: Draw, width: float, kind: str) -> bytes:
    """The figure `draw(width in inches)` makes, as a file of kind svg, png or pdf."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        buffer = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        draw(width).savefig(buffer, format=kind, metadata=metadata)
        return buffer.getvalue()


def inline_svg(draw: Draw, width: float, name: str, alt: str) -> str:
    """A figure as an `<svg>` for a page: fluid, in the page's colours and font, its ids marked by `name`."""
    text = render(draw, width, "svg").decode()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r'\b(id="|href="#)|url\(#', lambda found: f"{found[0]}{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg", f'<svg role="img" aria-label={quoteattr(alt)}', 1)


def _axes(width: float, height: float, rows: int, labels: Iterable[str], left: float = 40) -> tuple[Any, Any]:
    """A figure of `rows` panels with room at the right for the longest direct label; sizes in points."""
    from matplotlib.figure import Figure

    right = max(64, 10 + 5.6 * max((len(label) for label in labels), default=0))
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    wide, high = 72 * width, 72 * height
    inner = (high - 48 - 26 * (rows - 1)) / rows
    figure.subplots_adjust(left / wide, 32 / high, 1 - right / wide, 1 - 16 / high, hspace=26 / inner)
    return figure, axes


def _finish(axes: Any, title: str, span: tuple[int, int], bottom: bool = True) -> None:
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


def _line(axes: Any, series: Series, colour: str, **style: Any) -> None:
    steps, values = thin(series)
    few = {"marker": "o", "markersize": 3, "clip_on": False} if len(steps) <= 25 else {}
    axes.plot(steps, values, color=colour, **few, **style)


def thin(series: Series) -> Series:
    """At most `POINTS` points: means of equal runs of neighbours."""
    steps, values = series
    size = -(-len(steps) // POINTS)
    if size <= 1:
        return series
    starts = range(0, len(steps), size)
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in starts]
    return [steps[min(i + size // 2, len(steps) - 1)] for i in starts], means


def _label_ends(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Write (height, text, colour) beside the right edge, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    gap = 11 / (axes.get_position().height * axes.figure.get_figheight() * 72)
    places = sorted((min(max((y - low) / (high - low), 0), 1), text, colour) for y, text, colour in labels)
    heights = spread_apart([place[0] for place in places], gap)
    for height, (_, text, colour) in zip(heights, places, strict=True):
        axes.annotate(
            text, (1, height), (5, 0), "axes fraction", "offset points", color=colour, va="center",
            annotation_clip=False,
        )  # fmt: skip


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved apart to `gap`, evenly up and down, and within 0 and 1 where they fit."""
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


def _span(history: History) -> tuple[int, int]:
    steps = [*history.steps, *history.evals]
    return (min(steps), max(steps)) if steps else (0, 1)


def draw_learning(history: History, width: float) -> Any:
    reward, tests = history.series("reward/mean"), history.series("eval/reward_mean")
    target = finite(history.setting("training.target_reward"))
    found = (("training", reward[1], BLUE), ("evaluation", tests[1], ORANGE))
    labels = [(values[-1], f"{name} {number(values[-1])}", colour) for name, values, colour in found if values]
    if target is not None:
        labels.append((target, f"target {number(target)}", MUTED))
    figure, (axes,) = _axes(width, min(3.4, 0.62 * width), 1, [text for _, text, _ in labels])
    _band(axes, history)
    _line(axes, reward, BLUE)
    axes.plot(*tests, color=ORANGE, marker="o", markersize=4.5, linewidth=1, zorder=3, clip_on=False)
    if target is not None:
        axes.axhline(target, color=MUTED, linewidth=0.9, dashes=(4, 3))
    _finish(axes, "reward", _span(history))
    _label_ends(axes, labels)
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
    figure, axes = _axes(width, height, len(panels), [text for end in ends for _, text, _ in end])
    for i, panel in enumerate(panels):
        for (name, _), colour in zip(panel.lines, COLOURS, strict=False):
            _line(axes[i], history.series(name), colour)
        _limit(axes[i], panel)
        _finish(axes[i], panel.title, _span(history), bottom=i == len(panels) - 1)
        _label_ends(axes[i], ends[i])
    return figure


def _ends(history: History, panel: Panel) -> list[tuple[float, str, str]]:
    """The direct labels of a panel's lines: name and last value."""
    ends = []
    for (name, label), colour in zip(panel.lines, COLOURS, strict=False):
        value = history.series(name)[1][-1]
        ends.append((value, f"{label} {percent(value) if panel.percent else number(value)}".strip(), colour))
    return ends


def _limit(axes: Any, panel: Panel) -> None:
    """Start at 0 where the numbers are not negative; shares up to at least a tenth."""
    from matplotlib.ticker import FuncFormatter

    low, high = axes.dataLim.intervaly
    if low >= 0:
        usual = max(1.12 * high, 0.1 if panel.percent else 0.0) or 1
        axes.set_ylim(0, usual if panel.top is None else 1.03 * panel.top)
    if panel.percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))


def draw_phases(history: History, width: float) -> Any:
    columns = [dict(zip(*history.series(f"timing/{phase}"), strict=True)) for phase in PHASES]
    steps = sorted(set[int]().union(*columns))
    layers = [thin((steps, [column.get(step, 0.0) for step in steps])) for column in columns]
    totals = [sum(values) for _, values in layers]
    names = [f"{phase} {percent(t / (sum(totals) or 1))}" for phase, t in zip(PHASES, totals, strict=True)]
    figure, (axes,) = _axes(width, 2.0, 1, names)
    heights = _stack(axes, layers)
    # One slow step (a warm-up, say) must not press the others flat.
    top = 1.12 * (sorted(heights)[int(0.98 * (len(heights) - 1))] or 1)
    axes.set_ylim(0, top)
    if max(heights) > top:
        axes.set_title(f"peak {number(max(heights))} s", loc="right", fontsize=8, color=MUTED, pad=5)
    _finish(axes, "seconds", _span(history))
    ends = [sum(values[-1] for _, values in layers[:i]) + layers[i][1][-1] / 2 for i in range(len(layers))]
    seen = [total >= 0.01 * sum(totals) for total in totals]
    _label_ends(axes, list(compress(zip(ends, names, COLOURS, strict=False), seen)))
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


def plot_runs(run_dirs: Sequence[Path], metric: str, out: Path) -> Path:
    """Compare a metric of several runs in one figure, written as .png, .svg or .pdf."""
    kind = out.suffix.removeprefix(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise ConfigError(f"{out.name!r} is not a picture Groupwise can write", hint="Use .png, .svg or .pdf.")
    histories = [History.read(path) for path in run_dirs]
    shown = [history for history in histories if history.series(metric)[0]]
    if not shown:
        raise ConfigError(_no_such_metric(metric, histories), field="metric", hint=_near(metric, histories))
    content = render(lambda width: _draw_runs(shown, metric, width), 8.0, kind)
    with disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content)
    return out


def _draw_runs(histories: Sequence[History], metric: str, width: float) -> Any:
    shares = metric.endswith("_share") or metric.startswith("policy/clip")
    lines = [history.series(metric) for history in histories]
    ends = [steps[-1] for steps, _ in lines]
    colours = [MANY[i % len(MANY)] for i in range(len(lines))]
    values = [percent(values[-1]) if shares else number(values[-1]) for _, values in lines]
    names = [f"{short(history.run, 28)} {value}" for history, value in zip(histories, values, strict=True)]
    figure, (axes,) = _axes(width, 4.2, 1, names)
    for i, (series, colour) in enumerate(zip(lines, colours, strict=True)):
        _line(axes, series, colour, linestyle=("-", "--", ":")[i // len(MANY) % 3])
        axes.plot([ends[i], max(ends)], [series[1][-1]] * 2, color=colour, linewidth=0.6, alpha=0.4)
    _limit(axes, Panel(metric, (), percent=shares))
    _finish(axes, metric, (min(steps[0] for steps, _ in lines), max(ends)))
    _label_ends(axes, [(line[1][-1], name, c) for line, name, c in zip(lines, names, colours, strict=True)])
    return figure


def _no_such_metric(metric: str, histories: Sequence[History]) -> str:
    return f"no value of {metric!r} in {', '.join(short(history.run, 40) for history in histories) or 'no run'}"


def _near(metric: str, histories: Sequence[History]) -> str:
    names = sorted({name for history in histories for name in history.names()})
    near = difflib.get_close_matches(metric, names, n=1, cutoff=0.5)
    known = f"Known: {', '.join(names)}." if names else "Nothing has been recorded yet."
    return f"Did you mean {near[0]!r}? {known}" if near else known


def short(text: str, length: int) -> str:
    """Text for a figure: what cannot be shown (control characters, halves of characters) is replaced."""
    shown = "".join(c if c.isprintable() else "�" for c in text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"
