"""The second tier: values, tests, programs, groups, and answers that only pretend to be right."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.sandbox import Bubblewrap, JudgedProgram, SandboxLimits, SandboxOutcome, available
from groupwise.sandbox.bubblewrap import _job, proved_interpreter
from groupwise.sandbox.bubblewrap_command import _providers
from groupwise.sandbox.bubblewrap_process import SandboxProcess, _ran
from groupwise.sandbox.wire import dumps

if fault := available()["bubblewrap"]:
    pytest.skip(fault, allow_module_level=True)

PATIENT = SandboxLimits(seconds=10)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Bubblewrap]:
    with Bubblewrap(workers=2) as opened:
        yield opened


def test_the_value_is_what_the_named_function_returns(sandbox: Bubblewrap) -> None:
    code = "def solve(a, b):\n    print('hello')\n    return {'sum': a + b, 'pair': (a, {b}), 'big': 2**100, 'x': 1.5j}"
    ran = sandbox.run(code, {"x": 1, "y": 2}, PATIENT, call="solve")
    assert (ran.outcome, ran.stdout, ran.message) == (SandboxOutcome.PASSED, "hello\n", "")
    assert ran.value == {"sum": 3, "pair": (1, {2}), "big": 2**100, "x": 1.5j}


def test_a_program_reads_and_prints(sandbox: Bubblewrap) -> None:
    code = "import sys\nprint(int(input()) + n)\nif __name__ == '__main__':\n    sys.exit(0)"
    ran = sandbox.run(code, {"n": 40}, PATIENT, stdin="2\n")
    assert (ran.outcome, ran.stdout) == (SandboxOutcome.PASSED, "42\n")


@pytest.mark.parametrize(
    ("code", "tests", "outcome", "words"),
    [
        ("def f(x):\n    return x", "assert f(1) == 1", SandboxOutcome.PASSED, ""),
        ("def f(x):\n    return x", "assert f(1) == 1\nassert f(1) == 2", SandboxOutcome.WRONG, "line 2 of the tests"),
        ("def f(x):\n    return x", "assert f(1) == 2, 'not two'", SandboxOutcome.WRONG, "not two"),
        (
            "def f(x):\n    return None",
            "assert len(f(1)) == 1",
            SandboxOutcome.WRONG,
            "a test cannot use the value",
        ),
        (
            "def f(x):\n    return x[0]",
            "assert f([]) == 1",
            SandboxOutcome.RAISED,
            "IndexError: list index out of range (line 2)",
        ),
        ("def g(x):\n    return x", "assert f(1) == 1", SandboxOutcome.WRONG, "name 'f' is not defined"),
        ("def f(:", "assert f(1) == 1", SandboxOutcome.RAISED, "SyntaxError: invalid syntax (line 1)"),
        ("x = 1\n1 / 0", "assert x == 1", SandboxOutcome.RAISED, "ZeroDivisionError: division by zero (line 2)"),
        ("import no_such_thing", "", SandboxOutcome.RAISED, "ModuleNotFoundError"),
        ("raise SystemExit(3)", "", SandboxOutcome.RAISED, "SystemExit: 3"),
        ("open('/etc/passwd')", "", SandboxOutcome.FORBIDDEN, "FileNotFoundError"),
        ("x = bytearray(10**9)", "", SandboxOutcome.MEMORY, "MemoryError"),
        ("import os\nos._exit(0)", "", SandboxOutcome.RAISED, "ended its process with status 0"),
        ("def f():\n    import ctypes\n    ctypes.string_at(0)", "f()", SandboxOutcome.RAISED, "signal 11"),
        ("raise TimeoutError('mine')", "", SandboxOutcome.RAISED, "TimeoutError: mine"),
        ("class Odd(Exception):\n    def __str__(self):\n        1 / 0\nraise Odd", "", SandboxOutcome.RAISED, "Odd"),
        ("x = '\\x1b[31m'\nraise ValueError(x)", "", SandboxOutcome.RAISED, "ValueError:  [31m"),
    ],
)
def test_every_ending_has_a_name_and_a_message(
    sandbox: Bubblewrap, code: str, tests: str, outcome: SandboxOutcome, words: str
) -> None:
    ran = sandbox.run(code, limits=PATIENT, tests=tests)
    assert (ran.outcome, ran.value) == (outcome, None), ran
    assert words in ran.message


def test_time_and_output_are_limited(sandbox: Bubblewrap) -> None:
    ran = sandbox.run("while True:\n    pass", limits=SandboxLimits(seconds=0.2))
    assert (ran.outcome, ran.message) == (SandboxOutcome.TIMED_OUT, "it ran longer than its limit")
    assert sandbox.run("def f():\n    f()", limits=SandboxLimits(seconds=0.2), tests="f\nwhile True: pass").outcome is (
        SandboxOutcome.TIMED_OUT
    )
    ran = sandbox.run("while True:\n    print('x' * 99)", limits=SandboxLimits(seconds=5, output_kb=4))
    assert (ran.outcome, len(ran.stdout)) == (SandboxOutcome.MEMORY, 4096)


SAME = """
import math, random
from collections import Counter, deque
LIMIT = 3
class Node:
    def __init__(self, value):
        self.value, self.next = value, None
