"""One setting: its type, default, limits and meaning; how a value is read, and what is reported if it does not fit."""

import difflib
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, TypeAlias, get_args, get_origin

from groupwise.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: the setting it concerns, what is wrong, what to do, and the line where it was seen."""

    field: str
    message: str
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message}; {self.hint}" if self.hint else f"{place}{self.message}"


def raise_findings(findings: Sequence[Finding], where: str = "") -> None:
    """Raise one `ConfigError` that tells them all; nothing happens when there are none."""
    if not findings:
        return
    prefix = f"{where}: " if where else ""
    first = findings[0]
    if len(findings) == 1:
        prefix += f"line {first.line}: " if first.line else ""
        raise ConfigError(prefix + first.message, hint=first.hint, field=first.field)
    lines = "".join(f"\n  - {finding}" for finding in findings)
    raise ConfigError(f"{prefix}{len(findings)} problems in the configuration:{lines}", field=first.field)


def quoted(value: Any) -> str:
    """The value as a reader knows it, cut short when long, whatever it is."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # a huge integer refuses to be printed, a deep nest cannot be
        return f"<{type(value).__name__}>"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


Scalar: TypeAlias = str | int | float | bool
Option: TypeAlias = Scalar | tuple[Scalar, ...]


class Options(Mapping[str, Option]):
    """A mapping that cannot be changed, so that a configuration can be hashed, shared and pickled."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Option] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> Option:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"Options({self._items!r})"


@dataclass(frozen=True, slots=True)
class SettingLimits:
    """What a value must obey beyond its type. For a list they hold for each member."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    pattern: str = ""
    shape: str = ""

    def __str__(self) -> str:
        bounds = {">": self.gt, ">=": self.ge, "<": self.lt, "<=": self.le}
        words = [f"{sign} {bound:g}" if bound < 1e6 else f"{sign} {bound}" for sign, bound in _given(bounds)]
        return " and ".join(words + [self.shape] * bool(self.shape))

    def admit(self, value: Any) -> bool:
        """Whether a number lies within the bounds."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


def _given(bounds: Mapping[str, float | None]) -> list[tuple[str, float]]:
    return [(sign, bound) for sign, bound in bounds.items() if bound is not None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A declared setting. `kind` is bool, int, float, str or Mapping; `many` makes it a list of those.

    `name` is what it is called in its section, and `flat` outside of it: the same, unless that would be too general.
    """

    section: str
    name: str
    flat: str
    kind: type
    many: bool
    nullable: bool
    choices: tuple[str, ...]
    limits: SettingLimits
    default: Any
    meaning: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def noun(self) -> str:
        """The type in words: `a list of whole numbers`."""
        one, several = _NOUNS[self.kind]
        if self.choices:
            choices = ", ".join(self.choices)
            return f"a list from {choices}" if self.many else f"one of {choices}"
        return f"a list of {several}" if self.many else one

    @property
    def bounds(self) -> str:
        """The limits in words: `> 0 and <= 1`."""
        limits = str(self.limits)
        return f"each {limits}" if self.many and limits else limits

    @property
    def demand(self) -> str:
        """Type and limits: `a number > 0 and <= 1`, `a list of whole numbers, each >= 1`."""
        return f"{self.noun}{', ' if self.many else ' '}{self.bounds}".rstrip(", ")


_NOUNS: Mapping[type, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    Mapping: ("a table of plain values and lists", "tables"),
}


def setting(
    default: Any,
    meaning: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    pattern: str = "",
    shape: str = "",
    flat: str = "",
) -> Any:
    """Declare a setting in a section.

    `shape` says in words what the regular expression `pattern` demands; `flat` is what the setting is called outside of
    its section, where its name would say too little.
    """
    limits = SettingLimits(ge, gt, le, lt, pattern, shape)
    return field(default=default, metadata={"meaning": meaning, "limits": limits, "flat": flat})


