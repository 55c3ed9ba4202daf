"""Measure on this GPU what `groupwise plan` predicts: memory and seconds of generation and update, for several shapes.

    python benchmarks/plan_measure.py --json > rows.json          # two or three minutes on an H200
    python benchmarks/plan_check.py --rows rows.json --json       # how far the plan is from them

Qwen3 models of random weights in bfloat16 are trained by the usual loop on sums, with answers of a fixed length; the
first step (compilation, graphs) does not count. The jobs marked "fit" are entered into `measured.toml`, from which the
plan's rates follow. Those marked "check" were chosen beforehand and are only ever compared: other layers, widths,
heads, vocabularies, rows, lengths and micro-batches, with checkpointing and with an adapter.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import transformers
from lm_gpu import parity
from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.language.adapters import Lora
from groupwise.language.capacity.model_shape import shape_of
from groupwise.language.loading import LanguageModel, prepare
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import execute

PROMPT = 10  # tokens of a sum, about
WIDE = "layers=8,width=4096,heads=32,kv_heads=8,head_dim=128,mlp=12288,vocabulary=32000"
SHORT = "layers=16,width=1536,heads=12,kv_heads=6,head_dim=128,mlp=4608,vocabulary=65536"
DEEP = "layers=24,width=1280,heads=20,kv_heads=4,head_dim=64,mlp=5120,vocabulary=100000"
FLAT = "layers=12,width=2048,heads=16,kv_heads=8,head_dim=128,mlp=8192,vocabulary=50000"
LARGE = "layers=32,width=2304,heads=18,kv_heads=6,head_dim=128,mlp=6912,vocabulary=120000"


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
    Job("fit", "qwen3-1.7b", 8, 8, 256, 16, checkpointing=True),
    Job("fit", SHORT, 16, 8, 192, 32),
    Job("check", DEEP, 8, 12, 160, 24, checkpointing=True),
    Job("fit", "qwen3-4b", 4, 16, 128, 16, lora_rank=16),
    Job("check", FLAT, 8, 8, 224, 32, lora_rank=8),
    Job("check", LARGE, 4, 16, 192, 16, checkpointing=True),
    Job("fit", "qwen3-0.6b", 8, 8, 256, 16, lora_rank=16),
    Job("fit", WIDE, 8, 8, 128, 64, checkpointing=True),
    Job("fit", "qwen3-0.6b", 8, 32, 256, 64, checkpointing=True),
)
SMALL = "layers=2,width=64,heads=4,kv_heads=2,head_dim=16,mlp=96,vocabulary=2000"


def model_of(job: Job, name: str, device: str) -> LanguageModel:
    """Random weights on the device, and the tokenizer of characters: its ids are the first of the vocabulary."""
    shape, tokenizer = shape_of(name), character_tokenizer()
    config = transformers.Qwen3Config(
        hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.mlp,
        vocab_size=shape.vocabulary, tie_word_embeddings=bool(shape.tied), max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=tokenizer.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    lora = Lora(job.lora_rank, 2.0 * job.lora_rank) if job.lora_rank else None
    return prepare(
        LanguageModel(model, tokenizer, name), device=device, lora=lora, gradient_checkpointing=job.checkpointing
    )


def measure(job: Job, device: str, steps: int, shape: str) -> dict[str, Any]:
    """Medians of a run's steps after the first, and the most memory that it took."""
    _forget(device)
    began = time.perf_counter()
    language, done = model_of(job, shape, device), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        cfg = TrainingConfig(
            product="language", environment="addition", output_dir=name, device=device, dtype="bfloat16",
            num_episodes=1000, num_generations=job.group, tasks_per_step=job.tasks, max_new_tokens=job.answer,
            per_device_train_batch_size=job.micro_batch, lora_rank=job.lora_rank,
            gradient_accumulation_steps=-(-job.tasks * job.group // job.micro_batch),
            gradient_checkpointing=job.checkpointing, learning_rate=1e-6, lr_scheduler_type="constant",
            warmup_ratio=0.0, eval_steps=0, group_log_steps=0, save_steps=10_000,
        )  # fmt: skip
        events = execute(create_run(cfg), lambda given: product.build(given, per_attempt(parity), language=language))
        for event in events:
            if event.type == "step":
                done.append(event.data)
            if len(done) == steps:
                break  # so that nothing is saved
        events.close()
    timed = [step["timing"] for step in done[1:]]
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    tokens = (done[-1]["totals"]["samples"] - done[0]["totals"]["samples"]) / (len(timed) * job.tasks * job.group)
    return {
        "decode": median(t["rollout"] for t in timed), "update": median(t["update"] for t in timed), "memory": peak,
        "total": median(t["total"] for t in timed), "tokens": tokens, "seconds": time.perf_counter() - began,
        "timing": timed,
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
        print({name: value for name, value in rows[-1].items() if name != "timing"}, file=sys.stderr, flush=True)
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    print_result(
        "plan_measure", {"jobs": len(rows)}, raw={"device": device, "rows": rows}, not_run=left,
        peers={"torch": torch.__version__, "transformers": transformers.__version__},
    )  # fmt: skip


if __name__ == "__main__":
    main()
