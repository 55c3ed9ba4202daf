"""Small domains whose every outcome is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import log

from groupwise.programs.search import Domain, Judged

LETTERS = "abcd"


def spelling(target: str = "cabd", seen: Callable[[str], None] = lambda word: None) -> Domain[str]:
    """Words of as many letters as the target; worth the share of letters in place."""

    def evaluate(word: str) -> Judged:
        seen(word)
        right = sum(a == b for a, b in zip(word, target, strict=True))
        return Judged(right / len(target), word == target, {"word": word})

    return Domain(
        f"spelling {target}",
        "",
        lambda word: [(letter, -log(len(LETTERS))) for letter in LETTERS] if len(word) < len(target) else [],
        str.__add__,
        str,
        evaluate,
        lambda letter: (letter,),
    )


def all_words(length: int) -> set[str]:
    return {"".join(letters) for letters in product(LETTERS, repeat=length)}


def collecting(seen: Callable[[str], None] = lambda letters: None, most: int = 4) -> Domain[str]:
    """Up to `most` letters, ended by a full stop. Their order does not matter, and at the end not how often they occur.

    So there are 16 things to be found, and many ways to each.
    """

    def actions(state: str) -> list[tuple[str, float]]:
        if state.endswith("."):
            return []
        letters = LETTERS if len(state) < most else ""
        return [(action, -1.0) for action in (*letters, ".")]

    def key(state: str) -> str:
        return "".join(sorted(set(state) if state.endswith(".") else state))

    def evaluate(state: str) -> Judged:
        seen(key(state))
        return Judged(len(set(state) - {"."}) / len(LETTERS), set(state) >= set(LETTERS))

    return Domain("collecting", "", actions, str.__add__, key, evaluate)


def needle(depth: int, signpost: bool) -> Domain[str]:
    """One word in 4 ** depth; with a signpost every right letter from the left is worth something."""
    target = (LETTERS * depth)[:depth]

    def evaluate(word: str) -> Judged:
        right = next((n for n, (a, b) in enumerate(zip(word, target, strict=True)) if a != b), depth)
        return Judged(right / depth if signpost else float(right == depth), right == depth)

    domain = spelling(target)
    return Domain(f"needle {depth}", "", domain.actions, domain.step, domain.key, evaluate)
