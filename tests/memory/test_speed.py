"""One generation at full size stays within the founding document's 20 milliseconds; see benchmarks/memory.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from groupwise.memory import Experience, MemorySystem

LIMIT = 0.020


def test_a_generation_of_32_with_full_memories_takes_less_than_20_ms_of_processor_time(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    rng = np.random.default_rng(0)
    with memory.generation(1):
        for number in range(10_000):
            memory.store_experience(attempt(1, 0, 0, 0, plan=number), rng.uniform(0.1, 1))
        for number in range(1_000):
            memory.learn(attempt(*rng.uniform(0, 1, 4), plan=number))
    taken = []
    for seq in range(2, 22):
        begun = time.process_time()
        with memory.generation(seq):
            assert len(memory.recall_patterns({"at": [1, 1, 1, 1]}, {})) > 900
            for number in range(32):
                memory.store_experience(attempt(1, 0, 0, 0, plan=number), 1.0)
        taken.append(time.process_time() - begun)
    assert len(memory.experiences) == 10_000
    assert min(taken) < LIMIT
