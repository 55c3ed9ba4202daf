"""Run a program on a problem: one named outcome, the share of correct cases, a message for the reader, and a score.

    evaluate = ProgramEvaluator(problem)
    evaluate("def solve(x):\\n    a = sort(x)\\n    return a").outcome

Straight programs are interpreted in this process: they are lists of our own operators, and no text is executed.
Everything else that a model wrote runs in a sandbox, or not at all if there is none.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from groupwise.errors import ConfigError, ContractError
from groupwise.programs.language.faults import FaultCode, ProgramFault
from groupwise.programs.language.operators import Operator, OperatorError, Value, quoted, same
from groupwise.programs.language.parser import Program, host_name, hosted, parse
from groupwise.programs.language.program import Case, CodeProblem, Form, key_of
from groupwise.programs.language.pure_operators import PURE
from groupwise.programs.language.straight_form import run_straight
from groupwise.sandbox import Monty, SandboxLimits, SandboxOutcome, SandboxResult
from groupwise.types import Score

INTEGER = re.compile(r"(?<![\w.])-?\d[\d,]{0,20}(?![\w]|\.\d)")
LEAD = re.compile(r"(?:final answer|answer)\s*(?:is|:|=)\s*", re.IGNORECASE)
LONGEST = 20_000


def answer_in(said: Value, wanted: Value) -> Value:
    """The answer in a model's text, converted to the type of the wanted value; other values unchanged.

    Of several numbers the last one counts, because models reason first.
    """
    if not isinstance(said, str) or isinstance(wanted, bool):
        return said
    text = LEAD.split(said[-LONGEST:])[-1]  # after the last "Answer:", or all of it
    if isinstance(wanted, int):
        found = [match.replace(",", "") for match in INTEGER.findall(text)]
        return int(found[-1]) if found else said
    if isinstance(wanted, list):
        parts = [part.strip(" '\"") for part in re.split(r"[,\s]+", text.strip().strip("[].")) if part]
        return [int(part) for part in parts] if all(re.fullmatch(r"-?\d{1,15}", part) for part in parts) else parts
    return text.strip().strip(".'\"")


# Faults with the outcome `forbidden`; the others have `raised`, as in Python.
TRIED = (FaultCode.FORBIDDEN, FaultCode.UNKNOWN_OPERATOR, FaultCode.UNKNOWN_NAME)
# Outcomes that would be the same, and as expensive, for every other case.
HOPELESS = (SandboxOutcome.TIMED_OUT, SandboxOutcome.MEMORY, SandboxOutcome.FORBIDDEN)
# Operator calls that a workflow may make.
MOST_ASKED = 40
NO_SANDBOX = "without a sandbox only operator calls can run; open a sandbox for other programs"


@dataclass(frozen=True, slots=True)
class ProgramEvaluation:
    """The result of one program on one problem.

    `correctness` is the share of correct cases, and `solved` means all of them. `calls` counts operator calls for the
    question as asked, `length` the lines of the body. `fault` says why a text is not a program, `key` is the same for
    equal programs, and `text` is the normal form.
    """

    outcome: SandboxOutcome
    solved: bool
    correctness: float
    calls: int = 0
    seconds: float = 0.0
    length: int = 0
    message: str = ""
    fault: FaultCode | None = None
    key: str = ""
    text: str = field(default="", repr=False)


class ProgramEvaluator:
    """Evaluates programs for one problem; `sandbox` runs plain programs and workflows."""

    def __init__(
        self,
        problem: CodeProblem,
        sandbox: Monty | None = None,
        *,
        limits: SandboxLimits | None = None,
        operators: Mapping[str, Operator] = PURE,
    ) -> None:
        self.problem, self.sandbox, self.operators = problem, sandbox, operators
        self.limits = limits or SandboxLimits()
        if not problem.cases:
            raise ContractError(f"{problem.id} has no cases to evaluate a program with", hint="Add at least one case.")

    def __call__(self, text: str) -> ProgramEvaluation:
        """Evaluate a text. It never raises, whatever the text."""
        start = time.perf_counter()
        program = parse(text, self.problem.signature, self.operators)
        if isinstance(program, Program) and program.form is Form.STRAIGHT and program.lines > self.problem.max_lines:
            said = f"a program for this problem has at most {self.problem.max_lines} lines, not {program.lines}"
            program = ProgramFault(FaultCode.TOO_LONG, said)
        if isinstance(program, ProgramFault):
            outcome = SandboxOutcome.FORBIDDEN if program.code in TRIED else SandboxOutcome.RAISED
            seconds = time.perf_counter() - start
            return ProgramEvaluation(outcome, False, 0.0, 0, seconds, 0, str(program), program.code, key_of(text), text)
        cases = self.problem.cases[:1] if program.form is Form.WORKFLOW else self.problem.cases
        calls: Counter[str] = Counter()
        ran = self._runs(program, cases, calls)
        return self._judged(program, cases, ran, calls.total() or len(program.steps), start)

    def cases(self, text: str) -> list[tuple[Case, str, bool]]:
        """Every case with what the program returned for it, or why it did not, and whether that is right."""
        program = parse(text, self.problem.signature, self.operators)
        if isinstance(program, ProgramFault) or program.form is Form.WORKFLOW:
            return []
        ran = self._runs(program, self.problem.cases, Counter())
        return [
            (case, quoted(one.value) if one.passed else one.message, one.passed and same(one.value, case.answer))
            for case, one in zip(self.problem.cases, ran, strict=True)
        ]

    def _runs(self, program: Program, cases: Sequence[Case], calls: Counter[str]) -> list[SandboxResult]:
        # A run for every case; the result of a hopeless run stands for all later cases.
        ran: list[SandboxResult] = []
        for case in cases:
            ran.append(self._run(program, case, calls if not ran else Counter()))
            if ran[-1].outcome in HOPELESS:
                break
        return ran + [ran[-1]] * (len(cases) - len(ran))

    def _run(self, program: Program, case: Case, calls: Counter[str]) -> SandboxResult:
        if program.form is Form.STRAIGHT:
            try:
                return SandboxResult(SandboxOutcome.PASSED, run_straight(program, case.inputs, self.operators))
            except OperatorError as error:
                return SandboxResult(SandboxOutcome.RAISED, message=str(error))
        if self.sandbox is None:
            return SandboxResult(SandboxOutcome.FORBIDDEN, message=NO_SANDBOX)
        functions = {host_name(name): _counting(self.operators[name], calls) for name in program.operators}
        given = (self.problem.question,) if program.form is Form.WORKFLOW else case.inputs
        inputs = dict(zip(program.parameters, given, strict=False))
        return self.sandbox.run(hosted(program), inputs, functions, self.limits, call=program.function)

    def _judged(
        self, program: Program, cases: Sequence[Case], ran: Sequence[SandboxResult], calls: int, start: float
    ) -> ProgramEvaluation:
        given = [answer_in(one.value, case.answer) if program.form is Form.WORKFLOW else one.value
                 for one, case in zip(ran, cases, strict=True)]  # fmt: skip
        right = [one.passed and same(value, case.answer) for one, value, case in zip(ran, given, cases, strict=True)]
        failed = next((one for one in ran if not one.passed), None)
        outcome = SandboxOutcome.PASSED if all(right) else SandboxOutcome.WRONG if failed is None else failed.outcome
        return ProgramEvaluation(
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
        # What was wrong: the answer to the question as asked, or the number of wrong variations.
        if all(right):
            return ""
        if not right[0]:
            return f"the answer is {quoted(self.problem.answer)}, but this returns {quoted(given)}"
        missed = right.count(False)
        return f"correct for the question as asked, but wrong for {missed} of {len(right) - 1} variations of it"


def _counting(operator: Operator, calls: Counter[str]) -> Callable[..., Any]:
    # The operator as a host function that counts its calls.
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


# From so many calls and lines on, they earn nothing.
MANY_CALLS, MANY_LINES = 10, 20


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """The weight of each part of a score. From `seconds` on, time earns nothing."""

    correctness: float = 0.9
    calls: float = 0.06
    time: float = 0.03
    length: float = 0.01
    seconds: float = 1.0

    def __post_init__(self) -> None:
        rest = self.calls + self.time + self.length
        if min(self.correctness, self.calls, self.time, self.length) < 0 or self.seconds <= 0:
            raise ConfigError(f"weights must not be negative, and seconds must be positive: {self}")
        if self.correctness < 2 * rest:
            raise ConfigError(
                f"the weight of correctness is {self.correctness:g}; it must be at least twice the rest, {rest:g}",
                hint="Lower the other weights.",
            )


USUAL = RewardWeights()


def score(evaluation: ProgramEvaluation, weights: RewardWeights = USUAL) -> Score:
    shares = {
        "correctness": 1.0,
        "calls": 1 - min(evaluation.calls, MANY_CALLS) / MANY_CALLS,
        # In tenths, so that two runs of one program get the same score.
        "time": 1 - min(10, int(10 * evaluation.seconds / weights.seconds)) / 10,
        "length": 1 - min(evaluation.length, MANY_LINES) / MANY_LINES,
    }
    parts = {name: getattr(weights, name) * share * evaluation.correctness for name, share in shares.items()}
    flags = (str(evaluation.outcome),) if evaluation.fault is None else (str(evaluation.outcome), str(evaluation.fault))
    return Score(sum(parts.values()), parts, flags)
