"""The search for programs: exact against enumeration, saved whatever happens, drawn and told."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from math import exp, log
from pathlib import Path

import pytest
from rich.console import Console

from groupwise.errors import ConfigError, StorageError
from groupwise.programs.language.evaluation import ProgramEvaluator
from groupwise.programs.language.grammar import as_program, legal_lines
from groupwise.programs.language.parser import Program, parse
from groupwise.programs.problems import OFFLINE, CodeProblem, generate
from groupwise.programs.problems.user_problems import problem_of, problem_of_file, problem_of_question
from groupwise.programs.search import SearchSettings, SearchTree, search
from groupwise.programs.search.program_search import (
    CampaignPlan,
    Uniform,
    campaign,
    explore,
    judged,
    program_domain,
    program_text,
    shares,
    traits,
)
from groupwise.programs.search.tree import load_tree, tree_as_dict
from groupwise.programs.search.tree_view import OutlineBranch, bar, outline, tree_svg, tree_view

OWN = {"question": "Sort and keep 2.", "examples": [{"inputs": [[3, 1, 2]], "answer": [1, 2]}], "max_lines": 3}


def every_program(problem: CodeProblem, prefix: tuple[str, ...] = ()) -> list[str]:
    lines = legal_lines(prefix, problem)
    if not lines:
        return [as_program(prefix, problem)]
    return [text for line in lines for text in every_program(problem, (*prefix, line))]


def key_of(problem: CodeProblem, text: str) -> str:
    program = parse(text, problem.signature)
    assert isinstance(program, Program)
    return program.key


@pytest.mark.parametrize("family", OFFLINE)
def test_a_search_to_the_end_evaluates_every_program_once(family: str) -> None:
    problem = generate(family, 3, "train", 1)
    evaluator = ProgramEvaluator(problem)
    domain = program_domain(problem, lambda text: judged(evaluator(text)), Uniform())
    tree = search(domain, 100_000, to_the_end=True)
    keys = {key_of(problem, text) for text in every_program(problem)}
    assert tree.exhausted
    assert sorted(record.key for record in tree.records) == sorted(keys)
    solving = {key_of(problem, text) for text in every_program(problem) if evaluator(text).solved}
    assert {record.key for record in tree.records if record.judged.solved} == solving
    assert solving


def test_the_uniform_prior_knows_operators_and_not_how_often_they_can_be_called() -> None:
    problem = generate("tables", 0, "train", 2)
    lines = Uniform().lines(problem, ())
    assert sum(exp(chance) for _, chance in lines) == pytest.approx(1)
    by_operator: dict[str, float] = {}
    for line, chance in lines:
        by_operator[traits(line)[0]] = by_operator.get(traits(line)[0], 0.0) + exp(chance)
    assert max(by_operator.values()) == pytest.approx(min(by_operator.values()))


def test_a_prior_that_knows_the_program_finds_it_at_once() -> None:
    problem = generate("word_problems", 1, "train", 3)
    known = [line.strip() for line in problem.gold.split("\n")[1:]]

    class Knowing:
        name = "knowing"

        def lines(self, problem: CodeProblem, prefix: tuple[str, ...]) -> Sequence[tuple[str, float]]:
            right = known[len(prefix)] if list(prefix) == known[: len(prefix)] else ""
            return [(line, log(0.99) if line == right else log(1e-4)) for line in legal_lines(prefix, problem)]

    taken = [explore(problem, Knowing(), 50, seed=seed) for seed in range(5)]
    assert all(tree.solved for tree in taken)
    assert sum(len(tree.records) for tree in taken) <= 10
    assert not any(explore(problem, Uniform(), 4, seed=seed).solved for seed in range(5))


def test_what_lines_have_in_common() -> None:
    assert traits("b = take(a, 3)") == traits("c = take(b, 3)") == ("take", "take(_, 3)")
    assert traits("b = take(x, 3)") == ("take", "take(x, 3)")
    assert traits("a = where(x, 'a')") == ("where", "where(x, 'a')")
    assert traits("c = sub(a, b)") == ("sub", "sub(_, _)")
    assert traits("return b") == ()


def test_a_search_is_kept_in_its_file_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    problem = generate("tables", 2, "train", 3)
    whole = explore(problem, Uniform(), 40, seed=1)
    file = tmp_path / "deep" / "tree.json"
    part: list[SearchTree] = []
    for _ in range(4):
        part.clear()
        explore(problem, Uniform(), 40, seed=1, file=file, watch=part.append, stop=lambda: len(part) >= 13)
    assert len(load_tree(file).records) == 40
    assert tree_as_dict(load_tree(file)) == tree_as_dict(whole)


def test_an_evaluation_that_breaks_off_loses_nothing(tmp_path: Path) -> None:
    problem = generate("transformations", 5, "train", 3)
    file = tmp_path / "tree.json"

    def interrupt(tree: SearchTree) -> None:
        if len(tree.records) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(problem, Uniform(), 20, file=file, watch=interrupt)
    assert len(load_tree(file).records) == 7
    resumed = explore(problem, Uniform(), 20, file=file)
    assert tree_as_dict(resumed) == tree_as_dict(explore(problem, Uniform(), 20))


def small_plan(budget: int = 12, **changes: object) -> CampaignPlan:
    return CampaignPlan(("word_problems", "tables"), (1, 2), 1, budget, "train", **changes)  # type: ignore[arg-type]


def run(plan: CampaignPlan, folder: Path, after: int = 10**9) -> list[str]:
    """What a campaign finds, interrupted after so many evaluations; as JSON."""
    seen = [0]

    def watch(problem: CodeProblem, tree: SearchTree) -> None:
        seen[0] += 1

    return [one.program for one in campaign(plan, Uniform(), folder, lambda: seen[0] >= after, watch)]


def test_a_campaign_that_was_interrupted_again_and_again_ends_like_one_that_was_not(tmp_path: Path) -> None:
    whole = run(small_plan(), tmp_path / "whole")
    for after in (1, 9, 10**9):
        parts = run(small_plan(), tmp_path / "parts", after)
    assert parts == whole
    assert len(whole) == len(small_plan()) == 4
    for file in sorted((tmp_path / "whole").rglob("*.*")):
        other = tmp_path / "parts" / file.relative_to(tmp_path / "whole")
        if file.name != "results.json":
            assert other.read_bytes() == file.read_bytes(), file


def test_every_program_of_a_campaign_is_a_file_that_parses(tmp_path: Path) -> None:
    plan = small_plan(5)
    found = list(campaign(plan, Uniform(), tmp_path, lambda: False, lambda problem, tree: None))
    for problem, one in zip(plan, found, strict=True):
        files = sorted((Path(one.folder) / "programs").glob("*.py"))
        assert len(files) == one.evaluations
        programs = [parse(file.read_text(), problem.signature) for file in files]
        assert len({program.key for program in programs if isinstance(program, Program)}) == len(files)
    told = json.loads((tmp_path / "results.json").read_text())
    assert told["shares"] == shares(found, 5)
    assert told["shares"]["all"]["5"] == sum(one.solved for one in found) / len(found)


def test_a_folder_goes_on_only_with_its_own_plan_but_with_more_budget(tmp_path: Path) -> None:
    run(small_plan(4), tmp_path)
    with pytest.raises(ConfigError, match="seed"):
        run(small_plan(4, seed=1), tmp_path)
    more = run(small_plan(12), tmp_path)
    assert more == run(small_plan(12), tmp_path / "fresh")
    for damaged in ("{", "[]", '{"seed": NaN}'):
        (tmp_path / "plan.json").write_text(damaged)
        with pytest.raises(StorageError, match=r"plan\.json is damaged"):
            run(small_plan(12), tmp_path)


def test_a_problem_of_ones_own_is_understood_and_solved(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps(OWN))
    problem = problem_of_file(tmp_path / "mine.yaml")
    assert problem.signature.header == "def solve(x):"
    assert [word.value for word in problem.constants] == [2]
    tree = explore(problem, Uniform(), 400)
    assert tree.solved
    assert tree.best is not None
    assert ProgramEvaluator(problem)(program_text(problem, tree.best)).solved


def test_a_table_of_ones_own_names_its_columns_words_and_rows() -> None:
    rows = [{"name": "Ann", "team": "red", "age": 30}, {"name": "Bob", "team": "blue", "age": 40}]
    problem = problem_of({"question": "How old is Ann?", "examples": [{"inputs": [rows], "answer": 30}]}, "own")
    assert {(str(word.type), word.value) for word in problem.constants} == {
        ("column", "age"), ("row", "Ann"), ("row", "Bob"), ("cell", "red"), ("cell", "blue"),
    }  # fmt: skip
    assert explore(problem, Uniform(), 100).solved


def test_a_question_gives_its_numbers_to_the_program() -> None:
    problem = problem_of_question("Ann has 12 apples, buys 30 more and eats 2 of them. How many?", 40, max_lines=3)
    assert problem.cases[0].inputs == (12, 30, 2)
    assert explore(problem, Uniform(), 500).solved


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"examples": []}, "at least one example"),
        ({"examples": "none"}, "at least one example"),
        ({"examples": [{"inputs": [1]}]}, "example 1 must have inputs and an answer"),
        ({"examples": [{"inputs": 1, "answer": 2}]}, "a list of inputs"),
        ({"examples": [{"inputs": [1], "answer": 2}, {"inputs": [1, 2], "answer": 2}]}, "a list of 1 inputs"),
        ({"examples": [{"inputs": [1.5], "answer": 2}]}, "must have one type"),
        ({"examples": [{"inputs": [1], "answer": 2}, {"inputs": ["a"], "answer": 2}]}, "must have one type"),
        ({"examples": [{"inputs": list(range(9)), "answer": 2}]}, "1 to 6 inputs"),
        ({"max_lines": 1}, "max_lines = 1"),
        ({"max_lines": "many"}, "max_lines = 'many'"),
        ({"constants": [1.5]}, "constants are"),
        ({"answers": []}, "no field 'answers'"),
        ({"examples": [{"inputs": [[{"name": ["a"], "n": 1}]], "answer": 2}]}, "cells of a table are integers"),
        ({"examples": [{"inputs": [[{7: "a"}]], "answer": 2}]}, "cells of a table are integers"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_problem_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        problem_of({**OWN, **change}, "mine")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"question: 2026-02-31", "not valid YAML"),
        (b"question: " + b"9" * 5000, "not valid YAML"),
        (b"question: a\nquestion: b", "'question' is given twice"),
        (b"max_lines: .inf", "finite number"),
        (b"a" * (100 << 20), "larger than 2 MiB"),
    ],
)
def test_a_hostile_problem_file_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=f"mine.yaml: .*{said}"):
        problem_of_file(tmp_path / "mine.yaml")


def test_a_problem_file_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.yaml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        problem_of_file(tmp_path / "mine.yaml")


def branches(branch: OutlineBranch) -> list[OutlineBranch]:
    return [branch, *(one for below in branch.branches for one in branches(below))]


def test_the_winner_is_always_shown_and_the_rest_as_far_as_there_is_room() -> None:
    problem = generate("tables", 4, "train", 2)
    tree = explore(problem, Uniform(), 80)
    assert tree.best is not None
    for most in (1, 5, 30):
        shown = branches(outline(tree, most))
        way = "; ".join(one.action for one in shown[1:] if one.winner)
        assert way == "; ".join(tree.best.actions)
        assert len(shown) <= most + 1 + len(tree.best.actions)
    top = outline(tree, 5)
    assert len(top.branches) + top.hidden == sum(edge.tally.count > 0 for edge in tree.root.edges)


def test_the_tree_can_be_drawn() -> None:
    problem = generate("tables", 4, "train", 2)
    tree = explore(problem, Uniform(), 60)
    assert tree.best is not None
    picture = tree_svg(tree, "tables & <more>")
    drawn = ElementTree.fromstring(picture)  # noqa: S314
    texts = "".join(drawn.itertext())
    assert all(line in texts for line in tree.best.actions)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(tree_view(tree, problem.id))
    said = console.export_text()
    assert problem.id in said
    assert all(line in said for line in tree.best.actions)
    assert tree_svg(explore(problem, Uniform(), 0), "nothing yet").startswith("<svg")


def test_bars() -> None:
    assert bar(0) == "········"
    assert bar(0.5) == "████····"
    assert bar(1) == "████████"


def test_several_evaluations_in_flight_find_the_same_with_or_without_threads() -> None:
    problem = generate("word_problems", 7, "train", 3)
    settings = SearchSettings(in_flight=3)
    evaluator = ProgramEvaluator(problem)
    domain = program_domain(problem, lambda text: judged(evaluator(text)), Uniform())
    alone = search(domain, 30, settings=settings, seed=2)
    assert tree_as_dict(explore(problem, Uniform(), 30, settings=settings, seed=2)) == tree_as_dict(alone)
