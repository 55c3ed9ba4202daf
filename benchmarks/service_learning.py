"""The migration guide's train request, as the service runs it: does the reward rise on prompts it never trained on?

    python benchmarks/service_learning.py

The tiny model, ten iterations, two prompts; the reward is judge, learned and customer-service preset. No judge is
configured, so that its heuristic stands in, flagged. Eight held-out prompts are answered 16 times each, before and
after. Three seeds; about a minute and a half of one core.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import load_config
from groupwise.service.job_settings import write_settings
from groupwise.service.schemas import TrainRequest
from groupwise.training.folder import create_run
from groupwise.training.group_files import read_groups
from groupwise.training.session import execute

REQUEST = {
    "prompts": ["Hello", "How are you?"],
    "strategy": "computational",
    "num_iterations": 10,
    "use_neural_rewards": True,
    "use_ruler_rewards": True,
}


def one(folder: Path, seed: int) -> dict[str, Any]:
    config = folder / f"{seed}.json"
    request = TrainRequest.model_validate({**REQUEST, "seed": seed})
    write_settings(request, None, f"seed-{seed}", folder, config, folder / f"{seed}.prompts.jsonl")
    path = create_run(load_config(config))
    tests = [e.data["metrics"]["eval/reward_mean"] for e in execute(path, product.build) if e.type == "eval"]
    rows = read_groups(max((path / "groups").glob("*.parquet")))
    flagged = all(any(flag.endswith("judge_fallback") for flag in row["flags"]) for row in rows)
    return {"seed": seed, "before": tests[0], "after": tests[-1], "fallback_flagged": flagged}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = parser.parse_args()
    os.environ.pop("OPENAI_API_KEY", None)
    with tempfile.TemporaryDirectory() as folder:
        found = [one(Path(folder), seed) for seed in asked.seeds]
    claims = {
        "rose": f"{sum(one['after'] > one['before'] for one in found)} of {len(found)}",
        "mean_gain": sum(one["after"] - one["before"] for one in found) / len(found),
        "fallback_flagged": all(one["fallback_flagged"] for one in found),
    }
    print_result("service_learning", claims, seeds=asked.seeds, raw=found)


if __name__ == "__main__":
    main()