def settings_of(section: type[Any]) -> tuple[Setting, ...]:
    """The settings a section class declares, in order."""
    if section not in _DECLARED:
        name = section_name(section)
        _DECLARED[section] = tuple(
            Setting(
                name,
                f.name,
                f.metadata["flat"] or f.name,
                *_kind(f.type),
                f.metadata["limits"],
                f.default,
                f.metadata["meaning"],
            )
            for f in fields(section)
        )
    return _DECLARED[section]


_DECLARED: dict[type[Any], tuple[Setting, ...]] = {}


def section_name(section: type[Any]) -> str:
    """`LossSettings` is the section `loss`."""
    return section.__name__.removesuffix("Settings").lower()


def _kind(annotation: Any) -> tuple[type, bool, bool, tuple[str, ...]]:
    """(kind, many, nullable, choices) of an annotation such as `Literal["a", "b"] | None`."""
    members = get_args(annotation)
    if NoneType in members:
        (inner,) = (member for member in members if member is not NoneType)
        kind, many, _, choices = _kind(inner)
        return kind, many, True, choices
    origin = get_origin(annotation)
    if origin is Literal:
        return str, False, False, members
    if origin is tuple:
        kind, _, _, choices = _kind(members[0])
        return kind, True, False, choices
    return origin or annotation, False, False, ()


INTEGER_LIMIT = 2**63 - 1


class ValueRefused(Exception):
    """The value does not fit; the words say what it must be."""


def read(setting: Setting, value: Any) -> tuple[Any, Finding | None]:
    """The value in its setting's type, or a finding."""
    if setting.nullable and (value is None or (value == "null" and _is_not_free_text(setting))):
        return None, None
    try:
        if setting.many:
            return tuple(_one(setting, member) for member in _members(setting, value)), None
        return _one(setting, value), None
    except ValueRefused as refused:
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
    raise ValueRefused(setting.demand)


def _one(setting: Setting, value: Any) -> Any:
    result = _READERS[setting.kind](value)
    if result is None:
        raise ValueRefused(setting.demand)
    if isinstance(result, float) and not math.isfinite(result):
        raise ValueRefused(f"a finite number {setting.limits}".rstrip())
    if setting.choices and result not in setting.choices:
        raise ValueRefused(setting.noun)
    if setting.kind in (int, float) and not setting.limits.admit(result):
        raise ValueRefused(setting.demand if setting.many else setting.bounds)
    if setting.limits.pattern and not re.fullmatch(setting.limits.pattern, result):
        raise ValueRefused(setting.limits.shape)
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
        raise ValueRefused("a whole number of at most 64 bits")
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
        raise ValueRefused("text of at least one character")
    return encodable(str.__str__(value))


def encodable(text: str) -> str:
    """The text itself, if it can be written to a file at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueRefused("text of valid Unicode characters") from None
    return text


def _table(value: Any) -> Options | None:
    if not isinstance(value, Mapping):
        return None
    return Options({_option_name(key): _option(key, item) for key, item in value.items()})


def _option(key: Any, value: Any) -> Option:
    return tuple(_scalar(key, member) for member in value) if isinstance(value, list | tuple) else _scalar(key, value)


def _option_name(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueRefused("a table whose names are texts")
    return encodable(str.__str__(key))


def _scalar(key: Any, value: Any) -> Scalar:
    """A plain value of a free table, in its own type."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encodable(str.__str__(value))
    number = _whole(value) if isinstance(value, Integral) else _number(value)
    if number is None:
        raise ValueRefused(f"a table of plain values and lists of them, but {quoted(key)} has {quoted(value)}")
    if not math.isfinite(number):
        raise ValueRefused(f"a table of finite values, but {quoted(key)} is {quoted(value)}")
    return number


_READERS: Mapping[type, Callable[[Any], Any]] = {
    bool: _truth,
    int: _whole,
    float: _real,
    str: _text,
    Mapping: _table,
}
