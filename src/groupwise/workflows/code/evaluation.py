"""What a program is worth on a problem: one named outcome, how much of it is right, and a sentence for the reader.

    evaluate = Evaluator(problem)
    evaluate("def solve(x):\\n    a = sort(x)\\n    return a").outcome

Straight programs are interpreted here: they are lists of our own operators, and nothing of their text is executed.
Everything else that a model wrote runs in a sandbox, or, where none was given, not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from groupwise.sandbox import Limits, Outcome, Ran
from groupwise.workflows.code.faults import Fault, FaultCode
from groupwise.workflows.code.interpreter import run_straight
from groupwise.workflows.code.operators import Operator
from groupwise.workflows.code.problems.problem import Case, CodeProblem
from groupwise.workflows.code.program import Program, parse
from groupwise.workflows.code.pure import PURE
from groupwise.workflows.code.steps import Form
from groupwise.workflows.code.values import OperatorError, quoted, same

TRIED = (FaultCode.FORBIDDEN, FaultCode.UNKNOWN_OPERATOR, FaultCode.UNKNOWN_NAME)
"""Faults that count as forbidden; the others as raised, as Python would."""


class Sandbox(Protocol):
    """Where plain programs and workflows run."""

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        functions: Mapping[str, Any] | None = None,
        limits: Limits = ...,
        *,
        call: str = "",
    ) -> Ran: ...


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One program on one problem.

    `correctness` is the share of cases it got right; `solved` says it got all. `calls` counts operator calls of one
    run and `length` the lines of the body. `fault` names what kept a text from being a program.
    """

    outcome: Outcome
    solved: bool
    correctness: float
    calls: int = 0
    seconds: float = 0.0
    length: int = 0
    message: str = ""
    fault: FaultCode | None = None
    program: Program | None = None

    @property
    def key(self) -> str:
        """Equal for equal programs; empty for a text that is none."""
        return self.program.key if self.program else ""


class Evaluator:
    """Judges programs for one problem. `evaluations` counts those that were run."""

    def __init__(
        self,
        problem: CodeProblem,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
        operators: Mapping[str, Operator] = PURE,
    ) -> None:
        self.problem, self.sandbox, self.operators = problem, sandbox, operators
        self.limits = limits or Limits()
        self.evaluations = 0

    def __call__(self, text: str) -> Evaluation:
        """The evaluation of a program's text, whatever the text is; never an exception because of it."""
        start = time.perf_counter()
        program = parse(text, self.problem.signature, self.operators)
        if isinstance(program, Fault):
            return self._faulty(program, start)
        self.evaluations += 1
        if (lines := program.lines) > self.problem.max_lines and program.form is Form.STRAIGHT:
            said = f"a program for this problem has at most {self.problem.max_lines} lines, not {lines}"
            return self._faulty(Fault(FaultCode.TOO_LONG, said), start)
        ran = self._cases(program)
        return self._judged(program, ran, start)

    def _case(self, program: Program, case: Case) -> Ran:
        if program.form is not Form.STRAIGHT:
            return self._in_sandbox(program, case)
        try:
            return Ran(Outcome.PASSED, run_straight(program, case.inputs, self.operators))
        except OperatorError as error:
            return Ran(Outcome.RAISED, message=str(error))

    def _in_sandbox(self, program: Program, case: Case) -> Ran:
        if self.sandbox is None:
            return Ran(
                Outcome.FORBIDDEN, message="only operator calls are run without a sandbox; open one for the rest"
            )
        names = program.parameters
        inputs = dict(zip(names, case.inputs, strict=True)) if names else {}
        functions = {name: self.operators[name] for name in program.operators}
        return self.sandbox.run(program.text, inputs, functions, self.limits, call=program.function)

    def _judged(self, program: Program, ran: list[Ran], start: float) -> Evaluation:
        right = [one.passed and same(one.value, case.answer) for one, case in zip(ran, self.problem.cases, strict=True)]
        solved = all(right)
        failed = next((one for one in ran if not one.passed), None)
        outcome = Outcome.PASSED if solved else Outcome.WRONG if failed is None else failed.outcome
        return Evaluation(
            outcome,
            solved,
            sum(right) / len(right),
            len(program.steps),
            time.perf_counter() - start,
            program.lines,
            failed.message if failed else self._missed(ran, right),
            program=program,
        )

    def _missed(self, ran: list[Ran], right: list[bool]) -> str:
        """What was wrong, in words: the question's own answer if that was, otherwise how many hidden cases."""
        if all(right):
            return ""
        if not right[0]:
            return f"the answer is {quoted(self.problem.answer)}, and this gives {quoted(ran[0].value)}"
        return (
            f"right for the question as asked, but wrong for {right.count(False)} of {len(right) - 1} variations of it"
        )

    def _faulty(self, fault: Fault, start: float) -> Evaluation:
        outcome = Outcome.FORBIDDEN if fault.code in TRIED else Outcome.RAISED
        return Evaluation(outcome, False, 0.0, 0, time.perf_counter() - start, 0, str(fault), fault.code)
