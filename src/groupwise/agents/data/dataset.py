"""`task.environment` → problems; a data file's rows as problems, and how answers to them are checked.

    [task]
    environment = "sums.jsonl"
    options = { prompt = "question", answer = "answer", check = "number" }

`DataOptions` lists the options. Held-out rows come from a test file, from `eval_file`, or from a split by a hash of the
prompt, so that they are never trained on.
"""

import copy
import difflib
import hashlib
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, Self

from groupwise.agents.data.kept_problems import find, keep, kept_folder
from groupwise.agents.data.problems import TASKS, Epochs, Problem, Problems, template_options
from groupwise.agents.data.reasoning_gym import PREFIX, GymProblems
from groupwise.agents.data.rows import READERS, DataRow, read_rows, read_splits, refused
from groupwise.config import TaskSettings
from groupwise.errors import ConfigError, ContractError
from groupwise.foreign_programs import ProgramFailed, last_matches
from groupwise.rewards.rules.correctness import last_number
from groupwise.thoughts import without_thoughts
from groupwise.types import Message, Score
from groupwise.user_code import load_module


def answer_in(text: str, pattern: str) -> str | None:
    """Return the last match of the pattern (its first group, if any), trimmed; without a pattern, the entire text."""
    return answers_in([text], pattern)[0]


def answers_in(texts: Sequence[str], pattern: str) -> list[str | None]:
    """Return `answer_in` of each text."""
    if not pattern:
        return [text.strip() for text in texts]
    try:
        found = last_matches(pattern, texts)
    except ProgramFailed as error:
        raise _wrong_option("answer_pattern", pattern, f"cannot be used: {error.message}") from None
    return [None if groups is None else (groups[:2][-1] or "").strip() for groups in found]


class Check:
    """Scores a text against a problem. This one is for rows without right answers, which `reward.name` scores instead.

    `refuses` says what is wrong with a row's reference answer, if anything.
    """

    needs_answer = False

    def refuses(self, answer: str) -> str:
        return ""

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score | Awaitable[Score]:
        hint = "Set reward.name to choose a reward."
        raise ContractError("task.options.check = 'none' cannot grade an answer", hint=hint)


class TextCheck(Check):
    """Compares texts: 1 if right, 0 if wrong. A truncated answer is wrong."""

    needs_answer = True

    def __init__(self, right: Callable[[str, str], bool], numeric: bool = False) -> None:
        self.right, self.numeric = right, numeric

    def refuses(self, answer: str) -> str:
        if self.numeric and last_number(answer) is None:
            return "has an answer without a number"
        return "" if answer else "has an empty answer"

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score:
        answer = answer_in(without_thoughts(text), pattern) if finished else None
        correct = float(answer is not None and self.right(answer, problem.answer))
        return Score(correct, {"correct": correct, "format": float(answer is not None)})


CHECKS: Mapping[str, Check] = {
    "exact": TextCheck(lambda answer, right: answer == right),
    "number": TextCheck(lambda answer, right: last_number(answer) == last_number(right), numeric=True),
    "contains": TextCheck(lambda answer, right: right in answer),
    "none": Check(),
}


