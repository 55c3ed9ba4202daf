"""GRPO steps on one GPU, ours and TRL's in one run: seconds, tokens a second, memory, and the machine's limits.

    python benchmarks/lm_gpu.py --json
    python benchmarks/lm_gpu.py --only step_64 step_256 --out part1.json
    python benchmarks/lm_gpu.py --only leak --out part2.json
    python benchmarks/lm_gpu.py --merge part1.json part2.json --json

Models have the shapes of Qwen3 and random weights, the same on both sides, in bfloat16, AdamW's moments too.
Prompts have 32 tokens; rows are sampled at temperature 1 from the whole vocabulary; the reward is the parity of
the sampled tokens; there is no KL term, one pass over each batch, and both sides have the same micro-batches and
gradient checkpointing. Ours is the language product's own source, learner and engine; TRL's is its trainer with
Transformers' `generate` (vLLM cannot be installed beside it). Both live in one process, one after the other on an empty
GPU.

Parts: `step_64` is 8 × 8 rows of 256 tokens in one micro-batch without checkpointing, `memory` the same in
micro-batches of 16 with it, `step_256` 32 × 8 rows in micro-batches of 64 with it; `uneven` is 32 × 8 rows in
micro-batches of 16 that end by themselves (a bias on the head's end token, for a mean of about 300 tokens, at most
1,024); `1.7b` and `4b` are 8 × 8 rows of larger models. `leak` runs the real loop for 50 steps, with all weights and
with LoRA, and looks at memory after each.

Claims are medians over the steps after the warm-up; `first_step_seconds` has compiling and capturing in it. The
bandwidth limit counts the weights and the live cache (what a group shares, once) for each token at 4.8 TB/s; the
arithmetic of an update is that of its mathematics (a shared prompt once, nothing recomputed) over 790 TFLOP/s.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from lm_step import PROMPT_LENGTH, Clock, question
from record import print_result

from groupwise.agents import language_product as product
from groupwise.config import TrainingConfig
from groupwise.language.engine import Engine
from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import character_tokenizer
from groupwise.rewards.scoring import per_attempt
from groupwise.training.batch_source import NumberedTasks
from groupwise.training.folder import create_run
from groupwise.training.learner import Learner
from groupwise.training.session import Parts, execute
from groupwise.training.token_attempts import rows_of_tokens
from groupwise.types import Batch, Task, Trajectory

BANDWIDTH, ARITHMETIC = 4.8e12, 790e12
COMMON = {"vocab_size": 151_936, "head_dim": 128, "max_position_embeddings": 4096, "tie_word_embeddings": True}
SHAPES: dict[str, dict[str, Any]] = {
    "0.6b": {**COMMON, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "intermediate_size": 3072},
    "1.7b": {**COMMON, "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "intermediate_size": 6144},
    "4b": {**COMMON, "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
           "num_key_value_heads": 8, "intermediate_size": 9728},
    "toy": {**COMMON, "vocab_size": 2000, "head_dim": 16, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96},
}  # fmt: skip
MEAN_LENGTH = 300


@dataclass(frozen=True)
class Part:
    """A comparison: its model, rows and lengths. `claim` is the ratio of TRL's step to ours."""

    claim: str
    shape: str
    prompts: int
    samples: int
    tokens: int
    micro_batch: int
    trl_steps: int = 5
    trl_warm_up: int = 1
    uneven: bool = False
    checkpointing: bool = True

    @property
    def rows(self) -> int:
        return self.prompts * self.samples


