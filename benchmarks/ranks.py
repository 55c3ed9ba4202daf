"""One run on 1, 2 and 4 ranks: the same updates, checkpoints that any number of ranks reads, and ranks that are killed.

    python benchmarks/ranks.py --json                      # about 15 minutes of processor time
    python benchmarks/ranks.py --json --small              # 2 ranks, few cases and steps, no kills; for `make test`

rank_gap   the largest difference of any weight from one process: after 1 step in float32 (`rank_gap_float32`) and
           after 20 in float64 (`rank_gap`), over 2 and 4 ranks, DDP and FSDP2, and four cases: a LoRA adapter with
           KL (adaptive), clipping of ratios and gradients, accumulation, recomputed activations and an entropy bonus;
           all weights with a critic, half of the tokens by entropy and a KL stop; a control policy with a critic; and
           the same with fewer rows than ranks and micro-batches of one row
reshard    a checkpoint of 4 sharded ranks read by 1 and 2 ranks, and one of a single process read by 4: the largest
           difference of any loaded number (`reshard_loaded`, 0 is bit-equal) and, after five more float64 steps, from
           a process that was never interrupted (`reshard_gap`)
kills      `groupwise train --ranks 2`, a random rank killed at ten random steps: kills survived, steps completed, and
           the largest difference of a weight and of a metric from the undisturbed run (`kill_gap`, `kill_metrics_gap`)

Batches are made once, from seeds, and are the same on every rank: rows of 4 groups with advantages inside them, tokens
with log-probabilities a little off the first policy's. Adam runs with its usual epsilon. Both language models recompute
activations, so that a row is read in one way in any micro-batch: a prompt that several rows share is otherwise read by
layers of our own, which keep the float64 that Transformers' norms round to float32 (7e-7, in one process too).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from record import print_result
from safetensors.torch import load_file

from groupwise.config import TrainingConfig
from groupwise.control.policy import MLPPolicy
from groupwise.core import loss_denominator
from groupwise.language.adapters import Lora
from groupwise.language.loading import load_model
from groupwise.language.policy import LanguagePolicy
from groupwise.training.checkpoint import SHARDS, load_checkpoint, save_checkpoint
from groupwise.training.events import read_events
from groupwise.training.learner import Learner
from groupwise.training.ranks.communication import ALONE, Ranks, joined
from groupwise.training.ranks.launcher import launch
from groupwise.types import Batch, Policy

FLOAT64_STEPS, MORE_STEPS, KILLS = 20, 5, 10
RESHARDED = "adapter"  # the case whose checkpoints are read by other numbers of ranks
GROUPS, MEMBERS, PROMPT, ANSWER = 4, 4, 6, 10
COMMON: dict[str, Any] = {
    "learning_rate": 1e-4, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "num_episodes": 100,
    "tasks_per_step": 4, "clip_ratio": 0.05, "threads": 1, "join_timeout": 600.0,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "adapter": {
        "product": "language", "environment": "addition", "lora_rank": 4, "beta": 0.05, "kl_target": 0.01,
        "use_reference_model": True, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "max_grad_norm": 0.05, "gradient_checkpointing": True, "entropy_coef": 0.01,
    },
    "critic": {
        "product": "agent", "environment": "orders", "estimator": "gae", "per_device_train_batch_size": 3,
        "gradient_accumulation_steps": 2, "num_epochs": 2, "top_entropy_quantile": 0.5, "kl_stop": 0.5,
        "critic_learning_rate": 1e-3, "max_grad_norm": 0.2, "gradient_checkpointing": True,
    },
    "control": {
        "product": "control", "estimator": "gae", "per_device_train_batch_size": 7, "num_epochs": 2,
        "top_entropy_quantile": 0.5,
    },
    "few rows": {"product": "control", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 3},
}  # fmt: skip


def settings(case: str, sharding: str) -> TrainingConfig:
    return TrainingConfig.from_dict({**COMMON, **CASES[case], "sharding": sharding})


def make_policy(case: str, cfg: TrainingConfig, dtype: torch.dtype) -> Policy:
    """The case's policy, the same on every rank."""
    if cfg.task.product == "control":
        return MLPPolicy(6, 3, hidden_sizes=(16, 16), critic=case == "control", seed=1).to(dtype)
    lora = Lora(rank=cfg.language.lora_rank) if cfg.language.lora_rank else None
    language = load_model("tiny", lora=lora, gradient_checkpointing=cfg.policy.gradient_checkpointing, seed=1)
    policy = LanguagePolicy(
        language.model.to(dtype), critic=case == "critic", reference=cfg.policy.use_reference_model, seed=1
    )
    if policy.value_head is not None:
        policy.value_head.to(dtype)
    return policy


