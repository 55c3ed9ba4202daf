"""Which strategies there are, and how their states are written down and read again."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from groupwise.errors import ConfigError, ContractError
from groupwise.types import Message

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
