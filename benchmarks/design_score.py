"""Does the score prefer the better design, and can it be fooled?

    python benchmarks/design_score.py --json

Claims:

- pairs_agree: the share of the 40 pairs of `design_pairs` kept for reporting whose better design scores higher
- pairs_agree_tuned: the same for the 40 pairs that the weights were chosen on
- gaming_gain: the most that any trick gains on any design. The tricks: descriptions that say nothing, limits without
  meaning (`most: 1000`), a timeout of four hours for every task of people, and one server less than the cases need

Tricks are tried on the designs made by hand in `design_truth` and on the starting designs of the examples. Every score
is that of `groupwise score`: simulated, or scheduled where there is one run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import design_pairs
import design_truth_cases
from record import print_result

from groupwise.workflows import Design, Requirements, evaluate, lift, parse_requirements, read_workflow, score
from groupwise.workflows.blocks import Activity, Block, rewritten
from groupwise.workflows.requirements import read_requirements

EXAMPLES = Path(__file__).parents[1] / "examples" / "workflows"
HALVES: tuple[design_pairs.Half, ...] = ("tune", "report")
WAITED = 4 * 3600.0
Trick = Callable[[Design, Requirements], tuple[Design, Requirements]]


def total(design: Design, requirements: Requirements) -> float:
    """The score as people are shown it, with the same random numbers for every design."""
    return score(design, requirements, evaluate(design, requirements, "measured")).total


def empty_words(design: Design, requirements: Requirements) -> tuple[Design, Requirements]:
    told = {name: one.model_copy(update={"documentation": "x y z"}) for name, one in requirements.activities.items()}
    return replace(design, documentation="x y z"), requirements.model_copy(update={"activities": told})


def huge_limits(design: Design, requirements: Requirements) -> tuple[Design, Requirements]:
    pools = {name: one.model_copy(update={"most": 1000}) for name, one in requirements.pools.items()}
    return design, requirements.model_copy(update={"pools": pools})


def hurried_people(design: Design, requirements: Requirements) -> tuple[Design, Requirements]:
    def hurried(block: Block) -> Block:
        if not isinstance(block, Activity):
            return block
        pool = block.handling.pool or next(iter(requirements.activities[block.name].pools), None)
        if pool is None or requirements.pools[pool].kind != "person":
            return block
        return Activity(block.name, replace(block.handling, timeout=WAITED))

    return replace(design, root=rewritten(design.root, hurried)), requirements


def too_few(design: Design, requirements: Requirements) -> tuple[Design, Requirements]:
    """The busiest pool gets fewer servers than its work needs."""
    loads = evaluate(design, requirements, "measured").utilisation
    if requirements.demand.arrivals_per_second is None or not loads:
        return design, requirements
    busiest = max(loads, key=lambda pool: loads[pool])
    servers = dict(design.servers)
    work = loads[busiest] * servers.get(busiest, 1)
    fewer = math.ceil(work) - 1
    if fewer < max(1, requirements.pools[busiest].least):
        return design, requirements
    return replace(design, servers=tuple({**servers, busiest: fewer}.items())), requirements


TRICKS: dict[str, Trick] = {
    "descriptions that say nothing": empty_words,
    "limits without meaning": huge_limits,
    "timeouts for people": hurried_people,
    "overload": too_few,
}


def honest_designs() -> Iterator[tuple[str, Design, Requirements]]:
    for case in design_truth_cases.read_cases():
        yield case.name, case.design, parse_requirements(dict(case.requirements))
    for path in sorted(EXAMPLES.glob("*.yaml")):
        stated = read_requirements(path)
        if stated.start is not None:
            yield path.stem, lift(read_workflow(path.parent / stated.start)), stated


def gains(found: Iterator[tuple[str, Design, Requirements]]) -> dict[str, dict[str, float]]:
    """What each trick gains on each design; designs that it does not change are left out."""
    result: dict[str, dict[str, float]] = {name: {} for name in TRICKS}
    for name, design, requirements in found:
        honest = total(design, requirements)
        for trick, play in TRICKS.items():
            tricked = play(design, requirements)
            if tricked != (design, requirements):
                result[trick][name] = total(*tricked) - honest
    return result


def agreement(half: design_pairs.Half) -> dict[str, Any]:
    agreed, differ = [], {}
    for pair in design_pairs.read_pairs(half):
        scores = {"a": total(pair.a, pair.requirements), "b": total(pair.b, pair.requirements)}
        other = "b" if pair.better == "a" else "a"
        agreed.append(scores[pair.better] > scores[other])
        if not agreed[-1]:
            differ[pair.name] = {"better": scores[pair.better], "other": scores[other], "reason": pair.reason}
    return {"share": sum(agreed) / len(agreed), "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = {half: agreement(half) for half in HALVES}
    tricks = gains(honest_designs())
    if not args.json:
        print(json.dumps({"pairs": pairs, "tricks": tricks}, indent=1))
    claims = {
        "pairs_agree": pairs["report"]["share"],
        "pairs_agree_tuned": pairs["tune"]["share"],
        "gaming_gain": max(gain for gained in tricks.values() for gain in gained.values()),
    }
    print_result("design_score", claims, seeds=[0], raw={"pairs": pairs, "tricks": tricks})


if __name__ == "__main__":
    main()
