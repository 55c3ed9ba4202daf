"""Event logs: known behaviour → log → estimates near it; and what is wrong with a log is told with its place."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.simulation import simulate
from groupwise.workflows.event_logs import LogEvent, read_events
from groupwise.workflows.files.formats import BadFile
from groupwise.workflows.inspection import open_workflow
from groupwise.workflows.process_mining import estimate, fit, requirements_from_log

ROOT = Path(__file__).parents[2]


def claims(count: int = 1500, seed: int = 0) -> list[LogEvent]:
    """register → (check ∥ call) → pay 70% | reject 30%; two clerks do all but pay, one cashier pays."""
    rng = random.Random(seed)
    events, clock = [], 0.0
    for number in range(count):
        clock += rng.expovariate(0.01)
        clerk, case = f"clerk {rng.randint(1, 2)}", f"c{number}"
        begun = clock + rng.expovariate(1)
        registered = begun + rng.gammavariate(4, 25)
        checked = registered + rng.expovariate(1 / 300)
        called = registered + rng.uniform(50, 150)
        events += [
            LogEvent(case, "register", registered, begun, clerk),
            LogEvent(case, "check", checked, registered, clerk),
            LogEvent(case, "call", called, registered, clerk),
        ]
        last = max(checked, called)
        if rng.random() < 0.7:
            events.append(LogEvent(case, "pay", last + 60, last, "cashier"))
        else:
            events.append(LogEvent(case, "reject", last + rng.lognormvariate(3, 0.8), last, clerk))
    return events


def written(events: list[LogEvent]) -> str:
    out = io.StringIO()
    lines = csv.writer(out)
    lines.writerow(["Case ID", "Activity", "Start Timestamp", "Complete Timestamp", "Resource"])
    for event in events:
        assert event.start is not None
        times = [datetime.fromtimestamp(time, UTC).isoformat() for time in (event.start, event.time)]
        lines.writerow([event.case, event.activity, *times, event.resource])
    return out.getvalue()


def test_what_a_log_was_made_from_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv.gz"
    path.write_bytes(gzip.compress(written(claims()).encode()))
    found = requirements_from_log(path)
    asked = found.requirements
    assert (asked.name, found.cases, found.events) == ("claims", 1500, 6000)
    kinds = {name: activity.duration.kind for name, activity in asked.activities.items()}
    assert kinds == {
        "register": "gamma", "check": "exponential", "call": "uniform", "pay": "fixed", "reject": "lognormal",
    }  # fmt: skip
    means = {name: activity.duration.mean for name, activity in asked.activities.items()}
    assert means == pytest.approx({"register": 100, "check": 300, "call": 100, "pay": 60, "reject": 27.7}, rel=0.08)
    assert asked.activities["register"].duration.std == pytest.approx(50, rel=0.08)
    (branch,) = asked.branches
    assert branch.options == pytest.approx({"pay": 0.7, "reject": 0.3}, abs=0.04)
    assert asked.rules.excludes == (("pay", "reject"),)
    assert set(asked.rules.precedes) == {
        ("register", "check"), ("register", "call"), ("check", "pay"), ("call", "pay"), ("check", "reject"),
        ("call", "reject"),
    }  # fmt: skip
    assert asked.demand.arrivals_per_second == pytest.approx(0.01, rel=0.08)
    sizes = {pool: (one.least, one.most) for pool, one in asked.pools.items()}
    assert sorted(sizes.values()) == [(1, 1), (1, 2)]
    assert asked.activities["pay"].pools == ("team of cashier",)


def test_the_log_of_a_simulated_design_tells_what_it_was_made_for() -> None:
    known = open_workflow(ROOT / "examples" / "workflows" / "loan.yaml")
    assert known.requirements is not None
    tries = simulate(encode(known.design(), known.requirements), 1500, seed=3, trace=14_000).trace
    whole = max(one.case for one in tries) - 50
    events = [
        LogEvent(str(one.case), one.activity, one.end, one.start, f"{one.pool} {one.server}", one.pool or "")
        for one in tries
        if one.case < whole and one.outcome == "done"
    ]
    found = estimate(events).requirements
    asked = known.requirements
    assert found.demand.arrivals_per_second == pytest.approx(asked.demand.arrivals_per_second, rel=0.1)
    for name, activity in asked.activities.items():
        made = found.activities[name].duration
        assert made.mean == pytest.approx(activity.duration.mean, rel=0.12), name
        assert made.kind == activity.duration.kind or {made.kind, activity.duration.kind} <= {"gamma", "lognormal"}
        assert found.activities[name].pools == activity.pools[:1]
    (secured,) = (branch.options for branch in found.branches if "appraise property" in branch.options)
    assert 0.2 < secured["appraise property"] < 0.32  # 0.3 of those whose income was verified
    assert ("receive application", "verify income") in found.rules.precedes
    sizes = {pool: found.pools[pool].most for pool in found.pools}
    assert sizes == dict(known.design().servers)


def test_starts_and_ends_on_lines_of_their_own_and_roles(tmp_path: Path) -> None:
    lines = ["case,activity,timestamp,lifecycle,role"]
    for case in range(8):
        for at, what in ((0, "start"), (30, "complete")):
            lines.append(f"{case},file it,{case * 100 + at},{what},desk")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines), encoding="utf8")
    found = requirements_from_log(path).requirements
    assert found.activities["file it"].duration.model_dump() == {"kind": "fixed", "mean": 30.0, "std": None}
    assert found.pools["desk"].most == 1


@pytest.mark.parametrize("spelt", [str.lower, str.upper, str.title])
def test_a_lifecycle_may_be_spelt_in_capitals(tmp_path: Path, spelt: Callable[[str], str]) -> None:
    lines = ["case,activity,timestamp,lifecycle"]
    lines += [f"1,file it,{at},{spelt(what)}" for at, what in ((0, "start"), (30, "complete"))]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines), encoding="utf8")
    assert requirements_from_log(path).requirements.activities["file it"].duration.mean == 30


def test_cases_arrive_as_often_as_there_are_gaps_between_them() -> None:
    for count in (2, 5):
        found = estimate([LogEvent(str(n), "a", n * 10.0 + 3, n * 10.0) for n in range(count)]).requirements
        assert found.demand.arrivals_per_second == pytest.approx(0.1)


def test_work_that_starts_the_moment_other_work_ends_comes_after_it() -> None:
    events = [
        LogEvent(str(n), name, n * 100.0 + end, n * 100.0 + start)
        for n in range(20)
        for name, start, end in (("a", 0, 5), ("b", 5, 9), ("c", 9, 20))
    ]
    assert set(estimate(events).requirements.rules.precedes) == {("a", "b"), ("b", "c")}


def test_ends_alone_are_read_from_when_case_and_resource_were_free() -> None:
    events = [LogEvent(str(n), a, n * 1000.0 + at, resource="r") for n in range(6) for a, at in (("a", 0), ("b", 40))]
    found = estimate(events)
    assert found.requirements.activities["b"].duration.mean == pytest.approx(40)
    assert any("missing start times were estimated" in note for note in found.notes)


def test_repeated_work_and_habits_are_told_in_notes() -> None:
    events = [LogEvent(str(n), "a", n * 100.0 + at, n * 100.0 + at - 5) for n in range(10) for at in (0, 10)]
    assert any("'a' is repeated in 100.0% of the cases" in note for note in estimate(events).notes)


XES = """<?xml version="1.0"?><log xmlns="http://www.xes-standard.org/">
<trace><string key="concept:name" value="7"/>
<event><string key="concept:name" value="a"/><date key="time:timestamp" value="2026-01-01T00:00:00Z"/></event>
<event><string key="concept:name" value="b"/><date key="time:timestamp" value="{time}"/></event></trace></log>"""


def test_xes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.xes"
    path.write_text(XES.format(time="2026-01-01T00:01:00.000+00:00"), encoding="utf8")
    first, second = read_events(path)
    assert (first.case, first.activity, second.time - first.time) == ("7", "a", 60.0)


def test_xes_tells_who_did_what_and_whether_it_began_or_ended(tmp_path: Path) -> None:
    """A group stands in for a role; attributes of the trace, or inside other attributes, are not the event's."""
    said = {"concept:name": "a", "time:timestamp": "60", "org:resource": "ann", "lifecycle:transition": "START"}
    group = '<string key="org:group" value="desk"><string key="org:resource" value="nobody"/></string>'
    both = '<string key="org:role" value="clerk"/><string key="org:group" value="desk"/>'
    own = "".join(f'<string key="{key}" value="{value}"/>' for key, value in said.items())
    events = "".join(f"<event>{own}{more}</event>" for more in (group, both))
    path = tmp_path / "log.xes"
    path.write_text(f'<log><trace><string key="org:role" value="case"/>{events}</trace></log>', encoding="utf8")
    first, second = read_events(path)
    assert (first.case, first.resource, first.role, first.lifecycle) == ("1", "ann", "desk", "start")
    assert (second.resource, second.role, second.start) == ("ann", "clerk", None)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "id,what,when\n1,a,2", "line 1: no column for the case and the activity and the time of"),
        ("a.csv", "case,activity,timestamp\n1,a,2026-01-01\n1,b,yesterday\n", "line 3: 'timestamp' is 'yesterday'"),
        ("a.csv", "case,activity,timestamp\n1,a\n", "line 2: 2 columns, but the first line has 3"),
        ("a.csv", "case,activity,timestamp\n,a,1\n", "line 2: column 'case' is empty"),
        ("a.csv", "case,activity,timestamp\n", "has no events"),
        ("a.csv", "", "line 1: no column for the case"),
        ("a.csv", "case,activity,timestamp\n1," + "a" * 2_000_000, "line 2 has more than 1,048,576 characters"),
        ("a.csv", "case,activity,timestamp\n1,a,nan\n", "line 2: 'timestamp' is 'nan', which is not a time"),
        ("a.csv", "case,activity,timestamp\n1,a,-inf\n", "line 2: 'timestamp' is '-inf', which is not a time"),
        ("a.csv", "case,activity,timestamp\n1,a,1e400\n", "line 2: 'timestamp' is '1e400', which is not a time"),
        ("a.csv", "case,activity,timestamp\n1,a,2026-02-31\n", "line 2: 'timestamp' is '2026-02-31', which is not a"),
        ("a.xes", XES.format(time="nan"), "event 2 of trace 1: 'time:timestamp' is 'nan', which is not a time"),
        ("a.csv", b"case,activity,timestamp\n1,\xff,1", "not UTF-8 text (at byte 26, line 2)"),
        ("a.xes", XES.format(time="soon"), "event 2 of trace 1: 'time:timestamp' is 'soon', which is not a time"),
        ("a.xes", "<a>" + "<b/>" * 1000 + "</a>", "line 1: <a> has no place in an XES log"),
        ("a.xes", "<log>\n<b/></log>", "line 2: <b> has no place in an XES log"),
        ("a.xes", "<log><trace>", "not valid XML: no element found (at line 1, column 13)"),
        ("a.xes", '<!DOCTYPE l [<!ENTITY a "b">]><log>&a;</log>', "a DTD, entity or external"),
        ("a.csv.gz", b"\x1f\x8b\x08broken", "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_log_is_told_with_its_place(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadFile) as error:
        read_events(path)
    assert words in error.value.message


def test_a_header_of_endless_columns_is_not_quoted_in_full(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(",".join(f"column {n}" for n in range(2000)))
    with pytest.raises(BadFile, match="no column for the case") as error:
        read_events(tmp_path / "log.csv")
    assert len(error.value.message) < 1000


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("Auftrag;Schritt;Zeit\n1;a;2026/01/01 10:00:00.5\n", encoding="utf8")
    (event,) = read_events(path, {"case": "Auftrag", "activity": "Schritt", "time": "Zeit"})
    assert event == LogEvent("1", "a", 1767261600.5)
    with pytest.raises(BadFile, match="no column 'Fall'"):
        read_events(path, {"case": "Fall"})


def test_a_log_without_completions_is_refused() -> None:
    with pytest.raises(ConfigError, match="no activity is completed"):
        estimate([LogEvent("1", "a", 0.0, lifecycle="schedule")])


def test_few_times_are_not_over_read() -> None:
    assert fit([1.0, 2.0, 4.0]).kind == "exponential"


def test_more_activities_than_any_process_has_are_refused_at_once() -> None:
    events = [LogEvent(str(case), f"a{n}", float(n)) for case in range(5) for n in range(4000)]
    with pytest.raises(ConfigError, match="4,000 different activities; at most 500"):
        estimate(events)


def test_a_log_whose_orders_go_in_circles_is_refused() -> None:
    rng, events, case = random.Random(1), [], 0
    for a in range(100):
        for b in range(a):
            for _ in range(5):
                case += 1
                first, second = (a, b) if hash((a, b, 7)) % 2 else (b, a)
                events += [LogEvent(str(case), f"a{first}", 1.0), LogEvent(str(case), f"a{second}", 2.0)]
    rng.shuffle(events)
    with pytest.raises(ConfigError, match="contradicts itself too often"):
        estimate(events)


def test_more_resources_than_can_be_compared_have_no_teams() -> None:
    events = [LogEvent(str(n), "a", float(n), float(n), f"r{n}") for n in range(1500)]
    found = estimate(events)
    assert not found.requirements.pools
    assert any("1,500 resources are too many for teams" in note for note in found.notes)


def test_times_of_no_length_are_fixed() -> None:
    assert fit([0.0, 0.0, 0.0, 0.0, 5e-324, 1e-200]).kind == "fixed"
