"""A comparison as a folder: one self-contained page, every figure as SVG and PNG with its data, and all numbers."""

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.files import disk, write_atomic
from groupwise.reporting import comparison_figures as draw
from groupwise.reporting.advantage_figures import Moment, Shares, lesson_pictures, shares_picture
from groupwise.reporting.canvas import render_kinds
from groupwise.reporting.comparison import Comparison, Duel, Standing, signed
from groupwise.reporting.comparison_table import cautions, seconds
from groupwise.reporting.figures import Picture, csv_text
from groupwise.reporting.page import WIDE, details, facts_list, figure, whole_page
from groupwise.reporting.statistics import Interval
from groupwise.reporting.text import duration
from groupwise.training.formatting import number


def learning_pictures(comparison: Comparison) -> list[Picture]:
    """A learning curve for every task, and one for all together where there are several."""
    found = [_curves(comparison, task, place) for place, task in enumerate(comparison.tasks)]
    if len(comparison.tasks) < 2 or not comparison.standings:
        return found
    # Budgets differ between tasks, so the common axis is the share of the budget.
    curves = draw.overall_curves(comparison)
    x = np.linspace(0, 1, draw.LEVELS)
    rows = [[n, *map(float, (s, *q))] for n, bands in curves.items() for s, *q in zip(x, *bands, strict=True)]
    overall = Picture(
        "overall",
        "All tasks together",
        "Normalised scores averaged over tasks: the median over seeds, and their interquartile range.",
        _in_words({name: float(bands[1, -1]) for name, bands in curves.items()}),
        csv_text(["algorithm", "share_of_budget", "quarter", "median", "three_quarters"], rows),
        lambda width: draw.draw_overall(comparison, width),
    )
    return [overall, *found]


def _curves(comparison: Comparison, task: str, place: int) -> Picture:
    curves = draw.task_curves(comparison, task)
    rows = [
        [name, *map(float, (step, *quartiles))]
        for name, (steps, bands) in curves.items()
        for step, *quartiles in zip(steps, *bands, strict=True)
    ]
    return Picture(
        f"curves-{place + 1}",
        f"Learning curves: {task}",
        "The line is the median over seeds, the band their interquartile range. Dashed: what counts as solved.",
        _in_words({name: float(bands[1, -1]) for name, (_, bands) in curves.items()}),
        csv_text(["algorithm", "step", "quarter", "median", "three_quarters"], rows),
        lambda width: draw.draw_curves(comparison, task, width),
    )


def final_pictures(comparison: Comparison) -> list[Picture]:
    """Final scores: summaries with intervals, and the full distribution."""
    standings = comparison.standings
    rows = [[s.algorithm, key, *s.final[key].as_list()] for s in standings for key in draw.MEASURES]
    # Bootstrapped once here and used by both the figure and its data.
    levels, profiles = draw.profile_lines(comparison)
    lines = [[name, *map(float, row)] for name, band in profiles.items() for row in zip(levels, *band, strict=True)]
    return [
        Picture(
            "intervals",
            "Final scores",
            "Normalised: 0 is a random policy, 1 is solved. Bars are 95% stratified bootstrap intervals.",
            _in_words({s.algorithm: s.final["iqm"].value for s in standings}),
            csv_text(["algorithm", "measure", "value", "low", "high"], rows),
            lambda width: draw.draw_intervals(comparison, width),
        ),
        Picture(
            "profile",
            "Performance profile",
            "The share of runs that end above a score. A line above another everywhere is better throughout; if lines "
            "cross, it depends on the score you need. Bands are pointwise 95% intervals.",
            "share of runs above 1: "
            + _in_words({n: float(band[1][np.searchsorted(levels, 1.0)]) for n, band in profiles.items()}),
            csv_text(["algorithm", "score", "low", "share_above", "high"], lines),
            lambda width: draw.draw_profile(comparison, levels, profiles, width),
        ),
    ]