PARTS = {
    "step_64": Part("step_64", "0.6b", 8, 8, 256, 64, checkpointing=False),
    "memory": Part("step_64_checkpointed", "0.6b", 8, 8, 256, 16),
    "step_256": Part("step_256", "0.6b", 32, 8, 256, 64),
    "uneven": Part(
        "step_uneven", "0.6b", 32, 8, 1024, 16, trl_steps=3, trl_warm_up=0, uneven=True, checkpointing=False
    ),
    "1.7b": Part("step_1_7b", "1.7b", 8, 8, 256, 16),
    "4b": Part("step_4b", "4b", 8, 8, 256, 16),
}
LEAK = "leak"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=(*PARTS, LEAK), default=[*PARTS, LEAK])
    parser.add_argument("--steps", type=int, default=7, help="timed steps of ours")
    parser.add_argument("--trl-steps", type=int, help="timed steps of TRL's, instead of the part's own number")
    parser.add_argument("--leak-steps", type=int, default=50)
    parser.add_argument("--without-trl", action="store_true", help="ours alone")
    parser.add_argument("--toy", action="store_true", help="small models, to try the script itself")
    parser.add_argument("--out", help="keep what each part found in this file, part by part")
    parser.add_argument("--merge", nargs="+", help="files of earlier calls: print their claims together")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name in options.merge or ():
        found |= json.loads(Path(name).read_text())
    for name in () if options.merge else options.only:
        found[name] = leak(options) if name == LEAK else compare(PARTS[name], options)
        print(name, json.dumps(found[name]["claims"]), file=sys.stderr, flush=True)
        if options.out:
            Path(options.out).write_text(json.dumps(found))
    claims = {key: value for part in found.values() for key, value in part["claims"].items()}
    missing = {name: "not asked for" for name in (*PARTS, LEAK) if name not in found}
    peers = {name: version(name) for name in ("torch", "transformers", *(() if options.without_trl else ("trl",)))}
    print_result("lm_gpu", claims, seeds=[0], raw=found, peers=peers, not_run=missing)


def compare(part: Part, options: argparse.Namespace) -> dict[str, Any]:
    sides = {"ours": side(ours(part, options), options, options.steps, 2)}
    if not options.without_trl:
        count = part.trl_steps if options.trl_steps is None else options.trl_steps
        sides["trl"] = side(trl(part, options, count + part.trl_warm_up), options, count, part.trl_warm_up)
    name, mine = part.claim, sides["ours"]
    claims = {f"{name}_{who}_{key}": value for who, seen in sides.items() for key, value in seen["claims"].items()}
    if "trl" in sides:
        other = sides["trl"]
        claims[name] = ratio(other, mine, "step")
        claims[f"{name}_generate_vs_trl"] = ratio(other, mine, "generate")
        claims["update_256" if name == "step_256" else f"{name}_update_vs_trl"] = ratio(other, mine, "update")
        cache = mine["notes"]["cache_gib"]
        if other["claims"]["peak_gib"]:
            share = (mine["claims"]["peak_gib"] - cache) / other["claims"]["peak_gib"]
            claims["memory_vs_trl" if name == "step_64_checkpointed" else f"{name}_memory_vs_trl"] = round(share, 3)
    if name == "step_256":
        claims["tokens_per_second_256"] = mine["claims"]["tokens_per_second"]
    if name == "step_64":
        claims["decode_fraction"] = mine["notes"]["decode_fraction"]
    claims |= {f"{name}_{key}": value for key, value in mine["notes"].items() if key != "decode_fraction"}
    return {"claims": claims, "sides": sides}


def ratio(other: dict[str, Any], mine: dict[str, Any], phase: str) -> float:
    return round(other["claims"][f"{phase}_seconds"] / mine["claims"][f"{phase}_seconds"], 2)


