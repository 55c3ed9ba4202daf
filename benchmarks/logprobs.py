"""Peak memory and time of log-probabilities and entropies, forward and backward, as the vocabulary grows.

    python benchmarks/logprobs.py --device cpu --json

Each case runs in a process of its own. Its peak is what it takes beyond its inputs: the weights, and where the output
embedding is trained, that embedding's gradient, which any method must make. On a CPU the peak is the process's
largest resident set and time is the processor's, on a GPU the peak is the allocator's. `plain` computes the logits of
all tokens at once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from record import print_result
from torch import Tensor

from groupwise.language.logprobs import token_logprobs

VOCABULARIES = (16384, 32768, 131072)
WAYS = ("chunked", "plain")


def plainly(hidden: Tensor, weight: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax((hidden @ weight.T).float(), -1)
    return logp.gather(1, tokens[:, None]).squeeze(1), -(logp.exp() * logp).sum(-1)


def resident(name: str) -> int:
    """A field of the process's memory status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def measure(case: dict[str, Any]) -> dict[str, float]:
    """Peak bytes of the first pass and the median seconds of the others."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device, vocabulary, width, count = case["device"], case["vocabulary"], case["width"], case["tokens"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    hidden = torch.randn(count, width, device=device, dtype=dtype, requires_grad=True)
    weight = (0.02 * torch.randn(vocabulary, width, device=device)).to(dtype).requires_grad_(case["trained"])
    tokens = torch.randint(vocabulary, (count,), device=device)
    compute = token_logprobs if case["way"] == "chunked" else plainly
    warm = compute(hidden[:2], weight.detach()[:64], tokens[:2] % 64)
    (warm[0] + warm[1]).sum().backward()

    now = time.perf_counter if device == "cuda" else time.process_time  # one thread: neighbours do not count

    def once() -> float:
        hidden.grad = weight.grad = None
        if device == "cuda":
            torch.cuda.synchronize()
        clock = now()
        logp, entropy = compute(hidden, weight, tokens)
        (logp.sum() + 0.1 * entropy.sum()).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        return now() - clock

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        once()
        peak = torch.cuda.max_memory_allocated() - before
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the inputs
        before = resident("VmRSS")
        once()
        peak = resident("VmHWM") - before
    own = weight.numel() * weight.element_size() if case["trained"] else 0
    return {"peak_bytes": peak - own, "seconds": median(once() for _ in range(case["repeats"]))}


def run(case: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = {**case, **json.loads(output.splitlines()[-1])}
    print(
        f"{result['way']:8} vocabulary {result['vocabulary']:7,}  {'trained' if result['trained'] else 'frozen ':7}"
        f"  {result['peak_bytes'] / 2**20:9.1f} MiB  {result['seconds'] * 1e3:9.1f} ms",
        file=sys.stderr,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, help="tokens whose log-probabilities are wanted")
    parser.add_argument("--width", type=int, help="size of a hidden state")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(json.loads(options.case))))
        return
    large = options.device == "cuda"
    shape = {"tokens": options.tokens or (16384 if large else 1024), "width": options.width or (1024 if large else 256)}
    cases = [
        run({"device": options.device, **shape, "repeats": options.repeats, "vocabulary": v, "way": way, "trained": t})
        for t in (False, True) for v in VOCABULARIES for way in WAYS
    ]  # fmt: skip
    found = {(c["way"], c["vocabulary"], c["trained"]): c for c in cases}
    small, big = VOCABULARIES[0], VOCABULARIES[-1]

    def ratio(field: str, over: tuple[Any, ...], under: tuple[Any, ...]) -> float:
        return round(float(found[over][field] / found[under][field]), 4)

    claims = {
        "peak_growth_frozen": ratio("peak_bytes", ("chunked", big, False), ("chunked", small, False)),
        "peak_growth_trained": ratio("peak_bytes", ("chunked", big, True), ("chunked", small, True)),
        "peak_growth_plain": ratio("peak_bytes", ("plain", big, False), ("plain", small, False)),
        "peak_vs_plain": ratio("peak_bytes", ("chunked", big, True), ("plain", big, True)),
        "seconds_vs_plain": ratio("seconds", ("chunked", big, True), ("plain", big, True)),
    }
    print_result("logprobs", claims, peers={"torch": torch.__version__}, raw=cases)


if __name__ == "__main__":
    main()