def batches(case: str, cfg: TrainingConfig, policy: Policy, dtype: torch.dtype) -> Iterator[Batch]:
    """Ever new batches from seeds: whole groups, with advantages that sum to 0 inside each."""
    first = copy.deepcopy(policy)
    for number in range(1000):
        draw = torch.Generator().manual_seed(1000 + number)
        rows = 3 if case == "few rows" else GROUPS * MEMBERS
        inputs, mask = language_rows(draw) if cfg.task.product != "control" else control_rows(draw, rows)
        inputs = {name: table.to(dtype) if table.is_floating_point() else table for name, table in inputs.items()}
        with torch.no_grad():
            seen = first.evaluate(inputs)
        logp = seen.logp.to(dtype)
        noise = 0.1 * torch.randn(logp.shape, generator=draw, dtype=torch.float64).to(dtype)
        earned = torch.randn(len(mask), generator=draw, dtype=torch.float64)
        groups = torch.arange(len(mask)) * GROUPS // len(mask)
        means = torch.stack([earned[groups == group].mean() for group in groups])
        advantages = ((earned - means)[:, None] * mask).to(dtype)
        values = None if seen.value is None else (seen.value * mask).to(dtype)
        reference = first.reference_logp(inputs) if isinstance(first, LanguagePolicy) and cfg.loss.beta else None
        yield Batch(
            inputs, mask, logp + noise * mask, advantages,
            denominator=loss_denominator(cfg.loss.loss_type, mask), samples=int(mask.sum()), attempts=len(mask),
            versions=torch.zeros(mask.shape, dtype=torch.long) if number % 2 else None,
            reference_logp=reference, values=values, returns=None if values is None else values + advantages,
        )  # fmt: skip


