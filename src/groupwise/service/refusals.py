"""Every error in one format, with the right HTTP status."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from groupwise.errors import ContractError, GroupwiseError, MissingExtra, StorageError
from groupwise.service.schemas import Refusal


class InvalidRequest(ContractError):
    """A request that OpenAI's clients must see under OpenAI's own code."""

    code = "invalid_request_error"


logger = logging.getLogger(__name__)

STATUS = {
    "job_not_found": 404, "run_not_found": 404, "conversation_not_found": 404, "model_not_found": 404,
    "design_not_found": 404, "group_not_found": 404, "trajectory_not_found": 404,
    "metric_not_found": 404, "report_not_found": 404, "not_found": 404,
    "job_state": 409, "run_exists": 409, "idempotency_conflict": 409, "conversation_busy": 409,
    "conversation_over": 409, "conversation_exists": 409, "run_locked": 409,
    "invalid_request_error": 400, "unauthorised": 401,
    "forbidden": 403, "cross_site": 403, "too_large": 413, "too_slow": 408, "too_many": 429, "quota": 429,
    "internal": 500,
    "queue_full": 503, "database": 503, "generation_lost": 503, "busy": 503, "took_too_long": 504, "storage": 507,
}  # fmt: skip
MEANING = {
    400: "The request cannot be read.",
    401: "A key is needed, or the key sent is unknown.",
    403: "The key's scope does not cover this, or the request comes from another site.",
    404: "Not found.",
    405: "Method not allowed.",
    408: "The request arrived too slowly.",
    409: "The current state does not allow this.",
    413: "The request is too large.",
    422: "A value has the wrong type or is out of range.",
    429: "Too many requests (`Retry-After` says when to try again), or a quota is used up.",
    500: "An error in the service.",
    503: "Something the service needs is unavailable; try again.",
    504: "It took too long and was stopped.",
    507: "The disk is full or failing.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors a route may return, for the OpenAPI document."""
    always = (400, 401, 403, 408, 413, 422, 429, 500, 503, 507)
    return {status: {"model": Refusal, "description": MEANING[status]} for status in sorted({*always, *statuses})}


def status_of(error: GroupwiseError) -> int:
    if error.code in STATUS:
        return STATUS[error.code]
    if isinstance(error, MissingExtra):
        return 503
    # Everything else the caller can mend by changing the request.
    return 507 if isinstance(error, StorageError) else 422


def refusal(status: int, error: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    # Quoted input may contain lone surrogates, which JSON can express and UTF-8 cannot.
    content = json.dumps(error, ensure_ascii=False).encode("utf8", "replace")
    return Response(content, status, dict(headers or {}), "application/json")


def shape(code: str, message: str, hint: str = "", field: str = "") -> dict[str, dict[str, str]]:
    """An error without a class of its own, as `GroupwiseError.as_dict` has it."""
    return {"error": {"code": code, "message": message, "hint": hint, "field": field}}


def install(app: FastAPI) -> None:
    """Return every error of the app in the one format."""

    @app.exception_handler(GroupwiseError)
    async def ours(request: Request, error: GroupwiseError) -> Response:
        return refusal(status_of(error), error.as_dict())

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path", "header"))
        if first["type"] == "json_invalid":
            return refusal(400, shape("bad_json", f"the body is not valid JSON: {first['ctx']['error']}"))
        given = "" if first["type"] == "missing" else f"{field} = {_brief(first.get('input'))}: " if field else ""
        message = str(first["msg"]).removeprefix("Value error, ")
        more = len(error.errors()) - 1
        others = "value is" if more == 1 else "values are"
        hint = f"{more} more {others} wrong too." if more else "See /docs for what the route expects."
        return refusal(422, shape("invalid", f"{given}{message}", hint, field))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, GroupwiseError):  # raised while reading the body
            return await ours(request, error.__cause__)
        codes = {404: "not_found", 405: "not_allowed", 400: "bad_request"}
        said = f"{request.method} {request.url.path} does not exist" if error.status_code == 404 else str(error.detail)
        body = shape(codes.get(error.status_code, "refused"), said, "See /docs for a list of routes.")
        return refusal(error.status_code, body, error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        hint = "The traceback is in the service's log; please report it."
        return refusal(500, shape("internal", f"internal error: {type(error).__name__}", hint))


def _brief(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
