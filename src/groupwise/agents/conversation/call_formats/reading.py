"""A model's text → its reply and the calls in it. A `CallFormat` says how one family of models writes calls.

The text itself is never changed: calls are read out of it, and a malformed call is reported back to the model. Reading
takes time linear in the length of the text, whatever is in it.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from groupwise.agents.environments.contract import BrokenCall, Reply, ToolCall
from groupwise.thoughts import ANY, SplitText

DEEPEST = 64  # levels of nesting inside a call's arguments
MOST_CALLS = 1000  # in one turn; no model means to make more, and call ids have three digits

Properties: TypeAlias = Mapping[str, Any]  # the JSON schema of each parameter of a tool
Schemas: TypeAlias = Mapping[str, Properties]  # of each tool


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes calls.

    `find` yields the raw text of each call, `read` returns the name and arguments of one, and `write` writes calls for
    templates that cannot. `read` raises ValueError for a malformed call; it gets the schemas of the tools, for formats
    that write every value as plain text. A call begins with one of `begins`; a newline there also matches the start of
    the text. `marks` delimit calls and results, so they are broken up when they occur inside a result.
    """

    name: str
    find: Callable[[str], Iterator[str]]
    read: Callable[[str, Schemas], tuple[Any, Any]]
    write: Callable[[Sequence[ToolCall]], str]
    begins: tuple[str, ...]
    marks: tuple[str, ...] = ()


def read_reply(
    text: str | SplitText,
    form: CallFormat | None,
    turn: int,
    cut: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Reply:
    """Split a model's text into thought, answer and calls; calls inside a thought are none.

    `tools` are the schemas that the model was shown.
    """
    said = ANY.split(text) if isinstance(text, str) else text
    calls: list[ToolCall] = []
    broken: list[BrokenCall] = []
    schemas = schemas_of(tools)
    for number, raw in enumerate(islice(form.find(said.spoken), MOST_CALLS) if form else ()):
        assert form is not None
        # Reproducible and sortable; nine letters and digits are what the strictest chat templates accept as an id.
        identity = f"t{turn:04}n{number:03}"
        try:
            calls.append(ToolCall(identity, *_checked(*form.read(raw, schemas))))
        except ValueError as error:
            broken.append(BrokenCall(raw, str(error), identity))
    return Reply(said.content, tuple(calls), tuple(broken), cut, said.reasoning)


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> Schemas:
    """Return the parameters of each tool by its name; a schema of another shape has none."""
    found: dict[str, Properties] = {}
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters") if isinstance(function, Mapping) else None
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        if isinstance(properties, Mapping):
            found[str(function.get("name"))] = properties
    return found


def _checked(name: Any, arguments: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(name, str) or not name:
        raise ValueError('the call has no "name"')
    if isinstance(arguments, str):
        arguments = strict_json(arguments)  # chat APIs send arguments as JSON in a string, and so do some models
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name[:64]} are not a JSON object")
    return name, arguments


def strict_json(raw: str) -> Any:
    """Parse strict JSON: NaN and infinity are refused, although Python's parser accepts them."""
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_float=finite)
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


def finite(digits: str) -> float:
    """Return the number, or refuse one that is too large for a float."""
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits[:20])