def count(text): return Counter(text)
def walk(n):
    for i in range(n): yield i * LIMIT
def queue(): return deque([1, 2])
def odd():
    import datetime, decimal, fractions
    whole = [fractions.Fraction(1, 3), decimal.Decimal("1.50"), deque([1], 3)]
    return whole + [range(3), bytearray(b"x"), datetime.date(2020, 2, 29)]
def second(node): return node.next.value
def spoil(values): values.sort()
def forget(values, key): values.pop(key) if isinstance(values, dict) else values.discard(key)
def apply(kind, value): return kind(value)
def fail(kind): raise {"key": KeyError, "own": type("Own", (Exception,), {})}[kind]("gone")
async def later(x): return x + 1
def sum(a, b): return math.gcd(a, b)
"""


def test_tests_say_the_same_as_in_one_process(sandbox: Bubblewrap) -> None:
    tests = """
first, node = Node(1), Node(2)
first.next = node
assert second(first) == 2 and node.value == 2 and first.next.value == 2
assert count("aab") == {"a": 2, "b": 1}
assert list(walk(4)) == [0, 3, 6, 9] and 6 in walk(4)
assert list(queue()) == [1, 2] and len(queue()) == 2 and queue()[1] == 2
values = [3, 1, 2]
assert spoil(values) is None and values == [1, 2, 3]
ages, names = {"a": 1, "b": 2}, {"a", "b"}
assert forget(ages, "a") is None and ages == {"b": 2}
assert forget(names, "a") is None and names == {"b"}
assert apply(str, 5) == "5" and apply(int, "7") == 7
from datetime import date
from decimal import Decimal
from fractions import Fraction
assert odd() == [Fraction(1, 3), Decimal("1.50"), deque([1], 3), range(3), bytearray(b"x"), date(2020, 2, 29)]
assert odd()[0] + 1 == Fraction(4, 3)
assert LIMIT == 3 and math.isclose(1, 1) and Counter("a")["a"] == 1
assert sum(12, 18) == 6
assert max([1, 2]) == 2
for kind, expected in (("key", KeyError), ("own", RuntimeError)):
    try:
        fail(kind)
    except expected:
        continue
    raise AssertionError(kind)
