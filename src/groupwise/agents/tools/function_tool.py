"""Tools: a typed Python function, and the JSON schema that shows a model how to call it.

    @tool
    def weather(city: str, days: int = 1) -> str:
        \"""What the weather will be.

        Args:
          city: where, by its English name.
        \"""

Pydantic validates arguments strictly against the annotations, as JSON. A method is a tool of the object it is taken
from, so an environment's tools can work on its own state. `annotation` and `fields` go the other way, from a JSON
schema to annotations, for tools that are described by a schema.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self, get_type_hints, overload

import pydantic
import pydantic_core
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from groupwise.errors import ConfigError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
ENTRY = re.compile(r"(\w+)(?:\s*\(.*?\))?:\s+(\S.*)$")
make_typed_dict: Any = TypedDict  # called with fields known only at run time, which type checkers reject
CLOSED = pydantic.ConfigDict(extra="forbid")


class BadArguments(ValueError):
    """Arguments that do not fit a tool's parameters; the message is written for the model."""


class ToolError(Exception):
    """A tool raises this to tell the model something: the model sees only the message."""


class ToolUnavailable(ToolError):
    """What is behind a tool failed, not the call: its server died, or its answer cannot be used."""


class Arguments(Protocol):
    """A tool's parameters: `schema` describes them to a model, `read` validates arguments."""

    @property
    def schema(self) -> Mapping[str, Any]: ...
    def read(self, given: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call. `run` gets what `arguments.read` returns, and may be asynchronous.

    `timeout` in seconds replaces the toolbox's own. `unbound` marks a method that is not bound to an object yet.
    """

    name: str
    description: str
    arguments: Arguments = field(repr=False)
    run: Callable[..., Any] = field(repr=False)
    timeout: float | None = None
    unbound: bool = False

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            hint = "Use a letter or _, then up to 63 letters, digits, _ or -, for example with name=…."
            raise ConfigError(f"{self.name!r} is not a valid name for a tool", hint=hint)
        if self.timeout is not None and not self.timeout > 0:
            message = f"the tool {self.name} has a time limit of {self.timeout!r} s"
            raise ConfigError(message, hint="It must be greater than 0.")

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, name: str = "", timeout: float | None = None) -> Self:
        """Make a tool of a function whose parameters are all annotated; its docstring describes them."""
        name = name or getattr(function, "__name__", "")
        method, parameters = _parameters(name, function)
        words, described = _docstring(function)
        unknown = next((entry for entry in described if entry not in {p.name for p in parameters}), None)
        if unknown is not None:
            message = f"the docstring of the tool {name} describes {unknown!r}, which is not one of its parameters"
            raise ConfigError(message, hint=f"Its parameters are {', '.join(p.name for p in parameters) or 'none'}.")
        return cls(
            name, words, TypedArguments.of_function(name, function, parameters, described), function, timeout, method
        )

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function itself, as if it were not a tool."""
        return self.run(*args, **named)

    def __get__(self, owner: Any, kind: type | None = None) -> Self:
        """Bind a method to the object it is taken from."""
        if owner is None or not self.unbound:
            return self
        return replace(self, run=partial(self.run, owner), unbound=False)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the form that chat templates and chat APIs expect."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.arguments.schema)}
        return {"type": "function", "function": function}

    def close(self) -> None:
        """Stop what is behind the tool, if anything is."""

    @property
    def blocking(self) -> bool:
        """Whether it is an ordinary function, which must run in a thread to block nobody."""
        return not inspect.iscoroutinefunction(inspect.unwrap(_innermost(self.run)))


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(*, name: str = "", timeout: float | None = None) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, *, name: str = "", timeout: float | None = None) -> Any:
    """Make a typed function or method a `Tool`. Use it bare, or with a name or a time limit."""
    if function is None:
        return partial(Tool.from_function, name=name, timeout=timeout)
    return Tool.from_function(function)


