"""Chat with the base model or with any trained run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from groupwise.agents.conversation.store import ConversationNotFound
from groupwise.agents.strategies import find_strategy
from groupwise.errors import GroupwiseError
from groupwise.service.chat_models import strategies, summary
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
        find_strategy(request.strategy)
    events = parts.chat_models.chat(request, who)
    if request.stream:
        first = await anext(events)  # an error before the first event still gets its own HTTP status
        return StreamingResponse(event_stream(first, events), headers=EVENT_STREAM, media_type="text/event-stream")
    *_, last = [event async for event in events]
    return ChatAnswer.model_validate(last)


@router.get("/api/conversations", responses=refusals())
def conversations(parts: Shared, who: Asker, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> ConversationList:
    """Your conversations, newest first."""
    found = [
        ConversationSummary.model_validate(summary(context)) for context in parts.chat_models.conversations(who, limit)
    ]
    return ConversationList(conversations=found)


@router.get("/api/conversations/{name}", responses=refusals(404))
def conversation(name: Name, parts: Shared, who: Asker) -> ConversationView:
    """Every message of a conversation."""
    context = parts.chat_models.conversation(name, who)
    messages = [dict(message) for message in context.messages]
    return ConversationView.model_validate({**summary(context), "state": context.state, "messages": messages})


@router.delete("/api/conversations/{name}", status_code=204, responses=refusals(404))
def forget(name: Name, parts: Shared, who: Asker) -> Response:
    """Delete a conversation."""
    parts.chat_models.conversation(name, who)
    if not parts.chat_models.store.delete(name):
        raise ConversationNotFound(f"there is no conversation {name!r:.60}")
    return Response(status_code=204)


@router.get("/api/models", responses=refusals())
def models(parts: Shared) -> ModelList:
    """The models you can chat with, and the conversation strategies."""
    return ModelList(models=[ModelView.model_validate(m) for m in parts.chat_models.models()], strategies=strategies())


async def event_stream(first: Mapping[str, Any], rest: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Server-sent events; an error after the first event is sent as an event."""
    yield f"data: {json.dumps(first)}\n\n"
    try:
        async for event in rest:
            yield f"data: {json.dumps(event)}\n\n"
    except GroupwiseError as error:
        yield f"data: {json.dumps({'type': 'error', **error.as_dict()})}\n\n"
