"""The numbers of both tiers for designs of every kind, as recorded: a change of any formula or draw shows here.

That the numbers are right is tested beside this file, against exact results and one tier against the other, within a
few per cent. Here they may not move at all. After a deliberate change, record them again:

    python -m tests.workflows.evaluation.test_recorded
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from itertools import combinations, count
from pathlib import Path
from typing import Any

import pytest

from groupwise.workflows.blocks import Activity, Block, Design, Loop, activities, rewritten, walk
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.simulation import simulate
from groupwise.workflows.feasibility import contradictions
from groupwise.workflows.requirements import Requirements, parse_requirements
from tests.workflows.designs import ALL, FLAT, random_block
from tests.workflows.evaluation.worlds import random_world, taken_by

RECORDED = Path(__file__).with_name("recorded.json")
COUNT, NAMED = 64, 24  # worlds of servers alike, and of people by name
SCHEDULING = ("priority", "priority", "shortest", "shortest", "due")


def world(number: int) -> tuple[Design, Requirements]:
    """A design with every kind of block and handling; loads from hardly any to more than the pools can do."""
    rng = random.Random(f"recorded/{number}")
    block = random_block(rng, 1 + number % 16, ALL if number % 3 == 0 else FLAT)
    design, requirements = random_world(rng, block, (0.05, 0.5, 0.7, 0.85, 1.2)[number % 5], plain=number % 4 == 0)
    if number % 2:
        design = taken_by(rng.choice(SCHEDULING), design, lambda: rng.randrange(3))
    stated = requirements.model_dump(mode="json")
    for one in stated["activities"].values():
        one["memory"] = rng.choice([0.0, 64.0, 100.0])
    if number % 6 == 5:
        for pool in stated["pools"].values():
            pool["calendar"] = rng.choice([[], [[9, 17], [33, 41], [41, 42]], [[0, 100]]])
    if number % 8 == 7:
        stated["demand"] = {"runs": rng.choice([1, 3])}
    root = rewritten(design.root, lambda one: _with_due(rng, one))
    return Design(design.name, root, design.servers), parse_requirements(stated)


def world_of_people(number: int) -> tuple[Design, Requirements]:
    """The first such world of a number in which somebody can be found for everything."""
    worlds = (people_by_name(number, attempt) for attempt in count())
    return next(world for world in worlds if not contradictions(world[1]))


def people_by_name(number: int, attempt: int) -> tuple[Design, Requirements]:
    """The same with people who have skills, hours and pools of their own, duties apart or bound, and a limited loop."""
    rng = random.Random(f"people/{number}/{attempt}")
    block = random_block(rng, 2 + number % 9, (*FLAT, "loop"))
    design, requirements = random_world(rng, block, rng.choice([0.3, 0.6]), plain=number % 2 == 0)
    stated = requirements.model_dump(mode="json")
    pools = list(stated["pools"])
    # The first of every pool has every skill and works all week, so that everything is done some day.
    people: dict[str, Any] = {}
    for pool, servers in design.servers:
        stated["pools"][pool]["most"] = servers
        for place in range(servers):
            more = [other for other in pools if other != pool and place and rng.random() < 0.3]
            skills = ["law", "tax"] if not place else rng.choice([[], ["law"], ["tax"]])
            hours = [[8, 120]] if place and rng.random() < 0.3 else []
            people[f"{pool} {place}"] = {"pools": [pool, *more[:1]], "skills": skills, "calendar": hours}
    for one in stated["activities"].values():
        one["skills"] = rng.choice([[], [], ["law"], ["tax"]]) if one["pools"] and number % 3 else []
    names = [name for name, one in stated["activities"].items() if one["pools"]]
    pools_of = {name: stated["activities"][name]["pools"] for name in names}
    pairs = [pair for pair in combinations(names, 2) if pools_of[pair[0]] == pools_of[pair[1]]]
    loops = [inner for inner in walk(design.root) if isinstance(inner, Loop)][:1]
    stated["loops"] = [_limited(loop, 1 + number % 3) for loop in loops]
    stated["rules"] = {("different_people", "same_person")[number % 2]: pairs[:1]}
    # People of one pool come first in the file: a pool with few servers is staffed in that order.
    in_order = dict(sorted(people.items(), key=lambda one: len(one[1]["pools"])))
    return design, parse_requirements({**stated, "people": in_order})


def _limited(loop: Loop, most: int) -> dict[str, Any]:
    body, redo = ([one.name for one in activities(part)] for part in (loop.body, loop.redo))
    return {"name": "again", "activities": body, "after": body[-1], "again": loop.again, "most": most, "redo": redo}


def _with_due(rng: random.Random, block: Block) -> Block:
    if not isinstance(block, Activity) or rng.random() < 0.6:
        return block
    retry = replace(block.handling.retry, growth=rng.choice([1.0, 2.0, 3.0]))
    return Activity(block.name, replace(block.handling, retry=retry, due=rng.choice([None, 300.0, 900.0])))


def measured(number: int) -> dict[str, Any]:
    """What both tiers say, as JSON has it; and the first tries of the simulation."""
    design, requirements = world(number) if number < COUNT else world_of_people(number - COUNT)
    found: dict[str, Any] = {
        tier: asdict(evaluate(design, requirements, tier, seed=number, cases=60)) for tier in ("analytic", "simulation")
    }
    trace = simulate(encode(design, requirements), 20, number, trace=8).trace
    found["trace"] = [[one.case, one.activity, one.ready, one.start, one.end, one.server, one.outcome] for one in trace]
    return json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.10g}"))


def close(wanted: Any) -> Any:
    """The recorded value with room for rounding in its numbers."""
    if isinstance(wanted, dict):
        return {name: close(value) for name, value in wanted.items()}
    if isinstance(wanted, list):
        return [close(value) for value in wanted]
    return pytest.approx(wanted, rel=1e-7, abs=1e-9, nan_ok=True) if isinstance(wanted, float) else wanted


@pytest.mark.parametrize("number", range(COUNT + NAMED))
def test_no_number_of_either_tier_moves(number: int) -> None:
    found, wanted = measured(number), json.loads(RECORDED.read_text())[number]
    assert found.keys() == wanted.keys()
    for part in wanted:
        assert found[part] == close(wanted[part]), part


if __name__ == "__main__":
    RECORDED.write_text(json.dumps([measured(number) for number in range(COUNT + NAMED)], separators=(",", ":")) + "\n")
