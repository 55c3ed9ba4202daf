"""Does the tiny model learn a task that needs all of its turns? Judged on held-out conversations.

    python benchmarks/multi_turn.py --json                      # three seeds, about 14 minutes on one core

The task is `intake_desk.py`: three digits, each told only in reply to the question that is due, then all three in the
answer; a conversation that gets there has four turns or more. Per seed, from one supervised warm start on conversations
that are right in form and seldom in substance (the clerk has a favourite question and stops too early):

    grpo       the settings of `orders.toml`, with six turns of up to 8 tokens, eight tasks a step
    rejection  the same run, but it imitates its own correct conversations and ignores all others (rejection sampling)
    placebo    the same run, with the scores shuffled inside every group, so that they carry no information
    sft        more of the warm start, for as much processor time as GRPO took

Every arm is judged on the same scenarios, whose answers are never right in training: greedily, and drawn as in
training. `multi_turn_gain` is GRPO's greedy success minus that of the warm start, with Student's 95% interval over the
seeds; `turns_mean` is the mean number of the model's turns in the conversations that GRPO was trained on.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from agent_learning import placebo, rejection
from lm_learning import replace_target
from placebo import imitation_of_correct
from record import kept, print_result

from groupwise.agents import agent_product, warm_start
from groupwise.agents.agent_product import ConversationEvaluation
from groupwise.agents.commands import SETTINGS
from groupwise.agents.language_product import sampling
from groupwise.config import TrainingConfig, load_config
from groupwise.reporting.statistics import paired_difference
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.training.stop_conditions import StopFlag
from groupwise.types import Policy

ARMS = ("grpo", "rejection", "placebo", "sft")
DESK = Path(__file__).resolve().parent / "intake_desk.py"
TASK = [
    f'task.environment="python:{DESK}:IntakeDesk"', "rollout.max_conversation_turns=6", "sampling.max_new_tokens=8",
    "run.eval_episodes=100", "run.eval_seed=2000000", "run.group_log_steps=0",
]  # fmt: skip
BUILDS: dict[str, Callable[[TrainingConfig], Parts]] = {
    "grpo": agent_product.build, "rejection": rejection, "placebo": placebo, "sft": warm_start.build,
    "warm_start": warm_start.build,
}  # fmt: skip


def run_seed(seed: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The warm start of a seed and what every arm made of it."""
    warm = [
        *TASK, f"run.seed={seed}", f"run.output_dir={folder}", f"training.num_episodes={options.warm_steps}",
        f"run.eval_steps={options.warm_steps}", "run.save_steps=1000", "task.options={}", *options.warm,
    ]  # fmt: skip
    grpo = [
        *TASK, f"run.seed={seed}", f"run.output_dir={folder}", f"training.num_episodes={options.steps}",
        f"run.eval_steps={options.steps}", "run.save_steps=1000", "rollout.tasks_per_step=8", *options.set,
    ]  # fmt: skip
    start = f"policy.model_name={folder}/warm-{seed}"
    learning = load_config(SETTINGS / "orders.toml", [*grpo, start])
    more = replace_target(load_config(SETTINGS / "orders_sft.toml", [*warm, start]))
    settings = {
        "warm_start": load_config(SETTINGS / "orders_sft.toml", [*warm, f"run.run_name=warm-{seed}"]),
        "grpo": learning, "rejection": imitation_of_correct(learning), "placebo": learning,
        "sft": more.replace(num_episodes=100_000, eval_steps=100_000, save_steps=100_000),
    }  # fmt: skip
    found: dict[str, Any] = {}
    for arm in ("warm_start", "grpo", *(arm for arm in ARMS[1:] if arm in options.arms)):
        limit = found["grpo"]["cpu_seconds"] if arm == "sft" else None
        found[arm] = kept(options.folder, f"{arm}-{seed}", partial(course, settings[arm], arm, limit))
        print(f"seed {seed} {arm}: {shown(found[arm])}", file=sys.stderr, flush=True)
    return found