def duel_pictures(comparison: Comparison) -> list[Picture]:
    """Which algorithm beats which, by how much, and with what certainty."""
    duels = comparison.duels
    if not duels:
        return []
    names = ["ours", "theirs", "difference", "low", "high", "p_holm", "seeds", "distinguishable"]
    gaps = [[d.ours, d.theirs, *d.final.interval.as_list(), d.final_p, d.seeds, d.distinguishable] for d in duels]
    chances = [[d.ours, d.theirs, *d.improvement.as_list()] for d in duels]
    return [
        Picture(
            "differences",
            "Differences by seed",
            "The mean difference between runs of the same seed, with Student's 95% interval. Grey: may not be claimed.",
            "; ".join(d.verdict for d in duels),
            csv_text(names, gaps),
            lambda width: draw.draw_differences(comparison, width),
        ),
        Picture(
            "improvement",
            "Probability of improvement",
            "The probability that a run of the first ends above a run of the second on a random task. 50% is chance.",
            _in_words({f"{d.ours} over {d.theirs}": d.improvement.value for d in duels}),
            csv_text(["ours", "theirs", "probability", "low", "high"], chances),
            lambda width: draw.draw_improvement(comparison, width),
        ),
    ]


def solved_pictures(comparison: Comparison) -> list[Picture]:
    """When runs solved each task that has a threshold."""
    found = []
    for place, task in enumerate(comparison.tasks):
        survivals = {name: s for (name, where), s in comparison.survivals.items() if where == task}
        if survivals:
            rows = [[n, t, 1 - share] for n, s in survivals.items() for t, share in zip(s.times, s.shares, strict=True)]
            words = (f"{n} {s.solved} of {s.runs} solved" for n, s in survivals.items())
            found.append(
                Picture(
                    f"solved-{place + 1}",
                    f"Time to threshold: {task}",
                    "The share of runs that have reached the threshold by a step (Kaplan–Meier). A run that never did "
                    "counts as unsolved until its last evaluation.",
                    "; ".join(words),
                    csv_text(["algorithm", "step", "share_solved"], rows),
                    lambda width, task=task: draw.draw_survival(comparison, task, width),  # type: ignore[misc]
                )
            )
    return found


def task_picture(comparison: Comparison) -> Picture:
    rows = [
        [task, algorithm, seed, score]
        for task, algorithm, scores in draw.task_rows(comparison)
        if algorithm
        for seed, score in zip((c.seed for c in comparison.of(algorithm, task)), scores, strict=True)
    ]
    return Picture(
        "tasks",
        "Task by task",
        "A few tasks can carry an average. These are the scores of each.",
        f"{len(comparison.tasks)} tasks",
        csv_text(["task", "algorithm", "seed", "normalised_final_score"], rows),
        lambda width: draw.draw_tasks(comparison, width),
    )


def _in_words(values: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in values.items())


# Statistic and column heading, in the order of the table.
FAIRNESS = {
    "worst_task": "worst task",
    "worst_two": "worst two",
    "gini": "Gini",
    "least_to_mean": "worst / mean",
    "spread": "best − worst",
}


@dataclass(frozen=True)
class Extras:
    """What a report shows besides scores: example groups, weights over time, settings, title, preface, command."""

    moments: Mapping[str, Moment] = field(default_factory=dict)
    shares: Mapping[str, Shares] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    title: str = ""
    preface: str = ""
    command: str = ""


def write_comparison(folder: Path, comparison: Comparison, extras: Extras = Extras()) -> Path:  # noqa: B008
    """Write `report.html`, `comparison.json`, `courses.csv` and `figures/` and return the page's path."""
    chapters = chapters_of(comparison, extras)
    figures = folder / "figures"
    with disk(figures):
        figures.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for picture in (picture for _, _, pictures in chapters for picture in pictures):
        # Drawn once: the SVG file is also what the page shows.
        kinds = render_kinds(picture.draw, WIDE, ("svg", "png"))
        drawn[picture.name] = kinds["svg"]
        for kind, content in {**kinds, "csv": picture.csv.encode("utf8", "replace")}.items():
            write_atomic(figures / f"{picture.name}.{kind}", content, durable=False)
    write_atomic(folder / "comparison.json", (json.dumps(as_json(comparison)) + "\n").encode())
    write_atomic(folder / "courses.csv", courses_csv(comparison).encode("utf8", "replace"))
    path = folder / "report.html"
    write_atomic(path, page(comparison, extras, chapters, drawn).encode("utf8", "replace"))
    return path


