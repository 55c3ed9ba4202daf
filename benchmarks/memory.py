"""How fast memory is when it is full, and how large: 10,000 experiences and 1,000 patterns in one file.

    python benchmarks/memory.py --json

generation: one recall and 32 experiences stored, each in place of another, in one transaction; milliseconds by the wall
clock and of the processor; and of a `sync`, which waits for the disk, after every tenth. scaling: the processor time of
a generation against the number of experiences (patterns: a tenth of it), fitted as a power. footprint: bytes per
experience, in the file and in the process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from record import print_result

from groupwise.config import MemorySettings
from groupwise.memory import Experience, MemorySystem

WIDTH, BATCH = 32, 32
Found = tuple[dict[str, Any], dict[str, Any]]


def attempt(rng: np.random.Generator) -> Experience:
    """A small one: twenty choices for requirements of a name and a few numbers, about 300 bytes in all."""
    at = rng.uniform(0, 1, WIDTH).round(2).tolist()
    plan = rng.integers(0, 9, 20).tolist()
    return Experience({"at": at}, {"plan": plan}, {"score": round(rng.random(), 6)}, {"domain": "loans"})


def full_memory(path: Path, experiences: int, rng: np.random.Generator) -> MemorySystem:
    memory = MemorySystem(
        path,
        MemorySettings(experience_memory_size=experiences, pattern_memory_size=experiences // 10),
        features=lambda requirements, context: requirements["at"],
        width=WIDTH,
        generalise=lambda experience: experience.workflow,
    )
    with memory.generation(1):
        for number in range(experiences):
            made = attempt(rng)
            memory.store_experience(made, rng.uniform(0.1, 1))
            if number % 10 == 0:
                memory.learn(made)
    assert (len(memory.experiences), len(memory.patterns)) == (experiences, experiences // 10)
    return memory


def generations(memory: MemorySystem, count: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Milliseconds of so many generations: by the wall clock, of the processor; and of the `sync` after every tenth."""
    taken: dict[str, list[float]] = {"wall": [], "processor": [], "sync": []}
    for seq in range(memory.now + 1, memory.now + 1 + count):
        made = [attempt(rng) for _ in range(BATCH)]
        begun = time.perf_counter(), time.process_time()
        with memory.generation(seq):
            memory.recall_patterns(made[0].requirements, {})
            for experience in made:
                memory.store_experience(experience, 1.0)
        ended = time.perf_counter(), time.process_time()
        taken["wall"].append(1e3 * (ended[0] - begun[0]))
        taken["processor"].append(1e3 * (ended[1] - begun[1]))
        if seq % 10 == 0:
            memory.sync()
            taken["sync"].append(1e3 * (time.perf_counter() - ended[0]))
    return taken


def generation_part(folder: Path, count: int) -> Found:
    rng = np.random.default_rng(0)
    with full_memory(folder / "generation.sqlite", 10_000, rng) as memory:
        taken = generations(memory, count, rng)
    claims = {
        "memory_ms": float(np.mean(taken["wall"])),
        "memory_ms_p95": float(np.percentile(taken["wall"], 95)),
        "memory_processor_ms": float(np.mean(taken["processor"])),
        "memory_sync_ms": float(np.mean(taken["sync"])),
    }
    return claims, taken


def scaling_part(folder: Path, count: int) -> Found:
    sizes, taken = (1250, 2500, 5000, 10_000, 20_000), []
    for size in sizes:
        rng = np.random.default_rng(0)
        with full_memory(folder / f"{size}.sqlite", size, rng) as memory:
            taken.append(float(np.median(generations(memory, count, rng)["processor"])))
    return {"memory_exponent": float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])}, {"sizes": sizes, "ms": taken}


def footprint_part(folder: Path, count: int) -> Found:
    rng, path = np.random.default_rng(0), folder / "footprint.sqlite"
    memory = MemorySystem(path, features=lambda requirements, context: requirements["at"], width=WIDTH)
    tracemalloc.start()
    with memory, memory.generation(1):
        for _ in range(10_000):
            memory.store_experience(attempt(rng), 1.0)
        held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    claims = {"file_bytes_per_experience": path.stat().st_size / 10_000, "held_bytes_per_experience": held / 10_000}
    return claims, {}


PARTS = {"generation": generation_part, "scaling": scaling_part, "footprint": footprint_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    options = parser.parse_args()
    claims: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            found, raw[name] = part(Path(folder), options.generations)
            claims |= found
            if not options.json:
                print(found)
    print_result("memory", claims, seeds=[0], raw=raw)


if __name__ == "__main__":
    main()
