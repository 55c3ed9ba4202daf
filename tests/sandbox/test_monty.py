"""The first tier: values, host functions and named outcomes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox import Monty, SandboxLimits, SandboxOutcome
from groupwise.sandbox.fixed_limits import VALUE_PIECES
from groupwise.sandbox.monty import HostCalls, _ending_of, _limits, monty_library
from groupwise.sandbox.plain_data import _Reader

pytest.importorskip("pydantic_monty")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Monty]:
    with Monty(workers=1) as opened:
        yield opened


def test_the_value_is_the_last_expression(sandbox: Monty) -> None:
    ran = sandbox.run("print('hello')\nx + 1", {"x": 2})
    assert (ran.outcome, ran.value, ran.stdout, ran.message) == (SandboxOutcome.PASSED, 3, "hello\n", "")


def test_the_value_is_what_the_named_function_returns(sandbox: Monty) -> None:
    code = "def solve(values, n):\n    return take(values, n)\n"
    ran = sandbox.run(code, {"x": [3, 1, 2], "k": 2}, {"take": lambda values, n: values[:n]}, call="solve")
    assert ran.passed
    assert ran.value == [3, 1]


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ("def solve(:", SandboxOutcome.RAISED, "SyntaxError"),
        ("unknown(3)", SandboxOutcome.RAISED, "NameError: name 'unknown' is not defined (line 1)"),
        ("1\n1 / 0", SandboxOutcome.RAISED, "ZeroDivisionError: division by zero (line 2)"),
        ("raise SystemExit", SandboxOutcome.RAISED, "SystemExit"),
        ("raise TimeoutError('mine')", SandboxOutcome.RAISED, "TimeoutError: mine"),
        ("raise MemoryError('mine')", SandboxOutcome.RAISED, "MemoryError: mine"),
        ("class A:\n    pass\nclass B(A):\n    pass", SandboxOutcome.RAISED, "does not yet support class inheritance"),
        ("def f():\n    return f()\nf()", SandboxOutcome.RAISED, "RecursionError"),
        ("assert 1 == 2", SandboxOutcome.WRONG, "AssertionError"),
        ("class A:\n    pass\n[A()]", SandboxOutcome.WRONG, "which is not plain data"),
        ("x = []\nfor i in range(200):\n    x = [x]\nx", SandboxOutcome.WRONG, "nested deeper than 50 levels"),
        ("10 ** 4000", SandboxOutcome.WRONG, "bits"),
        ("while True:\n    pass", SandboxOutcome.TIMED_OUT, "limit exceeded"),
        ("import time\ntime.sleep(60)", SandboxOutcome.TIMED_OUT, "limit exceeded"),
        ("x = [0] * 10**9", SandboxOutcome.MEMORY, "limit exceeded"),
        ("'a' * 10**9", SandboxOutcome.MEMORY, "limit exceeded"),
        ("while True:\n    print('a' * 1000)", SandboxOutcome.MEMORY, "limit exceeded"),
        ("print('a' * 5000)", SandboxOutcome.MEMORY, "limit exceeded"),
        ("open('/etc/passwd').read()", SandboxOutcome.FORBIDDEN, "PermissionError"),
        ("import socket", SandboxOutcome.FORBIDDEN, "No module named 'socket'"),
        ("import os\nos.system('true')", SandboxOutcome.FORBIDDEN, "no attribute 'system'"),
    ],
)
def test_every_ending_has_a_name_and_a_message(sandbox: Monty, code: str, outcome: SandboxOutcome, words: str) -> None:
    ran = sandbox.run(code, limits=SandboxLimits(seconds=0.1, memory_mb=16, output_kb=4))
    assert (ran.outcome, ran.value) == (outcome, None)
    assert words in ran.message
    assert len(ran.stdout) <= 4096


def test_code_cannot_catch_its_limits(sandbox: Monty) -> None:
    code = "try:\n    while True:\n        pass\nexcept BaseException:\n    pass\n5"
    assert sandbox.run(code, limits=SandboxLimits(seconds=0.1)).outcome is SandboxOutcome.TIMED_OUT


def meeting() -> Callable[[int], Awaitable[int]]:
    """A host function that returns only once it has been called twice."""
    both, calls = asyncio.Event(), count(1)

    async def slow(x: int) -> int:
        if next(calls) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 60)
        return x + 1

    return slow


def test_async_host_functions_wait_side_by_side(sandbox: Monty) -> None:
    code = (
        "import asyncio\nasync def workflow(x):\n    a, b = await asyncio.gather(slow(x), slow(10))\n    return a + b"
    )
    assert sandbox.run(code, {"x": 1}, {"slow": meeting()}, call="workflow").value == 13

    async def main() -> list[int]:
        runs = [sandbox.arun(code, {"x": x}, {"slow": meeting()}, call="workflow") for x in (1, 2)]
        return [ran.value for ran in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == [13, 14]


def test_what_a_host_function_raises_is_an_outcome(sandbox: Monty) -> None:
    def broken() -> None:
        raise ValueError("no such table")

    async def late() -> None:
        raise ValueError("no such row")

    assert sandbox.run("broken()", functions={"broken": broken}).message == "ValueError: no such table (line 1)"
    assert sandbox.run("await late()", functions={"late": late}).message == "ValueError: no such row (line 1)"
    assert "TypeError" in sandbox.run("await late(1, 2)", functions={"late": late}).message
    caught = sandbox.run("try:\n    broken()\nexcept ValueError:\n    x = 7\nx", functions={"broken": broken})
    assert caught.value == 7


def test_calls_of_a_program_that_has_failed_are_cancelled(sandbox: Monty) -> None:
    begun, cancelled = asyncio.Event(), threading.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def broken() -> None:
        await begun.wait()
        raise ValueError("no such row")

    code = "import asyncio\nasync def workflow():\n    await asyncio.gather(slow(), broken())"
    ran = sandbox.run(code, functions={"slow": slow, "broken": broken}, call="workflow")
    assert ran.message.startswith("ValueError: no such row")
    assert cancelled.wait(60)


def test_a_wish_to_stop_the_program_goes_through(sandbox: Monty) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    async def halt() -> None:
        raise KeyboardInterrupt

    for call, function in (("stop()", stop), ("await halt()", halt)):
        with pytest.raises(KeyboardInterrupt):
            sandbox.run(f"try:\n    {call}\nexcept BaseException:\n    pass", functions={function.__name__: function})
    assert sandbox.run("1 + 1").value == 2


def test_calls_of_host_functions_are_limited(sandbox: Monty) -> None:
    ran = sandbox.run("while True:\n    f()", functions={"f": lambda: None}, limits=SandboxLimits(calls=50))
    assert ran.outcome is SandboxOutcome.RAISED
    assert "suspension" in ran.message


def test_a_run_leaves_nothing_behind_for_the_next(sandbox: Monty) -> None:
    assert sandbox.run("left = 1").passed
    assert "NameError" in sandbox.run("left").message


@pytest.mark.parametrize(
    "value",
    [
        None, True, -3, 2**70, 1.5, -0.25, 1e300, 1e-7, float("inf"), "it's \"so\"\n\\ é \x00", b"\xff'", [], [[1], ()],
        (1,), (1, "a"), {}, {"a": [1], 2: (3,)}, {(1, 2): None}, set(), {1, 2}, frozenset(), frozenset({3}),
        [{"name": "x", "n": 1.0}] * 3,
    ],
)  # fmt: skip
def test_values_come_back_as_they_are(sandbox: Monty, value: Any) -> None:
    same = sandbox.run("def f(x):\n    return same(x, extra=[x])", {"x": value}, {"same": kept}, call="f")
    assert same.passed, same
    assert (same.value, type(same.value)) == ([value, [value]], list)
    assert sandbox.run("y = 1; (\n  x # last\n)  # end", {"x": value}).value == value


def kept(x: Any, extra: Any) -> list[Any]:
    return [x, extra]


def test_keys_with_one_hash_do_not_stall_us(sandbox: Monty) -> None:
    # Pairs (a, b) that CPython gives one hash: putting 40,000 of them into a dict takes it a minute.
    code = """
