"""Formats that write arguments as JSON: whole calls as objects between marks, or a name followed by an object."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from groupwise.agents.conversation.call_formats.reading import CallFormat, Schemas, strict_json
from groupwise.agents.environments.contract import ToolCall

PARAMETERS = re.compile(r'"(parameters|arguments)"\s*:')
BETWEEN = re.compile(r"[\s,;\[\]]*")
KIMI_NAME = re.compile(r"(?:functions\.)?(.*?)(?::\d+)?", re.DOTALL)
HARMONY_NAME = re.compile(r"[\w.\-]+")


def objects(name: str, opens: str, closes: str = "", marks: Sequence[str] = (), keyed: bool = False) -> CallFormat:
    """Calls as JSON objects between marks, one by one or in a list: {"name": …, "arguments": {…}}.

    Without marks, the turn must begin with a call. `keyed` calls are {name: arguments}.
    """

    def find(text: str) -> Iterator[str]:
        for part in text.split(opens)[1:] if opens else _bare(text):
            body = (part.split(closes)[0] if closes else part).strip()
            yield from _values(body) if body.strip("[],; \n") else [body]

    def read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
        value = strict_json(raw)
        if not isinstance(value, dict):
            raise ValueError("the call is not a JSON object")
        if keyed and len(value) == 1:
            return next(iter(value.items()))
        inner = value.get("function")
        value = inner if isinstance(inner, dict) else value
        return value.get("name", value.get("tool_name")), value.get("arguments", value.get("parameters", {}))

    def write(calls: Sequence[ToolCall]) -> str:
        made = [
            {call.name: dict(call.arguments)} if keyed else {"name": call.name, "arguments": dict(call.arguments)}
            for call in calls
        ]
        return f"{opens}{written(made[0] if len(made) == 1 else made)}{closes}"

    begins = (opens,) if opens else ("\n{", '\n[{"')
    return CallFormat(name, find, read, write, begins, tuple({opens, closes, *marks} - {""}))


def named(name: str, opens: str, then: str, closes: str, marks: Sequence[str] = ()) -> CallFormat:
    """A name between marks, then its arguments as a JSON object: <function=add>{"a": 1}</function>."""

    def find(text: str) -> Iterator[str]:
        return (part.split(closes)[0] if closes else part for part in text.split(opens)[1:])

    def read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
        called, _, arguments = raw.partition(then)
        return called.strip(), first_value(arguments)

    def write(calls: Sequence[ToolCall]) -> str:
        return "".join(f"{opens}{call.name}{then}{written(dict(call.arguments))}{closes}" for call in calls)

    return CallFormat(name, find, read, write, (opens,), tuple({opens, then, closes, *marks} - {"", ">"}))


def first_value(text: str) -> Any:
    """Return the JSON value at the beginning of a text; what a template writes behind it is ignored."""
    text = text.strip()
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        end = len(text)
    return strict_json(text[:end])


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _values(text: str) -> Iterator[str]:
    """Yield the raw text of each JSON value in a row; after the first invalid one, yield the rest in one piece."""
    place, decoder = BETWEEN.match(text).end(), json.JSONDecoder()  # type: ignore[union-attr]
    while place < len(text):
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            yield text[place:]
            return
        yield text[place:end]
        place = BETWEEN.match(text, end).end()  # type: ignore[union-attr]


def _bare(text: str) -> Iterator[str]:
    """Llama 3 and xLAM: the entire turn is one or more {"name": …, "parameters": {…}}."""
    said = text.strip()
    begun = said.startswith(("{", "[")) and '"name"' in said
    if begun and (PARAMETERS.search(said) or said[-1] not in "}]"):
        yield said


def _llama_find(text: str) -> Iterator[str]:
    """Calls also follow <|python_tag|>, wherever it is."""
    _, marked, rest = text.partition("<|python_tag|>")
    return _values(rest) if marked else BARE.find(text)


def _mistral_find(text: str) -> Iterator[str]:
    """Mistral: [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]; newer models write [TOOL_CALLS]name[ARGS]{…}."""
    for part in text.split("[TOOL_CALLS]")[1:]:
        if part.lstrip().startswith(("[", "{")):
            yield from _values(part)
        else:
            yield part.strip()


def _mistral_read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    name, split, arguments = raw.partition("[ARGS]")
    return (name.partition("[CALL_ID]")[0].strip(), strict_json(arguments)) if split else BARE.read(raw, schemas)


def _deepseek_read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    """DeepSeek V3 and R1 write function<sep>name and a block of JSON, V3.1 writes name<sep>{…}."""
    head, _, rest = raw.partition("<｜tool▁sep｜>")
    name, fenced, arguments = rest.partition("```json")
    return (name.strip(), first_value(arguments)) if fenced else (head.strip(), first_value(rest))


def _kimi_read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    """Kimi writes functions.name:number as the id of a call."""
    identity, _, arguments = raw.partition("<|tool_call_argument_begin|>")
    return KIMI_NAME.fullmatch(identity.strip())[1], first_value(arguments)  # type: ignore[index]


def _harmony_find(text: str) -> Iterator[str]:
    """gpt-oss addresses a message to a function, before or after its channel."""
    for part in text.split("to=functions.")[1:]:
        yield part.split("<|call|>")[0].split("<|end|>")[0]


def _harmony_read(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    name, (_, found, arguments) = HARMONY_NAME.match(raw), raw.partition("<|message|>")
    if not name or not found:
        raise ValueError("the call has no <|message|> behind its name")
    return name[0], first_value(arguments)


def _lines(text: str) -> Iterator[str]:
    """The tiny model: one line `@name {"argument": value}` per call."""
    return (found.group(1) for found in LINE.finditer(text))


def _line(raw: str, schemas: Schemas) -> tuple[Any, Any]:
    name, _, arguments = raw.strip().partition(" ")
    return name, strict_json(arguments) if arguments.strip() else {}


def _each(form: str) -> Any:
    """Return a writer that repeats `form` for every call, with its number, name and arguments."""

    def write(calls: Sequence[ToolCall]) -> str:
        return "".join(form % {"n": n, "f": c.name, "a": written(dict(c.arguments))} for n, c in enumerate(calls))

    return write


LINE = re.compile(r"^@(.*)$", re.MULTILINE)
BARE = objects("object", "")
LLAMA = CallFormat(
    "object", _llama_find, BARE.read, _each('{"name": "%(f)s", "parameters": %(a)s}'),
    ("\n{", '\n[{"', "<|python_tag|>"), ("<|python_tag|>",),
)  # fmt: skip
MISTRAL = CallFormat(
    "list", _mistral_find, _mistral_read, _each("[TOOL_CALLS]%(f)s[ARGS]%(a)s"), ("[TOOL_CALLS]", '[{"'),
    ("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]", "[CALL_ID]"),
)  # fmt: skip
DEEPSEEK = CallFormat(
    "deepseek", named("", "<｜tool▁call▁begin｜>", "", "<｜tool▁call▁end｜>").find, _deepseek_read,
    _each("<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(f)s\n```json\n%(a)s\n```<｜tool▁call▁end｜>"),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    tuple(f"<｜tool▁{m}｜>" for m in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end", "outputs▁begin",
                                   "output▁begin", "output▁end", "outputs▁end")),
)  # fmt: skip
KIMI = CallFormat(
    "kimi", named("", "<|tool_call_begin|>", "", "<|tool_call_end|>").find, _kimi_read,
    _each("<|tool_call_begin|>functions.%(f)s:%(n)d<|tool_call_argument_begin|>%(a)s<|tool_call_end|>"),
    ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    tuple(f"<|tool_call{m}|>" for m in ("s_section_begin", "_begin", "_argument_begin", "_end", "s_section_end")),
)  # fmt: skip
HARMONY = CallFormat(
    "harmony", _harmony_find, _harmony_read,
    _each(" to=functions.%(f)s<|channel|>commentary json<|message|>%(a)s<|call|>"),
    ("to=functions.",), ("<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|end|>", "<|return|>"),
)  # fmt: skip
LINES = CallFormat("lines", _lines, _line, _each("@%(f)s %(a)s\n"), ("\n@",))
