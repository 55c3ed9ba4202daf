"""Model-written source code: whether it is worth running, and the lines around it that make its value leave as text.

An f-string with `!r` is syntax, not a call: whichever names the code redefines, the result is a string.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from groupwise.errors import ConfigError
from groupwise.sandbox.fixed_limits import LONGEST_CODE

VALUE = "value_of_the_last_line"


def unusable(code: str) -> str:
    """Why code is not worth a sandbox; empty if it is."""
    if len(code) > LONGEST_CODE:
        return f"the code has {len(code):,} characters; the limit is {LONGEST_CODE:,}"
    if "\0" in code or not _encodable(code):
        return "the code contains characters that are not allowed in source code"
    return ""


def _encodable(code: str) -> bool:
    try:
        code.encode()
    except UnicodeEncodeError:
        return False
    return True


def called(code: str, call: str, inputs: Mapping[str, Any]) -> str:
    """The code, and a line that calls one of its functions with the inputs."""
    wrong = next((name for name in (call, *inputs) if not name.isidentifier()), None)
    if wrong is not None:
        raise ConfigError(f"{wrong!r} is not a name that a program can use", hint="Use a Python identifier.")
    awaits = "await " if re.search(rf"^async def {call}\b", code, re.MULTILINE) else ""
    return f'{code}\n\nf"{{{awaits}{call}({", ".join(inputs)})!r}}"\n'


def last_expression(code: str) -> str:
    """The code, with its last statement assigned to a name and written as text if it is an expression (else None)."""
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    none = f"{code}\n\n'None'\n"
    try:
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        body = compile(code, "<code>", "exec", flags, dont_inherit=True).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return none
    if not body or not isinstance(body[-1], ast.Expr):
        return none
    # Columns count UTF-8 bytes, so the source is cut as bytes.
    line, column = body[-1].lineno - 1, body[-1].col_offset
    end_line, end_column = (body[-1].end_lineno or 0) - 1, body[-1].end_col_offset or 0
    lines = [line.encode() for line in re.split("(?<=\n)", code)]
    before = b"".join([*lines[:line], lines[line][:column]])
    after = b"".join([lines[end_line][end_column:], *lines[end_line + 1 :]])
    whole = code.encode()
    inside = whole[len(before) : len(whole) - len(after)]
    made = b"".join([before, VALUE.encode(), b" = (", inside, b")", after])
    return f'{made.decode()}\n\nf"{{{VALUE}!r}}"\n'
