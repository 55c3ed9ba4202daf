"""Formats that write each parameter by itself: between tags as plain text, as in Python, or as Gemma's objects."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.agents.conversation.call_formats.json_calls import written
from groupwise.agents.conversation.call_formats.literals import Literals, typed
from groupwise.agents.conversation.call_formats.reading import CallFormat, Properties, Schemas, strict_json
from groupwise.agents.environments.contract import ToolCall

CALLED = re.compile(r"\[\s*[A-Za-z_][\w.\-]*\s*\(")


@dataclass(frozen=True, slots=True)
class Tags:
    """The marks around a call, its name, and each parameter: <function=add><parameter=a>1</parameter></function>.

    What stands between a key and its mark (` string="true"`) is no part of the key; `kind` is an attribute that says
    whether a value is text. `pad` is what the template puts on both sides of a value.
    """

    call: str
    name_end: str
    key: str
    key_end: str
    value: str
    value_end: str
    end: str
    pad: str = ""
    kind: str = ""

    def find(self, text: str) -> Iterator[str]:
        return (part.split(self.end)[0] for part in text.split(self.call)[1:])

    def read(self, raw: str, schemas: Schemas) -> tuple[Any, Any]:
        head, *parts = raw.split(self.key)
        head, _, rest = head.partition(self.name_end) if self.name_end else (head, "", "")
        name = _name(head)
        if rest.strip():
            raise ValueError(f"the call has {rest.strip()[:40]!r} where {self.key} must be")
        return name, dict(self._parameter(part, schemas.get(name, {})) for part in parts)

    def _parameter(self, part: str, properties: Properties) -> tuple[str, Any]:
        head, found, rest = part.partition(self.key_end)
        key, _, attributes = head.strip().partition('"')
        text, closed, _ = (rest.partition(self.value)[2] if self.value else rest).partition(self.value_end)
        if not found or not closed:
            raise ValueError(f"the parameter {key[:64]!r} is not closed with {self.value_end}")
        text = text.removeprefix(self.pad).removesuffix(self.pad)
        # DeepSeek and Kimi say themselves what is text.
        if 'string="false"' in attributes or ('type="' in attributes and 'type="string"' not in attributes):
            return key, strict_json(text)
        return key, text if 'string="true"' in attributes else typed(text, properties.get(key))

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "".join(f"{self.call}{c.name}{self.name_end}{self._written(c)}{self.end}" for c in calls)

    def _written(self, call: ToolCall) -> str:
        return "".join(
            f"{self.key}{key}{self.kind.replace('?', written(isinstance(value, str)))}{self.key_end}{self.value}"
            f"{self.pad}{_plain(value)}{self.pad}{self.value_end}"
            for key, value in call.arguments.items()
        )

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple({self.call, self.key, self.value, self.value_end, self.end} - {""})


def tagged_parameters(name: str, tags: Tags, begins: Sequence[str] = (), marks: Sequence[str] = ()) -> CallFormat:
    """Parameters between tags, each value as plain text; a schema says which are not text."""
    every = tuple({*tags.marks, *begins, *marks})
    return CallFormat(name, tags.find, tags.read, tags.write, (*begins, tags.call), every)


def python_calls(name: str, opens: str, closes: str, marks: Sequence[str] = ()) -> CallFormat:
    """A list of calls as Python writes them: [add(a=1, b='two'), now()]; without marks, the turn begins with it."""

    def find(text: str) -> Iterator[str]:
        for part in text.split(opens)[1:] if opens else _bare(text):
            yield from _python_calls((part.split(closes)[0] if closes else part).strip())

    def write(calls: Sequence[ToolCall]) -> str:
        made = [f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})" for call in calls]
        return f"{opens}[{', '.join(made)}]{closes}"

    begins = (opens,) if opens else ("\n[",)
    return CallFormat(name, find, _python_read, write, begins, tuple({opens, closes, *marks} - {""}))


def gemma_calls(name: str, opens: str, closes: str, quote: str, marks: Sequence[str] = ()) -> CallFormat:
    """Gemma: call:add{a:1,b:<|"|>two<|"|>} between marks, with its own mark around text."""

    def find(text: str) -> Iterator[str]:
        return (part.split(closes)[0] for part in text.split(opens)[1:])

    def read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
        called, found, rest = raw.strip().removeprefix("call:").partition("{")
        if not found:
            raise ValueError("the call has no { behind its name")
        arguments = Literals(rest, quote).pairs("}", ":")
        return called.strip(), _retyped(arguments, schemas.get(called.strip(), {}))

    def write(calls: Sequence[ToolCall]) -> str:
        return "".join(f"{opens}call:{call.name}{_gemma_object(call.arguments, quote)}{closes}" for call in calls)

    return CallFormat(name, find, read, write, (opens,), (opens, closes, quote, *marks))


def _bare(text: str) -> Iterator[str]:
    """Yield the list of calls that a turn consists of, or ends with."""
    found = CALLED.search(text)
    if found and (not text[: found.start()].strip() or text.rstrip().endswith(")]")):
        yield text[found.start() :]


def _python_calls(text: str) -> Iterator[str]:
    """Yield the raw text of each call in a list; after the first malformed one, yield the rest in one piece."""
    reader = Literals(text)
    reader.skip("[")
    while not reader.skip("]") and reader.place < len(text):
        start = reader.place
        try:
            _read_python(reader)
        except ValueError:
            yield text[start:]
            return
        yield text[start : reader.place]
        reader.skip(",")


def _read_python(reader: Literals) -> tuple[str, dict[str, Any]]:
    name = reader.word()
    reader.insist("(")
    return name, reader.pairs(")", "=")


def _python_read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    name, arguments = _read_python(Literals(raw))
    return name, _retyped(arguments, schemas.get(name, {}))


def _retyped(arguments: dict[str, Any], properties: Properties) -> dict[str, Any]:
    """Return the arguments with text made into numbers where the schema wants numbers: some templates quote all."""
    return {
        key: typed(value, properties.get(key)) if isinstance(value, str) else value for key, value in arguments.items()
    }


def _name(head: str) -> str:
    """Return the name at the beginning of a call, without quotation marks and attributes behind it."""
    return head.strip().partition('"')[0].strip()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else written(value)


def _gemma_object(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_gemma_object(one, quote) for one in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_object(one, quote)}" for key, one in sorted(value.items())) + "}"
    return json.dumps(value)
