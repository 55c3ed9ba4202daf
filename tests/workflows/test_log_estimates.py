"""Each estimate from a log by hand and at its limit: supports, shares, fits, teams, peaks, starts and columns."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from groupwise.errors import ConfigError
from groupwise.workflows import event_logs, process_mining
from groupwise.workflows.event_logs import LogEvent, read_events, seconds
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.process_mining import LogEstimate, estimate, fit, requirements_from_log


def day(case: int, *work: tuple[str, float, float], who: str = "", role: str = "") -> list[LogEvent]:
    """The work of one case, with starts and ends in seconds of its day."""
    return [
        LogEvent(f"c{case}", name, case * 86400.0 + end, case * 86400.0 + start, who, role) for name, start, end in work
    ]


def cases(*kinds: tuple[int, list[tuple[str, float, float]]], **more: str) -> LogEstimate:
    """An estimate from so many cases of every kind."""
    work = [one for count, one in kinds for _ in range(count)]
    return estimate([event for number, one in enumerate(work) for event in day(number, *one, **more)])


AB, BA = [("a", 0.0, 5.0), ("b", 5.0, 9.0)], [("b", 0.0, 5.0), ("a", 5.0, 9.0)]


@pytest.mark.parametrize(
    ("forth", "back", "support", "found"),
    [
        (19, 1, 0.95, True),
        (18, 2, 0.95, False),
        (18, 2, 0.9, True),
        (20, 0, 1.0, True),
        (19, 1, 1.0, False),
        (5, 0, 0.95, True),
        (4, 0, 0.95, False),
    ],
)
def test_an_order_is_a_rule_from_its_support_on_and_from_five_cases_on(
    forth: int, back: int, support: float, found: bool
) -> None:
    events = [event for n in range(forth + back) for event in day(n, *(AB if n < forth else BA))]
    assert estimate(events, support=support).requirements.rules.precedes == ((("a", "b"),) if found else ())


@pytest.mark.parametrize("support", [0.5, 0.0, 1.0001])
def test_a_support_lies_above_a_half_and_at_most_at_one(support: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0.5 and at most 1"):
        estimate(day(0, *AB), support=support)


def test_work_that_overlaps_has_no_order_and_the_first_of_several_times_counts() -> None:
    overlap = [("a", 0.0, 5.0), ("b", 4.9, 9.0)]
    assert cases((20, overlap)).requirements.rules.precedes == ()
    again = [("a", 0.0, 1.0), ("b", 2.0, 3.0), ("a", 4.0, 5.0)]
    assert cases((20, again)).requirements.rules.precedes == (("a", "b"),)
    at_once = [("a", 5.0, 5.0), ("b", 5.0, 5.0)]
    assert cases((20, at_once)).requirements.rules.precedes == ()


def test_the_weakest_of_a_circle_is_dropped() -> None:
    """a before b, b before c, and c before a, each nearly always among the cases that have both."""
    first = [(20, [("a", 0, 1), ("b", 2, 3)]), (20, [("b", 0, 1), ("c", 2, 3)])]
    weak = [(19, [("c", 0, 1), ("a", 2, 3)]), (1, [("a", 0, 1), ("c", 2, 3)])]
    assert set(cases(*first, *weak).requirements.rules.precedes) == {("a", "b"), ("b", "c")}


@pytest.mark.parametrize(("without", "options"), [(0, []), (1, []), (2, ["b"])])
def test_what_nearly_every_case_has_is_no_branch(without: int, options: list[str]) -> None:
    """Two hundred and ten cases: one without makes 0.9952, two 0.9905, and the limit is 0.995."""
    found = cases((210 - without, AB), (without, AB[:1])).requirements
    assert [list(branch.options) for branch in found.branches] == [[name] for name in options]
    if options:
        assert found.branches[0].options["b"] == pytest.approx(208 / 210)


def test_activities_that_never_meet_against_expectation_are_one_choice() -> None:
    a, b, c = (("x", 0, 1), ("a", 2, 3)), (("x", 0, 1), ("b", 2, 3)), (("x", 0, 1), ("c", 2, 3))
    found = cases((60, list(a)), (40, list(b)), (20, list(c))).requirements
    (branch,) = found.branches
    assert branch.name == "a or b or c"
    assert branch.options == pytest.approx({"a": 0.5, "b": 1 / 3, "c": 1 / 6})
    assert found.rules.excludes == (("a", "b"), ("a", "c"), ("b", "c"))
    # 60 · 1/2 · 1/12 = 2.5 meetings expected by chance are too few to call their absence a rule; 5 are enough.
    rare = cases((30, list(a)), (5, list(b)), (25, [("x", 0, 1)])).requirements
    assert (len(rare.branches), rare.rules.excludes) == (2, ())
    enough = cases((30, list(a)), (10, list(b)), (20, [("x", 0, 1)])).requirements
    assert enough.rules.excludes == (("a", "b"),)
    # One meeting, and they do not exclude each other.
    met = cases((29, list(a)), (20, list(b)), (11, [("x", 0, 1), ("a", 2, 3), ("b", 2, 3)])).requirements
    assert met.rules.excludes == ()


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        ("exponential", lambda rng: rng.exponential(50, 3000)),
        ("normal", lambda rng: rng.normal(500, 40, 3000)),
        ("uniform", lambda rng: rng.uniform(10, 90, 3000)),
        ("lognormal", lambda rng: rng.lognormal(3, 0.9, 3000)),
        ("gamma", lambda rng: rng.gamma(3, 20, 3000)),
        ("fixed", lambda rng: 60 + rng.uniform(-0.05, 0.05, 3000)),
    ],
)
def test_the_kind_of_a_distribution_is_found_with_its_moments(kind: str, draw: Any) -> None:
    times = draw(np.random.default_rng(5)).tolist()
    found = fit(times)
    assert found.kind == kind
    assert found.mean == pytest.approx(np.mean(times))
    if kind not in ("exponential", "fixed"):
        assert found.std == pytest.approx(
            min(np.std(times), np.mean(times) / math.sqrt(3) if kind == "uniform" else 1e9)
        )


def test_likelihoods_are_scipys() -> None:
    times = np.random.default_rng(3).gamma(2.5, 20, 400)
    mean, std = times.mean(), times.std()
    spread = math.log1p((std / mean) ** 2)
    known = {
        "exponential": stats.expon(scale=mean),
        "normal": stats.norm(mean, std),
        "uniform": stats.uniform(times.min(), times.max() - times.min()),
        "lognormal": stats.lognorm(math.sqrt(spread), scale=mean * math.exp(-spread / 2)),
        "gamma": stats.gamma(mean**2 / std**2, scale=std**2 / mean),
    }
    found = process_mining._likelihoods(times.tolist(), mean, std)
    assert found == pytest.approx({kind: one.logpdf(times).sum() for kind, one in known.items()})
    with_zero = process_mining._likelihoods([0.0, *times.tolist()], mean, std)
    assert set(with_zero) == {"exponential", "normal", "uniform"}


def test_few_times_have_a_mean_and_no_shape() -> None:
    assert fit([60.0, 61.0, 80.0, 99.0]).model_dump() == {"kind": "exponential", "mean": 75.0, "std": None}
    assert fit([50.0, 50.0]).kind == "fixed"
    assert fit([500.0, 510.0, 520.0, 530.0, 540.0]).kind != "exponential", "five are enough"


def test_a_completion_ends_the_earliest_start_that_is_open() -> None:
    lines = [("start", 0), ("start", 10), ("complete", 30), ("complete", 50), ("suspend", 55), ("complete", 60)]
    events = [LogEvent("1", "a", float(at), lifecycle=what) for what, at in lines]
    random.Random(1).shuffle(events)
    work = process_mining._paired(events)
    assert [(one.start, one.end) for one in work] == [(0.0, 30.0), (10.0, 50.0), (None, 60.0)]
    zero = process_mining._paired([LogEvent("1", "a", 5.0), LogEvent("1", "a", 5.0, lifecycle="start")])
    assert [(one.start, one.end) for one in zero] == [(5.0, 5.0)]
    other = [LogEvent("1", "a", 1.0, lifecycle="start"), LogEvent("2", "a", 5.0), LogEvent("1", "b", 6.0)]
    assert [one.start for one in process_mining._paired(other)] == [None, None]
    own = [LogEvent("1", "a", 1.0, lifecycle="start"), LogEvent("1", "a", 9.0, start=4.0)]
    assert process_mining._paired(own)[0].start == 4.0


def test_a_missing_start_is_when_the_case_and_the_resource_were_free() -> None:
    ends = [("1", "a", 10.0, "ann"), ("2", "a", 20.0, "ann"), ("1", "b", 30.0, "ann"), ("2", "b", 50.0, "bob"),
            ("1", "c", 60.0, ""), ("2", "c", 70.0, "")]  # fmt: skip
    notes: list[str] = []
    work = process_mining._with_starts(
        process_mining._paired([LogEvent(c, a, at, resource=who) for c, a, at, who in ends]), notes
    )
    assert [(one.case, one.activity, one.start) for one in work] == [
        ("1", "a", None), ("2", "a", None), ("1", "b", 20.0), ("2", "b", 20.0), ("1", "c", 30.0), ("2", "c", 50.0),
    ]  # fmt: skip
    assert len(notes) == 1
    known = process_mining._paired([LogEvent("1", "a", 9.0, start=1.0)])
    assert process_mining._with_starts(known, notes) == known
    assert len(notes) == 1, "nothing is missing, nothing is noted"


def test_times_that_run_backwards_are_left_out_and_noted() -> None:
    wrong = [(20, [("a", 0.0, 50.0)]), (5, [("a", 9.0, 8.0)])]
    found = cases(*wrong)
    assert found.requirements.activities["a"].duration.mean == 50
    assert "'a' sometimes ends before it starts; those times were ignored" in found.notes
    alone = estimate([LogEvent(str(n), "a", n * 10.0) for n in range(5)])
    assert alone.requirements.activities["a"].duration.mean == 0
    assert "the log does not say how long 'a' takes; 0 was assumed" in alone.notes


def test_resources_that_do_the_same_work_are_a_team_named_after_the_busiest() -> None:
    done = {"ann": "aaab", "bob": "aab", "cid": "bbb", "dan": "c", "eve": "cc"}
    events = [
        LogEvent(f"{who}{n}", what, n * 10.0, n * 10.0 - 5, who)
        for who, work in done.items()
        for n, what in enumerate(work)
    ]
    found = estimate(events).requirements
    assert {pool: one.most for pool, one in found.pools.items()} == {
        "team of ann": 2,
        "team of cid": 1,
        "team of eve": 2,
    }
    assert found.activities["a"].pools == ("team of ann",)
    assert found.activities["b"].pools == ("team of cid", "team of ann"), "those who do it most come first"
    assert process_mining._alike(process_mining.Counter("aab"), process_mining.Counter("ab")) == pytest.approx(
        3 / math.sqrt(10)
    )


def test_roles_are_pools_of_their_people_or_as_large_as_what_they_do_at_once() -> None:
    named = [event for n in range(3) for event in day(n, *AB, who=f"r{n}", role="desk")]
    assert {p: (one.least, one.most) for p, one in estimate(named).requirements.pools.items()} == {"desk": (1, 3)}
    at_once = [LogEvent(str(n), "a", n * 10.0 + 25, n * 10.0, role="desk") for n in range(6)]
    assert estimate(at_once).requirements.pools["desk"].most == 3
    touching = [LogEvent(str(n), "a", n * 10.0 + 10, n * 10.0, role="desk") for n in range(6)]
    assert estimate(touching).requirements.pools["desk"].most == 1
    mixed = [*named, LogEvent("x", "c", 5.0, 1.0, "zoe")]
    assert estimate(mixed).requirements.activities["c"].pools == (), "who has no role is in no pool where others have"
    nobody = estimate([LogEvent("1", "a", 5.0, 1.0), LogEvent("2", "a", 9.0, 6.0)])
    assert "the log names no resources, so there are no pools" in nobody.notes


@pytest.mark.parametrize("count", [1, 2, 3])
def test_cases_that_start_at_once_have_no_rate(count: int) -> None:
    found = estimate([LogEvent(str(n), "a", 5.0 + n, 1.0) for n in range(count)])
    assert found.requirements.demand.arrivals_per_second is None
    assert "all cases start at once, so there is no arrival rate" in found.notes
    apart = estimate(
        [LogEvent(str(n), a, n * 8.0 + at, n * 8.0 + at) for n in range(count + 1) for a, at in (("a", 2), ("b", 3))]
    )
    assert apart.requirements.demand.arrivals_per_second == pytest.approx(1 / 8)


def test_repetitions_are_noted_for_those_that_are_repeated() -> None:
    twice = [("a", 0.0, 1.0), ("b", 2.0, 3.0), ("a", 4.0, 5.0)]
    found = cases((5, twice), (15, AB))
    assert [note for note in found.notes if "repeated" in note] == [
        "'a' is repeated in 25.0% of the cases; a design can express this as a loop"
    ]
    assert (found.cases, found.events) == (20, 45)
    assert found.requirements.documentation == "Estimated from 20 cases with 45 events."


@pytest.mark.parametrize(("limit", "refused"), [(3, False), (2, False), (1, True)])
def test_activities_are_refused_beyond_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, refused: bool) -> None:
    monkeypatch.setattr(process_mining, "MOST_ACTIVITIES", limit)
    if refused:
        with pytest.raises(ConfigError, match="the log has 2 different activities; at most 1 are supported"):
            estimate(day(0, *AB))
    else:
        assert len(estimate(day(0, *AB)).requirements.activities) == 2


@pytest.mark.parametrize(("limit", "pools"), [(3, 3), (2, 0)])
def test_resources_are_compared_up_to_the_limit_unless_there_are_roles(
    monkeypatch: pytest.MonkeyPatch, limit: int, pools: int
) -> None:
    monkeypatch.setattr(process_mining, "MOST_RESOURCES", limit)
    events = [LogEvent(str(n), f"a{n}", n + 1.0, float(n), f"r{n}") for n in range(3)]
    assert len(estimate(events).requirements.pools) == pools
    with_roles = [LogEvent(str(n), f"a{n}", n + 1.0, float(n), f"r{n}", "desk") for n in range(3)]
    assert list(estimate(with_roles).requirements.pools) == ["desk"]


def write(tmp_path: Path, text: str, name: str = "log.csv") -> Path:
    (tmp_path / name).write_text(text, encoding="utf8")
    return tmp_path / name


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_every_column_is_read_whatever_separates_them(tmp_path: Path, delimiter: str) -> None:
    header = ["Role", "Case ID", "Activity", "Start", "End", "User", "Status"]
    rows = [["desk", " 7 ", "a", "5", "9", "ann", "Complete"], ["", "8", "b", "", "10", "", ""], [""] * 7]
    text = "\n".join(delimiter.join(row) for row in (header, *rows))
    assert read_events(write(tmp_path, text)) == [
        LogEvent("7", "a", 9.0, 5.0, "ann", "desk", "complete"), LogEvent("8", "b", 10.0),
    ]  # fmt: skip


def test_the_usual_names_come_before_the_looser_ones_and_a_given_name_before_all(tmp_path: Path) -> None:
    path = write(tmp_path, "time,case,case_id,event,concept:name,timestamp\n1,x,y,e,n,2\n")
    (found,) = read_events(path)
    assert (found.case, found.activity, found.time) == ("y", "n", 2.0)
    (found,) = read_events(path, {"case": "case", "time": "time"})
    assert (found.case, found.activity, found.time) == ("x", "n", 1.0)
    with pytest.raises(BadFile, match="'who' must be one of case, activity, time"):
        read_events(path, {"who": "case"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", 0.0),
        ("1e15", 1e15),
        ("-1e15", -1e15),
        ("1970-01-02", 86400.0),
        ("1970/01/01 01:00", 3600.0),
        (" 1970-01-01T00:00:01 ", 1.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:00Z", 0.0),
        ("1.0000001e15", None),
        ("-1.1e15", None),
        ("1970-13-01", None),
    ],
)
def test_times_are_numbers_or_dates_within_bounds(text: str, found: float | None) -> None:
    if found is None:
        with pytest.raises(BadFile, match=r"line 2: 'when' is '.*', which is not a time"):
            seconds("line 2", "when", text)
    else:
        assert seconds("line 2", "when", text) == found


def test_a_log_has_at_most_so_many_events_lines_so_long_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "case,activity,time\n1,a,1\n1,b,2\n"
    path = write(tmp_path, text)
    monkeypatch.setattr(event_logs, "MOST_EVENTS", 2)
    assert len(read_events(path)) == 2
    monkeypatch.setattr(event_logs, "MOST_EVENTS", 1)
    with pytest.raises(BadFile, match="has more than 1 events"):
        read_events(path)
    monkeypatch.setattr(event_logs, "MOST_EVENTS", 9)
    monkeypatch.setattr(event_logs, "LONGEST_LINE", len("case,activity,time\n"))
    assert len(read_events(path)) == 2
    monkeypatch.setattr(event_logs, "LONGEST_LINE", len("case,activity,time\n") - 1)
    with pytest.raises(BadFile, match="line 1 has more than 18 characters"):
        read_events(path)
    monkeypatch.undo()
    small = event_logs.ReadLimits(size=len(text), values=100, seconds=60)
    monkeypatch.setattr(event_logs, "LIMITS", small)
    assert len(read_events(path)) == 2
    monkeypatch.setattr(event_logs, "LIMITS", event_logs.ReadLimits(size=len(text) - 1, values=100, seconds=60))
    with pytest.raises(BadFile, match="is larger than 0 MiB"):
        read_events(path)


def test_what_a_file_is_shows_in_its_name_or_else_in_its_first_letter(tmp_path: Path) -> None:
    event = '<event><string key="concept:name" value="a"/><date key="time:timestamp" value="5"/></event>'
    xes = f"<log><trace>{event}</trace></log>"
    assert read_events(write(tmp_path, f"\n {xes}", "log.txt")) == [LogEvent("1", "a", 5.0)]
    assert read_events(write(tmp_path, xes, "log.XES")) == [LogEvent("1", "a", 5.0)]
    assert read_events(write(tmp_path, "case,activity,time\n1,a,5\n", "log")) == [LogEvent("1", "a", 5.0)]
    with pytest.raises(BadFile, match="no column for the case"):
        read_events(write(tmp_path, xes, "log.csv"))


def test_traces_are_numbered_and_events_without_a_name_or_time_are_placed(tmp_path: Path) -> None:
    event = '<event><string key="concept:name" value="{0}"/><date key="time:timestamp" value="5"/></event>'
    named = '<string key="concept:name" value="case 7"/>'
    inside = (event.format("a"), named + event.format("b"), event.format("c"))
    two = f"<log>{''.join(f'<trace>{one}</trace>' for one in inside)}</log>"
    assert [(one.case, one.activity) for one in read_events(write(tmp_path, two, "l.xes"))] == [
        ("1", "a"), ("case 7", "b"), ("3", "c"),
    ]  # fmt: skip
    for missing in ("concept:name", "time:timestamp"):
        bad = event.format("a").replace(f'key="{missing}"', 'key="other"')
        text = f"<log><trace>{event.format('a')}</trace><trace>{event.format('a')}{bad}</trace></log>"
        with pytest.raises(BadFile, match=f"event 2 of trace 2 has no {missing}"):
            read_events(write(tmp_path, text, "l.xes"))


def test_a_log_is_named_after_its_file_unless_it_is_given_a_name(tmp_path: Path) -> None:
    path = write(tmp_path, "case,activity,time\n1,a,1\n", "claims.2026.csv")
    assert requirements_from_log(path).requirements.name == "claims"
    assert requirements_from_log(path, name="other").requirements.name == "other"


@pytest.mark.parametrize(("work", "teams"), [("aaaabbb", 1), ("aaaaaaabbbbbb", 2), ("aaaaab", 1)])
def test_two_resources_are_a_team_from_a_similarity_of_four_fifths_on(work: str, teams: int) -> None:
    """Beside one who does only a: 4 : 3 is a cosine of exactly 0.8, 7 : 6 one of 0.76."""
    done = {"ann": work, "bob": "a"}
    events = [
        LogEvent(f"{who}{n}", what, n * 10.0, n * 10.0 - 5, who)
        for who, all_ in done.items()
        for n, what in enumerate(all_)
    ]
    assert len(estimate(events).requirements.pools) == teams
