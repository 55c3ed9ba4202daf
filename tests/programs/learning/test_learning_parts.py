"""What the model reads and writes, the policy as a prior, what searches found, and the curriculum."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.language.policy import LanguagePolicy
from groupwise.language.tiny import tiny_model
from groupwise.programs.language.grammar import legal_lines, random_program
from groupwise.programs.learning import prior as prior_module
from groupwise.programs.learning.found_programs import Finds, beside, searched_group
from groupwise.programs.learning.model import body_of, code_tokenizer, line_text, prompt_of, whole_text
from groupwise.programs.learning.prior import LanguagePrior, together
from groupwise.programs.learning.rollout import ProblemCurriculum, ProgramJudge, shuffled
from groupwise.programs.problems import OFFLINE, generate
from groupwise.programs.search.program_search import Uniform, explore
from groupwise.training.token_attempts import imitation
from groupwise.types import SEARCHED, Batch, Group, Score, ScoredGroup, Task

TOKENIZER = code_tokenizer()
KINDS = list(itertools.product(OFFLINE, (1, 2, 3)))


@pytest.fixture(scope="module")
def policy() -> LanguagePolicy:
    model, _ = tiny_model(3, layers=2, width=64, tokenizer=TOKENIZER)
    return LanguagePolicy(model)


@pytest.mark.parametrize(("family", "level"), KINDS)
def test_programs_are_read_back_as_they_were_written(family: str, level: int) -> None:
    for number in range(5):
        problem = generate(family, number, "train", level)
        assert TOKENIZER.unk_token_id not in TOKENIZER.encode(prompt_of(problem))
        program = random_program(problem, random.Random(number))
        tokens = TOKENIZER.encode(body_of(program), add_special_tokens=False)
        assert whole_text(problem, TOKENIZER.decode(tokens)) == program
        assert len(tokens) <= 8 * problem.max_lines


def test_numbers_of_a_story_are_read_as_parameters_and_gold_is_nowhere() -> None:
    problem = generate("word_problems", 3, "train", 1)
    read = prompt_of(problem)
    assert not any(str(value) in read.split(" 1 step")[0] for value in problem.cases[0].inputs)
    assert read.endswith(problem.signature.header)
    assert problem.gold not in read


@pytest.mark.parametrize(("family", "level"), [("tables", 2), ("transformations", 1), ("word_problems", 3)])
def test_the_prior_is_the_policys_probability_of_every_legal_line(
    policy: LanguagePolicy, family: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prior_module, "LEAST", -np.inf)
    problem = generate(family, 1, "train", level)
    lines = legal_lines([], problem)
    found = LanguagePrior(policy, TOKENIZER).lines(problem, ())
    assert [line for line, _ in found] == lines
    assert np.exp([value for _, value in found]).sum() == pytest.approx(1)
    rows = {line: TOKENIZER.encode(line_text(line), add_special_tokens=False) for line in lines}
    beginnings = list(dict.fromkeys(tuple(row[:2]) for row in rows.values()))
    before = TOKENIZER.encode(prompt_of(problem), add_special_tokens=False)
    shares = torch.tensor([_logp(policy, before, one) for one in beginnings]).log_softmax(0)
    for beginning, share in zip(beginnings, shares.tolist(), strict=True):
        inside = [line for line in lines if tuple(rows[line][:2]) == beginning]
        rests = torch.tensor([_logp(policy, [*before, *beginning], rows[line][2:]) for line in inside]).log_softmax(0)
        assert [dict(found)[line] for line in inside] == pytest.approx((share + rests).tolist(), abs=1e-4)


def test_operators_that_the_policy_would_not_use_share_their_probability_equally(
    policy: LanguagePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prior_module, "LEAST", 0.0)
    problem = generate("tables", 1, "train", 2)
    found = LanguagePrior(policy, TOKENIZER).lines(problem, ())
    assert np.exp([value for _, value in found]).sum() == pytest.approx(1)
    alike: dict[str, set[float]] = {}
    for line, value in found:
        alike.setdefault(line.partition("(")[0], set()).add(round(value, 9))
    assert {len(values) for values in alike.values()} == {1}
    assert len({value for values in alike.values() for value in values}) == len(alike)


def _logp(policy: LanguagePolicy, before: Sequence[int], own: Sequence[int]) -> float:
    ids = torch.tensor([[*before, *own]])
    mask = torch.arange(ids.shape[1])[None] >= len(before)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "action_mask": mask}
    return float(policy.evaluate(inputs).logp.detach().sum())


@pytest.fixture(scope="module")
def searched() -> ScoredGroup:
    problem = generate("word_problems", 3, "train", 1)
    tree = explore(problem, Uniform(), 12, seed=1)
    return searched_group(Task("word_problems 1/0", problem, 0), tree, TOKENIZER, 512, placebo=False)


def test_what_a_search_found_carries_the_trees_own_probability(searched: ScoredGroup) -> None:
    problem = searched.group.task.payload
    tree = explore(problem, Uniform(), 12, seed=1)
    for member, record in zip(searched.group.members, tree.records, strict=True):
        assert float(member.behavior_logp[member.mask].sum()) == pytest.approx(record.log_prob, abs=1e-5)
        assert TOKENIZER.decode(member.actions[member.mask], skip_special_tokens=True) == member.meta["text"]
        assert set(member.versions) == {SEARCHED}


def test_only_programs_that_solved_something_are_kept_once_each(searched: ScoredGroup) -> None:
    finds = Finds(0)
    assert finds.draw(3) == []
    finds.add(searched)
    finds.add(searched)
    solved = [m for m, s in zip(searched.group.members, searched.scores, strict=True) if s.total > 0]  # type: ignore[union-attr]
    assert len(solved) == sum(map(len, finds.rows.values())) == 1
    again = Finds(5)
    again.load_state_dict(finds.state_dict())
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(finds.draw(4), again.draw(4), strict=True))


def test_rows_to_imitate_weigh_as_much_as_was_asked_beside_the_groups(
    policy: LanguagePolicy, searched: ScoredGroup
) -> None:
    finds = Finds(0)
    finds.add(searched)
    shown = imitation(finds.draw(4), policy, "cpu")
    groups = Batch(
        {name: torch.ones(2, 50, dtype=torch.long) for name in shown.inputs}, torch.ones(2, 50, dtype=torch.bool),
        torch.zeros(2, 50), torch.full((2, 50), 0.5), denominator=100.0, total_rows=2, total_tokens=100,
    )  # fmt: skip
    both = beside(groups, shown, 0.25)
    assert both.rows == both.total_rows == 6
    imitated = both.advantages[2:][both.mask[2:]].sum() / both.denominator
    assert float(imitated) == pytest.approx(0.25), "a mean over the rows' tokens, times the weight"
    assert torch.equal(both.advantages[:2], groups.advantages)


def test_shuffled_scores_are_the_same_scores_elsewhere() -> None:
    scores = [Score(float(n), {"correct": float(n)}) for n in range(8)]
    found = shuffled(scores, 3)
    assert sorted(score.total for score in found) == [score.total for score in scores]
    assert [score.parts for score in found] == [score.parts for score in scores]
    assert [score.total for score in found] != [score.total for score in scores]


def test_the_curriculum_goes_on_to_what_comes_into_reach() -> None:
    curriculum = ProblemCurriculum(["tables"], 5, 3, seed=0)
    assert curriculum.weights("tables")[0] > 0.85
    for _ in range(40):
        curriculum.see([_solved(generate("tables", 0, "train", 1))])
    easy, middle, hard = curriculum.weights("tables")
    assert middle > 0.7
    assert middle > easy
    assert middle > hard
    again = ProblemCurriculum(["tables"], 5, 3, seed=0)
    again.load_state_dict(curriculum.state_dict())
    assert [task.id for task in again.take(6)] == [task.id for task in curriculum.take(6)]


def _solved(problem: Any) -> ScoredGroup:
    return ScoredGroup(Group("g", Task("tables 1/0", problem, 0), ()), (Score(1.0, {"correct": 1.0}),))


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("def solve(x, y", "raised"),
        ("def solve(x, y):\n    a = open(x)\n    return a", "forbidden"),
        ("def solve(x, y):\n    a = polish(x)\n    return a", "forbidden"),
        ("def solve(x, y):\n    a = add(x, y)", "raised"),
        ("def solve(x, y):\n    a = sort(x)\n    return a", "raised"),
        ("def solve(x, y):\n    a = rest(x, y)\n    return a", "wrong"),
    ],
)
def test_whatever_was_written_has_a_named_outcome_and_no_reward(text: str, flag: str) -> None:
    judge = ProgramJudge()
    score = judge.score(judge.evaluate(generate("word_problems", 3, "train", 1), text))
    assert score.total == 0
    assert flag in score.flags


def test_searches_together_find_what_they_find_alone(policy: LanguagePolicy) -> None:
    prior = LanguagePrior(policy, TOKENIZER)
    problems = [generate(family, 5, "train", level) for family in OFFLINE for level in (1, 2)]
    jobs = [partial(_actions, problem) for problem in problems]
    assert together(prior, jobs, width=4) == [job(prior) for job in jobs]


def _actions(problem: Any, prior: Any) -> list[tuple[str, ...]]:
    return [record.actions for record in explore(problem, prior, 6, seed=2).records]


def test_what_goes_wrong_in_one_search_is_raised(policy: LanguagePolicy) -> None:
    def broken(prior: Any) -> None:
        prior.lines(generate("tables", 1, "train", 1), ())
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        together(LanguagePrior(policy, TOKENIZER), [broken, partial(_actions, generate("tables", 2, "train", 1))])
