"""The contract of a strategy, how strategies are found and stored, and how phrases are recognised.

`Signal` recognises English phrases with regular expressions: small, fast and deterministic.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from groupwise.errors import ConfigError, ContractError
from groupwise.types import Message

LONGEST = 120  # characters kept of a noted sentence
HEARD = 8000  # characters of a message that are read
REMEMBERED = 600  # characters kept of an answer
MOST = 6  # sentences kept of each kind
# A negation up to two words before a phrase, in the same clause: "not very happy".
DENIAL = re.compile(r"(?:\b(?:not|no|never|hardly|cannot)|n't)(?:[^\w,;.!?]+\w+){0,2}[^\w,;.!?]*$", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Signal:
    """Phrases of entire words as regular expressions, separated by ` | `. With `denied`, "not happy" does not count."""

    def __init__(self, phrases: str, *, denied: bool = True) -> None:
        # A line may break after a space, or after a "|" inside a phrase.
        joined = re.sub(r"(?<=\S)\|\n\s*", "|", phrases.strip())
        choices = [" ".join(phrase.split()) for phrase in re.split(r"\s\|\s", joined)]
        assert all(choices)
        # Entire words only: "late" must not match in "later".
        self.pattern = re.compile(rf"(?<!\w)(?:{'|'.join(choices)})(?!\w)", re.IGNORECASE)
        self.denied = denied

    def within(self, text: str) -> bool:
        return any(True for _ in self.found(text))

    def count(self, text: str) -> int:
        return sum(1 for _ in self.found(text))

    def found(self, text: str) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text):
            if not (self.denied and DENIAL.search(text[max(0, match.start() - 40) : match.start()])):
                yield match


def words_of(message: Message) -> str:
    """Return the beginning of a message, with straight apostrophes."""
    return str(message.get("content") or "")[:HEARD].replace("’", "'")


def sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def clipped(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 3].rstrip() + "..."


def ending(text: str) -> str:
    """The end of an answer, by which the next turn is read."""
    return text[-REMEMBERED:]


def noted(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    """Add new sentences, each once, and keep the newest few."""
    short = [clipped(sentence.strip(" .")) for sentence in new if sentence.strip(" .")]
    return tuple(dict.fromkeys((*known, *short)))[-MOST:]


def listed(head: str, sentences: tuple[str, ...]) -> list[str]:
    """Return a line of guidance about some sentences, or none."""
    return [f"{head}: {'; '.join(sentences)}."] if sentences else []


DOMAINS = {
    "customer_support": "customer_service", "tech_help": "technical_support", "sales_chat": "sales",
    "tutoring": "educational",
}  # fmt: skip


class Strategy(Protocol):
    """The state of a conversation under one strategy. Its fields are plain values with defaults."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def advance(self, message: Message) -> Self: ...
    def guidance(self) -> str: ...


S = TypeVar("S", bound=type[Any])

_known: dict[str, type[Strategy]] = {}


class UnknownStrategy(ConfigError):
    code = "unknown_strategy"


def strategy(name: str) -> Callable[[S], S]:
    """Register a dataclass with `advance` and `guidance` under a unique name."""

    def register(kind: S) -> S:
        lacking = [method for method in ("advance", "guidance") if not callable(getattr(kind, method, None))]
        if lacking or not is_dataclass(kind):
            what = f"no {' and no '.join(lacking)}" if lacking else "no fields: it is not a dataclass"
            raise ContractError(f"strategy {name!r} has {what}", hint="groupwise.agents.strategies shows one.")
        other = _known.get(name)
        if other is not None and other.__qualname__ != kind.__qualname__:
            raise ContractError(f"strategy {name!r} is already {other.__qualname__}", hint="Choose another name.")
        _known[name] = cast("type[Strategy]", kind)
        return kind

    return register


def known_strategies() -> tuple[str, ...]:
    return tuple(sorted(_known))


def find_strategy(name: str) -> type[Strategy]:
    """Return the strategy with that name."""
    name = str(name)
    if name in _known:
        return _known[name]
    # People may know the strategy by the name of its domain.
    near = [DOMAINS[name]] if name in DOMAINS else difflib.get_close_matches(name, _known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "Add one with @strategy(name)."
    message = f"there is no strategy {name!r}; there are {', '.join(known_strategies())}"
    raise UnknownStrategy(message, hint=hint, field="strategy")


def report(state: Strategy) -> dict[str, Any]:
    """Return the state as JSON values, as contexts report and stores keep it."""
    written: dict[str, Any] = json.loads(json.dumps(asdict(state)))
    return written


def restore(name: str, written: Mapping[str, Any]) -> Strategy:
    """Restore a stored state. Fields added since then take their defaults; removed ones are dropped."""
    kind = find_strategy(name)
    return kind(**{f.name: _frozen(written[f.name]) for f in fields(kind) if f.name in written})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
