"""A typed function is a tool: what the model is told of it, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest

from groupwise.agents.tools.function_tool import BadArguments, Tool, tool
from groupwise.errors import ConfigError


@dataclass
class Address:
    street: str
    title: str = "home"


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Item(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(1, ge=1)


class Tree(pydantic.BaseModel):
    value: int
    children: list[Tree] = []


@tool
def order(
    item: Item, to: Address, size: Size = Size.SMALL, gift: bool = False, note: Optional[str] = None,  # noqa: UP045
    unit: Literal["kg", "lb"] = "kg", tags: list[str] | None = None, price: Annotated[float, "euros"] = 0.5,
) -> str:  # fmt: skip
    """Order an item.

    It is sent the same day.

    Args:
      item: what, by
        its number.
      to (Address): where: street and title.
      gift: whether to wrap it.

    Returns:
      nothing: of note.
    """
    return f"{item.count} {item.sku} to {to.title}, {size.value}, {gift}, {note}, {unit}, {tags}, {price}"


def test_the_model_is_told_name_purpose_and_every_parameter() -> None:
    function = order.schema["function"]
    assert order.schema["type"] == "function"
    assert (function["name"], function["description"]) == ("order", "Order an item.")
    assert function["parameters"] == {
        "type": "object",
        "required": ["item", "to"],
        "properties": {
            "item": {
                "type": "object",
                "description": "what, by its number.",
                "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1, "default": 1}},
                "required": ["sku"],
            },
            "to": {
                "type": "object",
                "description": "where: street and title.",
                "properties": {"street": {"type": "string"}, "title": {"type": "string", "default": "home"}},
                "required": ["street"],
                "additionalProperties": False,
            },
            "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
            "gift": {"type": "boolean", "description": "whether to wrap it.", "default": False},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "unit": {"type": "string", "enum": ["kg", "lb"], "default": "kg"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "price": {"type": "number", "default": 0.5},
        },
    }


def test_arguments_reach_the_function_as_it_has_them() -> None:
    given = {"item": {"sku": "A1", "count": 2}, "to": {"street": "s"}, "size": "large", "tags": ["x"], "price": 3}
    assert order(**order.arguments.read(given)) == "2 A1 to home, large, False, None, kg, ['x'], 3.0"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "item is required; to is required"),
        ({"item": {"sku": "A"}}, "to is required"),
        ({"item": {"sku": 3}, "to": {"street": ""}}, "item.sku: input should be a valid string, not 3"),
        ({"item": {"sku": "A", "count": "2"}, "to": {"street": ""}}, "item.count: input should be a valid integer"),
        ({"item": {"sku": "A", "count": 0}, "to": {"street": ""}}, "greater than or equal to 1, not 0"),
        ({"item": {"sku": "A"}, "to": {"street": ""}, "gift": 1}, "gift: input should be a valid boolean, not 1"),
        ({"item": {"sku": "A"}, "to": {"street": ""}, "unit": "t"}, "unit: input should be 'kg' or 'lb', not \"t\""),
        ({"item": {"sku": "A"}, "to": {"street": ""}, "colour": 1}, "colour is not a parameter"),
        ({"item": "x" * 500, "to": {"street": ""}}, "more characters"),
    ],
)
def test_wrong_arguments_are_told_by_place_and_value(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArguments) as error:
        order.arguments.read(given)
    assert said in str(error.value)


def test_odd_values_are_read_or_refused_but_break_nothing() -> None:
    @tool
    def take(number: int = 0, share: float = 0.0, text: str = "") -> None: ...

    assert take.arguments.read({"number": 10**400}) == {"number": 10**400}
    assert take.arguments.read({"text": "a\ud800b\x00"}) == {"text": "a?b\x00"}
    with pytest.raises(BadArguments, match="number"):
        take.arguments.read({"number": float("nan")})


def test_names_that_pydantic_has_itself_can_be_parameters() -> None:
    @tool
    def take(copy: int, json: str, model_config: bool, _private: int) -> None: ...

    given = {"copy": 1, "json": "j", "model_config": True, "_private": 2}
    assert take.arguments.read(given) == given


def test_a_type_that_holds_itself_keeps_its_definition() -> None:
    @tool
    def plant(tree: Tree) -> int:
        return len(tree.children)

    assert plant.arguments.schema["properties"]["tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in plant.arguments.schema["$defs"]
    assert plant(**plant.arguments.read({"tree": {"value": 1, "children": [{"value": 2}]}})) == 1


def test_a_method_is_a_tool_of_its_object() -> None:
    class Till:
        def __init__(self) -> None:
            self.sum = 0

        @tool
        def add(self, coins: int) -> int:
            """Put coins in."""
            self.sum += coins
            return self.sum

    first, second = Till(), Till()
    assert (first.add(coins=2), second.add(coins=5), first.add(1)) == (2, 5, 3)
    assert list(first.add.schema["function"]["parameters"]["properties"]) == ["coins"]


def test_a_static_method_is_a_tool_too() -> None:
    class Till:
        @tool
        @staticmethod
        def change(coins: int) -> int:
            return coins // 2

    assert Till.change(coins=4) == Till().change(coins=4) == 2
    assert list(Till.change.arguments.schema["properties"]) == ["coins"]


def test_what_runs_in_a_thread_is_told_from_what_is_awaited() -> None:
    async def slow(x: int = 0) -> int:
        return x

    class Caller:
        async def __call__(self, x: int) -> int:
            return x

    assert not Tool.from_function(slow).blocking
    assert not Tool.from_function(partial(slow), name="half").blocking
    assert not Tool.from_function(Caller(), name="caller").blocking
    assert order.blocking
    assert asyncio.run(Tool.from_function(slow)(x=3)) == 3


def untyped(city) -> None: ...  # type: ignore[no-untyped-def]
def starred(*cities: str) -> None: ...
def named(**cities: str) -> None: ...
def positional(city: str, /) -> None: ...
def unknown(city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def opaque(thing: Callable[[], int]) -> None: ...
def generator(city: str) -> Any:
    yield city


def misdescribed(city: str) -> None:
    """Look.

    Args:
      town: where.
    """


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (untyped, "the parameter 'city' of the tool untyped has no type"),
        (starred, r"the tool starred has the parameter \*cities, but a model"),
        (named, r"the tool named has the parameter \*\*cities, but a model"),
        (positional, "the tool positional has the parameter city, but a model"),
        (unknown, "name 'Nowhere' is not defined"),
        (opaque, "the tool opaque has a parameter of a type that JSON cannot represent"),
        (generator, "is a generator"),
        (misdescribed, "describes 'town', which is not one of its parameters"),
        (lambda: None, "'<lambda>' is not a valid name"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_a_reason(function: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        Tool.from_function(function)
    assert error.value.hint


def test_a_time_limit_is_more_than_nothing() -> None:
    with pytest.raises(ConfigError, match="time limit of 0"):
        tool(timeout=0)(order.run)
