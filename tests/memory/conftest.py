"""A memory whose situations are vectors of four numbers, and what a test wants to know of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import MemorySettings
from groupwise.memory import Experience, MemorySystem

WIDTH = 4


def features(requirements: Any, context: Any) -> Any:
    return requirements["at"]


def generalise(experience: Experience) -> Any:
    return experience.workflow or None


def instantiate(payload: Any, context: Any) -> Any:
    return {**payload, "for": context}


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Callable[..., MemorySystem]]:
    """Opens memories in a file of the test's own, and closes them after it. Settings and arguments may be given."""
    opened = []

    def make(path: Path | str = tmp_path / "memory.sqlite", width: int = WIDTH, **rest: Any) -> MemorySystem:
        own = {key: rest.pop(key) for key in ("schema", "patience") if key in rest}
        memory = MemorySystem(
            path,
            MemorySettings(**rest),
            features=features,
            width=width,
            generalise=generalise,
            instantiate=instantiate,
            **own,
        )
        opened.append(memory)
        return memory

    yield make
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory: Callable[..., MemorySystem]) -> MemorySystem:
    return open_memory(":memory:")


@pytest.fixture(scope="session")
def attempt() -> Callable[..., Experience]:
    """An attempt at requirements that lie at a point, with a design made of `choices`."""
    numbers = itertools.count()

    def make(*at: float, **choices: Any) -> Experience:
        return Experience({"at": [*at]}, choices, {"score": next(numbers)}, {"domain": "loans"})

    return make


@pytest.fixture(scope="session")
def all_of() -> Callable[[MemorySystem], dict[str, Any]]:
    """Everything a memory knows, to be compared."""

    def read(memory: MemorySystem) -> dict[str, Any]:
        return {
            "now": memory.now,
            "working": memory.working.recent(),
            "experiences": memory.experiences.priorities(),
            "patterns": [(p, p.features.tolist()) for p in memory.patterns],
            "contexts": list(memory.contexts.items()),
            "hits": (memory.hits.recalls, memory.hits.hits),
            "stored": memory.store.read("experience"),
        }

    return read
