"""Do TRL's own scripts and documentation blocks train here with another import line, model and data set?

    git clone https://github.com/huggingface/trl
    pip install math-verify latex2sympy2_extended num2words trackio      # what the scripts themselves list
    python benchmarks/trl_scripts.py --trl trl --json

Every case is read from the checkout (and `trl/scripts/grpo.py` from the installed package), never copied. Changed are
the lines that import from `trl` (`GRPOTrainer` comes from groupwise, and `GRPOConfig` too unless TRL's own command line
makes it), the model (a small Qwen3 shape with Qwen3's chat template, taught here to say one of `SAYINGS`, tool calls
among them), the data set (rows with the same columns, made here), and the counts of rows and steps, so that a CPU is
enough. A case passes if its process ends with status 0 and its run made all its steps and scored attempts; `learns`
says how many had a group whose rewards differed. (In the page's block on several tasks, rows of the task "code" are
scored by neither function, which looks for "coding": they count as failed.)

`trl_replay_gap` is the largest difference between a final weight of TRL's trainer and of ours after three steps in
float32, both fed the same samples.

Claims: `trl_scripts` (cases that pass), `cases`, `learns`, `trl_replay_gap`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from record import print_result
from templates import TOOLS, shipped, tokenizer_for, trained_base

PAGE, SCRIPTS = "docs/source/grpo_trainer.md", "examples/scripts"
ROWS = 2
USUAL = ["--model_name_or_path", "MODEL", "--output_dir", "out", "--max_steps", "2", "--max_completion_length", "24",
         "--use_cpu", "--bf16", "False", "--learning_rate", "1e-3"]  # fmt: skip
DATA = """
from datasets import Dataset, DatasetDict
SUMS = [(n, n + 1) for n in range(2, {rows} + 2)]
MADE = {{
    "trl-lib/DeepMath-103K": [
        {{"prompt": [{{"role": "user", "content": f"{{a}}+{{b}}?"}}], "solution": f"${{a + b}}$"}} for a, b in SUMS],
    "AI-MO/NuminaMath-TIR": [
        {{"problem": f"{{a}}+{{b}}?", "messages": [], "solution": f"${{a + b}}$"}} for a, b in SUMS],
    "openai/gsm8k": [{{"question": f"{{a}}+{{b}}?", "answer": f"so #### {{a + b}}"}} for a, b in SUMS],
    "qgallouedec/biogrid": [
        {{"Official Symbol": "JNKK", "Alt IDs Interactor A": f"gene:{{a}}", "Score": b}} for a, b in SUMS],
    "qgallouedec/biogrid_qa": [
        {{"question": f"Does the gene {{a}} interact with {{b}}?", "answer": "Yes"}} for a, b in SUMS],
}}

def load_dataset(path, *_, split=None, **__):
    made = Dataset.from_list(MADE[path])
    if isinstance(split, list):
        return [made] * len(split)
    return DatasetDict(train=made, test=made) if split is None else made
