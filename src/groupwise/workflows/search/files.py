"""Every program that a search evaluated, as a file of its own, with how it was found and how it did."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from groupwise.training.storage import disk
from groupwise.workflows.code.grammar import as_program
from groupwise.workflows.code.problem import CodeProblem
from groupwise.workflows.search.tree import Record


def program_text(problem: CodeProblem, record: Record) -> str:
    return as_program(record.actions, problem) + "\n"


def save_programs(problem: CodeProblem, records: Iterable[Record], folder: Path) -> list[Path]:
    """Write records' programs, one file each; the paths."""
    paths = []
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for record in records:
            path = folder / f"{record.number:03}.py"
            path.write_text(_heading(problem, record) + program_text(problem, record), encoding="utf8")
            paths.append(path)
    return paths


def _heading(problem: CodeProblem, record: Record) -> str:
    prior = sum(step.log_prior for step in record.steps)
    lines = [
        *problem.question.split("\n"),
        f"evaluation {record.number}: {record.judged.notes.get('outcome', '')}, worth {record.judged.value:.3f}",
        f"drawn with log-probability {record.log_prob:.4f}; under the prior alone {prior:.4f}",
    ]
    return "".join(f"# {line}\n" for line in lines)


def record_told(problem: CodeProblem, record: Record) -> dict[str, Any]:
    """A record for JSON."""
    return {
        "evaluation": record.number,
        "program": program_text(problem, record),
        "worth": record.judged.value,
        "solved": record.judged.solved,
        **record.judged.notes,
        "log_prob": record.log_prob,
        "line_log_probs": [step.log_prob for step in record.steps],
        "line_log_priors": [step.log_prior for step in record.steps],
    }
