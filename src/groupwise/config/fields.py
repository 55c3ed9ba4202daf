"""One setting and one section: how they are declared, how values are read, and what is reported if they do not fit.

A section is a frozen Pydantic class, a setting one of its fields. Pydantic checks types, limits and choices; the
readers below decide, before that, which values stand for which type:

    whole number → number        yes          3.0 → whole number          yes, 3.5 no
    "5e-6" → number              yes: YAML 1.1 reads 5e-6 as text
    true → number                no           1 → true or false           no
    list → tuple                 yes          "a,b" → list                yes
    null → None                  if the setting is optional; the text "null" too, because TOML has no null
    nan, inf                     never
"""

import difflib
import math
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from groupwise.errors import ConfigError

# TOML, JSON and NumPy all hold 64-bit integers; a larger one would not survive being saved.
INTEGER_LIMIT = 2**63 - 1

Scalar: TypeAlias = str | int | float | bool
Option: TypeAlias = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: the setting it concerns, what is wrong, what to do, and the line where it was found."""

    field: str
    message: str
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message}; {self.hint}" if self.hint else f"{place}{self.message}"


def raise_findings(findings: Sequence[Finding], where: str = "") -> None:
    """Raise one `ConfigError` that lists all of them; do nothing if there are none."""
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
    """The value as the reader wrote it, shortened if it is long."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # a huge integer refuses to be printed, a deep nest cannot be
        return f"<{type(value).__name__}>"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


class Options(Mapping[str, Option]):
    """An immutable table of plain values, so that a configuration can be hashed, shared and pickled."""

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

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        as_table = core_schema.plain_serializer_function_ser_schema(dict)
        return core_schema.is_instance_schema(cls, serialization=as_table)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        plain = {"type": ["string", "number", "boolean"]}
        return {"type": "object", "additionalProperties": {"anyOf": [plain, {"type": "array", "items": plain}]}}


@dataclass(frozen=True, slots=True)
class Setting:
    """A declared setting. `kind` is bool, int, float, str or Options; `many` makes it a list of those.

    Inside its section it is called `name`. Outside it is called `flat`: the same, unless that would be too general.
    """

    section: str
    name: str
    flat: str
    kind: type
    many: bool
    nullable: bool
    choices: tuple[str, ...]
    limits: Mapping[str, float]
    shape: str
    default: Any
    meaning: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def is_optional_text(self) -> bool:
        """Whether it is free text or null. Such a setting reads "null" as the text it is."""
        return self.nullable and self.kind is str and not self.choices

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
        given = [(_SIGNS[name], bound) for name, bound in self.limits.items()]
        words = [f"{sign} {bound:g}" if bound < 1e6 else f"{sign} {bound}" for sign, bound in given]
        limits = " and ".join(words + [self.shape] * bool(self.shape))
        return f"each {limits}" if self.many and limits else limits

    @property
    def demand(self) -> str:
        """Type and limits: `a number > 0 and <= 1`, `a list of whole numbers, each >= 1`."""
        return f"{self.noun}{', ' if self.many else ' '}{self.bounds}".rstrip(", ")


_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_NOUNS: Mapping[type, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "strings"),
    Options: ("a table of plain values and lists", "tables"),
}


def setting(
    default: Any,
    meaning: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    pattern: str | None = None,
    shape: str = "",
    flat: str = "",
) -> Any:
    """Declare a setting as a field of a section.

    `shape` says in words what the regular expression `pattern` demands. `flat` is what the setting is called outside
    its section, if its own name says too little there.
    """
    # Pydantic searches for a pattern; here it must cover the whole text.
    whole = None if pattern is None else f"^(?:{pattern})$"
    extra: dict[str, Any] = {"shape": shape, "flat": flat}
    return Field(default, description=meaning, ge=ge, gt=gt, le=le, lt=lt, pattern=whole, json_schema_extra=extra)


