"""Patterns are recalled where situations are alike, and used as often as they work."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import ConfigError, ContractError
from groupwise.memory import Experience, MemorySystem, Pattern
from groupwise.memory.patterns import FEW

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
    # The mean cosine of HERE with the four, of which the last counts as 0, shrunk towards 0.
    usual = (math.sqrt(0.5) + 3 / math.sqrt(10) + 1 / math.sqrt(82)) / (4 + FEW)
    wanted = [(cosine - usual) / (1 - usual) for cosine in (3 / math.sqrt(10), math.sqrt(0.5))]
    assert recall.similarities == pytest.approx(wanted)
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
    assert [p.uses for p in memory.recall_patterns(HERE, {})] == [1, 2], "one use of two failed"


def test_a_similar_success_with_an_equal_payload_strengthens_the_pattern(
    memory: MemorySystem, attempt: Callable[..., Experience]
) -> None:
    first = memory.learn(attempt(1, 0, 0, 0, split="and", retry=2), weight=0.5)
    with memory.generation(7):
        again = memory.learn(attempt(10, 1, 0, 0, retry=2, split="and"), weight=0.8)
        elsewhere = memory.learn(attempt(0, 0, 1, 0, retry=2, split="and"))
        other = memory.learn(attempt(1, 0, 0, 0, retry=3, split="and"))
    assert again == Pattern(first.id, first.features, first.text, 2, 2, 0.8, 7, 2)
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


def test_what_fails_is_recalled_after_what_works(memory: MemorySystem, attempt: Callable[..., Experience]) -> None:
    bad, good = memory.learn(attempt(1, 0, 0, 0, kind="bad")), memory.learn(attempt(20, 1, 0, 0, kind="good"))
    for _ in range(200):
        memory.report(bad, succeeded=False)
        memory.report(good, succeeded=True)
    recall = memory.recall_patterns(HERE, {})
    assert [pattern.id for pattern in recall] == [good.id, bad.id], "the nearer one has failed 200 times"
    assert [round(pattern.success_rate, 3) for pattern in recall] == [0.995, 0.01]


def test_features_that_are_never_negative_do_not_make_everything_similar(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    memory, rng = open_memory(":memory:", width=32), np.random.default_rng(0)
    points = rng.uniform(0, 1, (240, 32))
    for number, point in enumerate(points):
        memory.learn(attempt(*point, kind=number))
    for point in points[:5] + 0.01:
        recall = memory.recall_patterns({"at": point}, {})
        assert 1 <= len(recall) <= 60, "the bare cosine of all 240 is above the threshold"
        assert recall.similarities[0] > 0.99


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.3, 0.5])
def test_recall_is_no_worse_than_the_nearest_neighbour(
    open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience], spread: float, wrong: float
) -> None:
    rng = np.random.default_rng([int(100 * spread), int(10 * wrong)])
    centres = rng.uniform(0, 1, (12, 8))
    kinds = rng.integers(0, 12, 240)
    points = np.abs(centres[kinds] + spread * rng.normal(size=(240, 8)))
    told = np.where(rng.random(240) < wrong, rng.integers(0, 12, 240), kinds)
    memory = open_memory(":memory:", width=9)
    with memory.generation(1):
        for point, kind in zip(points, told, strict=True):
            memory.learn(attempt(1, *point, kind=int(kind)))
    asked = rng.integers(0, 12, 100)
    queries = np.abs(centres[asked] + spread * rng.normal(size=(100, 8)))
    nearest = told[((queries[:, None] - points) ** 2).sum(-1).argmin(1)]
    recalled = [memory.recall_patterns({"at": [1, *query]}, {}) for query in queries]
    first = np.array([recall.patterns[0].payload["kind"] if len(recall) else -1 for recall in recalled])
    assert (first == asked).mean() >= (nearest == asked).mean() - 0.01


def test_other_features_of_the_same_width_are_noticed_in_one_sentence(
    tmp_path: Path, attempt: Callable[..., Experience]
) -> None:
    def opened(features: Callable[..., Any]) -> MemorySystem:
        return MemorySystem(
            tmp_path / "memory.sqlite", features=features, width=4, generalise=lambda experience: experience.workflow
        )

    with opened(lambda requirements, context: requirements["at"]) as memory:
        memory.learn(attempt(1, 2, 3, 4, kind="a"))
    said = "contains 1 patterns and contexts with features that were computed differently than these 4"
    with pytest.warns(UserWarning, match=said):
        other = opened(lambda requirements, context: requirements["at"][::-1])
    with other:
        assert len(other.notices) == 1
        assert len(other.recall_patterns({"at": [1, 2, 3, 4]}, {})) == 0
        other.learn(attempt(1, 2, 3, 4, kind="b"))
    with pytest.warns(UserWarning, match="contains 1 patterns"):
        again = opened(lambda requirements, context: requirements["at"])
    with again:
        assert [pattern.payload for pattern in again.patterns] == [{"kind": "a"}], "the old ones fit again"


def test_what_is_forgotten_is_gone_from_the_file_and_from_every_rewind(
    tmp_path: Path, open_memory: Callable[..., MemorySystem], attempt: Callable[..., Experience]
) -> None:
    memory = open_memory()
    with memory.generation(1):
        secret = memory.learn(attempt(1, 0, 0, 0, kind="secret-one"))
        experience = memory.store_experience(attempt(1, 0, 0, 0, kind="secret-two"), 1.0)
        memory.record_context("secret-three", attempt(1, 0, 0, 0), succeeded=True)
        kept = memory.learn(attempt(0, 1, 0, 0, kind="kept"))
    with memory.generation(2):
        memory.report(secret, succeeded=True)
    assert memory.forget(patterns=[secret], experiences=[experience], contexts=["secret-three", "unknown"]) == 3
    assert (list(memory.patterns), len(memory.experiences), len(memory.contexts)) == ([kept], 0, 0)
    memory.rewind(1)
    assert (list(memory.patterns), len(memory.experiences), len(memory.contexts)) == ([kept], 0, 0)
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    assert memory.learn(attempt(0, 0, 1, 0, kind="new")).id > kept.id
