"""Every call of a turn comes to a named outcome, in order and in time, whatever the tool or the model does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.agents.conversation.call_formats import FORMATS, read_reply
from groupwise.agents.environments.contract import BrokenCall, Observation, Reply, ToolCall, Transition
from groupwise.agents.tools.function_tool import tool
from groupwise.agents.tools.toolbox import HANGING, Toolbox, ToolResult, WithTools, as_text, counts
from groupwise.errors import ConfigError, ContractError
from groupwise.types import End, Task


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@tool
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return f"slept {seconds}"


@tool
async def rest(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"rested {seconds}"


@tool(timeout=0.05)
def hang() -> None:
    release.wait(20)


@tool(timeout=0.05)
async def stubborn() -> None:
    """It will not be cancelled."""
    while not release.is_set():
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@tool
def broken(how: str) -> Any:
    """Raises by name, or returns what cannot be written."""
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "stop":
        raise StopIteration("no more")
    if how == "coroutine":
        return asyncio.sleep(0)
    raise {"lookup": KeyError, "time": TimeoutError}[how]("of <object at 0x7f00aa>" + "x" * 900)


@tool
async def exits(how: str = "exit") -> None:
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "interrupt":
        raise KeyboardInterrupt
    sys.exit(3)


release = threading.Event()
ALL = [add, sleep, rest, hang, stubborn, broken, exits]


@pytest.fixture(autouse=True)
def let_go() -> Any:
    release.clear()
    yield
    release.set()


def run(calls: list[tuple[str, dict[str, Any]]], **options: Any) -> list[ToolResult]:
    numbered = [ToolCall(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(calls)]

    async def work() -> list[ToolResult]:
        results = await Toolbox(ALL, **options).run(numbered)
        release.set()
        return results

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "said"),
    [
        ("add", {"a": 2, "b": 3}, "ok", "5"),
        ("add", {"a": 2}, "bad_arguments", "error: wrong arguments for add: b is required"),
        ("add", {"a": 2, "b": "3"}, "bad_arguments", 'b: input should be a valid integer, not "3"'),
        ("add", {"a": 2, "b": 3, "c": 4}, "bad_arguments", "c is not a parameter"),
        ("ad", {}, "unknown_tool", "error: there is no tool 'ad'; did you mean 'add'?"),
        ("weather", {}, "unknown_tool", "there are add, sleep, rest, hang, stubborn, broken, exits"),
        ("", {}, "unknown_tool", "there is no tool ''"),
        ("x" * 10**6, {}, "unknown_tool", "more characters"),
        ("hang", {}, "timed_out", "error: hang took longer than 0.05 s"),
        ("stubborn", {}, "timed_out", "error: stubborn took longer than 0.05 s"),
        ("broken", {"how": "lookup"}, "raised", "error: KeyError: 'of <object>xxx"),
        ("broken", {"how": "time"}, "raised", "error: TimeoutError: of <object>xxx"),
        ("broken", {"how": "exit"}, "raised", "error: SystemExit: 3"),
        ("broken", {"how": "interrupt"}, "raised", "error: KeyboardInterrupt"),
        ("broken", {"how": "stop"}, "raised", "error: StopIteration: no more"),
        ("broken", {"how": "coroutine"}, "raised", "it returned a coroutine"),
        ("exits", {}, "raised", "error: SystemExit: 3"),
        ("exits", {"how": "cancel"}, "raised", "error: CancelledError"),
        ("exits", {"how": "interrupt"}, "raised", "error: KeyboardInterrupt"),
    ],
)
def test_every_outcome_has_a_name_and_tells_the_model_what_was_wrong(
    name: str, arguments: dict[str, Any], outcome: str, said: str
) -> None:
    (result,) = run([(name, arguments)])
    assert result.outcome == outcome
    assert said in result.content
    assert len(result.content) < 700
    assert result.as_message() == {"role": "tool", "tool_call_id": "c0", "name": name[:64], "content": result.content}


def test_calls_run_at_once_and_answer_in_order() -> None:
    """Each of the four meets the others at a barrier, which none could pass alone."""
    blocking, met = threading.Barrier(2, timeout=600), asyncio.Barrier(2)

    @tool
    def meet(name: str) -> str:
        blocking.wait()
        return name

    @tool
    async def gather(name: str) -> str:
        await met.wait()
        return name

    calls = [("meet", "a"), ("gather", "b"), ("add", ""), ("meet", "c"), ("gather", "d"), ("hang", "")]
    made = [ToolCall(f"c{n}", name, {"name": v} if v else {"a": 1, "b": 1} if name == "add" else {})
            for n, (name, v) in enumerate(calls)]  # fmt: skip
    results = asyncio.run(Toolbox([meet, gather, add, hang], timeout=600).run(made))
    assert [result.content for result in results][:5] == ["a", "b", "2", "c", "d"]
    assert [result.call.id for result in results] == [f"c{n}" for n in range(6)]
    assert all(result.seconds > 0 for result in results)


def test_no_more_than_the_limit_run_at_once() -> None:
    running: list[int] = [0, 0]  # now, and at most

    @tool
    async def count() -> None:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0)
        running[0] -= 1

    results = asyncio.run(Toolbox([count], parallel=2).run([ToolCall(f"c{n}", "count", {}) for n in range(6)]))
    assert all(result.ok for result in results)
    assert running == [0, 2]


def test_a_blocking_tool_does_not_stop_the_event_loop() -> None:
    """The tool waits for something that only the event loop can do meanwhile."""
    ready = threading.Event()

    @tool
    def wait() -> bool:
        return ready.wait(60)

    async def free_it() -> list[ToolResult]:
        work = asyncio.ensure_future(Toolbox([wait], timeout=600).run([ToolCall("c", "wait", {})]))
        await asyncio.sleep(0)
        ready.set()
        return await work

    assert [result.content for result in asyncio.run(free_it())] == ["true"]


def test_a_hundred_conversations_with_blocking_tools_do_not_wait_for_each_other() -> None:
    everyone = threading.Barrier(100, timeout=600)

    @tool
    def meet() -> str:
        everyone.wait()
        return "met"

    async def crowd() -> list[list[ToolResult]]:
        box = Toolbox([meet], timeout=600)
        return await asyncio.gather(*(box.run([ToolCall("c", "meet", {})]) for _ in range(100)))

    assert {result.content for (result,) in asyncio.run(crowd())} == {"met"}


def test_a_tool_that_always_hangs_is_given_up_until_its_calls_return() -> None:
    async def course() -> list[str]:
        box = Toolbox(ALL, most_calls=100, parallel=100)
        hung = await box.run([ToolCall(str(n), "hang", {}) for n in range(HANGING)])
        refused, works = await box.run([ToolCall("x", "hang", {}), ToolCall("y", "add", {"a": 1, "b": 1})])
        release.set()
        while box._hanging["hang"]:
            await asyncio.sleep(0)
        (again,) = await box.run([ToolCall("z", "hang", {})])
        return [hung[-1].content, refused.content, works.content, again.outcome]

    assert asyncio.run(course()) == [
        "error: hang took longer than 0.05 s",
        f"error: hang is out of order: {HANGING} earlier calls have not returned",
        "2",
        "ok",
    ]


def test_who_waits_for_tools_can_be_cancelled() -> None:
    """The tools would not return before the test's own time limit."""

    async def course() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                box = Toolbox(ALL, timeout=600)
                await box.run([ToolCall("a", "rest", {"seconds": 600}), ToolCall("b", "sleep", {"seconds": 600})])

    asyncio.run(course())


