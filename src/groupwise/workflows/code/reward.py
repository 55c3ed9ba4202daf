"""From an evaluation to a score: correctness first, then calls, time and length, as far as the program is right.

The weights are bounded so that what comes first decides: six cases make steps of 0.15 in correctness, and the rest
together adds at most 0.1. It is earned in proportion to correctness, so a quick wrong program gains nothing by being
quick. Time counts in tenths of its limit, so that two runs of one program score alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import ConfigError, StorageError
from groupwise.types import Score
from groupwise.workflows.code.evaluation import Evaluation
from groupwise.workflows.code.problem import CodeProblem

MANY_CALLS, MANY_LINES = 10, 20


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """What each part of a score is worth. `seconds` is the time after which time earns nothing."""

    correctness: float = 0.9
    calls: float = 0.06
    time: float = 0.03
    length: float = 0.01
    seconds: float = 1.0

    def __post_init__(self) -> None:
        rest = self.calls + self.time + self.length
        if min(self.correctness, self.calls, self.time, self.length) < 0 or self.seconds <= 0:
            raise ConfigError(f"weights must not be negative, and seconds be above 0: {self}")
        if self.correctness < 2 * rest:
            raise ConfigError(
                f"correctness weighs {self.correctness:g} and the rest {rest:g}; it must weigh at least twice as much",
                hint="Correctness comes first; lower the other weights.",
            )


USUAL = RewardWeights()


def score(evaluation: Evaluation, weights: RewardWeights = USUAL) -> Score:
    """The score of a program, with its parts."""
    shares = {
        "correctness": 1.0,
        "calls": 1 - min(evaluation.calls, MANY_CALLS) / MANY_CALLS,
        "time": 1 - min(10, int(10 * evaluation.seconds / weights.seconds)) / 10,
        "length": 1 - min(evaluation.length, MANY_LINES) / MANY_LINES,
    }
    parts = {name: getattr(weights, name) * share * evaluation.correctness for name, share in shares.items()}
    flags = (str(evaluation.outcome),) if evaluation.fault is None else (str(evaluation.outcome), str(evaluation.fault))
    return Score(sum(parts.values()), parts, flags)


def save_program(folder: Path, problem: CodeProblem, text: str, key: str) -> Path:
    """Keep a searched program as a file of its own, named by problem and key; the path is its `workflow_path`."""
    place = folder / re.sub(r"[^\w.-]+", "-", problem.id)
    try:
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{re.sub(r'[^0-9a-z]', '', key)[:16] or 'program'}.py"
        path.write_text(text + "\n", "utf8", errors="backslashreplace")
    except OSError as error:
        raise StorageError(f"the program could not be saved in {place}: {error}", hint="Is the disk full?") from error
    return path
