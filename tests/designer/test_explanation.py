"""Designs in words."""

from __future__ import annotations

import random
import re
from itertools import combinations

import pytest

from groupwise.designer.results.explanation import one_line, uncertain_words
from groupwise.designer.results.report import drawing
from groupwise.workflows import evaluate, parse_requirements, score
from groupwise.workflows.blocks import Activity, Choice, Design, Parallel, PartialOrder, Sequence, Skip
from groupwise.workflows.partial_orders import closure, reduced

A, B, C, D = map(Activity, "abcd")


def test_an_order_is_written_as_chains_with_notes() -> None:
    # d waits for a and b, c only for a.
    assert one_line(PartialOrder((A, B, C, D), frozenset({(0, 2), (0, 3), (1, 3)}))) == "(a → c ∥ b → d (also after a))"
    either = Choice((B, Skip()), (0.3, 0.7))
    order = PartialOrder((A, either, Sequence((C, D)), Activity("e")), frozenset({(0, 2), (1, 2), (1, 3)}))
    assert one_line(order) == "(a → (c → d) (also after b) ∥ [b 30% | – 70%] → e)"


@pytest.mark.parametrize("seed", range(40))
def test_every_activity_of_an_order_is_written_once_and_the_order_can_be_read_back(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdefgh"[: rng.randint(2, 8)]
    edges = frozenset(pair for pair in combinations(range(len(names)), 2) if rng.random() < 0.3)
    words = one_line(PartialOrder(tuple(map(Activity, names)), reduced(len(names), edges)))
    read, seen = set(), []
    for chain in words[1:-1].split(" ∥ "):
        earlier = None
        for step in chain.split(" → "):
            found = re.fullmatch(r"(\w)(?: \((?:also )?after ([\w, ]+)\))?", step)
            assert found is not None, words
            here = names.index(found[1])
            seen.append(found[1])
            read |= {(names.index(name), here) for name in (found[2] or "").split(", ") if name}
            read |= {(earlier, here)} if earlier is not None else set()
            earlier = here
    assert sorted(seen) == list(names)
    assert closure(len(names), frozenset(read)) == closure(len(names), edges)


@pytest.mark.parametrize(("rate", "words"), [(0.5, []), (0.99, ["known only to ±", "'desk' is busy 99% of its time"])])
def test_a_cycle_time_that_is_hardly_known_is_explained(rate: float, words: list[str]) -> None:
    required = parse_requirements(
        {
            "name": "desk",
            "activities": {"greet": {"duration": {"mean": 1}, "pools": ["desk"]}},
            "pools": {"desk": {}},
            "demand": {"arrivals_per_second": rate},
        }
    )
    design = Design("desk", Activity("greet"), (("desk", 1),))
    found = uncertain_words(score(design, required, evaluate(design, required, "measured")))
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)


@pytest.mark.parametrize("length", [1, 12, 60])
def test_a_drawing_in_a_report_is_never_too_small_to_read(length: int) -> None:
    tasks = tuple(Activity(f"task number {number}") for number in range(length))
    for root in (Sequence((A, *tasks)), Parallel((A, Sequence((B, *tasks))))):
        text = drawing(Design("long", root))
        natural, least = (
            float(re.search(pattern, text).group(1)) for pattern in (r'viewBox="0 0 ([\d.]+)', r"min-width:(\d+)px")
        )  # type: ignore[union-attr]
        letters = min(float(size) for size in re.findall(r"font-size:([\d.]+)px", text))
        assert letters * least / natural > 9
