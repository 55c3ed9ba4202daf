"""What the sandbox costs, and whether it says what plain CPython says.

    python benchmarks/sandbox.py --json --data ../shared/data

overhead: the median time of a run that does nothing, in Monty and in a fresh bubblewrap sandbox, the latter also beside
a fresh process of the same Python. gold: the programs of HumanEval and MBPP with their tests, each in a sandbox of its
own and in one process of plain CPython. mutants: the same with one operator changed, chosen by the task's name.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from record import print_result

from groupwise.agents.program_checks import SWAPS
from groupwise.sandbox import Bubblewrap, Monty, SandboxLimits, SandboxResult, available
from groupwise.sandbox.bubblewrap_command import as_nobody, found_interpreter

PATIENT = SandboxLimits(seconds=30.0, memory_mb=512)
BRIEF = SandboxLimits(seconds=3.0, memory_mb=512)
LARGEST = 1 << 30


@dataclass(frozen=True)
class Job:
    """A program and its tests; `tested` is the function they are about."""

    name: str
    code: str
    tests: str
    tested: str


def human_eval(data: Path) -> list[Job]:
    with gzip.open(data / "humaneval" / "HumanEval.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Job(row["task_id"], row["prompt"] + row["canonical_solution"], f"{row['test']}\ncheck({name})\n", name)
        for row in rows
        for name in [row["entry_point"]]
    ]


def mbpp(data: Path) -> list[Job]:
    rows = [json.loads(line) for line in (data / "mbpp" / "mbpp.jsonl").read_text().splitlines()]
    return [
        Job(
            f"MBPP/{row['task_id']}",
            row["code"],
            "\n".join([row["test_setup_code"], *row["test_list"]]),
            first_called(row["test_list"][0], row["code"]),
        )
        for row in rows
    ]


def first_called(test: str, code: str) -> str:
    """The first function of the code that a test calls."""
    defined = re.findall(r"^\s*def (\w+)", code, re.MULTILINE)
    return next((name for name in re.findall(r"(\w+)\s*\(", test) if name in defined), "")


def mutant(job: Job) -> Job | None:
    """The program with one operator changed; None where it has none."""
    tree = ast.parse(job.code.replace("\r\n", "\n"))
    places: list[tuple[ast.AST, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
            places.append((node, None))
        elif isinstance(node, ast.Compare):
            places += [(node, place) for place, op in enumerate(node.ops) if type(op) in SWAPS]
    if not places:
        return None
    node, place = random.Random(job.name).choice(places)
    if place is None:
        node.op = SWAPS[type(node.op)]()  # type: ignore[attr-defined]
    else:
        node.ops[place] = SWAPS[type(node.ops[place])]()  # type: ignore[attr-defined]
    return replace(job, code=ast.unparse(tree))


def in_one_process(job: Job, limits: SandboxLimits) -> bool:
    """Whether plain CPython lets the tests pass: code and tests in one file, as usual."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))

    try:
        ran = subprocess.run(
            [*as_nobody(), found_interpreter().program, "-I", "-S", "-"],
            input=f"{job.code}\n{job.tests}\n",
            text=True,
            timeout=limits.seconds,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=bounded,
        )
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


def compared(jobs: Sequence[Job], limits: SandboxLimits, sandbox: Bubblewrap, workers: int) -> dict[str, Any]:
    """What plain CPython and the sandbox say of the jobs, each in a sandbox of its own.

    Where they differ, both are asked again, alone and with five times the time: a busy machine decides nothing.
    """
    with ThreadPoolExecutor(workers) as threads:
        plain = list(threads.map(lambda job: in_one_process(job, limits), jobs))
        start = time.perf_counter()
        boxed = list(threads.map(lambda job: in_a_sandbox(job, limits, sandbox), jobs))
        seconds = time.perf_counter() - start
    asked_again = [place for place, (ok, ran) in enumerate(zip(plain, boxed, strict=True)) if ok != ran.passed]
    patient = replace(limits, seconds=5 * limits.seconds)
    for place in asked_again:
        plain[place] = in_one_process(jobs[place], patient)
        boxed[place] = in_a_sandbox(jobs[place], patient, sandbox)
    pairs = list(zip(jobs, plain, boxed, strict=True))
    return {
        "programs": len(jobs),
        "passed_plain": sum(plain),
        "passed_sandbox": sum(ran.passed for ran in boxed),
        "asked_again": [jobs[place].name for place in asked_again],
        "lost": [[job.name, ran.outcome, ran.message] for job, ok, ran in pairs if ok and not ran.passed],
        "gained": [job.name for job, ok, ran in pairs if ran.passed and not ok],
        "outcomes": {name: sum(ran.outcome == name for ran in boxed) for name in sorted({r.outcome for r in boxed})},
        "seconds": seconds,
    }


