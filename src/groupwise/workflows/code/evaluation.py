"""What a program is worth on a problem: one named outcome, how much of it is right, and a sentence for the reader.

    evaluate = Evaluator(problem)
    evaluate("def solve(x):\\n    a = sort(x)\\n    return a").outcome

Straight programs are interpreted here: they are lists of our own operators, and nothing of their text is executed.
Everything else that a model wrote runs in a sandbox, or, where none was given, not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol

from groupwise.errors import ContractError
from groupwise.sandbox import Limits, Outcome, Ran
from groupwise.workflows.code.answers import answer_in
from groupwise.workflows.code.faults import Fault, FaultCode
from groupwise.workflows.code.interpreter import run_straight
from groupwise.workflows.code.operators import Operator
from groupwise.workflows.code.plain import host_name, hosted
from groupwise.workflows.code.problem import Case, CodeProblem
from groupwise.workflows.code.program import Program, parse
from groupwise.workflows.code.pure import PURE
from groupwise.workflows.code.reading import LONGEST_TEXT
from groupwise.workflows.code.steps import Form
from groupwise.workflows.code.values import OperatorError, quoted, same

TRIED = (FaultCode.FORBIDDEN, FaultCode.UNKNOWN_OPERATOR, FaultCode.UNKNOWN_NAME)
"""Faults that count as forbidden; the others as raised, as Python would."""
HOPELESS = (Outcome.TIMED_OUT, Outcome.MEMORY, Outcome.FORBIDDEN)
MOST_ASKED = 40
NO_SANDBOX = "only operator calls are run without a sandbox; open one for everything else"
NO_TESTER = "tests in full Python are run in a sandbox of the second tier only; open one"


class Sandbox(Protocol):
    """Where plain programs and workflows run: the first tier."""

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        limits: Limits = ...,
        *,
        call: str = "",
    ) -> Ran: ...


class Tester(Protocol):
    """Where full Python meets its tests: the second tier."""

    def run(
        self, code: str, inputs: Mapping[str, Any] | None = None, limits: Limits = ..., *, tests: str = ""
    ) -> Ran: ...


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One program on one problem.

    `correctness` is the share of cases it got right; `solved` says it got all. `calls` counts operator calls on the
    question as asked and `length` the lines of the body. `fault` names what kept a text from being a program, `key`
    is equal for equal programs, and `text` is the program in its normal form.
    """

    outcome: Outcome
    solved: bool
    correctness: float
    calls: int = 0
    seconds: float = 0.0
    length: int = 0
    message: str = ""
    fault: FaultCode | None = None
    key: str = ""
    text: str = field(default="", repr=False)


