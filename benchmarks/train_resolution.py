"""Fits the weights by which strategies read whether a dialogue was resolved, and writes them.

    python benchmarks/train_resolution.py -o src/groupwise/agents/strategies/resolution.json
    python benchmarks/train_resolution.py --json

A logistic regression is fitted to all development dialogues in which the user has the last word. The claims, without
`-o`, are for the dialogues the rules were never mended for (batches j and later), because elsewhere the rules look
better than they are: `rules_right` by themselves, and `learned_right` by weights fitted without the same few batches.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from record import print_result

from groupwise.agents.strategies.reading import resolved_by_rules
from groupwise.agents.strategies.resolution import Clues, Ending, clues_of

Floats: TypeAlias = NDArray[np.float64]

DIALOGUES = Path(__file__).parent / "dialogue_development.jsonl"
# Batches that are left out together.
LEFT_OUT = ("jkl", "mnop", "qr", "t", "u", "v", "w")
SEEN = 3  # a word must be in this many dialogues
# The inverse strength of the ridge penalty, as in scikit-learn's `C`; of 0.15, 0.3, 0.5 and 1 the one that gave batches
# that were left out the highest likelihood.
STRENGTH = 0.3


class Fitted:
    """Named weights of a logistic regression, for clues as they are found."""

    def __init__(self, weights: dict[str, float], bias: float) -> None:
        self.weights, self.bias = weights, bias

    def __call__(self, clues: Clues) -> float:
        return self.bias + sum(self.weights.get(name, 0.0) * value for name, value in clues.items())


def fit(rows: Sequence[dict[str, Any]]) -> Fitted:
    """Newton's method on the penalised likelihood. Counts (#) are scaled to a spread of 1, words are not."""
    clues = [row["clues"] for row in rows]
    seen = Counter(name for found in clues for name in found)
    names = sorted(name for name, count in seen.items() if name[0] == "#" or count >= SEEN)
    given = np.array([[found.get(name, 0.0) for name in names] for found in clues])
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
    y = np.array([row["resolved"] for row in rows], np.float64)
    penalty = np.full(z.shape[1], 1 / STRENGTH)
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


def read(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text("utf8").splitlines():
        row = json.loads(line)
        turns = Ending.of(row["dialogue"])
        if turns is None:
            continue
        ruled = resolved_by_rules(row["dialogue"])
        rows.append({"batch": row["id"][0], "resolved": row["resolved"], "clues": clues_of(turns), "ruled": ruled})
    return rows


def left_out(rows: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """For some batches at a time: right by rules, right by weights fitted to all others, size."""
    found = {}
    for batches in LEFT_OUT:
        fitted = fit([row for row in rows if row["batch"] not in batches])
        judged = [row for row in rows if row["batch"] in batches]
        ruled = sum(row["ruled"] == row["resolved"] for row in judged)
        learned = sum((fitted(row["clues"]) > 0) == row["resolved"] for row in judged)
        found[batches] = [ruled, learned, len(judged)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="where to write the weights of all dialogues")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: JSON is printed always")
    options = parser.parse_args()
    rows = read(DIALOGUES)
    if options.output:
        fitted = fit(rows)
        kept = {name: round(weight, 3) for name, weight in sorted(fitted.weights.items()) if abs(weight) >= 0.005}
        Path(options.output).write_text(json.dumps({"bias": round(fitted.bias, 3), **kept}, indent=0) + "\n", "utf8")
        return
    counts = left_out(rows)
    ruled, learned, size = (sum(column) for column in zip(*counts.values(), strict=True))
    claims = {"rules_right": ruled, "learned_right": learned, "of_left_out": size, "dialogues": len(rows)}
    print_result("train_resolution", claims, raw={"batches": counts})


if __name__ == "__main__":
    main()
