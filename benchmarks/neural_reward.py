"""Does the learned reward learn, and does a model that is trained against it get better by the true reward?

    python benchmarks/neural_reward.py --seeds 101 102 103 --json
    python benchmarks/neural_reward.py --seeds 301 302 303 --no-runs --json

The task is `repair_desk.py`. Per seed, with and without runs: accuracy on new phrases after 50, 200 and 1,000
preferences (15% of the last wrong) beside the linear baseline alone, calibration, and attacks (`reward_attacks.py`).
Claims: `neural_new` and `linear_new` are accuracies after 1,000; `climbs` is on how many of 20 prompts, in the worst
seed, text that was climbed from nothing scored above the best of 64 real replies; `calibration_error` is on 4,000 new
pairs with as many wrong labels as those learned from.

Then, unless `--no-runs`: a reward is trained on 3,000 preferences, 15% of them the wrong way round, and
judged on clean pairs in phrases it has never met. Then the tiny language model, warm-started on replies of every
quality, is trained by GRPO against that reward alone, held to its start by a KL term; the true reward only watches.
Beside it a placebo, whose reward of the same make has learned nothing and is believed regardless; and the same run
twice as fast and without the KL term, which shows what a learned reward does not know. One thread each. Judged on
held-out prompts before and after, by replies drawn as in training and by greedy ones; every step tells the learned and
the true reward of the same attempts.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import print_result
from repair_desk import FAULTS, LEARNED, SHORT, TESTED, grade, reply, right_reply
from reward_attacks import accuracy, checks, pairs

from groupwise.agents import language_product as product
from groupwise.agents import warm_start
from groupwise.agents.data.dataset import find_problems
from groupwise.agents.language_product import Completions
from groupwise.config import TrainingConfig
from groupwise.rewards.learned.neural import NeuralRewardFunction
from groupwise.rewards.learned.preferences import preference_of
from groupwise.rewards.learned.trainer import NeuralRewardTrainer
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Policy, Score, Task, Trajectory

KEPT = ("sampled", "reward_mean", "right", "safe", "polite", "fluent")
PAIRS, FLIPPED, TEST_PAIRS = 3000, 0.15, 1000
STEPS = {"warm": 70, "grpo": 24}
SAMPLES = 4
ANCHOR = {"use_reference_model": True, "beta": 0.1}
KINDS = ("reward", "linear", "network")
ARMS, JUDGED = ("grpo", "placebo", "unanchored"), ("pair_accuracy", "length_only_accuracy", "doubt_finds_errors")
COMMON: dict[str, Any] = {
    "model_name": "tiny", "threads": 1, "max_new_tokens": 56, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
    "adam_beta2": 0.99, "gradient_accumulation_steps": 1, "group_log_steps": 0, "save_steps": 1000,
}  # fmt: skip


class Believed(NeuralRewardTrainer):
    """Believed whatever the evidence."""

    trusted = True  # type: ignore[assignment]


def judge_reward(trainer: NeuralRewardTrainer, clean: Sequence[tuple[str, str, str]]) -> dict[str, float]:
    """Accuracy on clean pairs, of the reward and of length; and whether its doubt tells where it is wrong."""
    sides = [list(side) for side in zip(*((p.better, p.worse) for p in map(preference_of, clean)), strict=True)]
    (better, doubts), (worse, others) = (trainer.score(side) for side in sides)
    right = np.array(better) > np.array(worse)
    doubt = np.maximum(doubts, others)
    longer = np.mean([0.5 + 0.5 * np.sign(len(better) - len(worse)) for _, better, worse in clean])
    above = np.sign(doubt[~right][:, None] - doubt[right][None]) if 0 < right.mean() < 1 else np.array(math.nan)
    return {
        "pair_accuracy": accuracy(better, worse),
        "length_only_accuracy": float(max(longer, 1 - longer)),
        "doubt_finds_errors": float(0.5 + 0.5 * above.mean()),
    }


class Watched:
    """A reward, with the true reward of the same attempts written down beside it."""

    def __init__(self, reward: NeuralRewardFunction) -> None:
        self.reward = reward
        self.seen: list[tuple[float, float, float]] = []

    async def __call__(self, task: Task, group: Sequence[Trajectory]) -> Sequence[Any]:
        scores = await self.reward(task, group)
        fault = task.payload.columns["fault"]
        for attempt, score in zip(group, scores, strict=True):
            true = grade(attempt.meta["text"], fault)
            assert isinstance(score, Score)
            self.seen.append((score.total, true.total, true.parts["fluent"]))
        return scores

    def course(self, steps: int) -> list[list[float]]:
        """Learned reward, true reward and fluency, step by step."""
        size = max(1, len(self.seen) // max(1, steps))
        blocks = [self.seen[start : start + size] for start in range(0, len(self.seen), size)]
        return [[round(float(value), 4) for value in np.mean(block, 0)] for block in blocks]


def write_data(folder: Path, *, references: bool = False) -> dict[str, Any]:
    """Prompts with replies of every quality to imitate, and others to judge on; if asked, each with a right reply."""
    rng = random.Random(0)
    prompts = [
        {"fault": fault, "prompt": words.format(a=appliance, f=fault)}
        for fault in FAULTS for appliance in SHORT.appliances for words in SHORT.asking
    ]  # fmt: skip
    rng.shuffle(prompts)
    if references:
        prompts = [{**row, "reference": right_reply(row["fault"])} for row in prompts]
    held_out, rest = prompts[:64], prompts[64:]
    shown = [{**row, "reply": reply(rng, SHORT, row["fault"]).text} for row in rest * 24]
    for name, rows in (("train", shown), ("eval", [{**row, "reply": ""} for row in held_out])):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = {"check": "repair_desk:grade", "demonstration": "reply", "eval_file": str(folder / "eval.jsonl")}
    return {"environment": str(folder / "train.jsonl"), "options": options, "eval_episodes": 64}


def check_seed(seed: int) -> dict[str, Any]:
    """What needs no run."""
    torch.set_num_threads(1)
    clock = time.process_time()
    return {"seed": seed, **checks(seed, LEARNED, TESTED), "check_seconds": time.process_time() - clock}


def run_seed(seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    clock = time.process_time()
    trainer = NeuralRewardTrainer(learning_rate=1e-3, seed=seed)
    learned = NeuralRewardFunction(trainer=trainer, teacher=None)
    learned.add_preferences(pairs(seed, PAIRS, LEARNED, FLIPPED))
    trainer.fit()
    found: dict[str, Any] = {
        "seed": seed,
        **judge_reward(trainer, pairs(seed + 10_000, TEST_PAIRS, TESTED)),
        "held_out_accuracy": trainer.held_out_accuracy,
        "trusted": trainer.trusted,
        "reward_seconds": time.process_time() - clock,
    }
    fresh = NeuralRewardFunction(trainer=Believed(seed=seed + 1), teacher=None)
    # A linear model that has learned nothing scores everything alike; a network does not.
    fresh.trainer.uses_network = True
    with tempfile.TemporaryDirectory() as folder:
        common = {**COMMON, **write_data(Path(folder)), "seed": seed, "output_dir": folder}
        warm = {"product": "warm-start", "run_name": "warm", "tasks_per_step": 32, "per_device_train_batch_size": 32}
        found["warm"] = run({**common, **warm, "learning_rate": 1e-3, "num_episodes": STEPS["warm"]})
        grpo = {"product": "language", "tasks_per_step": 12, "num_generations": 8, "per_device_train_batch_size": 96}
        start = {**common, **grpo, "model_name": f"{folder}/warm", "learning_rate": 1e-4, "num_episodes": STEPS["grpo"]}
        found["grpo"] = run({**start, **ANCHOR}, learned)
        found["placebo"] = run({**start, **ANCHOR}, fresh)
        found["unanchored"] = run({**start, "learning_rate": 2e-4}, learned)
    return found


def run(settings: dict[str, Any], reward: NeuralRewardFunction | None = None) -> dict[str, Any]:
    """Runs it, and tells the true reward at its ends and the course of both rewards between."""
    cfg = TrainingConfig.from_dict({**settings, "eval_steps": settings["num_episodes"]})
    watched = None if reward is None else Watched(reward)
    clock, evals = time.process_time(), []
    build = warm_start.build if watched is None else lambda cfg: with_samples(product.build(cfg, reward=watched), cfg)
    for event in execute(create_run(cfg), build):
        if event.type == "eval":
            found = event.data["metrics"]
            evals.append({name: round(found[f"eval/{name}"], 4) for name in KEPT if f"eval/{name}" in found})
    course = [] if watched is None else watched.course(cfg.training.num_episodes)
    return {"evals": evals, "course": course, "cpu_seconds": time.process_time() - clock}


def with_samples(parts: Parts, cfg: TrainingConfig) -> Parts:
    """Parts whose evaluation also draws replies as in training."""
    source: Any = parts.source
    greedily = parts.evaluate
    assert greedily is not None
    problems = find_problems(cfg.task).held_out(cfg.run.eval_seed, cfg.run.eval_episodes)
    rollout = replies_of(source.rollout, SAMPLES)

    def evaluate(policy: Policy) -> dict[str, float]:
        groups = rollout.collect([Task(f"judged/{n}", problem, 10**9 + n) for n, problem in enumerate(problems)])
        true = [grade(m.meta["text"], g.task.payload.columns["fault"]) for g in groups for m in g.members]
        parts_of = {name: [score.parts[name] for score in true] for name in true[0].parts}
        return {
            **greedily(policy),
            "eval/sampled": float(np.mean([score.total for score in true])),
            **{f"eval/{name}": float(np.mean(values)) for name, values in parts_of.items()},
        }

    return replace(parts, evaluate=evaluate)


def replies_of(rollout: Completions, samples: int) -> Completions:
    """Another number of replies to each prompt."""
    return Completions(rollout.engine, rollout.tokenizer, rollout.params, samples, rollout.seed)


def interval(values: Sequence[float]) -> list[float]:
    """95%, by Student's t over seeds."""
    t = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}.get(len(values), 2.5)
    half = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [float(np.mean(values)) - half, float(np.mean(values)) + half]


