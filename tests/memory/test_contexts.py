"""Contextual memory tells what is known of a family of situations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupwise.memory import ContextualMemory, Experience, MemorySystem, Store
from groupwise.memory.store import Schema
from groupwise.memory.vectors import direction


def test_attempts_are_counted_under_their_key_and_the_last_performance_stays(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    memory.record_context("loans", attempt(1, 0, 0, 0), succeeded=True)
    with memory.generation(3):
        last = attempt(0, 1, 0, 0)
        memory.record_context("loans", last, succeeded=False)
    known = memory.contexts["loans"]
    assert (known.attempts, known.successes, known.met) == (2, 1, 3)
    assert known.last_performance == last.performance
    assert "claims" not in memory.contexts


def test_the_nearest_context_is_recalled_by_likeness(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    for key, at in {"loans": (1, 0, 0, 0), "claims": (0, 1, 0, 0), "triage": (0, 0, 0, 1)}.items():
        memory.record_context(key, attempt(*at), succeeded=True)
    asked = memory.direction({"at": [2, 1, 0, 0]}, {})
    assert [context.key for context, _ in memory.contexts.recall(asked, 0.3, count=5)] == ["loans", "claims"]
    ((nearest, similarity),) = memory.contexts.recall(asked, 0.3)
    assert nearest.key == "loans"
    assert similarity == pytest.approx(2 / 5**0.5)


def test_the_context_not_met_for_longest_goes() -> None:
    store = Store()
    contexts = ContextualMemory(store, Schema(1), size=2)
    for now, key in enumerate(("loans", "claims", "loans", "triage")):
        with store.generation(now):
            contexts.record(key, direction([1], 1), {}, succeeded=True)
    assert list(contexts) == ["loans", "triage"]