found, a, half = {}, 0, 2**64
p1, p2, p5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
while len(found) < 3000:
    a += 1
    mixed = (p5 + a * p2) % half
    mixed = ((mixed << 31 | mixed >> 33) % half) * p1 % half
    b = (12345 - mixed) * 839798700976720815 % half
    if b < 2**60:
        found[(a, b)] = 0
"""
    ran = sandbox.run(code + "found", limits=SandboxLimits(seconds=5))
    assert (ran.outcome, ran.message) == (
        SandboxOutcome.WRONG,
        "the value has too many keys that are neither strings nor small numbers",
    )
    ran = sandbox.run(code + "f(found)", functions={"f": len}, limits=SandboxLimits(seconds=5))
    assert "f takes only plain data" in ran.message


def pieces_read(work: Callable[[], object]) -> int:
    """How often the reader of literals begins a value."""
    begun = 0

    def notice(frame: FrameType, event: str, _: object) -> None:
        nonlocal begun
        begun += event == "call" and frame.f_code is _Reader.value.__code__

    sys.setprofile(notice)
    try:
        work()
    finally:
        sys.setprofile(None)
    return begun


def test_what_the_code_writes_down_fast_does_not_cost_us_long(sandbox: Monty) -> None:
    many = "x = ['\\n'] * 300_000\n"
    assert sandbox.run(many + "x").message == "the value has more than 100,000 pieces"
    calls = "for i in range(100):\n    try:\n        f(x)\n    except TypeError:\n        pass\n"
    for values in (many, "x = [0] * 50_000\n", "x = 'y' * 1_900_000\n"):
        # A hundred calls of up to 300,000 pieces: what is read of them stays near the limit of one value.
        assert pieces_read(lambda text=values: sandbox.run(text + calls, functions={"f": len})) < 2 * VALUE_PIECES
    assert sandbox.run("f([1] * 100)\nf([2] * 100)", functions={"f": sum}).value == 200


@pytest.mark.parametrize(
    "code", ["x = '\ud800'", "x = 1\0", "# " + "x" * 1_000_001, "f(", "(" * 5000, "-" * 100_000 + "5"]
)
def test_no_text_is_an_exception_of_ours(sandbox: Monty, code: str) -> None:
    assert sandbox.run(code).outcome is SandboxOutcome.RAISED


def test_inputs_that_cannot_be_sent_are_an_error_of_the_caller(sandbox: Monty) -> None:
    with pytest.raises(ConfigError, match="the inputs cannot be sent"):
        sandbox.run("x", {"x": object()})
    with pytest.raises(ConfigError, match="'a b' is not a name"):
        sandbox.run("def f(x): return x", {"a b": 1}, call="f")


def test_limits_must_be_above_zero() -> None:
    with pytest.raises(ConfigError, match="limits.seconds is 0"):
        SandboxLimits(seconds=0)


# Each limit at its value and one beyond it.


def test_limits_reach_the_interpreter_in_its_own_units() -> None:
    limits = SandboxLimits(seconds=1.5, memory_mb=3, output_kb=4, calls=5)
    assert _limits(limits) == {
        "max_feed_duration_secs": 1.5, "max_total_sleep_secs": 1.5, "max_memory": 3 * 2**20, "max_suspensions": 5,
    }  # fmt: skip


@pytest.mark.parametrize(("characters", "outcome"), [(2047, SandboxOutcome.PASSED), (2048, SandboxOutcome.MEMORY)])
def test_output_may_reach_its_limit_and_not_go_beyond(sandbox: Monty, characters: int, outcome: SandboxOutcome) -> None:
    ran = sandbox.run(f"print('x' * {characters})\n5", limits=SandboxLimits(output_kb=2))
    assert ran.outcome is outcome
    assert ran.value == (5 if ran.passed else None)


@pytest.mark.parametrize(("calls", "passed"), [(3, True), (4, False)])
def test_as_many_calls_as_allowed_are_answered(sandbox: Monty, calls: int, passed: bool) -> None:
    made: list[int] = []
    ran = sandbox.run(
        f"for n in range({calls}):\n    f(n)", functions={"f": made.append}, limits=SandboxLimits(calls=3)
    )
    assert ran.passed is passed
    assert made == [0, 1, 2]


def host_calls(**functions: Callable[..., Any]) -> HostCalls:
    def never(*_: Any) -> Any:
        raise AssertionError("nothing here is async")

    return HostCalls(functions, never)


def test_a_host_function_gets_the_arguments_that_the_code_wrote() -> None:
    seen: list[Any] = []

    def note(*given: Any, **named: Any) -> int:
        seen.append((given, named))
        return len(seen)

    calls = host_calls(note=note)
    assert calls._call("note", "((1, [2]), {'k': (3,)})") == 1
    assert calls._call("note", "((), {})") == 2
    assert seen == [((1, [2]), {"k": (3,)}), ((), {})]
    for written in ("<object>", "(1, {}", "((<A object>,), {})"):
        with pytest.raises(TypeError, match="note takes only plain data, but what it was given"):
            calls._call("note", written)
    assert len(seen) == 2


def test_pieces_of_all_arguments_together_are_limited() -> None:
    calls = host_calls(f=len)
    # A call of n items in a list has n + 4 pieces: the pair, the tuple of what is given, the list, and the names.
    written = f"(([{'0,' * 49_996}],), {{}})"
    assert [calls._call("f", written) for _ in range(2)] == [49_996] * 2
    with pytest.raises(TypeError, match="has more than 0 pieces"):
        calls._call("f", "((), {})")
    over = host_calls(f=len)
    assert over._call("f", written) == 49_996
    with pytest.raises(TypeError, match="has more than 50,000 pieces"):
        over._call("f", written.replace("[", "[0,"))


def test_a_refused_argument_is_charged_for_as_well() -> None:
    calls = host_calls(f=len)
    with pytest.raises(TypeError):
        calls._call("f", "[" + "x" * 99_999)
    with pytest.raises(TypeError, match="has more than 50,000 pieces"):
        calls._call("f", f"(([{'0,' * 50_000}],), {{}})")


def test_characters_of_all_arguments_together_are_limited() -> None:
    calls = host_calls(f=len)
    written = f"(('{'y' * 1_999_989}',), {{}})"
    assert len(written) == 2_000_000
    assert [calls._call("f", written) for _ in range(10)] == [1_999_989] * 10
    with pytest.raises(TypeError, match="exceeds 20,000,000 characters together with all earlier calls"):
        calls._call("f", "((), {})")


def test_the_code_cannot_know_the_name_under_which_it_is_answered() -> None:
    first, second = host_calls(f=len), host_calls(f=len)
    assert first._key != second._key
    assert len(first._key) == 33
    assert first._faces() == f"def f(*given, **named):\n    return {first._key}('f', f\"{{(given, named)!r}}\")\n"

    async def late() -> None: ...

    waits = host_calls(late=late)
    assert waits._faces().startswith("async def late(*given, **named):\n    return await _")


def test_sync_and_async_host_functions_serve_one_run(sandbox: Monty) -> None:
    async def double(x: int) -> int:
        return 2 * x

    functions: dict[str, Callable[..., Any]] = {"double": double, "add": lambda a, b: a + b}
    assert sandbox.run("add(await double(3), await double(add(1, 1)))", functions=functions).value == 10


class Frame:
    def __init__(self, filename: str, line: int) -> None:
        self.filename, self.line = filename, line


class Overrun(Exception):
    """An error of Monty's, as it tells of one inside."""

    def __init__(self, inner: BaseException, *frames: Frame) -> None:
        super().__init__("outer")
        self.inner, self.frames = inner, list(frames)

    def exception(self) -> BaseException:
        return self.inner

    def traceback(self) -> list[Frame]:
        return self.frames


