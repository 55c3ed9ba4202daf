"""Taken back to a checkpoint, memory is exactly what it was then."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.memory import Experience, MemorySystem, Store

SMALL = {"experience_memory_size": 5, "pattern_memory_size": 4, "decay_factor": 0.8}
POINTS = ((1, 0, 0, 0), (1, 1, 0, 0), (0, 1, 2, 0), (0, 0, 0, 1))
Read = Callable[[MemorySystem], dict[str, Any]]


def act(memory: MemorySystem, chance: random.Random) -> None:
    """Something that changes a memory; sizes are small, so that much is evicted."""
    at, number = chance.choice(POINTS), chance.randrange(6)
    experience = Experience({"at": at}, {"plan": number}, {"score": number}, {})
    kind = chance.randrange(6)
    if kind == 0:
        memory.store_experience(experience, chance.uniform(0.1, 1))
    elif kind == 1:
        ids = memory.experiences.sample(2, np.random.default_rng(number)).ids
        memory.experiences.reprioritise(ids, [chance.uniform(0.1, 1) for _ in ids])
    elif kind == 2:
        memory.learn(experience, chance.uniform(0.5, 1))
    elif kind == 3:
        for pattern in memory.recall_patterns({"at": at}, {}).draw(np.random.default_rng(number)):
            memory.report(pattern, chance.random() < 0.5)
    elif kind == 4:
        memory.record_context(chance.choice("abc"), experience, chance.random() < 0.5)
    else:
        memory.working.note({"number": number})


def live(memory: MemorySystem, seq: int, seed: int) -> None:
    chance = random.Random(seed * 1000 + seq)
    with memory.generation(seq):
        for _ in range(chance.randrange(12)):
            act(memory, chance)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))  # a fresh memory is opened every time
@given(
    seed=st.integers(0, 2**20),
    back=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    settle=st.integers(0, 8),
)
def test_after_any_operations_a_rewind_gives_the_state_recorded_then(
    open_memory: Callable[..., MemorySystem], all_of: Read, seed: int, back: list[int], settle: int
) -> None:
    memory = open_memory(":memory:", **SMALL)
    then = {0: all_of(memory)}
    for seq in range(1, 9):
        live(memory, seq, seed)
        then[seq] = all_of(memory)
    memory.settle(settle)
    for seq in back:
        if seq < settle:
            with pytest.raises(ConfigError, match=f"cannot go back to generation {seq}"):
                memory.rewind(seq)
            continue
        memory.rewind(seq)
        assert all_of(memory) == then[seq]
        for later in range(seq + 1, 9):  # and it goes on as it went
            live(memory, later, seed)
            assert all_of(memory) == then[later]


def test_a_memory_killed_and_rewound_goes_on_like_one_that_was_not(
    open_memory: Callable[..., MemorySystem], all_of: Read, tmp_path: Path
) -> None:
    plain, resumed = (open_memory(tmp_path / name, **SMALL) for name in ("plain.sqlite", "resumed.sqlite"))
    for seq in range(1, 31):
        live(plain, seq, seed=1)
        live(resumed, seq, seed=1)
        if seq % 10 == 0:
            live(resumed, seq + 3, seed=2)
            resumed.close()
            resumed = open_memory(tmp_path / "resumed.sqlite", **SMALL)
            resumed.rewind(seq)
            resumed.settle(seq - 5)
    assert all_of(resumed) == all_of(plain)
    asked = {"at": [0.3, 0.8, 0.1, 0.4]}
    assert resumed.recall_patterns(asked, {}) == plain.recall_patterns(asked, {})


def test_a_rewind_to_now_or_later_changes_nothing(open_memory: Callable[..., MemorySystem], all_of: Read) -> None:
    memory = open_memory(":memory:", **SMALL)
    live(memory, 3, seed=0)
    before = all_of(memory)
    for seq in (3, 9):
        memory.rewind(seq)
        assert all_of(memory) == before


def test_generations_do_not_go_back_without_a_rewind(memory: MemorySystem) -> None:
    with memory.generation(5):
        pass
    words = r"is already at generation 5, later than 4\nCall rewind\(4\) first"
    with pytest.raises(ConfigError, match=words), memory.generation(4):
        pass


def test_ids_go_on_as_if_nothing_had_been_settled() -> None:
    """Also where the newest record of a generation was removed in it, and settled."""
    store = Store()
    with store.generation(1):
        first, gone = store.add("working", "1", None), store.add("working", "2", None)
        store.remove(gone)
    with store.generation(2):
        third = store.add("working", "3", None)
    store.settle(1)
    store.rewind(1)
    assert [record.id for record in store.read("working")] == [first]
    assert store.add("working", "3", None) == third


def test_what_is_settled_takes_no_room(open_memory: Callable[..., MemorySystem]) -> None:
    memory = open_memory(":memory:", **SMALL)
    for seq in range(1, 200):
        live(memory, seq, seed=4)
        memory.settle(seq - 10)
    with memory.store.transaction() as link:
        rows = sum(link.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("records", "states"))
    kept = sum(memory.store.counts().values())
    assert rows < 2 * kept + 10 * 12 * 4