def test_too_many_calls_in_one_turn_are_cut_and_said() -> None:
    results = run([("add", {"a": n, "b": 0}) for n in range(10_000)], most_calls=3)
    assert [r.outcome for r in results] == ["ok", "ok", "ok", "too_many"]
    assert results[-1].content == "error: 10000 calls in one turn; only 3 are run"


def test_malformed_calls_are_answered_in_their_place() -> None:
    form = next(form for form in FORMATS if form.name == "lines")
    reply = read_reply('@add {"a": 1, "b": 1}\n@add {"a": 1,\n@add {"a": 2, "b": 2}', form, turn=0)
    results = asyncio.run(Toolbox(ALL).run(reply.tool_calls, reply.broken))
    assert [r.outcome for r in results] == ["ok", "malformed", "ok"]
    assert results[1].content.startswith("error: the call is not valid JSON")
    assert results[1].content.endswith("""in 'add {"a": 1,'""")
    assert len({r.as_message()["tool_call_id"] for r in results}) == 3


@dataclass
class Order:
    number: int
    due: date


class Odd:
    def __repr__(self) -> str:
        return "<Odd at 0x7fe0>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        ({"ü": [1, 2.5, None]}, '{"ü": [1, 2.5, null]}'),
        ([Order(1, date(2026, 1, 2))], '[{"number": 1, "due": "2026-01-02"}]'),
        ({3}, "[3]"),
        (Odd(), "<Odd>"),
        ([Odd()], "[<Odd>]"),
        (b"\xff", "b'\\xff'"),
        (float("nan"), "NaN"),
    ],
)
def test_results_are_texts(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_results_without_end_are_texts_too() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    assert as_text(circle) == "[[...]]"

    @tool
    def dig() -> Any:
        return deep

    (result,) = asyncio.run(Toolbox([dig]).run([ToolCall("c", "dig", {})]))
    assert result.outcome == "raised"


def test_a_long_result_is_cut_and_says_so() -> None:
    @tool
    def book() -> str:
        return "x" * 10**6

    (result,) = asyncio.run(Toolbox([book], longest_result=10).run([ToolCall("c", "book", {})]))
    assert result.content == "x" * 10 + "… (999990 more characters)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.just("add") | st.text(), st.dictionaries(st.text(), json_values, max_size=3)), max_size=4),
    st.lists(st.tuples(st.text(), st.text()), max_size=3),
)
def test_any_calls_come_to_outcomes(calls: list[Any], wrong: list[Any]) -> None:
    asked = [ToolCall(f"c{n:03}", name, arguments) for n, (name, arguments) in enumerate(calls)]
    malformed = [BrokenCall(text, problem, f"d{n:03}") for n, (text, problem) in enumerate(wrong)]
    results = asyncio.run(Toolbox([add]).run(asked, malformed))
    assert [r.call for r in results] == [*asked, *malformed]
    assert all(isinstance(r.content, str) for r in results)