print("tests may print")
"""
    ran = sandbox.run(SAME, limits=PATIENT, tests=tests, call="sum")
    assert ran.passed, ran
    assert ran.stdout == ""
    assert sandbox.run(SAME, {"x": 1}, PATIENT, call="later").value == 2


PROGRAM = "import sys\nprogram = sys.modules['groupwise.sandbox.inside.program']\n"
TRACES = "{'f': ('shared', ('sys', 'settrace')), 'abs': ('shared', ('sys', 'setprofile'))}"
CHEATS = {
    "exit": "import os\ndef f(x):\n    os._exit(0)",
    "exit early": "import sys\nsys.exit(0)",
    "exit politely": "def f(x):\n    raise SystemExit(0)",
    "equal to everything": "class A:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return A()",
    "a number equal to everything": (
        "class A(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
        "def f(x):\n    return A(1)"
    ),
    "a list with such a number": "import unittest.mock\ndef f(x):\n    return unittest.mock.ANY",
    "no assertions": "import builtins\nbuiltins.AssertionError = type('A', (SystemExit,), {})\ndef f(x):\n    return 1",
    "another print": "import builtins\nbuiltins.abs = lambda x: 0\ndef abs(x):\n    return 0\ndef f(x):\n    return 1",
    "stop the tests": "def f(x):\n    raise StopIteration",
    "look into the frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in list(frame.f_locals.values()):\n"
        "            if isinstance(value, str) and 'assert' in value:\n"
        "                return int(value.split('==')[1].split()[0])\n        frame = frame.f_back"
    ),
    "look into the memory": (
        "import gc, re\ndef f(x):\n    for found in gc.get_objects():\n"
        "        held = list(found.values()) if type(found) is dict else found if type(found) is tuple else ()\n"
        "        for value in held:\n"
        "            if type(value) is str and (secret := re.search('f.3. == ([0-9]+)', value)):\n"
        "                return int(secret[1])"
    ),
    "read the channel": "import os\ndef f(x):\n    return int(os.read(0, 9999).split(b'==')[1].split()[0])",
    "say that it passed": (
        "import os, sys\ndumps = sys.modules['groupwise.sandbox.wire'].dumps\n"
        "def said(*words):\n    data = dumps(words)\n    return len(data).to_bytes(4, 'big') + data\n"
        "def f(x):\n    for fd in range(256):\n"
        "        for data in (said('passed', '', 0.1, None, b''), said('ended', ('passed', '', '')),"
        " said('raised', ('passed', 'ValueError', ''))):\n"
        "            try:\n                os.write(fd, data)\n            except OSError:\n                pass\n"
        "    return 1"
    ),
    "other builtins for the tests": (
        PROGRAM + "program.definitions = lambda space: {'__builtins__': ('plain', {'abs': int}), 'f': ('plain', int)}\n"
    ),
    "be a module's function": (
        f"{PROGRAM}program.definitions = lambda space: "
        "{'f': ('shared', ('os', '_exit')), 'abs': ('shared', ('sys', 'exit'))}\n"
    ),
    "be a function that traces the tests": f"{PROGRAM}program.definitions = lambda space: {TRACES}\n",
    "an error that says it passed": (
        f"{PROGRAM}program.ending_of = lambda error: ('passed', 'ValueError', '')\ndef f(x):\n    raise ValueError"
    ),
    "an end that says it passed": f"{PROGRAM}program.ending_of = lambda error: ('passed', '', '')\nraise ValueError",
    "names that are none": f"{PROGRAM}program.definitions = lambda space: {{1: 2, 'f': ('shared', 5)}}\n",
    "a module that finds everything close": (
        "class math:\n    isclose = staticmethod(lambda *args, **more: True)\ndef f(x):\n    return 1"
    ),
    "another module by its name": "import cmath as math\ndef f(x):\n    return 1",
    "a wire that says otherwise": (
        "import sys\nwire = sys.modules['groupwise.sandbox.wire']\nwire.SINGLE[int] = lambda value: b'K6:object'\n"
        "def f(x):\n    return 1"
    ),
    "answers ahead of the questions": (
        "import os, sys\ndumps = sys.modules['groupwise.sandbox.wire'].dumps\ndef f(x):\n"
        "    for value in (271828, 5, 1, 1):\n        data = dumps(('value', (value, {})))\n"
        "        os.write(4, len(data).to_bytes(4, 'big') + data)\n    return 271828"
    ),
    "a truth that is never told": (
        f"{PROGRAM}program.QUESTIONS['truth'] = lambda value: value\nclass A: pass\ndef f(x):\n    return A()"
    ),
    "a number of another kind": (
        "class A(int):\n    def __int__(self):\n        return 271828\n    __index__ = __int__\n"
        "def f(x):\n    return A(1)"
    ),
    "a fraction that is none": (
        "class Fraction:\n    __module__ = 'fractions'\n    numerator, denominator = '1e999999999', 1\n"
        f"{PROGRAM}sys.modules['groupwise.sandbox.wire'].ODD['Fraction'] = ('fractions', lambda x: (x.numerator,))\n"
        "def f(x):\n    return Fraction()"
    ),
    "the end of the program": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x):\n    raise SystemExit",
    "a finaliser": "import os\nclass A:\n    def __del__(self):\n        os._exit(0)\ndef f(x):\n    A()\n    return 1",
    "other builtins": "import builtins\nbuiltins.len = builtins.type = lambda *args: 0\ndef f(x):\n    return 1",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_do_not_pass(sandbox: Bubblewrap, cheat: str) -> None:
    tests = "assert f(3) == 271828\nassert abs(f(4) - 5) < 0.1\nassert all(map(f, [1, 2]))\n"
    for one in (tests, "assert math.isclose(f(3), 271828)"):
        ran = sandbox.run(CHEATS[cheat], limits=SandboxLimits(seconds=2), tests=one)
        assert ran.outcome in (SandboxOutcome.WRONG, SandboxOutcome.RAISED, SandboxOutcome.FORBIDDEN), ran
        assert "No module named" not in ran.message, "it did not get to try"


@pytest.mark.parametrize(
    "cheat", ["exit", "exit early", "exit politely", "equal to everything", "look into the frames"]
)
def test_cheats_pass_where_code_and_tests_share_a_process(cheat: str) -> None:
    script = "import sys\ntests = 'assert f(3) == 271828'\nexec(sys.argv[1])\nexec(tests)"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", script, CHEATS[cheat]]).returncode == 0


def test_a_group_is_judged_one_by_one(sandbox: Bubblewrap) -> None:
    codes = [
        "def f(x):\n    return x + 1",
        "def f(x):\n    return x",
        "import os\nos._exit(1)",
        "while True:\n    pass",
        "import sys\nsys.modules['left'] = 1\nimport builtins\nbuiltins.sorted = None\ndef f(x):\n    return x + 1",
        "import sys\ndef f(x):\n    assert 'left' not in sys.modules\n    return x + sorted([1])[0]",
    ] * 2
    ran = sandbox.run_group(codes, limits=SandboxLimits(seconds=0.7), tests="assert f(1) == 2")
    expected = [
        SandboxOutcome.PASSED,
        SandboxOutcome.WRONG,
        SandboxOutcome.RAISED,
        SandboxOutcome.TIMED_OUT,
        SandboxOutcome.PASSED,
        SandboxOutcome.PASSED,
    ] * 2
    assert [one.outcome for one in ran] == expected
    assert sandbox.run_group([], tests="assert True") == []


def test_attempts_do_not_suffer_from_one_that_stalls_the_tests(sandbox: Bubblewrap) -> None:
    tests = "import time\nif f() == 0:\n    time.sleep(60)\n"
    stalls, passes = "def f():\n    return 0", "def f():\n    return 1"
    ran = sandbox.run_group([stalls, passes, passes, passes], limits=SandboxLimits(seconds=0.3), tests=tests)
    assert [one.outcome for one in ran] == [SandboxOutcome.TIMED_OUT, *[SandboxOutcome.PASSED] * 3]
    assert ran[0].seconds >= 0.3, "it is measured from outside where nobody inside could report"
    assert all(one.seconds > 0 for one in ran)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("os.close(4)\n    time.sleep(60)", SandboxOutcome.RAISED),
        ("os.write(4, b'\\0\\0\\0\\x05nonsense' * 99)", SandboxOutcome.WRONG),
        ("os.write(4, b'\\xff' * 9999)", SandboxOutcome.MEMORY),
        ("os.write(4, b'\\0\\0\\0\\xff')\n    time.sleep(60)", SandboxOutcome.TIMED_OUT),
        ("os.closerange(0, 99)", SandboxOutcome.RAISED),
        ("sys.setrecursionlimit(5)\n    return [[[1]]]", SandboxOutcome.RAISED),
        (
            "signal.signal(14, lambda *_: 1 / 0)\n    signal.setitimer(0, 0.01, 0.01)\n    time.sleep(1)",
            SandboxOutcome.RAISED,
        ),
        ("sys.stdout.close()\n    return 7", SandboxOutcome.WRONG),
        ("sys.stdin.read()\n    return type('N' * 10**7, (Exception,), {})", SandboxOutcome.WRONG),
        ("return '\\ud800' * 10", SandboxOutcome.WRONG),
        ("return float('nan')", SandboxOutcome.WRONG),
        ("return range(10**12)", SandboxOutcome.WRONG),
    ],
)
def test_the_judge_survives(sandbox: Bubblewrap, body: str, outcome: SandboxOutcome) -> None:
    code = f"import os, signal, sys, time\ndef f():\n    {body}"
    ran = sandbox.run(code, limits=SandboxLimits(seconds=0.5), tests="assert f() == 1\n")
    assert ran.outcome is outcome, ran


@pytest.mark.parametrize(("returned", "test"), [("10**9", "[0] * f()"), ("range(10**12)", "list(f())")])
def test_a_result_cannot_make_the_tests_a_bomb(sandbox: Bubblewrap, returned: str, test: str) -> None:
    ran = sandbox.run(f"def f():\n    return {returned}", limits=SandboxLimits(seconds=2), tests=f"assert {test} == 1")
    assert ran.outcome in (SandboxOutcome.WRONG, SandboxOutcome.TIMED_OUT), ran


def test_many_odd_keys_stay_inside(sandbox: Bubblewrap) -> None:
    code = "def f(n):\n    return {(i, i): i for i in range(n)}"
    assert sandbox.run(code, limits=PATIENT, tests="assert len(f(5000)) == 5000").passed
    assert sandbox.run(code, {"n": 500}, PATIENT, call="f").value[3, 3] == 3
    ran = sandbox.run(code, {"n": 5000}, PATIENT, call="f")
    assert (ran.outcome, "too many keys" in ran.message) == (SandboxOutcome.WRONG, True)


def test_processes_are_limited_where_some_are_allowed(sandbox: Bubblewrap) -> None:
    code = """
