"""Requirements are read from YAML and JSON, and a mistake is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.workflows.requirements import (
    PAIR_RULES,
    Requirements,
    merged_hours,
    parse_requirements,
    read_requirements,
    schema,
)

LOAN = """
name: loan
activities:
  check: {duration: {mean: 600}, pools: [clerk], knock_out: 0.2}
  score: {duration: {kind: gamma, mean: 60, std: 30}, cpu: 2, memory: 1.0e9}
  decide: {duration: {kind: fixed, mean: 300}, pools: [clerk, manager], cost: 5}
pools:
  clerk: {least: 1, most: 4, wage: 0.01}
  manager: {most: 2, wage: 0.03, calendar: [[9, 17], [33, 41]]}
rules:
  precedes: [[check, decide]]
  separate: [[check, decide]]
demand: {arrivals_per_second: 0.002}
"""


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "loan.yaml").write_text(LOAN)
    loan = read_requirements(tmp_path / "loan.yaml")
    (tmp_path / "loan.json").write_text(loan.model_dump_json())
    assert read_requirements(tmp_path / "loan.json") == loan
    assert loan.activities["score"].duration.scv == 0.25
    assert loan.activities["check"].duration.scv == 1.0
    assert loan.activities["decide"].duration.scv == 0.0


def test_the_schema_names_everything_there_is() -> None:
    found = schema()
    assert set(found["properties"]) == set(Requirements.model_fields)
    assert json.loads(json.dumps(found)) == found


def changed(**parts: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"name": "n", "activities": {"a": {"duration": {"mean": 1}}}}
    return base | parts


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        (changed(speed=3), "speed", "unknown key"),
        (changed(activities={"a": {}}), "activities.a.duration", "is missing"),
        (changed(activities={}), "activities", "at least 1"),
        (
            changed(activities={"a": {"duration": {"mean": -1}}}),
            "activities.a.duration.mean",
            "is -1 but must be at least 0",
        ),
        (changed(activities={"a": {"duration": {"kind": "gamma", "mean": 1}}}), "activities.a.duration", "needs std"),
        (changed(activities={"a": {"duration": {"mean": 1}, "pools": ["x"]}}), "", "'x', which is not in pools"),
        (changed(pools={"p": {"least": 3, "most": 2}}), "pools.p", "which is more than most"),
        (changed(pools={"p": {"calendar": [[5, 200]]}}), "pools.p", "must be hours of a week"),
        (changed(pools={"p": {"calendar": [[12, 8]]}}), "pools.p", r"the shift \[12, 8\] ends before it starts"),
        (changed(rules={"precedes": [["a", "b"]]}), "", "rules.precedes names 'b', which is not in activities"),
        (changed(rules={"must_include": ["aa"]}), "", r"names 'aa', which is not in activities \(did you mean 'a'\?\)"),
        (changed(branches=[{"name": "x", "options": {"a": 1.5}}]), "branches.0", "at most 1"),
    ],
)
def test_a_mistake_is_named_with_its_place(value: Any, place: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as found:
        parse_requirements(value)
    assert found.value.field == place


@pytest.mark.parametrize(
    ("value", "place", "hint"),
    [
        (changed(rules={"preceeds": [["a", "a"]]}), "rules.preceeds", "Did you mean 'precedes'?"),
        (changed(activities={"a": {"durration": {"mean": 1}}}), "activities.a.durration", "Did you mean 'duration'?"),
        # An activity may have the name of a key.
        (changed(activities={"duration": {"duration": {"mena": 1}}}), "activities.duration.duration.mena", "'mean'?"),
        (
            changed(activities={"duration": {"pool": [], "duration": {"mean": 1}}}),
            "activities.duration.pool",
            "'pools'?",
        ),
        (changed(objective={"speed": 1}), "objective.Weights.speed", "Known keys: performance, structure,"),
        (changed(demand={"runs": 1, "rate": 2}), "demand.rate", "Known keys: arrivals_per_second, runs."),
        (
            changed(outcomes=[{"name": "o", "after": "a", "branches": {"ends": {"probabilty": 1}, "y": {}}}]),
            "outcomes.0.branches.ends.probabilty",
            "Did you mean 'probability'?",
        ),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(value: Any, place: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as found:
        parse_requirements(value)
    assert (found.value.field, hint in found.value.hint) == (place, True)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for name, text in {"a.json": "{", "b.yaml": "a: [", "c.yaml": "3"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=name):
            read_requirements(tmp_path / name)
    with pytest.raises(ConfigError, match="no such file"):
        read_requirements(tmp_path / "nowhere.yaml")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_requirements(tmp_path / "deep.json")
    (tmp_path / "endless.yaml").write_text("name: x\nactivities: {a: {duration: {mean: .inf}}}")
    with pytest.raises(ConfigError, match="activities.a.duration.mean"):
        read_requirements(tmp_path / "endless.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (11 << 20))
    with pytest.raises(ConfigError, match="the file is larger than 2 MiB"):
        read_requirements(tmp_path / "large.yaml")


def activity(**more: Any) -> dict[str, Any]:
    return changed(activities={"a": {"duration": {"mean": 1}, **more}, "b": {"duration": {"mean": 1}}})


def duration(**parts: Any) -> dict[str, Any]:
    return changed(activities={"a": {"duration": parts}})


def pool(**parts: Any) -> dict[str, Any]:
    return changed(pools={"p": parts})


def outcome(*shares: float) -> dict[str, Any]:
    branches = {f"x{n}": {"probability": share} for n, share in enumerate(shares)}
    return changed(outcomes=[{"name": "o", "after": "a", "branches": branches}])


def loop(**parts: Any) -> dict[str, Any]:
    return changed(loops=[{"name": "l", "activities": ["a"], "after": "a", "again": 0.5, **parts}])


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ([duration(mean=0)], [duration(mean=-1e-9)]),
        ([duration(kind="gamma", mean=1, std=0)], [duration(kind="gamma", mean=1, std=-1e-9)]),
        (
            [duration(kind="uniform", mean=3**0.5, std=1 - 1e-12), duration(kind="uniform", mean=2, std=1)],
            [duration(kind="uniform", mean=1.73, std=1)],
        ),
        *(
            ([duration(kind=kind, mean=9, std=1)], [duration(kind=kind, mean=9)])
            for kind in ("normal", "lognormal", "uniform", "gamma")
        ),
        ([duration(mean=9), duration(kind="fixed", mean=9)], [duration(kind="weibull", mean=9)]),
        *(
            ([activity(**{what: 0.0}), activity(**{what: 0.999})], [activity(**{what: -0.01}), activity(**{what: 1.0})])
            for what in ("failure", "knock_out")
        ),
        *(([activity(**{what: 0})], [activity(**{what: -1})]) for what in ("cost", "cpu", "memory")),
        ([activity(kind="receive")], [activity(kind="other")]),
        ([pool(least=0), pool(least=2, most=2)], [pool(least=-1), pool(least=3, most=2)]),
        ([pool(least=0, most=1)], [pool(least=0, most=0)]),
        ([pool(wage=0)], [pool(wage=-0.1)]),
        ([pool(speed=0.001)], [pool(speed=0)]),
        (
            [pool(calendar=[[0, 168]]), pool(calendar=[[0, 0.5], [167, 168]])],
            [pool(calendar=[[0, 168.1]]), pool(calendar=[[-0.1, 1]]), pool(calendar=[[2, 1]]), pool(calendar=[[2, 2]])],
        ),
        ([changed(rules={"deadline": 0.001})], [changed(rules={"deadline": 0})]),
        (
            [changed(branches=[{"name": "x", "options": {"a": 1.0}}])],
            [changed(branches=[{"name": "x", "options": {"a": share}}]) for share in (0.0, 1.00001)],
        ),
        ([outcome(0.5, 0.5), outcome(0.5, 0.4999995)], [outcome(0.5, 0.49999), outcome(0.5, 0.51), outcome(1.0)]),
        ([outcome(0.25, 0.25, 0.5)], [outcome(0.0, 1.0)]),
        ([loop(again=0.001), loop(again=0.999)], [loop(again=0), loop(again=1)]),
        ([loop(most=1)], [loop(most=0), loop(activities=[])]),
        (
            [changed(demand={"arrivals_per_second": 1e-9}), changed(demand={"runs": 1})],
            [changed(demand={"arrivals_per_second": 0}), changed(demand={"runs": 0})],
        ),
        ([changed(data={"x": 0})], [changed(data={"x": -1})]),
        ([changed(objective={"structure": 0}), changed(objective="pareto")], [changed(objective={"structure": -1})]),
    ],
)
def test_every_limit_is_allowed_and_what_lies_beyond_is_refused(allowed: list[Any], refused: list[Any]) -> None:
    for value in allowed:
        parse_requirements(value)
    for value in refused:
        with pytest.raises(ConfigError):
            parse_requirements(value)


@pytest.mark.parametrize("rule", PAIR_RULES)
def test_every_rule_is_about_activities_that_there_are(rule: str) -> None:
    parse_requirements(changed(rules={rule: [["a", "a"]]}))
    for pair in (["a", "x"], ["x", "a"]):
        with pytest.raises(ConfigError, match="'x', which is not in activities"):
            parse_requirements(changed(rules={rule: [pair]}))


@pytest.mark.parametrize(
    "parts",
    [
        {"rules": {"must_include": ["x"]}},
        {"branches": [{"name": "n", "options": {"x": 0.5}}]},
        {"outcomes": [{"name": "o", "after": "x", "branches": {"p": {"probability": 0.5}, "q": {"probability": 0.5}}}]},
        {
            "outcomes": [
                {
                    "name": "o",
                    "after": "a",
                    "branches": {"p": {"probability": 0.5, "activities": ["x"]}, "q": {"probability": 0.5}},
                }
            ]
        },
        {"loops": [{"name": "l", "activities": ["a", "x"], "after": "a", "again": 0.5}]},
        {"loops": [{"name": "l", "activities": ["a"], "after": "a", "again": 0.5, "redo": ["x"]}]},
    ],
)
def test_whatever_names_an_activity_names_one_that_there_is(parts: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"^(rules\.\w+|(branch|outcome|loop) '.+) names 'x', which is not in activities"
    ):
        parse_requirements(changed(**parts))


def test_a_pool_has_at_most_as_many_servers_as_people() -> None:
    def staffed(most: int, *people: list[str], least: int = 1) -> dict[str, Any]:
        members = {f"p{n}": {"pools": pools} for n, pools in enumerate(people)}
        return changed(pools={"p": {"least": least, "most": most}, "q": {"most": 1}}, people=members)

    for most, people, found in ((2, 2, 2), (1, 2, 1), (3, 2, 2), (9, 0, 9)):
        assert parse_requirements(staffed(most, *[["p"]] * people)).pools["p"].most == found
    with pytest.raises(ConfigError, match="pool 'p' must have at least 3 servers, but has only 2 people"):
        parse_requirements(staffed(3, ["p"], ["p", "q"], least=3))
    with pytest.raises(ConfigError, match="'p0' is in the pool 'r', which is not in pools"):
        parse_requirements(staffed(1, ["r"]))


@pytest.mark.parametrize(("again", "most"), [(0.5, 1), (0.5, 2), (0.25, 4), (0.9, None), (0.5, None)])
def test_a_loop_is_repeated_as_often_as_its_series_says(again: float, most: int | None) -> None:
    (found,) = parse_requirements(loop(again=again, most=most)).loops
    assert found.repetitions == pytest.approx(sum(again**n for n in range(1, (most or 2000) + 1)))


@pytest.mark.parametrize(
    ("stated", "scv"),
    [
        ({"mean": 4}, 1.0),
        ({"kind": "fixed", "mean": 4, "std": 2}, 0.0),
        ({"kind": "gamma", "mean": 4, "std": 2}, 0.25),
        ({"kind": "normal", "mean": 4, "std": 8}, 4.0),
        ({"mean": 0}, 0.0),
    ],
)
def test_how_much_a_duration_varies(stated: dict[str, Any], scv: float) -> None:
    assert parse_requirements(duration(**stated)).activities["a"].duration.scv == scv


def test_a_pool_is_open_as_long_as_its_hours() -> None:
    hours = {"always": [], "day": [[0, 42]], "twice": [[42, 63], [0, 21]], "overlapping": [[0, 42], [21, 30], [30, 84]]}
    found = parse_requirements(changed(pools={name: {"calendar": one} for name, one in hours.items()})).pools
    assert {name: one.open_share for name, one in found.items()} == {
        "always": 1.0,
        "day": 0.25,
        "twice": 0.25,
        "overlapping": 0.5,
    }


def test_the_first_mistake_is_named_and_the_others_are_counted() -> None:
    with pytest.raises(ConfigError) as error:
        parse_requirements({"name": "n", "activities": {"a": {"duration": {"mean": -1}}}, "speed": 3, "pace": 4})
    assert error.value.message.startswith("activities.a.duration.mean: ")
    assert error.value.message.endswith(" (and 2 more)")


def decided(name: str, after: str, **branches: list[str]) -> dict[str, Any]:
    """An outcome with branches of these activities, all equally likely."""
    share = 1 / len(branches)
    return {
        "name": name,
        "after": after,
        "branches": {title: {"probability": share, "activities": some} for title, some in branches.items()},
    }


def three(**parts: Any) -> dict[str, Any]:
    return changed(activities={name: {"duration": {"mean": 1}} for name in "abc"}, **parts)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pool(calendar=[[160, 8]]), ("pools.p: the shift [160, 8] ends before it starts "
         "(hours count from Monday 0:00 to 168, so a night shift is [160, 168] and [0, 8])")),
        (pool(calendar=[[22, 6]]), ("pools.p: the shift [22, 6] ends before it starts "
         "(hours count from Monday 0:00 to 168, so a night shift is [22, 30])")),
        (pool(most=0), "pools.p.most: is 0 but must be at least 1"),
        (pool(calendar=[[8, 12], [160, 0]]), ("pools.p: the shift [160, 0] ends before it starts "
         "(hours count from Monday 0:00 to 168, so a night shift is [160, 168])")),
        (pool(calendar=[[0, 168.5]]), "pools.p: [0, 168.5] must be hours of a week, from 0 to 168"),
        (pool(calendar=[[7, 7]]), "pools.p: nobody works in [7, 7]: a shift must end after it starts"),
        (pool(least=3, most=2), "pools.p: least is 3, which is more than most (2)"),
        (duration(kind="uniform", mean=1, std=1),
         "activities.a.duration: a uniform duration with mean 1.0 and std 1.0 includes negative times"),
        (activity(skills=["law", "tax"]), "activities.a: it needs the skill 'law', but no pool may do it"),
        (three(outcomes=[decided("o", "a", p=["b", "b"], q=[])]), "'b' is twice in branch 'p' of 'o'"),
        (three(outcomes=[decided("o", "a", p=["b"], q=["b"])]), "'b' is in two branches: 'p' of 'o' and 'q' of 'o'"),
        (three(branches=[{"name": "x", "options": {"b": 0.5}}], outcomes=[decided("o", "a", p=["b"], q=[])]),
         "'b' is in two branches: 'x' and 'p' of 'o'"),
        (three(outcomes=[decided("o", "c", p=["b"], q=[]), decided("r", "b", p=["c"], q=[])]),
         "an outcome would have to be decided before itself: 'o' → 'r' → 'o'"),
        (three(pools={"p": {"least": 2, "most": 2}}, people={"Anna": {"pools": ["p"]}}),
         "pool 'p' must have at least 2 servers, but has only 1 person"),
        (three(pools={"desk": {}}, people={"Anna": {"pools": ["dask"]}}),
         "'Anna' is in the pool 'dask', which is not in pools (did you mean 'desk'?)"),
        (changed(activities={"a": {"duration": {"mean": 1}, "pools": ["dask"]}}, pools={"desk": {}}),
         "activity 'a' names the pool 'dask', which is not in pools (did you mean 'desk'?)"),
        (three(branches=[{"name": "x", "options": {"a": 0.75, "b": 0.5}}]),
         "branches.0: the probabilities of 'x' must be above 0 and add up to at most 1, not 1.25"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_is_wrong_and_where(value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_requirements(value)
    assert error.value.message == message


def test_outcomes_may_follow_each_other_in_any_depth() -> None:
    nested = [decided("o", "a", p=["b"], q=[]), decided("r", "b", p=["c"], q=[])]
    for outcomes in (nested, nested[::-1]):
        assert len(parse_requirements(three(outcomes=outcomes)).outcomes) == 2


def test_people_limit_only_their_own_pools_and_skills_need_only_one_pool_with_people() -> None:
    pools = {"p": {"most": 9}, "q": {"most": 9}}
    skilled = {"duration": {"mean": 1}, "pools": ["q", "p"], "skills": ["law"]}
    given = changed(activities={"a": skilled}, pools=pools, people={"Anna": {"pools": ["p"], "skills": ["law"]}})
    found = parse_requirements(given)
    assert {name: one.most for name, one in found.pools.items()} == {"p": 1, "q": 9}
    given["activities"]["a"] = {**skilled, "pools": ["q"]}
    with pytest.raises(ConfigError, match="'a' needs the skill 'law', but its pools have no people"):
        parse_requirements(given)


@pytest.mark.parametrize(
    ("calendar", "merged"),
    [
        ((), ()),
        (((5, 9), (1, 3)), ((1, 3), (5, 9))),
        (((1, 5), (5, 9)), ((1, 9),)),
        (((1, 9), (2, 3), (8, 12)), ((1, 12),)),
        (((1, 9), (2, 3), (9.5, 12)), ((1, 9), (9.5, 12))),
    ],
)
def test_hours_that_overlap_or_touch_are_one_shift(calendar: Any, merged: Any) -> None:
    assert merged_hours(calendar) == merged


def test_what_is_not_stated_is_always_there_free_certain_and_done_by_one() -> None:
    outcomes = [outcome(0.5, 0.5)["outcomes"][0]]
    found = parse_requirements(
        changed(pools={"p": {}}, people={"Anna": {"pools": ["p"]}}, outcomes=outcomes, loops=loop()["loops"])
    ).model_dump()
    nothing: dict[str, Any] = {"pools": (), "reads": (), "writes": (), "skills": (), "documentation": "", "kind": None}
    assert found["activities"]["a"] == {
        **nothing, "duration": {"kind": "exponential", "mean": 1.0, "std": None}, "optional": False,
        **dict.fromkeys(("cost", "cpu", "memory", "failure", "knock_out"), 0.0),
    }  # fmt: skip
    assert found["pools"]["p"] == {
        "least": 1, "most": 1, "kind": "person", "wage": 0.0, "speed": 1.0, "calendar": (),
    }  # fmt: skip
    assert found["people"]["Anna"] == {"pools": ("p",), "skills": (), "calendar": ()}
    assert found["outcomes"][0]["branches"]["x0"] == {"probability": 0.5, "activities": (), "ends": False}
    assert (found["loops"][0]["most"], found["loops"][0]["redo"]) == (None, ())
    assert found["rules"] == {**dict.fromkeys((*PAIR_RULES, "must_include"), ()), "deadline": None}
    assert found["demand"] == {"arrivals_per_second": None, "runs": 1}
    assert found["objective"] == {"performance": 0.40, "structure": 0.25, "maintainability": 0.20, "resources": 0.15}
    assert (found["branches"], found["data"], found["start"], found["documentation"]) == ((), {}, None, "")