def checked(found: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claims of `check_seed` over seeds, and the values that their intervals are of."""
    per_seed = {
        "neural_new": [r["reward_1000"] for r in found],
        "linear_new": [r["linear_1000"] for r in found],
        "calibration_error": [r["calibration_1000"] for r in found],
        "calibration_error_new_phrases": [r["calibration_new_1000"] for r in found],
        **{f"{kind}_{size}": [r[f"{kind}_{size}"] for r in found] for kind in KINDS for size in (50, 200, 1000)},
    }
    claims = {
        **{name: float(np.mean(values)) for name, values in per_seed.items()},
        "climbs": max(r["known_climbs"] for r in found),
        "climbs_from_real_replies": max(r["known_improved"] for r in found),
        "climbs_in_new_phrases": max(r["new_climbs"] for r in found),
    }
    return claims, per_seed


def gained(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The values of `run_seed`, by seed."""
    ends = {arm: np.array([[r[arm]["evals"][n]["sampled"] for n in (0, -1)] for r in found]) for arm in ARMS}
    greedy = np.array([[r["grpo"]["evals"][n]["reward_mean"] for n in (0, -1)] for r in found])
    learned = np.array([[r["grpo"]["course"][n][0] for n in (0, -1)] for r in found])
    return {
        **{name: [r[name] for r in found] for name in JUDGED},
        "true_reward_before": ends["grpo"][:, 0],
        "true_reward_after": ends["grpo"][:, 1],
        "true_gain": ends["grpo"][:, 1] - ends["grpo"][:, 0],
        "unanchored_gain": ends["unanchored"][:, 1] - ends["unanchored"][:, 0],
        "placebo_gain": ends["placebo"][:, 1] - ends["placebo"][:, 0],
        "greedy_before": greedy[:, 0],
        "greedy_after": greedy[:, 1],
        "learned_reward_before": learned[:, 0],
        "learned_reward_after": learned[:, 1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-runs", action="store_true", help="leave out training a model against the reward")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(min(options.processes, len(options.seeds))) as pool:
        checks_found = pool.map(check_seed, options.seeds, chunksize=1)
        found = [] if options.no_runs else pool.map(run_seed, options.seeds, chunksize=1)
    claims, per_seed = checked(checks_found)
    if found:
        gains = gained(found)
        per_seed |= gains
        claims |= {name: float(np.mean(values)) for name, values in gains.items()}
    if not options.json:
        for r in found:
            course = [r[arm]["course"][place] for arm in ARMS for place in (0, -1)]
            print(f"seed {r['seed']}: learned, true and fluent, first and last step of {ARMS}: {course}")
    print_result(
        "neural_reward",
        claims,
        seeds=options.seeds,
        intervals={name: interval(values) for name, values in per_seed.items() if len(values) > 1},
        raw={"checks": checks_found, "runs": found},
        not_run={"runs": "--no-runs"} if options.no_runs else {},
    )


if __name__ == "__main__":
    main()
