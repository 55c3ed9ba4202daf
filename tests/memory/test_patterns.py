"""Patterns are recalled where situations are alike, and used as often as they work."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from groupwise.errors import ConfigError, ContractError
from groupwise.memory import Experience, MemorySystem, Pattern

HERE = {"at": [1, 0, 0, 0]}


def test_patterns_above_the_threshold_are_recalled_best_first(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    near, nearer, far = (
        memory.learn(attempt(*at, kind=kind))
        for kind, at in {"near": (1, 1, 0, 0), "nearer": (3, 1, 0, 0), "far": (1, 9, 0, 0)}.items()
    )
    memory.learn(attempt(-1, 0, 0, 0, kind="opposite"))
    recall = memory.recall_patterns(HERE, {})
    assert recall.patterns == (nearer, near)
    assert recall.similarities == pytest.approx([3 / math.sqrt(10), math.sqrt(0.5)])
    assert far not in recall.patterns


def test_the_threshold_is_that_of_similarity_times_weight(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    memory.learn(attempt(1, 0, 0, 0, kind="weak"), weight=0.3)
    strong = memory.learn(attempt(1, 0, 0, 0, kind="strong"), weight=0.31)
    assert memory.recall_patterns(HERE, {}).patterns == (strong,)


def test_hits_are_counted_per_recall(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    assert memory.hit_rate == 0
    assert len(memory.recall_patterns(HERE, {})) == 0
    memory.learn(attempt(1, 0, 0, 0, split="and"))
    for _ in range(3):
        memory.recall_patterns(HERE, {})
    assert memory.hit_rate == 3 / 4


def test_a_recall_stays_as_it_was_whatever_the_memory_learns(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    memory.learn(attempt(1, 0, 0, 0, split="and"))
    recall = memory.recall_patterns(HERE, {})
    (pattern,) = recall
    pattern.payload["split"] = "xor"
    with memory.generation(50):
        memory.report(pattern, succeeded=False)
        memory.learn(attempt(1, 0, 0, 0, split="or"))
    assert [p.payload for p in recall] == [{"split": "and"}]
    assert (pattern.successes, pattern.uses, recall.seq, recall.weights) == (1, 1, 0, (1.0,))
    assert [p.uses for p in memory.recall_patterns(HERE, {})] == [2, 1]


def test_a_similar_success_with_an_equal_payload_strengthens_the_pattern(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    first = memory.learn(attempt(1, 0, 0, 0, split="and", retry=2), weight=0.5)
    with memory.generation(7):
        again = memory.learn(attempt(10, 1, 0, 0, retry=2, split="and"), weight=0.8)
        elsewhere = memory.learn(attempt(0, 0, 1, 0, retry=2, split="and"))
        other = memory.learn(attempt(1, 0, 0, 0, retry=3, split="and"))
    assert again == Pattern(first.id, first.features, first.text, 2, 2, 0.8, 7)
    assert list(memory.patterns) == [again, elsewhere, other]


def test_the_success_rate_is_that_of_laplace(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    pattern = memory.learn(attempt(1, 0, 0, 0, split="and"))
    assert pattern.success_rate == 2 / 3
    for succeeded in (True, False, False):
        assert memory.report(pattern, succeeded)
    (now,) = memory.patterns
    assert (now.successes, now.uses, now.success_rate) == (2, 4, 3 / 6)


def test_a_pattern_is_drawn_with_the_probability_of_its_success_rate(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    good, bad = memory.learn(attempt(1, 0, 0, 0, kind="good")), memory.learn(attempt(1, 0, 0, 0, kind="bad"))
    for _ in range(7):
        memory.report(good, succeeded=True)
        memory.report(bad, succeeded=False)
    recall, rng, draws = memory.recall_patterns(HERE, {}), np.random.default_rng(0), 4000
    drawn = [pattern.id for _ in range(draws) for pattern in recall.draw(rng)]
    assert drawn.count(good.id) / draws == pytest.approx(0.9, abs=0.02)
    assert drawn.count(bad.id) / draws == pytest.approx(0.2, abs=0.03)
    assert recall.draw(np.random.default_rng(3)) == recall.draw(np.random.default_rng(3))


def test_a_pattern_is_instantiated_by_the_caller_s_function(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    memory.learn(attempt(1, 0, 0, 0, split="and"))
    (pattern,) = memory.recall_patterns(HERE, {})
    assert pattern.instantiate("claims") == {"split": "and", "for": "claims"}


def test_without_the_functions_it_says_which_is_missing() -> None:
    bare = MemorySystem(features=lambda requirements, context: requirements, width=1)
    pattern = bare.patterns.learn(bare.direction([1.0], {}), {"split": "and"})
    with pytest.raises(ContractError, match="pattern 1 cannot be instantiated: .* without `instantiate`"):
        pattern.instantiate({})
    with pytest.raises(ConfigError, match="opened without `generalise`"):
        bare.learn(Experience({}, {}, {}, {}))


def test_nothing_is_learned_of_what_cannot_be_generalised(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    assert memory.learn(attempt(1, 0, 0, 0)) is None
    assert len(memory.patterns) == 0


def test_the_weakest_pattern_goes_and_a_report_on_it_is_passed_over(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    memory = open_memory(":memory:", pattern_memory_size=2)
    bad, good = memory.learn(attempt(1, 0, 0, 0, kind="bad")), memory.learn(attempt(1, 0, 0, 0, kind="good"))
    memory.report(bad, succeeded=False)
    new = memory.learn(attempt(1, 0, 0, 0, kind="new"))
    assert list(memory.patterns) == [good, new]
    assert not memory.report(bad, succeeded=True)
    with memory.generation(100):  # all have faded but the one that is learned now
        newest = memory.learn(attempt(1, 0, 0, 0, kind="newest"), weight=0.95)
        assert list(memory.patterns) == [new, newest]
        assert memory.learn(attempt(1, 0, 0, 0, kind="good")).uses == 1, "the forgotten one is not strengthened"


@pytest.mark.parametrize("weight", [0.0, 1.5, -1.0, math.nan])
def test_a_weight_out_of_bounds_is_refused(
    memory: MemorySystem, attempt: Callable[..., Experience], weight: float
) -> None:
    with pytest.raises(ContractError, match=r"the weight of a pattern is .*, but must be in \(0, 1\]"):
        memory.learn(attempt(1, 0, 0, 0, split="and"), weight)


def test_patterns_of_other_features_stay_in_the_file_and_are_not_looked_at(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    first = open_memory()
    first.learn(attempt(1, 0, 0, 0, split="and"))
    first.record_context("loans", attempt(1, 0, 0, 0), succeeded=True)
    first.close()
    for others in ({"width": 5}, {"schema": "renamed"}):
        with pytest.warns(UserWarning, match="contains 2 patterns and contexts with other features"):
            other = open_memory(**others)
        assert (other.ignored, len(other.patterns), len(other.contexts)) == (2, 0, 0)
        assert len(other.notices) == 1
        other.close()
    again = open_memory()
    assert (again.ignored, len(again.patterns), len(again.contexts)) == (0, 1, 1)
