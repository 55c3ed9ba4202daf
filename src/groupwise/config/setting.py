"""One setting: its type, default, limits and meaning, all read from the one line that declares it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, Literal, TypeAlias, get_args, get_origin

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
class Limits:
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
    limits: Limits
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
    limits = Limits(ge, gt, le, lt, pattern, shape)
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
