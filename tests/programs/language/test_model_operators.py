"""Operators that ask a model: workflows over them run in the sandbox, over a function and over a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from groupwise.programs.language.evaluation import MOST_ASKED, ProgramEvaluator, answer_in
from groupwise.programs.language.graph import graph, program_svg
from groupwise.programs.language.model_operators import endpoint, model_operators
from groupwise.programs.language.operators import Type
from groupwise.programs.language.parser import Form, Program, Signature, parse
from groupwise.programs.language.problem import Case, CodeProblem
from groupwise.programs.language.pure_operators import PURE
from groupwise.sandbox import Monty, SandboxOutcome
from groupwise.types import Message

PROBLEM = CodeProblem(
    "sum", "hand", "train", 1, "What is 12 plus 30?", Signature((Type.INT, Type.INT), Type.INT), (Case((12, 30), 42),)
)


class Model:
    """Answers by rule: reasons wrongly every third time, and takes back what a review called wrong."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, messages: Sequence[Message]) -> str:
        task, told = messages[0]["content"], messages[1]["content"]
        self.asked.append(task.split()[0])
        await asyncio.sleep(0)
        match task.split()[0]:
            case "Think":
                return "12 and 30.\nAnswer: " + ("41" if len(self.asked) % 3 == 0 else "42")
            case "Check":
                return "right" if "42" in told else "wrong: it is one too small"
            case "Correct":
                return "42"
            case "Write":
                return "```python\ndef solve():\n    return 12 " + ("+ 30\n```" if "Error" in told else "/ 0\n```")
            case _:
                return "The answer is 42."


@pytest.fixture(scope="module")
def monty() -> Iterator[Monty]:
    pytest.importorskip("pydantic_monty")
    with Monty(workers=2) as sandbox:
        yield sandbox


def workflow(*lines: str) -> str:
    return "\n".join(["async def workflow(problem):", *(f"    {line}" for line in lines)])


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        (["return await generate(problem)"], ["Solve"]),
        (["a = await generate(problem)", "return await format(problem, a)"], ["Solve", "Give"]),
        (["return await ensemble(problem, 5)"], ["Think"] * 5),
        (["return await programmer(problem)"], ["Write", "Write"]),
        (
            ["a = 'is it 41?'", "b = await review(problem, a)", "if b.startswith('right'):", "    return a",
             "return await revise(problem, a, b)"],
            ["Check", "Correct"],
        ),
    ],
)  # fmt: skip
def test_a_workflow_over_a_model_solves_a_problem(monty: Monty, lines: list[str], asked: list[str]) -> None:
    model = Model()
    operators = PURE.joined(model_operators(model, monty))
    found = ProgramEvaluator(PROBLEM, monty, operators=operators)(workflow(*lines))
    assert (found.outcome, found.solved, found.message) == (SandboxOutcome.PASSED, True, "")
    assert model.asked == asked
    assert found.calls == sum(line.count("await") for line in lines)


def test_test_holds_a_program_against_the_tests_a_solver_may_see(monty: Monty) -> None:
    operators = {op.name: op for op in model_operators(Model(), monty, tests="assert solve() == 5")}
    assert asyncio.run(operators["test"].asked("def solve():\n    return 5")) == "passed"
    assert asyncio.run(operators["test"].asked("def solve():\n    return 4")).startswith("wrong")
    refused = {op.name: op for op in model_operators(Model())}
    with pytest.raises(ValueError, match="in a sandbox only"):
        asyncio.run(refused["test"].asked("def solve():\n    return 5"))


def test_a_workflow_that_asks_without_end_is_stopped(monty: Monty) -> None:
    operators = PURE.joined(model_operators(Model(), monty))
    text = workflow("a = problem", "while True:", "    a = await generate(a)", "return a")
    found = ProgramEvaluator(PROBLEM, monty, operators=operators)(text)
    assert found.outcome is SandboxOutcome.RAISED
    assert f"at most {MOST_ASKED} times" in found.message


