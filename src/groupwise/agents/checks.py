"""How the text of a model is compared with the right answer of a data row."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from numbers import Real
from typing import Any, Protocol

from groupwise.agents.problems import Problem
from groupwise.errors import ConfigError, ContractError
from groupwise.rewards.correctness import last_number
from groupwise.types import Score
from groupwise.user_code import load_module


def answer_in(text: str, pattern: str) -> str | None:
    """The last match of the pattern (its first group, if it has one), trimmed; the whole text without a pattern."""
    if not pattern:
        return text.strip()
    found = list(re.finditer(pattern, text))
    if not found:
        return None
    return (found[-1].group(1 if found[-1].re.groups else 0) or "").strip()


class Check(Protocol):
    """Scores a text against a problem. `refuses` says what is wrong with a right answer, if anything."""

    needs_answer: bool

    def refuses(self, answer: str) -> str: ...
    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score | Awaitable[Score]: ...


class TextCheck:
    """Compares texts: right is 1, wrong is 0, and an answer that was cut off is not right."""

    needs_answer = True

    def __init__(self, right: Callable[[str, str], bool], numeric: bool = False) -> None:
        self.right, self.numeric = right, numeric

    def refuses(self, answer: str) -> str:
        if self.numeric and last_number(answer) is None:
            return "has an answer without a number"
        return "" if answer else "has an empty answer"

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score:
        answer = answer_in(text, pattern) if finished else None
        correct = float(answer is not None and self.right(answer, problem.answer))
        return Score(correct, {"correct": correct, "format": float(answer is not None)})


class NoCheck:
    """For rows without right answers, of which `reward.name` says what they are worth."""

    needs_answer = False

    def refuses(self, answer: str) -> str:
        return ""

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score:
        raise ContractError(
            "task.options.check = 'none' leaves nothing to tell right from wrong by", hint="Set reward.name."
        )


CHECKS: Mapping[str, Check] = {
    "exact": TextCheck(lambda answer, right: answer == right),
    "number": TextCheck(lambda answer, right: last_number(answer) == last_number(right), numeric=True),
    "contains": TextCheck(lambda answer, right: right in answer),
    "none": NoCheck(),
}


class FunctionCheck:
    """A function of one's own: it gets the text and, by their names, the columns of the row that it asks for.

    It may be async. One that ends the program has failed like one that raises.
    """

    needs_answer = False

    def __init__(self, reference: str, function: Callable[..., Any], columns: Iterable[str]) -> None:
        self.reference, self.function = reference, function
        first, *others = _parameters(reference, function)
        self.taken = first.name
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in others)
        named = [p for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.named = {p.name for p in named}
        missing = {p.name for p in named if p.default is p.empty} - set(columns)
        if missing:
            there = ", ".join(sorted(columns))
            raise _refused(
                reference, f"needs {', '.join(sorted(missing))}, which no row has", f"Columns there: {there}."
            )

    def refuses(self, answer: str) -> str:
        return ""

    def __call__(self, problem: Problem, text: str, finished: bool, pattern: str) -> Score | Awaitable[Score]:
        columns = {name: value for name, value in problem.columns.items() if self._wants(name)}
        try:
            score = self.function(text, **columns)
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
        return ContractError(message, hint="Run it on this row alone to see the traceback.")

    def _sound(self, problem: Problem, score: Any) -> Score:
        total = score.total if isinstance(score, Score) else score
        if not isinstance(total, Real) or not math.isfinite(total):
            raise ContractError(f"{self.reference} returned {score!r:.80} on {problem.place}, not a finite number")
        return score if isinstance(score, Score) else Score(float(total))

    def _wants(self, name: str) -> bool:
        return name != self.taken and (self.takes_all or name in self.named)


def find_check(name: str, columns: Iterable[str]) -> Check:
    """A check by its name, or one's own as `module:function` or `file.py:function`."""
    if name in CHECKS:
        return CHECKS[name]
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise _refused(name, "is not a check", f"One of {', '.join(CHECKS)}, or your own as module:function.")
    found = getattr(load_module(module, lambda fault: _refused(name, fault)), function, None)
    if not callable(found):
        raise _refused(name, f"names no function: {module} has no {function!r}")
    return FunctionCheck(name, found, columns)


def _parameters(reference: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        parameters = []
    if not parameters:
        raise _refused(reference, "takes no arguments", "It gets the text, then columns by their names.")
    return parameters


def _refused(reference: str, fault: str, hint: str = "") -> ConfigError:
    return ConfigError(f"task.options.check = {reference!r} {fault}", hint=hint, field="task.options")