def as_json(comparison: Comparison) -> dict[str, Any]:
    return {**comparison.to_dict(), "cautions": cautions(comparison)}


def courses_csv(comparison: Comparison) -> str:
    rows = [
        [c.algorithm, c.environment, c.task, c.seed, step, score]
        for c in comparison.courses
        for step, score in zip(c.steps, c.scores, strict=True)
    ]
    return csv_text(["algorithm", "environment", "task", "seed", "step", "score"], rows)


Chapter = tuple[str, str, list[Picture]]


def chapters_of(comparison: Comparison, extras: Extras) -> list[Chapter]:
    """The chapters of the page: title, tables, figures."""
    # Fairness compares tasks, so it needs at least two.
    several = len(comparison.tasks) > 1 and bool(comparison.standings)
    explained = [
        picture
        for place, (name, moment) in enumerate(extras.moments.items())
        for picture in lesson_pictures(name, moment, f"lesson-{place + 1}")
    ]
    explained += [shares_picture(n, s, f"lesson-{place + 1}") for place, (n, s) in enumerate(extras.shares.items())]
    final = final_pictures(comparison) if comparison.standings else []
    chapters = [
        ("Which differences may be claimed?", duel_table(comparison.duels), duel_pictures(comparison)),
        ("How they learn", "", learning_pictures(comparison)),
        ("Final scores in detail", "", final),
        ("When tasks are solved", solved_table(comparison), solved_pictures(comparison)),
        ("Does every task learn?", fairness_table(comparison), [task_picture(comparison)] if several else []),
        ("What groups and advantages look like", "", explained),
    ]
    return [(title, table, pictures) for title, table, pictures in chapters if table or pictures]


def page(
    comparison: Comparison, extras: Extras, chapters: Sequence[Chapter], drawn: Mapping[str, bytes] | None = None
) -> str:
    """The page; `drawn` are the SVGs of figures already drawn, by name."""
    title = extras.title or " · ".join(comparison.algorithms)
    sections = [
        headline(comparison, title),
        facts(comparison),
        hints(cautions(comparison)),
        f"<section>{extras.preface}</section>" if extras.preface else "",
        f"<section><h2>The result</h2>{standings_table(comparison.standings)}{HOW_TO_READ}</section>",
        *(chapter_html(*chapter, drawn or {}) for chapter in chapters),
        settings_section(extras),
        f"<footer>Made by Groupwise on {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}.</footer>",
    ]
    return whole_page(f"{title} – Groupwise", sections)


def headline(comparison: Comparison, title: str) -> str:
    return (
        f"<header><p class=run>Comparison in {escape(', '.join(comparison.tasks))}</p><h1>{escape(title)}</h1>"
        f"<p class=verdict>{escape(comparison.headline)}</p></header>"
    )


HOW_TO_READ = (
    "<p class=step>Scores are normalised: 0 is a random policy, 1 the score that counts as solved. Final is the mean "
    "of the evaluations in the last tenth of the steps, efficiency the mean of the curve. Both are interquartile "
    "means over seeds and tasks with 95% stratified bootstrap intervals. Spread is the interquartile range over seeds, "
    "drawdown the deepest fall from a best score; a run collapsed if it lost what it had learned.</p>"
)


def chapter_html(title: str, table: str, pictures: Sequence[Picture], drawn: Mapping[str, bytes]) -> str:
    wide = "".join(figure(picture, wide=True, drawn=drawn.get(picture.name)) for picture in pictures)
    return f"<section><h2>{escape(title)}</h2>{table}{wide}</section>"


def facts(comparison: Comparison) -> str:
    seeds = sorted({course.seed for course in comparison.courses})
    values = {
        "Algorithms": str(len(comparison.algorithms)),
        "Tasks": str(len(comparison.tasks)),
        "Seeds": f"{len(seeds)} ({seeds[0]} to {seeds[-1]})" if len(seeds) > 1 else str(seeds[0]),
        "Runs": str(len(comparison.courses)),
        "Failed": str(len(comparison.failures)) if comparison.failures else "",
        "Training time": duration(float(np.nansum([course.wall_seconds for course in comparison.courses]))),
    }
    return facts_list(values)