import os, threading
def started():
    made = 0
    for _ in range(30):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            import time
            time.sleep(60)
        made += 1
    return made
"""
    ran = sandbox.run(code, {}, SandboxLimits(seconds=5, processes=4), call="started")
    assert 1 <= ran.value <= 4, ran
    code = (
        "import threading\ndef f():\n    t = threading.Thread(target=print, args=('é',))\n    t.start()\n    t.join()"
    )
    ran = sandbox.run(code, {}, SandboxLimits(seconds=5, processes=2), call="f")
    assert (ran.outcome, ran.stdout) == (SandboxOutcome.PASSED, "é\n")


@pytest.mark.parametrize(
    ("imports", "tests"),
    [
        ("from collections import UserString as encode", "assert decode(encode('abc')) == 'abc'"),
        ("from heapq import merge", "assert decode(merge([1], [2])) == [1, 2]"),
        ("import math as data", "assert decode(data) == 1"),
    ],
)
def test_code_cannot_make_its_tests_an_error_of_the_caller(sandbox: Bubblewrap, imports: str, tests: str) -> None:
    ran = sandbox.run(f"{imports}\ndef decode(x):\n    return 7", limits=PATIENT, tests=tests)
    assert ran.outcome is SandboxOutcome.WRONG, ran


def test_an_answer_of_many_small_pieces_is_not_read_to_its_end(sandbox: Bubblewrap) -> None:
    code = """
