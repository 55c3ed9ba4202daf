"""GRPO on an adapter over frozen weights in 16, 8 and 4 bits: memory, time of a step, and whether it learns.

    python benchmarks/qlora.py --device cuda --json

A random Qwen3-shaped model is paid for writing digits, which a few steps teach. Claims, for each precision: mean reward
of the first and last five steps, seconds per step, and on a GPU the peak memory. Needs bitsandbytes for 8 and 4 bits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from record import print_result

from groupwise.agents.language_product import build
from groupwise.config import TrainingConfig
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Task, Trajectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--width", type=int, default=None, help="of the model; 64 on a CPU, 2048 on a GPU")
    parser.add_argument("--layers", type=int, default=None, help="2 on a CPU, 16 on a GPU")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    gpu = options.device != "cpu"
    claims: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model", options.width or (2048 if gpu else 64), options.layers or (16 if gpu else 2))
        for kind in ("16bit", "8bit", "4bit"):
            if kind != "16bit" and find_spec("bitsandbytes") is None:
                continue
            found = train(Path(folder), kind, options.device, options.steps)
            claims |= {f"{name}_{kind}": value for name, value in found.items()}
            if not options.json:
                print(kind, found)
    peers = {"transformers": transformers.__version__, "torch": torch.__version__}
    print_result("qlora", claims, seeds=[0], peers=peers)


def save_model(folder: Path, width: int, layers: int) -> None:
    tokenizer = character_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=max(4, width // 128), num_key_value_heads=max(2, width // 256),
        head_dim=min(128, width // 4), max_position_embeddings=1024, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train(folder: Path, kind: str, device: str, steps: int) -> dict[str, float]:
    cfg = TrainingConfig(
        product="language", environment="column_addition", model_name=str(folder / "model"), device=device,
        dtype="bfloat16", quantization=None if kind == "16bit" else kind, lora_rank=16, learning_rate=1e-2,
        num_generations=8, tasks_per_step=4, max_new_tokens=16, num_episodes=steps, eval_steps=steps, save_steps=steps,
        output_dir=str(folder), run_name=kind, lr_scheduler_type="constant", warmup_ratio=0.0,
    )  # fmt: skip
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    rewards, times = [], [time.perf_counter()]
    for event in execute(create_run(cfg), lambda settings: build(settings, per_attempt(digits))):
        if event.type == "step":
            rewards.append(event.data["metrics"]["reward/mean"])
            times.append(time.perf_counter())
    found = {"first": np.mean(rewards[:5]), "last": np.mean(rewards[-5:]), "step_s": np.median(np.diff(times)[1:])}
    if device != "cpu":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return {name: round(float(value), 4) for name, value in found.items()}


def digits(task: Task, attempt: Trajectory) -> float:
    """The share of the answer's characters that are digits."""
    text = attempt.meta["text"]
    return sum(character.isdigit() for character in text) / max(1, len(text))


if __name__ == "__main__":
    main()
