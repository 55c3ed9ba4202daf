"""The settings of examples/code_qwen.toml on models made here: do they run with a KL term, and is anything learned?

    python benchmarks/code_qwen.py --json                                       # on a GPU, about six minutes
    python benchmarks/code_qwen.py --json --device cpu --parts learn --processes 1

No weights are downloaded; both models have a byte-level tokenizer trained on the problems, and ChatML like Qwen's.

    scale   random weights in the shape of Qwen2.5-Coder-0.5B, with the example's settings as they are, for a few steps:
            seconds, memory, and the KL term towards the reference (the frozen weights without the adapter)
    learn   a Qwen3 of three million weights. A warm start trains all of them: random legal programs, then one round of
            search without a prior, and imitation of what it found. Then come the example's settings: LoRA, KL, GRPO and
            what searches find. Judged before and after on problems whose wordings never occur in training: greedily,
            and pass@1 over eight programs each. Beside it `placebo`, the same with scores shuffled in every group and
            search, for the first seed.

`gain` is the difference in pass@1, with Student's 95% interval over the seeds. Of the example's settings, `learn`
changes the model, the number of steps, the learning rate (1e-3: the model is 150 times smaller) and, on a CPU, the
device and its precision.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from record import print_result

from groupwise.config import load_config
from groupwise.programs.language.grammar import random_program
from groupwise.programs.learning.model import body_of, load_policy, prompt_of
from groupwise.programs.learning.product import build
from groupwise.programs.learning.rollout import ASK, problem_of
from groupwise.reporting.statistics import paired_difference
from groupwise.training.folder import create_run
from groupwise.training.session import execute

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "code_qwen.toml"
FAMILIES = ("word_problems", "transformations", "tables")
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
CODER = {
    "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "intermediate_size": 4864, "vocab_size": 151_936, "max_position_embeddings": 32_768, "rope_theta": 1e6,
}  # fmt: skip
CONTEXT = 1024
WARM = [
    "language.lora_rank=0", "language.dtype=float32", "optim.bf16=false", "policy.use_reference_model=false",
    "loss.beta=0", "optim.learning_rate=1e-3", "optim.per_device_train_batch_size=256", "run.eval_steps=0",
    "optim.gradient_accumulation_steps=1", "rollout.num_generations=2", "rollout.tasks_per_step=1",
    "task.options.imitate_rows=48", "task.options.imitate_weight=1.0", "task.options.search_every=1000",
    "task.options.search_problems=300",
]  # fmt: skip
ON_CPU = ["policy.device=cpu", "language.dtype=float32", "optim.bf16=false", "run.threads=1"]


def small_shape(layers: int, width: int) -> dict[str, float]:
    """A Qwen3 of three million weights with 4 layers of width 256: four heads, two of keys and values."""
    return {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": width // 4, "intermediate_size": 5 * width // 2, "max_position_embeddings": CONTEXT,
        "initializer_range": width**-0.5,
    }  # fmt: skip


def write_model(folder: Path, shape: dict[str, float] | None, *, device: str, seed: int) -> Path:
    """Save random weights, of the small shape or the example's, with a tokenizer trained on problems and programs."""
    tokenizer = trained_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    torch.manual_seed(seed)
    with torch.device(device):
        if shape:
            config: Any = transformers.Qwen3Config(**shape, **ends, vocab_size=len(tokenizer), tie_word_embeddings=True)
            model: Any = transformers.Qwen3ForCausalLM(config)
        else:
            config = transformers.Qwen2Config(**CODER, **ends, tie_word_embeddings=True)
            model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def trained_tokenizer() -> Any:
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500, special_tokens=[PAD, START, END], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    inner.train_from_iterator(texts(), trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=PAD, eos_token=END, additional_special_tokens=[START],
        chat_template=CHATML, model_max_length=CONTEXT,
    )  # fmt: skip


def texts() -> Iterator[str]:
    rng = random.Random(0)
    for family in FAMILIES:
        for number in range(200):
            problem = problem_of(family, number, "train", 1 + number % 3)
            yield ASK + prompt_of(problem)
            yield body_of(random_program(problem, rng))


