"""The API's own description: how to show a key, and an example of every schema."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from groupwise.service import schemas
from groupwise.service.app import create_app
from groupwise.service.settings import ServiceSettings

DOCUMENT: dict[str, Any] = create_app(ServiceSettings()).openapi()
MODELS = {
    name: model for name, model in vars(schemas).items()
    if isinstance(model, type) and issubclass(model, BaseModel) and name in DOCUMENT["components"]["schemas"]
}  # fmt: skip


def test_it_says_how_to_show_a_key() -> None:
    scheme = DOCUMENT["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert {"key": []} in DOCUMENT["security"]


def test_every_schema_has_an_example() -> None:
    assert [name for name, schema in DOCUMENT["components"]["schemas"].items() if not schema.get("examples")] == []


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_example_is_valid(name: str) -> None:
    MODELS[name].model_validate(DOCUMENT["components"]["schemas"][name]["examples"][0])
