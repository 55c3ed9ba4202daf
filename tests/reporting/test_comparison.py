"""What a comparison claims and what it does not; its page, its figures and their data."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from groupwise.errors import RunError
from groupwise.reporting import statistics as st
from groupwise.reporting.advantage_figures import Moment
from groupwise.reporting.canvas import render
from groupwise.reporting.comparison import Comparison, Course, Duel, FailedCourse, Scale, signed
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


# Every number of a comparison, by hand or from the tables it is made of.


def straight(name: str, task: str, seed: int, end: float, budget: int = 100, **more: Any) -> Course:
    """A score that rises from 0 to `end` in a straight line over `budget` steps."""
    steps = tuple(range(0, budget + 1, budget // 10))
    scores = tuple(end * step / budget for step in steps)
    times = more.get("times", (2.0, 1.5))
    return Course(name, str(more.get("environment", task)), task, seed, steps, scores, *times)


@pytest.mark.parametrize(
    ("known", "thresholds", "scale"),
    [
        ({}, {}, Scale(3.0, 80.0, None)),
        ({"t": (1.0, 50.0)}, {}, Scale(1.0, 50.0, 50.0)),
        ({"e": (1.0, 50.0)}, {}, Scale(1.0, 50.0, 50.0)),
        ({"t": (1.0, 50.0), "e": (2.0, 60.0)}, {}, Scale(1.0, 50.0, 50.0)),
        ({}, {"t": 0.0}, Scale(3.0, 0.0, 0.0)),
        ({}, {"e": 70.0}, Scale(3.0, 70.0, 70.0)),
        ({}, {"t": 40.0, "e": 70.0}, Scale(3.0, 40.0, 40.0)),
        ({"t": (1.0, 50.0)}, {"e": 70.0}, Scale(1.0, 70.0, 70.0)),
        ({"t": (0.0, 50.0)}, {"t": 0.0}, Scale(0.0, 0.0, 0.0)),
        ({"u": (7.0, 8.0)}, {"u": 9.0}, Scale(3.0, 80.0, None)),
    ],
)
def test_a_tasks_scale_comes_from_what_is_known_of_it_before_its_own_scores(
    known: dict[str, tuple[float, float]], thresholds: dict[str, float], scale: Scale
) -> None:
    """First scores 2 and 4, the best 80; another task of the environment has other scores."""
    courses = [
        Course("a", "e", "t", 0, (0, 10, 20), (2.0, 80.0, 60.0), 1.0, 1.0),
        Course("b", "e", "t", 0, (0, 10, 20), (4.0, 5.0, 6.0), 1.0, 1.0),
        Course("b", "e", "other", 0, (0, 10, 20), (100.0, 200.0, 900.0), 1.0, 1.0),
    ]
    assert Comparison(tuple(courses), thresholds=thresholds, known=known).scales["t"] == scale


def test_scores_are_scaled_between_the_ends_and_beyond_them() -> None:
    np.testing.assert_allclose(Scale(10.0, 30.0).normalise([10, 20, 30, 40, 0]), [0, 0.5, 1, 1.5, -0.5])
    np.testing.assert_allclose(Scale(30.0, 10.0).normalise([30, 20, 10]), [0, 0.5, 1])
    np.testing.assert_allclose(Scale(10.0, 10.0).normalise([10, 12]), [0, 2])


def test_a_run_that_ended_earlier_keeps_its_last_score_up_to_the_others_end() -> None:
    """Half of the 200 steps rising to 1, half at 1: three quarters; the other rises all the way: a half."""
    short, long = straight("a", "t", 0, 1.0), straight("b", "t", 0, 1.0, 200)
    other = straight("b", "u", 0, 1.0, 1000)
    comparison = Comparison((short, long, other), thresholds={"t": 1.0, "u": 2.0})
    assert comparison.horizons == {"t": 200, "u": 1000}
    assert comparison.efficiency(short) == pytest.approx(0.75, abs=0.01)
    assert comparison.efficiency(long) == pytest.approx(0.5)
    assert comparison.efficiency(other) == pytest.approx(0.25)
    assert len(comparison.curve(short)) == 101
    np.testing.assert_allclose(comparison.curve(short, 5), [0, 0.5, 1, 1, 1])
    assert comparison.final(other) == pytest.approx(0.95 / 2)


def test_only_tasks_and_seeds_that_all_have_finished_are_shared() -> None:
    finished = [
        ("a", "t", 0), ("a", "t", 1), ("a", "t", 2), ("a", "u", 1), ("a", "u", 2), ("b", "t", 2), ("b", "t", 1),
        ("b", "w", 0), ("c", "w", 0),
    ]  # fmt: skip
    comparison = Comparison(tuple(straight(name, task, seed, 1.0) for name, task, seed in finished))
    assert comparison.shared(["a"]) == (["t", "u"], [1, 2])
    assert comparison.shared(["a", "b"]) == (["t"], [1, 2])
    assert comparison.shared(["b"]) == (["t", "w"], [])
    assert comparison.shared(["a", "c"]) == ([], [])
    assert [(duel.ours, duel.theirs, duel.seeds) for duel in comparison.duels] == [("a", "b", 2), ("b", "c", 1)]
    assert [standing.algorithm for standing in comparison.standings] == ["a", "c"]
    assert [course.seed for course in comparison.of("b", "t")] == [1, 2]


def uneven() -> Comparison:
    """Two algorithms, two tasks of one environment and one of another, four seeds; no two numbers are the same."""
    rng = np.random.default_rng(4)
    courses = []
    for name, seed, (task, environment) in product("ab", range(4), (("t", "e"), ("u", "e"), ("v", "f"))):
        budget = int(rng.integers(10, 20)) * 10
        times = tuple(rng.random(2).tolist())
        courses.append(straight(name, task, seed, rng.normal(1, 0.5), budget, times=times, environment=environment))
    return Comparison(tuple(courses), thresholds={"t": 1.0, "u": 1.5, "v": 0.5}, repetitions=60)


def test_a_standing_is_made_of_the_algorithms_own_courses() -> None:
    comparison = uneven()
    names, seeds, strata = ["t", "u", "v"], [0, 1, 2, 3], [0, 0, 1]
    for standing in comparison.standings:
        own = [course for course in comparison.courses if course.algorithm == standing.algorithm]
        by_place = {(course.seed, course.task): course for course in own}
        final, efficiency = (
            np.array([[measure(by_place[seed, task]) for task in names] for seed in seeds])
            for measure in (comparison.final, comparison.efficiency)
        )
        sure = partial(st.estimate, strata=strata, repetitions=60)
        assert (standing.tasks, standing.seeds, standing.courses) == (tuple(names), tuple(seeds), 12)
        assert standing.final == {name: sure(statistic, final) for name, statistic in st.AGGREGATES.items()}
        assert standing.fairness == {name: sure(statistic, final) for name, statistic in st.FAIRNESS.items()}
        assert standing.efficiency == sure(st.interquartile_mean, efficiency)
        assert standing.seed_spread == float(st.seed_spread(final))
        assert standing.steps == np.median([course.steps[-1] for course in own])
        assert standing.wall_seconds == np.median([course.wall_seconds for course in own])
        assert standing.cpu_seconds == np.median([course.cpu_seconds for course in own])
        np.testing.assert_array_equal(comparison.table(standing.algorithm, names, seeds, "final"), final)
        part = comparison.table(standing.algorithm, ["u"], [3, 1], "efficiency")
        np.testing.assert_array_equal(part, efficiency[[3, 1], 1:2])


@pytest.mark.parametrize("repetitions", [60, 6000])
def test_a_duel_is_the_paired_difference_of_two_tables_by_environment(repetitions: int) -> None:
    comparison = replace(uneven(), repetitions=repetitions)
    (duel,) = comparison.duels
    tables = {
        measure: [comparison.table(name, ["t", "u", "v"], range(4), measure) for name in "ab"]
        for measure in ("final", "efficiency")
    }
    assert duel.final == st.paired_difference(*tables["final"], strata=[0, 0, 1])
    assert duel.efficiency == st.paired_difference(*tables["efficiency"], strata=[0, 0, 1])
    beats = st.bootstrap(
        st.probability_of_improvement, *tables["final"], strata=[0, 0, 1], repetitions=min(repetitions, 5000)
    )
    value = float(st.probability_of_improvement(*tables["final"]))
    assert duel.improvement == st.percentile_interval(value, beats)
    assert (duel.final_p, duel.efficiency_p) == (duel.final.p, duel.efficiency.p), "one pair needs no correction"


def test_final_scores_and_efficiency_are_corrected_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    courses = [
        course(name, "CartPole-v1", seed, rng.normal(300, 60), rng.uniform(1, 4)) for name in "abc" for seed in range(5)
    ]
    duels = compared(tuple(courses), repetitions=50).duels
    assert [(duel.ours, duel.theirs) for duel in duels] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [duel.final_p for duel in duels] == st.holm([duel.final.p for duel in duels])
    assert [duel.efficiency_p for duel in duels] == st.holm([duel.efficiency.p for duel in duels])


@pytest.mark.parametrize(
    ("low", "high", "p", "may"),
    [(0.1, 0.3, 0.049, True), (0.1, 0.3, 0.05, False), (-0.3, -0.1, 0.01, True), (0.0, 0.3, 0.01, False),
     (-0.1, 0.3, 0.01, False), (math.nan, math.nan, 0.01, False)],
)  # fmt: skip
def test_a_claim_needs_an_interval_without_zero_and_a_small_corrected_p_value(
    low: float, high: float, p: float, may: bool
) -> None:
    value = 0.2 if not low < 0 else -0.2
    # What is claimed depends on the corrected p-value and on nothing else of the kind.
    found = st.Difference(st.Interval(value, low, high), 1.0, 9)
    nothing = st.Difference(st.Interval(0.0, -1.0, 1.0), 0.0, 9)
    duel = Duel("us", "them", 9, found, nothing, st.Interval(0.5, 0.4, 0.6), p, 0.0)
    assert duel.distinguishable is may
    winner = "us" if value > 0 else "them"
    final = f"{winner} has the better final score" if may else "final score not distinguishable"
    assert duel.verdict.startswith(f"us and them: {final} ({signed(found.interval)}); sample efficiency not dist")
    early = replace(duel, final=nothing, efficiency=found, final_p=0.0, efficiency_p=p)
    assert not early.distinguishable
    assert (f"{winner} has the better sample efficiency" in early.verdict) is may
    assert "Exploratory" not in duel.verdict


def test_a_difference_is_written_with_its_sign_and_its_interval() -> None:
    assert signed(st.Interval(0.1234, -0.05, 0.3)) == "+0.123, 95% -0.050 to +0.300"
    assert signed(st.Interval(-2.0, math.nan, math.nan)) == "-2.000, one seed"


@pytest.mark.parametrize(
    ("ends", "headline"),
    [
        ({"a": 1.0}, "a has nothing to be compared with."),
        ({"a": 1.0, "b": 2.0}, "b ends above a."),
        ({"a": 2.0, "b": 1.0}, "a ends above b."),
        ({"a": 2.0, "b": 1.0, "c": 1.0}, "a ends above b; a ends above c."),
        ({"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0},
         "a ends above b; a ends above c; a ends above d. The other 3 pairs are not distinguishable."),
        ({"a": 1.0, "b": 1.0}, "No difference in final score may be claimed."),
    ],
)  # fmt: skip
def test_the_headline_names_who_ends_above_whom(ends: dict[str, float], headline: str) -> None:
    courses = [straight(name, "t", seed, end) for name, end in ends.items() for seed in range(5)]
    assert Comparison(tuple(courses), thresholds={"t": 1.0}, repetitions=20).headline == headline


def test_a_run_that_never_solves_its_task_counts_until_its_last_evaluation() -> None:
    """Solved at 50 of 100 and at 160 of 200; given up at 100 and at 300: shares 3/4, then 3/4 · 1/2."""
    courses = [
        straight("a", "t", 0, 2.0), straight("a", "t", 1, 1.25, 200), straight("a", "t", 2, 0.5),
        straight("a", "t", 3, 0.5, 300), straight("b", "u", 0, 5.0),
    ]  # fmt: skip
    survivals = Comparison(tuple(courses), thresholds={"t": 1.0}, repetitions=20).survivals
    assert list(survivals) == [("a", "t")], "a task without a threshold, or a task never tried, has no times"
    found = survivals["a", "t"]
    assert found.times == (0, 50, 160)
    assert list(found.shares) == pytest.approx([1, 3 / 4, 3 / 8])
    assert (found.solved, found.runs, found.median) == (2, 4, 160)


def test_the_numbers_of_a_comparison_are_all_in_its_dictionary() -> None:
    comparison = with_failures(made_up(seeds=3))
    found = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    (duel,) = comparison.duels
    assert (found["headline"], found["algorithms"]) == (comparison.headline, ["fast", "slow"])
    assert found["tasks"] == {"CartPole-v1": {"low": 22.4, "high": 475.0, "solved": 475.0}}
    told = found["duels"][0]
    assert (told["ours"], told["theirs"], told["seeds"]) == ("fast", "slow", 3)
    assert (told["final_p"], told["efficiency_p"]) == (duel.final_p, duel.efficiency_p)
    assert told["final"]["interval"]["low"] == duel.final.interval.low
    assert (told["distinguishable"], told["verdict"]) == (duel.distinguishable, duel.verdict)
    assert [s["final"]["iqm"]["value"] for s in found["standings"]] == [
        standing.final["iqm"].value for standing in comparison.standings
    ]
    assert found["solved"][0] == {
        "algorithm": "fast", "task": "CartPole-v1", "solved": 3, "runs": 3, "median_steps": 30,
    }  # fmt: skip
    assert found["solved"][1]["median_steps"] is None
    assert [failure["message"] for failure in found["failures"]] == ["it broke", "it broke"]
    alone = compared((course("a", "CartPole-v1", 0),), repetitions=20).to_dict()
    assert alone["standings"][0]["final"]["iqm"]["low"] is None


def test_without_any_course_up_to_three_reasons_are_told() -> None:
    failures = tuple(FailedCourse(name, "e", seed, "broke") for name in "abcd" for seed in range(2))
    with pytest.raises(RunError, match=r"\(a: broke; b: broke; c: broke\)"):
        Comparison((), failures)
    with pytest.raises(RunError, match=r"\(none was requested\)"):
        Comparison(())


# What the terminal shows of it.


def row_of(comparison: Comparison, name: str) -> list[str]:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(comparison_view(comparison))
    row = next(line for line in console.export_text().splitlines() if line.startswith(f"{name}  "))
    return re.split(r" {2,}", row.strip())


def test_a_row_of_the_terminal_has_the_numbers_of_the_standing() -> None:
    courses = [
        *(straight("ours", "t", seed, end, times=(seed + 1.0, 9.0)) for seed, end in enumerate((1.0, 2.0, 4.0))),
        *(straight("theirs", "t", seed, 0.5) for seed in range(3)),
    ]
    one = Comparison(tuple(courses), thresholds={"t": 2.0}, repetitions=40)
    final = one.standings[0].final["iqm"]
    assert row_of(one, "ours") == [
        "ours", "3", f"{final.value:.2f} ({final.low:.2f}..{final.high:.2f})", "0.58", "2/3", "100", "0.71", "2.0",
    ]  # fmt: skip
    assert row_of(one, "theirs")[4:6] == ["0/3", "–"]
    nobody_knows = Comparison(tuple(courses), repetitions=40)
    assert row_of(nobody_knows, "ours")[4:6] == ["–", "–"]
    alone = Comparison((courses[0],), thresholds={"t": 2.0})
    assert row_of(alone, "ours")[1:4] == ["1", "0.47", "0.25"]
    two = Comparison((*courses, straight("ours", "u", 0, 1.0)), thresholds={"t": 2.0, "u": 1.0}, repetitions=40)
    assert row_of(two, "ours")[1:3] == ["1", "0.71"]
    assert row_of(two, "ours")[4:6] == ["3/4", "–"], "medians of several tasks are not added up"
    assert row_of(two, "ours")[-1] == "0.47", "the worst task"


@pytest.mark.parametrize(("budget", "told"), [(110, False), (120, False), (130, True), (80, True), (90, False)])
def test_budgets_may_differ_by_a_fifth(budget: int, told: bool) -> None:
    courses = [straight(name, "t", s, 1.0, own) for name, own in (("a", 100), ("b", budget)) for s in range(3)]
    # One run that was cut short does not change the usual budget of its algorithm.
    courses[0] = straight("a", "t", 0, 1.0, 10)
    said = [words for words in cautions(Comparison(tuple(courses), repetitions=20)) if "Budgets" in words]
    assert bool(said) is told
    assert all(f"in t (median steps: a 100, b {budget})" in words for words in said)


def test_cautions_name_what_they_are_about() -> None:
    courses = [straight("a", "t", s, 1.0) for s in range(5)] + [straight("b", "t", s, 1.0) for s in range(4)]
    courses += [straight("c", "t", 0, 1.0)]
    said = cautions(Comparison(tuple(courses), repetitions=20))
    assert said[0].endswith("(b: 4 seeds, c: 1 seed).")
    assert "--threshold t=NUMBER" in said[1]
    failures = (FailedCourse("a", "e", 0, "broke"),)
    known = Comparison(tuple(courses[:5]), failures, {"t": 1.0}, repetitions=20)
    assert cautions(known) == ["1 run of a in e failed and is left out: broke"]
