"""A comparison on the terminal: a table of standings, a line for each pair, and the caveats a reader should know."""

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from groupwise.reporting.comparison import Comparison, Standing, count_seeds
from groupwise.reporting.statistics import EXPLORATORY, Interval
from groupwise.reporting.text import clock, printable
from groupwise.training.formatting import number

# Budgets that differ by more than this factor are not comparable.
UNEQUAL_BUDGETS = 1.2
# Seconds between lines of progress where there is no terminal.
QUIET_SECONDS = 30.0


def cautions(comparison: Comparison) -> list[str]:
    """One sentence for everything that weakens the comparison; often there is none."""
    found = [*_few_seeds(comparison), *_budgets(comparison), *_unknown(comparison), *_failed(comparison)]
    return [*found, *comparison.notes]


def _few_seeds(comparison: Comparison) -> list[str]:
    few = [standing for standing in comparison.standings if len(standing.seeds) < EXPLORATORY]
    counts = ", ".join(f"{standing.algorithm}: {count_seeds(len(standing.seeds))}" for standing in few)
    rule = f"Fewer than {EXPLORATORY} seeds are exploratory: enough to decide what to run next, not to claim anything"
    return [f"{rule} ({counts})."] if few else []


def _budgets(comparison: Comparison) -> list[str]:
    words = []
    for task in comparison.tasks:
        courses = {name: comparison.of(name, task) for name in comparison.algorithms}
        budgets = {name: statistics.median(c.budget for c in own) for name, own in courses.items() if own}
        if max(budgets.values()) > UNEQUAL_BUDGETS * min(budgets.values()):
            steps = ", ".join(f"{name} {number(median)}" for name, median in budgets.items())
            words.append(
                f"Budgets differ in {task} (median steps: {steps}); a run that ended earlier keeps its last score. "
                "Give all the same number of steps before comparing final scores."
            )
    return words


def _unknown(comparison: Comparison) -> list[str]:
    return [
        f"{task} has no known threshold: its scores are scaled from the first (0) to the best of this comparison (1), "
        f"and there is no time to threshold. Set one with --threshold {task}=NUMBER."
        for task, scale in comparison.scales.items()
        if scale.solved is None
    ]


def _failed(comparison: Comparison) -> list[str]:
    failed = [(f"{f.algorithm} in {f.environment}", f"{f.message} {f.hint}".strip()) for f in comparison.failures]
    return [
        f"{count} {'run' if count == 1 else 'runs'} of {who} failed and {'is' if count == 1 else 'are'} left out: {why}"
        for (who, why), count in Counter(failed).items()
    ]


HEADINGS = ("", "n", "final 95%", "efficiency", "solved", "steps to", "spread", "wall s")


def comparison_view(comparison: Comparison) -> RenderableType:
    """The comparison in the order a reader needs it."""
    table = Table(box=None, pad_edge=False)
    several = len(comparison.tasks) > 1
    for heading in (*HEADINGS, "worst task") if several else HEADINGS:
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=heading != "")
    for standing in comparison.standings:
        table.add_row(*(Text(printable(cell)) for cell in _row(comparison, standing)))
    verdicts = [Text(printable(duel.verdict), style="" if duel.distinguishable else "dim") for duel in comparison.duels]
    warnings = [Text(printable(words), style="yellow") for words in cautions(comparison)]
    return Group(Text(printable(comparison.headline), style="bold"), Text(), table, Text(), *verdicts, *warnings)


def _row(comparison: Comparison, standing: Standing) -> list[str]:
    survivals = [s for (name, _), s in comparison.survivals.items() if name == standing.algorithm]
    solved = f"{sum(s.solved for s in survivals)}/{sum(s.runs for s in survivals)}" if survivals else "–"
    # Medians of several tasks cannot be added up, so the column is for one task.
    median = survivals[0].median if len(survivals) == 1 else None
    cells = [
        standing.algorithm,
        str(len(standing.seeds)),
        _brief(standing.final["iqm"]),
        f"{standing.efficiency.value:.2f}",
        solved,
        "–" if median is None else number(median),
        f"{standing.seed_spread:.2f}",
        seconds(standing.wall_seconds),
    ]
    return [*cells, _brief(standing.fairness["worst_task"])] if standing.fairness else cells


def seconds(value: float) -> str:
    """A time in seconds, or a dash if a log does not tell it."""
    return "–" if math.isnan(value) else f"{value:.1f}"


def _brief(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} ({interval.low:.2f}..{interval.high:.2f})"


class Bar:
    """A progress bar of runs; call it with `done` runs, counting unfinished ones by their share.

    Where there is no terminal, `lines` prints a line now and then instead.
    """

    def __init__(self, progress: Progress, lines: Console | None = None) -> None:
        self.progress, self.lines = progress, lines
        self.task = progress.add_task("runs", total=None)
        self._began: tuple[float, float] | None = None
        self._said = time.monotonic()

    def __call__(self, done: float, finished: int, total: int) -> None:
        words = f"{finished} of {total} runs"
        now = time.monotonic()
        if self._began is None:
            # What was finished before says nothing about the speed.
            self._began = now, done
            self.progress.reset(self.task, total=total, completed=int(done), description=words)
        self.progress.update(self.task, description=words, completed=done, total=total)
        if self.lines is not None and now - self._said >= QUIET_SECONDS:
            since, before = self._began
            left = f", about {clock((now - since) * (total - done) / (done - before))} left" if done > before else ""
            self.lines.print(f"{words}{left}", highlight=False)
            self._said = now


@contextmanager
def progress_bar(console: Console | None = None, quiet: bool = False) -> Iterator[Bar]:
    """A bar on standard error that disappears when all runs are finished."""
    console = console or Console(stderr=True)
    left = TextColumn("left"), TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), *left)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield Bar(progress, console if hidden and not quiet else None)
