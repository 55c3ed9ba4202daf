"""GSM8K, MBPP and HumanEval from their files: in the folder `GROUPWISE_DATA` names, or one that is given.

    gsm8k(folder, "test")[0].question

GSM8K's problems have one number as their answer; a program computes it from the numbers in the question. Those of MBPP
and HumanEval ask for a function in full Python and are judged by their own tests, in a sandbox of the second tier.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, StorageError
from groupwise.programs.language.operators import Type
from groupwise.programs.language.problem import Case, CodeProblem, Word
from groupwise.programs.language.program import Signature

VARIABLE = "GROUPWISE_DATA"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MBPP_SPLITS = {"prompt": range(1, 11), "test": range(11, 511), "valid": range(511, 601), "train": range(601, 975)}


def gsm8k(folder: str | Path | None = None, split: str = "test") -> list[CodeProblem]:
    """The problems of GSM8K's `train` or `test` file whose answer is a whole number: all of them."""
    _insist_on_split(split, ("train", "test"), "GSM8K")
    path = _found(folder, f"gsm8k/{split}.jsonl")
    return [_grade_school(row, split, number) for number, row in enumerate(_rows(path))]


def mbpp(folder: str | Path | None = None, split: str | None = None) -> list[CodeProblem]:
    """The problems of MBPP: all, or those of `prompt`, `test`, `valid` or `train` as its authors split them."""
    if split is not None:
        _insist_on_split(split, tuple(MBPP_SPLITS), "MBPP")
    rows = _rows(_found(folder, "mbpp/mbpp.jsonl"))
    return [_basic(row) for row in rows if split is None or row["task_id"] in MBPP_SPLITS[split]]


def humaneval(folder: str | Path | None = None) -> list[CodeProblem]:
    """The 164 problems of HumanEval; they are for testing only."""
    return [_human(row) for row in _rows(_found(folder, "humaneval/HumanEval.jsonl.gz"))]


def _grade_school(row: Mapping[str, Any], split: str, number: int) -> CodeProblem:
    reasoning, _, answer = str(row["answer"]).rpartition("####")
    written = [int(float(found.replace(",", ""))) for found in NUMBER.findall(row["question"]) if len(found) < 10]
    steps = max(1, reasoning.count("<<"))
    return CodeProblem(
        f"gsm8k/{split}/{number}", "gsm8k", split, steps, row["question"], Signature((), Type.INT),
        (Case((), int(answer.strip().replace(",", ""))),),
        tuple(Word(value, Type.INT) for value in dict.fromkeys(written)), max_lines=steps + 3,
    )  # fmt: skip


def _basic(row: Mapping[str, Any]) -> CodeProblem:
    number, tests = int(row["task_id"]), [str(test) for test in row["test_list"]]
    split = next(name for name, numbers in MBPP_SPLITS.items() if number in numbers)
    gold = str(row["code"]).replace("\r\n", "\n")
    return CodeProblem(
        f"mbpp/{number}", "mbpp", split, 1, f"{row['text']}\nIt must pass: {tests[0]}", Signature(()), (),
        checker="tests", tests="\n".join([str(row["test_setup_code"]).replace("\r\n", "\n"), *tests]),
        entry=_called(tests[0], gold), gold=gold,
    )  # fmt: skip


def _human(row: Mapping[str, Any]) -> CodeProblem:
    return CodeProblem(
        str(row["task_id"]), "humaneval", "test", 1, str(row["prompt"]), Signature(()), (), checker="tests",
        tests=f"{row['test']}\ncheck({row['entry_point']})", entry=str(row["entry_point"]),
        gold=f"{row['prompt']}{row['canonical_solution']}",
    )  # fmt: skip


def _called(test: str, gold: str) -> str:
    """The function of the solution that a test calls."""
    defined = re.findall(r"^def (\w+)", gold, re.MULTILINE)
    return next((name for name in defined if re.search(rf"\b{name}\b", test)), defined[-1] if defined else "solve")


def _insist_on_split(split: str, known: tuple[str, ...], name: str) -> None:
    if split not in known:
        raise ConfigError(f"split = {split!r}; {name} has {', '.join(known)}", field="split")


def _found(folder: str | Path | None, name: str) -> Path:
    given = folder if folder is not None else os.environ.get(VARIABLE)
    if given is None:
        raise ConfigError(f"{name} is read from a folder of data, and none is named", hint=f"Set {VARIABLE} to it.")
    path = Path(given) / name
    if not path.is_file():
        raise ConfigError(f"there is no {path}", hint=f"Put it there, or set {VARIABLE} to the folder that has it.")
    return path


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint="Fetch it again.") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise StorageError(f"{path}, line {number}, is no JSON: {error}", hint="Fetch it again.") from error