def language_rows(draw: torch.Generator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    rows, width = GROUPS * MEMBERS, PROMPT + ANSWER
    ids = torch.randint(8, 100, (rows, width), generator=draw)
    # Members of a group have one prompt, which is read once.
    ids[:, :PROMPT] = ids[torch.arange(rows) // MEMBERS * MEMBERS, :PROMPT]
    ends = PROMPT + torch.randint(1, ANSWER + 1, (rows, 1), generator=draw)
    places = torch.arange(width).expand(rows, width)
    attention = places < ends
    mask = attention & (places >= PROMPT)
    return {"input_ids": ids, "attention_mask": attention.long(), "action_mask": mask}, mask


def control_rows(draw: torch.Generator, rows: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    obs = torch.randn(rows, 1, 6, generator=draw, dtype=torch.float64)
    actions = torch.randint(3, (rows, 1), generator=draw)
    return {"obs": obs, "actions": actions}, torch.ones(rows, 1, dtype=torch.bool)


class Learning:
    """A case as one rank sees it: a policy, its learner, and the batches."""

    def __init__(self, case: str, sharding: str, dtype: torch.dtype, ranks: Ranks) -> None:
        self.cfg = settings(case, sharding)
        self.policy = make_policy(case, self.cfg, dtype)
        self.stream = batches(case, self.cfg, copy.deepcopy(self.policy), dtype)
        self.learner = Learner(self.policy, self.cfg, ranks)
        self.metrics: list[dict[str, float]] = []

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.metrics.append(self.learner.update(next(self.stream)))

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.policy.state_dict().items()}


def largest(first: Any, second: Any) -> float:
    """The largest difference of two tables of tensors."""
    if first.keys() != second.keys():
        return float("inf")
    return max((float((first[name].double() - second[name].double()).abs().max()) for name in first), default=0.0)


def metrics_gap(first: list[dict[str, float]], second: list[dict[str, float]]) -> float:
    pairs = [
        (one.get(name, float("inf")), value)
        for one, two in zip(first, second, strict=True)
        for name, value in two.items()
    ]
    return max(abs(one - two) / max(1.0, abs(two)) for one, two in pairs)


def on_ranks(jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """In a rank: do the jobs one after the other; what each returned."""
    torch.set_num_threads(1)
    with joined(settings("control", "ddp")) as ranks:
        return [job(ranks, *given) for job, given in jobs]


def gaps(ranks: Ranks, cases: list[str], steps: int, alone: dict[str, Any]) -> dict[str, float]:
    """The cases, DDP and FSDP2, against what one process did."""
    found: dict[str, float] = {}
    for case in cases:
        for sharding in ("ddp", "fsdp"):
            for dtype, count in ((torch.float32, 1), (torch.float64, steps)):
                learning = Learning(case, sharding, dtype, ranks)
                learning.steps(count)
                weights, metrics = alone[f"{case} {dtype}"]
                name = f"{case}, {sharding}, {ranks.size} ranks, {str(dtype).removeprefix('torch.')}"
                found[name] = largest(weights, learning.weights())
                found[f"{name}, metrics"] = metrics_gap(metrics, learning.metrics)
    return found


def by_one_process(cases: list[str], steps: int) -> dict[str, Any]:
    alone = {}
    for case in cases:
        for dtype, count in ((torch.float32, 1), (torch.float64, steps)):
            learning = Learning(case, "ddp", dtype, ALONE)
            learning.steps(count)
            alone[f"{case} {dtype}"] = learning.weights(), learning.metrics
    return alone


def write(ranks: Ranks, folder: Path, steps: int) -> tuple[Any, ...]:
    """Learn and save; then what was saved, and the weights after more steps without a break."""
    learning = Learning(RESHARDED, "fsdp", torch.float64, ranks)
    learning.steps(steps)
    save(learning, folder, ranks, steps)
    return after(learning)


def read(ranks: Ranks, folder: Path, steps: int) -> tuple[Any, ...]:
    """What a checkpoint says to these ranks, and the weights after more steps from it."""
    learning = Learning(RESHARDED, "fsdp", torch.float64, ranks)
    for _ in range(steps):
        next(learning.stream)
    checkpoint = load_checkpoint(folder / f"{steps:06d}")
    learning.policy.load_state_dict(checkpoint.model)
    learning.learner.load_state_dict(checkpoint.state["learner"], checkpoint.path / SHARDS)
    return after(learning)


def save(learning: Learning, folder: Path, ranks: Ranks, step: int) -> None:
    """A checkpoint, as the loop writes one."""
    shards = folder / f".{step:06d}.shards.tmp" if learning.learner.trained.sharded else None
    if shards is not None:
        learning.learner.save_shards(shards)

    def first() -> None:
        state = {"learner": learning.learner.state_dict()}
        save_checkpoint(folder, step, 0, learning.policy.state_dict(), state, shards)

    ranks.on_first(first)


def after(learning: Learning) -> tuple[Any, ...]:
    weights, state = learning.weights(), optimiser_state(learning)
    learning.steps(MORE_STEPS)
    return weights, state, learning.weights()


def optimiser_state(learning: Learning) -> dict[str, torch.Tensor]:
    """Every tensor of the optimiser, whole."""
    states = learning.learner.optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": (value.full_tensor() if hasattr(value, "full_tensor") else value).clone()
        for number, own in states.items()
        for name, value in own.items()
    }


def between(written: tuple[Any, ...], given: tuple[Any, ...], undisturbed: tuple[Any, ...]) -> dict[str, float]:
    loaded = max(largest(written[0], given[0]), largest(written[1], given[1]))
    return {"loaded": loaded, "gap": largest(undisturbed[2], given[2])}


def learned(sizes: list[int], cases: list[str], steps: int, saved_at: int, folder: Path) -> dict[str, Any]:
    """All that ranks do without being killed: the largest of `sizes` writes a checkpoint that the others read."""
    alone, many = by_one_process(cases, steps), max(sizes)
    undisturbed = write(ALONE, folder / "alone", saved_at)
    jobs: list[Any] = [
        (gaps, (cases, steps, alone)),
        (write, (folder / "many", saved_at)),
        (read, (folder / "alone", saved_at)),
    ]
    answers = launch(on_ranks, jobs, ranks=many, run=folder, restarts=0)[0]
    found, written = {"gaps": answers[0]}, answers[1]
    moves = {
        f"1 to {many}": between(undisturbed, answers[2], undisturbed),
        f"{many} to 1": between(written, read(ALONE, folder / "many", saved_at), undisturbed),
    }
    for size in sizes:
        if size < many:
            jobs = [(gaps, (cases, steps, alone)), (read, (folder / "many", saved_at))]
            answers = launch(on_ranks, jobs, ranks=size, run=folder, restarts=0)[0]
            found["gaps"] |= answers[0]
            moves[f"{many} to {size}"] = between(written, answers[1], undisturbed)
    return {**found, "reshards": moves}


KILLED_RUN = """
[task]
product = "control"
environment = "CartPole-v1"
[training]
num_episodes = {steps}
[rollout]
tasks_per_step = 4
num_generations = 4
[ranks]
sharding = "{sharding}"
[run]
seed = 5
threads = 1
eval_steps = 10
save_steps = 3
output_dir = "{folder}"
run_name = "{name}"
"""


def kills(count: int, sharding: str, folder: Path, seed: int) -> dict[str, float]:
    """Kill a random rank at random steps of a run, and compare its end with that of an undisturbed one."""
    steps, draw = 6 * count, random.Random(seed)
    commands = {}
    for name in ("calm", "killed"):
        file = folder / f"{name}.toml"
        file.write_text(KILLED_RUN.format(steps=steps, sharding=sharding, folder=folder, name=name))
        ranks = ["--ranks", "2", "--restarts", str(2 * count), "--quiet"]
        commands[name] = [sys.executable, "-m", "groupwise", "train", str(file), *ranks]
    subprocess.run(commands["calm"], check=True)
    process = subprocess.Popen(commands["killed"])
    survived = 0
    for step in sorted(draw.sample(range(1, steps), count)):
        if not reached(folder / "killed", step, process):
            break
        pids = ranks_of(process.pid)
        if len(pids) == 2:
            os.kill(draw.choice(pids), signal.SIGKILL)
            survived += 1
    status = process.wait()
    runs = {name: read_events(folder / name / "events.jsonl") for name in commands}
    tables = {
        name: [{**e.data["metrics"]} for e in events if e.type in ("step", "eval")] for name, events in runs.items()
    }
    calm, killed = (load_file(folder / name / f"checkpoints/{steps:06d}/model.safetensors") for name in commands)
    return {
        "kills": survived, "status": status, "steps": sum(e.type == "step" for e in runs["killed"]), "planned": steps,
        "attempts": max(e.attempt for e in runs["killed"]), "kill_gap": largest(calm, killed),
        "kill_metrics_gap": metrics_gap(tables["calm"], tables["killed"]),
    }  # fmt: skip


def reached(run: Path, step: int, process: subprocess.Popen[Any]) -> bool:
    """Wait until the run has done so many steps; false if it has ended before."""
    while process.poll() is None:
        events = read_events(run / "events.jsonl") if (run / "events.jsonl").exists() else []
        if max((e.step for e in events if e.type == "step"), default=0) >= step:
            return True
        time.sleep(0.05)
    return False


def ranks_of(launcher: int) -> list[int]:
    """The processes of the ranks: children of the launcher that are not one of Python's own helpers."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="ignored: the result is always JSON")
    parser.add_argument("--small", action="store_true", help="2 ranks, 3 steps, no kills")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--only", choices=("learned", "kills"), help="one half; --small is the first")
    options = parser.parse_args(arguments)
    only = "learned" if options.small else options.only
    torch.set_num_threads(1)
    raw: dict[str, Any] = {}
    claims: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if only != "kills":
            few = ([2], [case for case in CASES if case != "critic"], 2, 1)
            raw = learned(*(few if options.small else ([2, 4], [*CASES], FLOAT64_STEPS, 5)), folder)
            for claim, end in (
                ("rank_gap_float32", "float32"),
                ("rank_gap", "float64"),
                ("metrics_gap", "float64, metrics"),
            ):
                claims[claim] = max(value for case, value in raw["gaps"].items() if case.endswith(end))
            for claim in ("loaded", "gap"):
                claims[f"reshard_{claim}"] = max(move[claim] for move in raw["reshards"].values())
        if only != "learned":
            for sharding in ("ddp", "fsdp"):
                (folder / sharding).mkdir()
                raw[f"kills {sharding}"] = found = kills(KILLS, sharding, folder / sharding, options.seed)
                claims |= {f"{claim}_{sharding}": value for claim, value in found.items()}
    print(json.dumps(raw, indent=1), file=sys.stderr)
    print_result("ranks", claims, raw=raw, seeds=[options.seed])


if __name__ == "__main__":
    main()
