"""What a comparison claims and what it does not; its page, its figures and their data."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from groupwise.errors import RunError
from groupwise.reporting.advantage_figures import Moment
from groupwise.reporting.canvas import render
from groupwise.reporting.comparison import Comparison, Course, FailedCourse
from groupwise.reporting.comparison_figures import draw_intervals, draw_overall, draw_tasks
from groupwise.reporting.comparison_page import Extras, chapters_of, page, write_comparison
from groupwise.reporting.comparison_table import cautions, comparison_view

EVIL = "<script>alert(1)</script>"

# The score of a random policy, and the score that counts as solved.
KNOWN = {"CartPole-v1": (22.4, 475.0), "Acrobot-v1": (-493.0, -100.0)}
compared = partial(Comparison, known=KNOWN)


def course(algorithm: str, task: str, seed: int, end: float = 500.0, speed: float = 2.0, **more: object) -> Course:
    """A score that rises from 20 to `end`, twice as fast at twice the speed, over 100 steps."""
    steps = tuple(range(0, 101, 10))
    scores = tuple(20 + (end - 20) * min(1.0, speed * step / 100) for step in steps)
    return Course(algorithm, str(more.get("environment", task)), task, seed, steps, scores, 2.0, 1.5)


def made_up(seeds: int = 6, tasks: tuple[str, ...] = ("CartPole-v1",), gap: float = 200.0) -> Comparison:
    """`fast` ends near 500 and solves all, `slow` ends `gap` lower; the scores of a seed go up and down together."""
    luck = np.random.default_rng(0).normal(0, 4, seeds)
    courses = [
        course(name, task, seed, 490 - lower + luck[seed], speed)
        for name, lower, speed in (("fast", 0.0, 4.0), ("slow", gap, 1.5))
        for task in tasks
        for seed in range(seeds)
    ]
    return compared(tuple(courses), repetitions=500)


def with_failures(comparison: Comparison) -> Comparison:
    failures = (FailedCourse("slow", "CartPole-v1", 9, "it broke", "Mend it."),) * 2
    return compared(comparison.courses, failures, comparison.thresholds, comparison.repetitions)


def moment() -> Moment:
    rng = np.random.default_rng(0)
    alive = np.arange(6) < np.array([2, 6, 3, 4])[:, np.newaxis]
    returns = np.where(alive, rng.random((4, 6)), 0.0)
    label = np.array([0, 0, 1, 1])
    return Moment(
        5, 0.9, ("pole", EVIL), label, label, 1.0 * alive, alive, returns, returns - 1, returns - 2, np.eye(2)
    )


def test_a_clear_difference_is_claimed() -> None:
    comparison = made_up()
    (duel,) = comparison.duels
    assert duel.distinguishable
    assert duel.final.interval.value == pytest.approx(200 / (475 - 22.4), abs=1e-6)
    assert comparison.headline == "fast ends above slow."
    assert "fast has the better final score" in duel.verdict
    assert duel.improvement.value == 1.0


def test_no_difference_is_not_distinguishable() -> None:
    luck = np.random.default_rng(1).normal(0, 50, (2, 6))
    courses = [course(name, "CartPole-v1", s, 400 + luck[i, s]) for i, name in enumerate("ab") for s in range(6)]
    comparison = compared(tuple(courses), repetitions=500)
    assert not comparison.duels[0].distinguishable
    assert "final score not distinguishable" in comparison.duels[0].verdict
    assert comparison.headline == "No difference in final score may be claimed."


def test_few_seeds_are_called_exploratory() -> None:
    comparison = made_up(seeds=3)
    assert "Exploratory: only 3 seeds" in comparison.duels[0].verdict
    assert any("Fewer than 5 seeds" in words for words in cautions(comparison))
    assert not any("Fewer" in words for words in cautions(made_up(seeds=5)))


def test_one_seed_claims_nothing() -> None:
    comparison = made_up(seeds=1)
    assert not comparison.duels[0].distinguishable
    assert "one seed" in comparison.duels[0].verdict
    json.dumps(comparison.to_dict(), allow_nan=False)


def test_many_pairs_are_corrected() -> None:
    """Five of a kind: what one pair could claim alone, ten pairs may not."""
    rng = np.random.default_rng(0)
    courses = [course(name, "CartPole-v1", s, 300 + rng.normal(0, 60)) for name in "abcde" for s in range(6)]
    duels = compared(tuple(courses), repetitions=100).duels
    assert len(duels) == 10
    assert all(duel.final_p >= duel.final.p for duel in duels)
    least = min(duel.final.p for duel in duels)
    assert least < 0.05
    assert min(duel.final_p for duel in duels) == pytest.approx(10 * least)
    assert not any(duel.distinguishable for duel in duels)


def test_pairs_are_compared_on_the_seeds_they_share() -> None:
    comparison = made_up(seeds=6)
    torn = replace(comparison, courses=comparison.courses[:-1])
    assert torn.duels[0].seeds == 5
    assert [len(standing.seeds) for standing in torn.standings] == [6, 5]


def test_solved_runs_are_counted_and_timed() -> None:
    survivals = made_up().survivals
    assert survivals["fast", "CartPole-v1"].solved == 6
    assert survivals["fast", "CartPole-v1"].median == 30
    assert survivals["slow", "CartPole-v1"].solved == 0
    assert survivals["slow", "CartPole-v1"].median is None


def test_a_threshold_of_ones_own_is_used() -> None:
    comparison = replace(made_up(), thresholds={"CartPole-v1": 250.0})
    assert comparison.survivals["slow", "CartPole-v1"].solved == 6
    assert comparison.scales["CartPole-v1"].high == 250.0


def test_a_task_nobody_knows_is_scaled_by_its_own_scores_and_says_so() -> None:
    comparison = made_up(tasks=("odd",))
    assert comparison.scales["odd"].low == 20.0
    assert comparison.survivals == {}
    assert any("odd has no known threshold" in words for words in cautions(comparison))


def test_sample_efficiency_rewards_the_faster_of_two_that_end_alike() -> None:
    pairs = (("early", 5.0), ("late", 1.2))
    courses = [course(name, "CartPole-v1", s, 480 + s, speed) for name, speed in pairs for s in range(5)]
    (duel,) = compared(tuple(courses), repetitions=100).duels
    assert not duel.distinguishable
    assert duel.efficiency.interval.low > 0


def test_fairness_is_told_only_where_there_are_several_tasks() -> None:
    assert made_up().standings[0].fairness == {}
    uneven = [course("a", task, s, end) for task, end in (("x", 500.0), ("y", 30.0)) for s in range(5)]
    comparison = compared(tuple(uneven), thresholds={"x": 500.0, "y": 500.0}, repetitions=200)
    fairness = comparison.standings[0].fairness
    assert fairness["worst_task"].value == pytest.approx(10 / 480)
    assert fairness["gini"].value == pytest.approx(0.5 - 1 / 49)


def test_tasks_of_one_environment_are_one_stratum() -> None:
    courses = [
        course(name, task, s, 400.0 + s, environment="suite") for name in "ab" for task in ("x", "y") for s in range(5)
    ]
    assert compared(tuple(courses)).strata(["x", "y"]) == [0, 0]
    assert made_up(tasks=("x", "y")).strata(["x", "y"]) == [0, 1]


def test_unequal_budgets_are_told() -> None:
    comparison = made_up()
    courses = [
        replace(c, steps=tuple(2 * s for s in c.steps)) if c.algorithm == "fast" else c for c in comparison.courses
    ]
    assert any("Budgets differ" in words for words in cautions(replace(comparison, courses=tuple(courses))))
    assert not any("Budgets differ" in words for words in cautions(comparison))


def test_failures_are_counted_and_nothing_is_an_error_without_any_course() -> None:
    told = [words for words in cautions(with_failures(made_up())) if "it broke" in words]
    assert told == ["2 runs of slow in CartPole-v1 failed and are left out: it broke Mend it."]
    with pytest.raises(RunError, match="no run was finished.*slow: it broke"):
        compared((), with_failures(made_up()).failures)


def test_collapses_and_drawdowns_are_seen() -> None:
    lost = replace(course("a", "CartPole-v1", 0), scores=(20, 200, 400, 475, 475, 475, 475, 300, 200, 100, 60))
    standing = compared((lost, course("a", "CartPole-v1", 1)), repetitions=100).standings[0]
    assert (standing.collapses, standing.courses) == (1, 2)
    assert standing.drawdown == pytest.approx((475 - 60) / (475 - 22.4) / 2)


def test_the_terminal_shows_numbers_verdicts_and_cautions_and_no_control_characters() -> None:
    comparison = with_failures(made_up(seeds=3))
    evil = [replace(c, algorithm="\x1b[31mslow") if c.algorithm == "slow" else c for c in comparison.courses]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(comparison_view(replace(comparison, courses=tuple(evil))))
    text = console.export_text()
    assert "fast ends above" in text or "No difference" in text
    assert "0/3" in text
    assert "3/3" in text
    assert "Exploratory" in text
    assert "\x1b" not in text


def test_there_is_a_figure_for_everything_there_is_to_see() -> None:
    several = made_up(tasks=("CartPole-v1", "Acrobot-v1"))
    chapters = chapters_of(several, Extras({"fast": moment()}))
    names = {picture.name for _, _, pictures in chapters for picture in pictures}
    assert {"overall", "curves-1", "curves-2", "intervals", "profile", "tasks"} <= names
    assert {"differences", "improvement", "solved-1", "solved-2"} <= names
    assert {"lesson-1-fan", "lesson-1-advantages", "lesson-1-cosines"} <= names
    for draw in (lambda width: draw_overall(several, width), lambda width: draw_tasks(several, width)):
        assert render(draw, 4.0, "svg")


def test_every_figure_is_a_file_with_its_data(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, made_up())
    names = {file.stem for file in (tmp_path / "figures").iterdir()}
    assert len(names) == 6
    for name in names:
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / "figures" / f"{name}.svg").read_text("utf8")
        rows = list(csv.reader((tmp_path / "figures" / f"{name}.csv").open(encoding="utf8")))
        assert len(rows) > 1
        assert {len(row) for row in rows} == {len(rows[0])}
        assert f'download="{name}.csv"' in path.read_text("utf8")
    assert json.loads((tmp_path / "comparison.json").read_text())["headline"] == "fast ends above slow."
    assert len((tmp_path / "courses.csv").read_text().splitlines()) == 1 + 2 * 6 * 11


def test_the_page_asks_for_nothing_and_escapes_what_it_is_told() -> None:
    evil = [course(name, EVIL, seed, 300.0 + seed) for name in (EVIL, "b") for seed in range(2)]
    settings = {EVIL: {"task": {"environment": EVIL}}, "b": {"task": {"environment": "b"}}}
    extras = Extras({EVIL: moment()}, settings=settings, command=EVIL)
    comparison = with_failures(compared(tuple(evil), repetitions=50))
    text = page(comparison, extras, chapters_of(comparison, extras))
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)=["']?(?!#|data:text/csv)[a-z/]""", text)
    assert "Mend it." in text
    assert "not distinguishable (exploratory)" in text


def test_colours_of_the_page_follow_the_theme() -> None:
    comparison = made_up()
    text = page(comparison, Extras(), chapters_of(comparison, Extras()))
    figures = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert "var(--blue)" in figures
    assert not re.findall(r"(?:fill|stroke): ?#(?!000000|ffffff)[0-9a-f]{6}", figures)


def test_a_single_course_has_a_page_too(tmp_path: Path) -> None:
    only = compared((course("a", "CartPole-v1", 0),), repetitions=50)
    assert "nothing to be compared with" in write_comparison(tmp_path, only).read_text("utf8")


def test_many_algorithms_and_long_names_can_be_drawn() -> None:
    courses = [
        course(f"an algorithm with a long name {i}", "CartPole-v1", s, 300.0 + i + s) for i in range(12) for s in (0, 1)
    ]
    comparison = compared(tuple(courses), repetitions=50)
    assert render(lambda width: draw_intervals(comparison, width), 4.0, "svg")