def side(steps: Iterator[dict[str, Any]], options: argparse.Namespace, count: int, warm_up: int) -> dict[str, Any]:
    """What the steps of one side took, and the most memory any of them needed; afterwards the GPU is empty."""
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken = []
    for number, step in enumerate(steps):
        taken.append(step)
        brief = {key: value for key, value in step.items() if key != "notes"}
        print(number, json.dumps(brief), file=sys.stderr, flush=True)
        if number + 1 == count + warm_up:
            break
    peaks = {"peak_gib": gib(torch.cuda.max_memory_allocated()), "reserved_gib": gib(torch.cuda.max_memory_reserved())}
    steps.close()  # type: ignore[attr-defined]
    del steps
    gc.collect()
    torch.cuda.empty_cache()
    timed = taken[warm_up:]
    phases = {f"{key}_seconds": middle(timed, key) for key in ("step", "generate", "score", "update")}
    return {
        "claims": {
            **phases, **peaks, "steps": len(timed), "tokens": round(middle(timed, "tokens")),
            "tokens_per_second": round(median(step["tokens"] / step["generate"] for step in timed)),
            "first_step_seconds": round(taken[0]["step"], 2),
        },
        "notes": {key: round(median(step["notes"][key] for step in timed), 4) for key in timed[0].get("notes", ())},
        "raw": taken,
    }  # fmt: skip


def middle(steps: list[dict[str, Any]], key: str) -> float:
    return round(median(step[key] for step in steps), 4)


def gib(size: float) -> float:
    return round(size / 2**30, 2)


