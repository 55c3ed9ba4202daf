"""Chat with the base model or with any trained run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from groupwise.errors import GroupwiseError
from groupwise.service.refusals import refusals
from groupwise.service.schemas import (
    ChatAnswer,
    ChatRequest,
    ConversationList,
    ConversationSummary,
    ConversationView,
    ModelList,
    ModelView,
)
from groupwise.service.state import Asker, Shared

router = APIRouter(tags=["chat"])

Name = Annotated[str, Path(min_length=1, max_length=200)]
STREAM: dict[str, Any] = {"content": {"text/event-stream": {}}}
EVENT_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.post("/api/chat", response_model=ChatAnswer, responses={200: STREAM, **refusals(404, 409)})
async def chat(request: ChatRequest, parts: Shared, who: Asker) -> Any:
    """Send a message. The answer comes in one piece, or with `stream` as server-sent events.

    The events are `start`, `delta`, `call` and `result` (of tools), and `done` with the full answer, or `error`.
    """
    if request.strategy is not None:
        parts.chat_models.chat_service.check_strategy(request.strategy)
    events = parts.chat_models.chat(request, who)
    if request.stream:
        first = await anext(events)  # an error before the first event still gets its own HTTP status
        return StreamingResponse(event_stream(first, events), headers=EVENT_STREAM, media_type="text/event-stream")
    *_, last = [event async for event in events]
    return ChatAnswer.model_validate(last)


@router.get("/api/conversations", responses=refusals())
def conversations(parts: Shared, who: Asker, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ConversationList:
    """Your conversations, newest first."""
    found = parts.chat_models.archive.newest(who.id, limit)
    return ConversationList(conversations=[ConversationSummary.model_validate(one) for one in found])


@router.get("/api/conversations/{name}", responses=refusals(404))
def conversation(name: Name, parts: Shared, who: Asker) -> ConversationView:
    """Every message of a conversation."""
    return ConversationView.model_validate(parts.chat_models.archive.read(name, who.id, admin=who.may("admin")))


@router.delete("/api/conversations/{name}", status_code=204, responses=refusals(404))
def forget(name: Name, parts: Shared, who: Asker) -> Response:
    """Delete a conversation."""
    parts.chat_models.archive.delete(name, who.id, admin=who.may("admin"))
    return Response(status_code=204)


@router.get("/api/models", responses=refusals())
def models(parts: Shared) -> ModelList:
    """The models you can chat with, and the conversation strategies."""
    found = [ModelView.model_validate(model) for model in parts.chat_models.models()]
    return ModelList(models=found, strategies=parts.chat_models.chat_service.strategies())


async def event_stream(first: Mapping[str, Any], rest: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Server-sent events; an error after the first event is sent as an event."""
    yield f"data: {json.dumps(first)}\n\n"
    try:
        async for event in rest:
            yield f"data: {json.dumps(event)}\n\n"
    except GroupwiseError as error:
        yield f"data: {json.dumps({'type': 'error', **error.as_dict()})}\n\n"
