"""In half precision: how far sampler and learner disagree, what the correction leaves, and what it costs.

    python benchmarks/half_precision.py --json

The model has the shape of Qwen3 0.6B with random weights, twice: weights in bfloat16, and float32 weights trained with
`optim.bf16`. Random weights give almost equal probabilities to all tokens; a temperature of 0.25 makes the logits about
as large as a trained model's, and so the effect of their rounding. The engine samples one batch (8 prompts × 8 answers
× 256 tokens); GSPO with its paper's clip learns from it, once with the ratio taken against what the engine recorded,
and once as the learner does it now: against its own log-probabilities, with truncated importance weights. The learning
rate is so small that no weight changes, so that every update of the batch does the same work and clips the same tokens.

Both kinds of update take turns. `update_ratio` is the median over rounds of seconds with over seconds without
(processor time on a CPU), `cost` the difference over the seconds of generation and update. Both are measured for one
optimiser step per batch, where the learner's own log-probabilities come for free, and for several, where they are
computed once before the first, unless sampler and learner agree (`--ways float32`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from lm_gpu import parity, write_model
from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.rewards.scoring import per_attempt
from groupwise.training.learner import Learner
from groupwise.types import Batch

PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "bf16_weights": {"dtype": "bfloat16"},
    "bf16_autocast": {"dtype": "float32", "bf16": True},
    "float32": {"dtype": "float32"},
}
MEASURED = {
    "sampler_gap_before": "sampler/ratio_gap", "sampler_gap_after": "sampler/corrected_gap",
    "sampler_gap_max": "sampler/ratio_gap_max", "sampler_kl": "sampler/kl",
    "sampler_truncated_share": "sampler/truncated_share",
}  # fmt: skip
WARM_UP = 1  # rounds that are not counted


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=4, help="timed updates of each kind")
    parser.add_argument("--ways", nargs="+", choices=tuple(PRECISIONS), default=["bf16_weights", "bf16_autocast"])
    parser.add_argument("--small", action="store_true", help="a toy of the same family, for a CPU")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name) / "model", options.device, small=options.small)
        found = {way: measure(PRECISIONS[way], folder, options) for way in options.ways}
    worst = max(result["claims"]["gspo_clipped_first_step"] for result in found.values())
    claims = {f"{way}_{name}": value for way, result in found.items() for name, value in result["claims"].items()}
    print_result(
        "half_precision", {"gspo_clipped_first_step": worst, **claims}, seeds=[0], raw=found,
        peers={"torch": torch.__version__, "transformers": transformers.__version__},
    )  # fmt: skip


def measure(precision: Mapping[str, Any], model: Path, options: argparse.Namespace) -> dict[str, Any]:
    cfg = settings(precision, model, options)
    parts = product.build(cfg, reward=per_attempt(parity))
    try:
        parts.source.publish(parts.policy)
        batch = parts.source.next()
        steps = {"one": options.prompts * options.samples, "several": options.micro_batch}
        learners = {name: Learner(parts.policy, in_steps_of(cfg, rows)) for name, rows in steps.items()}
        metrics = {name: updated(learners[name], batch) for name in steps}
        recorded = updated(learners["one"], without_versions(batch))
        seconds = {name: interleaved(learner, batch, options.rounds) for name, learner in learners.items()}
    finally:
        parts.source.close()
    generation = batch.timing["rollout"]
    claims = {
        "gspo_clipped_first_step": clipped(metrics["one"]),
        "gspo_clipped_several_steps": clipped(metrics["several"]),
        "gspo_clipped_against_the_engine": clipped(recorded),
        **{name: metrics["one"][metric] for name, metric in MEASURED.items()},
        "generation_seconds": generation,
    }
    for name, both in seconds.items():
        without, with_it = (float(np.median(both[kind])) for kind in ("without", "with"))
        claims |= {f"update_seconds_{name}_{kind}": float(np.median(both[kind])) for kind in both}
        claims[f"update_ratio_{name}"] = float(np.median(np.divide(both["with"], both["without"])))
        claims[f"cost_{name}"] = (with_it - without) / (generation + without)
    print(claims, file=sys.stderr)
    return {"claims": {name: round(value, 6) for name, value in claims.items()}, "seconds": seconds}


def settings(precision: Mapping[str, Any], model: Path, options: argparse.Namespace) -> TrainingConfig:
    return TrainingConfig(
        **precision, product="language", environment="addition", model_name=str(model), device=options.device,
        loss_type="gspo", gradient_checkpointing=True, learning_rate=1e-30, lr_scheduler_type="constant",
        warmup_ratio=0.0, num_generations=options.samples, tasks_per_step=options.prompts,
        max_new_tokens=options.tokens, temperature=options.temperature, per_device_train_batch_size=options.micro_batch,
    )  # fmt: skip


def in_steps_of(cfg: TrainingConfig, rows: int) -> TrainingConfig:
    return cfg.replace(gradient_accumulation_steps=-(-rows // cfg.optim.per_device_train_batch_size))


def without_versions(batch: Batch) -> Batch:
    """Without versions, the ratio is taken against what the engine recorded, and nothing is corrected."""
    return replace(batch, versions=None)


def updated(learner: Learner, batch: Batch) -> dict[str, float]:
    version = learner.policy.version
    metrics = learner.update(batch)
    # No weight moved, so that the batch is still of the present version.
    learner.policy.version = version
    return metrics


def clipped(metrics: Mapping[str, float]) -> float:
    return metrics["policy/clip_low"] + metrics["policy/clip_high"]


def interleaved(learner: Learner, batch: Batch, rounds: int) -> dict[str, list[float]]:
    """Seconds of updates against the engine's numbers and against the learner's, in turns."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    kinds: dict[str, Callable[[Batch], Batch]] = {"without": without_versions, "with": lambda same: same}
    for number in range(WARM_UP + rounds):
        for kind, change in kinds.items():
            start = now()
            updated(learner, change(batch))
            if number >= WARM_UP:
                found[kind].append(now() - start)
    return found


def now() -> float:
    """Seconds of a GPU by the wall clock; of a CPU, which may be busy with other things, of this process."""
    if not torch.cuda.is_initialized():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
