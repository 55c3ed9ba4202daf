"""Where outcomes and loops are placed, and what no tree of blocks can express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import load_policy
from groupwise.designer.problem import DesignProblem
from groupwise.errors import ConfigError
from groupwise.workflows.blocks import Choice, activities, walk
from groupwise.workflows.requirements import Requirements, parse_requirements


def asked(outcomes: list[dict[str, Any]], **rest: Any) -> Requirements:
    one = {"duration": {"mean": 60}, "pools": ["desk"]}
    known = {name: one for name in ("ask", "judge", "treat", "review", "ward", "intensive", "repeat", "discharge")}
    return parse_requirements(
        {
            "name": "clinic",
            "activities": known,
            "pools": {"desk": {"most": 9, "wage": 0.01}},
            "demand": {"arrivals_per_second": 0.003},
            "outcomes": outcomes,
            **rest,
        }
    )


ADMITTED = {
    "name": "diagnosis",
    "after": "judge",
    "branches": {
        "acute": {"probability": 0.2, "activities": ["treat", "review"]},
        "unclear": {"probability": 0.3, "activities": ["repeat"]},
        "harmless": {"probability": 0.5},
    },
}


def result(good_ends: bool) -> dict[str, Any]:
    good = {"probability": 0.9, "activities": ["ward"], "ends": good_ends}
    bad = {"probability": 0.1, "activities": ["intensive"], "ends": True}
    return {"name": "result", "after": "review", "branches": {"good": good, "bad": bad}}


def test_a_branch_whose_outcomes_all_end_the_case_is_kept_apart_from_those_who_go_on() -> None:
    rules = {"precedes": [["ask", "judge"], ["treat", "review"], ["judge", "discharge"], ["repeat", "discharge"]]}
    required = asked([ADMITTED, result(good_ends=True)], rules=rules)
    outcome = Designer(load_policy()).design(required, evaluations=8)
    assert outcome.best.score is not None
    assert outcome.best.score.broken == ()
    ways = {
        frozenset(one.name for one in activities(part))
        for block in walk(outcome.best.design.root)
        if isinstance(block, Choice)
        for part in block.parts
    }
    assert any("discharge" in way for way in ways)
    assert not any({"treat", "discharge"} <= way for way in ways)


@pytest.mark.parametrize(
    ("outcomes", "rest", "said"),
    [
        (
            [ADMITTED, result(good_ends=False)],
            {"rules": {"precedes": [["treat", "review"], ["ward", "discharge"], ["repeat", "discharge"]]}},
            "some cases end after 'review', inside a branch of the outcome after 'judge'",
        ),
        (
            [ADMITTED],
            {"rules": {"precedes": [["repeat", "discharge"], ["treat", "discharge"], ["discharge", "review"]]}},
            "'discharge' must come after 'treat' and before 'review'",
        ),
        (
            [ADMITTED],
            {"loops": [{"name": "again", "activities": ["ask", "treat"], "after": "treat", "again": 0.2}]},
            "the loop 'again' is partly in branch 'acute' of 'diagnosis' and partly outside",
        ),
    ],
)
def test_what_no_tree_of_blocks_can_express_is_said_before_the_search(
    outcomes: list[dict[str, Any]], rest: dict[str, Any], said: str
) -> None:
    required = asked(outcomes, **rest)
    assert said in DesignProblem(required).limits[0]
    with pytest.raises(ConfigError, match="cannot be designed"):
        Designer(load_policy()).begin(required)


def test_the_examples_have_no_such_limits() -> None:
    from groupwise.workflows.requirements import read_requirements

    for path in sorted((Path(__file__).parents[2] / "examples" / "workflows").glob("*.yaml")):
        assert DesignProblem(read_requirements(path)).limits == ()
