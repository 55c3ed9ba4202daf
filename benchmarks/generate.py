"""The engine against Hugging Face's `generate` on the tiny model: same prompts, sampling and lengths, one thread.

    python benchmarks/generate.py --json

The two take turns, so that a busy moment of the machine hits both; the first round of each is not counted, and every
number is a median. Both sample at temperature 1 from the whole vocabulary and never stop early.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from record import print_result

from groupwise.language.engine import Engine, SamplingParams
from groupwise.language.tiny import tiny_model

PROMPTS, PROMPT_LENGTH = 4, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds of the comparison, at least 5")
    parser.add_argument("--long-rounds", type=int, default=5, help="timed rounds of the longer shapes")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    say: Callable[[str], None] = (lambda _: None) if options.json else print
    bench = Bench(*tiny_model())
    raw = {
        "8 samples, 64 tokens": bench.compare(8, 64, options.rounds),
        "8 and 32 samples, 64 tokens": bench.compare_engine([(8, 64), (32, 64)], options.rounds),
        "256 and 1024 tokens, 8 samples": bench.compare_engine([(8, 256), (8, 1024)], options.long_rounds),
    }
    claims, intervals = summarise(raw)
    for name, value in claims.items():
        say(f"{name:32} {value:8.4f}   {intervals.get(name, '')}")
    print_result(
        "generate", claims, seeds=[0], intervals=intervals, raw=raw,
        peers={"transformers": transformers.__version__, "torch": torch.__version__},
    )  # fmt: skip


class Bench:
    """One model, its engine, and prompts."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.engine = Engine(model, tokenizer, slots=PROMPTS * 32, eos=())
        first = len(tokenizer.all_special_ids)
        self.prompts = np.random.default_rng(0).integers(first, len(tokenizer), (PROMPTS, PROMPT_LENGTH)).tolist()

    def compare(self, samples: int, tokens: int, rounds: int) -> dict[str, list[float]]:
        """Seconds per call, the two taking turns."""
        ways = {"engine": self.by_engine, "hf": self.by_hf}
        return interleave({name: (lambda w=way: w(samples, tokens)) for name, way in ways.items()}, rounds)

    def compare_engine(self, shapes: list[tuple[int, int]], rounds: int) -> dict[str, list[float]]:
        """Seconds per call of the engine at several shapes, taking turns."""
        return interleave(
            {f"{s} samples, {t} tokens": (lambda s=s, t=t: self.by_engine(s, t)) for s, t in shapes}, rounds
        )

    def by_engine(self, samples: int, tokens: int) -> None:
        requests = [(prompt, seed) for prompt in self.prompts for seed in range(samples)]
        results = self.engine.generate(requests, SamplingParams(max_new_tokens=tokens))
        assert all(len(result) == tokens for result in results)

    def by_hf(self, samples: int, tokens: int) -> None:
        ids = torch.tensor(self.prompts).repeat_interleave(samples, 0)
        result = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=tokens, min_new_tokens=tokens, use_cache=True, pad_token_id=0,
        )  # fmt: skip
        assert result.shape[1] == PROMPT_LENGTH + tokens


def interleave(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def summarise(raw: dict[str, dict[str, list[float]]]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Medians as claims, quartiles as intervals; a ratio is the median over rounds of that round's ratio."""
    versus = raw["8 samples, 64 tokens"]
    series = {
        "generate_vs_hf": np.array(versus["hf"]) / np.array(versus["engine"]),
        "hf_ms_per_token": 1000 * np.array(versus["hf"]) / (PROMPTS * 8 * 64),
    }
    for case in ("8 and 32 samples, 64 tokens", "256 and 1024 tokens, 8 samples"):
        for shape, seconds in raw[case].items():
            samples, tokens = (int(part.split()[0]) for part in shape.split(", "))
            name = f"ms_per_token_{samples}x{tokens}"
            series[name] = 1000 * np.array(seconds) / (PROMPTS * samples * tokens)
    series["samples_32_vs_8"] = series["ms_per_token_32x64"] / series["ms_per_token_8x64"]
    series["tokens_1024_vs_256"] = series["ms_per_token_8x1024"] / series["ms_per_token_8x256"]
    claims = {name: round(float(np.median(values)), 5) for name, values in series.items()}
    quartiles = {name: np.quantile(values, (0.25, 0.75)).round(5).tolist() for name, values in series.items()}
    return claims, quartiles


if __name__ == "__main__":
    main()
