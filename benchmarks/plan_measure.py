"""Measure on this GPU what `groupwise plan` predicts: memory and seconds of generation and update, for several shapes.

    python benchmarks/plan_measure.py --json > rows.json          # about four minutes on an H200
    python benchmarks/plan_check.py --rows rows.json --json       # how far the plan is from them

Qwen3 models of random weights in bfloat16 are trained by the usual loop on sums, with answers of a fixed length; the
first step (compilation, graphs) does not count. The jobs marked "fit" may be entered into `measured.toml`, from which
the plan's rates follow. Those marked "check" were chosen beforehand and are only ever compared: other layers, widths,
vocabularies, rows, lengths and micro-batches, with and without checkpointing and an adapter.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from lm_scale import parity
from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.language.capacity.model_shape import shape_of
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import execute

PROMPT = 10  # tokens of a sum, about
WIDE = "layers=8,width=4096,heads=32,kv_heads=8,head_dim=128,mlp=12288,vocabulary=32000"
OTHER = "layers=16,width=1536,heads=12,kv_heads=6,head_dim=128,mlp=4608,vocabulary=65536"


@dataclass(frozen=True)
class Job:
    """One training that is measured."""

    use: str
    shape: str
    tasks: int
    group: int
    answer: int
    micro_batch: int
    checkpointing: bool = False
    lora_rank: int = 0


JOBS = (
    Job("fit", "qwen3-0.6b", 8, 8, 256, 16, checkpointing=True),
    Job("check", "qwen3-1.7b", 8, 8, 256, 16, checkpointing=True),
    Job("check", OTHER, 16, 8, 192, 32),
    Job("check", "qwen3-4b", 4, 16, 128, 16, lora_rank=16),
    Job("fit", "qwen3-0.6b", 8, 8, 256, 16, lora_rank=16),
    Job("fit", WIDE, 8, 8, 128, 64, checkpointing=True),
    Job("fit", "qwen3-0.6b", 8, 8, 256, 64),
    Job("fit", "qwen3-0.6b", 8, 32, 256, 64, checkpointing=True),
)
SMALL = "layers=2,width=64,heads=4,kv_heads=2,head_dim=16,mlp=96,vocabulary=2000"


def write_model(folder: Path, name: str, device: str) -> Path:
    """Random weights of a shape, and the tokenizer of characters: its ids are the first of the vocabulary."""
    shape, tokenizer = shape_of(name), character_tokenizer()
    config = transformers.Qwen3Config(
        hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.mlp,
        vocab_size=shape.vocabulary, tie_word_embeddings=bool(shape.tied), max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=tokenizer.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def measure(job: Job, device: str, steps: int, shape: str) -> dict[str, Any]:
    """Medians of a run's steps after the first, and the most memory that it took."""
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=fast) as name:
        model = write_model(Path(name) / "model", shape, device)
        _forget(device)
        cfg = TrainingConfig(
            product="language", environment="addition", model_name=str(model), output_dir=str(Path(name) / "runs"),
            device=device, dtype="bfloat16", num_episodes=steps, num_generations=job.group, tasks_per_step=job.tasks,
            max_new_tokens=job.answer, per_device_train_batch_size=job.micro_batch,
            gradient_accumulation_steps=-(-job.tasks * job.group // job.micro_batch), lora_rank=job.lora_rank,
            gradient_checkpointing=job.checkpointing, learning_rate=1e-6, lr_scheduler_type="constant",
            warmup_ratio=0.0, eval_steps=0, group_log_steps=0, save_steps=10_000,
        )  # fmt: skip
        began = time.perf_counter()
        done = [
            event.data
            for event in execute(create_run(cfg), lambda given: product.build(given, per_attempt(parity)))
            if event.type == "step"
        ]
        seconds = time.perf_counter() - began
    timed = [step["timing"] for step in done[1:]]
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    tokens = (done[-1]["totals"]["samples"] - done[0]["totals"]["samples"]) / (len(timed) * job.tasks * job.group)
    _forget(device)
    return {
        "decode": median(t["rollout"] for t in timed), "update": median(t["update"] for t in timed), "memory": peak,
        "total": median(t["total"] for t in timed), "tokens": tokens, "seconds": seconds, "timing": timed,
    }  # fmt: skip


def _forget(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further job after so many")
    parser.add_argument("--small", action="store_true", help="a toy in place of every shape, to try the script itself")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    rows, left, began = [], {}, time.perf_counter()
    for job in JOBS:
        if time.perf_counter() - began > options.seconds:
            left[job.shape] = "no time was left"
            continue
        found = measure(job, options.device, options.steps, SMALL if options.small else job.shape)
        rows.append({**asdict(job), "prompt": PROMPT, **found})
        print(rows[-1], file=sys.stderr, flush=True)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print_result(
        "plan_measure", {"jobs": len(rows)}, raw={"device": device, "rows": rows}, not_run=left,
        peers={"torch": torch.__version__, "transformers": transformers.__version__},
    )  # fmt: skip


if __name__ == "__main__":
    main()
