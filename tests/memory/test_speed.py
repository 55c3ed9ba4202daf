"""What a generation costs does not grow with what is remembered; benchmarks/memory.py measures how long it takes."""

from __future__ import annotations

from collections.abc import Callable

from groupwise.memory import Experience, MemorySystem


def test_a_generation_with_full_memories_runs_as_many_statements_as_with_nearly_empty_ones(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    statements: list[str] = []
    memory.store._database._link.set_trace_callback(statements.append)

    def generation(seq: int) -> int:
        statements.clear()
        with memory.generation(seq):
            memory.recall_patterns({"at": [1, 1, 1, 1]}, {})
            for number in range(32):
                memory.store_experience(attempt(1, 0, 0, 0, plan=number), 1.0)
        return len(statements)

    generation(1)  # the first one makes the record of hits
    few = generation(2)
    with memory.generation(3):
        for number in range(10_000):
            memory.store_experience(attempt(1, 0, 0, 0, plan=number), 0.5)
        for number in range(1_000):
            memory.learn(attempt(number + 1, 1, 1, 1, plan=number))
    many = generation(4)
    assert len(memory.experiences) == 10_000
    assert many - few == 32  # each experience now evicts another, by one statement
