"""Groupwise's own JSON, which can express everything: a document, or a design in its blocks. `schema()` is published.

Frozen dataclasses become plain values and back by their type hints; fields with their default are left out. Where a
field may be one of several classes, the key "is" names the class in lower case. Pydantic reads everything else here,
but in strict mode it has no union whose tag is not also a field of the class, so reading, writing and the schema of
dataclasses are done by hand. A value that does not fit is refused with its place: `document.graphs.0.nodes.3.join`.

python -m groupwise.workflows.files.json_file > docs/reference/workflow.schema.json
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from groupwise.errors import ConfigError
from groupwise.readers import load_json
from groupwise.workflows.blocks import Design
from groupwise.workflows.document import Document, document_of
from groupwise.workflows.files.formats import LIMITS, BadFile, CannotExpress, Format

TAG = "is"


def plain(value: Any, *, tagged: bool = False) -> Any:
    """The value as dicts, lists, texts and numbers; `tagged` adds the name of its class."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = _fields(type(value))
        kept = {name: (getattr(value, name), kind) for name, (kind, _) in fields.items()}
        # Fields with their default are left out, so files stay small and survive new fields.
        changed = {name: pair for name, pair in kept.items() if pair[0] != _default(fields[name][1])}
        body = {name: plain(inner, tagged=_is_union(kind)) for name, (inner, kind) in changed.items()}
        return {TAG: type(value).__name__.lower(), **body} if tagged else body
    if isinstance(value, frozenset):
        return [plain(inner) for inner in sorted(value)]
    return [plain(inner, tagged=tagged) for inner in value] if isinstance(value, tuple) else value


