"""How near the formulas come to a long simulation, over random designs of the class they are made for.

    python benchmarks/workflow_accuracy.py --json

Random designs of 4 to 30 activities (every block but instances that are broken off) for random requirements: durations
of six kinds, two to five pools of one to four servers, failures, knock-outs, retries, delays and timeouts; the busiest
pool has a load of 0.3 to 0.8. Claims: the median and the 95th percentile of the relative error of the mean cycle time,
the same of these designs with pools that take the shortest first or go by (random) priorities, and inside groups (edits
of one design for one requirement: parts swapped, made parallel, made sequential, other staff; the simulation with
common random numbers) the rank correlation, median over groups.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.workflows.blocks import Block, Design, Parallel, Sequence, rewritten, walk
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.requirements import Requirements

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.workflows.designs import random_block
from tests.workflows.evaluation.worlds import random_world, taken_by

INSIDE = ("sequence", "parallel", "choice", "order", "loop", "cancellable")


def world(seed: str) -> tuple[random.Random, Design, Requirements]:
    rng = random.Random(seed)
    block = random_block(rng, rng.randint(4, 30), INSIDE)
    design, requirements = random_world(rng, block, rng.uniform(0.3, 0.8))
    return rng, design, requirements


def error_of(number: int, cases: int, scheduling: str = "fifo") -> dict[str, Any]:
    rng, design, requirements = world(f"accuracy/{number}")
    if scheduling != "fifo":
        design = taken_by(scheduling, design, lambda: rng.randrange(4))
    formula = evaluate(design, requirements, "analytic")
    long = evaluate(design, requirements, "simulation", seed=number, cases=cases)
    return {
        "error": formula.cycle_time / long.cycle_time - 1,
        "noise": (long.interval[1] - long.interval[0]) / 2 / long.cycle_time,
        "load": max(formula.utilisation.values()),
    }


def summary(name: str, found: list[dict[str, Any]]) -> dict[str, float]:
    sizes = np.abs([one["error"] for one in found])
    if not len(sizes):
        return {}
    return {
        f"{name}_median_error": float(np.median(sizes)),
        f"{name}_95th_percentile_error": float(np.percentile(sizes, 95)),
    }


def edited(rng: random.Random, design: Design) -> Design:
    """One block changed: its parts in another order, sequential for parallel or the other way; or other staff."""
    blocks = [block for block in walk(design.root) if isinstance(block, Sequence | Parallel)]
    staff = design.servers
    if not blocks or rng.random() < 0.3:
        pool = rng.randrange(len(staff))
        changed = tuple((n, max(1, c + rng.choice((0, 1))) if i == pool else c) for i, (n, c) in enumerate(staff))
        return Design(design.name, design.root, changed)
    chosen = rng.choice(blocks)

    def change(block: Block) -> Block:
        if block != chosen or not isinstance(block, Sequence | Parallel):
            return block
        if rng.random() < 0.5:
            return type(block)(tuple(rng.sample(block.parts, len(block.parts))))
        return Parallel(block.parts) if isinstance(block, Sequence) else Sequence(block.parts)

    return Design(design.name, rewritten(design.root, change), staff)


def rank_correlation(group: int, members: int, cases: int) -> float | None:
    rng, design, requirements = world(f"groups/{group}")
    designs = [design]
    for _ in range(50 * members):
        other = edited(rng, rng.choice(designs))
        if other not in designs and len(designs) < members:
            designs.append(other)
    pairs = []
    for member in designs:
        formula = evaluate(member, requirements, "analytic")
        if formula.valid:
            simulated = evaluate(member, requirements, "simulation", seed=group, cases=cases)
            pairs.append((formula.cycle_time, simulated.cycle_time))
    if len(pairs) < members // 2:
        return None
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0, kind="stable"), axis=0)
    spread = np.ptp([simulated for _, simulated in pairs]) / pairs[0][1]
    if spread < 0.02:  # all as good as equal: there is nothing to rank
        return None
    return float(np.corrcoef(ranks.T)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--designs", type=int, default=200)
    parser.add_argument("--by-turns", type=int, default=200, help="designs with other pools than fifo")
    parser.add_argument("--groups", type=int, default=30)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--cases", type=int, default=40_000)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    started = time.process_time()
    found = [error_of(number, options.cases) for number in range(options.designs)]
    turns = {
        scheduling: [error_of(number, options.cases, scheduling) for number in range(options.by_turns)]
        for scheduling in ("shortest", "priority")
    }
    ranks = [rank_correlation(group, options.members, options.cases // 2) for group in range(options.groups)]
    ranked = [rank for rank in ranks if rank is not None]
    claims = {
        **summary("analytic", found),
        **{name: value for scheduling in turns for name, value in summary(scheduling, turns[scheduling]).items()},
        "rank_correlation_in_groups": float(np.median(ranked)) if ranked else None,
        "rank_correlation_lowest_decile": float(np.percentile(ranked, 10)) if ranked else None,
    }
    if not options.json:
        for name, value in claims.items():
            print(f"{name}: {value}")
    raw = {"designs": found, **turns, "ranks": ranks, "cpu_seconds": time.process_time() - started}
    print_result("workflow_accuracy", claims, raw=raw, seeds=[0])


if __name__ == "__main__":
    main()