class Section(BaseModel):
    """Settings that belong together. `LossSettings` is the section `loss`; `SECTION` gives it another name."""

    # Strict, because the readers below already decided which values stand for which type.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    SECTION: ClassVar[str] = ""

    if not TYPE_CHECKING:  # type checkers see the constructor that Pydantic derives from the fields

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise_findings(_findings(type(self), given, error))

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        return _read_value(settings_of(cls)[str(info.field_name)], value)

    def __repr__(self) -> str:
        """Only what differs from the defaults: a reader looks for that."""
        changed = [s.name for s in settings_of(type(self)).values() if getattr(self, s.name) != s.default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values in the order of declaration."""
        return ((name, getattr(self, name)) for name in settings_of(type(self)))

    def replace(self, **changes: Any) -> Self:
        """The same section with some settings changed, and checked again."""
        return type(self)(**{**dict(self.items()), **changes})


def read_section(section: type[Section], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The values of a section, without those that are wrong, and a finding for each of these."""
    try:
        return _validated(section, given), []
    except ValidationError as error:
        # Rules between settings still look at those that are right, so these are read a second time.
        wrong = {line["loc"][0] for line in error.errors(include_url=False, include_input=False)}
        sound = _validated(section, {name: value for name, value in given.items() if name not in wrong})
        return {name: value for name, value in sound.items() if name not in wrong}, _findings(section, given, error)


def _validated(section: type[Section], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values as Pydantic reads them. Its own error, which lists all problems, is let through."""
    # This is what Pydantic's own constructor does; ours would turn its error into words.
    made = section.__new__(section)
    section.__pydantic_validator__.validate_python(dict(given), self_instance=made)
    return dict(made.items())


def _findings(section: type[Section], given: Mapping[str, Any], error: ValidationError) -> list[Finding]:
    """Pydantic's errors in our words: the value, the limit and the remedy, one for each setting."""
    found: dict[str, Finding] = {}
    for line in error.errors(include_url=False, include_input=False):
        name = str(line["loc"][0])
        # A list with several wrong members is one problem.
        if name in found:
            continue
        declared = settings_of(section).get(name)
        if declared is None:
            known = list(settings_of(section))
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            message = f"{section.__name__} has no setting {quoted(name)}"
            found[name] = Finding(f"{section_name(section)}.{name}", message, hint)
        else:
            found[name] = _wrong_value(declared, given[name], line["type"], line.get("ctx", {}).get("demand", ""))
    return list(found.values())


def _wrong_value(setting: Setting, value: Any, kind: str, demand: str) -> Finding:
    if kind == "literal_error":
        demand = setting.noun
    elif kind == "string_pattern_mismatch":
        demand = setting.shape
    elif not demand:
        demand = setting.demand if setting.many else setting.bounds
    hint = f"{setting.name}: {setting.meaning}"
    near = difflib.get_close_matches(value, setting.choices, n=1) if isinstance(value, str) else []
    if near:
        hint = f"did you mean {near[0]!r}?"
    null = ", or null" if setting.nullable else ""
    return Finding(setting.path, f"{setting.path} = {quoted(value)} must be {demand}{null}", hint)


def section_name(section: type[Section]) -> str:
    """`LossSettings` is the section `loss`."""
    return section.SECTION or section.__name__.removesuffix("Settings").lower()


@cache
def settings_of(section: type[Section]) -> Mapping[str, Setting]:
    """The settings that a section declares, by name, in order."""
    return {name: _setting(section, name, field) for name, field in section.model_fields.items()}


def _setting(section: type[Section], name: str, field: FieldInfo) -> Setting:
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{section.__name__}.{name} is not declared with setting()"
    kind, many, nullable, choices, inner = _kind(field.annotation)
    bounds = [(sign, getattr(limit, sign, None)) for limit in (*field.metadata, *inner) for sign in _SIGNS]
    limits = {sign: bound for sign, bound in bounds if bound is not None}
    return Setting(
        section_name(section), name, str(extra["flat"] or name), kind, many, nullable, choices, limits,
        str(extra["shape"]), field.default, field.description or "",
    )  # fmt: skip


def _kind(annotation: Any) -> tuple[type, bool, bool, tuple[str, ...], Sequence[Any]]:
    """(kind, many, nullable, choices, limits of members) of an annotation such as `Literal["a", "b"] | None`."""
    members = get_args(annotation)
    if NoneType in members:
        (inner,) = (member for member in members if member is not NoneType)
        kind, many, _, choices, limits = _kind(inner)
        return kind, many, True, choices, limits
    origin = get_origin(annotation)
    if origin is Annotated:
        fields = [member for member in members[1:] if isinstance(member, FieldInfo)]
        kind, many, nullable, choices, _ = _kind(members[0])
        return kind, many, nullable, choices, [limit for field in fields for limit in field.metadata]
    if origin is Literal:
        return str, False, False, members, ()
    if origin is tuple:
        kind, _, _, choices, limits = _kind(members[0])
        return kind, True, False, choices, limits
    return annotation, False, False, (), ()


def _read_value(setting: Setting, value: Any) -> Any:
    """The value in its setting's type; Pydantic then checks limits and choices."""
    # An optional text cannot read "null" as null: it may be the name of a run.
    if setting.nullable and (value is None or (value == "null" and not setting.is_optional_text)):
        return None
    if setting.many:
        return tuple(_read_one(setting, member) for member in _members(setting, value))
    return _read_one(setting, value)


def _members(setting: Setting, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    raise _refused(setting.demand)


def _read_one(setting: Setting, value: Any) -> Any:
    result = _READERS[setting.kind](value)
    if result is None:
        raise _refused(setting.noun if setting.choices else setting.demand)
    if isinstance(result, float) and not math.isfinite(result):
        raise _refused(f"a finite number {setting.bounds}".rstrip())
    return result


def _refused(demand: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "must be {demand}", {"demand": demand})


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    if number is None or (isinstance(number, float) and not number.is_integer()):
        return None
    if abs(number) > INTEGER_LIMIT:
        raise _refused("a whole number of at most 64 bits")
    return int(number)


def _real(value: Any) -> float | None:
    number = _number(value)
    try:
        return None if number is None else float(number)
    # An integer too large for a float is refused as not finite.
    except OverflowError:
        return math.inf


def _number(value: Any) -> int | float | None:
    """The value as a plain Python number; text is read as one, truth values are not numbers."""
    if isinstance(value, str):
        # int first: a float would lose digits of a large seed.
        for parse in (int, float):
            try:
                return parse(value)
            except ValueError:
                continue
        return None
    # In Python a truth value is a number; in a settings file it is a mistake.
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else float(value)


def _text(value: Any) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        return None
    if not value:
        raise _refused("text of at least one character")
    # str.__str__ makes a plain text of an enumeration member or a NumPy string.
    return _encodable(str.__str__(value))


def _encodable(text: str) -> str:
    """The text itself, if it can be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused("text of valid Unicode characters") from None
    return text


def _table(value: Any) -> Options | None:
    if not isinstance(value, Mapping):
        return None
    return Options({_option_name(key): _option(key, item) for key, item in value.items()})


def _option(key: Any, value: Any) -> Option:
    return tuple(_scalar(key, member) for member in value) if isinstance(value, list | tuple) else _scalar(key, value)


def _option_name(key: Any) -> str:
    if not isinstance(key, str):
        raise _refused("a table whose names are strings")
    return _encodable(str.__str__(key))


def _scalar(key: Any, value: Any) -> Scalar:
    """A plain value of a free table, in its own type."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(str.__str__(value))
    number = _whole(value) if isinstance(value, Integral) else _number(value)
    if number is None:
        raise _refused(f"a table of plain values and lists of them, but {quoted(key)} has {quoted(value)}")
    if not math.isfinite(number):
        raise _refused(f"a table of finite values, but {quoted(key)} is {quoted(value)}")
    return number


_READERS: Mapping[type, Callable[[Any], Any]] = {bool: _truth, int: _whole, float: _real, str: _text, Options: _table}