@pytest.mark.parametrize(
    ("inner", "outcome"),
    [
        (TimeoutError("time limit exceeded"), SandboxOutcome.TIMED_OUT),
        (MemoryError("memory limit exceeded"), SandboxOutcome.MEMORY),
        (MemoryError("the worker exceeded its memory limit"), SandboxOutcome.MEMORY),
        (RuntimeError("suspension limit exceeded"), SandboxOutcome.RAISED),
        (TimeoutError("mine"), SandboxOutcome.RAISED),
        (MemoryError("mine"), SandboxOutcome.RAISED),
        (PermissionError("no"), SandboxOutcome.FORBIDDEN),
        (ModuleNotFoundError("no"), SandboxOutcome.FORBIDDEN),
        (ImportError("no"), SandboxOutcome.FORBIDDEN),
        (RuntimeError("'f' is not supported in this environment"), SandboxOutcome.FORBIDDEN),
        (AttributeError("module 'os' has no attribute 'x'"), SandboxOutcome.FORBIDDEN),
        (AttributeError("module 'math' has no attribute 'x'"), SandboxOutcome.RAISED),
        (AssertionError(), SandboxOutcome.WRONG),
        (ValueError("odd"), SandboxOutcome.RAISED),
    ],
)
def test_an_error_of_the_interpreter_has_an_outcome(inner: BaseException, outcome: SandboxOutcome) -> None:
    error = Overrun(inner, Frame("main.py", 1), Frame("main.py", 4), Frame("other.py", 9))
    found, message = _ending_of(error, monty_library())
    assert found is outcome
    words = f": {inner}" if str(inner) else ""
    assert message == f"{type(inner).__name__}{words} (line 4)"
    assert _ending_of(Overrun(inner), monty_library())[1] == f"{type(inner).__name__}{words}"


def test_a_pool_is_opened_once_and_again_after_it_was_closed() -> None:
    sandbox = Monty(workers=1)
    assert sandbox.run("1").value == 1
    pool = sandbox._pool
    assert sandbox.run("2").value == 2
    assert sandbox._pool is pool
    sandbox.close()
    assert sandbox._pool is None
    with sandbox:
        assert sandbox.run("3").value == 3
    assert Monty().workers == os.cpu_count()