class FunctionCheck(Check):
    """Your own function: it gets the text and, by name, the columns of the row that it has parameters for.

    It may be async. One that calls sys.exit has failed, like one that raises.
    """

    def __init__(self, reference: str, function: Callable[..., Any], columns: Iterable[str]) -> None:
        self.reference, self.function = reference, function
        first, *others = _parameters(reference, function)
        self.taken = first.name
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in others)
        named = [p for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.named = {p.name for p in named}
        missing = {p.name for p in named if p.default is p.empty} - set(columns)
        if missing:
            fault = f"needs {', '.join(sorted(missing))}, which no row has"
            raise _wrong_option("check", reference, fault, f"The columns are {', '.join(sorted(columns))}.")

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score | Awaitable[Score]:
        wanted = [name for name in problem.columns if name != self.taken and (self.takes_all or name in self.named)]
        columns = {name: problem.columns[name] for name in wanted}
        try:
            score = self.function(without_thoughts(text), **columns)
        except (Exception, SystemExit) as error:
            raise self._broken(problem, error) from error
        return self._awaited(problem, score) if inspect.isawaitable(score) else self._sound(problem, score)

    async def _awaited(self, problem: Problem, score: Awaitable[Any]) -> Score:
        try:
            answer = await score
        except (Exception, SystemExit) as error:
            raise self._broken(problem, error) from error
        return self._sound(problem, answer)

    def _broken(self, problem: Problem, error: BaseException) -> ContractError:
        message = f"{self.reference} raised {type(error).__name__} on {problem.place}: {error}"
        return ContractError(message)

    def _sound(self, problem: Problem, score: Any) -> Score:
        total = score.total if isinstance(score, Score) else score
        if not isinstance(total, Real) or not math.isfinite(total):
            raise ContractError(f"{self.reference} returned {score!r:.80} on {problem.place}, not a finite number")
        return score if isinstance(score, Score) else Score(float(total))


def find_check(name: str, columns: Iterable[str]) -> Check:
    """Return a check by its name, or your own given as `module:function` or `file.py:function`."""
    if name in CHECKS:
        return CHECKS[name]
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function.isidentifier():
        hint = f"Use one of {', '.join(CHECKS)}, or your own as module:function."
        raise _wrong_option("check", name, "is not a check", hint)
    found = getattr(load_module(module, lambda fault: _wrong_option("check", name, fault)), function, None)
    if not callable(found):
        raise _wrong_option("check", name, f"does not name a function: {module} has no {function!r}")
    return FunctionCheck(name, found, columns)


def _parameters(reference: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        parameters = []
    if not parameters:
        raise _wrong_option("check", reference, "takes no arguments", "It gets the text, then columns by name.")
    return parameters


ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
COLUMN = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class DataOptions:
    """`task.options` of a data file. `prompt` and `demonstration` name a column, or are a text with {columns} in it."""

    prompt: str = "prompt"
    answer: str = "answer"
    answer_pattern: str = ""
    check: str = "exact"
    demonstration: str = ""
    eval_file: str = ""
    held_out_share: float = 0.1

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Self:
        known = {field.name: type(field.default) for field in fields(cls)}
        for name, value in options.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"Did you mean {near[0]!r}?" if near else f"The options are {', '.join(known)}."
                raise _wrong_option(name, value, "is not an option of a data file", hint)
            # TOML writes 1 where 1.0 is meant; a bool is an int in Python, but not here.
            fits = float | int if known[name] is float else known[name]
            if not isinstance(value, fits) or isinstance(value, bool):
                raise _wrong_option(name, value, "has the wrong type", f"It must be a {known[name].__name__}.")
        read = cls(**options)
        if not 0 < read.held_out_share < 1:
            raise _wrong_option("held_out_share", read.held_out_share, "must be between 0 and 1")
        answers_in([""], read.answer_pattern)
        return read


class DataProblems(Epochs[Problem]):
    """The rows of a file as problems."""

    def __init__(self, path: Path, options: DataOptions) -> None:
        self.name = path.stem or path.resolve().name
        self.options = options
        self.kept = kept_folder([path, *([Path(options.eval_file)] if options.eval_file else [])], asdict(options))
        known = find(self.kept) if self.kept is not None else None
        if known is not None:
            about = known[2]
            self.check: Check = find_check(options.check, about["columns"])
            self.same_columns = bool(about["same"])
            super().__init__(known[0], known[1])
            return
        rows, held_out = read_splits(path)
        if options.eval_file:
            held_out = read_rows(Path(options.eval_file))
        columns = sorted({name for row in rows for name in row.columns})
        self.check = find_check(options.check, columns)
        self.same_columns = all(len(row.columns) == len(columns) for row in rows)
        problems = self._problems(rows)
        if held_out is None:
            train, test = split(problems, options.held_out_share, str(path))
        else:
            test = self._problems(held_out)
            # A prompt that is also in the evaluation file is never trained on.
            judged = {problem.text for problem in test}
            train = [problem for problem in problems if problem.text not in judged]
            if not train:
                raise refused(f"{path}: every training prompt is also held out for evaluation", "Hold out other rows.")
        super().__init__(train, test)
        about = {"columns": columns, "same": self.same_columns, "json": path.suffix.lower() in (".json", ".jsonl")}
        if self.kept is not None and not keep(self.kept, train, test, about):
            self.kept = None

    def __iter__(self) -> Iterator[Problem]:
        """All problems: training, then held-out ones."""
        return chain(self.train, self.test)

    @property
    def has_check(self) -> bool:
        """Whether something says if an answer is right; with check = "none", only a reward scores it."""
        return self.check is not CHECKS["none"]

    def without(self, faults: Mapping[str, str]) -> Self:
        """The problems except those at these places; refuses to leave none to train on, or none to evaluate on."""
        left = copy.copy(self)
        left.kept = None
        train, test = ([p for p in side if p.place not in faults] for side in (self.train, self.test))
        for name, some, before in (("training", train, self.train), ("held-out", test, self.test)):
            if before and not some:
                place, fault = next(iter(faults.items()))
                raise refused(
                    f"the reward can use none of the {len(before)} {name} tasks of {self.name!r} ({place}: {fault})",
                    "Correct these rows, or add others.",
                )
        Epochs.__init__(left, train, test)
        return left

    def grade(self, problem: Problem, text: str, finished: bool) -> Score | Awaitable[Score]:
        return self.check(problem, text, finished, self.options.answer_pattern)

    def demonstration(self, problem: Problem) -> str:
        if problem.demonstration is None:
            message = f"the data {self.name!r} has no demonstrations to imitate ({problem.place})"
            hint = "Name their column, for example --set task.options.demonstration=answer."
            raise ConfigError(message, hint=hint, field="task.options")
        return problem.demonstration

    def _problems(self, rows: Sequence[DataRow]) -> list[Problem]:
        texts = [self._answer_column(row) for row in rows]
        found = iter(answers_in([text for text in texts if text is not None], self.options.answer_pattern))
        answers = (
            "" if text is None else self._answer(row, text, next(found)) for row, text in zip(rows, texts, strict=True)
        )
        return [self._problem(row, answer) for row, answer in zip(rows, answers, strict=True)]

    def _problem(self, row: DataRow, answer: str) -> Problem:
        wanted = self.options
        prompt: Any = _filled(row, wanted.prompt) if COLUMN.search(wanted.prompt) else _value(row, wanted.prompt)
        shown = _filled(row, wanted.demonstration, alone=True) if wanted.demonstration else None
        prompt, said = _chat(row, wanted.prompt, prompt)
        shown = said if shown is None else shown
        try:
            template_options(row.columns.get("chat_template_kwargs"))
        except ValueError as error:
            raise refused(f"{row.place}: {error}") from None
        return Problem(prompt, answer, row.columns, shown, row.place)

    def _answer_column(self, row: DataRow) -> str | None:
        """Return the column that contains the right answer; None if a check of yours does without one."""
        if not self.check.needs_answer and self.options.answer not in row.columns:
            return None
        return _text(row, self.options.answer, _value(row, self.options.answer))

    def _answer(self, row: DataRow, whole: str, answer: str | None) -> str:
        """Return the right answer that was found in its column."""
        if answer is None:
            raise refused(
                f"{row.place}: the column {self.options.answer!r} does not match "
                f"task.options.answer_pattern = {self.options.answer_pattern!r}: {whole[-60:]!r}"
            )
        fault = self.check.refuses(answer)
        if fault:
            raise refused(f"{row.place}: the column {self.options.answer!r} {fault}: {answer[:60]!r}")
        return answer


# Most tasks that are listed by name for one reason.
NAMED = 10


def listed(faults: Mapping[str, str]) -> str:
    """Return tasks by their names, grouped by what is wrong with them."""
    by_reason: dict[str, list[str]] = {}
    for name, fault in faults.items():
        by_reason.setdefault(fault, []).append(name)
    return "; ".join(
        f"{', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''} ({reason})"
        for reason, names in by_reason.items()
    )


def find_data(path: Path, options: Mapping[str, Any]) -> DataProblems:
    return DataProblems(path, DataOptions.read(options))


def split(problems: Sequence[Problem], share: float, path: str) -> tuple[list[Problem], list[Problem]]:
    """Split by a hash of the prompt alone, so that adding rows never moves another row to the other side."""
    place = {problem.text: _hash(problem.text) for problem in problems}
    if len(place) < 2:
        raise refused(f"{path} has only one prompt; training and evaluation need one each", "Add rows or eval_file.")
    lowest, highest = min(place.values()), max(place.values())
    # Moved inwards if necessary, so that neither side is empty.
    border = min(max(share, math.nextafter(lowest, 1)), highest)
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[place[problem.text] < border].append(problem)
    return sides


def _hash(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode("utf8", "surrogatepass")).digest()[:6], "big") / 2**48


def _value(row: DataRow, name: str) -> Any:
    if name not in row.columns:
        there = ", ".join(row.columns) or "none"
        raise refused(f"{row.place} has no column {name!r}", f"Its columns are {there}; choose one in task.options.")
    return row.columns[name]


def _filled(row: DataRow, template: str, alone: bool = False) -> str:
    """Fill {columns} into a template. With `alone`, a template without any is the name of a column."""
    if alone and not COLUMN.search(template):
        return _text(row, template, _value(row, template))
    return COLUMN.sub(lambda found: _text(row, found[1], _value(row, found[1])), template)


def _text(row: DataRow, name: str, value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(f"{row.place}: the column {name!r} is {value}, not a number")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise refused(f"{row.place}: the column {name!r} contains half of a surrogate pair, which is not a character")
    if isinstance(value, str | int | float):
        return str(value)
    raise refused(f"{row.place}: the column {name!r} is {'empty' if value is None else type(value).__name__}, not text")


def _chat(row: DataRow, name: str, value: Any) -> tuple[tuple[Message, ...] | str, str | None]:
    """Split a chat into the messages up to the user's last and, if there is one, the assistant's answer to it."""
    if not isinstance(value, list):
        return _text(row, name, value), None
    sound = [m for m in value if isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m]
    if not value or len(sound) < len(value):
        message = f"{row.place}: the column {name!r} is not a list of messages"
        raise refused(message, 'Write messages like {"role": "user", "content": "…"}.')
    for role in (m["role"] for m in sound):
        if not ROLE.fullmatch(role):
            raise refused(f"{row.place}: the column {name!r} has a message with the role {role!r:.60}, not a word")
    chat = tuple({"role": m["role"], "content": _text(row, f"{name}.content", m["content"])} for m in sound)
    said = chat[-1]["content"] if chat[-1]["role"] == "assistant" else None
    return (chat, None) if said is None else (chat[:-1], said)


def _wrong_option(name: str, value: Any, fault: str, hint: str = "") -> ConfigError:
    return ConfigError(f"task.options.{name} = {value!r} {fault}", hint=hint, field="task.options")


def names_data(name: str) -> bool:
    """Whether a name is that of a file or folder with data."""
    path = Path(name)
    return "/" in name or path.suffix.lower() in READERS or path.exists()


def find_problems(task: TaskSettings) -> Problems:
    """Return the problems that `task.environment` names: a built-in task, a reasoning-gym dataset, or a data file."""
    name, path = task.environment, Path(task.environment)
    if name in TASKS:
        return TASKS[name].with_options(task.options)
    if name.startswith(PREFIX):
        return GymProblems(name.removeprefix(PREFIX), task.options)
    if names_data(name):
        return find_data(path, task.options)
    near = difflib.get_close_matches(name, TASKS, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Use one of {', '.join(TASKS)}, or the path of a data file."
    raise ConfigError(f"task.environment = {name!r} is not a known task", hint=hint, field="task.environment")
