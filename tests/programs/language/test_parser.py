"""Programs: one normal text for equal computations, a named fault for every text that is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.programs.language.faults import FaultCode, ProgramFault
from groupwise.programs.language.grammar import random_program
from groupwise.programs.language.operators import Type
from groupwise.programs.language.parser import Form, Program, Signature, parse
from groupwise.programs.problems import OFFLINE, generate

LIST = Signature((Type.NUMBERS,), Type.NUMBERS)
PAIR = Signature((Type.INT, Type.INT), Type.INT)


def program(text: str, signature: Signature | None = None) -> Program:
    made = parse(text, signature)
    assert isinstance(made, Program), made
    return made


def fault(text: str, signature: Signature | None = LIST) -> ProgramFault:
    made = parse(text, signature)
    assert isinstance(made, ProgramFault), made
    return made


def test_names_nesting_order_and_dead_lines_do_not_matter() -> None:
    one = program(
        "def solve(numbers):\n"
        "    '''a remark'''\n"
        "    unused = reverse(numbers)  # dead\n"
        "    ordered = sort(numbers)\n"
        "    same = ordered\n"
        "    return take(same, 3)\n"
    )
    assert one.text == "def solve(x):\n    a = sort(x)\n    b = take(a, 3)\n    return b"
    assert one.key == program("def solve(q):\n    return take(sort(q), 3)").key
    assert one.key != program("def solve(q):\n    return take(sort(q), 2)").key


def test_equal_calls_become_one_and_arguments_that_commute_are_put_in_order() -> None:
    one = program("def solve(x, y):\n    a = mul(y, x)\n    b = mul(x, y)\n    return add(a, b)")
    assert one.text == "def solve(x, y):\n    a = mul(x, y)\n    b = add(a, a)\n    return b"
    swapped = program("def solve(x, y):\n    return add(mul(x, 2), sub(y, x))")
    assert swapped.key == program("def solve(x, y):\n    p = sub(y, x)\n    return add(p, mul(2, x))").key
    assert (
        program("def solve(x, y):\n    return sub(x, y)").key != program("def solve(x, y):\n    return sub(y, x)").key
    )


def test_plain_python_is_renamed_cleaned_and_laid_out() -> None:
    one = program(
        "def solve(values: list) -> int:\n"
        "    total: int = 0\n"
        "    nothing = 5\n"
        "    for value in values:\n"
        "        if value>2 :\n"
        "            total+=value\n"
        "        else:\n"
        "            pass\n"
        "    return total\n"
        "    total = 7\n"
    )
    assert one.form is Form.PLAIN
    assert one.text == (
        "def solve(x):\n    a = 0\n    for b in x:\n        if b > 2:\n            a += b\n    return a"
    )


def test_an_annotation_alone_is_a_dead_line() -> None:
    one = program("def solve(x):\n    if x:\n        y: int\n    y = 1\n    return y + x")
    assert one.text == "def solve(x):\n    if x:\n        pass\n    a = 1\n    return a + x"


def test_the_largest_programs_are_read() -> None:
    ifs = "\n".join(f"    if x > {n} and x < {n + 9} or x == 5: y = x" for n in range(70))
    assert program(f"def solve(x):\n    y = 1\n{ifs}\n    return y + x").form is Form.PLAIN


def test_a_program_without_operators_or_parameters_is_valid() -> None:
    assert program("def solve():\n    return 2 + 2", PAIR).text == "def solve():\n    return 2 + 2"
    assert program("def solve():\n    return 4", PAIR).form is Form.STRAIGHT


FAULTS = [
    ("", FaultCode.NO_FUNCTION, "write one `def solve"),
    ("return 4", FaultCode.NO_FUNCTION, "only one function is allowed at the top"),
    ("def f(x):\n    return x", FaultCode.NO_FUNCTION, "must define solve, not f"),
    ("def solve(x) return x", FaultCode.SYNTAX, "not valid Python"),
    ("\x00", FaultCode.SYNTAX, "null bytes"),
    ("def solve(x):\n    return '\ud800'", FaultCode.SYNTAX, "surrogates"),
    ("def solve(x):\n    return " + "9" * 5000, FaultCode.SYNTAX, "digits"),
    ("def solve(x):\n    return 0x" + "f" * 5000, FaultCode.TOO_LONG, "may not exceed"),
    ("#" * 9000, FaultCode.TOO_LONG, "at most 8,000 characters, not 9,000"),
    ("\n" * 500, FaultCode.TOO_LONG, "at most 80 lines"),
    ("(" * 5000, FaultCode.TOO_DEEP, "nested deeper"),
    ("def solve(x):\n    return " + "-" * 3000 + "1", FaultCode.TOO_DEEP, "nested deeper"),
    ("def solve(x):\n    return " + "+".join("1" * 1500), FaultCode.TOO_DEEP, "assign intermediate results"),
    ("def solve(x):\n    return " + "x." * 1000 + "copy()", FaultCode.TOO_DEEP, "nested deeper"),
    ("def solve(x):\n    return " + "[" * 60 + "]" * 60, FaultCode.TOO_DEEP, "nested deeper"),
    ("def solve(x):\n    a = sort(x)", FaultCode.NO_RETURN, "never returns"),
    ("def solve(x):\n    while x:\n        x.pop()", FaultCode.NO_RETURN, "never returns"),
    ("import os", FaultCode.FORBIDDEN, "imports are not allowed"),
    ("def solve(x):\n    import os\n    return x", FaultCode.FORBIDDEN, "import is not allowed"),
    ("def solve(x):\n    return eval('1')", FaultCode.FORBIDDEN, "eval is not allowed"),
    ("def solve(x):\n    return ｅｖａｌ('1')", FaultCode.FORBIDDEN, "eval is not allowed"),
    ("def solve(x):\n    return __import__('os')", FaultCode.FORBIDDEN, "__import__ is not allowed"),
    ("def solve(x):\n    return x.__class__", FaultCode.FORBIDDEN, "'__class__' is not allowed"),
    ("def solve(x):\n    return '{0.a}'.format(x)", FaultCode.FORBIDDEN, "'format' is not allowed"),
    ("def solve(x):\n    return (lambda: 1)()", FaultCode.FORBIDDEN, "only operators"),
    ("def solve(x):\n    yield x", FaultCode.FORBIDDEN, "yield is not allowed"),
    ("def solve(x):\n    return await sort(x)", FaultCode.FORBIDDEN, "await is only allowed in"),
    ("@print\ndef solve(x):\n    return x", FaultCode.FORBIDDEN, "decorators"),
    ("def solve(x):\n    return b'a'", FaultCode.FORBIDDEN, "not bytes"),
    ("def solve(x):\n    return y", FaultCode.UNKNOWN_NAME, "'y' was never given a value"),
    ("def solve(x):\n    return srot(x)", FaultCode.UNKNOWN_OPERATOR, "Did you mean sort(numbers) -> numbers?"),
    ("def solve(x):\n    return take(x)", FaultCode.WRONG_ARGUMENTS, "takes 2 arguments, not 1"),
    ("def solve(x, y):\n    return sort(x)", FaultCode.WRONG_ARGUMENTS, "1 parameters here, not 2: def solve(x):"),
    ("def solve(*x):\n    return x", FaultCode.WRONG_ARGUMENTS, "plain parameters"),
    ("async def workflow():\n    return 1", FaultCode.WRONG_ARGUMENTS, "workflow(problem)"),
    ("def solve(x):\n    return take(3, x)", FaultCode.WRONG_TYPES, "cannot take int for numbers"),
    ("def solve(x):\n    return total(x)", FaultCode.WRONG_TYPES, "must be numbers, but this returns int"),
    (
        "def solve(x):\n" + "    for a in x:\n        x.pop()\n" * 5 + "    return x",
        FaultCode.TOO_MANY_LOOPS,
        "at most 4",
    ),
]


@pytest.mark.parametrize(("text", "code", "said"), FAULTS, ids=[f"{code}-{n}" for n, (_, code, _) in enumerate(FAULTS)])
def test_a_text_that_is_not_a_program_has_one_named_fault(text: str, code: FaultCode, said: str) -> None:
    found = fault(text)
    assert (found.code, said in found.message) == (code, True), found


@pytest.mark.parametrize("family", OFFLINE)
def test_every_random_legal_program_is_its_own_normal_form_after_one_reading(family: str) -> None:
    for seed in range(40):
        problem = generate(family, seed, "train", 1 + seed % 3)
        made = program(random_program(problem, random.Random(seed)), problem.signature)
        assert made.form is Form.STRAIGHT
        assert program(made.text, problem.signature) == made


NAMES = st.sampled_from(["x", "y", "n", "total", "item"])
CALLS = st.sampled_from(["sort", "take", "len", "double", "srot", "eval", "sum"])


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda name, given: f"{name}({', '.join(given)})", CALLS, st.lists(inner, max_size=3))


EXPRESSIONS = st.recursive(
    st.one_of(
        NAMES,
        st.integers(-99, 10**20).map(str),
        st.sampled_from(["'red'", "'it''s'", "f'{x!r:>3}'", "[]", "1e999"]),
    ),
    lambda inner: st.one_of(
        _calls(inner),
        st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from(["+", "-", "*", "//", "<", "and"]), inner),
        st.builds(lambda a: f"[item for item in {a} if item]", inner),
        st.builds(lambda a: f"(lambda n: {a})", inner),
        st.builds(lambda a, b: f"{a}[{b}:]", inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip
STATEMENTS = st.one_of(
    st.builds(lambda name, value: f"    {name} = {value}", NAMES, EXPRESSIONS),
    st.builds(lambda name, value: f"    {name} += {value}", NAMES, EXPRESSIONS),
    st.builds(lambda value: f"    {value}", EXPRESSIONS),
    st.builds(lambda value, name: f"    for {name} in {value}:\n        x.append({name})", EXPRESSIONS, NAMES),
    st.builds(lambda value, name: f"    if {value}:\n        {name} = 1\n    else:\n        pass", EXPRESSIONS, NAMES),
    st.builds(lambda value: f"    return {value}", EXPRESSIONS),
)


@settings(max_examples=120)
@given(st.lists(STATEMENTS, min_size=1, max_size=6))
def test_whatever_is_written_parses_to_a_text_that_parses_to_itself_or_has_a_fault(body: list[str]) -> None:
    made = parse("\n".join(["def solve(x):", *body, "    return x"]))
    if isinstance(made, Program):
        again = parse(made.text)
        assert isinstance(again, Program), again
        assert again.text == made.text
        assert again.key == made.key


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_any_text_is_a_program_or_a_fault(text: str) -> None:
    for wrapped in (text, f"def solve(x):\n    {text}", f"def solve(x):\n    return {text!r}"):
        assert isinstance(parse(wrapped), Program | ProgramFault)
