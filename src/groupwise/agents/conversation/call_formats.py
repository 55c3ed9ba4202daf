"""Calls of tools, found in what a model wrote: every family of models writes them in a format of its own.

What the model wrote stays as it is; the calls are read out of it, and what began like a call and is none is told back.
Which format a model has is seen by letting its chat template write a call. Reading takes time linear in the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall

DEEPEST = 64  # levels of lists and objects inside arguments
MOST_CALLS = 1000  # of one turn; nobody means more
PROBE = "probe"


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls: `find` gives their raw texts, `read` the name and the arguments of one.

    `written` matches a call of the tool `probe`. A call begins with one of `begins` (a newline in it may be the text's
    beginning). `marks` frame calls and results, and belong into no result.
    """

    name: str
    written: re.Pattern[str]
    find: Callable[[str], Iterator[str]]
    read: Callable[[str], tuple[Any, Any]]
    begins: tuple[str, ...]
    marks: tuple[str, ...] = ()


def find_format(tokenizer: Any) -> CallFormat | None:
    """The format the model's own chat template writes calls in; None for a template without tools."""
    call = {"id": "probe0000", "type": "function", "function": {"name": PROBE, "arguments": {"number": 1}}}
    asked = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    told = {"name": "other", "description": "", "parameters": {"type": "object", "properties": {}}}
    try:
        text = tokenizer.apply_chat_template(asked, tools=[{"type": "function", "function": told}], tokenize=False)
    except Exception:  # a template is a program and raises what it likes
        return None
    return next((known for known in FORMATS if known.written.search(text)), None)


def read_reply(text: str, form: CallFormat | None, turn: int, cut: bool = False) -> Reply:
    """The reply with its calls.

    Their ids are made of the turn's number and theirs, so that they are the same in every run and sort in order. Nine
    letters and digits are what the strictest chat templates take.
    """
    calls: list[ToolCall] = []
    broken: list[BrokenCall] = []
    for number, raw in enumerate(islice(form.find(text), MOST_CALLS) if form else ()):
        assert form is not None
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
        arguments = _json(arguments)  # chat APIs write arguments as a text of JSON, and so do some models
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name[:64]} are no JSON object")
    return name, arguments


def _json(raw: str) -> Any:
    """The value of a JSON text. What JSON has no word for, as infinity, is none, even where Python would read it."""
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"the call is nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise ValueError(f"the call is no JSON: {error}") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise ValueError(f"the call is nested more than {DEEPEST} levels deep")


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits[:20])


def _named_object(raw: str) -> tuple[Any, Any]:
    """{"name": …, "arguments": {…}}, or "parameters" as Llama has it."""
    value = _json(raw)
    if not isinstance(value, dict):
        raise ValueError("the call is no JSON object")
    return value.get("name"), value.get("arguments", value.get("parameters", {}))


def _values(text: str, between: re.Pattern[str]) -> Iterator[str]:
    """The JSON values in a row, as texts; from the first that is none, all the rest."""
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
    """What follows a model's thoughts; nothing where they did not end."""
    _, ended, said = text.rpartition("</think>")
    return said if ended or not text.lstrip().startswith("<think>") else ""


def _tagged(text: str) -> Iterator[str]:
    """Hermes and Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>; the last may be cut off."""
    for part in _spoken(text).split("<tool_call>")[1:]:
        yield part.split("</tool_call>")[0].strip()


def _bare(text: str) -> Iterator[str]:
    """Llama 3: the whole turn is {"name": …, "parameters": {…}}, several behind each other; or behind a mark."""
    _, marked, rest = text.partition("<|python_tag|>")
    said = rest if marked else text.strip()
    if marked or (said.startswith("{") and '"name"' in said and (PARAMETERS.search(said) or said[-1] != "}")):
        yield from _values(said, BARE_BETWEEN)


def _listed(text: str) -> Iterator[str]:
    """Mistral: [TOOL_CALLS] [{"name": …, "arguments": {…}}, …]; newer ones [TOOL_CALLS]name[ARGS]{…}."""
    for part in text.split("[TOOL_CALLS]")[1:]:
        if part.lstrip().startswith(("[", "{")):
            yield from _values(part, LIST_BETWEEN)
        else:
            yield part.strip()


def _listed_call(raw: str) -> tuple[Any, Any]:
    name, split, arguments = raw.partition("[ARGS]")
    return (name.partition("[CALL_ID]")[0].strip(), _json(arguments)) if split else _named_object(raw)


def _lines(text: str) -> Iterator[str]:
    """The tiny model: a line `@name {"argument": value}` for every call."""
    return (found.group(1) for found in LINE.finditer(text))


def _line(raw: str) -> tuple[Any, Any]:
    name, _, arguments = raw.strip().partition(" ")
    return name, _json(arguments) if arguments.strip() else {}


PARAMETERS = re.compile(r'"(parameters|arguments)"\s*:')
LINE = re.compile(r"^@(.*)$", re.MULTILINE)
BARE_BETWEEN = re.compile(r"[\s;]*")
LIST_BETWEEN = re.compile(r"[\s,\[\]]*")

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
