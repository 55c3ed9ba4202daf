"""Trains the policy that corrects HEFT's order and ships, on the one loop, and writes its weights.

    python benchmarks/train_scheduler.py -o src/groupwise/workflows/scheduling/pretrained.safetensors --json

The settings are `scheduling.toml` beside the weights: made-up graphs only, one seed, less than a minute of one core.
`--set task.environment=FOLDER` learns from a folder of WfCommons instances too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from record import print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.training.session import Parts, execute
from groupwise.types import Reward
from groupwise.workflows.evaluation.schedule import TaskGraph
from groupwise.workflows.scheduling.policy import RankPolicy
from groupwise.workflows.scheduling.product import build
from groupwise.workflows.scheduling.shipped import save_policy

Curve = list[tuple[int, float, float]]


def settings(changes: Sequence[str] = ()) -> TrainingConfig:
    """`scheduling.toml`, with changes."""
    return load_config(Path(str(resources.files("groupwise.workflows.scheduling") / "scheduling.toml")), list(changes))


def train(
    cfg: TrainingConfig, works: Sequence[TaskGraph] | None = None, reward: Reward | None = None
) -> tuple[RankPolicy, Curve]:
    """The trained policy, and by steps what its mean and its best of 16 were worth on held-out work."""
    made: list[Parts] = []

    def built(cfg: TrainingConfig) -> Parts:
        made.append(build(cfg, works, reward))
        return made[-1]

    curve: Curve = []
    with tempfile.TemporaryDirectory() as folder:
        for event in execute(Path(folder), built, cfg):
            if event.type == "eval":
                found = event.data["metrics"]
                curve.append((event.step, found["eval/reward_mean"], found["eval/best_of_16"]))
    policy = made[-1].policy
    assert isinstance(policy, RankPolicy)
    return policy, curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, help="the safetensors file to write")
    parser.add_argument("--set", nargs="*", default=[], help="settings of scheduling.toml to change")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    cfg = settings(options.set)
    started = time.process_time()
    policy, curve = train(cfg)
    seconds = time.process_time() - started
    save_policy(policy, options.output, {"steps": str(cfg.training.num_episodes), "seed": str(cfg.run.seed)})
    claims = {"best_of_16_before": curve[0][2], "best_of_16_after": curve[-1][2], "cpu_seconds": seconds}
    print_result("train_scheduler", claims, seeds=[cfg.run.seed], raw={"curve": curve})


if __name__ == "__main__":
    main()
