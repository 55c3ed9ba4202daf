"""The learner's update on a model of real size, alone and against TRL's: seconds, arithmetic and memory.

    python benchmarks/lm_update.py --device cuda --cases full lora --rows 64 256 --against trl --json

Groups of `--samples` rows share a random prompt of `--prompt` tokens; every row has `--tokens` more, which the policy
is said to have written. Ours is the learner's `update` over the whole batch in micro-batches of `--micro-batch` rows:
log-probabilities, loss, gradients, clipping, AdamW. TRL's is its trainer on the same tokens, handed to it as the result
of a rollout, with the same micro-batches and precision; its time is that of a step without preparing inputs.

TFLOP/s counts the products and the attention that the mathematics needs, a shared prompt once, and nothing that is
computed a second time. Peaks of memory are torch's, model and optimiser included.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from statistics import median
from typing import Any

import torch
import transformers
from record import print_result

from groupwise.config import TrainingConfig
from groupwise.language.adapters import Lora, add_adapter
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer
from groupwise.training.learner import Learner
from groupwise.types import Batch

PEAK = 790e12
COMMON = {"vocab_size": 151_936, "head_dim": 128, "max_position_embeddings": 4096, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "0.6b": {**COMMON, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "intermediate_size": 3072},
    "1.7b": {**COMMON, "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "intermediate_size": 6144},
    "4b": {**COMMON, "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
           "num_key_value_heads": 8, "intermediate_size": 9728},
    "toy": {**COMMON, "vocab_size": 500, "head_dim": 16, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96},
}  # fmt: skip
CASES = ("full", "full-plain", "full-checkpointed", "lora", "lora-plain", "lora-checkpointed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.6b")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["full", "lora"])
    parser.add_argument("--rows", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5, help="timed updates, after two that are not")
    parser.add_argument("--against", choices=("trl", "none"), default="none")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for case in options.cases:
        for rows in options.rows:
            found[f"ours_{case}_{rows}"] = measured(lambda c=case, r=rows: ours(c, r, options), options)
            if options.against == "trl" and not case.endswith("-plain"):
                found[f"trl_{case}_{rows}"] = measured(lambda c=case, r=rows: trl(c, r, options), options)
            for name in (f"ours_{case}_{rows}", f"trl_{case}_{rows}"):
                print(name, found.get(name), file=sys.stderr, flush=True)
    claims = {f"{name}_{key}": value for name, result in found.items() for key, value in result.items()}
    peers = ("torch", "transformers", *(["trl"] if options.against == "trl" else []))
    print_result("lm_update", claims, seeds=[0], raw=found, peers={name: version(name) for name in peers})


def measured(side: Callable[[], Iterator[float]], options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a side's updates, and its peak of memory."""
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    updates, work = side(), 0.0
    seconds = []
    for number in range(options.steps + 2):
        elapsed, work = next(updates)  # type: ignore[misc]
        if number >= 2:
            seconds.append(elapsed)
    updates.close()  # type: ignore[attr-defined]
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    result = {"seconds": round(median(seconds), 4), "slowest": round(max(seconds), 4), "peak_gib": round(peak, 2)}
    return result | ({"share_of_790_tflops": round(work / median(seconds) / PEAK, 3)} if work else {})


def model_of(case: str, options: argparse.Namespace) -> Any:
    config = transformers.Qwen3Config(**SHAPES[options.shape], dtype="bfloat16")
    torch.manual_seed(0)
    with torch.device(options.device):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    if case.startswith("lora"):
        model = add_adapter(model, Lora(16, 32.0), 0)
    if case.endswith("checkpointed"):
        inner = model.get_base_model() if case.startswith("lora") else model
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    if options.device == "cuda":
        # A model is made in float32, which may take more memory than learning does.
        torch.cuda.reset_peak_memory_stats()
    return model