import os, sys, time
def f():
    asked = bytes(sys.modules["groupwise.sandbox.inside.program"].ASKED)
    data = asked + b"U2:S5:valueU2:L2600000:" + b"N0:" * 2_600_000 + b"M0:"
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(4, data):]
    time.sleep(60)
"""
    ran = sandbox.run(code, {}, PATIENT, call="f")
    assert (ran.outcome, "too many pieces" in ran.message) == (SandboxOutcome.WRONG, True), ran
    assert sandbox.run("def f():\n    return [0] * 150_000", {}, PATIENT, call="f").outcome is SandboxOutcome.WRONG


def test_tests_that_cannot_run_are_an_error_of_the_caller(sandbox: Bubblewrap) -> None:
    with pytest.raises(ConfigError, match="the tests cannot be run: SyntaxError"):
        sandbox.run("def f(x): return x", limits=PATIENT, tests="assert f(1 ==")
    with pytest.raises(ConfigError, match="they pass a function to the code"):
        sandbox.run("def f(x): return x", limits=PATIENT, tests="f(lambda: 1)")
    with pytest.raises(ConfigError, match="the inputs cannot be sent"):
        sandbox.run("x", {"x": object()})


def test_threads_share_a_sandbox_and_spares_do_not_die_with_them() -> None:
    with Bubblewrap(workers=2, spares=1) as sandbox:
        found: list[bool] = []
        for _ in range(2):
            threads = [
                threading.Thread(target=lambda: found.append(sandbox.run("x = 1", limits=PATIENT).passed))
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert found == [True] * 4
        assert asyncio.run(sandbox.arun("x = 1", limits=PATIENT)).passed


def test_a_spare_does_not_let_more_programs_run_at_once_than_there_are_workers() -> None:
    code = "import time\ndef f():\n    begun = time.monotonic()\n    time.sleep(2)\n    return begun, time.monotonic()"
    with Bubblewrap(workers=1, spares=1) as sandbox:
        assert sandbox.run("x = 1", limits=PATIENT).passed
        with ThreadPoolExecutor(2) as threads:
            runs = [threads.submit(sandbox.run, code, {}, PATIENT, call="f") for _ in range(2)]
        first, second = sorted(run.result().value for run in runs)
    assert first[1] <= second[0]


def test_a_sandbox_dies_with_whoever_opened_it() -> None:
    script = (
        "from groupwise.sandbox import Bubblewrap, SandboxLimits\n"
        "Bubblewrap().run('while True: pass', limits=SandboxLimits(seconds=50))"
    )
    opener = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 100
    # bubblewrap twice, the dispatcher and the code.
    while len(inside := _descendants(opener.pid)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    opener.send_signal(signal.SIGKILL)
    opener.wait()
    assert len(inside) >= 4
    while any(_alive(pid) for pid in inside) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_alive(pid) for pid in inside)


def _descendants(pid: int) -> set[int]:
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# What the code finds around it.

LOOK = """
import os, resource, sys
def limits():
    names = ("AS", "DATA", "CPU", "FSIZE", "NOFILE", "CORE")
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names}
def descriptors():
    found = []
    for fd in range(300):
        try:
            os.fstat(fd)
            found.append(fd)
        except OSError:
            pass
    return found