def hints(words: Sequence[str]) -> str:
    rows = "".join(f"<li>{escape(word)}</li>" for word in words)
    return f"<section><h2>Caveats</h2><ul class=hints>{rows}</ul></section>" if rows else ""


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column holds row headings."""
    top = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope=row>{escape(first)}</th>{''.join(f'<td>{escape(value)}</td>' for value in rest)}</tr>"
        for first, *rest in rows
    )
    return f"<div class=scroll><table class=numbers><tr>{top}</tr>{body}</table></div>"


def ranged(interval: Interval) -> str:
    if math.isnan(interval.low):
        return f"{interval.value:.3f}"
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def standings_table(standings: Sequence[Standing]) -> str:
    head = ("", "seeds", "final", "efficiency", "spread", "drawdown", "collapsed", "steps", "wall s", "CPU s")
    rows = [
        [s.algorithm, str(len(s.seeds)), ranged(s.final["iqm"]), ranged(s.efficiency), f"{s.seed_spread:.3f}",
         f"{s.drawdown:.3f}", f"{s.collapses} of {s.courses}", number(s.steps), seconds(s.wall_seconds),
         seconds(s.cpu_seconds)]
        for s in standings
    ]  # fmt: skip
    return html_table(head, rows)


def duel_table(duels: Sequence[Duel]) -> str:
    rows = [
        [f"{d.ours} − {d.theirs}", signed(d.final.interval), f"{d.final_p:.3f}", signed(d.efficiency.interval),
         f"{d.efficiency_p:.3f}", verdict_words(d)]
        for d in duels
    ]  # fmt: skip
    head = ("", "final score", "p (Holm)", "efficiency", "p (Holm)", "verdict on final scores")
    return html_table(head, rows) if rows else ""


def verdict_words(duel: Duel) -> str:
    caution = " (exploratory)" if duel.final.exploratory else ""
    if not duel.distinguishable:
        return f"not distinguishable{caution}"
    return f"{duel.ours if duel.final.interval.value > 0 else duel.theirs} is better{caution}"


def solved_table(comparison: Comparison) -> str:
    rows = [
        [algorithm, task, f"{s.solved} of {s.runs}", "not reached" if s.median is None else f"{s.median:,.0f}"]
        for (algorithm, task), s in comparison.survivals.items()
    ]
    return html_table(("", "task", "solved", "steps until half are solved"), rows) if rows else ""


def fairness_table(comparison: Comparison) -> str:
    rows = [[s.algorithm, *(ranged(s.fairness[key]) for key in FAIRNESS)] for s in comparison.standings if s.fairness]
    return html_table(("", *FAIRNESS.values()), rows) if rows else ""


def settings_section(extras: Extras) -> str:
    """Where the algorithms' settings differ; the settings they share are collapsed."""
    flat = {name: _flat(values) for name, values in extras.settings.items()}
    keys = list(dict.fromkeys(key for values in flat.values() for key in values))
    table_of = {key: [values.get(key, "–") for values in flat.values()] for key in keys}
    differing = [[key, *values] for key, values in table_of.items() if len(set(values)) > 1]
    same = [(key, values[0]) for key, values in table_of.items() if len(set(values)) == 1]
    table = html_table(("", *flat), differing) if differing else "<p>They are the same.</p>" if len(flat) > 1 else ""
    again = f"<h3>Repeat the comparison</h3><pre><code>{escape(extras.command)}</code></pre>"
    command = again if extras.command else ""
    body = table + details("Shared settings", same) + command
    return f"<section><h2>Settings that differ</h2>{body}</section>" if body else ""


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    flat = {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}
    # They differ between the runs of one algorithm and say nothing about it.
    idle = ("run.seed", "run.run_name", "run.output_dir")
    return {name: "null" if value is None else str(value) for name, value in flat.items() if name not in idle}
