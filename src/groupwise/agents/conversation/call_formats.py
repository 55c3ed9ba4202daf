"""Tool calls, parsed from a model's text. Each family of models writes them in its own format.

The text itself is never changed: calls are read out of it, and a malformed call is reported back to the model. To learn
a model's format, we let its chat template write a call. Parsing takes time linear in the length of the text.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.language.chat_templates import chat_text

DEEPEST = 64  # levels of nesting inside a call's arguments
MOST_CALLS = 1000  # in one turn; no model means to make more, and call ids have three digits
PROBE = "probe"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls: `find` yields the raw text of each, `read` returns its name and arguments.

    `written` matches a call to the tool `probe`. A call begins with one of `begins`; a newline there also matches the
    start of the text. `marks` delimit calls and results, so they are broken up when they occur inside a result.
    """

    name: str
    written: re.Pattern[str]
    find: Callable[[str], Iterator[str]]
    read: Callable[[str], tuple[Any, Any]]
    begins: tuple[str, ...]
    marks: tuple[str, ...] = ()


def find_format(tokenizer: Any) -> CallFormat | None:
    """Return the format in which the model's chat template writes calls; None for a template without tools."""
    call = {"id": "probe0000", "type": "function", "function": {"name": PROBE, "arguments": {"number": 1}}}
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}
    ]  # fmt: skip
    function = {"name": "other", "description": "", "parameters": {"type": "object", "properties": {}}}
    try:
        tools = [{"type": "function", "function": function}]
        text = chat_text(tokenizer, asked, tools=tools, add_generation_prompt=False)
    except Exception:  # a template is a program and raises what it likes
        return None
    return next((known for known in FORMATS if known.written.search(text)), None)


def read_reply(text: str, form: CallFormat | None, turn: int, cut: bool = False) -> Reply:
    """Split a model's text into a reply and its calls."""
    calls: list[ToolCall] = []
    broken: list[BrokenCall] = []
    for number, raw in enumerate(islice(form.find(text), MOST_CALLS) if form else ()):
        assert form is not None
        # Reproducible and sortable; nine letters and digits are what the strictest chat templates accept as an id.
        identity = f"t{turn:04}n{number:03}"
        try:
            calls.append(ToolCall(identity, *_checked(*form.read(raw))))
        except ValueError as error:
            broken.append(BrokenCall(raw, str(error), identity))
    return Reply(text, tuple(calls), tuple(broken), cut)


def _checked(name: Any, arguments: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(name, str) or not name:
        raise ValueError('the call has no "name"')
    if isinstance(arguments, str):
        arguments = _json(arguments)  # chat APIs send arguments as JSON in a string, and so do some models
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name[:64]} are not a JSON object")
    return name, arguments


def _json(raw: str) -> Any:
    """Parse strict JSON: NaN and infinity are refused, although Python's parser accepts them."""
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"the call is nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise ValueError(f"the call is not valid JSON: {error}") from None
    # Breadth first, without recursion: the parser limits its own depth, but not to DEEPEST.
    level = [value]
    for _ in range(DEEPEST):
        tables = [list(outer.values()) if isinstance(outer, dict) else outer for outer in level]
        level = [inner for table in tables if isinstance(table, list) for inner in table]
        if not level:
            return value
    raise ValueError(f"the call is nested more than {DEEPEST} levels deep")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits[:20])


def _named_object(raw: str) -> tuple[Any, Any]:
    """{"name": …, "arguments": {…}}, or "parameters" as Llama writes it."""
    value = _json(raw)
    if not isinstance(value, dict):
        raise ValueError("the call is not a JSON object")
    return value.get("name"), value.get("arguments", value.get("parameters", {}))


def _values(text: str, between: re.Pattern[str]) -> Iterator[str]:
    """Yield the raw text of each JSON value in a row; after the first invalid one, yield the rest in one piece."""
    place, decoder = between.match(text).end(), json.JSONDecoder()  # type: ignore[union-attr]
    while place < len(text):
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            yield text[place:]
            return
        yield text[place:end]
        place = between.match(text, end).end()  # type: ignore[union-attr]


def _spoken(text: str) -> str:
    """Return the text after a model's <think> block; nothing if the block was never closed."""
    _, ended, said = text.rpartition("</think>")
    return said if ended or not text.lstrip().startswith("<think>") else ""


def _tagged(text: str) -> Iterator[str]:
    """Hermes and Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>; the last one may be truncated."""
    for part in _spoken(text).split("<tool_call>")[1:]:
        yield part.split("</tool_call>")[0].strip()


def _bare(text: str) -> Iterator[str]:
    """Llama 3: the entire turn is one or more {"name": …, "parameters": {…}}, or they follow <|python_tag|>."""
    _, marked, rest = text.partition("<|python_tag|>")
    said = rest if marked else text.strip()
    if marked or (said.startswith("{") and '"name"' in said and (PARAMETERS.search(said) or said[-1] != "}")):
        yield from _values(said, BARE_BETWEEN)


def _listed(text: str) -> Iterator[str]:
    """Mistral: [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]; newer models write [TOOL_CALLS]name[ARGS]{…}."""
    for part in text.split("[TOOL_CALLS]")[1:]:
        if part.lstrip().startswith(("[", "{")):
            yield from _values(part, LIST_BETWEEN)
        else:
            yield part.strip()


def _listed_call(raw: str) -> tuple[Any, Any]:
    name, split, arguments = raw.partition("[ARGS]")
    return (name.partition("[CALL_ID]")[0].strip(), _json(arguments)) if split else _named_object(raw)


def _lines(text: str) -> Iterator[str]:
    """The tiny model: one line `@name {"argument": value}` per call."""
    return (found.group(1) for found in LINE.finditer(text))


def _line(raw: str) -> tuple[Any, Any]:
    name, _, arguments = raw.strip().partition(" ")
    return name, _json(arguments) if arguments.strip() else {}


PARAMETERS = re.compile(r'"(parameters|arguments)"\s*:')
LINE = re.compile(r"^@(.*)$", re.MULTILINE)
BARE_BETWEEN = re.compile(r"[\s;]*")
LIST_BETWEEN = re.compile(r"[\s,\[\]]*")

# Tried in this order: "object" would also match inside the tagged and the list format, so it comes after them.
FORMATS = (
    CallFormat(
        "tagged", re.compile(r'<tool_call>\s*\{[^<]*"name":\s*"probe"'), _tagged, _named_object, ("<tool_call>",),
        ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    ),
    CallFormat(
        "list", re.compile(r'\[TOOL_CALLS\]\s*(\[\s*\{.*?"name":\s*"probe"|probe\s*\[)', re.DOTALL), _listed,
        _listed_call, ("[TOOL_CALLS]", '[{"'), ("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
    CallFormat("object", re.compile(r'\{"name":\s*"probe",\s*"parameters":'), _bare, _named_object, ("\n{",)),
    CallFormat("lines", re.compile(r'@probe \{"number"'), _lines, _line, ("\n@",)),
)  # fmt: skip