def scale(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A few steps with the example's settings at the example's size."""
    model = write_model(folder / "coder", options.shape if options.small else None, device=options.device, seed=0)
    changes = [
        f"policy.model_name={model}",
        f"training.num_episodes={options.scale_steps}",
        "run.eval_steps=0",
        *options.set,
    ]
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    steps = [event.data for event in run(changes, options, folder, 0) if event.type == "step"]
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else 0.0
    return {
        "claims": {
            "scale_steps": len(steps), "scale_kl": [step["metrics"]["policy/reference_kl"] for step in steps],
            "scale_step_seconds": [round(step["timing"]["total"], 2) for step in steps],
            "scale_seconds": round(time.perf_counter() - began, 1), "scale_peak_gib": round(peak, 2),
        },
        "steps": steps,
    }  # fmt: skip


def run(changes: Sequence[str], options: argparse.Namespace, folder: Path, seed: int) -> Iterator[Any]:
    """The events of a run of the example with some settings changed, each announced as it comes."""
    fixed = [f"run.output_dir={folder}", "run.group_log_steps=0", "run.save_steps=10000", f"run.seed={seed}"]
    cfg = load_config(EXAMPLE, [*fixed, *(ON_CPU if options.device == "cpu" else []), *changes])
    for event in execute(create_run(cfg), build):
        if event.type in ("step", "eval", "hint", "error"):
            told = event.data.get("message") or {
                name: round(value, 4)
                for name, value in event.data["metrics"].items()
                if name in TOLD and value is not None
            }
            print(f"{time.strftime('%X')} seed {seed} {event.type} {event.step}: {told}", file=sys.stderr, flush=True)
        yield event


TOLD = ("reward/mean", "policy/reference_kl", "eval/accuracy", "eval/pass@1", "eval/format", "search/solved_share")


def warm_start(seed: int, options: argparse.Namespace, folder: Path) -> Path:
    """Return the folder of a small model that writes programs, some of them right."""
    new = write_model(folder / f"new-{seed}", options.shape, device=options.device, seed=seed)
    form, found = options.warm_steps
    name = f"warm-{seed}"
    changes = [f"policy.model_name={new}", f"run.run_name={name}", f"task.options.warm_steps={form}"]
    for _ in run([*WARM, *options.warm, *changes, f"training.num_episodes={form + found}"], options, folder, seed):
        pass
    policy, language = load_policy(folder / name)
    started = folder / f"started-{seed}"
    policy.model.save_pretrained(str(started))
    language.tokenizer.save_pretrained(str(started))
    return started


def learn_all(options: argparse.Namespace, folder: Path) -> dict[int, dict[str, Any]]:
    """What every seed learned, several at a time: a small model leaves most of a GPU idle."""
    arms = [("example", "placebo") if place < options.placebos else ("example",) for place in range(len(options.seeds))]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        found = pool.map(partial(learn, options=options, folder=folder), options.seeds, arms)
        return dict(zip(options.seeds, found, strict=True))


def learn(seed: int, arms: Sequence[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Success on held-out problems after the warm start and after the example's settings, and the same as a placebo."""
    began = time.process_time(), time.perf_counter()
    started = warm_start(seed, options, folder)
    steps = [
        f"policy.model_name={started}",
        f"training.num_episodes={options.steps}",
        f"run.eval_steps={options.steps}",
        f"optim.learning_rate={options.rate}",
    ]
    found: dict[str, Any] = {}
    for arm in arms:
        changes = ["task.options.placebo=true"] if arm == "placebo" else []
        metrics = [
            e for e in run([*steps, *changes, *options.set], options, folder, seed) if e.type in ("eval", "step")
        ]
        judged = [event.data["metrics"] for event in metrics if event.type == "eval"]
        kl = [event.data["metrics"].get("policy/reference_kl") for event in metrics if event.type == "step"]
        found[arm] = {"first": judged[0], "last": judged[-1], "kl": kl}
    spent = {"cpu_seconds": time.process_time() - began[0], "seconds": time.perf_counter() - began[1]}
    return {**found, **spent}


def summary(found: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, list[float]]]:
    claims: dict[str, Any] = {}
    intervals = {}
    for arm in ("example", "placebo"):
        those = [r for r in found if arm in r]
        if not those:
            continue
        for metric, suffix in (("eval/pass@1", "gain"), ("eval/accuracy", "greedy_gain")):
            last, first = (np.array([[r[arm][end][metric]] for r in those]) for end in ("last", "first"))
            interval = paired_difference(last, first).interval
            name = suffix if arm == "example" else f"{arm}_{suffix}"
            claims[name] = interval.value
            if len(those) > 1:
                intervals[name] = [interval.low, interval.high]
            if arm == "example":
                claims |= {f"{metric.removeprefix('eval/')}_{when}": float(rates.mean())
                           for when, rates in (("before", first), ("after", last))}  # fmt: skip
    claims["last_kl"] = [r["example"]["kl"][-1] for r in found]
    claims["seconds"] = round(sum(r["seconds"] for r in found), 1)
    return claims, intervals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--parts", nargs="+", choices=("scale", "learn"), default=["scale", "learn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    parser.add_argument("--steps", type=int, default=50, help="steps with the example's settings")
    parser.add_argument("--layers", type=int, default=4, help="of the small model")
    parser.add_argument("--width", type=int, default=256, help="of the small model")
    parser.add_argument("--scale-steps", type=int, default=3)
    parser.add_argument(
        "--warm-steps", type=int, nargs=2, default=[120, 150], help="steps that imitate random programs, and found ones"
    )
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of `learn`")
    parser.add_argument("--warm", nargs="*", default=[], help="changes of the warm start's settings")
    parser.add_argument("--set", nargs="*", default=[], help="changes of the example's settings")
    parser.add_argument("--placebos", type=int, default=1, help="seeds that also run the placebo, from the first")
    parser.add_argument("--processes", type=int, default=3, help="seeds at a time")
    parser.add_argument("--small", action="store_true", help="the small model for `scale` too, to try the script")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    options.shape = small_shape(options.layers, options.width)
    claims: dict[str, Any] = {}
    intervals: dict[str, list[float]] = {}
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        if "scale" in options.parts:
            raw["scale"] = scale(options, Path(name))
            claims |= raw["scale"]["claims"]
        if "learn" in options.parts:
            raw["learn"] = found = learn_all(options, Path(name))
            learned, intervals = summary(list(found.values()))
            claims |= learned
    print_result(
        "code_qwen", claims, seeds=options.seeds, intervals=intervals, raw=raw,
        peers={"torch": torch.__version__, "transformers": transformers.__version__},
        not_run={part: "not asked for" for part in ("scale", "learn") if part not in options.parts},
    )  # fmt: skip


if __name__ == "__main__":
    main()