class Evaluator:
    """Judges programs for one problem. `sandbox` runs plain programs and workflows, `tester` tests in full Python."""

    def __init__(
        self,
        problem: CodeProblem,
        sandbox: Sandbox | None = None,
        *,
        tester: Tester | None = None,
        limits: Limits | None = None,
        operators: Mapping[str, Operator] = PURE,
    ) -> None:
        self.problem, self.sandbox, self.tester, self.operators = problem, sandbox, tester, operators
        self.limits = limits or Limits()
        if problem.checker == "cases" and not problem.cases:
            raise ContractError(
                f"{problem.id} has no case to judge a program by", hint="Give it cases, or tests and checker='tests'."
            )

    def __call__(self, text: str) -> Evaluation:
        """The evaluation of a program's text, whatever the text is; never an exception because of it."""
        start = time.perf_counter()
        if self.problem.checker == "tests":
            return self._tested(text, start)
        program = parse(text, self.problem.signature, self.operators)
        if isinstance(program, Program) and program.form is Form.STRAIGHT and program.lines > self.problem.max_lines:
            said = f"a program for this problem has at most {self.problem.max_lines} lines, not {program.lines}"
            program = Fault(FaultCode.TOO_LONG, said)
        if isinstance(program, Fault):
            outcome = Outcome.FORBIDDEN if program.code in TRIED else Outcome.RAISED
            seconds = time.perf_counter() - start
            return Evaluation(outcome, False, 0.0, 0, seconds, 0, str(program), program.code, _key(text), text)
        cases = self.problem.cases[:1] if program.form is Form.WORKFLOW else self.problem.cases
        calls: Counter[str] = Counter()
        ran = self._runs(program, cases, calls)
        return self._judged(program, cases, ran, calls.total() or len(program.steps), start)

    async def evaluate(self, text: str) -> Evaluation:
        """The same for an event loop, which is not blocked."""
        return await asyncio.to_thread(self, text)

    def _runs(self, program: Program, cases: Sequence[Case], calls: Counter[str]) -> list[Ran]:
        """A run for every case; after one that used up its time or memory, or was forbidden, the rest are spared."""
        ran: list[Ran] = []
        for case in cases:
            ran.append(self._run(program, case, calls if not ran else Counter()))
            if ran[-1].outcome in HOPELESS:
                break
        return ran + [ran[-1]] * (len(cases) - len(ran))

    def _run(self, program: Program, case: Case, calls: Counter[str]) -> Ran:
        if program.form is Form.STRAIGHT:
            try:
                return Ran(Outcome.PASSED, run_straight(program, case.inputs, self.operators))
            except OperatorError as error:
                return Ran(Outcome.RAISED, message=str(error))
        if self.sandbox is None:
            return Ran(Outcome.FORBIDDEN, message=NO_SANDBOX)
        functions = {host_name(name): _counting(self.operators[name], calls) for name in program.operators}
        given = (self.problem.question,) if program.form is Form.WORKFLOW else case.inputs
        inputs = dict(zip(program.parameters, given, strict=False))
        return self.sandbox.run(hosted(program), inputs, functions, self.limits, call=program.function)

    def _judged(
        self, program: Program, cases: Sequence[Case], ran: Sequence[Ran], calls: int, start: float
    ) -> Evaluation:
        given = [answer_in(one.value, case.answer) if program.form is Form.WORKFLOW else one.value
                 for one, case in zip(ran, cases, strict=True)]  # fmt: skip
        right = [one.passed and same(value, case.answer) for one, value, case in zip(ran, given, cases, strict=True)]
        failed = next((one for one in ran if not one.passed), None)
        outcome = Outcome.PASSED if all(right) else Outcome.WRONG if failed is None else failed.outcome
        return Evaluation(
            outcome,
            all(right),
            sum(right) / len(right),
            calls,
            time.perf_counter() - start,
            program.lines,
            failed.message if failed else self._missed(given[0], right),
            key=program.key,
            text=program.text,
        )

    def _missed(self, given: Any, right: Sequence[bool]) -> str:
        """What was wrong, in words: the answer to the question as asked, or how many variations of it."""
        if all(right):
            return ""
        if not right[0]:
            return f"the answer is {quoted(self.problem.answer)}, and this gives {quoted(given)}"
        missed = right.count(False)
        return f"right for the question as asked, but wrong for {missed} of {len(right) - 1} variations of it"

    def _tested(self, text: str, start: float) -> Evaluation:
        """A program in full Python against the problem's own tests."""
        if len(text) > LONGEST_TEXT:
            said = f"a program has at most {LONGEST_TEXT:,} characters, not {len(text):,}"
            return Evaluation(Outcome.RAISED, False, 0.0, message=said, fault=FaultCode.TOO_LONG, key=_key(text))
        ran = Ran(Outcome.FORBIDDEN, message=NO_TESTER)
        if self.tester is not None:
            ran = self.tester.run(text, None, self.limits, tests=self.problem.tests)
        seconds = time.perf_counter() - start
        lines = text.strip().count("\n") + 1
        return Evaluation(
            ran.outcome, ran.passed, float(ran.passed), 0, seconds, lines, ran.message, None, _key(text), text
        )


def _counting(operator: Operator, calls: Counter[str]) -> Callable[..., Any]:
    """The operator as a host function that counts how often it is called."""
    if operator.kind == "model":

        @wraps(operator.run)
        async def asked(*given: Any) -> Any:
            calls[operator.name] += 1
            if calls.total() > MOST_ASKED:
                raise OperatorError(f"a workflow may call operators at most {MOST_ASKED} times")
            return await operator.asked(*given)

        return asked

    def called(*given: Any) -> Any:
        calls[operator.name] += 1
        return operator(*given)

    return called


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()[:16]
