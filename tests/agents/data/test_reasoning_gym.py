"""Problems of reasoning-gym: its own scores, disjoint splits, and clear refusals."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from groupwise.agents.data.dataset import find_problems
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError, MissingExtra


def found(name: str, **options: Any) -> Any:
    pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")
    return find_problems(TaskSettings(environment=f"reasoning_gym:{name}", options=options))


@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "word_ladder"])
def test_sides_never_meet_and_demonstrations_score_one(name: str) -> None:
    problems = found(name, size=500)
    train, test = [problems.training(0, n) for n in range(100)], problems.held_out(0, 30)
    assert not {p.text for p in train} & {p.text for p in test}
    assert all(problems.grade(p, problems.demonstration(p), True).total == 1.0 for p in test)
    assert train[:5] == [problems.training(0, n) for n in range(5)] != [problems.training(1, n) for n in range(5)]


def test_problems_that_draw_from_the_global_random_state_repeat_and_leave_it_alone() -> None:
    problems = found("list_functions", size=300)
    before = random.getstate()
    first = [problems.training(0, n).text for n in range(50)]
    assert first == [problems.training(0, n).text for n in reversed(range(50))][::-1]
    assert random.getstate() == before


def test_the_score_is_the_librarys() -> None:
    problems = found("chain_sum")
    problem = problems.training(0, 0)
    assert problems.grade(problem, f"Let me think. <answer>{problem.answer}</answer>", True).total == 1.0
    assert problems.grade(problem, "x", True).parts["correct"] == 0.0
    assert problems.grade(problem, problem.answer, False).total == 0.0
    assert "num_terms" in problem.columns["metadata"]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("chain_summ", {}, "has no dataset 'chain_summ'\nDid you mean 'reasoning_gym:chain_sum'"),
        ("chain_sum", {"terms": 3}, "task.options = .*terms.* does not fit 'reasoning_gym:chain_sum'"),
        ("chain_sum", {"min_terms": -1}, "does not fit .*min_terms must be positive"),
    ],
)
def test_what_the_library_cannot_do_is_refused(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        found(name, **options)


def test_a_dataset_without_answers_has_no_demonstrations() -> None:
    problems = found("rubiks_cube")
    with pytest.raises(ConfigError, match="'reasoning_gym:rubiks_cube' has no answers to imitate"):
        problems.demonstration(problems.training(0, 0))


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtra, match=r"pip install 'groupwise\[reasoning-gym\]'"):
        find_problems(TaskSettings(environment="reasoning_gym:chain_sum"))
