"""OpenAI's chat API: its clients can talk to trained policies unchanged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Body, Request
from fastapi.responses import JSONResponse, StreamingResponse

from groupwise.errors import GroupwiseError
from groupwise.service.refusals import InvalidRequest, refusals
from groupwise.service.routes.chat import EVENT_STREAM, STREAM
from groupwise.service.state import Asker, Shared

router = APIRouter(tags=["openai"])

EXAMPLE = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}


@router.post("/v1/chat/completions", responses={200: {"content": {**OBJECT, **STREAM["content"]}}, **refusals(404)})
async def complete(
    request: Request,
    parts: Shared,
    who: Asker,
    body: dict[str, Any] = Body(examples=[EXAMPLE]),  # noqa: B008
) -> Any:
    """A chat completion, whole or streamed. Unsupported parameters are refused by name, never silently ignored."""
    name = body.get("model")
    if not isinstance(name, str):
        raise InvalidRequest(f"model must be a string, not {name!r:.80}", field="model")
    asked = {"model": parts.chat_models.find(name), "body": (await request.body()).decode("utf8", "replace")}
    events = parts.chat_models.process.ask("complete", asked)
    first = await anext(events)
    if first["object"] == "chat.completion.chunk":
        return StreamingResponse(_chunks(first, events), headers=EVENT_STREAM, media_type="text/event-stream")
    async for _ in events:
        pass
    return JSONResponse(first)


@router.get("/v1/models", responses={200: {"content": OBJECT}, **refusals()})
def models(parts: Shared) -> Any:
    """The base model and every trained language run."""
    found = [
        {"id": model["id"], "object": "model", "created": 0, "owned_by": "groupwise"}
        for model in parts.chat_models.models()
    ]
    return JSONResponse({"object": "list", "data": found})


@router.get("/v1/models/{name}", responses={200: {"content": OBJECT}, **refusals(404)})
def model(name: str, parts: Shared) -> Any:
    """One model."""
    return JSONResponse({"id": parts.chat_models.find(name), "object": "model", "created": 0, "owned_by": "groupwise"})


async def _chunks(first: Mapping[str, Any], rest: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    yield f"data: {json.dumps(first)}\n\n"
    try:
        async for chunk in rest:
            yield f"data: {json.dumps(chunk)}\n\n"
        yield "data: [DONE]\n\n"
    except GroupwiseError as error:
        yield f"data: {json.dumps(error.as_dict())}\n\n"