def token_rows(rows: int, options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    most = SHAPES[options.shape]["vocab_size"]
    prompts = torch.randint(100, most, (rows // options.samples, options.prompt), generator=generator)
    return prompts.repeat_interleave(options.samples, 0), torch.randint(
        100, most, (rows, options.tokens), generator=generator
    )


def ours(case: str, rows: int, options: argparse.Namespace) -> Iterator[Any]:
    model = model_of(case, options)
    policy = LanguagePolicy(model)
    if case.endswith("-plain"):
        policy._fused = None
    cfg = TrainingConfig(
        product="language", model_name="tiny", device=options.device, learning_rate=1e-6, lr_scheduler_type="constant",
        warmup_ratio=0.0, per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=-(-rows // options.micro_batch),
    )  # fmt: skip
    learner, batch = Learner(policy, cfg), batch_of(rows, options, policy.version)
    while True:
        batch = Batch(
            **{**{n: getattr(batch, n) for n in batch.__dataclass_fields__}, "versions": versions(batch, policy)}
        )
        start = now(options.device)
        learner.update(batch)
        yield now(options.device) - start, work(case, rows, options)


def versions(batch: Batch, policy: LanguagePolicy) -> torch.Tensor:
    return torch.where(batch.mask, policy.version, -1)


def batch_of(rows: int, options: argparse.Namespace, version: int) -> Batch:
    prompts, answers = token_rows(rows, options)
    ids = torch.cat((prompts, answers), 1)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    mask[:, options.prompt :] = True
    advantages = torch.randn(rows, 1, generator=torch.Generator().manual_seed(2)).expand(ids.shape) * mask
    return Batch(
        inputs={"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": mask},
        mask=mask, behavior_logp=torch.full(ids.shape, -12.0) * mask, advantages=advantages,
        denominator=float(mask.sum()), total_rows=rows, samples=int(mask.sum()), attempts=rows,
    )  # fmt: skip


def trl(case: str, rows: int, options: argparse.Namespace) -> Iterator[Any]:
    import pyarrow
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    prompts, answers = token_rows(rows, options)
    canned = {
        "prompt_ids": prompts.tolist(), "completion_ids": answers.tolist(),
        "logprobs": [[-12.0] * options.tokens for _ in range(rows)],
    }  # fmt: skip
    table = pyarrow.table({"prompt": [f"prompt {number}" for number in range(rows)]})
    steps: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, use_cpu=options.device == "cpu", bf16=False, max_steps=options.steps + 2,
            gradient_checkpointing=case.endswith("checkpointed"),
            gradient_checkpointing_kwargs={"use_reentrant": False},
            per_device_train_batch_size=min(rows, options.micro_batch), max_completion_length=options.tokens,
            gradient_accumulation_steps=-(-rows // options.micro_batch), num_generations=options.samples,
            num_iterations=1, beta=0.0, temperature=1.0, learning_rate=1e-6, lr_scheduler_type="constant",
            warmup_steps=0, max_grad_norm=1.0, logging_strategy="no", save_strategy="no", report_to=[],
            disable_tqdm=True, dataloader_pin_memory=False, shuffle_dataset=False,
        )  # fmt: skip
        model = model_of(case, options)
        trainer = GRPOTrainer(
            model=model, processing_class=character_tokenizer(), args=args,
            train_dataset=Dataset(table, fingerprint="n"),
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            rollout_func=lambda prompts, trainer: canned,
        )  # fmt: skip
        time_updates(trainer, steps, options.device)
        trainer.train()
    for seconds in steps:
        yield seconds, 0.0


def time_updates(trainer: Any, steps: list[float], device: str) -> None:
    """Have a trainer note how long each of its steps takes, without preparing inputs."""
    prepare, spent = trainer._prepare_inputs, [0.0, 0.0]

    def timed(inputs: Any) -> Any:
        start = now(device)
        prepared = prepare(inputs)
        spent[0] += now(device) - start
        return prepared

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            spent[:] = [0.0, now(device)]

        def on_step_end(self, *_: Any, **__: Any) -> None:
            steps.append(now(device) - spent[1] - spent[0])

    trainer._prepare_inputs = timed
    trainer.add_callback(Clock())


def work(case: str, rows: int, options: argparse.Namespace) -> float:
    """Floating-point operations of an update, a shared prompt once in each micro-batch."""
    s = SHAPES[options.shape]
    q, kv = s["num_attention_heads"] * s["head_dim"], s["num_key_value_heads"] * s["head_dim"]
    per_layer = s["hidden_size"] * (2 * q + 2 * kv + 3 * s["intermediate_size"])
    groups = rows // options.samples
    tokens = groups * options.prompt + rows * options.tokens
    pairs = groups * options.prompt**2 / 2 + rows * options.tokens * (options.prompt + options.tokens / 2)
    # A product costs two operations forwards and two for each gradient; frozen matrices have one gradient less.
    times = 4 if case.startswith("lora") else 6
    layers = s["num_hidden_layers"] * (times * per_layer * tokens + 12 * q * pairs)
    return layers + times * rows * options.tokens * s["hidden_size"] * s["vocab_size"]


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