def make_model(part: Part, options: argparse.Namespace, tokenizer: Any) -> Any:
    """The same random weights every time. A bias on the end token's logit makes rows end by themselves."""
    config = transformers.Qwen3Config(
        **SHAPES["toy" if options.toy else part.shape], bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(options.device):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    if part.uneven:
        # Over texts of the model's own: on random tokens, its end token is half as likely.
        text = torch.randint(0, config.vocab_size, (16, PROMPT_LENGTH), device=options.device)
        end = tokenizer.eos_token_id
        text = model.generate(text, do_sample=True, top_k=0, max_new_tokens=64, suppress_tokens=[end], eos_token_id=[])
        with torch.no_grad():
            logits = model(text, logits_to_keep=64).logits.flatten(0, 1)
            chance = torch.stack([part.float().softmax(-1)[:, end].mean() for part in logits.split(64)]).mean()
        bias = torch.zeros(config.vocab_size, dtype=torch.bfloat16, device=options.device)
        bias[tokenizer.eos_token_id] = -math.log(MEAN_LENGTH * float(chance))
        model.lm_head.bias = torch.nn.Parameter(bias, requires_grad=False)
    return model


def parity(task: Task, attempt: Trajectory) -> float:
    return float((attempt.actions[attempt.mask] % 2).mean())


def ours(part: Part, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Steps of the language product's own source, learner and engine."""
    tokenizer, clock = character_tokenizer(), Clock(options.device)
    cfg = TrainingConfig(
        product="language", model_name="random", device=options.device, dtype="bfloat16", num_episodes=10_000,
        max_new_tokens=part.tokens, num_generations=part.samples, tasks_per_step=part.prompts,
        per_device_train_batch_size=part.micro_batch, gradient_accumulation_steps=-(-part.rows // part.micro_batch),
        gradient_checkpointing=part.checkpointing, learning_rate=1e-6, lr_scheduler_type="constant", warmup_ratio=0.0,
    )  # fmt: skip
    model = make_model(part, options, tokenizer)
    if part.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = LanguagePolicy(model)
    engine = Engine(model, tokenizer, slots=part.rows, eos=None if part.uneven else ())
    rollout = product.Completions(engine, tokenizer, product.sampling(cfg), part.samples, cfg.run.seed)
    source = product.LanguageSource(
        cfg, policy, engine, rollout=rollout, reward=per_attempt(parity), collate=rows_of_tokens,
        tasks=NumberedTasks(lambda number: Task(f"letters/{number}", question(number, tokenizer), number)),
    )  # fmt: skip
    learner = Learner(policy, cfg)
    source.publish(policy)
    try:
        while True:
            start = clock.now()
            batch = clock.timed("prepare", source.next)()
            clock.timed("update", learner.update)(batch)
            source.publish(policy)
            seconds = float((clock.now() - start)[0])
            spent = {name: float(value[0]) for name, value in clock.take().items()}
            # Until the last group has come; what was scored before that costs nothing.
            spent["generate"] = batch.timing["rollout"]
            yield {
                "step": seconds, "generate": spent["generate"], "score": spent["prepare"] - spent["generate"],
                "update": spent["update"], "tokens": batch.samples, "notes": limits(part, model, engine, batch, spent),
            }  # fmt: skip
    finally:
        source.close()


def limits(part: Part, model: Any, engine: Engine, batch: Batch, spent: dict[str, float]) -> dict[str, float]:
    """How near a step came to what the GPU can do, and how large the engine's cache is."""
    config = model.config
    layers, head = config.num_hidden_layers, config.vocab_size * config.hidden_size
    matrices = sum(p.numel() for p in model.model.layers.parameters())
    lengths = batch.mask.sum(1).cpu().numpy()
    # Positions attended to: each answer's own (1 + 2 + … + n), and the prompt once for all of a group.
    own = float((lengths * (lengths + 1) / 2).sum())
    longest = lengths.reshape(-1, part.samples).max(1) if len(lengths) == part.rows else np.array([lengths.max()])
    position = layers * 2 * config.num_key_value_heads * config.head_dim * 2
    steps = float(lengths.max())
    read = steps * 2 * (matrices + head) + position * (own + PROMPT_LENGTH * float(longest.sum()))
    tokens = float(lengths.sum())
    prompts = part.prompts * PROMPT_LENGTH
    seen = own + PROMPT_LENGTH * tokens + part.prompts * PROMPT_LENGTH * (PROMPT_LENGTH + 1) / 2
    attention = 4 * layers * config.num_attention_heads * config.head_dim * seen
    arithmetic = 3 * (2 * matrices * (tokens + prompts) + 2 * head * tokens + attention)
    store = getattr(engine._inside, "store", None)
    return {
        "decode_fraction": read / BANDWIDTH / spent["generate"],
        "update_fraction": arithmetic / ARITHMETIC / spent["update"],
        "mean_length": tokens / len(lengths),
        "cache_gib": 0.0 if store is None else store.data.nbytes / 2**30,
        "graphs": float(len(engine._inside.steps.graphs)) if store is not None else 0.0,  # type: ignore[attr-defined]
    }


def trl(part: Part, options: argparse.Namespace, count: int) -> Iterator[dict[str, Any]]:
    """Steps of TRL's trainer."""
    import pyarrow
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer, clock = character_tokenizer(), Clock(options.device)
    model = make_model(part, options, tokenizer)
    prompts = pyarrow.table({"prompt": [question(number, tokenizer).messages for number in range(1024)]})
    lengths: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, use_cpu=options.device == "cpu", bf16=False, max_steps=count,
            gradient_checkpointing=part.checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False},
            per_device_train_batch_size=part.micro_batch,
            gradient_accumulation_steps=-(-part.rows // part.micro_batch), num_generations=part.samples,
            max_completion_length=part.tokens, num_iterations=1, beta=0.0, temperature=1.0, shuffle_dataset=False,
            generation_kwargs={"use_cache": True, **({} if part.uneven else {"min_new_tokens": part.tokens})},
            learning_rate=1e-6, lr_scheduler_type="constant", warmup_steps=0, max_grad_norm=1.0,
            logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip

        def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
            return [float(np.mean(np.array(ids) % 2)) for ids in completion_ids]

        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, args=args, reward_funcs=reward,
            train_dataset=Dataset(prompts, fingerprint="letters"),
        )  # fmt: skip
        trainer._generate = clock.timed("generate", counting(trainer._generate, lengths))
        trainer._prepare_inputs = clock.timed("prepare", trainer._prepare_inputs)
        steps: list[dict[str, Any]] = []
        record_steps(trainer, clock, steps, lengths)
        trainer.train()
    yield from steps


def counting(generate: Callable[..., Any], lengths: list[int]) -> Callable[..., Any]:
    def call(prompts: list[Any]) -> Any:
        result = generate(prompts)
        lengths.extend(len(ids) for ids in result[1])
        return result

    return call


def record_steps(trainer: Any, clock: Clock, steps: list[dict[str, Any]], lengths: list[int]) -> None:
    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.start = clock.now()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds = float((clock.now() - self.start)[0])
            spent = {name: float(value[0]) for name, value in clock.take().items()}
            steps.append(
                {"step": seconds, "generate": spent["generate"], "score": spent["prepare"] - spent["generate"],
                 "update": seconds - spent["prepare"], "tokens": sum(lengths),
                 "mean_length": float(np.mean(lengths))}
            )  # fmt: skip
            print("trl", seconds, file=sys.stderr, flush=True)
            lengths.clear()

    trainer.add_callback(Watch())


WAYS: dict[str, dict[str, Any]] = {
    "full": {"gradient_checkpointing": True, "learning_rate": 1e-6},
    "lora": {"lora_rank": 16, "learning_rate": 1e-5},
}


def leak(options: argparse.Namespace) -> dict[str, Any]:
    """Memory after every step of real runs: it must be flat from the third on."""
    claims: dict[str, float] = {}
    raw = {}
    for way in WAYS:
        gc.collect()
        torch.cuda.empty_cache()
        with tempfile.TemporaryDirectory() as name:
            folder = write_model(Path(name) / "model", options.device, small=options.toy)
            result = run(way, folder, Path(name), options)
        raw[way] = result
        after = result["memory_gib"][2:]
        claims[f"leak_{way}_gib"] = round(max(after) - min(after), 4)
        claims |= {f"leak_{way}_{key}": value for key, value in result["claims"].items()}
    claims["leak"] = max(claims[f"leak_{way}_gib"] for way in WAYS)
    return {"claims": claims, "raw": raw}


def write_model(folder: Path, device: str, *, small: bool) -> Path:
    """Random weights, and the tokenizer of characters: its ids are the first of the vocabulary."""
    tokenizer = character_tokenizer()
    config = transformers.Qwen3Config(
        **SHAPES["toy" if small else "0.6b"], eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def run(way: str, model: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The usual loop: 8 × 8 rows of 256 tokens, evaluation off."""
    cfg = TrainingConfig(
        **WAYS[way], product="language", environment="addition", model_name=str(model), output_dir=str(folder / way),
        device=options.device, dtype="bfloat16", num_episodes=options.leak_steps, num_generations=8, tasks_per_step=8,
        max_new_tokens=8 if options.toy else 256, per_device_train_batch_size=16, gradient_accumulation_steps=4,
        lr_scheduler_type="constant", warmup_ratio=0.0, eval_steps=0, group_log_steps=0, save_steps=10_000,
    )  # fmt: skip
    gaps: list[dict[str, float]] = []

    def build(cfg: TrainingConfig) -> Parts:
        parts = product.build(cfg, reward=per_attempt(parity))
        gaps.append(logp_gap(parts, cfg))
        return parts

    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    steps, memory = [], []
    for event in execute(create_run(cfg), build):
        if event.type == "step":
            steps.append(event.data)
            memory.append(round(torch.cuda.memory_allocated() / 2**30, 4))
    timing = {phase: median(s["timing"][phase] for s in steps[1:]) for phase in ("rollout", "update", "total")}
    return {
        "claims": {
            "peak_gib": gib(torch.cuda.max_memory_allocated()), "steps": len(steps), **gaps[0],
            **{f"{phase}_seconds": round(value, 3) for phase, value in timing.items()},
            "skipped": sum(s["metrics"]["optim/skipped"] for s in steps),
        },
        "memory_gib": memory,
        "timing": [s["timing"] for s in steps],
    }  # fmt: skip


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
    started = time.perf_counter()
    main()
    print(f"{time.perf_counter() - started:.0f} s in all", file=sys.stderr)
