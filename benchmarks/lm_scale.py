"""GRPO on a model of real size with random weights: mechanics, memory and speed, nothing about quality.

    python benchmarks/lm_scale.py --device cuda --steps 20 --json

The model has the shape of Qwen3 0.6B. Transformers writes it to a folder, the loader reads it from there, and the
usual loop trains it: all weights in bfloat16 with gradient checkpointing, then a LoRA adapter of rank 16 on frozen
bfloat16 weights. Rewards come from the parity of sampled tokens, so that groups have something to compare.

Before the first step, `logp_gap` compares the engine's log-probabilities with those of the policy that will learn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import Parts, execute
from groupwise.types import Task, Trajectory

SHAPE = {
    "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151_936, "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "intermediate_size": 96, "vocab_size": 2000}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "full": {"gradient_checkpointing": True, "learning_rate": 1e-6},
    "lora": {"lora_rank": 16, "learning_rate": 1e-5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--most-gib", type=float, help="no more GPU memory than this, to see it run out")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--small", action="store_true", help="a toy of the same family, to try the script itself")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    if options.most_gib:
        torch.cuda.set_per_process_memory_fraction(options.most_gib * 2**30 / torch.cuda.mem_get_info()[1])
    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name) / "model", options.device, small=options.small)
        found = {way: run(way, folder, Path(name), options) for way in options.ways}
    claims = {f"{way}_{key}": value for way, result in found.items() for key, value in result["claims"].items()}
    print_result(
        "lm_scale", claims, seeds=[0], raw=found,
        peers={"torch": torch.__version__, "transformers": transformers.__version__},
    )  # fmt: skip


def write_model(folder: Path, device: str, *, small: bool) -> Path:
    """Random weights, and the tokenizer of characters: its ids are the first of the vocabulary."""
    tokenizer = character_tokenizer()
    config = transformers.Qwen3Config(
        **{**SHAPE, **(SMALL if small else {})}, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def run(way: str, model: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    rows = options.prompts * options.samples
    cfg = TrainingConfig(
        **WAYS[way], product="language", environment="addition", model_name=str(model), output_dir=str(folder / way),
        device=options.device, dtype="bfloat16", num_episodes=options.steps, num_generations=options.samples,
        tasks_per_step=options.prompts, max_new_tokens=options.tokens, per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=-(-rows // options.micro_batch), lr_scheduler_type="constant", warmup_ratio=0.0,
        eval_steps=0, group_log_steps=0, save_steps=10_000,
    )  # fmt: skip
    gaps: list[dict[str, float]] = []

    def build(cfg: TrainingConfig) -> Parts:
        parts = product.build(cfg, reward=per_attempt(parity))
        gaps.append(logp_gap(parts, cfg))
        print(way, gaps[0], file=sys.stderr)
        return parts

    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    steps = []
    for event in execute(create_run(cfg), build):
        if event.type == "hint":
            print(way, event.step, event.data["message"], file=sys.stderr)
        if event.type == "step":
            steps.append(event.data)
            print(way, event.step, {k: round(v, 3) for k, v in event.data["timing"].items()}, file=sys.stderr)
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    timing = {phase: median(s["timing"][phase] for s in steps[1:]) for phase in ("rollout", "update", "total")}
    sampled = rows * options.tokens
    return {
        "claims": {
            "peak_gib": round(peak, 2),
            "generated_tokens_per_second": round(sampled / timing["rollout"]),
            "trained_tokens_per_second": round(sampled / timing["update"]),
            **{f"{phase}_seconds": round(value, 3) for phase, value in timing.items()},
            **gaps[0],
            "sampler_gap_max_at_step_1": round(steps[0]["metrics"]["sampler/ratio_gap_max"], 4),
            "sampler_kl_at_step_1": steps[0]["metrics"]["sampler/kl"],
            "grad_norm_at_step_1": steps[0]["metrics"]["optim/grad_norm"],
            "steps": len(steps),
            "skipped": sum(s["metrics"]["optim/skipped"] for s in steps),
        },
        "timing": [s["timing"] for s in steps],
        "metrics": [s["metrics"] for s in steps],
    }


def parity(task: Task, attempt: Trajectory) -> float:
    return float((attempt.actions[attempt.mask] % 2).mean())


@torch.no_grad()
def logp_gap(parts: Parts, cfg: TrainingConfig) -> dict[str, float]:
    """How far the engine's log-probabilities are from the learner's own, before anything is learned."""
    parts.source.publish(parts.policy)
    batch = parts.source.next()
    size, device = cfg.optim.per_device_train_batch_size, cfg.policy.device
    gaps = []
    for start in range(0, batch.rows, size):
        part = batch.select(slice(start, start + size)).map(lambda tensor: tensor.to(device))
        gaps.append((parts.policy.evaluate(part.inputs).logp - part.behavior_logp).abs()[part.mask])
    gap = torch.cat(gaps).float()
    return {"logp_gap_mean": round(float(gap.mean()), 5), "logp_gap_max": round(float(gap.max()), 4)}


if __name__ == "__main__":
    main()
