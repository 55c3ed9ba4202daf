"""The user's own problems: from a file of examples, or from a question with its answer.

    question: Keep the even numbers, then add them up.
    examples:
      - {inputs: [[1, 2, 3, 4]], answer: 6}
      - {inputs: [[5, 6, 8]], answer: 14}
    constants: [2]        # what lines may contain; by default the numbers of the question
    max_lines: 4          # of the body, including `return`

A table is a list of rows, each with a `name`; its columns, words and names are always allowed as constants.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError
from groupwise.programs.language.faults import MOST_LINES
from groupwise.programs.language.operators import Type, Value, fits, quoted
from groupwise.programs.language.program import PARAMETERS, Case, CodeProblem, Signature, Split, Word
from groupwise.programs.problems import FAMILIES, generate
from groupwise.readers import load_yaml, read_bytes

FIELDS = ("question", "examples", "constants", "max_lines")
USUAL_LINES = 4
TYPES = (Type.INT, Type.TEXT, Type.NUMBERS, Type.WORDS, Type.TABLE)
EXAMPLE = "Write it as `- {inputs: [[1, 2, 3]], answer: 6}`."


def problem_of_file(path: Path) -> CodeProblem:
    try:
        data = load_yaml(read_bytes(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    return problem_of(data, path.stem)


def problem_of(data: Any, name: str) -> CodeProblem:
    if not isinstance(data, Mapping):
        raise ConfigError(f"a problem needs fields ({', '.join(FIELDS)}), but this is {quoted(data)}")
    for field in data:
        if field not in FIELDS:
            hint = f"Its fields are {', '.join(FIELDS)}."
            raise ConfigError(f"a problem has no field {field!r}", hint=hint, field=str(field))
    cases = _cases(data.get("examples"))
    question = str(data.get("question", ""))
    takes = tuple(_type([case.inputs[at] for case in cases], f"input {at + 1}") for at in range(len(cases[0].inputs)))
    signature = Signature(takes, _type([case.answer for case in cases], "the answer"))
    constants, lines = _constants(data, question, cases), _lines(data)
    return CodeProblem(f"own/{name}", "own", "own", lines - 1, question, signature, cases, constants, lines)


def problem_of_question(question: str, answer: Value, max_lines: int = USUAL_LINES) -> CodeProblem:
    """A question with its answer; the numbers it mentions are the parameters of `solve`, in order."""
    numbers = _numbers(question)
    if not 1 <= len(numbers) <= len(PARAMETERS):
        raise ConfigError(
            f"the question mentions {len(numbers)} numbers; a program takes 1 to {len(PARAMETERS)}",
            hint="Put examples in a file instead: `groupwise solve problem.yaml`.",
        )
    signature, cases = Signature((Type.INT,) * len(numbers), _type([answer], "the answer")), (Case(numbers, answer),)
    lines = _lines({"max_lines": max_lines})
    return CodeProblem("own/question", "own", "own", lines - 1, question, signature, cases, max_lines=lines)


def _lines(data: Mapping[str, Any]) -> int:
    lines = data.get("max_lines", USUAL_LINES)
    if not isinstance(lines, int) or not 2 <= lines <= MOST_LINES:
        raise ConfigError(f"max_lines = {lines!r}, but must be from 2 to {MOST_LINES}", field="max_lines")
    return lines


def _cases(examples: Any) -> tuple[Case, ...]:
    if not isinstance(examples, Sequence) or isinstance(examples, str) or not examples:
        raise _bad_example("a problem needs at least one example")
    cases: list[Case] = []
    for number, example in enumerate(examples, 1):
        if not isinstance(example, Mapping) or set(example) != {"inputs", "answer"}:
            raise _bad_example(f"example {number} must have inputs and an answer, but is {quoted(example)}")
        inputs = example["inputs"]
        if not isinstance(inputs, list) or len(inputs) != len(cases[0].inputs if cases else inputs):
            wanted = f"a list of {len(cases[0].inputs)} inputs" if cases else "a list of inputs"
            raise _bad_example(f"example {number} needs {wanted}, not {quoted(inputs)}")
        if not 1 <= len(inputs) <= len(PARAMETERS):
            raise _bad_example(f"a program takes 1 to {len(PARAMETERS)} inputs, not {len(inputs)}")
        cases.append(Case(tuple(inputs), example["answer"]))
    return tuple(cases)


def _bad_example(message: str) -> ConfigError:
    return ConfigError(message, hint=EXAMPLE, field="examples")


def _type(values: Sequence[Value], where: str) -> Type:
    # The type of all values in one place.
    for wanted in TYPES:
        if all(fits(value, wanted) for value in values):
            return wanted
    examples = ", ".join(quoted(value, 24) for value in values[:3])
    raise ConfigError(
        f"{where} must have one type that programs support, but is {examples}",
        hint="Use integers, strings, lists of either, or tables (lists of rows).",
        field="examples",
    )


def _constants(data: Mapping[str, Any], question: str, cases: Sequence[Case]) -> tuple[Word, ...]:
    # What lines may contain: the file's constants or the question's numbers, and the words of the tables.
    tables = [value for case in cases for value in case.inputs if fits(value, Type.TABLE)]
    given = data.get("constants", sorted(set(_numbers(question))))
    if not isinstance(given, list) or not all(fits(one, Type.INT) or fits(one, Type.TEXT) for one in given):
        raise ConfigError(f"constants are integers and words, not {quoted(given)}", field="constants")
    words = [Word(one, Type.INT if isinstance(one, int) else Type.TEXT) for one in given]
    for row in (row for table in tables for row in table):
        for column, value in row.items():
            if not isinstance(column, str) or not isinstance(value, int | str):
                raise _bad_example(f"the cells of a table are integers and words, but {column!r} is {quoted(value)}")
            if isinstance(value, int):
                words.append(Word(column, Type.COLUMN))
            else:
                words.append(Word(value, Type.ROW if column == "name" else Type.CELL))
    return tuple(dict.fromkeys(words))


def _numbers(question: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"(?<![\w.])-?\d{1,9}(?![\w])", question))


def problem_named(words: str, seed: int, split: Split, difficulty: int, answer: str | None) -> CodeProblem:
    """The problem that the argument of `groupwise solve` names: a family, a file or a question."""
    if words in FAMILIES:
        return generate(words, seed, split, difficulty)
    path = Path(words)
    if path.suffix in (".json", ".yaml", ".yml"):
        return problem_of_file(path)
    if not any(letter.isspace() for letter in words.strip()):
        raise ConfigError(
            f"{words!r} is not a family, a problem file or a question",
            hint=f"The families are {', '.join(FAMILIES)}; a file ends in .yaml or .json.",
        )
    if answer is None:
        raise ConfigError(
            "the question has no answer to check programs against",
            hint="Add --answer, or put examples in a file: `groupwise solve problem.yaml`.",
            field="answer",
        )
    return problem_of_question(words, _value(answer))


def _value(answer: str) -> object:
    try:
        return json.loads(answer)
    except ValueError:
        return answer