"""


@dataclass(frozen=True)
class Case:
    """A script or a block of a page: `block` is a text that only this block has."""

    name: str
    path: str
    block: str = ""
    arguments: tuple[str, ...] = ()
    before: str = ""  # names that a block takes from the page around it
    changes: Mapping[str, str] = field(default_factory=dict)  # counts of rows and steps

    def source(self, checkout: Path) -> str:
        package = Path(str(find_spec("trl").origin)).parents[1]  # type: ignore[union-attr]
        text = ((package if self.path.startswith("trl/") else checkout) / self.path).read_text("utf8")
        if not self.block:
            return text
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        return next(block for block in blocks if self.block in block)


SCORED = "def reward_func(completion_ids, **kwargs):\n    return [float(len(ids)) for ids in completion_ids]\n"
CHECKS = "check_math_solution = test_code_solution = lambda prompt, completion: len(completion) % 2\n"
STEPS = {"max_steps=1000": "max_steps=2, max_completion_length=32"}
CASES = (
    Case("examples/grpo_2048", f"{SCRIPTS}/grpo_2048.py", changes={"range(1000)": f"range({ROWS})", "2048,": "48,"}),
    Case("examples/grpo_agent", f"{SCRIPTS}/grpo_agent.py", arguments=tuple(USUAL)),
    Case("examples/gspo", f"{SCRIPTS}/gspo.py", arguments=(
        *USUAL, "--importance_sampling_level", "sequence", "--epsilon", "3e-4", "--epsilon_high", "4e-4", "--beta",
        "0.0", "--loss_type", "grpo", "--gradient_accumulation_steps", "2", "--steps_per_generation", "8",
        "--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--log_completions")),
    Case("examples/grpo_continuous_batching", f"{SCRIPTS}/grpo_continuous_batching.py", arguments=(
        *USUAL, "--use_peft", "--log_completions")),
    Case("scripts/grpo", "trl/scripts/grpo.py", arguments=(
        *USUAL, "--dataset_name", "trl-lib/DeepMath-103K", "--reward_funcs", "accuracy_reward", "think_format_reward",
        "get_soft_overlong_punishment")),
    Case("README", "README.md", "GRPOTrainer("),
    Case("quickstart", "docs/source/quickstart.md", "GRPOTrainer("),
    Case("page: quick start", PAGE, "# train_grpo.py"),
    Case("page: several tasks", PAGE, "def math_reward_func", before=CHECKS),
    Case("page: an environment that makes its tasks", PAGE, "self-sample the task", changes=STEPS),
    Case("page: an environment and its data", PAGE, '"target": list(range(1, 7))'),
    Case("page: several environments", PAGE, "class CodingEnv", before=SCORED, changes={"500": str(ROWS)}),
)  # fmt: skip


def changed(case: Case, source: str, model: Path) -> str:
    """The source with other imports, model and data."""
    ours = ["GRPOTrainer"] if "TrlParser" in source else ["GRPOTrainer", "GRPOConfig"]

    def other(found: re.Match[str]) -> str:
        names = [name.strip() for name in found["names"].strip("()").replace("\n", " ").split(",") if name.strip()]
        taken, left = [n for n in names if n in ours], [n for n in names if n not in ours]
        lines = [f"from groupwise import {', '.join(taken)}"] * bool(taken)
        lines += [f"from trl import {', '.join(left)}"] * bool(left)
        return "\n".join(found["space"] + line for line in lines)

    source = re.sub(r"(?m)^(?P<space> *)from trl import (?P<names>\([^)]*\)|[^\n]+)", other, source)
    source = re.sub(r"from datasets import load_dataset", "from data_made_here import load_dataset", source)
    source = re.sub(r'"Qwen/[^"]+"', repr(str(model)), source)
    for old, new in case.changes.items():
        assert old in source, (case.name, old)
        source = source.replace(old, new)
    return case.before + source


def say_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


SQL = "select * from interactions where Score = 3"
SAYINGS = (
    say_call("move", direction="up"), say_call("move", direction="left"), say_call("increment", step=1),
    say_call("query_biogrid", sql_command=SQL), say_call("run_code", code="1"), say_call("move", action="up"),
    "*yes*", "<think>\nhm\n</think>\n$5$", "\\boxed{5}", "\\boxed{7}", "#### 5", "no",
)  # fmt: skip


WORDS = ("what", "is", "2", "+", "3", "the", "gene", "board", "score", "tool", "of", "a", "move", "7")


def make_model(folder: Path) -> Path:
    """A model that says something from `SAYINGS`, whatever it is asked."""
    import random

    import torch
    import transformers

    tokenizer = tokenizer_for((shipped() / "qwen3.jinja").read_text("utf8"), trained_base())
    tokenizer.eos_token = "<|im_end|>"
    torch.manual_seed(0)
    shape = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=1536, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model, rng = transformers.Qwen3ForCausalLM(shape), random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), 5e-3)
    for step in range(280):
        said = rng.choices(SAYINGS, k=12)
        rows, answers = [], []
        # Long prompts, which list a tool, now and then.
        options = {"enable_thinking": step % 2 == 0, "tools": TOOLS[:1] if step % 8 == 0 else None}
        for text in said:
            question = " ".join(rng.choices(WORDS, k=3))
            messages = [{"role": "user", "content": question}]
            if rng.random() < 0.3:
                messages += [{"role": "assistant", "content": "so"}, {"role": "tool", "content": question}]
            asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
            rows.append(tokenizer.encode(asked, add_special_tokens=False))
            answers.append([*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id])
        longest = max(len(row) + len(answer) for row, answer in zip(rows, answers, strict=True))
        ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
        labels = torch.full_like(ids, -100)
        for n, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            ids[n, : len(row) + len(answer)] = torch.tensor(row + answer)
            labels[n, len(row) : len(row) + len(answer)] = torch.tensor(answer)
        optimiser.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run_case(case: Case, checkout: Path, model: Path, folder: Path, extra: str, seconds: float) -> dict[str, Any]:
    folder.mkdir(parents=True)
    (folder / "data_made_here.py").write_text(DATA.format(rows=ROWS))
    (folder / "script.py").write_text(changed(case, case.source(checkout), model))
    # What only the scripts need comes last on the path, so that it replaces nothing that we are tested with.
    start = (
        f"import sys, runpy; sys.path += {[extra] if extra else []!r}; sys.path.insert(0, '.'); sys.argv.pop(0); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    words = [str(model) if word == "MODEL" else word for word in case.arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    clock = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", start, "script.py", *words],
            cwd=folder, capture_output=True, text=True, timeout=seconds, env=environment, check=False,
        )  # fmt: skip
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        status, said = -1, f"longer than {error.timeout:g} s"
    (folder / "output.txt").write_text(said)
    found = outcome(folder)
    passed = status == 0 and found["steps"] > 0 and found["finished"] and found["failed_share"] < 1
    last = said.strip().splitlines()[-1:] if not passed else []
    return {"case": case.name, "passed": passed, "status": status, **found, "last_line": last,
            "seconds": time.perf_counter() - clock}  # fmt: skip


def outcome(folder: Path) -> dict[str, Any]:
    """What the run's own log says."""
    logs = sorted(folder.glob("*/*/events.jsonl"))
    events = [json.loads(line) for line in logs[-1].read_text().splitlines()] if logs else []
    steps = [event["data"]["metrics"] for event in events if event["type"] == "step"]
    failed = [step.get("groups/failed_share") or 0.0 for step in steps]
    return {
        "steps": len(steps), "finished": any(event["type"] == "end" for event in events),
        "failed_share": sum(failed) / len(failed) if failed else 1.0,
        "rewards": [step.get("reward/mean") for step in steps],
        "spread": max((step.get("reward/std") or 0.0 for step in steps), default=0.0),
    }  # fmt: skip


