"""The kinds of edits, from and to words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from groupwise.workflows.requirements import PAIR_RULES

Place: TypeAlias = Literal["before", "after", "beside"]
RULES = (*(name for name in PAIR_RULES if name != "not_coexist"), "must_include", "deadline")


@dataclass(frozen=True, slots=True)
class MoveActivity:
    """Put an activity directly before or after another one, or in parallel to it."""

    activity: str
    place: Place
    other: str


@dataclass(frozen=True, slots=True)
class Chance:
    """Change one of the probabilities that `chances` lists."""

    of: str
    value: float


@dataclass(frozen=True, slots=True)
class Rule:
    """Add a rule: a pair of activities, one activity (`must_include`), or seconds (`deadline`)."""

    rule: str
    first: str = ""
    then: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Staff:
    """Give a pool so many servers."""

    pool: str
    count: int


@dataclass(frozen=True, slots=True)
class Assign:
    """Have another pool do an activity."""

    activity: str
    pool: str


Edit: TypeAlias = MoveActivity | Chance | Rule | Staff | Assign
KINDS: Mapping[str, type[Any]] = {
    "move": MoveActivity, "chance": Chance, "rule": Rule, "staff": Staff, "assign": Assign,
}  # fmt: skip


def edit_of(value: Mapping[str, Any]) -> Edit:
    """An edit from its fields and its kind, `do`."""
    given = dict(value)
    found: Edit = KINDS[given.pop("do")](**given)
    return found


def in_words(edits: Sequence[Edit]) -> list[str]:
    return [_words(edit) for edit in edits]


def _words(edit: Edit) -> str:
    match edit:
        case MoveActivity(activity, place, other):
            return f"{activity} {place} {other}"
        case Chance(of, value):
            return f"{of}: {value:g}"
        case Rule(rule, first, then, seconds):
            return f"{rule}: {f'{seconds:g} s' if rule == 'deadline' else ', '.join(filter(None, (first, then)))}"
        case Staff(pool, count):
            return f"{count} of {pool}"
        case Assign(activity, pool):
            return f"{activity} by {pool}"
