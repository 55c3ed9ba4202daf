"""A whole GRPO step on the tiny model, against TRL's GRPOTrainer: generate, reward, advantages, update.

    python benchmarks/lm_step.py --device cpu --against trl --json

Both sides have the same model and prompts: 4 prompts of 32 tokens × 8 samples × 64 new tokens, never stopping early,
temperature 1, the whole vocabulary, float32, one micro-batch, no gradient checkpointing, AdamW (fused), no KL term,
one pass over each batch, one thread. Ours is the real source and learner; TRL's is its real trainer with Transformers'
`generate` (no vLLM), without logging, saving or progress bars.

Each side lives in a process of its own, and the two take turns, so that a busy moment of the machine hits both; the
first rounds are not counted. Claims are medians, a ratio is the median over rounds of that round's ratio, intervals
are quartiles. Every step is checked: 2,048 sampled tokens, and weights that moved. Names with `cpu` are of processor
time: on a busy machine they say more than the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from record import print_result

PROMPTS, SAMPLES, TOKENS, PROMPT_LENGTH = 4, 8, 64, 32
LEARNING_RATE = 1e-4
MODEL = "./model"
WARM_UP = {"step": 2, "generate": 1}  # rounds that are not counted
SHAPES = {"8x64": (8, 64), "32x64": (32, 64), "8x256": (8, 256), "8x1024": (8, 1024)}
SHAPES_ASKED = {name: {"do": "generate", "samples": s, "tokens": t} for name, (s, t) in SHAPES.items()}
Seconds: TypeAlias = NDArray[np.float64]  # by the wall clock, of processor time
PEERS = ("torch", "transformers", "trl", "accelerate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--against", choices=("trl", "none"), default="trl")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each side")
    parser.add_argument(
        "--long-rounds", type=int, default=5, help="timed rounds of the other shapes; 0 leaves them out"
    )
    parser.add_argument("--kv-heads", type=int, choices=(1, 2, 4), default=4, help="of the model's four heads")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve({"ours": Ours, "trl": Trl}[options.side], options.device, options.kv_heads)
        return
    names = ["ours"] if options.against == "none" else ["ours", "trl"]
    sides = {name: Side(name, options.device, options.kv_heads) for name in names}
    raw = {
        "steps": alternate(sides, {"step": {"do": "step"}}, options.rounds),
        "peak_bytes": {name: side.ask({"do": "peak"})["bytes"] for name, side in sides.items()},
        "shapes": alternate(sides, SHAPES_ASKED, options.long_rounds),
    }
    for side in sides.values():
        side.close()
    claims, intervals = summarise(raw, names)
    if not options.json:
        for name, value in claims.items():
            print(f"{name:36} {value:10.4f}   {intervals.get(name, '')}")
    print_result(
        "lm_step", claims, seeds=[0], intervals=intervals, raw=raw,
        peers={name: version(name) for name in PEERS if name != "trl" or options.against == "trl"},
        not_run={} if options.against == "trl" else {"trl": "asked for none"},
    )  # fmt: skip


class Side:
    """A child process that does what it is asked, one thing at a time."""

    def __init__(self, name: str, device: str, kv_heads: int) -> None:
        command = [sys.executable, __file__, "--side", name, "--device", device, "--kv-heads", str(kv_heads)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(wish) + "\n")
        self.child.stdin.flush()
        for line in self.child.stdout:  # TRL prints a line of its own here and there
            if line.startswith('{"answer"'):
                answer: dict[str, Any] = json.loads(line)["answer"]
                return answer
        raise SystemExit(f"{self.child.args} ended with {self.child.wait()}")

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait()


def alternate(
    sides: Mapping[str, Side], wishes: Mapping[str, Mapping[str, Any]], rounds: int
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Answers by side and wish, the sides taking turns with every wish."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {s: {w: [] for w in wishes} for s in sides}
    warm_up = max(WARM_UP[asked["do"]] for asked in wishes.values())
    for number in range(rounds + warm_up if rounds else 0):
        for wish, asked in wishes.items():
            for name, side in sides.items():
                answer = side.ask(asked)
                if number >= warm_up:
                    found[name][wish].append(answer)
    return found


def summarise(raw: Mapping[str, Any], names: list[str]) -> tuple[dict[str, float], dict[str, list[float]]]:
    steps = {name: raw["steps"][name]["step"] for name in names}
    series: dict[str, Any] = {}
    for name, answers in steps.items():
        assert all(a["tokens"] == PROMPTS * SAMPLES * TOKENS and a["moved"] > 0 for a in answers)
        for phase in answers[0]["phases"]:
            both = np.array([a["phases"][phase] for a in answers])
            series[f"{name}_{phase}_seconds"], series[f"{name}_{phase}_cpu_seconds"] = both.T
        series[f"{name}_step_tokens_per_second"] = PROMPTS * SAMPLES * TOKENS / series[f"{name}_step_seconds"]
        for shape, (samples, tokens) in SHAPES.items():
            if seconds := [a["seconds"] for a in raw["shapes"][name][shape]]:
                wall, cpu = 1000 * np.array(seconds).T / (PROMPTS * samples * tokens)
                series[f"{name}_ms_per_token_{shape}"], series[f"{name}_cpu_ms_per_token_{shape}"] = wall, cpu
        if f"{name}_ms_per_token_8x1024" in series:
            at = f"{name}_ms_per_token_"
            series[f"{name}_samples_32_vs_8"] = series[at + "32x64"] / series[at + "8x64"]
            series[f"{name}_tokens_1024_vs_256"] = series[at + "8x1024"] / series[at + "8x256"]
    if "trl" in names:
        for claim, phase in {
            "step_vs_trl_generate": "step", "generate_vs_trl": "generate", "update_vs_trl": "update",
        }.items():  # fmt: skip
            series[claim] = series[f"trl_{phase}_seconds"] / series[f"ours_{phase}_seconds"]
            series[f"cpu_{claim}"] = series[f"trl_{phase}_cpu_seconds"] / series[f"ours_{phase}_cpu_seconds"]
    claims = {name: round(float(np.median(values)), 5) for name, values in series.items()}
    claims |= {f"{name}_peak_mib": round(raw["peak_bytes"][name] / 2**20, 1) for name in names}
    quartiles = {name: np.quantile(values, (0.25, 0.75)).round(5).tolist() for name, values in series.items()}
    first = ("step_vs_trl_generate", "generate_vs_trl", "update_vs_trl")
    return {name: claims[name] for name in (*(f for f in first if f in claims), *sorted(claims))}, quartiles


def question(number: int, tokenizer: Any) -> Any:
    """A problem of as many random letters as make a prompt of 32 tokens with the chat template around them."""
    from groupwise.agents.data.problems import Problem

    empty = [{"role": "user", "content": ""}]
    template = tokenizer.apply_chat_template(empty, add_generation_prompt=True, return_dict=True)
    count = PROMPT_LENGTH - len(template["input_ids"])
    letters = np.random.default_rng(number).integers(ord("a"), ord("z") + 1, count)
    return Problem("".join(map(chr, letters)), answer="")


def random_prompts(tokenizer: Any) -> Any:
    return np.random.default_rng(0).integers(len(tokenizer.all_special_ids), len(tokenizer), (PROMPTS, PROMPT_LENGTH))


def vowels(text: str) -> float:
    """The reward: anything cheap that tells attempts apart."""
    return sum(letter in "aeiou" for letter in text) / TOKENS


class Clock:
    """Seconds of wrapped calls, by the wall clock and of processor time, until somebody takes them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.spent: dict[str, Seconds] = {}

    def now(self) -> Seconds:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return np.array([time.perf_counter(), time.process_time()])

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            result = function(*args, **kwargs)
            self.spent[name] = self.spent.get(name, np.zeros(2)) + self.now() - start
            return result

        return call

    def take(self) -> dict[str, Seconds]:
        spent, self.spent = self.spent, {}
        return spent