def user():
    return os.getuid(), os.getgid(), os.getcwd(), os.uname().nodename
def world():
    return sorted(os.listdir("/")), dict(os.environ)
def parts():
    return __name__, sys.flags.isolated, sys.argv
"""


@pytest.mark.parametrize("limits", [SandboxLimits(seconds=10), SandboxLimits(seconds=7.5, memory_mb=100, processes=3)])
def test_the_kernel_holds_the_code_to_its_limits(sandbox: Bubblewrap, limits: SandboxLimits) -> None:
    found = sandbox.run(LOOK, {}, limits, call="limits").value
    kernel = {name: most for name, most in limits.of_kernel().items() if name != "NPROC"} | {"CORE": 0}
    assert found == {name: (most, most) for name, most in kernel.items()}


def test_packages_of_the_tests_do_not_take_the_codes_memory(sandbox: Bubblewrap) -> None:
    tests = "import numpy\nassert limits()['DATA'][0] == WANTED"
    limits = SandboxLimits(seconds=20, memory_mb=10)
    wanted = limits.of_kernel(1 << 30)["DATA"]
    ran = sandbox.run(LOOK, limits=limits, tests=tests.replace("WANTED", str(wanted)))
    assert ran.passed, ran


def test_a_package_that_fails_on_import_is_reported_with_its_own_error(
    sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        site.chmod(0o755)  # the sandbox reads it as an ordinary user
        (site / "fragile").mkdir()
        (site / "fragile/__init__.py").write_text("raise ValueError('no licence file')\n")
        (site / "fragile-1.dist-info").mkdir()
        (site / "fragile-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: fragile\nVersion: 1\n")
        (site / "fragile-1.dist-info/RECORD").write_text("fragile/__init__.py,,\n")
        monkeypatch.syspath_prepend(name)
        _providers.cache_clear()
        try:
            with pytest.raises(ConfigError, match="fragile cannot be imported: ValueError: no licence file"):
                sandbox.run("def f():\n    return 1", tests="import fragile\nassert f() == 1")
        finally:
            _providers.cache_clear()


def test_the_code_has_its_own_descriptors_and_nothing_of_the_machine(sandbox: Bubblewrap) -> None:
    ask = {name: sandbox.run(LOOK, {}, PATIENT, call=name).value for name in ("descriptors", "user", "world", "parts")}
    assert ask["descriptors"] == [0, 1, 2, 3, 4]
    assert ask["user"] == (65534, 65534, "/", "sandbox")
    folders, environment = ask["world"]
    assert not {"etc", "home", "root", "proc", "tmp", "dev", "var", "packages", "work"} & set(folders)
    assert set(environment) <= {"PWD", "LC_CTYPE"}
    assert ask["parts"] == ("solution", 1, ["-c"])


def test_output_may_reach_its_limit_and_not_go_beyond(sandbox: Bubblewrap) -> None:
    limits = SandboxLimits(seconds=10, output_kb=2)
    full = sandbox.run("print('x' * 2047)", limits=limits)
    assert (full.outcome, full.stdout) == (SandboxOutcome.PASSED, "x" * 2047 + "\n")
    for code in (
        "print('x' * 2048)",
        "import sys\nprint('x' * 1023, flush=True)\nprint('y' * 1024, file=sys.stderr, flush=True)",
    ):
        over = sandbox.run(code, limits=limits)
        assert (over.outcome, over.message) == (SandboxOutcome.MEMORY, "it exceeded its output limit")
        assert set(over.stdout) <= set("x\n"), "what it complains of is counted, not shown"
        assert len(over.stdout) <= 2048
    assert sandbox.run("import sys\nprint('y', file=sys.stderr)", limits=limits).stdout == ""


def test_a_program_gets_its_inputs_by_name_and_a_function_in_their_order(sandbox: Bubblewrap) -> None:
    inputs = {"b": 1, "a": 2}
    assert sandbox.run("print(a, b)", inputs, PATIENT).stdout == "2 1\n"
    assert sandbox.run("def f(x, y):\n    return [x, y]", inputs, PATIENT, call="f").value == [1, 2]
    spoiled = sandbox.run("def f(x, y):\n    return a", inputs, PATIENT, call="f")
    assert "name 'a' is not defined" in spoiled.message
    assert (
        sandbox.run("import sys\nprint(repr(sys.stdin.read()))", limits=PATIENT, stdin="é\n\n1").stdout
        == "'é\\n\\n1'\n"
    )
    assert sandbox.run("print(repr(input()))", limits=PATIENT).outcome is SandboxOutcome.RAISED
    assert sandbox.run("def f():\n    return object()", {}, PATIENT, call="f").message == (
        "the value is a object, which is not plain data"
    )
    assert "name 'g' is not defined" in sandbox.run("f = 1", {}, PATIENT, call="g").message


THING = """
class A:
    def __init__(self):
        self.x = 1
    def f(self):
        return self.x
