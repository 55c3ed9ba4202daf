"""How often the 95% interval of a simulated mean cycle time covers the exact one, at default settings.

    python benchmarks/interval_coverage.py --json

Queues whose mean is known: M/M/1 and M/M/3 at a load of 0.9 (Erlang C), and M/G/1 at 0.7 with lognormal service whose
squared coefficient of variation is 10 (Pollaczek and Khinchine). Claims: the share of seeds whose interval covers it.
"""

from __future__ import annotations

import argparse
import math

from record import print_result

from groupwise.workflows.blocks import Activity, Design
from groupwise.workflows.evaluation import evaluate
from groupwise.workflows.requirements import parse_requirements


def erlang_c(servers: int, load: float) -> float:
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    return last / (sum(terms) + last)


# Per queue: the duration (mean 1 s), servers, arrivals per second, and the exact mean cycle time.
QUEUES = {
    "mm1_load_0.9": ({"mean": 1.0}, 1, 0.9, 10.0),
    "mm3_load_0.9": ({"mean": 1.0}, 3, 2.7, 1 + erlang_c(3, 2.7) / 0.3),
    "mg1_scv_10_load_0.7": ({"kind": "lognormal", "mean": 1.0, "std": math.sqrt(10)}, 1, 0.7, 1 + 0.7 * 11 / 2 / 0.3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    claims: dict[str, float] = {}
    for name, (duration, servers, rate, exact) in QUEUES.items():
        requirements = parse_requirements(
            {
                "name": name,
                "activities": {"serve": {"duration": duration, "pools": ["desk"]}},
                "pools": {"desk": {"least": servers, "most": servers}},
                "demand": {"arrivals_per_second": rate},
            }
        )
        design = Design(name, Activity("serve"), (("desk", servers),))
        found = [evaluate(design, requirements, "simulation", seed=seed).interval for seed in range(given.seeds)]
        claims[f"coverage_{name}"] = sum(low <= exact <= high for low, high in found) / given.seeds
        claims[f"half_width_{name}"] = sum(high - low for low, high in found) / 2 / given.seeds / exact
        print(f"{name}: covered {claims[f'coverage_{name}']:.1%}, half width {claims[f'half_width_{name}']:.1%}")
    if given.json:
        print_result("interval_coverage", claims, seeds=list(range(given.seeds)))


if __name__ == "__main__":
    main()
