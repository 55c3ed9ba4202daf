"""What people say, recognised by words: small, in English, and the same every time."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from groupwise.errors import ConfigError, ContractError
from groupwise.types import Message

LONGEST = 120  # characters of a sentence that is kept
HEARD = 8000  # characters of a message that are listened to
MOST = 6  # sentences of a kind that are kept
DENIAL = re.compile(r"(?:\b(?:not|no|never|hardly|cannot)|n't)(?:\W+\w+){0,2}\W*$", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Signal:
    """Phrases as regular expressions of whole words, between ` | `. With `denied`, "not happy" is no "happy"."""

    def __init__(self, phrases: str, *, denied: bool = True) -> None:
        choices = [phrase.strip() for phrase in re.split(r"\s\|\s", phrases.strip())]
        assert all(choices)
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
    """How the message begins, with straight apostrophes: whoever pastes a book is not read to its end."""
    return str(message.get("content") or "")[:HEARD].replace("’", "'")


def sentences(text: str) -> list[str]:
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def clipped(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 3].rstrip() + "..."


def noted(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    """The sentences with new ones added, each once, the newest few kept."""
    short = [clipped(sentence.strip(" .")) for sentence in new if sentence.strip(" .")]
    return tuple(dict.fromkeys((*known, *short)))[-MOST:]


def listed(head: str, sentences: tuple[str, ...]) -> list[str]:
    """A line of guidance about some sentences; none if there are none."""
    return [f"{head}: {'; '.join(sentences)}."] if sentences else []


DOMAINS = {
    "customer_support": "customer_service",
    "tech_help": "technical_support",
    "sales_chat": "sales",
    "tutoring": "educational",
}


class Strategy(Protocol):
    """The state of a conversation that is led in one way. Its fields have defaults and are plain values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def advance(self, message: Message) -> Self: ...
    def guidance(self) -> str: ...


S = TypeVar("S", bound=type[Any])

_known: dict[str, type[Strategy]] = {}


class UnknownStrategy(ConfigError):
    code = "unknown_strategy"


def strategy(name: str) -> Callable[[S], S]:
    """Makes a dataclass with `advance` and `guidance` known under a name; one name stands for one class."""

    def register(kind: S) -> S:
        lacking = [method for method in ("advance", "guidance") if not callable(getattr(kind, method, None))]
        if lacking or not is_dataclass(kind):
            what = f"no {' and no '.join(lacking)}" if lacking else "no fields: it is no dataclass"
            raise ContractError(f"strategy {name!r} has {what}", hint="groupwise.agents.strategies shows one.")
        other = _known.get(name)
        if other is not None and other.__qualname__ != kind.__qualname__:
            raise ContractError(f"strategy {name!r} is {other.__qualname__} already", hint="Choose another name.")
        _known[name] = cast("type[Strategy]", kind)
        return kind

    return register


def known_strategies() -> tuple[str, ...]:
    return tuple(sorted(_known))


def find_strategy(name: str) -> type[Strategy]:
    """The strategy of that name."""
    name = str(name)
    if name in _known:
        return _known[name]
    near = [DOMAINS[name]] if name in DOMAINS else difflib.get_close_matches(name, _known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "Add one with @strategy(name)."
    raise UnknownStrategy(
        f"there is no strategy {name!r}; known are {', '.join(known_strategies())}", hint=hint, field="strategy"
    )


def report(state: Strategy) -> dict[str, Any]:
    """The state as JSON has it: what a context reports and a store keeps."""
    written: dict[str, Any] = json.loads(json.dumps(asdict(state)))
    return written


def restore(name: str, written: Mapping[str, Any]) -> Strategy:
    """The state that was written down. Fields it has gained since take their defaults, ones it has lost are dropped."""
    kind = find_strategy(name)
    return kind(**{f.name: _frozen(written[f.name]) for f in fields(kind) if f.name in written})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
