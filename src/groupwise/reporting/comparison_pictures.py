"""The pictures a comparison has data for, each with its words and its numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from groupwise.reporting import contrasts
from groupwise.reporting.comparison import Comparison
from groupwise.reporting.pictures import Picture, csv_text
from groupwise.training.numbers import number


def learning_pictures(comparison: Comparison) -> list[Picture]:
    """A learning curve for every task, and one for all together where there are several."""
    found = [_curves(comparison, task, place) for place, task in enumerate(comparison.tasks)]
    if len(comparison.tasks) < 2 or not comparison.standings:
        return found
    curves = contrasts.overall_curves(comparison)
    x = np.linspace(0, 1, contrasts.LEVELS)
    rows = [[n, *map(float, (s, *q))] for n, bands in curves.items() for s, *q in zip(x, *bands, strict=True)]
    overall = Picture(
        "overall",
        "All tasks together",
        "The mean over tasks of normalised scores: the median over seeds, and the middle half of them.",
        _in_words({name: float(bands[1, -1]) for name, bands in curves.items()}),
        csv_text(["algorithm", "share_of_budget", "quarter", "median", "three_quarters"], rows),
        lambda width: contrasts.draw_overall(comparison, width),
    )
    return [overall, *found]


def _curves(comparison: Comparison, task: str, place: int) -> Picture:
    curves = contrasts.task_curves(comparison, task)
    rows = [
        [name, *map(float, (step, *quartiles))]
        for name, (steps, bands) in curves.items()
        for step, *quartiles in zip(steps, *bands, strict=True)
    ]
    return Picture(
        f"curves-{place + 1}",
        f"Learning curves: {task}",
        "The median over seeds, and in the band the middle half of them. Dashed: the score that counts as solved.",
        _in_words({name: float(bands[1, -1]) for name, (_, bands) in curves.items()}),
        csv_text(["algorithm", "step", "quarter", "median", "three_quarters"], rows),
        lambda width: contrasts.draw_curves(comparison, task, width),
    )


def final_pictures(comparison: Comparison) -> list[Picture]:
    """How high they end: summaries with intervals, and the whole distribution."""
    standings = comparison.standings
    rows = [[s.algorithm, key, *s.final[key].as_list()] for s in standings for key in contrasts.MEASURES]
    levels, profiles = contrasts.profile_lines(comparison)
    lines = [[name, *map(float, row)] for name, band in profiles.items() for row in zip(levels, *band, strict=True)]
    return [
        Picture(
            "intervals",
            "Final scores",
            "Normalised: 0 is random, 1 solved. Dots are the values, bars 95% stratified bootstrap intervals.",
            _in_words({s.algorithm: s.final["iqm"].value for s in standings}),
            csv_text(["algorithm", "measure", "value", "low", "high"], rows),
            lambda width: contrasts.draw_intervals(comparison, width),
        ),
        Picture(
            "profile",
            "Performance profile",
            "How many runs end above a score. A line that lies above another at every score is better throughout; "
            "lines that cross mean that it depends on what you ask for. Bands are 95% intervals, point by point.",
            "share of runs above 1: "
            + _in_words({n: float(band[1][np.searchsorted(levels, 1.0)]) for n, band in profiles.items()}),
            csv_text(["algorithm", "score", "low", "share_above", "high"], lines),
            lambda width: contrasts.draw_profile(comparison, levels, profiles, width),
        ),
    ]


def duel_pictures(comparison: Comparison) -> list[Picture]:
    """Who beats whom, by how much and how surely."""
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
            "The mean difference between runs of the same seed, with Student's 95% interval. Grey may not be claimed.",
            "; ".join(d.verdict for d in duels),
            csv_text(names, gaps),
            lambda width: contrasts.draw_differences(comparison, width),
        ),
        Picture(
            "improvement",
            "Probability of improvement",
            "How probably a run of the first ends above a run of the second, on a task taken at random: 50% is a coin.",
            _in_words({f"{d.ours} over {d.theirs}": d.improvement.value for d in duels}),
            csv_text(["ours", "theirs", "probability", "low", "high"], chances),
            lambda width: contrasts.draw_improvement(comparison, width),
        ),
    ]


def solved_pictures(comparison: Comparison) -> list[Picture]:
    """When runs solved each task that says what solved means."""
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
                    "counts as unsolved for as long as it was watched.",
                    "; ".join(words),
                    csv_text(["algorithm", "step", "share_solved"], rows),
                    lambda width, task=task: contrasts.draw_survival(comparison, task, width),  # type: ignore[misc]
                )
            )
    return found


def task_picture(comparison: Comparison) -> Picture:
    rows = [
        [task, algorithm, seed, score]
        for task, algorithm, scores in contrasts.task_rows(comparison)
        if algorithm
        for seed, score in zip((c.seed for c in comparison.of(algorithm, task)), scores, strict=True)
    ]
    return Picture(
        "tasks",
        "Task by task",
        "An average can be earned by a few tasks. Here is what each of them got.",
        f"{len(comparison.tasks)} tasks",
        csv_text(["task", "algorithm", "seed", "normalised_final_score"], rows),
        lambda width: contrasts.draw_tasks(comparison, width),
    )


def _in_words(values: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in values.items())
