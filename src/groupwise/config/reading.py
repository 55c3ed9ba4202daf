"""Reading one value: into the type its setting has, within its limits, or a finding that says why not.

whole number → number        yes          3.0 → whole number          yes, 3.5 no
"5e-6" → number              yes: YAML 1.1 reads 5e-6 as text
true → number                no           1 → true or false           no
list → tuple                 yes          "a,b" → list                yes
null → None                  where the setting may be off; the text "null" too, as TOML has no null
nan, inf                     never
"""

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from groupwise.config.finding import Finding, quoted
from groupwise.config.setting import Option, Options, Scalar, Setting

INTEGER_LIMIT = 2**63 - 1


class Refused(Exception):
    """The value does not fit; the words say what it must be."""


def read(setting: Setting, value: Any) -> tuple[Any, Finding | None]:
    """The value in its setting's type, or a finding."""
    if setting.nullable and (value is None or (value == "null" and _is_not_free_text(setting))):
        return None, None
    try:
        if setting.many:
            return tuple(_one(setting, member) for member in _members(setting, value)), None
        return _one(setting, value), None
    except Refused as refused:
        return None, _finding(setting, value, str(refused))


def _is_not_free_text(setting: Setting) -> bool:
    return setting.kind is not str or bool(setting.choices)


def _finding(setting: Setting, value: Any, demand: str) -> Finding:
    hint = f"{setting.name}: {setting.meaning}"
    near = difflib.get_close_matches(str(value), setting.choices, n=1) if isinstance(value, str) else []
    if near:
        hint = f"did you mean {near[0]!r}?"
    null = ", or null" if setting.nullable else ""
    return Finding(setting.path, f"{setting.path} = {quoted(value)} must be {demand}{null}", hint)


def _members(setting: Setting, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    raise Refused(setting.demand)


def _one(setting: Setting, value: Any) -> Any:
    result = _READERS[setting.kind](value)
    if result is None:
        raise Refused(setting.demand)
    if isinstance(result, float) and not math.isfinite(result):
        raise Refused(f"a finite number {setting.limits}".rstrip())
    if setting.choices and result not in setting.choices:
        raise Refused(setting.noun)
    if setting.kind in (int, float) and not setting.limits.admit(result):
        raise Refused(setting.demand if setting.many else setting.bounds)
    if setting.limits.pattern and not re.fullmatch(setting.limits.pattern, result):
        raise Refused(setting.limits.shape)
    return result


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    if number is None or (isinstance(number, float) and not number.is_integer()):
        return None
    if abs(number) > INTEGER_LIMIT:
        raise Refused("a whole number of at most 64 bits")
    return int(number)


def _real(value: Any) -> float | None:
    number = _number(value)
    try:
        return None if number is None else float(number)
    except OverflowError:
        return math.inf


def _number(value: Any) -> int | float | None:
    """The value as a plain Python number; text is read as one, truth values are not numbers."""
    if isinstance(value, str):
        for parse in (int, float):
            try:
                return parse(value)
            except ValueError:
                continue
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else float(value)


def _text(value: Any) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        return None
    if not value:
        raise Refused("text of at least one character")
    return encodable(str.__str__(value))


def encodable(text: str) -> str:
    """The text itself, if it can be written to a file at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("text of valid Unicode characters") from None
    return text


def _table(value: Any) -> Options | None:
    if not isinstance(value, Mapping):
        return None
    return Options({_option_name(key): _option(key, item) for key, item in value.items()})


def _option(key: Any, value: Any) -> Option:
    return tuple(_scalar(key, member) for member in value) if isinstance(value, list | tuple) else _scalar(key, value)


def _option_name(key: Any) -> str:
    if not isinstance(key, str):
        raise Refused("a table whose names are texts")
    return encodable(str.__str__(key))


def _scalar(key: Any, value: Any) -> Scalar:
    """A plain value of a free table, in its own type."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encodable(str.__str__(value))
    number = _whole(value) if isinstance(value, Integral) else _number(value)
    if number is None:
        raise Refused(f"a table of plain values and lists of them, but {quoted(key)} has {quoted(value)}")
    if not math.isfinite(number):
        raise Refused(f"a table of finite values, but {quoted(key)} is {quoted(value)}")
    return number


_READERS: Mapping[type, Callable[[Any], Any]] = {
    bool: _truth,
    int: _whole,
    float: _real,
    str: _text,
    Mapping: _table,
}
