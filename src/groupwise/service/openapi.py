"""The OpenAPI document: FastAPI's, with how to show a key and an example for every schema."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key (`gw_…`, see `groupwise keys add`), or the token that the service prints when it starts. "
        "Without keys, requests from this machine need none.",
    }
}
# By the name of a field, so that examples read like answers; everything else follows from its type.
WORDS: Mapping[str, Any] = {
    "run": "cart-7",
    "runs": ["cart-7"],
    "id": "cart-7",
    "job": "a70f03aaa79a43f1",
    "product": "control",
    "environment": "CartPole-v1",
    "state": "finished",
    "metric": "eval/reward_mean",
    "owner": "ann",
    "title": "Baseline",
    "tags": ["baseline"],
    "tag": "baseline",
    "notes": "Seed study.",
    "code": "run_not_found",
    "message": "there is no run 'cart-8'",
    "hint": "GET /api/runs lists them.",
    "field": "run",
    "step": 30,
    "steps": [10, 20, 30],
    "values": [21.0, 184.5, 500.0],
    "total": 30,
    "updated": 1795040000.0,
    "created": 1795030000.0,
    "metrics": {"reward/mean": 421.5, "eval/reward_mean": 500.0},
    "names": ["reward/mean"],
    "unit": "share",
    "better": "higher",
    "trajectory_id": "g7/m3",
    "group_id": "g7",
    "task_id": "t7",
    "text": "42",
    "prompt": "What is 17 + 25?",
    "tokens": [],
    "workflow": '{"kind": "task", "name": "pour"}',
    "requirements": "name: tea",
    "model": "tiny",
    "conversation_id": "3f9a2c",
    "prompts": ["Hello"],
    "format": "bpmn",
    "suffix": ".bpmn",
    "to": "yawl",
    "svg": "<svg/>",
    "role": "policy",
    "tier": "simulation",
    "response": "Hello! How can I help?",
    "preview": "Hello",
    "kind": "run",
    "order": "stop-1",
    "do": "archive",
    "scale_factor": 2.0,
    "strategies": ["customer_service"],
    "type": "step",
    "config": {"task": {"environment": "CartPole-v1"}},
}
# Requests whose fields exclude each other.
WHOLE: Mapping[str, Any] = {
    "TrainRequest": {"config": {"task": {"environment": "CartPole-v1"}}, "name": "cart-7"},
    "ChatRequest": {"message": "I need help with my order", "strategy": "customer_service"},
    "ScaleRequest": {"workers": 4},
    "RunOrder": {"runs": ["cart-7", "cart-8"], "do": "tag", "tag": "baseline"},
    "JobView": {"state": "running"},
}


def install(app: FastAPI) -> None:
    """Have the app answer with the completed document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes,
                description="Errors have one shape, `Refusal`. Lists come in pages: `from`, `limit`, `total`, `next`.",
            )  # fmt: skip
            made["components"]["securitySchemes"] = SECURITY
            made["security"] = [{"key": []}, {}]
            schemas = made["components"]["schemas"]
            for name, schema in schemas.items():
                schema.setdefault("examples", [example(name, schema, schemas)])
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def example(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A value that fits the schema."""
    made = _value("", schema, schemas)
    if name in WHOLE and isinstance(made, dict):
        whole = WHOLE[name]
        return {**made, **whole} if name == "JobView" else whole
    return made


def _value(field: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _value(field, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "enum" in schema:
        return WORDS[field] if WORDS.get(field) in schema["enum"] else schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _value(field, schema[choice][0], schemas)
    known = WORDS.get(field)
    kind = schema.get("type")
    if kind == "object":
        if "properties" in schema:
            return {name: _value(name, inner, schemas) for name, inner in schema["properties"].items()}
        return known if isinstance(known, dict) else {}
    if kind == "array":
        plain = schema.get("items", {}).get("type") in ("string", "integer", "number")
        return known if isinstance(known, list) and plain else [_value(field, schema.get("items", {}), schemas)]
    fallback: dict[str, Any] = {"string": "…", "integer": 1, "number": 0.5, "boolean": True}
    fits: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    if kind in fits and known is not None and isinstance(known, fits[kind]):
        return known
    if kind == "integer" or kind == "number":
        return max(fallback[kind], schema.get("minimum", 0))
    return schema.get("default") or fallback.get(str(kind), "…")