def g(n):
    return n
"""


def test_calls_are_counted_and_only_those_of_the_program(sandbox: Bubblewrap) -> None:
    tests = "a = A()\nassert a.f() == 1 and a.x == 1\nassert g(2) == 2"
    assert sandbox.run(THING, limits=PATIENT, tests=tests).calls == 3
    assert sandbox.run(THING, {"n": 1}, PATIENT, call="g").calls == 1
    assert sandbox.run("x = 1", limits=PATIENT).calls == 0


def test_many_programs_keep_their_order_their_tests_and_their_faults(sandbox: Bubblewrap) -> None:
    programs = [JudgedProgram(f"def f():\n    return {n}", f"assert f() == {n if n % 3 else 0}") for n in range(7)]
    programs[2] = JudgedProgram("def f():\n    return 2", "assert f( == 2")
    programs[4] = JudgedProgram("x\0", "assert f() == 4")
    programs[5] = JudgedProgram("def f():\n    return 5", "import pytest\ndef test_a():\n    assert f() == 5")
    ran = sandbox.run_programs(programs, SandboxLimits(seconds=20, memory_mb=256))
    said = ["error" if isinstance(one, ConfigError) else str(one.outcome) for one in ran]
    assert said == ["passed", "passed", "error", "wrong", "raised", "passed", "wrong"]
    assert sandbox.run_programs([]) == []
    values = sandbox.run_group([f"def f(x):\n    return x + {n}" for n in range(5)], {"x": 10}, PATIENT, call="f")
    assert [one.value for one in values] == [10, 11, 12, 13, 14]


VARIANTS = """
chosen = 0
def choose_variant(number):
    global chosen
    chosen = number
def f(x):
    return x // (chosen - 1)