def replay_gap() -> float:
    """The largest difference between the final weights of both trainers, fed the same samples."""
    import torch
    import trl
    from datasets import Dataset

    import groupwise
    from groupwise.language.loading import load_model

    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(12)]

    def spread(completions: list[str], **columns: Any) -> list[float]:
        return [sum(map(ord, text)) % 17 / 4 for text in completions]

    def sampler(tokenizer: Any) -> Any:
        calls = 0

        def sample(prompts: list[str], trainer: Any) -> dict[str, Any]:
            nonlocal calls
            calls += 1
            made: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
            for place, prompt in enumerate(prompts):
                generator, length = torch.Generator().manual_seed(1000 * calls + place), 2 + place % 4
                ids = torch.randint(10, 90, (length,), generator=generator).tolist()
                made["prompt_ids"].append(tokenizer.encode(prompt))
                made["completion_ids"].append([*ids, tokenizer.eos_token_id])
                made["logprobs"].append([-4.0] * (length + 1))
            return made

        return sample

    weights = []
    for library in (trl, groupwise):
        language = load_model("tiny")
        with tempfile.TemporaryDirectory() as folder:
            # With Adam's default epsilon, a gradient of rounding errors alone would move a weight by a whole step.
            args = library.GRPOConfig(
                output_dir=folder, max_steps=3, per_device_train_batch_size=8, num_generations=4, use_cpu=True,
                max_completion_length=6, learning_rate=1e-3, bf16=False, gradient_checkpointing=False,
                disable_tqdm=True, shuffle_dataset=False, adam_epsilon=1e-5, report_to="none", logging_steps=1,
            )  # fmt: skip
            trainer = library.GRPOTrainer(
                model=language.model, reward_funcs=spread, args=args, train_dataset=Dataset.from_list(rows),
                processing_class=language.tokenizer, rollout_func=sampler(language.tokenizer),
            )  # fmt: skip
            trainer.train()
        weights.append(trainer.model.state_dict())
    theirs, ours = weights
    moved = max(float((theirs[name] - w).abs().max()) for name, w in load_model("tiny").model.state_dict().items())
    assert moved > 1e-3, "nothing was learned"
    return max(float((theirs[name] - ours[name]).abs().max()) for name in theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", type=Path, required=True, help="a checkout of TRL's repository")
    parser.add_argument("--extra", default="", help="a folder of packages that only the scripts need")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--keep", type=Path, help="a folder for the changed scripts, their runs and what they print")
    parser.add_argument("--seconds", type=float, default=900, help="the longest that a case may take")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = (options.keep or Path(passing)).resolve()
        model = make_model(folder / "model")
        cases = [case for case in CASES if options.only in case.name]
        results = []
        for number, case in enumerate(cases):
            place = folder / f"{number}-{re.sub('[^a-z0-9]+', '-', case.name.lower())}"
            results.append(run_case(case, options.trl.resolve(), model, place, options.extra, options.seconds))
            if not options.json:
                one = results[-1]
                word = "trains" if one["passed"] else f"FAILS: {one['last_line']}"
                print(f"{case.name}: {word} ({one['steps']} steps, {one['seconds']:.0f} s)", flush=True)
    claims = {
        "trl_scripts": sum(one["passed"] for one in results), "cases": len(results),
        "learns": sum(one["spread"] > 0 for one in results), "trl_replay_gap": replay_gap(),
    }  # fmt: skip
    print_result("trl_scripts", claims, raw={"cases": results})


if __name__ == "__main__":
    main()
