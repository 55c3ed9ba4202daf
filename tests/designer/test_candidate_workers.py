"""Candidates made and evaluated in several processes: the same ones as in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from groupwise.config.sections import TrainingSettings
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer, DesignSession
from groupwise.designer.policy import load_policy
from groupwise.designer.tasks import random_requirements

ENDLESS = TrainingSettings(early_stopping=False)


def searched(designer: Designer, seed: int, size: int) -> DesignSession:
    session = designer.begin(random_requirements(seed, size))
    for _ in session.run(10_000, 3):
        pass
    return session


@pytest.fixture(scope="module")
def shared() -> Iterator[Designer]:
    settings = GenerationSettings(workers=2, batch_size=12)
    with open_memory(":memory:") as memory, Designer(load_policy(), memory, settings, stopping=ENDLESS) as made:
        yield made


def facts(session: DesignSession) -> list[dict[str, Any]]:
    return [
        {"best": one.best, "mean": one.mean, "origins": dict(one.origins), "distance": dict(one.diversity.distance)}
        for one in session.history
    ]


def test_two_workers_design_exactly_what_one_does(shared: Designer) -> None:
    with open_memory(":memory:") as memory:
        alone = Designer(load_policy(), memory, GenerationSettings(batch_size=12), stopping=ENDLESS)
        for seed, size in ((1, 9), (2, 16)):
            one, many = searched(alone, seed, size), searched(shared, seed, size)
            assert facts(one) == facts(many)
            assert one.generations.best.design == many.generations.best.design
            pairs = list(zip(one.generations.drafts, many.generations.drafts, strict=True))
            assert pairs
            for mine, theirs in pairs:
                assert np.array_equal(mine.plans.choices, theirs.plans.choices)
                assert mine.plans.seen is not None
                assert theirs.plans.seen is not None
                assert np.array_equal(mine.plans.seen, theirs.plans.seen)
                assert [one.logp for one in mine.candidates] == [one.logp for one in theirs.candidates]
    assert shared.workers is not None
    assert len(shared.workers.backend.pids) == 2, "both workers had something to do"
