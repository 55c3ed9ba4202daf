"""Trains the workflow designer that ships, on the one loop, and writes its weights with what is to be known of them.

    python benchmarks/train_designer.py -o src/groupwise/designer/pretrained.safetensors --json

The settings are `designer.toml` beside the weights; at most 30 minutes on two cores. `--placebo` hands the scores of
every group to its members at random, so that nothing can be learned from them. What was interrupted goes on if the same
`--folder` is given again. `--range` only writes down what the requirements of training look like (ten seconds).
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

from placebo import Shuffled
from record import print_result

from groupwise.config import TrainingConfig, load_config
from groupwise.designer.familiarity import RequirementStatistics
from groupwise.designer.policy import GraphPolicy, save_policy
from groupwise.designer.problem import DesignProblem
from groupwise.designer.product import build
from groupwise.designer.tasks import training_requirements
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, help="the safetensors file to write")
    parser.add_argument("--range", action="store_true", help="of what was trained on, instead of a policy")
    parser.add_argument("--folder", default="runs", help="where the run is kept")
    parser.add_argument("--placebo", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], help="settings of designer.toml to change")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    if options.range:
        problems = [DesignProblem(training_requirements(number)) for number in range(4000)]
        RequirementStatistics.of(problems[:3000], problems[3000:]).save(Path(options.output))
        return
    settings = Path(str(resources.files("groupwise.designer") / "designer.toml"))
    name = "designer-placebo" if options.placebo else "designer"
    cfg = load_config(settings, [f"run.output_dir={options.folder}", f"run.run_name={name}", *options.set])
    made, curve, attempts, seconds = train(cfg, options.placebo)
    policy: Any = made.policy
    assert isinstance(policy, GraphPolicy)
    facts = {
        "steps": cfg.training.num_episodes,
        "evaluations": attempts,
        "seed": cfg.run.seed,
        "arm": name,
    }
    save_policy(policy, options.output, {key: str(value) for key, value in facts.items()})
    claims = {"before": curve[0][1], "after": curve[-1][1], "training_evaluations": attempts, "minutes": seconds / 60}
    print_result("train_designer", claims, seeds=[cfg.run.seed], raw={"curve": curve})


def train(cfg: TrainingConfig, placebo: bool) -> tuple[Parts, list[tuple[int, float]], int, float]:
    """The parts as they are in the end, the greedy scores on the way, how many designs were judged, and the seconds."""
    kept: list[Parts] = []

    def made(cfg: TrainingConfig) -> Parts:
        kept.append(build(cfg))
        if placebo:
            source: Any = kept[-1].source
            source.reward = Shuffled(source.reward, cfg.run.seed)
        return kept[-1]

    path = Path(cfg.run.output_dir) / cfg.run.run_name
    path = path if path.is_dir() else create_run(cfg)
    curve: list[tuple[int, float]] = []
    attempts, started = 0, time.monotonic()
    for event in execute(path, made, cfg):
        if event.type == "step":
            attempts = int(event.data["totals"]["attempts"])
        if event.type == "eval":
            curve.append((event.step, event.data["metrics"]["eval/reward_mean"]))
            minutes = (time.monotonic() - started) / 60
            print(
                f"step {event.step}: {curve[-1][1]:.4f} greedy on held-out requirements, {minutes:.1f} min",
                file=sys.stderr,
            )
    return kept[-1], curve, attempts, time.monotonic() - started


if __name__ == "__main__":
    main()
