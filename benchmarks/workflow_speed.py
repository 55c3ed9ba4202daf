"""How fast designs are judged: on one core, 30 activities each.

    python benchmarks/workflow_speed.py --json

designs: soundness, structural metrics, analytic performance and score of random designs, per second of processor time.
simulation: ours and the same process in SimPy (three stages, two of them in parallel, pools of servers, a loop), in
turns in one process; their mean cycle times must agree. scaling: the time of judging one design against its number of
activities, 5 to 200, fitted as a power. A part is a function from options to claims and raw numbers: PARTS names them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.workflows.blocks import Activity, Design, Loop, Parallel, Sequence
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.evaluation.encoding import encode
from groupwise.workflows.evaluation.simulation import simulate
from groupwise.workflows.requirements import Requirements, parse_requirements
from groupwise.workflows.scoring import DesignScorer
from groupwise.workflows.soundness.check import check_design

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.workflows.designs import random_block

KINDS = ("sequence", "parallel", "choice", "order", "loop", "cancellable")
Found = tuple[dict[str, Any], dict[str, Any]]


def world(size: int, pools: int = 4) -> Requirements:
    """Requirements for designs of so many activities, far from overload."""
    return parse_requirements(
        {
            "name": "speed",
            "activities": {
                f"a{n}": {
                    "duration": {"mean": 1 + n % 7},
                    "pools": [f"p{n % pools}"],
                    "cost": 1.0,
                    "cpu": 1.0,
                    "optional": True,  # so that designs with choices keep the rules, and are scored
                }
                for n in range(size)
            },
            "pools": {f"p{n}": {"most": 9, "wage": 0.01} for n in range(pools)},
            "demand": {"arrivals_per_second": 1e-5},
        }
    )


def judge(designs: list[Design], requirements: Requirements) -> float:
    """Processor seconds for judging all, one by one."""
    scorer = DesignScorer(requirements)
    started = time.process_time()
    for design in designs:
        if not check_design(design).sound:
            raise AssertionError(design)
        scorer(design, evaluate(design, requirements, "analytic"))
    return time.process_time() - started


def random_designs(count: int, size: int) -> list[Design]:
    return [Design(f"d{n}", random_block(random.Random(f"{size}/{n}"), size, KINDS)) for n in range(count)]


def designs_part(options: argparse.Namespace) -> Found:
    requirements, designs = world(30), random_designs(options.designs, 30)
    judge(designs[:20], requirements)
    seconds = [judge(designs, requirements) for _ in range(options.repeats)]
    rates = [len(designs) / one for one in seconds]
    parts = {}
    for name, work in {
        "encode": lambda d: encode(d, requirements),
        "analytic": lambda d: evaluate(d, requirements, "analytic"),
    }.items():
        started = time.process_time()
        for design in designs:
            work(design)
        parts[f"{name}_us"] = (time.process_time() - started) / len(designs) * 1e6
    return {"designs_per_second": statistics.median(rates)}, {"rates": rates, **parts}


STAGES = {"check": 4.0, "price": 6.0, "stock": 5.0, "ship": 3.0}
RATE, AGAIN, SERVERS = 0.2, 0.2, 2


def simulation_part(options: argparse.Namespace) -> Found:
    requirements = parse_requirements(
        {
            "name": "shop",
            "activities": {n: {"duration": {"mean": m}, "pools": [f"p_{n}"]} for n, m in STAGES.items()},
            "pools": {f"p_{n}": {"most": SERVERS} for n in STAGES},
            "demand": {"arrivals_per_second": RATE},
        }
    )
    check, price, stock, ship = map(Activity, STAGES)
    root = Sequence((Loop(check, AGAIN), Parallel((price, stock)), ship))
    encoded = encode(Design("shop", root, tuple((f"p_{n}", SERVERS) for n in STAGES)), requirements)
    simulate(encoded, 100)
    ours, theirs, means = [], [], []
    for turn in range(options.repeats):
        started = time.process_time()
        found = simulate(encoded, options.cases, seed=turn)
        ours.append(time.process_time() - started)
        started = time.process_time()
        mean = simpy_mean(options.cases, turn)
        theirs.append(time.process_time() - started)
        means.append((float(found.cycle.mean()), mean))
    mine, other = (statistics.fmean(pair) for pair in zip(*means, strict=True))
    if abs(mine / other - 1) > 0.05:
        raise AssertionError(f"the simulations disagree: {mine} and {other}")
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    return {"simulation_vs_simpy": ratio}, {"seconds": ours, "simpy_seconds": theirs, "means": means}


def simpy_mean(cases: int, seed: int) -> float:
    """The same process, written for SimPy as its manual does; as many cases, the same part of them warming up."""
    import simpy

    rng, env = random.Random(seed), simpy.Environment()
    pools = {name: simpy.Resource(env, SERVERS) for name in STAGES}
    warm, times = int(cases * 0.2), []

    def task(name: str) -> Any:
        with pools[name].request() as request:
            yield request
            yield env.timeout(rng.expovariate(1 / STAGES[name]))

    def case(number: int) -> Any:
        began = env.now
        yield from task("check")
        while rng.random() < AGAIN:
            yield from task("check")
        yield env.process(task("price")) & env.process(task("stock"))
        yield from task("ship")
        if number >= warm:
            times.append(env.now - began)

    def arrivals() -> Any:
        for number in range(warm + cases):
            yield env.timeout(rng.expovariate(RATE))
            env.process(case(number))

    env.process(arrivals())
    env.run()
    return statistics.fmean(times)


def scaling_part(options: argparse.Namespace) -> Found:
    sizes, seconds = (5, 10, 20, 30, 50, 100, 200), []
    for size in sizes:
        requirements, designs = world(size), random_designs(max(2000 // size, 20), size)
        judge(designs, requirements)
        seconds.append(min(judge(designs, requirements) for _ in range(options.repeats)) / len(designs))
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return {"scaling_exponent": slope}, {"sizes": sizes, "seconds_per_design": seconds}


PARTS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "designs": designs_part,
    "simulation": simulation_part,
    "scaling": scaling_part,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--designs", type=int, default=500)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    for name in options.parts:
        found, raw[name] = PARTS[name](options)
        claims |= found
        if not options.json:
            print(found)
    peers = {"simpy": importlib.metadata.version("simpy")} if "simulation" in options.parts else {}
    others = {name: "not among --parts" for name in PARTS if name not in options.parts}
    print_result("workflow_speed", claims, raw=raw, peers=peers, not_run=others)


if __name__ == "__main__":
    main()
