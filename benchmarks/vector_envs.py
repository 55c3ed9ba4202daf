"""How fast the own vector environments step, beside Gymnasium's SyncVectorEnv with as many copies.

    python benchmarks/vector_envs.py --json

Random actions, one thread, both sides in turn: each pass steps either side for a while, and the claim is the median
over the passes of the ratio of their environment steps per second. Only copies that still run are counted: Gymnasium
starts ended ones anew by itself, ours are all put back to their starts as soon as one of them has ended.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
import numpy as np
from record import print_result

from groupwise.control.environments import OWN
from groupwise.rollout.contract import random_actions


def ours(name: str, copies: int, seconds: float) -> float:
    env: Any = OWN[name]()
    rng = np.random.default_rng(0)
    env.reset(range(copies))
    starts = env.states
    # Drawing actions is no part of the environment: a few draws, used in turn.
    choices = [random_actions(env, rng, copies) for _ in range(8)]
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        _, _, terminated, truncated = env.step(choices[steps % 8])
        steps += 1
        if terminated.any() or truncated.any():
            env.set_state(starts)
    return steps * copies / (time.perf_counter() - start)


def theirs(name: str, copies: int, seconds: float) -> float:
    env = gymnasium.make_vec(name, copies, vectorization_mode="sync")
    env.reset(seed=0)
    choices = [env.action_space.sample() for _ in range(8)]
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        env.step(choices[steps % 8])
        steps += 1
    rate = steps * copies / (time.perf_counter() - start)
    env.close()
    return rate


def compare(name: str, copies: int, passes: int, seconds: float) -> dict[str, Any]:
    pairs = [(ours(name, copies, seconds), theirs(name, copies, seconds)) for _ in range(passes)]
    ratios = [one / other for one, other in pairs]
    return {"environment": name, "copies": copies, "pairs": pairs, "ratio": float(np.median(ratios))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=1024)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per side and pass")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    found = [compare(name, options.copies, options.passes, options.seconds) for name in OWN]
    print_result(
        "vector_envs",
        {
            "worst_ratio": min(f["ratio"] for f in found),
            **{f"ratio_{f['environment']}": f["ratio"] for f in found},
            **{f"steps_per_second_{f['environment']}": float(np.median([p[0] for p in f["pairs"]])) for f in found},
        },
        peers={"gymnasium": gymnasium.__version__},
        seeds=[0],
        raw=found,
    )


if __name__ == "__main__":
    main()