"""


def test_several_programs_of_our_own_in_one_are_judged_one_by_one(sandbox: Bubblewrap) -> None:
    (ran,) = sandbox.run_programs([JudgedProgram(VARIANTS, "assert f(4) == 4\nassert f(6) == 6", "f", "", 4)], PATIENT)
    assert not isinstance(ran, ConfigError)
    ends = [(outcome, calls) for outcome, _, calls in ran.value]
    assert ends == [("wrong", 1), ("raised", 1), ("passed", 2), ("wrong", 1)]


def test_a_sandbox_of_a_group_is_replaced_if_an_attempt_ends_it() -> None:
    """One lane: tests that end their own process take the sandbox with them, and the next attempt gets another."""
    with Bubblewrap(workers=1) as sandbox:
        programs = [
            JudgedProgram("def f():\n    return 1", "assert f() == 1"),
            JudgedProgram("def f():\n    return 1", "import os\nf()\nos._exit(0)"),
            JudgedProgram("def f():\n    return 1", "assert f() == 1"),
        ]
        first, second, third = sandbox.run_programs(programs, PATIENT)
        assert isinstance(second, ConfigError)
        assert "they end their own process" in second.message
        for ran in (first, third):
            assert not isinstance(ran, ConfigError)
            assert ran.passed


def test_spares_are_started_in_advance_and_ended_with_the_rest() -> None:
    with Bubblewrap(workers=1, spares=2) as sandbox:
        assert sandbox.run("x = 1", limits=PATIENT).passed
        spares = [spare.result() for spare in sandbox._ready]
        assert len(spares) == 2
        assert all(spare.running for spare in spares)
        # A spare that died meanwhile is not used.
        spares[0].close()
        assert sandbox.run("x = 1", limits=PATIENT).passed
        # A spare has no packages, so tests that import one get a sandbox of their own.
        tests = "import pluggy\nassert pluggy and f() == 1"
        assert sandbox.run("def f():\n    return 1", limits=PATIENT, tests=tests).passed
        left = [spare.result() for spare in sandbox._ready]
        assert len(left) == 2
        assert spares[0] not in left
    assert not any(spare.running for spare in (*spares, *left))
    sandbox.close()
    with Bubblewrap(workers=1) as plain:
        assert plain.run("x = 1", limits=PATIENT).passed
        assert plain._ready == []


def test_a_forked_child_leaves_its_parents_sandboxes_alone_and_starts_its_own() -> None:
    with Bubblewrap(workers=1, spares=1) as sandbox:
        assert sandbox.run("x = 1", limits=PATIENT).passed
        (spare,) = (one.result() for one in sandbox._ready)
        child = os.fork()
        if child == 0:
            ran = sandbox.run("x = 1", limits=PATIENT)
            owned = sandbox._owner == os.getpid() and spare not in [one.result() for one in sandbox._ready]
            sandbox.close()
            os._exit(0 if ran.passed and owned else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert spare.running
        child = os.fork()
        if child == 0:
            sandbox.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert spare.running
        assert sandbox.run("x = 1", limits=PATIENT).passed


@pytest.mark.parametrize(("seconds", "outcome"), [(3600.0, SandboxOutcome.RAISED), (1e-9, SandboxOutcome.TIMED_OUT)])
def test_a_sandbox_that_dies_without_a_report_ran_too_long_or_just_ended(
    seconds: float, outcome: SandboxOutcome
) -> None:
    interpreter, limits = proved_interpreter(), SandboxLimits(seconds=seconds)
    cell = SandboxProcess(interpreter)
    cell.start(interpreter)
    assert cell.running
    job = _job(JudgedProgram("x = 1"), {}, limits, "")
    cell._process.kill()
    cell._process.wait()
    assert not cell.running
    ran = cell.run(job.code, job.tests, limits)
    assert (ran.outcome, cell.alive) == (outcome, False)


# Reports come from a sandbox, so only their form is trusted.


@pytest.mark.parametrize(
    ("parts", "outcome", "message"),
    [
        (("passed", "", 0.5, [1], b"out\xff", 3), "passed", ""),
        (("wrong", "no\x1b", 0.5, None, b"", 0), "wrong", "no "),
        (("passed", "", 0.5, 2**10_001, b"", 0), "wrong", "the value contains an integer of 10,002 bits"),
        (("passed", "", 0.5), "wrong", "the value cannot be used"),
        (None, "wrong", "the value cannot be used"),
        (("passed", "", 0.5, [0] * 100_000, b"", 0), "wrong", "the value has more than 100,000 pieces"),
        (("passed", "", 0.5, [0] * 100_020, b"", 0), "wrong", "the value cannot be used: it has too many pieces"),
    ],
)
def test_a_report_becomes_a_result(parts: Any, outcome: str, message: str) -> None:
    ran = _ran(dumps(parts))
    assert ran.outcome == outcome
    assert ran.message.startswith(message)
    if ran.passed:
        assert (ran.value, ran.stdout, ran.seconds, ran.calls) == ([1], "out�", 0.5, 3)
    else:
        assert ran.value is None
    assert _ran(b"nonsense").outcome is SandboxOutcome.WRONG
    with pytest.raises(ConfigError, match="the tests cannot be run: they hang"):
        _ran(dumps(("tests", "they hang", 0.5, None, b"", 0)))