def test_a_model_that_fails_is_an_outcome_and_no_exception(monty: Monty) -> None:
    async def broken(messages: Sequence[Message]) -> str:
        raise ConnectionError("the server went away")

    operators = PURE.joined(model_operators(broken, monty))
    found = ProgramEvaluator(PROBLEM, monty, operators=operators)(workflow("return await generate(problem)"))
    assert found.outcome is SandboxOutcome.RAISED
    assert "the server went away" in found.message


def test_a_model_must_be_awaited_and_only_in_a_workflow() -> None:
    operators = PURE.joined(model_operators(Model()))
    evaluate = ProgramEvaluator(PROBLEM, operators=operators)
    assert "write `await generate(…)`" in evaluate(workflow("return generate(problem)")).message
    assert "write `await generate(…)`" in evaluate("def solve(x, y):\n    return generate(x)").message
    assert "without `await`" in evaluate(workflow("return await double(2)")).message


def test_a_workflow_has_a_normal_form_a_graph_and_a_picture() -> None:
    operators = PURE.joined(model_operators(Model()))
    text = workflow(
        "first = await chain_of_thought(problem)", "said = await review(problem, first)",
        "if said == 'right':", "    return first", "return await revise(problem, first, said)",
    )  # fmt: skip
    made = parse(text, operators=operators)
    assert isinstance(made, Program)
    assert made.form is Form.WORKFLOW
    assert "    a = await chain_of_thought(problem)\n    b = await review(problem, a)" in made.text
    assert parse(made.text, operators=operators) == made
    seen = graph(made)
    assert list(seen.nodes.values()) == [
        "chain_of_thought(problem)", "review(problem, a)", "revise(problem, a, b)",
    ]  # fmt: skip
    assert {("start", "n0"), ("n0", "n1"), ("n1", "n2"), ("n0", "end"), ("n2", "end")} <= set(seen.edges)
    picture = program_svg(made)
    assert picture.startswith("<svg")
    assert "revise" in picture


def test_the_graph_of_a_straight_program_has_an_arrow_for_every_use() -> None:
    made = parse("def solve(x):\n    return sub(highest(x, 'age'), lowest(x, 'age'))")
    assert isinstance(made, Program)
    seen = graph(made)
    assert list(seen.nodes.values()) == ["highest(x, 'age')", "lowest(x, 'age')", "sub(a, b)"]
    assert seen.edges == (("start", "n0"), ("start", "n1"), ("n0", "n2"), ("n1", "n2"), ("n2", "end"))
    assert "<script" not in program_svg(parse("def solve(x):\n    return where(x, '<script>')"))  # type: ignore[arg-type]


class Server(BaseHTTPRequestHandler):
    """A chat endpoint that adds the numbers in the question."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        numbers = [int(word) for word in body["messages"][1]["content"].replace("?", "").split() if word.isdecimal()]
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        answer = {"choices": [{"message": {"content": f"The answer is {sum(numbers)}."}, "finish_reason": "stop"}]}
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_workflow_asks_a_real_server(monty: Monty) -> None:
    pytest.importorskip("httpx2")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.bodies = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        ask = endpoint("adder", base_url=f"http://127.0.0.1:{server.server_port}/v1", temperature=0.2)
        operators = PURE.joined(model_operators(ask, monty))
        found = ProgramEvaluator(PROBLEM, monty, operators=operators)(workflow("return await generate(problem)"))
    finally:
        server.shutdown()
        server.server_close()
    assert found.solved, found
    (body,) = server.bodies  # type: ignore[attr-defined]
    assert (body["model"], body["temperature"], "response_format" in body) == ("adder", 0.2, False)


@pytest.mark.parametrize(
    ("said", "wanted", "answer"),
    [
        ("First 3, then 4.\nAnswer: 1,234", 5, 1234),
        ("It costs 5 coins", 5, 5),
        ("nothing", 5, "nothing"),
        ("Answer: 1, 2, 3", [1], [1, 2, 3]),
        ("Answer: ['a', 'b']", ["a"], ["a", "b"]),
        ("The answer is Ann.", "Ann", "Ann"),
        ([1], 5, [1]),
        ("9" * 5000, 5, "9" * 5000),
    ],
)
def test_the_answer_is_found_in_what_a_model_said(said: Any, wanted: Any, answer: Any) -> None:
    assert answer_in(said, wanted) == answer
