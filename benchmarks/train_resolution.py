"""Fits the weights by which strategies read whether a dialogue was resolved, and writes them.

    python benchmarks/train_resolution.py -o src/groupwise/agents/strategies/resolution.json
    python benchmarks/train_resolution.py --json

A logistic regression on words is fitted to all development dialogues. A second one weighs its answer against what the
rules find. It is fitted only to the dialogues the rules were never mended for (batches j and later), because elsewhere
the rules look better than they are; and it sees the first one's answers only for batches that this one was not fitted
to. Both are linear, so one weight for each clue is left. The claims are measured with each of those batches left out in
turn: `rules_right` by themselves, `learned_right` with the weights.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from record import print_result

from groupwise.agents.strategies.reading import is_plain, last_turn, resolved_by_rules
from groupwise.agents.strategies.resolution import SURE, Clues, Ending, word_clues

Floats: TypeAlias = NDArray[np.float64]

DIALOGUES = Path(__file__).parent / "dialogue_development.jsonl"
# Batches the rules were mended for.
KNOWN_TO_RULES = frozenset("deghi")
SEEN = 3  # a word must be in this many dialogues
# Inverse strengths of the ridge penalty, as in scikit-learn's `C`; of 0.02, 0.05, 0.1 and 0.2 the one that gave batches
# that were left out the highest likelihood. Of what rules tell, the bare answer did best.
WORDS, RULES = 0.2, 1.0


class Fitted:
    """Named weights of a logistic regression, for clues as they are found."""

    def __init__(self, weights: dict[str, float], bias: float) -> None:
        self.weights, self.bias = weights, bias

    def __call__(self, clues: Clues) -> float:
        return self.bias + sum(self.weights.get(name, 0.0) * value for name, value in clues.items())


def fit(rows: Sequence[Clues], right: Sequence[bool], strength: float) -> Fitted:
    """Newton's method on the penalised likelihood. Counts (#) are scaled to a spread of 1, words are not."""
    seen = Counter(name for row in rows for name in row)
    names = sorted(
        name for name, count in seen.items() if name[0] == "#" or name in ("words", "rules") or count >= SEEN
    )
    given = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    scaled = np.array([name[0] == "#" for name in names])
    mean = np.where(scaled, given.mean(0), 0.0)
    spread = np.where(scaled, given.std(0), 1.0)
    spread[spread == 0] = 1.0
    x = (given - mean) / spread
    # The penalty is the same in every direction, so it is enough to look for the weights in the space the rows span.
    square, left = np.linalg.eigh(x @ x.T)
    used = square > 1e-10 * square.max()
    size = np.sqrt(np.maximum(square, 0))
    z = np.column_stack([left[:, used] * size[used], np.ones(len(x))])
    y = np.array(right, np.float64)
    penalty = np.full(z.shape[1], 1 / strength)
    penalty[-1] = 1e-9
    w = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-(z @ w)))
        slope = z.T @ (p - y) + penalty * w
        step = np.linalg.solve((z.T * (p * (1 - p))) @ z + np.diag(penalty), slope)
        w -= step
        if np.abs(step).max() < 1e-9:
            break
    plain = (x.T @ (left[:, used] / size[used]) @ w[:-1]) / spread
    return Fitted(dict(zip(names, plain.tolist(), strict=True)), float(w[-1] - plain @ mean))


def fit_both(rows: Sequence[dict[str, Any]]) -> Fitted:
    """The words' weights times what they are worth beside the rules, and the rules' own."""
    words, right = [row["words"] for row in rows], [row["resolved"] for row in rows]
    batches = sorted({row["batch"] for row in rows} - KNOWN_TO_RULES)
    second, wanted = [], []
    for batch in batches:
        others = [n for n, row in enumerate(rows) if row["batch"] != batch]
        first = fit([words[n] for n in others], [right[n] for n in others], WORDS)
        for row in rows:
            if row["batch"] == batch:
                second.append({"words": first(row["words"]), "rules": row["ruled"]})
                wanted.append(row["resolved"])
    worth = fit(second, wanted, RULES)
    first = fit(words, right, WORDS)
    scale = worth.weights.pop("words")
    weights = {name: scale * weight for name, weight in first.weights.items()} | worth.weights
    return Fitted(weights, scale * first.bias + worth.bias)


def read(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text("utf8").splitlines():
        row = json.loads(line)
        turns = Ending.of(row["dialogue"])
        if turns is None:
            continue
        ruled = 1.0 if resolved_by_rules(row["dialogue"]) else -1.0
        plain = bool(turns.after) or is_plain(turns.said, last_turn(turns.before))
        words = word_clues(turns)
        rows.append(
            {"batch": row["id"][0], "resolved": row["resolved"], "words": words, "ruled": ruled, "plain": plain}
        )
    return rows


def left_out(rows: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """For each batch that the rules were not mended for: right by rules, right by weights of all others, size."""
    found = {}
    for batch in sorted({row["batch"] for row in rows} - KNOWN_TO_RULES):
        fitted = fit_both([row for row in rows if row["batch"] != batch])
        judged = [row for row in rows if row["batch"] == batch]
        ruled = sum((row["ruled"] > 0) == row["resolved"] for row in judged)
        learned = sum((weighed(row, fitted) > 0) == row["resolved"] for row in judged)
        found[batch] = [ruled, learned, len(judged)]
    return found


def weighed(row: dict[str, Any], fitted: Fitted) -> float:
    """What `is_resolved` makes of a dialogue with these weights: above 0 if it is resolved."""
    told = fitted({**row["words"], "rules": row["ruled"]})
    return float(row["ruled"]) if row["plain"] or abs(told) < math.log(SURE / (1 - SURE)) else told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="where to write the weights of all dialogues")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    rows = read(DIALOGUES)
    if options.output:
        fitted = fit_both(rows)
        kept = {name: round(weight, 3) for name, weight in sorted(fitted.weights.items()) if abs(weight) >= 0.005}
        Path(options.output).write_text(json.dumps({"bias": round(fitted.bias, 3), **kept}, indent=0) + "\n", "utf8")
    counts = left_out(rows)
    ruled, learned, size = (sum(column) for column in zip(*counts.values(), strict=True))
    claims = {"rules_right": ruled, "learned_right": learned, "of_left_out": size, "dialogues": len(rows)}
    print_result("train_resolution", claims, raw={"batches": counts})


if __name__ == "__main__":
    main()