def serve(kind: Callable[[str], Ours | Trl], device: str, kv_heads: int) -> None:
    from groupwise.language.tiny import tiny_model

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in tiny_model(kv_heads=kv_heads):
            part.save_pretrained(MODEL)
        kind(device).serve(wishes(device))


def wishes(device: str) -> Iterator[dict[str, Any]]:
    """What the parent asks for; memory is answered here."""
    for line in sys.stdin:
        wish = json.loads(line)
        if wish["do"] == "peak":
            answer({"bytes": peak_bytes(device)})
        else:
            yield wish


def answer(given: Mapping[str, Any]) -> None:
    print(json.dumps({"answer": given}), flush=True)


def peak_bytes(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class Ours:
    """The language product's own source, learner and engine."""

    def __init__(self, device: str) -> None:
        from groupwise.agents.language_product import Completions, LanguageSource, sampling
        from groupwise.config import TrainingConfig
        from groupwise.language.engine import Engine
        from groupwise.language.loading import load_model
        from groupwise.language.policy import LanguagePolicy
        from groupwise.rewards.scoring import per_attempt
        from groupwise.training.batch_source import NumberedTasks
        from groupwise.training.learner import Learner
        from groupwise.training.machine import keep_freed_memory
        from groupwise.training.token_attempts import rows_of_tokens
        from groupwise.types import Task

        cfg = TrainingConfig(
            product="language", model_name=MODEL, device=device, num_episodes=10_000, max_new_tokens=TOKENS,
            num_generations=SAMPLES, tasks_per_step=PROMPTS, per_device_train_batch_size=PROMPTS * SAMPLES,
            gradient_accumulation_steps=1, learning_rate=LEARNING_RATE, lr_scheduler_type="constant", warmup_ratio=0.0,
        )  # fmt: skip
        language = load_model(MODEL, device=device)
        self.policy = LanguagePolicy(language.model)
        self.engine = Engine(language.model, language.tokenizer, slots=PROMPTS * 32, eos=())
        self.clock = Clock(device)
        rollout = Completions(self.engine, language.tokenizer, sampling(cfg), SAMPLES, cfg.run.seed)
        rollout.collect = self.clock.timed("generate", rollout.collect)  # type: ignore[method-assign]
        self.source = LanguageSource(
            cfg, self.policy, self.engine,
            tasks=NumberedTasks(lambda number: Task(f"letters/{number}", question(number, language.tokenizer), number)),
            rollout=rollout,
            reward=per_attempt(lambda task, attempt: vowels(attempt.meta["text"])),
            collate=rows_of_tokens,
        )  # fmt: skip
        keep_freed_memory()  # as every run does
        self.learner = Learner(self.policy, cfg)
        self.source.publish(self.policy)
        self.next = self.clock.timed("prepare", self.source.next)
        self.update = self.clock.timed("update", self.learner.update)
        self.prompts = random_prompts(language.tokenizer).tolist()

    def serve(self, wishes: Iterator[dict[str, Any]]) -> None:
        for wish in wishes:
            answer(self.step() if wish["do"] == "step" else self.generate(wish["samples"], wish["tokens"]))
        self.source.close()

    def step(self) -> dict[str, Any]:
        weight = self.policy.model.model.layers[0].mlp.up_proj.weight
        before = weight.detach().clone()
        start = self.clock.now()
        batch = self.next()
        self.update(batch)
        self.source.publish(self.policy)
        seconds = self.clock.now() - start
        moved = float((weight.detach() - before).abs().max())
        return {"tokens": batch.samples, "moved": moved, "phases": phases(seconds, self.clock.take())}

    def generate(self, samples: int, tokens: int) -> dict[str, list[float]]:
        from groupwise.language.engine import SamplingParams

        requests = [(prompt, seed) for prompt in self.prompts for seed in range(samples)]
        start = self.clock.now()
        results = self.engine.generate(requests, SamplingParams(max_new_tokens=tokens))
        seconds = self.clock.now() - start
        assert all(len(result) == tokens for result in results)
        return {"seconds": seconds.tolist()}


class Trl:
    """TRL's trainer, halted by a callback between its steps."""

    def __init__(self, device: str) -> None:
        import pyarrow
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        from groupwise.language.loading import load_model

        language = load_model(MODEL, device=device)
        prompts = pyarrow.table({"prompt": [question(number, language.tokenizer).messages for number in range(1024)]})
        self.model, self.clock, self.tokens = language.model, Clock(device), 0
        args = GRPOConfig(
            output_dir="trl", use_cpu=device == "cpu", bf16=False, gradient_checkpointing=False, max_steps=10_000,
            per_device_train_batch_size=PROMPTS * SAMPLES, gradient_accumulation_steps=1, steps_per_generation=1,
            num_generations=SAMPLES, max_completion_length=TOKENS, num_iterations=1, beta=0.0, temperature=1.0,
            generation_kwargs={"min_new_tokens": TOKENS, "use_cache": True}, shuffle_dataset=False,
            learning_rate=LEARNING_RATE, lr_scheduler_type="constant", warmup_steps=0, max_grad_norm=1.0,
            logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        self.trainer = GRPOTrainer(
            model=self.model,
            processing_class=language.tokenizer,
            args=args,
            reward_funcs=lambda completions, **_: [vowels(c[0]["content"]) for c in completions],
            train_dataset=Dataset(prompts, fingerprint="letters"),  # named, so that nothing is hashed
        )
        self.trainer._generate = self.clock.timed("generate", self._counting(self.trainer._generate))
        self.trainer._prepare_inputs = self.clock.timed("prepare", self.trainer._prepare_inputs)
        self.prompts = torch.from_numpy(random_prompts(language.tokenizer))

    def _counting(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        def call(prompts: list[Any]) -> Any:
            result = generate(prompts)
            assert all(len(ids) == PROMPT_LENGTH for ids in result[0])
            self.tokens = sum(len(ids) for ids in result[1])
            return result

        return call

    def serve(self, wishes: Iterator[dict[str, Any]]) -> None:
        from transformers import TrainerCallback

        side, weight = self, self.model.model.layers[0].mlp.up_proj.weight

        class Halt(TrainerCallback):  # type: ignore[misc]
            """Waits for orders before a step and reports after it."""

            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                for wish in wishes:
                    if wish["do"] == "step":
                        self.before = weight.detach().clone()
                        self.start = side.clock.now()
                        return
                    answer(side.generate(wish["samples"], wish["tokens"]))
                raise EOFError

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                seconds = side.clock.now() - self.start
                spent = side.clock.take()
                spent["update"] = seconds - spent["prepare"]
                moved = float((weight.detach() - self.before).abs().max())
                answer({"tokens": side.tokens, "moved": moved, "phases": phases(seconds, spent)})

        self.trainer.add_callback(Halt())
        try:
            self.trainer.train()
        except EOFError:
            return

    @torch.no_grad()
    def generate(self, samples: int, tokens: int) -> dict[str, list[float]]:
        """Transformers' `generate`, as the trainer calls it."""
        ids = self.prompts.repeat_interleave(samples, 0).to(self.model.device)
        self.model.eval()
        start = self.clock.now()
        result = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=tokens, min_new_tokens=tokens, use_cache=True, pad_token_id=0,
        )  # fmt: skip
        seconds = self.clock.now() - start
        self.model.train()
        assert result.shape[1] == PROMPT_LENGTH + tokens
        return {"seconds": seconds.tolist()}


def phases(seconds: Seconds, spent: Mapping[str, Seconds]) -> dict[str, list[float]]:
    """The parts of a step: generate, score (with advantages and tensors), update, and the whole."""
    score = spent["prepare"] - spent["generate"]
    parts = {"step": seconds, "generate": spent["generate"], "score": score, "update": spent["update"]}
    return {name: part.tolist() for name, part in parts.items()}


if __name__ == "__main__":
    main()