def parsed(kind: Any, value: Any, place: str = "") -> Any:
    """The value of type `kind` that `plain` wrote."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _one_of(arguments, value, place)
    if origin is Literal:
        _insist(value in arguments and type(value) is str, place, value, f"one of {', '.join(map(str, arguments))}")
        return value
    if origin in (tuple, frozenset):
        return _several(origin, arguments, value, place)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _model(kind, value, place)
    if dataclasses.is_dataclass(kind):
        return _instance(kind, value, place)
    return _scalar(kind, value, place)


def _one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) == 1:
        return parsed(others[0], value, place)
    by_name = {kind.__name__.lower(): kind for kind in others}
    _insist(isinstance(value, dict), place, value, "an object")
    name = value.get(TAG)
    _insist(isinstance(name, str) and name in by_name, _at(place, TAG), name, f"one of {', '.join(by_name)}")
    return _instance(by_name[name], {key: inner for key, inner in value.items() if key != TAG}, place)


def _several(origin: Any, arguments: tuple[Any, ...], value: Any, place: str) -> Any:
    _insist(isinstance(value, list), place, value, "a list")
    if (len(arguments) == 2 and arguments[1] is Ellipsis) or origin is frozenset:
        return origin(parsed(arguments[0], inner, _at(place, number)) for number, inner in enumerate(value))
    _insist(len(value) == len(arguments), place, value, f"a list of {len(arguments)}")
    pairs = zip(arguments, value, strict=True)
    return tuple(parsed(kind, inner, _at(place, number)) for number, (kind, inner) in enumerate(pairs))


def _model(kind: type[BaseModel], value: Any, place: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        spot = ".".join([part for part in (place, *map(str, first["loc"])) if part])
        raise ConfigError(f"{spot}: {str(first['msg']).removeprefix('Value error, ')}", field=spot) from error


def _instance(kind: Any, value: Any, place: str) -> Any:
    _insist(isinstance(value, dict), place, value, "an object")
    fields = _fields(kind)
    for name in value:
        if name not in fields:
            raise ConfigError(f"{_at(place, name)}: unknown field; known: {', '.join(fields)}", field=_at(place, name))
    for name, (_, field) in fields.items():
        if name not in value and _default(field) is dataclasses.MISSING:
            raise ConfigError(f"{_at(place, name)}: missing", field=_at(place, name))
    # Checks of the dataclass itself (its __post_init__) run here, and get the place in front.
    known = {name: parsed(fields[name][0], inner, _at(place, name)) for name, inner in value.items()}
    try:
        return kind(**known)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}" if place else error.message, field=place) from error


def _scalar(kind: Any, value: Any, place: str) -> Any:
    wanted = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}[kind]
    # JSON does not distinguish 1 and 1.0; everything else is strict.
    if kind is float and type(value) is int:
        return float(value)
    _insist(type(value) is kind, place, value, wanted)
    return value


def _insist(holds: bool, place: str, value: Any, wanted: str) -> None:
    if not holds:
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}…"
        raise ConfigError(f"{place + ': ' if place else ''}{shown} must be {wanted}", field=place)


def _at(place: str, name: str | int) -> str:
    return f"{place}.{name}" if place else str(name)


def _is_union(kind: Any) -> bool:
    """Whether a value of this type (or each of several) needs the name of its class."""
    if get_origin(kind) is tuple:
        return _is_union(get_args(kind)[0])
    return get_origin(kind) in (UnionType, Union) and len(set(get_args(kind)) - {NoneType}) > 1


@cache
def _fields(kind: Any) -> Mapping[str, tuple[Any, dataclasses.Field[Any]]]:
    """The fields that count in comparisons, with their types; the others can be computed or forgotten."""
    hints = get_type_hints(kind)
    return {f.name: (hints[f.name], f) for f in dataclasses.fields(kind) if f.init and f.compare}


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        if _is_union(kind):
            return _tagged(arguments, definitions)
        return {"anyOf": [_schema(k, definitions) for k in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is frozenset or (origin is tuple and arguments[-1] is Ellipsis):
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(one, definitions) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        own = kind.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= own.pop("$defs", {})
        definitions[kind.__name__] = own
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if dataclasses.is_dataclass(kind):
        name = _definition_name(kind)
        if name not in definitions:
            definitions[name] = {}
            definitions[name] |= _object(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}[kind]}


def _definition_name(kind: Any) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def _tagged(kinds: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    """One of several classes, chosen by name: a validator then looks only at that one."""
    cases = []
    for kind in kinds:
        own, tag = f"{_definition_name(kind)} by name", {TAG: {"const": kind.__name__.lower()}}
        if own not in definitions:
            definitions[own] = {}
            body = _object(kind, definitions)
            definitions[own] |= {**body, "properties": {**tag, **body["properties"]}}
        # if/then instead of oneOf: an error then concerns the named class, not all of them.
        cases.append({"if": {"properties": tag}, "then": {"$ref": f"#/$defs/{own.replace(' ', '%20')}"}})
    names = [kind.__name__.lower() for kind in kinds]
    return {"type": "object", "properties": {TAG: {"enum": names}}, "required": [TAG], "allOf": cases}


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    fields = _fields(kind)
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {name: _schema(hint, definitions) for name, (hint, _) in fields.items()},
        "required": [name for name, (_, field) in fields.items() if _default(field) is dataclasses.MISSING],
        "additionalProperties": False,
    }


VERSION = 1
KINDS: dict[str, type[Document] | type[Design]] = {"document": Document, "design": Design}


def read(content: bytes) -> Document:
    found = _read(content)
    return found if isinstance(found, Document) else document_of(found)


def read_design(content: bytes) -> Design:
    found = _read(content)
    if isinstance(found, Document):
        raise BadFile("the file contains a document, not a design", hint="Use block_form.lift to get its design.")
    return found


def _read(content: bytes) -> Document | Design:
    value = load_json(content, LIMITS)
    if not isinstance(value, dict) or "groupwise" not in value:
        raise BadFile("not a Groupwise workflow: the key 'groupwise' is missing")
    # The head is checked first: "version 2" is a better message than a list of unknown fields.
    kind, version = value.get("groupwise"), value.get("version")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadFile(f"groupwise: {kind!r} must be one of {', '.join(KINDS)}")
    if version != VERSION:
        raise BadFile(f"version: {version!r} must be {VERSION}")
    unknown = set(value) - {"groupwise", "version", kind}
    if unknown:
        raise BadFile(f"{min(unknown)}: unknown field; known: groupwise, version, {kind}")
    try:
        return cast(Document | Design, parsed(KINDS[kind], value.get(kind), kind))
    except RecursionError as error:
        raise BadFile("nested too deeply") from error
    except ConfigError as error:
        raise BadFile(error.message, hint=error.hint) from error


def write(workflow: Document | Design) -> bytes:
    kind = "document" if isinstance(workflow, Document) else "design"
    value = {"groupwise": kind, "version": VERSION, kind: plain(workflow)}
    try:
        return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise CannotExpress(f"{workflow.name!r} has a number that is not finite, which JSON cannot express") from error


def schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    whole = [
        {
            "type": "object",
            "properties": {
                "groupwise": {"const": name}, "version": {"const": VERSION}, name: _schema(kind, definitions),
            },
            "required": ["groupwise", "version", name],
            "additionalProperties": False,
        }
        for name, kind in KINDS.items()
    ]  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": whole, "$defs": definitions}


FORMAT = Format("json", "Groupwise JSON", (".json",), lambda head: b'"groupwise"' in head, read, write)


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