def course(cfg: TrainingConfig, arm: str, seconds: float | None = None) -> dict[str, Any]:
    """A run's evaluations and mean turns; one with `seconds` of processor time is stopped and judged after them."""
    stop, clock = StopFlag(), time.process_time()
    made: list[Parts] = []
    turns: list[float] = []

    def build(settings: TrainingConfig) -> Parts:
        parts = BUILDS[arm](settings)
        made.append(replace(parts, evaluate=judge(parts, settings)))
        if BUILDS[arm] is not warm_start.build:
            count_turns(parts, turns)
        return made[0]

    evaluations = []
    for event in execute(create_run(cfg), build, stop=stop):
        if event.type == "eval":
            evaluations.append(event.data["metrics"])
        if seconds is not None and time.process_time() - clock >= seconds and not stop.raised:
            stop.raised = True
            evaluations.append(made[0].evaluate(made[0].policy))  # type: ignore[misc]
    names = ("eval/accuracy", "eval/drawn", "eval/format", "eval/turns_mean")
    ends = {"first": evaluations[0], "last": evaluations[-1]}
    return {
        **{end: {name.removeprefix("eval/"): metrics[name] for name in names} for end, metrics in ends.items()},
        "turns": turns, "cpu_seconds": time.process_time() - clock,
    }  # fmt: skip


def judge(parts: Parts, cfg: TrainingConfig) -> Callable[[Policy], dict[str, float]]:
    """The run's own evaluation, and what conversations drawn as in training earn."""
    greedy = parts.evaluate
    assert isinstance(greedy, ConversationEvaluation)
    drawn = copy(greedy)
    drawn.talk = copy(greedy.talk)
    drawn.talk.params = sampling(cfg)
    return lambda policy: {**greedy(policy), "eval/drawn": drawn(policy)["eval/accuracy"]}


def count_turns(parts: Parts, turns: list[float]) -> None:
    """Note the mean turns of every step's conversations as they are collected."""
    rollout: Any = parts.source.rollout  # type: ignore[attr-defined]
    collect = rollout.collect

    def counted(tasks: Any) -> Any:
        groups = collect(tasks)
        turns.append(float(np.mean([member.meta["turns"] for group in groups for member in group.members])))
        return groups

    rollout.collect = counted


def shown(found: dict[str, Any]) -> str:
    first, last = found["first"], found["last"]
    told = (f"{name} {first[name]:.3f} → {last[name]:.3f}" for name in ("accuracy", "drawn", "format", "turns_mean"))
    return f"{', '.join(told)}; {found['cpu_seconds']:.0f} s"


def gains(found: Sequence[dict[str, Any]], arm: str, measure: str) -> Any:
    first, last = (np.array([[r[arm][end][measure]] for r in found]) for end in ("first", "last"))
    return paired_difference(last, first).interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS, help="GRPO always runs")
    parser.add_argument("--warm-steps", type=int, default=300)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warm", nargs="*", default=[], help="changes of the warm start's settings")
    parser.add_argument("--set", nargs="*", default=[], help="changes of GRPO's settings")
    parser.add_argument("--processes", type=int, default=1, help="seeds at a time")
    parser.add_argument("--folder", help="keep what is done here, and go on from it another time")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(options.folder or passing).resolve()
        with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(partial(run_seed, options=options, folder=folder), options.seeds))
    arms = [arm for arm in ARMS if arm in found[0]]
    claims, intervals = {}, {}
    for arm in arms:
        for measure, suffix in (("accuracy", "gain"), ("drawn", "drawn_gain")):
            name = f"multi_turn_{suffix}" if arm == "grpo" else f"{arm}_{suffix}"
            interval = gains(found, arm, measure)
            claims[name] = interval.value
            if len(found) > 1:
                intervals[name] = [interval.low, interval.high]
    mean = {end: float(np.mean([r["grpo"][end]["accuracy"] for r in found])) for end in ("first", "last")}
    claims |= {
        "before": mean["first"], "after": mean["last"],
        "turns_mean": float(np.mean([np.mean(r["grpo"]["turns"]) for r in found])),
        "turns_mean_held_out": float(np.mean([r["grpo"]["last"]["turns_mean"] for r in found])),
        "format_before": float(np.mean([r["grpo"]["first"]["format"] for r in found])),
        "cpu_seconds": sum(r[part]["cpu_seconds"] for r in found for part in ("warm_start", *arms)),
    }  # fmt: skip
    missing = {arm: "not asked for" for arm in ARMS if arm not in arms}
    raw = dict(zip(map(str, options.seeds), found, strict=True))
    print_result("multi_turn", claims, seeds=options.seeds, intervals=intervals, raw=raw, not_run=missing)


if __name__ == "__main__":
    main()