def in_a_sandbox(job: Job, limits: SandboxLimits, sandbox: Bubblewrap) -> SandboxResult:
    return sandbox.run(job.code, limits=limits, tests=job.tests, call=job.tested)


def times(run: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of so many runs."""
    found: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        found.append(1000 * (time.perf_counter() - start))
    return found


def middle(values: Sequence[float]) -> tuple[float, float]:
    """A 95% interval of the median, by order statistics."""
    ordered, count = sorted(values), len(values)
    half = round(0.98 * count**0.5)
    return ordered[max(count // 2 - half, 0)], ordered[min(count // 2 + half, count - 1)]


def overhead(sandbox: Bubblewrap, quick: bool) -> dict[str, list[float]]:
    """Times of runs that do nothing; cold sandboxes and plain processes by turns, to meet the same machine."""
    count = 10 if quick else 60
    cold: list[float] = []
    plain: list[float] = []
    program = found_interpreter().program
    for _ in range(count):
        cold += times(lambda: sandbox.run("def f(x): return x", {"x": 1}, PATIENT, call="f"), 1)
        plain += times(lambda: subprocess.run([program, "-I", "-S", "-c", "def f(x): return x\nf(1)"], check=True), 1)
    start = time.perf_counter()
    ran = sandbox.run_group(["def f(x): return x"] * count, {"x": 1}, PATIENT, call="f")
    group = 1000 * (time.perf_counter() - start) / count
    assert all(one.passed for one in ran)
    with Monty() as monty:
        monty.run("1 + 1")
        first = times(lambda: monty.run("x + 1", {"x": 1}), 100 if quick else 1000)
        given = {"double": lambda x: 2 * x}
        called = times(lambda: monty.run("double(x)", {"x": 1}, given), 100 if quick else 1000)
    return {"tier1": first, "tier1_call": called, "cold": cold, "plain": plain, "group": [group]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object (it always does)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with humaneval/ and mbpp/")
    parser.add_argument("--quick", action="store_true", help="a tenth of the programs")
    options = parser.parse_args()
    workers = 2
    not_run: dict[str, str] = {tier: fault for tier, fault in available().items() if fault}
    if not_run:
        print_result("sandbox", {}, not_run=not_run)
        return
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    with Bubblewrap(workers) as sandbox:
        found = overhead(sandbox, options.quick)
        medians = {name: statistics.median(values) for name, values in found.items()}
        claims["tier1_median_ms"] = medians["tier1"]
        claims["tier1_with_a_call_median_ms"] = medians["tier1_call"]
        claims["tier2_cold_median_ms"] = medians["cold"]
        claims["tier2_cold_over_plain_python_ms"] = medians["cold"] - medians["plain"]
        claims["tier2_in_a_group_ms"] = medians["group"]
        raw["milliseconds"] = {name: [round(value, 3) for value in values] for name, values in found.items()}
        intervals = {
            f"{name}_median_ms": middle(found[key]) for name, key in (("tier1", "tier1"), ("tier2_cold", "cold"))
        }
        for name, load in (("humaneval", human_eval), ("mbpp", mbpp)):
            try:
                jobs = load(options.data)[:: 10 if options.quick else 1]
            except OSError as error:
                not_run[name] = str(error)
                continue
            mutants = [changed for job in jobs if (changed := mutant(job)) is not None]
            for kind, some, limits in (("", jobs, PATIENT), ("_mutants", mutants, BRIEF)):
                said = compared(some, limits, sandbox, workers)
                raw[f"{name}{kind}"] = said
                claims |= {f"{name}{kind}_{key}": said[key] for key in ("programs", "passed_plain", "passed_sandbox")}
                claims[f"{name}{kind}_lost"] = len(said["lost"])
                claims[f"{name}{kind}_gained"] = len(said["gained"])
                claims[f"{name}{kind}_seconds"] = round(said["seconds"], 1)
                print(f"{name}{kind}: {said}"[:400], file=sys.stderr)
    print_result("sandbox", claims, intervals=intervals, raw=raw, not_run=not_run)


if __name__ == "__main__":
    main()
