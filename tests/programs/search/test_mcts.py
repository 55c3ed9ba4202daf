"""The search on domains whose every outcome is known."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path
from random import Random

import pytest

from groupwise.errors import ConfigError, ContractError, StorageError
from groupwise.programs.search import Domain, Judged, SearchSettings, SearchTree, search
from groupwise.programs.search.mcts import plant, record, simulate
from groupwise.programs.search.tree import load_tree, save_tree, tree_as_dict
from tests.programs.search.toys import LETTERS, all_words, collecting, needle, spelling


def test_with_budget_enough_every_program_is_evaluated_once_and_the_search_knows_the_end() -> None:
    seen: list[str] = []
    tree = search(spelling("cab", seen.append), 1000, to_the_end=True)
    assert sorted(seen) == sorted(all_words(3))
    assert tree.exhausted
    assert tree.best is not None
    assert tree.best.actions == ("c", "a", "b")


@pytest.mark.parametrize("in_flight", [1, 5])
def test_equal_programs_are_evaluated_once(in_flight: int) -> None:
    seen: list[str] = []
    tree = search(collecting(seen.append), 10_000, settings=SearchSettings(in_flight=in_flight), to_the_end=True)
    assert len(seen) == len(set(seen)) == len(tree.records) == 2 ** len(LETTERS)
    assert tree.free > 0
    assert tree.exhausted


def test_the_budget_counts_evaluations() -> None:
    seen: list[str] = []
    for budget in (0, 1, 7, 15):
        seen.clear()
        tree = search(collecting(seen.append), budget, settings=SearchSettings(in_flight=3), to_the_end=True)
        assert len(seen) == len(tree.records) == budget


def test_the_search_ends_with_the_first_solution() -> None:
    tree = search(spelling("ab"), 1000)
    assert tree.solved
    assert [record.judged.solved for record in tree.records].index(True) == len(tree.records) - 1


def test_partial_credit_guides_the_search() -> None:
    def needed(signpost: bool) -> float:
        return sum(len(search(needle(4, signpost), 500, seed=seed).records) for seed in range(6)) / 6

    assert needed(signpost=True) < 45
    assert needed(signpost=False) > 75


def test_experience_with_an_action_carries_over_to_other_places() -> None:
    """Where a letter is worth the same wherever it stands, a search that remembers letters needs fewer tries."""
    alphabet = "abcdefghijklmnopqrst"

    def actions(word: str) -> list[tuple[str, float]]:
        return [(letter, -1.0) for letter in alphabet] if len(word) < 4 else []

    domain = Domain(
        "ts", "", actions, str.__add__, str, lambda word: Judged(word.count("t") / 4, word.count("t") >= 3),
        lambda letter: [letter],
    )  # fmt: skip

    def needed(experience: float) -> float:
        settings = SearchSettings(experience=experience)
        return sum(len(search(domain, 2000, seed=seed, settings=settings).records) for seed in range(5)) / 5

    assert needed(4.0) < 0.6 * needed(0.0)


def test_the_prior_is_followed() -> None:
    plain = spelling("dddd")

    def prior(word: str) -> list[tuple[str, float]]:
        return [(letter, log(0.97 if letter == "d" else 0.01)) for letter in LETTERS] if len(word) < 4 else []

    guided = Domain("guided", "", prior, plain.step, plain.key, plain.evaluate)
    assert max(len(search(guided, 500, seed=seed).records) for seed in range(20)) <= 30
    assert sum(len(search(guided, 500, seed=seed).records) for seed in range(20)) / 20 < 4


def test_actions_of_log_probability_minus_infinity_are_never_taken() -> None:
    plain = spelling("aa")

    def prior(word: str) -> list[tuple[str, float]]:
        return [("a", float("-inf")), ("b", -1.0), ("c", -900.0)] if len(word) < 2 else []

    tree = search(Domain("never a", "", prior, plain.step, plain.key, plain.evaluate), 100)
    assert {record.actions for record in tree.records} == {("b", "b"), ("b", "c"), ("c", "b"), ("c", "c")}


def test_a_draw_carries_the_distribution_it_was_drawn_from() -> None:
    """Frozen at several stages, the tree is drawn from many times: every program comes as often as its record says."""
    domain = spelling("ca")
    for evaluations in (0, 6):
        settings = SearchSettings(explore=0.3)
        saved = tree_as_dict(search(domain, evaluations, settings=settings, to_the_end=True))
        counts: Counter[tuple[str, ...]] = Counter()
        probabilities: dict[tuple[str, ...], float] = {}
        for number in range(1000):
            draw = _one_draw(domain, saved, number)
            counts[draw.actions] += 1
            assert probabilities.setdefault(draw.actions, exp(draw.log_prob)) == exp(draw.log_prob)
        assert sum(probabilities.values()) <= 1 + 1e-9
        for actions, probability in probabilities.items():
            spread = (probability * (1 - probability) / 1000) ** 0.5
            assert abs(counts[actions] / 1000 - probability) < 5 * spread + 1e-9
        assert all(step.log_prior == pytest.approx(-log(4)) for step in draw.steps)


def _one_draw(domain: Domain[str], saved: dict[str, object], number: int):  # type: ignore[no-untyped-def]
    from groupwise.programs.search.tree import tree_of

    tree = tree_of(saved)
    tree.seed = 1000 + number
    draw = simulate(tree, domain, {})
    assert draw is not None
    record(tree, domain, draw, Judged(0.0))
    return tree.records[-1]


def test_the_chances_of_the_open_programs_sum_to_one() -> None:
    domain = spelling("ca")
    tree = search(domain, 5, settings=SearchSettings(explore=0.4), to_the_end=True)
    saved = tree_as_dict(tree)
    found = {one.actions: exp(one.log_prob) for one in (_one_draw(domain, saved, n) for n in range(600))}
    assert len(found) == 16 - 5
    assert sum(found.values()) == pytest.approx(1.0)


def test_the_same_seed_finds_the_same_and_another_does_not() -> None:
    first, again, other = (search(needle(5, True), 40, seed=seed) for seed in (3, 3, 4))
    assert tree_as_dict(first) == tree_as_dict(again)
    assert [r.actions for r in first.records] != [r.actions for r in other.records]


def test_how_long_evaluations_take_does_not_change_what_is_found() -> None:
    domain = needle(5, True)
    random = Random(0)

    def slowly(word: str) -> Judged:
        sum(range(random.randrange(20_000)))  # so that evaluations finish in another order than they began
        return domain.evaluate(word)

    slow = Domain(domain.name, "", domain.actions, domain.step, domain.key, slowly, domain.traits)
    settings = SearchSettings(in_flight=4)
    with ThreadPoolExecutor(4) as executor:
        parallel = search(slow, 60, settings=settings, executor=executor)
    assert tree_as_dict(parallel) == tree_as_dict(search(domain, 60, settings=settings))


def test_evaluations_really_are_in_flight_together_and_never_the_same() -> None:
    flying: list[str] = []
    begun = itertools.count()
    all_four = threading.Barrier(4, timeout=600)
    domain = collecting()

    def slowly(state: str) -> Judged:
        assert domain.key(state) not in flying
        flying.append(domain.key(state))
        if next(begun) < 4:
            all_four.wait()  # breaks unless four evaluations are in flight at once
        flying.remove(domain.key(state))
        return domain.evaluate(state)

    slow = Domain("slow", "", domain.actions, domain.step, domain.key, slowly)
    with ThreadPoolExecutor(4) as executor:
        tree = search(slow, 40, settings=SearchSettings(in_flight=4), executor=executor, to_the_end=True)
    assert len(tree.records) == next(begun)


def test_virtual_losses_spread_the_walks_and_are_taken_back() -> None:
    domain = needle(4, True)
    tree = search(domain, 30, settings=SearchSettings(explore=0.0, in_flight=6), to_the_end=True)
    assert all(edge.waiting == 0 for node in tree.nodes for edge in node.edges)
    states: dict[int, str] = {}
    draws = [simulate(tree, domain, states) for _ in range(6)]
    assert len({draw.leaf for draw in draws if draw}) == 6
    assert sum(edge.waiting for edge in tree.root.edges) == 6


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("cut", [0, 1, 17, 39])
def test_a_search_that_was_saved_and_resumed_is_bit_for_bit_the_same(tmp_path: Path, cut: int, in_flight: int) -> None:
    settings = SearchSettings(in_flight=in_flight)
    whole = search(needle(5, True), 40, settings=settings, seed=5)
    first: list[SearchTree] = []
    part = plant(needle(5, True), settings, 5)
    search(needle(5, True), 40, tree=part, watch=first.append, stop=lambda: len(part.records) >= cut)
    save_tree(part, tmp_path / "tree.json")
    resumed = search(needle(5, True), 40, tree=load_tree(tmp_path / "tree.json"))
    assert tree_as_dict(resumed) == tree_as_dict(whole)


def test_an_evaluation_that_fails_leaves_a_tree_that_can_go_on() -> None:
    domain = spelling("cab")
    broken = [True]

    def sometimes(word: str) -> Judged:
        if len(tree.records) == 5 and broken.pop():
            raise RuntimeError("the machine went away")
        return domain.evaluate(word)

    shaky = Domain(domain.name, "", domain.actions, domain.step, domain.key, sometimes, domain.traits)
    tree = plant(shaky, SearchSettings(), 0)
    with pytest.raises(RuntimeError):
        search(shaky, 30, tree=tree)
    assert tree_as_dict(search(domain, 30, tree=tree)) == tree_as_dict(search(domain, 30))


def test_a_tree_goes_on_only_in_its_own_domain_and_settings(tmp_path: Path) -> None:
    tree = search(spelling("cab"), 3)
    with pytest.raises(ConfigError, match="spelling cab"):
        search(spelling("abc"), 5, tree=tree)
    with pytest.raises(ConfigError, match="settings"):
        search(spelling("cab"), 5, tree=tree, settings=SearchSettings(greed=0.9))
    for content in ("", "{", '{"version": 99}', "[1]", '{"version": 1}'):
        (tmp_path / "tree.json").write_text(content)
        with pytest.raises(StorageError):
            load_tree(tmp_path / "tree.json")


def test_broken_promises_are_named() -> None:
    plain = spelling("aa")

    def with_(actions: object = None, value: float = 0.5) -> Domain[str]:
        given = plain.actions if actions is None else lambda word: actions
        return Domain("broken", "", given, plain.step, plain.key, lambda word: Judged(value))  # type: ignore[arg-type]

    with pytest.raises(ContractError, match="between 0 and 1"):
        search(with_(value=1.5), 3)
    with pytest.raises(ContractError, match="between 0 and 1"):
        search(with_(value=float("nan")), 3)
    with pytest.raises(ContractError, match="twice"):
        search(with_([("a", -1.0), ("a", -1.0)]), 3)
    with pytest.raises(ContractError, match="not a number"):
        search(with_([("a", float("nan"))]), 3)
    with pytest.raises(ConfigError, match="greed is 2"):
        SearchSettings(greed=2)


def test_what_was_tried_under_a_parent_can_be_told() -> None:
    tree = search(spelling("ca"), 16, to_the_end=True)
    told = tree.experience()
    assert {entry["action"] for entry in told} == set(LETTERS)
    assert told[0] == {"action": "c", "tries": 4, "mean": 0.625, "best": 1.0}
    assert tree.root.experience["c"].count == 7
