"""How long one design call takes, stage by stage, how that grows, and how much memory it needs.

    python benchmarks/workflow_design_call.py --json

stages: calls of one generation of 32 candidates for 30 activities, with learning on and a memory of 10,000 experiences
and 1,000 patterns in a file, after start-up; mean and spread of each stage beside the range that the first description
promised. Designs are judged by formulas; what simulations cost is listed apart: of the designs that are shown, and of
the samples that a learning policy is corrected by. scaling:
the time of a call against the batch, the number of activities and the number of experiences, each fitted as a power;
and the generations it takes to come within a tolerance of the best of a long run. footprint: the peak of the process
over many generations, beside 512 MB + 2 MB a generation + 1 KB an experience. A part is a function from options to
claims and raw numbers. One thread. With --processor, stages are timed in processor time, for machines that are busy
with other things.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import print_result

from groupwise.config.sections import MemorySettings, TrainingSettings
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.features import features_of, situation
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer
from groupwise.designer.policy import GraphPolicy, load_policy
from groupwise.designer.results.outcome import STAGES, DesignOutcome, generations_to
from groupwise.designer.sampling import preference_of_plan
from groupwise.designer.tasks import random_requirements
from groupwise.errors import ConfigError
from groupwise.memory import Experience, MemorySystem

Found = tuple[dict[str, Any], dict[str, Any]]
WORLDS = 2_000_000_000
ENDLESS = TrainingSettings(early_stopping=False)


def policy() -> GraphPolicy:
    """The one that ships; without one, random weights, which take as long."""
    try:
        return load_policy()
    except ConfigError:
        torch.manual_seed(0)
        return GraphPolicy().eval()


def full_memory(path: Path, experiences: int) -> MemorySystem:
    """A memory of so many experiences and a tenth as many patterns, made from those of a few real calls."""
    rng = np.random.default_rng(0)
    memory = open_memory(
        path, MemorySettings(experience_memory_size=experiences, pattern_memory_size=experiences // 10)
    )
    made = []
    for number in range(8):
        call = Designer(policy(), open_memory(":memory:")).begin(random_requirements(WORLDS + 900 + number, 30))
        call.generate()
        problem = call.prepared.problem
        draft = max(call.generations.drafts, key=lambda one: len(one.candidates))
        seen = situation(features_of(problem))
        made += [
            (seen, preference_of_plan(draft.plans, row), one.choices.tolist(), one.unit_order.tolist())
            for row, one in enumerate(draft.candidates)
        ]
    with memory.generation(1):
        for number in range(experiences):
            seen, habit, choices, order = made[number % len(made)]
            workflow = {"choices": choices, "unit_order": order}
            memory.store_experience(
                Experience({"name": f"{number}"}, workflow, {"score": 0.5}, {"origin": "sample"}), rng.uniform(0.1, 1)
            )
            if number % 10 == 0:
                features = {"features": seen + rng.normal(0, 0.1, len(seen))}
                habit = {
                    head: {"known": (rng.normal(0, 0.1, 8) + told["known"]).round(1).tolist()}
                    for head, told in habit.items()
                }
                memory.patterns.learn(memory.direction({}, features), habit, rng.uniform(0.5, 1))
    assert (len(memory.experiences), len(memory.patterns)) == (experiences, experiences // 10)
    return memory


def timed(designer: Designer, number: int, size: int, **limits: Any) -> tuple[DesignOutcome, float, float]:
    """A call, its seconds by the wall clock and of the processor; making up the requirements is not counted."""
    requirements = random_requirements(WORLDS + number, size)
    before = time.perf_counter(), time.process_time()
    outcome = designer.design(requirements, **limits)
    return outcome, time.perf_counter() - before[0], time.process_time() - before[1]


def stages_part(folder: Path, options: argparse.Namespace) -> Found:
    wall, shown, sampled = [], [], []
    stages: dict[str, list[float]] = {name: [] for name in STAGES}
    with full_memory(folder / "stages.sqlite", 10_000) as memory, Designer(policy(), memory, learn=True) as designer:
        for number in range(-3, options.calls):
            requirements = random_requirements(WORLDS + number + 10, 30)
            session = designer.begin(requirements)
            (metrics,) = session.search(generations=1)
            learned = metrics.updates[0].simulation
            outcome = session.outcome()
            if number < 0:
                continue
            taken = {**outcome.stages, "evaluation": outcome.stages["evaluation"] - learned}
            for name, seconds in taken.items():
                stages[name].append(seconds)
            wall.append(sum(taken.values()))
            shown.append(outcome.simulation)
            sampled.append(learned)
    claims: dict[str, Any] = {
        "design_ms": 1e3 * float(np.mean(wall)),
        "design_ms_std": 1e3 * float(np.std(wall)),
        "design_ms_p95": 1e3 * float(np.percentile(wall, 95)),
        "calls": len(wall),
        "simulation_of_results_ms": 1e3 * float(np.mean(shown)),
        "simulation_of_samples_ms": 1e3 * float(np.mean(sampled)),
        "stages_within": sum(float(np.mean(stages[name])) <= low for name, (low, _) in STAGES.items()),
    }
    table = {
        name: {
            "mean_ms": 1e3 * float(np.mean(taken)),
            "std_ms": 1e3 * float(np.std(taken)),
            "p95_ms": 1e3 * float(np.percentile(taken, 95)),
            "promised_ms": [1e3 * bound for bound in STAGES[name]],
        }
        for name, taken in stages.items()
    }
    claims |= {f"{name.replace(' ', '_')}_ms": row["mean_ms"] for name, row in table.items()}
    return claims, {"stages": table, "wall": wall}


def power(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def scaling_part(folder: Path, options: argparse.Namespace) -> Found:
    raw: dict[str, Any] = {}
    batches, sizes, memories = [16, 32, 64, 128, 256], [10, 20, 40, 80, 160], [1250, 2500, 5000, 10_000, 20_000]
    raw["batch"] = [_call(GenerationSettings(batch_size=batch), None, 30, options) for batch in batches]
    raw["size"] = [_call(GenerationSettings(), None, size, options) for size in sizes]
    raw["memory"] = []
    for count in memories:
        with full_memory(folder / f"{count}.sqlite", count) as memory:
            raw["memory"].append(_call(GenerationSettings(), memory, 10, options))
    with Designer(policy(), stopping=ENDLESS) as designer:
        runs = [timed(designer, n, 12, generations=options.long)[0] for n in range(options.repeats)]
    tolerances = [0.08, 0.04, 0.02, 0.01, 0.005]
    needed = [
        float(np.mean([generations_to([one.best for one in run.generations], tolerance) for run in runs]))
        for tolerance in tolerances
    ]
    raw["tolerance"] = needed
    claims = {
        "batch_exponent": power(batches, raw["batch"]),
        "size_exponent": power(sizes, raw["size"]),
        "memory_exponent": power(memories, raw["memory"]),
        "tolerance_exponent": -float(np.polyfit(np.log(tolerances), np.log(needed), 1)[0]),
    }
    return claims, raw


def _call(settings: GenerationSettings, memory: MemorySystem | None, size: int, options: argparse.Namespace) -> float:
    """The median processor time of one generation."""
    with Designer(policy(), memory, settings, learn=True) as designer:
        taken = [timed(designer, n, size, generations=1)[2] for n in range(options.repeats + 1)]
    return float(np.median(taken[1:]))


def footprint_part(folder: Path, options: argparse.Namespace) -> Found:
    """Run first: the peak of a process never falls."""
    with full_memory(folder / "footprint.sqlite", 10_000) as memory:
        with Designer(policy(), memory, stopping=ENDLESS, learn=True) as designer:
            timed(designer, 0, 30, generations=options.long)
        experiences = len(memory.experiences)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    formula = 512 + 2 * options.long + experiences / 1024
    return {"peak_mb": peak, "promised_mb": formula}, {"generations": options.long, "experiences": experiences}


PARTS = {"footprint": footprint_part, "stages": stages_part, "scaling": scaling_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--long", type=int, default=30, help="generations of a long run")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--processor", action="store_true", help="processor time instead of the wall clock")
    options = parser.parse_args()
    if options.processor:
        # Every stage of a call reads this clock, through the module.
        time.perf_counter = time.process_time
    torch.set_num_threads(1)
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PARTS:
            if name in options.parts:
                found, raw[name] = PARTS[name](Path(folder), options)
                claims |= found
                if not options.json:
                    print(found, flush=True)
    print_result("workflow_design_call", claims, seeds=[0], raw=raw)


if __name__ == "__main__":
    main()
