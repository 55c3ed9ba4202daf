"""Experiences are replayed by priority, and the one that has faded most makes room."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from groupwise.errors import ContractError
from groupwise.memory import Experience, MemorySystem


def test_an_experience_comes_back_as_it_was(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    said = attempt(1, 2, 3, 4, split="and", deep={"list": [1, None, "ü"]})
    number = memory.store_experience(said, 0.5)
    replay = memory.experiences.sample(2, np.random.default_rng(0))
    assert replay.experiences == (said, said)
    assert replay.ids == (number, number)
    assert replay.weights == (1, 1)


def test_experiences_are_drawn_by_priority_to_the_alpha_and_weighted_back(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    ids = [memory.store_experience(attempt(1, 0, 0, 0), priority) for priority in (1.0, 4.0, 16.0)]
    draws = 20_000
    replay = memory.experiences.sample(draws, np.random.default_rng(0), alpha=0.5, beta=1.0)
    counts = Counter(replay.ids)
    for number, share in zip(ids, (1 / 7, 2 / 7, 4 / 7), strict=True):
        assert counts[number] / draws == pytest.approx(share, abs=4 * math.sqrt(share / draws))
    weights = dict(zip(replay.ids, replay.weights, strict=True))
    assert [weights[number] for number in ids] == pytest.approx([1, 1 / 2, 1 / 4])
    total = sum(counts[number] * weights[number] for number in ids)
    for number in ids:  # with β = 1 every experience counts alike
        assert counts[number] * weights[number] / total == pytest.approx(1 / 3, abs=0.02)


def test_the_same_seed_draws_the_same(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    for priority in range(1, 20):
        memory.store_experience(attempt(1, 0, 0, 0), priority)
    first, second = (memory.experiences.sample(50, np.random.default_rng(7)) for _ in range(2))
    assert first == second
    assert first != memory.experiences.sample(50, np.random.default_rng(8))


def test_the_lowest_priority_goes_first_and_fades_with_age(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    memory = open_memory(":memory:", experience_memory_size=2, decay_factor=0.5)
    with memory.generation(1):
        old = memory.store_experience(attempt(1, 0, 0, 0), 0.9)
    with memory.generation(2):
        kept = memory.store_experience(attempt(1, 0, 0, 0), 0.5)  # 0.9 · 0.5 is below it
        newest = memory.store_experience(attempt(1, 0, 0, 0), 0.6)
    assert old not in memory.experiences.priorities()
    with memory.generation(3):
        memory.experiences.reprioritise([kept, old], [0.4, 5.0])  # just used, and above 0.6 · 0.5; the other is gone
        last = memory.store_experience(attempt(1, 0, 0, 0), 0.35)
    assert memory.experiences.priorities() == {kept: 0.4, last: 0.35}
    assert newest not in memory.experiences.priorities()


def test_an_empty_memory_replays_nothing_and_one_of_size_0_stays_empty(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    memory = open_memory(":memory:", experience_memory_size=0)
    memory.store_experience(attempt(1, 0, 0, 0), 1.0)
    assert len(memory.experiences.sample(8, np.random.default_rng(0))) == 0


def test_priorities_of_any_size_are_drawn(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    for priority in (1e-300, 1.0, 1e300):
        memory.store_experience(attempt(1, 0, 0, 0), priority)
    with np.errstate(all="raise", under="ignore"):
        assert all(0 < weight <= 1 for weight in memory.experiences.sample(9, np.random.default_rng(0)).weights)


@pytest.mark.parametrize("priority", [0.0, -1.0, math.nan, math.inf])
def test_a_priority_that_is_none_is_refused(
    memory: MemorySystem, attempt: Callable[..., Experience], priority: float
) -> None:
    with pytest.raises(ContractError, match=r"a priority is .*, but must be finite and above 0"):
        memory.store_experience(attempt(1, 0, 0, 0), priority)
    assert len(memory.experiences) == 0


def test_what_is_no_json_is_refused_with_its_kind(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    with pytest.raises(ContractError, match="an experience cannot be stored as JSON: .* is of type ndarray"):
        memory.store_experience(attempt(1, 0, 0, 0, plan=np.zeros(3)), 1.0)
    with pytest.raises(ContractError, match="cannot be stored as JSON"):
        memory.store_experience(attempt(1, 0, 0, 0, plan=math.nan), 1.0)
    assert len(memory.experiences) == 0
