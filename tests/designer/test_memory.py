"""What design calls and training runs leave in memory, and what later ones make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import TrainingConfig
from groupwise.designer import product
from groupwise.designer.declaration import GenerationSettings
from groupwise.designer.generations import Generations
from groupwise.designer.memory import open_memory
from groupwise.designer.pipeline import Designer
from groupwise.designer.plans import DecisionBatch
from groupwise.designer.policy import GraphPolicy
from groupwise.designer.sampling import Preferences, preference_of_plan
from groupwise.designer.tasks import PreparedRequirements, random_requirements
from groupwise.errors import RunError
from groupwise.memory import MemorySystem
from groupwise.training.folder import create_run
from groupwise.training.session import execute
from groupwise.types import Event
from groupwise.workflows.rules import broken_rules
from groupwise.workflows.soundness.check import check_design

SETTINGS = GenerationSettings(batch_size=16)


def fresh_policy(seed: int = 0) -> GraphPolicy:
    torch.manual_seed(seed)
    return GraphPolicy().eval()


@pytest.fixture
def memory() -> Iterator[MemorySystem]:
    with open_memory(":memory:") as opened:
        yield opened


def test_a_call_leaves_experiences_and_a_habit_and_the_next_one_recalls(memory: MemorySystem) -> None:
    designer = Designer(fresh_policy(), memory, SETTINGS)
    first = designer.design(random_requirements(0, 8), 16)
    assert first.hit_rate == 0
    assert first.stages["memory integration"] > 0
    assert (len(memory.experiences), len(memory.patterns)) == (3, 1)
    for seed in range(1, 5):
        outcome = designer.design(random_requirements(seed, 10), 16)
    assert outcome.hit_rate == 0.8
    assert sum(pattern.uses for pattern in memory.patterns) > len(memory.patterns)
    assert len(memory.working) == 5


def test_the_second_requirements_of_a_family_find_what_the_first_left(memory: MemorySystem) -> None:
    first = random_requirements(3, 12)
    activities = {
        name: one.model_copy(update={"duration": one.duration.model_copy(update={"mean": 1.3 * one.duration.mean})})
        for name, one in first.activities.items()
    }
    designer = Designer(fresh_policy(), memory, SETTINGS)
    for _ in designer.begin(first).run(32):
        pass
    call = designer.begin(first.model_copy(update={"activities": activities, "name": "second"}))
    for _ in call.run(32):
        pass
    assert memory.hit_rate > 0.3
    assert call.history[0].origins["memory"] >= 1


def test_the_same_requirements_again_begin_where_the_last_call_ended(tmp_path: Path) -> None:
    asked = random_requirements(5, 9)
    with open_memory(tmp_path / "memory.sqlite") as memory:
        first = Designer(fresh_policy(), memory, SETTINGS).design(asked, 64)
    with open_memory(tmp_path / "memory.sqlite") as memory:
        second = Designer(fresh_policy(1), memory, SETTINGS, seed=1).design(asked, 16)
    assert second.generations[0].origins["memory"] >= 1
    before = first.generations[-1].best
    assert second.generations[-1].best >= before
    assert Designer(fresh_policy(1), None, SETTINGS, seed=1).design(asked, 16).generations[-1].best < before


def test_a_habit_speaks_to_requirements_of_another_size_and_its_designs_are_sound() -> None:
    small, large = (PreparedRequirements.of(random_requirements(seed, size)) for seed, size in ((1, 6), (2, 24)))
    learned = Generations(fresh_policy(), small, SETTINGS, record=True)
    learned.propose()
    preference = preference_of_plan(learned.drafts[0].plans, 0)
    made = Generations(fresh_policy(), large, SETTINGS).recall([preference] * 4)
    assert [candidate.origin for candidate in made] == ["memory"] * 4
    for candidate in made:
        assert check_design(candidate.design).sound
        assert not broken_rules(candidate.design, large.problem.requirements)


def test_a_habit_prefers_what_its_plan_chose() -> None:
    prepared = PreparedRequirements.of(random_requirements(4, 20))
    generations = Generations(fresh_policy(), prepared, SETTINGS, record=True)
    generations.propose()
    plans = generations.drafts[0].plans
    assert plans.seen is not None
    assert plans.legal is not None
    gains = []
    for row in range(len(plans)):
        preferences = Preferences([preference_of_plan(plans, row)])
        for head in range(12):
            slots = np.flatnonzero((prepared.problem.heads == head) & plans.legal[row].any(-1))
            width = len(prepared.problem.units) if head == 9 else 10
            legal = plans.legal[row, slots, :width][None]
            shares = preferences(DecisionBatch(head, slots, slots[None], legal, plans.seen[row, slots, :width][None]))
            assert np.allclose(shares.sum(-1), 1)
            assert not shares[~legal].any()
            chosen = np.take_along_axis(shares[0], plans.choices[row, slots][:, None], 1)[:, 0]
            gains += (np.log(chosen) + np.log(legal[0].sum(-1))).tolist()
    assert np.mean(gains) > 0.1, "no likelier than by chance"


def test_a_recall_is_fixed_for_the_whole_call_whatever_memory_learns_meanwhile(memory: MemorySystem) -> None:
    designer = Designer(fresh_policy(), memory, SETTINGS)
    designer.design(random_requirements(0, 8), 16)
    call = designer.begin(random_requirements(1, 8))
    assert call.memory is not None
    before = call.memory.recall
    rates = [pattern.success_rate for pattern in before]
    call.generation()
    call.generation()
    assert call.memory.recall is before
    assert [pattern.success_rate for pattern in before] == rates
    assert len(memory.patterns) > len(before)


def test_what_is_recalled_claims_no_log_probability_and_teaches_the_policy_nothing(memory: MemorySystem) -> None:
    with Designer(fresh_policy(), memory, SETTINGS, learn=True) as designer:
        for seed in range(4):
            call = designer.begin(random_requirements(seed, 8))
            metrics = call.generation()
    assert metrics.origins["memory"] >= 1
    assert metrics.updates[0].attempts == metrics.origins["sample"]
    assert metrics.updates[0].left_out == metrics.origins["memory"] + 2, "the likeliest and the widest as well"
    recalled = [result.candidate for result in metrics.results if result.candidate.origin == "memory"]
    assert all(candidate.logp == 0 for candidate in recalled)


def test_a_generation_that_breaks_off_leaves_memory_as_it_was(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    designer = Designer(fresh_policy(), memory, SETTINGS)
    designer.design(random_requirements(0, 8), 16)
    before = memory.now, len(memory.experiences), [pattern.text for pattern in memory.patterns]
    monkeypatch.setattr(memory.working, "note", _break_off)
    with pytest.raises(KeyboardInterrupt):
        designer.design(random_requirements(1, 8), 16)
    assert (memory.now, len(memory.experiences), [pattern.text for pattern in memory.patterns]) == before


def _break_off(*_: Any) -> None:
    raise KeyboardInterrupt


# training


def finish(events: Iterator[Event], steps: int | None = None) -> None:
    for event in events:
        if event.type == "step" and event.step == steps:
            return


def remembered(path: Path) -> dict[str, Any]:
    with open_memory(path) as memory:
        patterns = [(one.text, one.uses, one.successes, one.weight, one.used) for one in memory.patterns]
        return {
            "now": memory.now,
            "patterns": patterns,
            "experiences": memory.experiences.priorities(),
            "hits": memory.hit_rate,
        }


def test_a_resumed_run_takes_its_memory_back_and_ends_bit_for_bit_like_an_undisturbed_one(
    small_config: Callable[..., TrainingConfig], numbers: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    changes = {
        "product": "designer", "estimator": "outcome", "advantage_scale": "group_std", "exploration_share": 0.5,
        "num_generations": 6, "tasks_per_step": 2, "num_episodes": 5, "save_steps": 2, "eval_steps": 5,
        "eval_episodes": 1,
    }  # fmt: skip
    paths = {name: tmp_path / f"{name}.sqlite" for name in ("whole", "broken")}
    own = {"small": random_requirements(1, 5), "other": random_requirements(2, 6)}
    runs = {
        name: create_run(small_config(**changes, run_name=name, options={"memory": str(path)}))
        for name, path in paths.items()
    }
    finish(execute(runs["whole"], lambda cfg: product.build(cfg, own)))
    finish(execute(runs["broken"], lambda cfg: product.build(cfg, own)), 3)
    finish(execute(runs["broken"], lambda cfg: product.build(cfg, own)))
    assert remembered(paths["broken"]) == remembered(paths["whole"])
    assert numbers(runs["broken"]) == numbers(runs["whole"])
    assert remembered(paths["whole"])["hits"] > 0.3


@pytest.fixture
def remembering(small_config: Callable[..., TrainingConfig], tmp_path: Path) -> Callable[..., TrainingConfig]:
    def make(name: str, **changes: Any) -> TrainingConfig:
        settings = {
            "product": "designer", "estimator": "outcome", "advantage_scale": "group_std", "exploration_share": 0.5,
            "num_generations": 6, "num_episodes": 2, "save_steps": 2, "eval_steps": 0, **changes,
        }  # fmt: skip
        memory = tmp_path / f"{name}.sqlite"
        return small_config(**settings, run_name=name, options={"memory": str(memory)})

    return make


def trained(path: Path, steps: int | None = None) -> None:
    """Train as the command line does, in a process that vanishes after `steps` steps."""
    own = {"small": random_requirements(1, 5)}
    opened = lambda cfg: product.build(product.open_run(path, cfg, learning=True), own)  # noqa: E731
    finish(execute(path, opened), steps)


def test_a_run_that_died_before_its_first_checkpoint_does_not_remember_the_dead_attempt(
    remembering: Callable[..., TrainingConfig], numbers: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    whole, broken = (create_run(remembering(name)) for name in ("whole", "broken"))
    trained(whole)
    trained(broken, steps=1)
    assert remembered(tmp_path / "broken.sqlite")["now"] > 0
    trained(broken)
    assert remembered(tmp_path / "broken.sqlite") == remembered(tmp_path / "whole.sqlite")
    assert numbers(broken) == numbers(whole)


def test_a_run_whose_memory_was_lost_is_not_resumed_with_an_empty_one(
    remembering: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    path = create_run(remembering("lost", save_steps=1))
    trained(path, steps=2)
    (tmp_path / "lost.sqlite").unlink()
    with pytest.raises(RunError, match=r"lost.sqlite, is at generation 0, but the run counts on generation") as refused:
        trained(path)
    assert "--set task.options.memory=''" in refused.value.hint
