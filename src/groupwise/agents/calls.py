"""Calls of tools, found in what a model wrote: every family of models writes them in a format of its own.

What the model wrote stays as it is; the calls are read out of it, and what began like a call and is none is told back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from groupwise.agents.environment import BrokenCall, Reply, ToolCall

Found = tuple[str, str]  # the name and the JSON of the arguments, as written


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls: `find` gives their raw texts, `mark` tells a chat template of this format."""

    name: str
    mark: str
    find: Callable[[str], Iterator[str]]
    read: Callable[[str], tuple[str, Any]]


def find_format(tokenizer: Any) -> CallFormat | None:
    """The format the model's own chat template writes calls in; None for a template without tools."""
    template = str(tokenizer.chat_template or "")
    return next((known for known in FORMATS if known.mark in template), None)


def read_reply(text: str, form: CallFormat | None, turn: int, cut: bool = False) -> Reply:
    """The reply with its calls. Their ids are made of the turn's number, so that they are the same in every run."""
    calls: list[ToolCall] = []
    broken: list[BrokenCall] = []
    for number, raw in enumerate(form.find(text) if form else ()):
        assert form is not None
        try:
            name, arguments = form.read(raw)
            calls.append(ToolCall(f"call-{turn}-{number}", *_checked(name, arguments)))
        except ValueError as error:
            broken.append(BrokenCall(raw, str(error)))
    return Reply(text, tuple(calls), tuple(broken), cut)


def _checked(name: Any, arguments: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(name, str) or not name:
        raise ValueError('the call has no "name"')
    if not isinstance(arguments, dict):
        raise ValueError(f'the "arguments" of {name} are no JSON object')
    return name, arguments


def _object(raw: str) -> Any:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the call is no JSON: {error}") from None
    return value


def _tagged(text: str) -> Iterator[str]:
    """Hermes and Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>; the last may be cut off."""
    for part in text.split("<tool_call>")[1:]:
        yield part.split("</tool_call>")[0].strip()


def _named_object(raw: str) -> tuple[Any, Any]:
    value = _object(raw)
    if not isinstance(value, dict):
        raise ValueError("the call is no JSON object")
    return value.get("name"), value.get("arguments", value.get("parameters", {}))


LINE = re.compile(r"^@(.*)$", re.MULTILINE)


def _lines(text: str) -> Iterator[str]:
    """The tiny model: a line `@name {"argument": value}` for every call."""
    return (found.group(1) for found in LINE.finditer(text))


def _name_and_object(raw: str) -> tuple[Any, Any]:
    name, _, arguments = raw.strip().partition(" ")
    return name, _object(arguments) if arguments.strip() else {}


FORMATS = (
    CallFormat("tagged", "<tool_call>", _tagged, _named_object),
    CallFormat("lines", "'@' + ", _lines, _name_and_object),
)