class TypedArguments:
    """Parameters given by annotations; `schema` replaces the JSON schema that they would give."""

    def __init__(self, tool: str, fields: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> None:
        try:
            kind = make_typed_dict("Arguments", fields)
            self._adapter = pydantic.TypeAdapter[dict[str, Any]](pydantic.with_config(CLOSED)(kind))
            self.schema = schema or plain_schema(self._adapter.json_schema())
        except (pydantic.errors.PydanticUserError, pydantic_core.SchemaError, TypeError) as error:
            raise _no_json(tool, error) from error

    @classmethod
    def of_function(
        cls, tool: str, function: Callable[..., Any], parameters: list[inspect.Parameter], described: Mapping[str, str]
    ) -> Self:
        try:
            hints = get_type_hints(_innermost(function), include_extras=True)
        except NameError as error:
            raise _no_json(tool, error) from error
        return cls(tool, {p.name: _field(p, hints[p.name], described.get(p.name)) for p in parameters})

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments strictly as JSON and return them as the function takes them."""
        # Validated as JSON rather than as Python objects: a date may be a string, but "3" is not an int.
        written = json.dumps(given, ensure_ascii=False).encode("utf8", "replace")
        try:
            return self._adapter.validate_json(written, strict=True)
        except pydantic.ValidationError as error:
            raise BadArguments(
                "; ".join(_wrong_arguments(detail) for detail in error.errors(include_url=False)[:5])
            ) from None


def _no_json(tool: str, error: Exception) -> ConfigError:
    message = f"the tool {tool} has a parameter of a type that JSON cannot represent: {str(error).splitlines()[0]}"
    hint = "Annotate with str, int, float, bool, list, dict, Literal, dataclasses or pydantic models."
    return ConfigError(message, hint=hint)


def _wrong_arguments(detail: Any) -> str:
    place = ".".join(map(str, detail["loc"])) or "the arguments"
    said = {"missing": "is required", "extra_forbidden": "is not a parameter"}.get(detail["type"])
    if said:
        return f"{place} {said}"
    got = json.dumps(detail["input"], default=repr)
    return f"{place}: {detail['msg'][:1].lower()}{detail['msg'][1:]}, not {shortened(got, 60)}"


def _field(parameter: inspect.Parameter, hint: Any, described: str | None) -> Any:
    extra: dict[str, Any] = {}
    if parameter.default is not inspect.Parameter.empty:
        try:
            extra["default"] = pydantic.TypeAdapter(hint).dump_python(parameter.default, mode="json")
        except (ValueError, pydantic.errors.PydanticUserError):
            extra = {}  # the function knows its default; the model does not need it
    note = pydantic.Field(description=described, json_schema_extra=extra)
    marked = Annotated[hint, note]
    return marked if parameter.default is inspect.Parameter.empty else NotRequired[marked]


def _parameters(name: str, function: Callable[..., Any]) -> tuple[bool, list[inspect.Parameter]]:
    """Return the parameters, and whether the function is an unbound method."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"the tool {name} is a generator function", hint="Return the results in a list.")
    found = list(inspect.signature(function).parameters.values())
    method = bool(found) and found[0].name == "self" and found[0].annotation is inspect.Parameter.empty
    for parameter in found[method:]:
        bare = parameter.replace(annotation=parameter.empty)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            message = f"the tool {name} has the parameter {bare}, but a model passes every argument by name"
            raise ConfigError(message, hint="Write out every parameter; one may be a list or a dict.")
        if parameter.annotation is parameter.empty:
            message = f"the parameter {parameter.name!r} of the tool {name} has no type"
            raise ConfigError(message, hint=f"Annotate it, for example {parameter.name}: str.")
    return method, found[method:]


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's first line, and the description of each parameter in its `Args:`."""
    lines = (inspect.getdoc(_innermost(function)) or "").splitlines()
    described: dict[str, str] = {}
    inside, depth, last = False, 0, ""
    for line in lines[1:]:
        indent = len(line) - len(line.lstrip())
        if section := SECTION.match(line):
            inside, depth = section[1] in ("Args", "Arguments", "Parameters"), 0
        elif inside and line.strip():
            depth = depth or indent
            entry = ENTRY.match(line.strip())
            if entry and indent == depth:
                last = entry[1]
                described[last] = entry[2]
            elif last:
                described[last] += " " + line.strip()
    return (lines[0] if lines else ""), described


def _innermost(function: Any) -> Any:
    """Unwrap partial applications and static methods; of a callable object, return its method."""
    while isinstance(function, partial | staticmethod):
        function = function.func if isinstance(function, partial) else function.__func__
    return function if inspect.isroutine(function) else type(function).__call__


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without titles and with definitions inlined, except recursive ones."""
    definitions = schema.pop("$defs", {})
    schema.pop("additionalProperties", None)

    def clean(node: Any, inside: tuple[str, ...] = ()) -> Any:
        if isinstance(node, list):
            return [clean(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        # `inside` names the definitions being expanded; one that refers to itself stays a reference.
        if name and name not in inside:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return clean({**definitions[name], **rest}, (*inside, name))
        return {key: _properties(value, inside) if key == "properties" else clean(value, inside)
                for key, value in node.items() if key != "title"}  # fmt: skip

    def _properties(named: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        return {name: clean(value, inside) for name, value in named.items()}

    cleaned: dict[str, Any] = clean(schema)
    if "#/$defs/" in json.dumps(cleaned):
        cleaned["$defs"] = {name: clean(value, (name,)) for name, value in definitions.items()}
    return cleaned


def shortened(text: str, limit: int) -> str:
    """Cut the text to a limit and say how much was left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


NOTES = {"title", "description", "default", "examples", "format", "$schema", "additionalProperties"}
NUMBER = {
    "minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
}  # fmt: skip
LIMITS: dict[Any, dict[str, str]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"},
    "integer": NUMBER,
    "number": NUMBER,
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
KNOWN = {*NOTES, "type", "enum", "const", "items", "properties", "required", "anyOf", "oneOf"}


def annotation(schema: Mapping[str, Any], place: str = "the schema") -> Any:
    """Return the Python annotation for a JSON schema; refuse keywords that could not be enforced."""
    if not isinstance(schema, Mapping):
        raise _wrong_schema(place, f"is {schema!r:.60}, not an object")
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    limits = {keyword for kind in types for keyword in LIMITS.get(kind, ())}
    unknown = sorted(set(schema) - KNOWN - limits)
    if unknown:
        raise _wrong_schema(place, f"has the keyword {unknown[0]!r}, which is not supported here")
    return reduce(or_, [_limited({**schema, "type": kind}, place) for kind in types])


def _limited(schema: Mapping[str, Any], place: str) -> Any:
    names = LIMITS.get(schema["type"], {})
    limits: dict[str, Any] = {names[key]: value for key, value in schema.items() if key in names}
    kind = _kind(schema, place)
    return Annotated[kind, pydantic.Field(**limits)] if limits else kind


def fields(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The properties of an object, each required or not."""
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _wrong_schema(place, f"has the properties {properties!r:.60}, not an object")
    strange = [name for name in required if name not in properties]
    if strange:
        raise _wrong_schema(place, f"requires {strange[0]!r}, which is not one of its properties")
    found = {name: annotation(inner, f"{place}.{name}") for name, inner in properties.items()}
    return {name: kind if name in required else NotRequired[kind] for name, kind in found.items()}


def _kind(schema: Mapping[str, Any], place: str) -> Any:
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        if not values or not all(isinstance(value, str | int | None) for value in values):
            problem = f"has the values {values!r:.60}; allowed are strings, whole numbers, true, false and null"
            raise _wrong_schema(place, problem)
        return Literal[tuple(values)]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return reduce(or_, [annotation(inner, place) for inner in schema[choice]])
    kind = schema["type"]
    if kind == "array":
        return list[annotation(schema.get("items", {}), f"{place}[]")]  # type: ignore[misc]
    if kind == "object" and "properties" in schema:
        return pydantic.with_config(CLOSED)(make_typed_dict("Object", fields(schema, place)))
    if kind == "object":
        return dict[str, Any]
    if kind is None:
        return Any
    if kind not in SCALARS:
        raise _wrong_schema(place, f"has the type {kind!r}; types are {', '.join([*SCALARS, 'array', 'object'])}")
    return SCALARS[kind]


def _wrong_schema(place: str, problem: str) -> ConfigError:
    return ConfigError(f"{place} {problem}", hint="Describe parameters with type, enum, items, properties and limits.")