def test_a_toolbox_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'add'"):
        Toolbox([add, add])
    with pytest.raises(ConfigError, match="timeout = 0"):
        Toolbox([add], timeout=0)
    with pytest.raises(ConfigError, match="most_calls = -1"):
        Toolbox([add], most_calls=-1)

    class Till:
        @tool
        def close(self) -> None: ...

    with pytest.raises(ConfigError, match="close is a method without an object"):
        Toolbox([Till.close])


class Echo:
    """Counts the words that reach it, and ends at "bye"."""

    closed = False

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def reset(self, task: Task) -> Observation:
        return Observation(({"role": "user", "content": "go"},))

    async def step(self, reply: Reply) -> Transition:
        self.heard.append(reply.content)
        end = End.FINISHED if reply.content == "bye" else None
        return Transition(({"role": "user", "content": "and?"},), 0.5, end, {"words": 1.0})

    async def close(self) -> None:
        self.closed = True


def hold(replies: list[str], **options: Any) -> tuple[WithTools, list[Transition]]:
    form = next(form for form in FORMATS if form.name == "lines")
    environment = WithTools(Echo(), Toolbox([add]), **options)

    async def course() -> list[Transition]:
        observation = await environment.reset(Task("echo/0"))
        assert [t["function"]["name"] for t in observation.tools] == ["add"]
        steps = [await environment.step(read_reply(text, form, turn)) for turn, text in enumerate(replies)]
        await environment.close()
        return steps

    return environment, asyncio.run(course())


def test_calls_are_answered_by_tools_and_words_by_the_environment() -> None:
    environment, steps = hold(
        ['@add {"a": 1, "b": 2}', "three", '@add {"a": 1}\n@sub {}\n@add {"a": 4, "b": 4}', "bye"]
    )
    assert environment.environment.heard == ["three", "bye"]  # type: ignore[attr-defined]
    assert environment.environment.closed  # type: ignore[attr-defined]
    assert [[m["content"] for m in step.messages] for step in steps[:2]] == [["3"], ["and?"]]
    assert [step.end for step in steps] == [None, None, None, End.FINISHED]
    assert [step.reward for step in steps] == [0.0, 0.5, 0.0, 0.5]
    assert steps[2].parts == {
        "tool_calls": 3.0, "tool_errors": 2.0, "tool_errors/bad_arguments": 1, "tool_errors/unknown_tool": 1,
    }  # fmt: skip
    assert steps[3].parts == {"tool_calls": 0.0, "tool_errors": 0.0, "words": 1.0}
    assert counts(environment.results)["tool_calls"] == 4


def test_turns_that_fail_in_a_row_end_the_conversation() -> None:
    wrong, half, right = "@sub {}", '@sub {}\n@add {"a": 1, "b": 1}', '@add {"a": 1, "b": 1}'
    ends = [step.end for step in hold([wrong, right, wrong, half, wrong, "hm", wrong, wrong], max_failures=2)[1]]
    assert ends == [None] * 7 + [End.TOOL_FAILURE]
    assert all(step.end is None for step in hold([wrong] * 30)[1])
    assert hold(["@add ["], max_failures=1)[1][0].end is End.TOOL_FAILURE
    with pytest.raises(ConfigError, match="max_failures = 0"):
        hold([], max_failures=0)


def test_an_environment_with_tools_of_its_own_is_refused() -> None:
    nested = WithTools(WithTools(Echo(), Toolbox([add])), Toolbox([sleep]))
    with pytest.raises(ContractError, match="has its own tools"):
        asyncio.run(nested.reset(Task("echo/0")))
