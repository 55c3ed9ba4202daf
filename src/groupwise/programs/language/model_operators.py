"""Operators that ask a model, in the spirit of AFlow: an OpenAI-compatible endpoint, or any function that answers.

    ask = endpoint("local/qwen")
    operators = PURE.joined(model_operators(ask, sandbox))
    Evaluator(problem, sandbox, operators=operators)(text)

with a program such as

    async def workflow(problem):
        a = await chain_of_thought(problem)
        b = await review(problem, a)
        c = await revise(problem, a, b)
        return c
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from groupwise.programs.language.evaluation import ProgramSandbox, code_in, final
from groupwise.programs.language.operators import LONGEST, Operator, OperatorError, Type
from groupwise.rewards.judge.endpoint import Dialect, JudgeEndpoint, resolve
from groupwise.sandbox import SandboxLimits
from groupwise.types import Message

Ask: TypeAlias = Callable[[Sequence[Message]], Awaitable[str]]
"""A model: messages in, its words out."""

TEXT, INT = Type.TEXT, Type.INT
MOST_VOTES = 15
GENERATE = "Solve the problem. Give the answer and nothing else."
THINK = "Think step by step. End with a line `Answer:` and the answer alone."
REVIEW = "Check the solution to the problem. Say `right`, or `wrong:` and what is wrong with it, in one sentence."
REVISE = "Correct the solution to the problem as the review says. Give the corrected answer and nothing else."
PROGRAM = "Write a Python function `solve()` without parameters and without imports that returns the answer. Only code."
FORMAT = "Give the final answer that the solution comes to, in the shortest form: a number, a word or a list."


def endpoint(model: str, *, base_url: str = "", timeout: float = 60.0, temperature: float = 0.7) -> Ask:
    """A model behind an OpenAI-compatible endpoint, named as judges are: `openai/gpt-4o-mini`, `local/qwen`."""
    server = JudgeEndpoint(
        resolve(model, base_url=base_url or None), timeout, {"temperature": temperature}, role="model"
    )
    server.dialect = Dialect("text", server.options)

    async def ask(messages: Sequence[Message]) -> str:
        return (await server.ask(messages, {})).text

    return ask


def model_operators(ask: Ask, sandbox: ProgramSandbox | None = None, *, tests: str = "") -> tuple[Operator, ...]:
    """The operators over one model. `programmer` and `test` run what it wrote in the sandbox, or refuse to.

    `tests` are Python assertions that `test` holds a program against: those a solver may see.
    """
    asking = _Asking(ask, sandbox, tests)
    return (
        _op("generate", (TEXT,), asking.generate, "an answer, straight away"),
        _op("chain_of_thought", (TEXT,), asking.chain_of_thought, "an answer after reasoning step by step"),
        _op("ensemble", (TEXT, INT), asking.ensemble, "the most frequent of n answers, each reasoned for itself"),
        _op("review", (TEXT, TEXT), asking.review, "whether a solution is right, and what is wrong with it"),
        _op("revise", (TEXT, TEXT, TEXT), asking.revise, "a better solution after a review"),
        _op("programmer", (TEXT,), asking.programmer, "the answer of a program written for the problem"),
        _op("test", (TEXT,), asking.test, "`passed`, or what a program's tests say"),
        _op("format", (TEXT, TEXT), asking.format, "the answer alone, out of a solution"),
    )


def _op(name: str, takes: tuple[Type, ...], run: Callable[..., Awaitable[str]], doc: str) -> Operator:
    return Operator(name, takes, TEXT, run, "model", doc)


class _Asking:
    """What the operators share: a model, a sandbox and the tests a solver may see."""

    def __init__(self, ask: Ask, sandbox: ProgramSandbox | None, tests: str) -> None:
        self.ask, self.sandbox, self.tests = ask, sandbox, tests

    async def said(self, task: str, **parts: str) -> str:
        """What the model says to a task and its named parts."""
        told = "\n\n".join(f"{name.capitalize()}:\n{text}" for name, text in parts.items())
        messages = [{"role": "system", "content": task}, {"role": "user", "content": told}]
        return (await self.ask(messages))[:LONGEST].strip()

    async def generate(self, problem: str) -> str:
        return await self.said(GENERATE, problem=problem)

    async def chain_of_thought(self, problem: str) -> str:
        return final(await self.said(THINK, problem=problem)).strip()

    async def ensemble(self, problem: str, votes: int) -> str:
        if not 1 <= votes <= MOST_VOTES:
            raise OperatorError(f"ensemble takes 1 to {MOST_VOTES} votes, not {votes}")
        answers = await asyncio.gather(*(self.chain_of_thought(problem) for _ in range(votes)))
        return Counter(answers).most_common(1)[0][0]

    async def review(self, problem: str, solution: str) -> str:
        return await self.said(REVIEW, problem=problem, solution=solution)

    async def revise(self, problem: str, solution: str, review: str) -> str:
        return await self.said(REVISE, problem=problem, solution=solution, review=review)

    async def format(self, problem: str, solution: str) -> str:
        return final(await self.said(FORMAT, problem=problem, solution=solution)).strip()

    async def programmer(self, problem: str) -> str:
        """The value of a program that the model wrote; one that fails is shown its error and written anew, once."""
        code = code_in(await self.said(PROGRAM, problem=problem))
        ran = await asyncio.to_thread(self._opened().run, code, None, None, SandboxLimits(), call="solve")
        if not ran.passed:
            code = code_in(await self.said(PROGRAM, problem=problem, program=code, error=ran.message))
            ran = await asyncio.to_thread(self._opened().run, code, None, None, SandboxLimits(), call="solve")
        if not ran.passed:
            raise OperatorError(f"programmer wrote a program that {ran.outcome}: {ran.message}")
        return str(ran.value)

    async def test(self, program: str) -> str:
        """`passed`, or the outcome and message of the tests."""
        text = f"{code_in(program)}\n\n{self.tests}\n"
        ran = await asyncio.to_thread(self._opened().run, text, None, None, SandboxLimits())
        return "passed" if ran.passed else f"{ran.outcome}: {ran.message}"

    def _opened(self) -> ProgramSandbox:
        if self.sandbox is None:
            raise OperatorError("programs that a model wrote are run in a sandbox only; open one")
        return self.sandbox
